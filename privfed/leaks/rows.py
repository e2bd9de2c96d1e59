"""Rows that left in the table's order: whole records or most of one, at any precision.

Values that are too short to be told from chance one by one (whole numbers, 16-bit floats, rounded
ones) give a record away together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

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
HASH = 22  #: Logarithm of the size of the table that drops windows at once
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

    def __post_init__(self) -> None:
        flat = [
            (block.values.T if self.turned else block.values).reshape(-1) for block in self.parts
        ]
        self.keys = self.precision.keys(np.nan_to_num(np.concatenate(flat).astype(float)))
        self._starts = np.cumsum([0, *map(len, flat[:-1])]).tolist()
        self._windows = Windows(self.keys)

    def windows(self, width: int) -> np.ndarray:
        """A hash of each window of so many keys."""
        if width not in self._known:
            count = max(0, len(self.keys) - width + 1)
            ends = slice(width, width + count)
            self._known[width] = self._windows.hashes(slice(0, count), ends)
        return self._known[width]

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


@dataclass(frozen=True, eq=False)
class _Records:
    """Some columns of all records at one precision, their keys, and the order of the keys' hashes."""

    part: np.ndarray
    keys: np.ndarray
    hashes: np.ndarray
    order: np.ndarray

    @classmethod
    def of(
        cls, table: RawTable, span: tuple[bool, int, int], precision: Precision, cut: bool
    ) -> _Records:
        """Rounded to the nearest, or cut off."""
        coded, first, last = span
        whole = np.column_stack([table.numbers, table.codes]) if coded else table.numbers
        part = whole[:, first:last]
        plain = np.nan_to_num(part)
        cell = precision.cell(plain)
        keys = precision.keys(np.trunc(plain / cell) * cell if cut else plain)
        hashes = hashes_of(keys)
        order = np.argsort(hashes)
        return cls(part, keys, hashes[order], order)


def _rows(span: tuple[bool, int, int], stream: Stream, table: RawTable) -> Iterator[Evidence]:
    """Records among the windows of one stream."""
    precision = stream.precision
    windows = stream.windows(span[2] - span[1])
    for cut in (False, True):
        key = (span, precision, cut)
        records = table.memoised(key, partial(_Records.of, table, *key))
        part, keys = records.part, records.keys
        hit, record = _equal(records, windows, stream)
        if not len(hit):
            continue
        usable = (keys[record] != keys[record][:, :1]).any(axis=1)
        usable &= np.isfinite(part[record]).all(axis=1)
        hit, record = hit[usable], record[usable]
        if not len(hit):
            continue
        logs = _log_chances(part, keys, precision)
        least = int(np.argmin(logs[record]))
        single = -float(np.log(len(windows) * len(part)) + logs[record[least]])
        trials, share = float(len(windows)), min(1.0, float(np.exp(logs).sum()))
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


def _equal(records: _Records, windows: np.ndarray, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Windows whose keys are a record's, and the records: by a table of bits, by hash, in full."""
    maybe = np.arange(len(windows))
    if len(windows) > 1 << 14:
        marked = np.zeros(1 << HASH, dtype=bool)
        marked[records.hashes >> np.uint64(64 - HASH)] = True
        maybe = np.flatnonzero(marked[windows >> np.uint64(64 - HASH)])
    place = np.searchsorted(records.hashes, windows[maybe])
    place = np.minimum(place, len(records.hashes) - 1)
    alike = records.hashes[place] == windows[maybe]
    maybe, record = maybe[alike], records.order[place[alike]]
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
