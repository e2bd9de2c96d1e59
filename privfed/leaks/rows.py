"""Finds released rows that hold a record's columns in the table's order, at any precision.

Values too short to be distinguished from chance alone (integers, 16-bit floats, rounded ones) identify
a record jointly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np

from privfed.leaks.artefact import Block, Released
from privfed.leaks.chance import chernoff, densities
from privfed.leaks.evidence import Evidence
from privfed.leaks.precision import DOUBLE, Precision
from privfed.leaks.table import RawTable
from privfed.leaks.windows import Windows, hashes_of

#: Largest probability of a value due to its simplicity: the other values of a row are no simpler for it.
SIMPLE = 0.25
LARGE = 100_000  #: Fewest numbers of a large block
HASH = 24  #: log2 of the size of the tables that prefilter windows
FEW = 1 << 14  #: Up to this many windows are not prefiltered
CHUNK = 1 << 16  #: Windows looked up at a time
MIX = np.uint64(0x9E3779B97F4A7C15)  #: Odd multiplier of the hashes of several keys
BEGUN = 8  #: First keys of a record that the prefilter uses
REMEDY = "no row may leave; release sums or means over many records, with noise"
Span = tuple[bool, int, int]  #: Consecutive columns: whether with codes of texts, first, end


class Stream:
    """Concatenated blocks, each by rows or (transposed) by columns, as keys of a precision."""

    def __init__(self, precision: Precision, blocks: Sequence[Block], transposed: bool) -> None:
        self.precision, self.blocks, self.transposed = precision, blocks, transposed
        flat = [(block.values.T if transposed else block.values).reshape(-1) for block in blocks]
        self.keys = precision.keys(np.nan_to_num(np.concatenate(flat).astype(float)))
        ends = np.cumsum([0, *map(len, flat)])
        self._starts, self._sizes = ends[:-1], np.diff(ends)
        shapes = [b.values.T.shape if transposed else b.values.shape for b in blocks]
        self._columns = np.array([shape[1] if len(shape) == 2 else 0 for shape in shapes])
        self._windows = Windows(self.keys)
        self._hashes_by_width: dict[int, np.ndarray] = {}
        self._candidates: tuple[RawTable | None, np.ndarray] = None, np.empty(0)
        self._matches: tuple[RawTable | None, dict[Span, np.ndarray]] = None, {}

    def candidate_starts(self, table: RawTable) -> np.ndarray:
        """Positions whose keys may be the first columns of a record."""
        if len(self.keys) <= FEW:
            return np.arange(len(self.keys))
        if self._candidates[0] is not table:
            marked, length = table.memoised(
                ("begun", self.precision), partial(_first_key_hashes, table, self.precision)
            )
            positions = [np.empty(0, np.int64)]
            for start in range(0, len(self.keys) - length + 1, CHUNK):
                chunk = self.keys[start : start + CHUNK + length - 1]
                positions.append(np.flatnonzero(marked[_window_hashes(chunk, length)]) + start)
            self._candidates = table, np.concatenate(positions)
        return self._candidates[1]

    def matching_starts(self, table: RawTable, span: Span) -> np.ndarray:
        """Starts of non-constant windows whose hash equals that of some record's columns, for any span this wide."""
        width = span[2] - span[1]
        spans = [span] if table.bare else [s for s in spans_of(table) if s[2] - s[1] == width]
        if self._matches[0] is not table:
            self._matches = table, {}
        if (key := spans[0]) not in self._matches[1]:
            starts, windows = self.candidate_starts(table), len(self.keys) - width + 1
            starts = starts[: starts.searchsorted(windows)]
            starts = starts[self._changed[starts + width - 1] > self._changed[starts]]
            if len(starts):
                compute = partial(_hashes_of_spans, table, spans, self.precision)
                known = table.memoised(("hashes", self.precision, key), compute)
                starts = starts[_known_indices(self.hashes(starts, width), known)]
            self._matches[1][key] = starts
        return self._matches[1][key]

    @cached_property
    def _changed(self) -> np.ndarray:
        """Cumulative count of keys that differ from the previous one."""
        return np.cumsum(np.diff(self.keys, prepend=0) != 0, dtype=np.int32)

    def hashes(self, starts: np.ndarray, width: int) -> np.ndarray:
        """Hashes of the windows of ``width`` keys at some starts."""
        if len(starts) * width < len(self.keys):
            return hashes_of(self.keys[starts[:, None] + np.arange(width)])
        if width not in self._hashes_by_width:
            count = len(self.keys) - width + 1
            self._hashes_by_width[width] = self._windows.hashes(slice(0, count), slice(width, None))
        return np.asarray(self._hashes_by_width[width][starts])

    def surprise(self, positions: np.ndarray, windows: int, probability: float) -> float:
        """Surprise of the number of hits, in all blocks or in the best one, in nats."""
        block_hits = np.bincount(np.searchsorted(self._starts, positions, side="right") - 1)
        counts = np.r_[len(positions), block_hits[block_hits > 0]]
        sizes = self._sizes[: len(block_hits)][block_hits > 0]
        trials = np.maximum(counts, np.r_[windows, sizes]).astype(float)
        nats = chernoff(counts, trials, np.full(len(counts), probability))
        nats[1:] -= np.log(len(self._starts))
        return float(nats.max())

    def aligned_surprise(self, positions: np.ndarray, width: int, probability: float) -> float:
        """Surprise of the hits among the rows of one block, in nats; a list's rows are as wide as a record."""
        block = np.searchsorted(self._starts, positions, side="right") - 1
        periods = np.where(self._columns, self._columns, width)
        offsets = (positions - self._starts[block]) % periods[block]
        keys, hits = np.unique(block * periods.max() + offsets, return_counts=True)
        block = keys // periods.max()
        rows = np.maximum(self._sizes[block] // periods[block], hits)
        nats = chernoff(hits, rows, np.full(len(hits), probability)) - np.log(periods[block])
        return float(nats.max(initial=0.0)) - float(np.log(len(self._starts)))

    def locate(self, position: int) -> str:
        """Return the path to the number at a position of the stream."""
        index = bisect_right(self._starts, position) - 1
        block, position = self.blocks[index], position - int(self._starts[index])
        if self.transposed:
            rows, columns = block.values.shape
            position = position % rows * columns + position // rows
        return block.leaf.element(position)


def streams_of(released: Released) -> list[Stream]:
    """One stream per precision of the blocks that have it, by rows, and another of matrices by columns."""
    groups: dict[tuple[Precision, bool], list[Block]] = {}
    for block, mixture in zip(released.blocks, released.mixtures, strict=True):
        for precision in _main_precisions(block, mixture):
            groups.setdefault((precision, False), []).append(block)
            if block.values.ndim == 2 and min(block.values.shape) > 1:
                groups.setdefault((precision, True), []).append(block)
    return [
        Stream(precision, blocks, transposed) for (precision, transposed), blocks in groups.items()
    ]


def _main_precisions(block: Block, mixture: Mapping[Precision, int]) -> list[Precision]:
    """The most frequent precisions of a block, and the finest fixed step.

    In a large block, rare precisions cannot fill a row, and unrounded numbers are found one by one.
    """
    counts = dict(mixture)
    if block.values.size >= LARGE:
        counts.pop(DOUBLE, None)
        counts = {key: count for key, count in counts.items() if count >= block.values.size // 20}
    frequent = sorted(counts, key=lambda precision: -counts[precision])[:3]
    steps = [precision for precision in counts if precision.step is not None]
    return list(dict.fromkeys([*frequent, *sorted(steps, key=lambda p: p.step or 0)[:1]]))


def spans_of(table: RawTable) -> Iterator[Span]:
    """Yield the spans that are searched: all columns, all but the first or last, halves."""
    for coded in (True, False) if table.texts else (False,):
        width = table.numbers.shape[1] + (table.codes.shape[1] if coded else 0)
        spans = {(0, width), (0, width - 1), (1, width)} if width > 2 else {(0, width)}
        if width >= 6:
            spans |= {(0, width // 2), (width // 2, width)}
        yield from ((coded, first, last) for first, last in sorted(spans) if width >= 2)


def aligned_rows(span: Span, streams: Sequence[Stream], table: RawTable) -> Evidence | None:
    """Evidence from windows of released numbers that equal consecutive columns of a record."""
    matches = [match for stream in streams for match in _record_matches(span, stream, table)]
    return max(matches, key=lambda match: match.nats, default=None)


def _window_hashes(keys: np.ndarray, length: int) -> np.ndarray:
    """Hashes, below 2^HASH, of the windows of ``length`` keys along the last axis."""
    words, count = keys.view(np.uint64), keys.shape[-1] - length + 1
    mixed = np.zeros((*keys.shape[:-1], count), np.uint64)
    with np.errstate(over="ignore"):
        for offset in range(length):
            mixed = (mixed + words[..., offset : offset + count]) * MIX
    return np.asarray(mixed >> np.uint64(64 - HASH))


def _first_key_hashes(table: RawTable, precision: Precision) -> tuple[np.ndarray, int]:
    """Table of the hashes of the first keys of all spans, and the number of keys."""
    spans = list(spans_of(table))
    length = min(BEGUN, *(last - first for _, first, last in spans))
    marked = np.zeros(1 << HASH, dtype=bool)
    for coded in {span[0] for span in spans}:
        for keys in _Keys.rounded_and_truncated(table, coded, precision):
            hashes = _window_hashes(keys.keys, length)
            for first in {span[1] for span in spans if span[0] == coded}:
                marked[hashes[:, first]] = True
    return marked, length


@dataclass(frozen=True, eq=False)
class _Keys:
    """Records at one precision, with or without codes of texts; the same without NaN; groups of dependent columns;
    keys; and, cached by column, numbers of records with each key and log-probabilities of the values."""

    records: np.ndarray
    finite: np.ndarray
    groups: np.ndarray
    keys: np.ndarray
    windows: Windows
    counts: dict[int, np.ndarray] = field(default_factory=dict)
    logs: dict[int, np.ndarray] = field(default_factory=dict)

    def shared(self, column: int) -> np.ndarray:
        """Number of records that have each record's key in a column."""
        if column not in self.counts:
            _, inverse, counts = np.unique(
                self.keys[:, column], return_inverse=True, return_counts=True
            )
            self.counts[column] = counts[inverse]
        return self.counts[column]

    def log_probabilities(self, columns: range, precision: Precision) -> np.ndarray:
        """Log-probability of each record's columns if drawn independently; of dependent columns, only the smallest
        counts."""
        for j in set(columns) - set(self.logs):
            self.logs[j] = _log_probs(self.finite[:, j], self.shared(j), precision)
        by_group = [
            [self.logs[j] for j in columns if self.groups[j] == group]
            for group in set(self.groups.tolist())
        ]
        least = [np.min(logs, axis=0) if len(logs) > 1 else logs[0] for logs in by_group if logs]
        return np.asarray(np.sum(least, axis=0))

    @classmethod
    def rounded_and_truncated(
        cls, table: RawTable, coded: bool, precision: Precision
    ) -> list[_Keys]:
        """Return the cached keys of all records, rounded and, unless these are equal, truncated."""
        key = ("keys", coded, precision)
        return table.memoised(key, partial(cls._compute, table, coded, precision))

    @classmethod
    def _compute(cls, table: RawTable, coded: bool, precision: Precision) -> list[_Keys]:
        records, finite = table.memoised(("plain", coded), partial(_finite_records, table, coded))
        spacing = precision.spacing(finite)
        rounded = precision.keys(finite)
        truncated = precision.keys(np.trunc(finite / spacing) * spacing)
        different = [rounded] if np.array_equal(rounded, truncated) else [rounded, truncated]
        return [
            cls(records, finite, table.groups, keys, Windows(keys.reshape(-1)))
            for keys in different
        ]


def _finite_records(table: RawTable, coded: bool) -> tuple[np.ndarray, np.ndarray]:
    """Records, with or without codes of texts, and the same without NaN and infinity."""
    records = np.column_stack([table.numbers, table.codes]) if coded else table.numbers
    return records, np.nan_to_num(records)


@dataclass(frozen=True, eq=False)
class _Records:
    """A span of all records at one precision: values, keys, sorted hashes and their order, and functions that
    return the records' log-probabilities, and how many of them have each one's key in a column."""

    part: np.ndarray
    keys: np.ndarray
    hashes: np.ndarray
    order: np.ndarray
    log_probabilities: Callable[[], np.ndarray]
    shared: Callable[[int], np.ndarray]

    @cached_property
    def logs(self) -> np.ndarray:
        """Log-probability of each record; streams share it."""
        return self.log_probabilities()

    @cached_property
    def sizes(self) -> np.ndarray:
        """Number of records equal to each one, itself included."""
        _, inverse, counts = np.unique(self.hashes, return_inverse=True, return_counts=True)
        sizes = np.empty(len(self.order), np.int64)
        sizes[self.order] = counts[inverse]
        return sizes

    def chance(self, shared: int) -> float:
        """Probability, rounded up, that an unrelated row equals one of fewer than ``shared`` equal records.

        The larger of two: for another draw of the population, as often as records have so few equals, which needs no
        model; and for values drawn column by column.
        """
        n, frequencies = len(self.keys), np.ones(len(self.keys))
        equals = float(((self.sizes > 1) & (self.sizes <= shared)).sum())
        for column in range(self.keys.shape[1]):
            frequencies *= self.shared(column) / n
        drawn = float(frequencies[self.sizes < shared].sum())
        return float(min(1.0, max((equals + 2 * equals**0.5 + 3) / n, drawn)))

    @classmethod
    def rounded_and_truncated(
        cls, table: RawTable, span: Span, precision: Precision
    ) -> list[_Records]:
        """Return the cached records, rounded and, unless their keys are equal, truncated."""
        key = (span, precision)
        return table.memoised(key, partial(cls._compute, table, span, precision))

    @classmethod
    def _compute(cls, table: RawTable, span: Span, precision: Precision) -> list[_Records]:
        ways = _Keys.rounded_and_truncated(table, span[0], precision)
        return [cls._of(keys, span, precision) for keys in ways]

    @classmethod
    def _of(cls, all_keys: _Keys, span: Span, precision: Precision) -> _Records:
        _, first, last = span
        width = all_keys.keys.shape[1]
        hashes = all_keys.windows.hashes(
            slice(first, all_keys.keys.size, width), slice(last, None, width)
        )
        order = np.argsort(hashes)
        part, keys = all_keys.records[:, first:last], all_keys.keys[:, first:last]
        logs = partial(all_keys.log_probabilities, range(first, last), precision)
        return cls(
            part, keys, hashes[order], order, logs, lambda column: all_keys.shared(first + column)
        )


def _hashes_of_spans(table: RawTable, spans: Sequence[Span], precision: Precision) -> np.ndarray:
    """Hashes of the spans of all records, both rounded and truncated, ascending."""
    records = [_Records.rounded_and_truncated(table, span, precision) for span in spans]
    hashes = [one.hashes for ways in records for one in ways]
    return hashes[0] if len(hashes) == 1 else np.sort(np.concatenate(hashes))


def _known_indices(hashes: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Indices of hashes that are in ``known`` (sorted), prefiltered by a bit table if there are many."""
    candidates = np.arange(len(hashes))
    if len(hashes) > FEW:
        marked = np.zeros(1 << HASH, dtype=bool)
        marked[known >> np.uint64(64 - HASH)] = True
        candidates = np.flatnonzero(marked[hashes >> np.uint64(64 - HASH)])
    index = np.minimum(known.searchsorted(hashes[candidates]), len(known) - 1)
    return np.asarray(candidates[known[index] == hashes[candidates]])


def _record_matches(span: Span, stream: Stream, table: RawTable) -> Iterator[Evidence]:
    precision, width = stream.precision, span[2] - span[1]
    starts, windows = stream.matching_starts(table, span), len(stream.keys) - width + 1
    if not len(starts):
        return
    hashes = stream.hashes(starts, width)
    for records in _Records.rounded_and_truncated(table, span, precision):
        part, keys = records.part, records.keys
        hit, record = _equal_windows(records, starts, hashes, stream)
        if not len(hit):
            continue
        held = keys[record]
        usable = (held != held[:, :1]).any(axis=1)
        usable &= np.isfinite(part[record]).all(axis=1)
        hit, record = hit[usable], record[usable]
        if not len(hit):
            continue
        logs = records.logs
        best = int(np.argmin(logs[record]))
        single = -float(np.log(windows * len(part)) + logs[record[best]])
        probability = min(1.0, float(np.exp(logs).sum()))
        joint = stream.surprise(hit, windows, probability)
        few = hit[records.sizes[record] < table.shared]
        aligned = stream.aligned_surprise(few, width, records.chance(table.shared))
        row = int(record[best])
        yield Evidence(
            "rows",
            "a record, column by column",
            max(single, joint, aligned) - np.log(6),
            partial(stream.locate, int(hit[best])),
            partial(str, f"record {row}{table.whose}"),
            len(hit),
            precision.name,
            partial(repr, table.numbers[row].tolist()),
            REMEDY,
            complexity=1,
        )


def _equal_windows(
    records: _Records, starts: np.ndarray, hashes: np.ndarray, stream: Stream
) -> tuple[np.ndarray, np.ndarray]:
    """Starts of windows whose keys equal a record's, and the records; compared by hash, then in full."""
    index = np.minimum(records.hashes.searchsorted(hashes), len(records.hashes) - 1)
    is_equal = records.hashes[index] == hashes
    start, record = starts[is_equal], records.order[index[is_equal]]
    same = stream.keys[start[:, None] + np.arange(records.keys.shape[1])] == records.keys[record]
    return start[same.all(axis=1)], record[same.all(axis=1)]


def _log_probs(column: np.ndarray, n: np.ndarray, precision: Precision) -> np.ndarray:
    """Log-probability that a value drawn from the column equals each of its values, which ``n`` records have."""
    p = n / len(column)
    spacing = precision.spacing(column)
    alone = np.flatnonzero(n == 1)
    if len(alone):
        sizes = np.unique(column)
        density = densities(sizes, np.searchsorted(sizes, column[alone]), n_std=0) / len(sizes)
        p[alone] = np.minimum(density * spacing[alone], 1.0)
    simple = 1 / (1 + np.abs(column) / spacing)
    return np.asarray(np.log(np.maximum(p, np.minimum(simple, SIMPLE))))
