"""Rows that left in the table's order: whole records or most of one, at any precision.

Values that are too short to be told from chance one by one (whole numbers, 16-bit floats, rounded
ones) give a record away together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product

import numpy as np

from privfed.leaks.artefact import Block, Released
from privfed.leaks.chance import chernoff, densities
from privfed.leaks.evidence import Evidence
from privfed.leaks.precision import DOUBLE, Precision
from privfed.leaks.table import RawTable
from privfed.leaks.windows import Windows, hashes_of

#: Most that a value's simplicity counts in a row, whose other values are no simpler for it.
SIMPLE = 0.25
LARGE = 100_000  #: From how many numbers on a block is large
HASH = 24  #: Logarithm of the size of the tables that drop windows at once
FEW = 1 << 14  #: Of so few windows all are looked up
CHUNK = 1 << 16  #: How many windows are looked up at a time
MIX = np.uint64(0x9E3779B97F4A7C15)  #: Odd, and what hashes of several keys are made by
BEGUN = 8  #: By how many keys a record's beginning is known
MEND = "no row may leave; release sums or means over many records, with noise"
Span = tuple[bool, int, int]  #: Some columns: whether with codes of texts, from, to


class Stream:
    """Blocks one after the other, each row by row or (turned) column by column, rounded."""

    def __init__(self, precision: Precision, parts: Sequence[Block], turned: bool) -> None:
        self.precision, self.parts, self.turned = precision, parts, turned
        flat = [(block.values.T if turned else block.values).reshape(-1) for block in parts]
        self.keys = precision.keys(np.nan_to_num(np.concatenate(flat).astype(float)))
        self._starts = np.cumsum([0, *map(len, flat[:-1])]).tolist()
        self._windows = Windows(self.keys)
        self._known: dict[int, np.ndarray] = {}
        self._begun: tuple[RawTable | None, np.ndarray] = None, np.empty(0)
        self._met: tuple[RawTable | None, dict[Span, np.ndarray]] = None, {}

    def begun(self, table: RawTable) -> np.ndarray:
        """Places of some keys that may be those with which some columns of a record begin."""
        if len(self.keys) <= FEW:
            return np.arange(len(self.keys))
        if self._begun[0] is not table:
            marked, length = table.memoised(
                ("begun", self.precision), partial(_beginnings, table, self.precision)
            )
            found = [np.empty(0, np.int64)]
            for start in range(0, len(self.keys) - length + 1, CHUNK):
                some = self.keys[start : start + CHUNK + length - 1]
                found.append(np.flatnonzero(marked[_hashes_of(some, length)]) + start)
            self._begun = table, np.concatenate(found)
        return self._begun[1]

    def met(self, table: RawTable, span: Span) -> np.ndarray:
        """Places of windows, not all alike, whose hash some record's columns have, of any as many columns."""
        width = span[2] - span[1]
        alike = [span] if table.bare else [s for s in spans_of(table) if s[2] - s[1] == width]
        if self._met[0] is not table:
            self._met = table, {}
        if (key := alike[0]) not in self._met[1]:
            begun, windows = self.begun(table), len(self.keys) - width + 1
            begun = self.varied(begun[: begun.searchsorted(windows)], width)
            if len(begun):
                make = partial(_hashes_of_spans, table, alike, self.precision)
                known = table.memoised(("hashes", self.precision, key), make)
                begun = begun[_among(self.hashes(begun, width), known)]
            self._met[1][key] = begun
        return self._met[1][key]

    def varied(self, places: np.ndarray, width: int) -> np.ndarray:
        """Those from which so many keys are not all alike."""
        return np.asarray(places[self._changed[places + width - 1] > self._changed[places]])

    @cached_property
    def _changed(self) -> np.ndarray:
        """How many keys up to each are not the one before."""
        return np.cumsum(np.diff(self.keys, prepend=0) != 0, dtype=np.int32)

    def hashes(self, places: np.ndarray, width: int) -> np.ndarray:
        """Of the windows of so many keys at some places."""
        if len(places) * width < len(self.keys):
            return hashes_of(self.keys[places[:, None] + np.arange(width)])
        if width not in self._known:
            count = len(self.keys) - width + 1
            self._known[width] = self._windows.hashes(slice(0, count), slice(width, None))
        return np.asarray(self._known[width][places])

    def surprise(self, hit: np.ndarray, windows: int, share: float) -> float:
        """How surprising so many hits are, of all windows or of those of any one block: nats."""
        of = np.bincount(np.searchsorted(self._starts, hit, side="right") - 1)
        hits = np.r_[len(hit), of[of > 0]]
        sizes = np.diff([*self._starts, len(self.keys)])[: len(of)][of > 0]
        trials = np.maximum(hits, np.r_[windows, sizes]).astype(float)
        found = chernoff(hits, trials, np.full(len(hits), share))
        found[1:] -= np.log(len(self._starts))
        return float(found.max())

    def locate(self, place: int) -> str:
        """The path to the number at a position of the stream."""
        at = bisect_right(self._starts, place) - 1
        block, place = self.parts[at], place - self._starts[at]
        if self.turned:
            rows, columns = block.values.shape
            place = place % rows * columns + place // rows
        return block.leaf.element(place)


