"""Takes raw values out of what a failing test prints: captured output, and reprs of its fixtures."""

import re
from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property

import numpy as np

from privfed.leaks.lines import TOKEN, read_numbers
from privfed.leaks.reading.dates import DAY, dates_in, may_be_dated
from privfed.leaks.reading.texts import COLOUR, COMMA
from privfed.leaks.table import RawTable
from privfed.leaks.texts import SHORTEST, Runs, TextColumn, normalised

REDACTED = "[raw]"  #: What stands in a value's place
DIGITS = 4  #: Whole numbers with fewer digits are left: line numbers, counts, percentages
_BEFORE = re.compile(r"([^\n]{0,60}?)\.\.\.")
_BEHIND = re.compile(r"\.\.\.((?:(?!\.\.\.)[^\n]){0,60})")
TEXTS = 50_000  #: Most values of a table that are looked for as texts


class Redaction:
    """What must not be printed of raw tables; synthetic ones are left as they are."""

    def __init__(self, tables: Iterable[RawTable]) -> None:
        self._tables = [table for table in tables if not table.sentinel]

    def __bool__(self) -> bool:
        return bool(self._tables)

    @cached_property
    def _sizes(self) -> np.ndarray:
        cells = (table.rare[np.isfinite(table.rare)] for table in self._tables)
        return np.unique(np.abs(np.concatenate([np.empty(0), *cells])))

    @cached_property
    def _days(self) -> set[float]:
        cells = [table.rare[:, table.dates].ravel() for table in self._tables]
        return set((np.concatenate([np.empty(0), *cells]) // DAY).tolist())

    @cached_property
    def _columns(self) -> list[TextColumn]:
        return [one for table in self._tables for one in table.texts if one.naming]

    @cached_property
    def _values(self) -> list[str]:
        return sorted(
            {
                value
                for column in self._columns
                for value in column.values[:TEXTS]
                if len(value) >= SHORTEST
            }
        )

    @cached_property
    def _texts(self) -> re.Pattern[str] | None:
        listed = sorted(self._values, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, listed)), re.IGNORECASE) if listed else None

    def of(self, text: str) -> str:
        """A text without raw texts and days, and without numbers that are raw at the precision they are printed."""
        if not self._tables or not text:
            return text
        text = COLOUR.sub("", text)  # behind whose last letter a number were a label
        for column in self._columns:
            text = self._without(column, text)
        if self._texts is not None:
            text = _BEFORE.sub(self._before, self._texts.sub(REDACTED, text))
            text = _BEHIND.sub(self._behind, text)
        if self._days and may_be_dated(text):
            text = self._undated(text)
        if not len(self._sizes):
            return text
        return TOKEN.sub(self._number, COMMA.sub(self._number, text))

    def _without(self, column: TextColumn, text: str) -> str:
        """A text without a column's values in any case, order of words, spacing and punctuation."""
        runs = Runs.of(text)
        begins, forms, _ = runs.find(column, tuple(w for w in column.widths if w >= SHORTEST))
        if not len(begins):
            return text
        lengths = [len(text)] if text.isascii() else [len(normalised(one)) for one in text]
        origin = (
            np.arange(len(text)) if text.isascii() else np.repeat(np.arange(len(text)), lengths)
        )
        parts, done = [], 0
        for begin, length in sorted(
            zip(begins.tolist(), column.lengths[forms].tolist(), strict=True)
        ):
            start, end = (
                int(origin[runs.positions[begin]]),
                int(origin[runs.at[begin + length - 1]]) + 1,
            )
            parts += [text[done:start], REDACTED] if start >= done else []
            done = max(done, end)
        return "".join([*parts, text[done:]])

    def _undated(self, text: str) -> str:
        """A text without the table's days, in any notation and with any time behind them."""
        parts, done = [], 0
        for start, end, seconds, _ in dates_in(text):
            if start >= done and seconds // DAY in self._days:
                parts += [text[done:start], REDACTED]
                done = end
        return "".join([*parts, text[done:]])

    @cached_property
    def _begun(self) -> tuple[list[str], list[str]]:
        """The values in lower case, and backwards, each in order."""
        lower = [value.lower() for value in self._values]
        return sorted(lower), sorted(value[::-1] for value in lower)

    def _before(self, found: re.Match[str]) -> str:
        """What an ellipsis has cut a value to, in front of it."""
        kept = len(found[1]) - _beginning(found[1], self._begun[0])
        return found[1][:kept] + (REDACTED if kept < len(found[1]) else "") + "..."

    def _behind(self, found: re.Match[str]) -> str:
        gone = _beginning(found[1][::-1], self._begun[1])
        return "..." + (REDACTED if gone else "") + found[1][gone:]

    def _number(self, found: re.Match[str]) -> str:
        text = found[0]
        digits = sum(one.isdigit() for one in text)
        if digits < (2 if "." in text or "," in text else DIGITS):
            return text
        plain = text.replace(",", ".") if found.re is COMMA else text
        (value,), (width,) = read_numbers([plain])
        low, high = abs(value) - 0.5 * width * (1 + 1e-6), abs(value) + 0.5 * width * (1 + 1e-6)
        first, last = np.searchsorted(self._sizes, [low, high])
        return REDACTED if last > first else text


def _beginning(text: str, values: list[str]) -> int:
    """How long the longest end of a text is that some value begins with."""
    for start in range(max(0, len(text) - SHORTEST + 1)):
        end = text[start:].lower()
        at = bisect_left(values, end)
        if at < len(values) and values[at].startswith(end):
            return len(end)
    return 0
