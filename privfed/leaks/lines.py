"""Several cells of one record side by side: in a line of text, or in one container.

No single cell need be rare: an age, a code and a measurement are a patient when they stand together.
Key names before a value (``creatinine=1.27``) tell which column it is of. The same is asked of two
records' sums and means.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice

import numpy as np

from privfed.leaks.artefact import Located, Released
from privfed.leaks.chance import DULL, densities, surprise
from privfed.leaks.evidence import Evidence
from privfed.leaks.reading.dates import DAY, dates_in, may_be_dated
from privfed.leaks.reading.leaf import CELLS
from privfed.leaks.reading.texts import COMMA, ungrouped
from privfed.leaks.table import RawTable
from privfed.leaks.texts import Runs, key_of, runs_of

#: Most text that is read line by line, and most lines of a table that are compared cell by cell.
READ, COMPARED = 1 << 21, 300
PAIRS = 100  #: Most pairs of groups of numbers that are subtracted
TOKENS = 48  #: How many tokens make a line; longer ones are parted
COMMON = 0.25  #: A cell that this share of the records or more have says nothing
POINTED = 2_000_000  #: Most records that a line's cells may point to
#: What it costs one line, in nats, that all lines together are looked at too; chance of a line that is told.
FIRST_SHARE, MATCHED = 0.1, 0.05
#: By how many tokens and columns, those that fit the fewest, pairs of records are looked for; most pairs.
FIRST, CANDIDATES = 6, 20_000
#: A number, as one group, with thousands set apart or not (in a list of numbers, commas part them); letters
#: and digits behind it make a label.
_TOKEN = re.compile(
    r"((?<![A-Za-z_\d.])[-+]?(?:(?<!\d,)(?!^[-+\d,.]+$)\d{1,3}(?:[,'\u2019 \u00a0\u202f_]\d{3})++(?:\.\d++)?(?!,\d)"
    r"|\d{1,3}(?:\.\d{3})++,\d++|\d++\.?+\d*+|\.\d++)(?:[eE][-+]?\d++)?)(?![A-Za-z_]+\d)",
    re.MULTILINE,
)
#: What names it in front of it, and how much of that is read.
_KEY = re.compile(
    r"([A-Za-z_][\w .-]{0,40}?)(?:[\"'\])]*\s*(?:[:=]|\bis\b)\s*[\"'(\[]?|\s)[$€£]?\Z"
)
AHEAD = 64
#: Words of a key: parted by what is no letter or digit, and where a capital follows a small letter.
_WORD = re.compile(r"[^\W_]+?(?=[\W_]|$|(?<=[a-z0-9])(?=[A-Z]))")
_PLAIN = frozenset("0123456789.+-")
MEND = "cells of one record stand together; leave the record out, or pool at least k records"


@dataclass(eq=False)
class Lines:
    """Numbers and runs of letters by line."""

    names: Sequence[bytes]  #: keys of the names of the table's numeric columns
    text: Located  #: the texts that are read, one after the other
    #: their letters and digits, and the line of each
    runs: list[tuple[Runs, np.ndarray]] = field(default_factory=list)
    #: the two groups of released numbers of which each further line is made
    differences: list[str] = field(default_factory=list)
    _line_of: list[int] = field(default_factory=list)
    _tokens: list[np.ndarray] = field(default_factory=list)
    _named: dict[str, int] = field(default_factory=dict)
    _before: dict[str, int] = field(default_factory=dict)
    _reaches: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=dict)

    @classmethod
    def of(cls, released: Released, table: RawTable) -> Lines:
        """Of all texts, the short ones first, as much as may be read."""
        texts, read = [], 0
        for path, text in sorted([*released.rows, *released.texts], key=lambda one: len(one[1])):
            read += len(text)
            if read <= READ:
                texts.append((path, text))
        lines = cls([key_of(name) for name in table.names], Located(texts))
        lines._read()
        lines._subtract(released, table.records)
        return lines

    def __len__(self) -> int:
        return len(self._line_of)

    def _read(self) -> None:
        text = self.text.joined if self.text.texts else ""
        lengths = np.array([len(line) + 1 for line in text.split("\n")])
        ends = np.cumsum(lengths)
        dates = list(dates_in(text)) if may_be_dated(text) else []
        undated, done = [], 0
        for start, end, *_ in dates:  # no number is read in a date
            undated += [text[done:start], " " * (end - max(start, done))]
            done = max(end, done)
        parts = _TOKEN.split("".join([*undated, text[done:]]))
        found = parts[1::2]
        starts = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))[::2][: len(found)]
        commas = list(COMMA.finditer(text)) if "," in text else []  # 12,5 may be two numbers or one
        value, width = _read_numbers([*found, *(one[0].replace(",", ".") for one in commas)])
        when = np.array([(start, seconds, timed) for start, _, seconds, timed in dates])
        when = when.reshape(-1, 3)
        starts = np.r_[starts, [one.start() for one in commas], when[:, 0]].astype(np.int64)
        named = [*map(self._column_before, parts[:-1:2]), *[-1] * (len(commas) + len(when))]
        dated = np.arange(len(starts)) >= len(value)
        value = np.r_[value, when[:, 1]]
        width = np.r_[width, np.where(when[:, 2] > 0, 1.0, DAY)]
        order = np.argsort(starts, kind="stable")
        line = ends.searchsorted(starts[order], side="right")
        counts = np.bincount(line, minlength=len(ends))
        pieces = np.maximum(1, -(-counts // TOKENS))
        first = np.cumsum(pieces) - pieces
        rank = np.arange(len(line)) - np.repeat(np.cumsum(counts) - counts, counts)
        place = first[line] + rank // TOKENS
        read = np.column_stack([value, width, named, np.zeros(len(value)), dated])[order]
        read[:, 3] = place
        self._tokens.append(read)
        self._line_of += np.repeat(np.arange(len(ends)), pieces).tolist() if text else []
        for runs in runs_of(text):
            if len(runs.lower):
                self.runs.append((runs, first[runs.lines]))

    def _column_before(self, gap: str) -> int:
        """The column that what stands in front of a number names."""
        if gap not in self._before:
            key = _KEY.search(gap[-AHEAD:].rpartition("\n")[2])
            self._before[gap] = self._column(key[1]) if key else -1
        return self._before[gap]

    def _subtract(self, released: Released, records: int) -> None:
        """Differences of two groups of numbers, as totals with and without one record; of means too."""
        few = [
            (
                block,
                widths,
                [self._column(name) for name in block.leaf.labels or [""] * len(widths)],
            )
            for block, widths in zip(released.blocks, released.widths, strict=True)
            if 2 <= len(widths) <= CELLS and block.values.dtype != bool
        ]
        pairs = (
            (one, other)
            for at, one in enumerate(few)
            for other in few[at + 1 : at + 4]
            if len(one[1]) == len(other[1])
        )
        more = np.repeat([1.0, records, records + 1.0], [1, 2, 2])[:, None]
        less = np.where(more > 1, more - 1, 1.0)
        for (one, width, named), (other, narrow, _) in islice(pairs, PAIRS):
            a, b = (block.values.reshape(-1).astype(float) for block in (one, other))
            first, second = np.array([a, a, b, a, b]), np.array([b, b, a, b, a])
            value, error = np.abs(more * first - less * second), more * (width + narrow)
            line, at = np.nonzero(np.isfinite(value) & (value > 4 * error))
            place = len(self._line_of) + line
            columns = np.asarray(named)[at]
            kept = value[line, at], error[line, at], columns, place, np.zeros(len(at))
            self._tokens.append(np.array(kept).T)
            self.differences.append(f"{one.path} less {other.path}")
            self._line_of += [-len(self.differences)] * len(more)

    def _column(self, key: str) -> int:
        """The column whose name a key's last words are, or -1: the age of ``patient_age``, not of ``page``."""
        if key not in self._named:
            words = [key_of(word) for word in _WORD.findall(key)]
            ends = {b"".join(words[at:]) for at in range(len(words))}
            fit = [at for at, name in enumerate(self.names) if name in ends]
            self._named[key] = max(fit, key=lambda at: len(self.names[at]), default=-1)
        return self._named[key]

    @cached_property
    def tokens(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Values, widths, named columns, lines, and whether dates."""
        value, width, named, line, dated = np.concatenate(self._tokens).T
        return value, width, named.astype(int), line.astype(int), dated.astype(bool)

    def reaches(self, at: int, table: RawTable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The tokens that may be of a numeric column, and from where to where its values fit each."""
        if at not in self._reaches:
            value, width, named, _, dated = self.tokens
            fit = np.isfinite(value) & ~np.isin(np.abs(value), np.abs(table.public))
            if table.dates[at]:  # seconds since 1970, and thousandths, are dates too
                thousandths = (value > 1e11) & (value < 5e12)
                value = np.where(thousandths, value / 1000, value)
                fit &= dated | thousandths | ((value > 1e8) & (value < 5e9))
            else:
                fit &= ~dated
            fit = np.flatnonzero(fit & ((named == -1) | (named == at)))
            value, width, dated = value[fit], width[fit], dated[fit]
            reach = np.maximum(width * np.where(dated, 0.999, 0.5 + 1e-6), np.abs(value) * 1e-12)
            self._reaches[at] = fit, value - np.where(dated, 0, reach), value + reach
        return self._reaches[at]

    @cached_property
    def pairs(self) -> np.ndarray:
        """For each token a number that equal values of one line share."""
        value, _, _, line, _ = self.tokens
        order = np.lexsort((value, line))
        new = (np.diff(value[order]) != 0) | (np.diff(line[order]) != 0)
        pairs = np.zeros(len(value), dtype=np.int64)
        pairs[order[1:]] = np.cumsum(new)
        return pairs

    @cached_property
    def line_of_pair(self) -> np.ndarray:
        """The line of each of these numbers."""
        lines = np.zeros(len(self.pairs), dtype=np.int64)
        lines[self.pairs] = self.tokens[3]
        return lines

    def locate(self, line: int) -> str:
        """Where a line is."""
        number = self._line_of[line]
        return self.differences[-number - 1] if number < 0 else self.text.locate(number)


def _read_numbers(found: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as they are written, and the width of the last digit of each."""
    if _PLAIN.issuperset("".join(found)):
        values = [*map(float, found)]
        powers = [one.find(".") + 1 - len(one) if "." in one else 0 for one in found]
    else:
        values = [float(one) if _PLAIN.issuperset(one) else ungrouped(one) for one in found]
        each = zip(found, values, strict=True)
        powers = [_last_digit(one, value % 1 > 0) for one, value in each]
    value = np.array(values, dtype=float)
    return value, np.maximum(10.0 ** np.array(powers, dtype=float), np.abs(value) * 2.0**-50)


def _last_digit(text: str, fraction: bool) -> int:
    """The power of ten of the last digit that is written."""
    mantissa, _, power = text.lower().partition("e")
    mark = max(mantissa.rfind("."), mantissa.rfind(",") if fraction else -1)
    decimals = len(mantissa) - mark - 1 if mark >= 0 else 0
    return min(max(int(power or 0) - decimals, -300), 300)


@dataclass(frozen=True, eq=False)
class _Matches:
    """Cells that match tokens: nats, and records as a slice of some order."""

    line: np.ndarray
    column: np.ndarray
    nats: np.ndarray
    first: np.ndarray
    last: np.ndarray
    order: np.ndarray


def together(lines: Lines, table: RawTable) -> Evidence | None:
    """The line whose cells are most surprisingly those of one record."""
    found = [*_number_matches(lines, table), *_text_matches(lines, table)]
    found = [one for one in found if len(one.line)]
    if not found:
        return None
    line = np.concatenate([one.line for one in found])
    column = np.concatenate([one.column for one in found])
    nats = np.concatenate([one.nats for one in found])
    width = len(table.groups)
    best = np.zeros((int(line.max()) + 1) * width)
    np.maximum.at(best, line * width + table.groups[column], nats)
    bound = best.reshape(-1, width).sum(axis=1) - np.log(table.records)
    several = (best.reshape(-1, width) > 0).sum(axis=1) > 1
    chosen = np.flatnonzero((bound > 0) & several)
    chosen = chosen[np.argsort(-bound[chosen])][:COMPARED]
    if not len(chosen):
        return None
    scores, places, records, named = _best_of_each(chosen, found, table)
    scores -= np.log(table.records)
    _, once = np.unique(records, return_index=True)
    chance = np.exp(-np.maximum(scores[once], 0.0))
    one = float(scores[0]) - float(np.log(len(lines)))
    many = surprise(chance, len(lines))
    return Evidence(
        "lines",
        "several cells of one record, side by side",
        max(one - FIRST_SHARE, many + float(np.log1p(-np.exp(-FIRST_SHARE)))) - float(np.log(2)),
        partial(lines.locate, int(places[0])),
        lambda: f"record {records[0]}, columns {_named(table, named)}{table.whose}",
        1 if one > many else int((chance < MATCHED).sum()),
        mend=MEND,
        plain=1,
    )


def _best_of_each(
    chosen: np.ndarray, found: list[_Matches], table: RawTable
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
    """For each line the greatest sum of the nats of one record, over columns that say something new: of
    those that depend on one another only the one that says most. The greatest first: sums, lines,
    records, and the columns of the first."""
    keys, columns, nats = [], [], []
    for one in found:
        kept = np.flatnonzero(np.isin(one.line, chosen))
        counts = one.last[kept] - one.first[kept]
        kept = kept[np.cumsum(counts) <= POINTED]
        counts = one.last[kept] - one.first[kept]
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        at = np.arange(total) + np.repeat(one.first[kept] - ends + counts, counts)
        keys.append(np.repeat(one.line[kept], counts) * table.records + one.order[at])
        columns.append(np.repeat(one.column[kept], counts))
        nats.append(np.repeat(one.nats[kept], counts))
    key, column, gain = map(np.concatenate, (keys, columns, nats))
    group = table.groups[column]
    order = np.lexsort((-gain, group, key))
    key, group, column, gain = key[order], group[order], column[order], gain[order]
    once = np.r_[True, (key[1:] != key[:-1]) | (group[1:] != group[:-1])]
    key, column, gain = key[once], column[once], gain[once]
    starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    ends = np.r_[starts[1:], len(key)]
    sums = np.where(ends - starts > 1, np.add.reduceat(gain, starts), 0.0)
    line, record = np.divmod(key[starts], table.records)
    order = np.argsort(-sums, kind="stable")
    order = order[np.sort(np.unique(line[order], return_index=True)[1])]
    named = column[starts[order[0]] : ends[order[0]]].tolist()
    return sums[order], line[order], record[order], named


def _named(table: RawTable, columns: list[int]) -> str:
    names = [*table.names, *(text.name for text in table.texts)]
    return ", ".join(repr(names[at]) for at in columns)


def _number_matches(lines: Lines, table: RawTable) -> Iterator[_Matches]:
    """Tokens against the numeric columns."""
    _, width, named, line, _ = lines.tokens
    for at, (order, ordered) in enumerate(table.ranked):
        fit, low, high = lines.reaches(at, table)
        if not len(fit) or not len(ordered):
            continue
        first = ordered.searchsorted(low, side="left")
        last = ordered.searchsorted(high, side="right")
        counts = last - first
        kept = np.flatnonzero((counts > 0) & (counts < max(2, COMMON * len(ordered))))
        if not len(kept):
            continue
        fit, first, last, counts = fit[kept], first[kept], last[kept], counts[kept]
        sizes = ordered[np.r_[True, ordered[1:] != ordered[:-1]]]
        step = np.maximum(width[fit], table.steps[at])
        near = sizes.searchsorted(ordered[first])
        own = densities(sizes, near, deviations=0) * step / len(sizes)
        share = np.clip(np.maximum(own, (counts - 1) / len(ordered)), 1e-15, 1.0)
        # any different token of the same line might have been the column's
        pairs = np.bincount(lines.line_of_pair[np.unique(lines.pairs[fit])])
        nats = -np.log(share) - np.where(named[fit] >= 0, 0.0, np.log(pairs[line[fit]]))
        many = np.maximum(nats, 0.0)
        yield _Matches(line[fit], np.full(len(fit), at), many, first, last, order)


def _text_matches(lines: Lines, table: RawTable) -> Iterator[_Matches]:
    """Runs of letters and digits against the text columns."""
    for number, column in enumerate(table.texts, start=len(table.names)):
        twin = column.name in table.names  # ids are numbers and texts, and count once
        at = table.names.index(column.name) if twin else number
        for runs, numbers in lines.runs:
            begins, forms, _ = runs.find(column, column.widths)
            if not len(begins):
                continue
            order, ends = column.by_value
            values = column.value_of[forms]
            counts = ends[values + 1] - ends[values]
            kept = (counts > 0) & (counts < COMMON * table.records)
            begins, values, counts = begins[kept], values[kept], counts[kept]
            if len(begins):
                nats = np.log(table.records / counts)
                full = np.full(len(begins), at)
                yield _Matches(numbers[begins], full, nats, ends[values], ends[values + 1], order)


def of_two_records(lines: Lines, table: RawTable) -> Evidence | None:
    """A line whose numbers are the sums or means of the same two records, over several columns."""
    value, width, named, line, dated = lines.tokens
    if table.records < 3 or table.numbers.shape[1] < 2:
        return None
    usable = np.flatnonzero(~dated & np.isfinite(value) & (width < 1e-2 * np.abs(value)))
    places, counts = np.unique(line[usable], return_counts=True)
    many = places[counts > 1][: COMPARED // 10]
    tried = float(np.log(4 * max(1, len(many))))
    best: tuple[float, int, tuple[int, int]] = (DULL + tried, -1, (0, 0))
    for at in many:
        tokens = usable[line[usable] == at][:12]
        for factor in (1.0, 2.0):
            score, pair = _pair(
                table, value[tokens] * factor, width[tokens] * factor, named[tokens], best[0]
            )
            best = max(best, (score, int(at), pair))
    if best[1] < 0:
        return None
    first, second = best[2]
    return Evidence(
        "lines",
        "the sums or means of two records, over several columns",
        best[0] - tried,
        partial(lines.locate, best[1]),
        partial(str, f"records {first} and {second}{table.whose}"),
        mend="a mean of two gives both away to either; pool more records, or add noise",
        plain=4,
    )


def _pair(
    table: RawTable, value: np.ndarray, width: np.ndarray, named: np.ndarray, beyond: float
) -> tuple[float, tuple[int, int]]:
    """The pair of records whose sums are most of the values, and how surprising that is; none where that
    cannot be beyond something.

    Candidates are found by the token and column that fit the fewest pairs.
    """
    numbers = table.numbers
    width = np.maximum(width, np.abs(value) * 1e-12)
    order = table.memoised("order", lambda: np.argsort(numbers, axis=0, kind="stable"))
    scales, least, most = table.memoised("sums", lambda: _sums(numbers))
    fits = (named < 0) | (named == np.arange(numbers.shape[1])[:, None])
    fits &= (value + width >= least) & (value - width <= most)
    fine = np.maximum(width, table.steps[:, None])
    gain = np.log(np.maximum(scales, 1e-300) / fine)
    told = gain - np.where(named < 0, np.log(len(value)), 0.0)  # any might be the column's
    told = np.where(fits, np.maximum(told, 0.0), 0.0)
    pairs = float(np.log(table.records * (table.records - 1) / 2))
    most = np.zeros(int(table.groups.max()) + 1)
    np.maximum.at(most, table.groups[: numbers.shape[1]], told.max(axis=1))
    if most.sum() - pairs <= beyond:
        return 0.0, (0, 0)
    expected = np.where(fits, np.exp(-gain) * table.records**2 / 2, np.inf)
    first_found: list[tuple[np.ndarray, np.ndarray]] = []
    for at in np.argsort(expected, axis=None)[:FIRST]:
        column, token = divmod(int(at), len(value))
        if expected[column, token] < CANDIDATES:
            ranked = order[:, column]
            ordered = numbers[ranked, column]
            first_found.append(_partners(ordered, ranked, value[token], width[token]))
    if not first_found:
        return 0.0, (0, 0)
    one, other = (np.concatenate(part)[:CANDIDATES] for part in zip(*first_found, strict=True))
    if not len(one):
        return 0.0, (0, 0)
    sums = numbers[one] + numbers[other]
    near = np.abs(sums[:, :, None] - value) <= 0.5 * width * (1 + 1e-6) + np.abs(value) * 1e-12
    nats = np.where(near, told, 0.0).max(axis=2)
    groups = table.groups[: numbers.shape[1]]
    nats = np.column_stack([nats[:, groups == one].max(axis=1) for one in np.unique(groups)])
    total = np.where((nats > 0).sum(axis=1) > 1, nats.sum(axis=1), 0.0)
    best = int(np.argmax(total))
    return float(total[best] - pairs), (int(one[best]), int(other[best]))


def _sums(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """About what range the sums of two records of each column take; the least, and the greatest."""
    numbers = np.where(np.isfinite(numbers), numbers, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without any value
        about = np.nanstd(numbers, axis=0) * 2.5 * np.sqrt(2)
        ends = 2 * np.nanmin(numbers, axis=0), 2 * np.nanmax(numbers, axis=0)
    return about[:, None], ends[0][:, None], ends[1][:, None]


def _partners(
    ordered: np.ndarray, order: np.ndarray, total: float, width: float
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of records whose values add up to a total, within half a last digit."""
    reach = 0.5 * width * (1 + 1e-6) + abs(total) * 1e-12
    first = np.searchsorted(ordered, total - ordered - reach, side="left")
    last = np.searchsorted(ordered, total - ordered + reach, side="right")
    counts = np.maximum(last - first, 0)
    ends = np.cumsum(counts)
    at = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - ends + counts, counts)
    one = np.repeat(np.arange(len(ordered)), counts)
    kept = one < at
    return order[one[kept]], order[at[kept]]
