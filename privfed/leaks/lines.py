"""Finds several cells of one record together, in a line of text or in one container.

Cells that are common alone identify a record in combination: an age, a code and a measurement. A key before
a value (``creatinine=1.27``) names its column. Sums and means of two records are searched likewise.
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

#: Most characters that are read line by line, and most lines that are compared with a table cell by cell.
READ, COMPARED = 1 << 21, 300
PAIRS = 100  #: Most pairs of groups of numbers that are subtracted
ROWS = 20  #: Most rows of a table whose rows are such groups
TOKENS = 48  #: Most tokens per line; longer lines are split
COMMON = 0.25  #: A cell shared by at least this fraction of the records is uninformative
POINTED = 2_000_000  #: Most records that a line's cells may point to
#: Cost in nats of also testing all lines jointly; probability below which a line counts as a match.
FIRST_SHARE, MATCHED = 0.1, 0.05
WHOLE = 0.25  #: Prior that a number shorter than its column's lacks only trailing zeros
#: Most selective pairs of token and column by which pairs of records are searched; most pairs of records.
FIRST, CANDIDATES = 6, 20_000
SUMMED, NONE = 12, -2  #: Most tokens of a line that may be sums; padding for shorter lines
#: A number, as one group, with or without thousands separators (in a list of numbers, commas separate the
#: numbers); letters and digits behind it make a label.
TOKEN = re.compile(
    r"((?<![A-Za-z_\d.])[-+]?(?:(?<!\d,)(?!^[-+\d,.]+$)\d{1,3}(?:[,'\u2019 \u00a0\u202f_]\d{3})++(?:\.\d++)?(?!,\d)"
    r"|[1-9]\d{0,2}(?:\.\d{3})++,\d++(?!\.\d)|\d++\.?+\d*+|\.\d++)(?:[eE][-+]?\d++)?)(?![A-Za-z_]+\d)",
    re.MULTILINE,
)
#: A key before a number, and the characters that are searched for it.
_KEY = re.compile(
    r"([A-Za-z_][\w .-]{0,40}?)(?:[\"'\])]*\s*(?:[:=]|\bis\b)\s*[\"'(\[]?|\s)[$€£]?\Z"
)
AHEAD = 64
#: Words of a key: split at other characters than letters and digits, and between lower and upper case.
_WORD = re.compile(r"[^\W_]+?(?=[\W_]|$|(?<=[a-z0-9])(?=[A-Z]))")
_PLAIN = frozenset("0123456789.+-")
REMEDY = "cells of one record stand together; leave the record out, or pool at least k records"


def _groups_of(
    released: Released,
) -> Iterator[tuple[str, np.ndarray, np.ndarray, Sequence[str]]]:
    """Yield groups of numbers, and the rows of small tables, with path, values, widths and names of the last axis."""
    for block, widths in zip(released.blocks, released.widths, strict=True):
        if block.values.dtype == bool or len(widths) > ROWS * CELLS:
            continue
        values, names = block.values.astype(float), block.leaf.labels or [""]
        yield block.path, values.reshape(-1), widths, names
        if values.ndim == 2 and 2 <= len(values) <= ROWS:
            rows = zip(values, widths.reshape(values.shape), strict=True)
            yield from ((f"{block.path}[{row}]", *pair, names) for row, pair in enumerate(rows))


def _apart(text: str, names: Sequence[str]) -> str:
    """Return a text with a space between the name of a column and a number behind it, as in ``age47``."""
    words = [re.escape(name) for name in names if name[-1:].isalpha()]
    if not words:
        return text
    return re.sub(rf"(?<![^\W_])({'|'.join(words)})(?=\d)", r"\1 ", text, flags=re.IGNORECASE)


@dataclass(eq=False)
class Lines:
    """Numbers and runs of letters by line."""

    names: Sequence[bytes]  #: keys of the names of the table's numeric columns
    text: Located  #: the texts that are read, joined
    #: their letters and digits, and the line of each
    runs: list[tuple[Runs, np.ndarray]] = field(default_factory=list)
    #: the two groups of released numbers whose difference each further line is
    differences: list[str] = field(default_factory=list)
    n_distinct: int = 0  #: distinct lines that are not empty
    _line_of: list[int] = field(default_factory=list)
    _tokens: list[np.ndarray] = field(default_factory=list)
    _by_key: dict[str, int] = field(default_factory=dict)
    _intervals: dict[int, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, released: Released, table: RawTable) -> Lines:
        """Read the texts, shortest first, up to ``READ`` characters."""
        texts, n_read = [], 0
        for path, text in sorted([*released.rows, *released.texts], key=lambda item: len(item[1])):
            n_read += len(text)
            if n_read <= READ:
                texts.append((path, text))
        lines = cls([key_of(name) for name in table.names], Located(texts))
        lines._read(_apart(lines.text.joined if texts else "", table.names))
        lines._subtract(released, table.records)
        return lines

    def __len__(self) -> int:
        return len(self._line_of)

    def _read(self, text: str) -> None:
        lines = text.split("\n")
        ends = np.cumsum([len(line) + 1 for line in lines])
        dates = list(dates_in(text)) if may_be_dated(text) else []
        blanked, position = [], 0
        for start, end, *_ in dates:  # numbers inside dates are skipped
            blanked += [text[position:start], " " * (end - max(start, position))]
            position = max(end, position)
        parts = TOKEN.split("".join([*blanked, text[position:]]))
        numbers = parts[1::2]
        starts = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))[::2][: len(numbers)]
        commas = list(COMMA.finditer(text)) if "," in text else []  # 12,5 may be two numbers or one
        value, width = read_numbers([*numbers, *(m[0].replace(",", ".") for m in commas)])
        rows = np.array([(start, seconds, timed) for start, _, seconds, timed in dates])
        rows = rows.reshape(-1, 3)
        starts = np.r_[starts, [m.start() for m in commas], rows[:, 0]].astype(np.int64)
        column_of = {gap: self._column_before(gap) for gap in set(parts[:-1:2])}
        columns = [*map(column_of.__getitem__, parts[:-1:2]), *[-1] * (len(commas) + len(rows))]
        is_date = np.arange(len(starts)) >= len(value)
        value = np.r_[value, rows[:, 1]]
        width = np.r_[width, np.where(rows[:, 2] > 0, 1.0, DAY)]
        order = np.argsort(starts, kind="stable")
        line = ends.searchsorted(starts[order], side="right")
        counts = np.bincount(line, minlength=len(ends))
        n_pieces = np.maximum(1, -(-counts // TOKENS))
        first = np.cumsum(n_pieces) - n_pieces
        pieces_of = dict(zip(lines, n_pieces.tolist(), strict=True))  # repeated lines count once
        self.n_distinct += sum(count for content, count in pieces_of.items() if content.strip())
        rank = np.arange(len(line)) - np.repeat(np.cumsum(counts) - counts, counts)
        part = first[line] + rank // TOKENS
        tokens = np.column_stack([value, width, columns, np.zeros(len(value)), is_date])[order]
        tokens[:, 3] = part
        self._tokens.append(tokens)
        self._line_of += np.repeat(np.arange(len(ends)), n_pieces).tolist() if text else []
        for runs in runs_of(text):
            if len(runs.lower):
                self.runs.append((runs, first[runs.lines]))

    def _column_before(self, gap: str) -> int:
        """Return the column named by the text before a number, or -1."""
        key = _KEY.search(gap[-AHEAD:].rpartition("\n")[2])
        return self._column(key[1]) if key else -1

    def _subtract(self, released: Released, records: int) -> None:
        """Add differences of two groups of numbers: totals or means with and without one record."""
        groups = [
            (path, values, widths, [self._column(name) for name in names])
            for path, values, widths, names in _groups_of(released)
            if 2 <= len(widths) <= CELLS
        ]
        pairs = (
            (minuend, subtrahend)
            for index, minuend in enumerate(groups)
            for subtrahend in groups[index + 1 : index + 4]
            if len(minuend[1]) == len(subtrahend[1])
            and not np.array_equal(minuend[1], subtrahend[1])
        )
        scale = np.repeat([1.0, records, records + 1.0], [1, 2, 2])[:, None]
        less = np.where(scale > 1, scale - 1, 1.0)
        for (minuend, a, a_width, keys), (subtrahend, b, b_width, _) in islice(pairs, PAIRS):
            first, second = np.array([a, a, b, a, b]), np.array([b, b, a, b, a])
            value, error = np.abs(scale * first - less * second), scale * (a_width + b_width)
            line, index = np.nonzero(np.isfinite(value) & (value > 4 * error))
            lines = len(self._line_of) + line
            self.n_distinct += len(np.unique(line))
            columns = np.asarray(keys)[index % len(keys)]  # names are of the last axis
            tokens = value[line, index], error[line, index], columns, lines, np.zeros(len(index))
            self._tokens.append(np.array(tokens).T)
            self.differences.append(f"{minuend} less {subtrahend}")
            self._line_of += [-len(self.differences)] * len(scale)

    def _column(self, key: str) -> int:
        """Return the column named by a key's last words, or -1: age for ``patient_age``, not for ``page``."""
        if key not in self._by_key:
            words = [key_of(word) for word in _WORD.findall(key)]
            suffixes = {b"".join(words[i:]) for i in range(len(words))}
            matches = [i for i, name in enumerate(self.names) if name in suffixes]
            self._by_key[key] = max(matches, key=lambda i: len(self.names[i]), default=-1)
        return self._by_key[key]

    @cached_property
    def tokens(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Value, width of the last digit, column of the key (or -1), line, and whether a date, of each token."""
        value, width, key_column, line, is_date = np.concatenate(self._tokens).T
        return value, width, key_column.astype(int), line.astype(int), is_date.astype(bool)

    def intervals(self, column: int, table: RawTable) -> np.ndarray:
        """Tokens that may be of a numeric column, lowest and highest value that fits each, width of the last
        digit, and cost of the reading in nats; shape (5, readings).

        A token shorter than the column's values was either rounded or lacks its trailing zeros.
        """
        if column not in self._intervals:
            value, width, key_column, _, is_date = self.tokens
            usable = np.isfinite(value) & ~np.isin(np.abs(value), np.abs(table.public))
            if table.dates[column]:  # seconds since 1970, and thousandths, are dates too
                thousandths = (value > 1e11) & (value < 5e12)
                value = np.where(thousandths, value / 1000, value)
                usable &= is_date | thousandths | ((value > 1e8) & (value < 5e9))
            else:
                usable &= ~is_date
            usable = np.flatnonzero(usable & ((key_column == -1) | (key_column == column)))
            value, width, is_date = value[usable], width[usable], is_date[usable]
            half = np.maximum(width * np.where(is_date, 0.999, 0.5 + 1e-6), np.abs(value) * 1e-12)
            step = float(table.steps[column])
            short = (step > 0) & (width > 1.5 * step) & ~is_date
            cost = np.where(short, -np.log1p(-WHOLE), 0.0)
            rounded = np.stack(
                [usable, value - np.where(is_date, 0, half), value + half, width, cost]
            )
            padded = np.stack([usable, value - step / 4, value + step / 4, width, cost])[:, short]
            padded[3:] = [[step], [-np.log(WHOLE)]]
            self._intervals[column] = np.concatenate([rounded, padded], axis=1)
        return self._intervals[column]

    @cached_property
    def value_ids(self) -> np.ndarray:
        """An id for each token, shared by equal values of one line."""
        value, _, _, line, _ = self.tokens
        order = np.lexsort((value, line))
        is_new = (np.diff(value[order]) != 0) | (np.diff(line[order]) != 0)
        value_ids = np.zeros(len(value), dtype=np.int64)
        value_ids[order[1:]] = np.cumsum(is_new)
        return value_ids

    @cached_property
    def line_of_value(self) -> np.ndarray:
        """Line of each value id."""
        lines = np.zeros(len(self.value_ids), dtype=np.int64)
        lines[self.value_ids] = self.tokens[3]
        return lines

    def locate(self, line: int) -> str:
        """Return the location of a line, in words."""
        number = self._line_of[line]
        return self.differences[-number - 1] if number < 0 else self.text.locate(number)


def read_numbers(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Parse numbers; returns their values and the widths of their last digits."""
    all_simple = _PLAIN.issuperset("".join(texts))
    is_simple = [all_simple or _PLAIN.issuperset(text) for text in texts]
    pairs = zip(texts, is_simple, strict=True)
    values = [float(text) if simple else ungrouped(text) for text, simple in pairs]
    powers = [
        (text.find(".") + 1 - len(text) if "." in text else 0)
        if simple
        else _last_digit(text, value % 1 > 0)
        for text, simple, value in zip(texts, is_simple, values, strict=True)
    ]
    value = np.array(values, dtype=float)
    return value, np.maximum(10.0 ** np.array(powers, dtype=float), np.abs(value) * 2.0**-50)


def _last_digit(text: str, fraction: bool) -> int:
    """Power of ten of the last digit."""
    mantissa, _, power = text.lower().partition("e")
    mark = max(mantissa.rfind("."), mantissa.rfind(",") if fraction else -1)
    decimals = len(mantissa) - mark - 1 if mark >= 0 else 0
    return min(max(int(power or 0) - decimals, -300), 300)


@dataclass(frozen=True, eq=False)
class _Matches:
    """Tokens that match cells of a column: nats, and the matching records as a slice of an order."""

    line: np.ndarray
    column: np.ndarray
    nats: np.ndarray
    first: np.ndarray
    last: np.ndarray
    order: np.ndarray


def one_record(lines: Lines, table: RawTable) -> Evidence | None:
    """Evidence from the line whose cells match one record most surprisingly."""
    matches = [*_number_matches(lines, table), *_text_matches(lines, table)]
    matches = [match for match in matches if len(match.line)]
    if not matches:
        return None
    line = np.concatenate([match.line for match in matches])
    column = np.concatenate([match.column for match in matches])
    nats = np.concatenate([match.nats for match in matches])
    width = len(table.groups)
    best = np.zeros((int(line.max()) + 1) * width)
    np.maximum.at(best, line * width + table.groups[column], nats)
    bound = best.reshape(-1, width).sum(axis=1) - np.log(table.records)
    has_several = (best.reshape(-1, width) > 0).sum(axis=1) > 1
    chosen = np.flatnonzero((bound > 0) & has_several)
    chosen = chosen[np.argsort(-bound[chosen])][:COMPARED]
    if not len(chosen):
        return None
    scores, best_lines, records, columns = _best_of_each(chosen, matches, table)
    scores -= np.log(table.records)
    _, first = np.unique(records, return_index=True)
    probability = np.exp(-np.maximum(scores[first], 0.0))
    single = float(scores[0]) - float(np.log(lines.n_distinct))
    joint = surprise(probability, lines.n_distinct)
    return Evidence(
        "lines",
        "several cells of one record, side by side",
        max(single - FIRST_SHARE, joint + float(np.log1p(-np.exp(-FIRST_SHARE))))
        - float(np.log(2)),
        partial(lines.locate, int(best_lines[0])),
        lambda: f"record {records[0]}, columns {_column_names(table, columns)}{table.whose}",
        1 if single > joint else int((probability < MATCHED).sum()),
        remedy=REMEDY,
        complexity=1,
    )


def _best_of_each(
    chosen: np.ndarray, matches: list[_Matches], table: RawTable
) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int]]:
    """Best record of each line by its total nats, counting only the best column of each dependent group.

    Returns:
        totals (descending), lines, records, and the columns of the first.
    """
    keys, columns, nats = [], [], []
    for match in matches:
        kept = np.flatnonzero(np.isin(match.line, chosen))
        counts = match.last[kept] - match.first[kept]
        kept = kept[np.cumsum(counts) <= POINTED]
        counts = match.last[kept] - match.first[kept]
        records = match.order[each_of(match.first[kept], counts)]
        keys.append(np.repeat(match.line[kept], counts) * table.records + records)
        columns.append(np.repeat(match.column[kept], counts))
        nats.append(np.repeat(match.nats[kept], counts))
    key, column, gain = map(np.concatenate, (keys, columns, nats))
    group = table.groups[column]
    order = np.lexsort((-gain, group, key))
    key, group, column, gain = key[order], group[order], column[order], gain[order]
    is_first = np.r_[True, (key[1:] != key[:-1]) | (group[1:] != group[:-1])]
    key, column, gain = key[is_first], column[is_first], gain[is_first]
    starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
    ends = np.r_[starts[1:], len(key)]
    sums = np.where(ends - starts > 1, np.add.reduceat(gain, starts), 0.0)
    line, record = np.divmod(key[starts], table.records)
    order = np.argsort(-sums, kind="stable")
    order = order[np.sort(np.unique(line[order], return_index=True)[1])]
    first_columns = column[starts[order[0]] : ends[order[0]]].tolist()
    return sums[order], line[order], record[order], first_columns


