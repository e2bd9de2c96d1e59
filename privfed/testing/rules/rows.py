"""Rows that left in order: whole records or most of one, at any precision.

Values that are too short to be told from chance one by one (whole numbers, 16-bit floats, rounded
ones) give a record away together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from scipy.stats import poisson

from privfed.testing.rules.chance import densities
from privfed.testing.rules.match import Match
from privfed.testing.rules.precision import DOUBLE, Precision
from privfed.testing.rules.released import Block, Released
from privfed.testing.rules.table import RawTable

#: An odd number whose powers spread keys over 64 bits, its inverse modulo 2^64, and a mixer.
_BASE = np.uint64(0x9E3779B97F4A7C15)
_INVERSE = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
_MIX = np.uint64(0xBF58476D1CE4E5B9)
#: Most that a value's simplicity counts in a row, whose other values are no simpler for it.
SIMPLE = 0.25
#: From how many numbers on a block is large.
LARGE = 100_000
#: Logarithm of the size of the table that drops windows at once.
HASH = 22
MEND = "no row may leave; release sums or means over many records, with noise"


@dataclass(frozen=True)
class Found:
    """A row that was found.

    Args:
        chance: how likely it is by chance.
        locate: works out the path to its first number.
        record: the record.
        count: how many rows were found.
        precision: at which precision.
    """

    chance: float
    locate: Callable[[], str] = str
    record: int = 0
    count: int = 0
    precision: str = ""

    def times(self, looks: float) -> Found:
        """The same among so many looks."""
        chance = min(1.0, self.chance * max(looks, 1))
        return Found(chance, self.locate, self.record, self.count, self.precision)

    def match(self, rule: str, table: RawTable) -> Match | None:
        """As a match, unless chance explains it."""
        if self.chance > 0.05:
            return None
        whose = f" of {table.owner}" if table.owner else ""
        shown = repr([float(value) for value in table.numbers[self.record]])
        return Match(
            rule,
            self.locate,
            f"record {self.record}{whose}",
            self.chance,
            self.count,
            self.precision,
            shown,
            MEND,
            main=True,
        )


def surest(found: Sequence[Found]) -> Found:
    """The least likely of some."""
    return min(found, key=lambda one: one.chance, default=Found(1.0))


def rows_in(table: RawTable, released: Released) -> Iterator[Match | None]:
    """Windows of the released numbers that are a record's columns, in the table's order."""
    whole = np.column_stack([table.numbers, table.codes]) if table.codes.size else table.numbers
    streams = list(_streams(released))
    for matrix in [whole] if whole.shape[1] == table.numbers.shape[1] else [whole, table.numbers]:
        width = matrix.shape[1]
        if width < 2 or not streams:
            continue
        for first, last in sorted(_spans(width)):
            rule = "a record, column by column" if last - first == width else "part of a record"
            part = matrix[:, first:last]
            found = surest([_aligned(part, stream) for stream in streams])
            yield found.times(len(streams)).match(rule, table)


def _spans(width: int) -> set[tuple[int, int]]:
    """Which columns are looked for: all, all but an end, either half."""
    spans = {(0, width), (0, width - 1), (1, width)} if width > 2 else {(0, width)}
    return spans | ({(0, width // 2), (width // 2, width)} if width >= 6 else set())


@dataclass(eq=False)
class _Stream:
    """Blocks one after the other, rounded to one precision, hashed by windows (Rabin and Karp).

    Args:
        precision: to which the numbers are rounded.
        parts: the blocks, each row by row or column by column.
        turned: whether column by column.
    """

    precision: Precision
    parts: Sequence[Block]
    turned: bool
    keys: np.ndarray = field(init=False)
    starts: list[int] = field(init=False)
    _prefix: np.ndarray = field(init=False)
    _back: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        flat = [
            (block.values.T if self.turned else block.values).reshape(-1) for block in self.parts
        ]
        self.keys = self.precision.keys(np.nan_to_num(np.concatenate(flat).astype(float)))
        self.starts = np.cumsum([0, *map(len, flat[:-1])]).tolist()
        self._prefix, self._back = _prefixes(self.keys)

    def windows(self, width: int) -> np.ndarray:
        """A hash of each window of so many keys."""
        count = max(0, len(self.keys) - width + 1)
        with np.errstate(over="ignore"):
            sums = self._prefix[width : width + count] - self._prefix[:count]
            return np.asarray(sums * self._back[:count])

    def locate(self, place: int) -> str:
        """The path to the number at a position of the stream."""
        at = bisect_right(self.starts, place) - 1
        block, place = self.parts[at], place - self.starts[at]
        if self.turned:
            rows, columns = block.values.shape
            place = place % rows * columns + place // rows
        return block.leaf.element(place)


def _prefixes(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of keys times powers up to each place, and what shifts a window back to the start.

    Keys are mixed first: floats' bit patterns end with zeros, which no power would ever fill.
    """
    with np.errstate(over="ignore"):
        mixed = keys.view(np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _MIX
        mixed ^= mixed >> np.uint64(32)
        powers = np.cumprod(np.full(len(mixed), _BASE))
        prefix = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed * powers)])
        return prefix, np.cumprod(np.full(len(mixed), _INVERSE))


