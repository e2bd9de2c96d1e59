"""Rows that left in the table's order: whole records or most of one, at any precision.

Values that are too short to be told from chance one by one (whole numbers, 16-bit floats, rounded
ones) give a record away together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
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
HASH = 22  #: Logarithm of the size of the tables that drop windows at once
FEW = 1 << 14  #: Of so few windows all are looked up
CHUNK = 1 << 16  #: How many windows are looked up at a time
MIXES = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))  #: Odd, for two keys' hash
MEND = "no row may leave; release sums or means over many records, with noise"


@dataclass(eq=False)
class Stream:
    """Blocks one after the other, each row by row or (turned) column by column, rounded."""

    precision: Precision
    parts: Sequence[Block]
    turned: bool
    keys: np.ndarray = field(init=False)
    _starts: list[int] = field(init=False)
    _windows: Windows = field(init=False)
    _known: dict[int, np.ndarray] = field(init=False, default_factory=dict)
    _begun: tuple[RawTable | None, np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        flat = [
            (block.values.T if self.turned else block.values).reshape(-1) for block in self.parts
        ]
        self.keys = self.precision.keys(np.nan_to_num(np.concatenate(flat).astype(float)))
        self._starts = np.cumsum([0, *map(len, flat[:-1])]).tolist()
        self._windows, self._begun = Windows(self.keys), (None, np.empty(0))

    def begun(self, table: RawTable) -> np.ndarray:
        """Places of two keys that may be those with which some columns of a record begin."""
        if len(self.keys) <= FEW:
            return np.arange(len(self.keys) - 1)
        if self._begun[0] is not table:
            marked = table.memoised(
                ("begun", self.precision), partial(_pairs_of, table, self.precision)
            )
            found = [np.empty(0, np.int64)]
            for start in range(0, len(self.keys) - 1, CHUNK):
                pairs = _pair_hashes(*(self.keys[start + at : start + at + CHUNK] for at in (0, 1)))
                found.append(np.flatnonzero(marked[pairs]) + start)
            self._begun = table, np.concatenate(found)
        return self._begun[1]

    def hashes(self, places: np.ndarray, width: int) -> np.ndarray:
        """Of the windows of so many keys at some places."""
        if len(places) * width < len(self.keys):
            return hashes_of(self.keys[places[:, None] + np.arange(width)])
        if width not in self._known:
            count = len(self.keys) - width + 1
            self._known[width] = self._windows.hashes(slice(0, count), slice(width, None))
        return np.asarray(self._known[width][places])

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


def spans_of(table: RawTable) -> Iterator[tuple[bool, int, int]]:
    """Which columns are looked for: whether with codes of texts, from, to; all, all but an end, half."""
    for coded in (True, False) if table.texts else (False,):
        width = table.numbers.shape[1] + (table.codes.shape[1] if coded else 0)
        spans = {(0, width), (0, width - 1), (1, width)} if width > 2 else {(0, width)}
        if width >= 6:
            spans |= {(0, width // 2), (width // 2, width)}
        yield from ((coded, first, last) for first, last in sorted(spans) if width >= 2)


def aligned(
    span: tuple[bool, int, int], streams: Sequence[Stream], table: RawTable
) -> Evidence | None:
    """Windows of released numbers that are some columns of a record, in the table's order."""
    found = [one for stream in streams for one in _rows(span, stream, table)]
    return max(found, key=lambda one: one.nats, default=None)