def _column_names(table: RawTable, columns: list[int]) -> str:
    names = [*table.names, *(text.name for text in table.texts)]
    return ", ".join(repr(names[column]) for column in columns)


def _number_matches(lines: Lines, table: RawTable) -> Iterator[_Matches]:
    _, _, keys, line, _ = lines.tokens
    for column, (order, ordered) in enumerate(table.ranked):
        intervals = lines.intervals(column, table)
        if not intervals.size or not len(ordered):
            continue
        first = ordered.searchsorted(intervals[1], side="left")
        last = ordered.searchsorted(intervals[2], side="right")
        counts = last - first
        kept = np.flatnonzero((counts > 0) & (counts < max(2, COMMON * len(ordered))))
        if not len(kept):
            continue
        first, last, counts = first[kept], last[kept], counts[kept]
        token, (width, cost) = intervals[0, kept].astype(int), intervals[3:, kept]
        sizes = ordered[np.r_[True, ordered[1:] != ordered[:-1]]]
        step = np.maximum(width, table.steps[column])
        index = sizes.searchsorted(ordered[first])
        density = densities(sizes, index, n_std=0) * step / len(sizes)
        p = np.clip(np.maximum(density, (counts - 1) / len(ordered)), 1e-15, 1.0)
        # any distinct token of the line might have matched the column
        n_values = np.bincount(lines.line_of_value[np.unique(lines.value_ids[token])])
        nats = -np.log(p) - np.where(keys[token] >= 0, 0.0, np.log(n_values[line[token]]))
        net_nats = np.maximum(nats - cost, 0.0)
        yield _Matches(line[token], np.full(len(token), column), net_nats, first, last, order)