def _streams(released: Released) -> Iterator[_Stream]:
    """Of each precision the blocks that have it, row by row, and matrices column by column too."""
    chosen: dict[tuple[Precision, bool], list[Block]] = {}
    for block, mixture in zip(released.blocks, released.mixtures, strict=True):
        for precision in _main(block, mixture):
            chosen.setdefault((precision, False), []).append(block)
            if block.values.ndim == 2 and min(block.values.shape) > 1:
                chosen.setdefault((precision, True), []).append(block)
    for (precision, turned), blocks in chosen.items():
        yield _Stream(precision, blocks, turned)


def _main(block: Block, mixture: object) -> list[Precision]:
    """The precisions of most numbers, and the finest of the rounded ones.

    In a large block a few short numbers make no row, and long ones are found one by one.
    """
    counts: dict[Precision, int] = dict(mixture)  # type: ignore[call-overload]
    if block.values.size >= LARGE:
        counts.pop(DOUBLE, None)
        counts = {one: count for one, count in counts.items() if count >= block.values.size // 20}
    most = sorted(counts, key=lambda precision: -counts[precision])[:3]
    steps = [precision for precision in counts if precision.step is not None]
    return list(dict.fromkeys([*most, *sorted(steps, key=lambda p: p.step or 0)[:1]]))


def _aligned(part: np.ndarray, stream: _Stream) -> Found:
    """The least likely record among all windows, rounded to the nearest or cut off."""
    windows = stream.windows(part.shape[1])
    plain, precision = np.nan_to_num(part), stream.precision
    cut = np.trunc(plain / precision.cell(plain)) * precision.cell(plain)
    return surest(
        [_same(part, precision.keys(rounded), windows, stream) for rounded in (plain, cut)]
    ).times(2)


def _same(part: np.ndarray, keys: np.ndarray, windows: np.ndarray, stream: _Stream) -> Found:
    """The least likely record whose keys are those of a window."""
    hit, record = _equal(keys, windows, stream)
    usable = (keys[record] != keys[record][:, :1]).any(axis=1)
    usable &= np.isfinite(part[record]).all(axis=1)
    hit, record = hit[usable], record[usable]
    if not len(hit):
        return Found(1.0)
    logs = _surprise(part, keys, stream.precision)
    least = int(np.argmin(logs[record]))
    single = len(windows) * len(part) * float(np.exp(logs[record[least]]))
    together = float(poisson.sf(len(hit) - 1, len(windows) * float(np.exp(logs).sum())))
    return Found(
        min(1.0, 2 * min(single, together)),
        partial(stream.locate, int(hit[least])),
        int(record[least]),
        len(hit),
        stream.precision.name,
    )


def _equal(keys: np.ndarray, windows: np.ndarray, stream: _Stream) -> tuple[np.ndarray, np.ndarray]:
    """Windows whose keys are a record's, and the records: by a table of bits, by hash, in full."""
    width = keys.shape[1]
    prefix, back = _prefixes(keys.reshape(-1))
    first = np.arange(len(keys)) * width
    with np.errstate(over="ignore"):
        rows = (prefix[first + width] - prefix[first]) * back[first]
    marked = np.zeros(1 << HASH, dtype=bool)
    marked[rows >> np.uint64(64 - HASH)] = True
    maybe = np.flatnonzero(marked[windows >> np.uint64(64 - HASH)])
    order = np.argsort(rows)
    place = np.minimum(np.searchsorted(rows[order], windows[maybe]), len(rows) - 1)
    alike = rows[order][place] == windows[maybe]
    maybe, record = maybe[alike], order[place[alike]]
    same = (stream.keys[maybe[:, None] + np.arange(width)] == keys[record]).all(axis=1)
    return maybe[same], record[same]


def _surprise(part: np.ndarray, keys: np.ndarray, precision: Precision) -> np.ndarray:
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
