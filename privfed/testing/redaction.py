"""Redacts raw values in the output of failing tests: captured output, and reprs of fixtures."""

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

REDACTED = "[raw]"  #: Replaces a value
DIGITS = 4  #: Integers with fewer digits are kept: line numbers, counts, percentages
_BEFORE = re.compile(r"([^\n]{0,60}?)\.\.\.")
_BEHIND = re.compile(r"\.\.\.((?:(?!\.\.\.)[^\n]){0,60})")
TEXTS = 50_000  #: Most values of a table that are searched as texts


class Redaction:
    """Redaction of the values of raw tables; synthetic tables are ignored."""

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
        return [column for table in self._tables for column in table.texts if column.naming]

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
        by_length = sorted(self._values, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, by_length)), re.IGNORECASE) if by_length else None

    def of(self, text: str) -> str:
        """Redact raw texts, dates, and numbers that are raw at their printed precision."""
        if not self._tables or not text:
            return text
        text = COLOUR.sub("", text)  # a number after its last letter would be a label
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
        """Redact a column's values in any case, order of words, spacing and punctuation."""
        runs = Runs.of(text)
        begins, forms, _ = runs.find(column, tuple(w for w in column.widths if w >= SHORTEST))
        if not len(begins):
            return text
        source = np.arange(len(text))
        if not text.isascii():
            source = np.repeat(source, [len(normalised(letter)) for letter in text])
        parts, position = [], 0
        for begin, length in sorted(
            zip(begins.tolist(), column.lengths[forms].tolist(), strict=True)
        ):
            start = int(source[runs.positions[begin]])
            end = int(source[runs.positions[begin + length - 1]]) + 1
            parts += [text[position:start], REDACTED] if start >= position else []
            position = max(position, end)
        return "".join([*parts, text[position:]])

    def _undated(self, text: str) -> str:
        """Redact the table's dates, in any notation and with any time."""
        parts, position = [], 0
        for start, end, seconds, _ in dates_in(text):
            if start >= position and seconds // DAY in self._days:
                parts += [text[position:start], REDACTED]
                position = end
        return "".join([*parts, text[position:]])

    @cached_property
    def _sorted_values(self) -> tuple[list[str], list[str]]:
        """Values in lower case, and reversed, each sorted."""
        lower = [value.lower() for value in self._values]
        return sorted(lower), sorted(value[::-1] for value in lower)

    def _before(self, match: re.Match[str]) -> str:
        """Redact the beginning of a value before an ellipsis."""
        kept = len(match[1]) - _beginning(match[1], self._sorted_values[0])
        return match[1][:kept] + (REDACTED if kept < len(match[1]) else "") + "..."

    def _behind(self, match: re.Match[str]) -> str:
        n_removed = _beginning(match[1][::-1], self._sorted_values[1])
        return "..." + (REDACTED if n_removed else "") + match[1][n_removed:]

    def _number(self, match: re.Match[str]) -> str:
        text = match[0]
        digits = sum(letter.isdigit() for letter in text)
        if digits < (2 if "." in text or "," in text else DIGITS):
            return text
        number = text.replace(",", ".") if match.re is COMMA else text
        (value,), (width,) = read_numbers([number])
        low, high = abs(value) - 0.5 * width * (1 + 1e-6), abs(value) + 0.5 * width * (1 + 1e-6)
        first, last = np.searchsorted(self._sizes, [low, high])
        return REDACTED if last > first else text


def _beginning(text: str, values: list[str]) -> int:
    """Length of the longest suffix of a text that is a prefix of some value."""
    for start in range(max(0, len(text) - SHORTEST + 1)):
        end = text[start:].lower()
        index = bisect_left(values, end)
        if index < len(values) and values[index].startswith(end):
            return len(end)
    return 0