def _text_matches(lines: Lines, table: RawTable) -> Iterator[_Matches]:
    for number, column in enumerate(table.texts, start=len(table.names)):
        twin = column.name in table.names  # ids are both numbers and texts, but count once
        index = table.names.index(column.name) if twin else number
        for runs, line_of in lines.runs:
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
                full = np.full(len(begins), index)
                yield _Matches(line_of[begins], full, nats, ends[values], ends[values + 1], order)


def two_records(lines: Lines, table: RawTable) -> Evidence | None:
    """Evidence from a line whose numbers are the sums or means of two records in several columns."""
    value, width, key_column, line, is_date = lines.tokens
    if table.records < 3 or table.numbers.shape[1] < 2:
        return None
    usable = np.flatnonzero(~is_date & np.isfinite(value) & (width < 1e-2 * np.abs(value)))
    line_ids, counts = np.unique(line[usable], return_counts=True)
    chosen = line_ids[counts > 1][: COMPARED // 10]
    if not len(chosen):
        return None
    log_trials = float(np.log(4 * len(chosen)))
    first = line[usable].searchsorted(chosen)
    tokens = usable[np.minimum(first[:, None] + np.arange(SUMMED), len(usable) - 1)]
    is_present = line[tokens] == chosen[:, None]
    factors = np.repeat([1.0, 2.0], len(chosen))[:, None]
    tokens, is_present = np.tile(tokens, (2, 1)), np.tile(is_present, (2, 1))
    values = value[tokens] * factors
    widths = np.maximum(width[tokens] * factors, np.abs(values) * 1e-12)
    gains, expected = _gains(table, values, widths, np.where(is_present, key_column[tokens], NONE))
    is_present = is_present.sum(axis=1)
    best: tuple[float, int, tuple[int, int]] = (DULL + log_trials, -1, (0, 0))
    pairs = float(np.log(table.records * (table.records - 1) / 2))
    bound = _total_gain(gains.max(axis=2), is_present, table) - pairs
    for i in np.argsort(-bound, kind="stable"):
        if bound[i] <= best[0]:
            break
        kept = slice(is_present[i])
        score, pair = _best_pair(
            table, values[i, kept], widths[i, kept], gains[i, :, kept], expected[i, :, kept]
        )
        best = max(best, (score - pairs, int(chosen[i % len(chosen)]), pair))
    if best[1] < 0:
        return None
    low, high = sorted(best[2])
    return Evidence(
        "lines",
        "the sums or means of two records, over several columns",
        best[0] - log_trials,
        partial(lines.locate, best[1]),
        partial(str, f"records {low} and {high}{table.whose}"),
        remedy="a mean of two reveals each to the other; pool more records, or add noise",
        complexity=4,
    )


def _gains(
    table: RawTable, value: np.ndarray, width: np.ndarray, key_column: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Nats of each line's tokens as sums of each column, shape (lines, columns, tokens), and the expected number
    of pairs of records with such a sum."""
    scales, low, high = table.memoised("sums", lambda: _sum_ranges(table.numbers))
    value, width, key_column = value[:, None], width[:, None], key_column[:, None]
    fits = (key_column == -1) | (key_column == np.arange(len(scales))[:, None])
    fits &= (value + width >= low) & (value - width <= high)
    steps = table.steps[:, None]  # sums lie on the same lattice as values
    units = (value - low) / np.where(steps > 0, steps, np.inf)
    fits &= steps * (np.abs(units - np.rint(units)) - 1e-6) <= width
    gain = np.log(np.maximum(scales, 1e-300) / np.maximum(width, steps))
    any_of = np.log((key_column != NONE).sum(axis=2, keepdims=True))  # any token might match
    gains = np.maximum(gain - np.where(key_column == -1, any_of, 0.0), 0.0)
    expected = np.where(fits, np.exp(-gain) * table.records**2 / 2, np.inf)
    return np.where(fits, gains, 0.0), expected


def _total_gain(nats: np.ndarray, tokens: np.ndarray | int, table: RawTable) -> np.ndarray:
    """Nats of each row, summed over the best column of each dependent group; at most one group per token."""
    groups = table.groups[: table.numbers.shape[1]]
    best = [nats[:, groups == group].max(axis=1) for group in np.unique(groups)]
    ranked = -np.sort(-np.column_stack(best), axis=1)
    counted = np.arange(ranked.shape[1]) < np.reshape(tokens, (-1, 1))
    return np.where((ranked > 0).sum(axis=1) > 1, (ranked * counted).sum(axis=1), 0.0)


def _best_pair(
    table: RawTable, value: np.ndarray, width: np.ndarray, gains: np.ndarray, expected: np.ndarray
) -> tuple[float, tuple[int, int]]:
    """Pair of records whose sums match the values best, and their nats.

    Candidates are taken from the tokens and columns that fit the fewest pairs.
    """
    numbers = table.numbers
    order = table.memoised("order", lambda: np.argsort(numbers, axis=0, kind="stable"))
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for index in np.argsort(expected, axis=None)[:FIRST]:
        column, token = divmod(int(index), len(value))
        if expected[column, token] < CANDIDATES:
            ranked = order[:, column]
            pairs.append(_partners(numbers[ranked, column], ranked, value[token], width[token]))
    if not pairs:
        return 0.0, (0, 0)
    first, second = (np.concatenate(part)[:CANDIDATES] for part in zip(*pairs, strict=True))
    if not len(first):
        return 0.0, (0, 0)
    sums = numbers[first] + numbers[second]
    is_near = np.abs(sums[:, :, None] - value) <= 0.5 * width * (1 + 1e-6) + np.abs(value) * 1e-12
    total = _total_gain(np.where(is_near, gains, 0.0).max(axis=2), len(value), table)
    best = int(np.argmax(total))
    return float(total[best]), (int(first[best]), int(second[best]))


def _sum_ranges(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Approximate range, minimum and maximum of the sums of two records in each column."""
    numbers = np.where(np.isfinite(numbers), numbers, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # columns without any value
        scales = np.nanstd(numbers, axis=0) * 2.5 * np.sqrt(2)
        ends = 2 * np.nanmin(numbers, axis=0), 2 * np.nanmax(numbers, axis=0)
    return scales[:, None], ends[0][:, None], ends[1][:, None]


def _partners(
    ordered: np.ndarray, order: np.ndarray, total: float, width: float
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of records whose values sum to a total, within half a unit of its last digit."""
    tolerance = 0.5 * width * (1 + 1e-6) + abs(total) * 1e-12
    first = np.searchsorted(ordered, total - ordered - tolerance, side="left")
    last = np.searchsorted(ordered, total - ordered + tolerance, side="right")
    counts = np.maximum(last - first, 0)
    j = each_of(first, counts)
    i = np.repeat(np.arange(len(ordered)), counts)
    kept = i < j
    return order[i[kept]], order[j[kept]]