def streams_of(released: Released) -> list[Stream]:
    """Of each precision the blocks that have it, row by row, and matrices column by column too."""
    chosen: dict[tuple[Precision, bool], list[Block]] = {}
    for block, mixture in zip(released.blocks, released.mixtures, strict=True):
        for precision in _main(block, mixture):
            chosen.setdefault((precision, False), []).append(block)
            if block.values.ndim == 2 and min(block.values.shape) > 1:
                chosen.setdefault((precision, True), []).append(block)
    return [Stream(precision, blocks, turned) for (precision, turned), blocks in chosen.items()]


def _main(block: Block, mixture: Mapping[Precision, int]) -> list[Precision]:
    """The precisions of most numbers, and the finest of the rounded ones.

    In a large block a few short numbers make no row, and long ones are found one by one.
    """
    counts = dict(mixture)
    if block.values.size >= LARGE:
        counts.pop(DOUBLE, None)
        counts = {one: count for one, count in counts.items() if count >= block.values.size // 20}
    most = sorted(counts, key=lambda precision: -counts[precision])[:3]
    steps = [precision for precision in counts if precision.step is not None]
    return list(dict.fromkeys([*most, *sorted(steps, key=lambda p: p.step or 0)[:1]]))


def spans_of(table: RawTable) -> Iterator[Span]:
    """Which columns are looked for: whether with codes of texts, from, to; all, all but an end, half."""
    for coded in (True, False) if table.texts else (False,):
        width = table.numbers.shape[1] + (table.codes.shape[1] if coded else 0)
        spans = {(0, width), (0, width - 1), (1, width)} if width > 2 else {(0, width)}
        if width >= 6:
            spans |= {(0, width // 2), (width // 2, width)}
        yield from ((coded, first, last) for first, last in sorted(spans) if width >= 2)


def aligned(span: Span, streams: Sequence[Stream], table: RawTable) -> Evidence | None:
    """Windows of released numbers that are some columns of a record, in the table's order."""
    found = [one for stream in streams for one in _rows(span, stream, table)]
    return max(found, key=lambda one: one.nats, default=None)


def _hashes_of(keys: np.ndarray, length: int) -> np.ndarray:
    """Of so many keys side by side, along the last axis, from each on; below 2^HASH."""
    plain, count = keys.view(np.uint64), keys.shape[-1] - length + 1
    mixed = np.zeros((*keys.shape[:-1], count), np.uint64)
    with np.errstate(over="ignore"):
        for at in range(length):
            mixed = (mixed + plain[..., at : at + count]) * MIX
    return np.asarray(mixed >> np.uint64(64 - HASH))


def _beginnings(table: RawTable, precision: Precision) -> tuple[np.ndarray, int]:
    """Which hashes the first keys of the columns have that are looked for, and how many keys these are."""
    spans = list(spans_of(table))
    length = min(BEGUN, *(last - first for _, first, last in spans))
    marked = np.zeros(1 << HASH, dtype=bool)
    for coded, cut in product({span[0] for span in spans}, (False, True)):
        hashes = _hashes_of(_Keys.known(table, coded, precision, cut).keys, length)
        for first in {span[1] for span in spans if span[0] == coded}:
            marked[hashes[:, first]] = True
    return marked, length


@dataclass(frozen=True, eq=False)
class _Keys:
    """Whole records at one precision, with codes of texts or not, the same without NaN, their keys, which columns
    depend on one another, and of each that was asked for the log of how likely its values are."""

    whole: np.ndarray
    plain: np.ndarray
    groups: np.ndarray
    keys: np.ndarray
    windows: Windows
    logs: dict[int, np.ndarray] = field(default_factory=dict)

    def log_chances(self, columns: range, precision: Precision) -> np.ndarray:
        """The log of how likely a row drawn column by column is each, of some columns; of those that depend on
        one another the one that says most."""
        for at in set(columns) - set(self.logs):
            self.logs[at] = _log_chances(self.plain[:, at], self.keys[:, at], precision)
        listed = [
            [self.logs[at] for at in columns if self.groups[at] == group]
            for group in set(self.groups.tolist())
        ]
        return np.asarray(np.sum([np.min(one, axis=0) for one in listed if one], axis=0))

    @classmethod
    def known(cls, table: RawTable, coded: bool, precision: Precision, cut: bool) -> _Keys:
        """Worked out once."""
        key = ("keys", coded, precision, cut)
        return table.memoised(key, partial(cls.of, table, *key[1:]))

    @classmethod
    def of(cls, table: RawTable, coded: bool, precision: Precision, cut: bool) -> _Keys:
        """Rounded to the nearest, or cut off."""
        whole, plain = table.memoised(("plain", coded), partial(_plain, table, coded))
        cell = precision.cell(plain)
        keys = precision.keys(np.trunc(plain / cell) * cell if cut else plain)
        return cls(whole, plain, table.groups, keys, Windows(keys.reshape(-1)))


def _plain(table: RawTable, coded: bool) -> tuple[np.ndarray, np.ndarray]:
    """Whole records, with codes of texts or not, and the same without NaN and infinity."""
    whole = np.column_stack([table.numbers, table.codes]) if coded else table.numbers
    return whole, np.nan_to_num(whole)


@dataclass(frozen=True, eq=False)
class _Records:
    """Some columns of all records at one precision, their keys, the order of the keys' hashes, and what
    says how likely each is."""

    part: np.ndarray
    keys: np.ndarray
    hashes: np.ndarray
    order: np.ndarray
    log_chances: Callable[[], np.ndarray]

    @classmethod
    def of(cls, table: RawTable, span: Span, precision: Precision, cut: bool) -> _Records:
        """Rounded to the nearest, or cut off."""
        coded, first, last = span
        all_keys = _Keys.known(table, coded, precision, cut)
        width = all_keys.keys.shape[1]
        hashes = all_keys.windows.hashes(
            slice(first, all_keys.keys.size, width), slice(last, None, width)
        )
        order = np.argsort(hashes)
        part, keys = all_keys.whole[:, first:last], all_keys.keys[:, first:last]
        logs = partial(all_keys.log_chances, range(first, last), precision)
        return cls(part, keys, hashes[order], order, logs)


def _hashes_of_spans(table: RawTable, spans: Sequence[Span], precision: Precision) -> np.ndarray:
    """The hashes of all records' columns, rounded and cut off, ascending."""
    keys = [(span, precision, cut) for span in spans for cut in (False, True)]
    each = [table.memoised(key, partial(_Records.of, table, *key)).hashes for key in keys]
    return np.sort(np.concatenate(each))


def _among(hashes: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which are known: many by a table of bits first."""
    maybe = np.arange(len(hashes))
    if len(hashes) > FEW:
        marked = np.zeros(1 << HASH, dtype=bool)
        marked[known >> np.uint64(64 - HASH)] = True
        maybe = np.flatnonzero(marked[hashes >> np.uint64(64 - HASH)])
    place = np.minimum(known.searchsorted(hashes[maybe]), len(known) - 1)
    return np.asarray(maybe[known[place] == hashes[maybe]])


def _rows(span: Span, stream: Stream, table: RawTable) -> Iterator[Evidence]:
    precision, width = stream.precision, span[2] - span[1]
    places, windows = stream.met(table, span), len(stream.keys) - width + 1
    if not len(places):
        return
    hashes = stream.hashes(places, width)
    for cut in (False, True):
        key = (span, precision, cut)
        records = table.memoised(key, partial(_Records.of, table, *key))
        part, keys = records.part, records.keys
        hit, record = _equal(records, places, hashes, stream)
        if not len(hit):
            continue
        usable = (keys[record] != keys[record][:, :1]).any(axis=1)
        usable &= np.isfinite(part[record]).all(axis=1)
        hit, record = hit[usable], record[usable]
        if not len(hit):
            continue
        logs = records.log_chances()
        least = int(np.argmin(logs[record]))
        single = -float(np.log(windows * len(part)) + logs[record[least]])
        share = min(1.0, float(np.exp(logs).sum()))
        together = stream.surprise(hit, windows, share)
        at = int(record[least])
        yield Evidence(
            "rows",
            "a record, column by column",
            max(single, together) - np.log(4),
            partial(stream.locate, int(hit[least])),
            partial(str, f"record {at}{table.whose}"),
            len(hit),
            precision.name,
            partial(repr, table.numbers[at].tolist()),
            MEND,
            plain=1,
        )


def _equal(
    records: _Records, places: np.ndarray, hashes: np.ndarray, stream: Stream
) -> tuple[np.ndarray, np.ndarray]:
    """Which windows' keys are a record's, and the records: by hash, then in full."""
    place = np.minimum(records.hashes.searchsorted(hashes), len(records.hashes) - 1)
    alike = records.hashes[place] == hashes
    maybe, record = places[alike], records.order[place[alike]]
    same = stream.keys[maybe[:, None] + np.arange(records.keys.shape[1])] == records.keys[record]
    return maybe[same.all(axis=1)], record[same.all(axis=1)]


def _log_chances(column: np.ndarray, keys: np.ndarray, precision: Precision) -> np.ndarray:
    """Logarithm of the chance that a value drawn from a column equals each."""
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    often = counts[inverse]
    sizes = np.unique(column)
    cell = precision.cell(column)
    dense = densities(sizes, np.searchsorted(sizes, column), deviations=0) / len(sizes)
    likely = np.where(often == 1, np.minimum(dense * cell, 1.0), often / len(column))
    simple = 1 / (1 + np.abs(column) / cell)
    return np.asarray(np.log(np.maximum(likely, np.minimum(simple, SIMPLE))))