def _pair_hashes(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of two keys side by side, below 2^HASH."""
    first, second = one[: len(other)].view(np.uint64), other.view(np.uint64)
    with np.errstate(over="ignore"):
        return np.asarray((first * MIXES[0] + second * MIXES[1]) >> np.uint64(64 - HASH))


def _pairs_of(table: RawTable, precision: Precision) -> np.ndarray:
    """Which hashes the first two keys of the columns have that are looked for."""
    marked = np.zeros(1 << HASH, dtype=bool)
    firsts = {span[:2] for span in spans_of(table)}
    for coded, cut in product({coded for coded, _ in firsts}, (False, True)):
        keys = _Keys.known(table, coded, precision, cut).keys
        for first in [first for its, first in firsts if its == coded]:
            marked[_pair_hashes(keys[:, first].copy(), keys[:, first + 1].copy())] = True
    return marked


@dataclass(frozen=True, eq=False)
class _Keys:
    """Whole records at one precision, with codes of texts or not, and their keys."""

    whole: np.ndarray
    keys: np.ndarray
    windows: Windows

    @classmethod
    def known(cls, table: RawTable, coded: bool, precision: Precision, cut: bool) -> _Keys:
        """Worked out once."""
        key = ("keys", coded, precision, cut)
        return table.memoised(key, partial(cls.of, table, *key[1:]))

    @classmethod
    def of(cls, table: RawTable, coded: bool, precision: Precision, cut: bool) -> _Keys:
        """Rounded to the nearest, or cut off."""
        whole = np.column_stack([table.numbers, table.codes]) if coded else table.numbers
        plain = np.nan_to_num(whole)
        cell = precision.cell(plain)
        keys = precision.keys(np.trunc(plain / cell) * cell if cut else plain)
        return cls(whole, keys, Windows(keys.reshape(-1)))


@dataclass(frozen=True, eq=False)
class _Records:
    """Some columns of all records at one precision, their keys, and the order of the keys' hashes."""

    part: np.ndarray
    keys: np.ndarray
    hashes: np.ndarray
    order: np.ndarray
    precision: Precision

    @classmethod
    def of(
        cls, table: RawTable, span: tuple[bool, int, int], precision: Precision, cut: bool
    ) -> _Records:
        """Rounded to the nearest, or cut off."""
        coded, first, last = span
        all_keys = _Keys.known(table, coded, precision, cut)
        begins = np.arange(len(all_keys.keys)) * all_keys.keys.shape[1] + first
        hashes = all_keys.windows.hashes(begins, begins + last - first)
        order = np.argsort(hashes)
        part, keys = all_keys.whole[:, first:last], all_keys.keys[:, first:last]
        return cls(part, keys, hashes[order], order, precision)

    @cached_property
    def logs(self) -> np.ndarray:
        """The log of how likely a row drawn column by column is each."""
        return _log_chances(self.part, self.keys, self.precision)


def _rows(span: tuple[bool, int, int], stream: Stream, table: RawTable) -> Iterator[Evidence]:
    """Records among the windows of one stream."""
    precision, width = stream.precision, span[2] - span[1]
    begun, windows = stream.begun(table), len(stream.keys) - width + 1
    begun = begun[: begun.searchsorted(windows)]
    if not len(begun):
        return
    hashes = stream.hashes(begun, width)
    for cut in (False, True):
        key = (span, precision, cut)
        records = table.memoised(key, partial(_Records.of, table, *key))
        part, keys = records.part, records.keys
        hit, record = _equal(records, begun, hashes, stream)
        if not len(hit):
            continue
        usable = (keys[record] != keys[record][:, :1]).any(axis=1)
        usable &= np.isfinite(part[record]).all(axis=1)
        hit, record = hit[usable], record[usable]
        if not len(hit):
            continue
        logs = records.logs
        least = int(np.argmin(logs[record]))
        single = -float(np.log(windows * len(part)) + logs[record[least]])
        trials, share = float(windows), min(1.0, float(np.exp(logs).sum()))
        together = float(chernoff(np.array([len(hit)]), np.array([trials]), np.array([share]))[0])
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
    """Which windows' keys are a record's, and the records: by a table of bits, by hash, in full."""
    if len(hashes) > 1 << 14:
        marked = np.zeros(1 << HASH, dtype=bool)
        marked[records.hashes >> np.uint64(64 - HASH)] = True
        maybe = np.flatnonzero(marked[hashes >> np.uint64(64 - HASH)])
        places, hashes = places[maybe], hashes[maybe]
    place = np.searchsorted(records.hashes, hashes)
    place = np.minimum(place, len(records.hashes) - 1)
    alike = records.hashes[place] == hashes
    maybe, record = places[alike], records.order[place[alike]]
    if not len(maybe):
        return maybe, record
    same = stream.keys[maybe[:, None] + np.arange(records.keys.shape[1])] == records.keys[record]
    return maybe[same.all(axis=1)], record[same.all(axis=1)]


def _log_chances(part: np.ndarray, keys: np.ndarray, precision: Precision) -> np.ndarray:
    """Logarithm of the chance that a row drawn column by column equals each record."""
    logs = np.zeros(len(part))
    for column, key in zip(np.nan_to_num(part).T, keys.T, strict=True):
        _, inverse, counts = np.unique(key, return_inverse=True, return_counts=True)
        often = counts[inverse]
        sizes = np.unique(column)
        cell = precision.cell(column)
        dense = densities(sizes, np.searchsorted(sizes, column), deviations=0) / len(sizes)
        likely = np.where(often == 1, np.minimum(dense * cell, 1.0), often / len(column))
        simple = 1 / (1 + np.abs(column) / cell)
        logs += np.log(np.maximum(likely, np.minimum(simple, SIMPLE)))
    return logs
