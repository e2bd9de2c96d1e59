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
from privfed.leaks.windows import each_of

#: Most text that is read line by line, and most lines of a table that are compared cell by cell.
READ, COMPARED = 1 << 21, 300
PAIRS = 100  #: Most pairs of groups of numbers that are subtracted
TOKENS = 48  #: How many tokens make a line; longer ones are parted
COMMON = 0.25  #: A cell that this share of the records or more have says nothing
POINTED = 2_000_000  #: Most records that a line's cells may point to
#: What it costs one line, in nats, that all lines together are looked at too; chance of a line that is told.
FIRST_SHARE, MATCHED = 0.1, 0.05
WHOLE = 0.25  #: How often a number that is shorter than its column's lacks only zeros
#: By how many tokens and columns, those that fit the fewest, pairs of records are looked for; most pairs.
FIRST, CANDIDATES = 6, 20_000
SUMMED, NONE = 12, -2  #: How many tokens of a line may be sums; what a line of fewer has instead
#: A number, as one group, with thousands set apart or not (in a list of numbers, commas part them); letters
#: and digits behind it make a label.
TOKEN = re.compile(
    r"((?<![A-Za-z_\d.])[-+]?(?:(?<!\d,)(?!^[-+\d,.]+$)\d{1,3}(?:[,'\u2019 \u00a0\u202f_]\d{3})++(?:\.\d++)?(?!,\d)"
    r"|[1-9]\d{0,2}(?:\.\d{3})++,\d++(?!\.\d)|\d++\.?+\d*+|\.\d++)(?:[eE][-+]?\d++)?)(?![A-Za-z_]+\d)",
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
    different: int = 0  #: how many different lines there are that say something
    _line_of: list[int] = field(default_factory=list)
    _tokens: list[np.ndarray] = field(default_factory=list)
    _named: dict[str, int] = field(default_factory=dict)
    _reaches: dict[int, np.ndarray] = field(default_factory=dict)

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
        listed = text.split("\n")
        ends = np.cumsum([len(line) + 1 for line in listed])
        dates = list(dates_in(text)) if may_be_dated(text) else []
        undated, done = [], 0
        for start, end, *_ in dates:  # no number is read in a date
            undated += [text[done:start], " " * (end - max(start, done))]
            done = max(end, done)
        parts = TOKEN.split("".join([*undated, text[done:]]))
        found = parts[1::2]
        starts = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))[::2][: len(found)]
        commas = list(COMMA.finditer(text)) if "," in text else []  # 12,5 may be two numbers or one
        value, width = read_numbers([*found, *(one[0].replace(",", ".") for one in commas)])
        when = np.array([(start, seconds, timed) for start, _, seconds, timed in dates])
        when = when.reshape(-1, 3)
        starts = np.r_[starts, [one.start() for one in commas], when[:, 0]].astype(np.int64)
        before = {gap: self._column_before(gap) for gap in set(parts[:-1:2])}
        named = [*map(before.__getitem__, parts[:-1:2]), *[-1] * (len(commas) + len(when))]
        dated = np.arange(len(starts)) >= len(value)
        value = np.r_[value, when[:, 1]]
        width = np.r_[width, np.where(when[:, 2] > 0, 1.0, DAY)]
        order = np.argsort(starts, kind="stable")
        line = ends.searchsorted(starts[order], side="right")
        counts = np.bincount(line, minlength=len(ends))
        pieces = np.maximum(1, -(-counts // TOKENS))
        first = np.cumsum(pieces) - pieces
        parted = dict(zip(listed, pieces.tolist(), strict=True))  # what is said twice, once
        self.different += sum(count for one, count in parted.items() if one.strip())
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
        key = _KEY.search(gap[-AHEAD:].rpartition("\n")[2])
        return self._column(key[1]) if key else -1

    def _subtract(self, released: Released, records: int) -> None:
        """Differences of two groups of numbers, as totals with and without one record; of means too."""
        few = [
            (block, widths, [self._column(name) for name in block.leaf.labels or [""]])
            for block, widths in zip(released.blocks, released.widths, strict=True)
            if 2 <= len(widths) <= CELLS and block.values.dtype != bool
        ]
        pairs = (
            (one, other)
            for at, one in enumerate(few)
            for other in few[at + 1 : at + 4]
            if len(one[1]) == len(other[1])
            and not np.array_equal(one[0].values.ravel(), other[0].values.ravel())
        )
        more = np.repeat([1.0, records, records + 1.0], [1, 2, 2])[:, None]
        less = np.where(more > 1, more - 1, 1.0)
        for (one, width, named), (other, narrow, _) in islice(pairs, PAIRS):
            a, b = (block.values.reshape(-1).astype(float) for block in (one, other))
            first, second = np.array([a, a, b, a, b]), np.array([b, b, a, b, a])
            value, error = np.abs(more * first - less * second), more * (width + narrow)
            line, at = np.nonzero(np.isfinite(value) & (value > 4 * error))
            place = len(self._line_of) + line
            self.different += len(np.unique(line))
            columns = np.asarray(named)[at % len(named)]  # names are of the last axis
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

    def reaches(self, at: int, table: RawTable) -> np.ndarray:
        """The tokens that may be of a numeric column, from where to where its values fit each, how wide a
        token's last digit is, and what the way it is read costs, shape (5, tokens).

        One that is shorter than the column's values was rounded, or its last zeros were left out.
        """
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
            step = float(table.steps[at])
            short = (step > 0) & (width > 1.5 * step) & ~dated
            cost = np.where(short, -np.log1p(-WHOLE), 0.0)
            read = np.stack([fit, value - np.where(dated, 0, reach), value + reach, width, cost])
            whole = np.stack([fit, value - step / 4, value + step / 4, width, cost])[:, short]
            whole[3:] = [[step], [-np.log(WHOLE)]]
            self._reaches[at] = np.concatenate([read, whole], axis=1)
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


def read_numbers(found: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers as they are written, and the width of the last digit of each."""
    all_plain = _PLAIN.issuperset("".join(found))
    plain = [all_plain or _PLAIN.issuperset(one) for one in found]
    each = zip(found, plain, strict=True)
    values = [float(one) if short else ungrouped(one) for one, short in each]
    powers = [
        (one.find(".") + 1 - len(one) if "." in one else 0)
        if short
        else _last_digit(one, value % 1 > 0)
        for one, short, value in zip(found, plain, values, strict=True)
    ]
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
    one = float(scores[0]) - float(np.log(lines.different))
    many = surprise(chance, lines.different)
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
        records = one.order[each_of(one.first[kept], counts)]
        keys.append(np.repeat(one.line[kept], counts) * table.records + records)
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
    _, _, named, line, _ = lines.tokens
    for at, (order, ordered) in enumerate(table.ranked):
        reaches = lines.reaches(at, table)
        if not reaches.size or not len(ordered):
            continue
        first = ordered.searchsorted(reaches[1], side="left")
        last = ordered.searchsorted(reaches[2], side="right")
        counts = last - first
        kept = np.flatnonzero((counts > 0) & (counts < max(2, COMMON * len(ordered))))
        if not len(kept):
            continue
        first, last, counts = first[kept], last[kept], counts[kept]
        fit, (width, cost) = reaches[0, kept].astype(int), reaches[3:, kept]
        sizes = ordered[np.r_[True, ordered[1:] != ordered[:-1]]]
        step = np.maximum(width, table.steps[at])
        near = sizes.searchsorted(ordered[first])
        own = densities(sizes, near, deviations=0) * step / len(sizes)
        share = np.clip(np.maximum(own, (counts - 1) / len(ordered)), 1e-15, 1.0)
        # any different token of the same line might have been the column's
        pairs = np.bincount(lines.line_of_pair[np.unique(lines.pairs[fit])])
        nats = -np.log(share) - np.where(named[fit] >= 0, 0.0, np.log(pairs[line[fit]]))
        many = np.maximum(nats - cost, 0.0)
        yield _Matches(line[fit], np.full(len(fit), at), many, first, last, order)


def _text_matches(lines: Lines, table: RawTable) -> Iterator[_Matches]:
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
    if not len(many):
        return None
    tried = float(np.log(4 * len(many)))
    first = line[usable].searchsorted(many)
    tokens = usable[np.minimum(first[:, None] + np.arange(SUMMED), len(usable) - 1)]
    there = line[tokens] == many[:, None]
    factors = np.repeat([1.0, 2.0], len(many))[:, None]
    tokens, there = np.tile(tokens, (2, 1)), np.tile(there, (2, 1))
    values = value[tokens] * factors
    widths = np.maximum(width[tokens] * factors, np.abs(values) * 1e-12)
    told, expected = _told(table, values, widths, np.where(there, named[tokens], NONE))
    there = there.sum(axis=1)
    best: tuple[float, int, tuple[int, int]] = (DULL + tried, -1, (0, 0))
    pairs = float(np.log(table.records * (table.records - 1) / 2))
    bound = _summed(told.max(axis=2), there, table) - pairs
    for at in np.argsort(-bound, kind="stable"):
        if bound[at] <= best[0]:
            break
        kept = slice(there[at])
        score, pair = _pair(
            table, values[at, kept], widths[at, kept], told[at, :, kept], expected[at, :, kept]
        )
        best = max(best, (score - pairs, int(many[at % len(many)]), pair))
    if best[1] < 0:
        return None
    one, other = sorted(best[2])
    return Evidence(
        "lines",
        "the sums or means of two records, over several columns",
        best[0] - tried,
        partial(lines.locate, best[1]),
        partial(str, f"records {one} and {other}{table.whose}"),
        mend="a mean of two gives both away to either; pool more records, or add noise",
        plain=4,
    )


def _told(
    table: RawTable, value: np.ndarray, width: np.ndarray, named: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What each line's tokens tell as sums of each column, in nats, shape (lines, columns, tokens); and how
    many pairs of records are expected to have such a sum."""
    scales, least, most = table.memoised("sums", lambda: _sums(table.numbers))
    value, width, named = value[:, None], width[:, None], named[:, None]
    fits = (named == -1) | (named == np.arange(len(scales))[:, None])
    fits &= (value + width >= least) & (value - width <= most)
    steps = table.steps[:, None]  # sums are as many of them apart as values are
    units = (value - least) / np.where(steps > 0, steps, np.inf)
    fits &= steps * (np.abs(units - np.rint(units)) - 1e-6) <= width
    gain = np.log(np.maximum(scales, 1e-300) / np.maximum(width, steps))
    any_of = np.log((named != NONE).sum(axis=2, keepdims=True))  # any might be the column's
    told = np.maximum(gain - np.where(named == -1, any_of, 0.0), 0.0)
    expected = np.where(fits, np.exp(-gain) * table.records**2 / 2, np.inf)
    return np.where(fits, told, 0.0), expected


def _summed(nats: np.ndarray, tokens: np.ndarray | int, table: RawTable) -> np.ndarray:
    """What each row tells over groups of columns that depend on one another, no more than it has tokens."""
    groups = table.groups[: table.numbers.shape[1]]
    best = [nats[:, groups == one].max(axis=1) for one in np.unique(groups)]
    ranked = -np.sort(-np.column_stack(best), axis=1)
    counted = np.arange(ranked.shape[1]) < np.reshape(tokens, (-1, 1))
    return np.where((ranked > 0).sum(axis=1) > 1, (ranked * counted).sum(axis=1), 0.0)


def _pair(
    table: RawTable, value: np.ndarray, width: np.ndarray, told: np.ndarray, expected: np.ndarray
) -> tuple[float, tuple[int, int]]:
    """The pair of records whose sums are most of the values, and how much these tell.

    Candidates are found by the token and column that fit the fewest pairs.
    """
    numbers = table.numbers
    order = table.memoised("order", lambda: np.argsort(numbers, axis=0, kind="stable"))
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for at in np.argsort(expected, axis=None)[:FIRST]:
        column, token = divmod(int(at), len(value))
        if expected[column, token] < CANDIDATES:
            ranked = order[:, column]
            found.append(_partners(numbers[ranked, column], ranked, value[token], width[token]))
    if not found:
        return 0.0, (0, 0)
    one, other = (np.concatenate(part)[:CANDIDATES] for part in zip(*found, strict=True))
    if not len(one):
        return 0.0, (0, 0)
    sums = numbers[one] + numbers[other]
    near = np.abs(sums[:, :, None] - value) <= 0.5 * width * (1 + 1e-6) + np.abs(value) * 1e-12
    total = _summed(np.where(near, told, 0.0).max(axis=2), len(value), table)
    best = int(np.argmax(total))
    return float(total[best]), (int(one[best]), int(other[best]))


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
    at = each_of(first, counts)
    one = np.repeat(np.arange(len(ordered)), counts)
    kept = one < at
    return order[one[kept]], order[at[kept]]
