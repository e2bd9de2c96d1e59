"""Records that left in any order of their columns, or scaled as a whole.

A row that was standardised is a record once more with the mean and the deviation that left beside it;
a row that was normalised points in a record's direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.stats import binom

from privfed.testing.rules.match import Match
from privfed.testing.rules.precision import DOUBLE, simplicity
from privfed.testing.rules.released import Block, Released
from privfed.testing.rules.rows import Found, surest
from privfed.testing.rules.table import RawTable

#: Largest block in which a record is looked for in any order, and how many such blocks.
SMALL, BLOCKS = 256, 2000
#: Most products of released rows and records that are formed at once.
PRODUCTS = 20_000_000
#: Most released rows that are tried as mean and deviation of one another.
ROWS = 80


def records_in(table: RawTable, released: Released) -> Iterator[Match | None]:
    """A match or none for each test."""
    if table.numbers.shape[1] >= 2:
        yield _in_any_order(table, released)
    if table.numbers.shape[1] >= 3:
        yield _scaled(table, released)
        yield _unscaled(table, released)


def _in_any_order(table: RawTable, released: Released) -> Match | None:
    """Small groups of numbers of which most are one record's, in whatever order."""
    small = [
        place
        for place, block in enumerate(released.blocks)
        if 2 <= block.values.size <= SMALL and block.values.dtype != bool
    ][:BLOCKS]
    cells = _Sorted.of(table)
    found = [_scattered(table, cells, released, place) for place in small]
    return surest(found).times(len(small)).match("several values of one record", table)


@dataclass(frozen=True)
class _Sorted:
    """All cells of a table by size.

    Args:
        sizes: absolute values, ascending.
        records: whose each is.
    """

    sizes: np.ndarray
    records: np.ndarray

    @classmethod
    def of(cls, table: RawTable) -> _Sorted:
        """Those that are finite and not zero."""
        flat = np.abs(table.numbers).ravel()
        usable = np.flatnonzero(np.isfinite(flat) & (flat > 0))
        order = usable[np.argsort(flat[usable])]
        return cls(flat[order], order // table.numbers.shape[1])


def _scattered(table: RawTable, cells: _Sorted, released: Released, place: int) -> Found:
    """The record to which most numbers of a block belong, at any one precision."""
    block, columns = released.blocks[place], table.numbers.shape[1]
    mixture = released.mixtures[place]
    best = Found(1.0)
    for precision in mixture:
        pool = released.precisions[precision].of_block(place)
        reach = precision.cell(pool) * (2 if precision is DOUBLE else 1)
        pairs = _belonging(cells, pool, reach)
        hits = np.bincount(pairs[:, 1], minlength=1)
        record = int(np.argmax(hits))
        if hits[record] < 2:
            continue
        values = pool[pairs[pairs[:, 1] == record][:, 0]]
        share = np.bincount(pairs[:, 0]).max() / len(cells.sizes) * columns
        each = min(1.0, max(float(simplicity(values).max()), float(share)))
        chance = float(binom.sf(hits[record] - 1, len(pool), each)) * table.records
        locate = partial(block.find, float(values[0]))
        found = Found(min(1.0, chance), locate, record, int(hits[record]), precision.name)
        best = surest([best, found])
    return best.times(len(mixture))


def _belonging(cells: _Sorted, pool: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Pairs of a number and a record that has a cell within reach; common numbers left out."""
    first = np.searchsorted(cells.sizes, pool - reach, side="left")
    counts = np.searchsorted(cells.sizes, pool + reach, side="right") - first
    counts[counts > max(1, len(cells.sizes) // 4)] = 0
    ends = np.cumsum(counts)
    at = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - ends + counts, counts)
    numbers = np.repeat(np.arange(len(counts)), counts)
    return np.unique(np.column_stack([numbers, cells.records[at]]), axis=0).astype(np.int64)


def _rows_of(released: Released, width: int) -> Iterator[tuple[Block, np.ndarray, bool]]:
    """Blocks as rows as wide as the table, and whether they lay along the first axis."""
    for block in released.blocks:
        values = block.values
        if values.dtype == bool or values.size < width:
            continue
        if values.shape[-1] == width or values.size == width:
            yield block, values.reshape(-1, width), False
        if values.ndim == 2 and values.shape[0] == width != values.shape[1]:
            yield block, values.T, True


def _scaled(table: RawTable, released: Released) -> Match | None:
    """Rows that are a times a record plus b, for some a and b of their own."""
    raw = _unit(table.numbers)
    best, looked = Found(1.0), 0
    for block, rows, turned in _rows_of(released, table.numbers.shape[1]):
        if len(rows) * len(raw) > PRODUCTS:
            rows = rows[: max(1, PRODUCTS // len(raw))]
        looked += len(rows)
        found = _parallel(raw, rows, block, turned)
        best = surest([best, found])
    return best.times(looked).match("a record, scaled and shifted as a whole", table)


def _unit(rows: np.ndarray) -> np.ndarray:
    """Rows centred and scaled to length one; those without spread become zero."""
    plain = rows.astype(float)
    with np.errstate(all="ignore"):
        centred = plain - plain.mean(axis=1, keepdims=True)
        unit = centred / np.sqrt((centred**2).sum(axis=1, keepdims=True))
    return np.where(np.isfinite(unit).all(axis=1, keepdims=True), unit, 0.0)


#: What may have been done to a row after it was scaled; undone before rows are compared.
_UNDONE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "": lambda rows: rows,
    ", its exponential": np.log,
    ", its logistic function": lambda rows: np.log(rows / (1 - rows)),
    ", its logarithm": np.exp,
    ", its hyperbolic tangent": np.arctanh,
}


def _parallel(raw: np.ndarray, rows: np.ndarray, block: Block, turned: bool) -> Found:
    """The released row that is nearest to parallel to a record, against the next best record."""
    if len(raw) < 2:
        return Found(1.0)
    best = Found(1.0)
    for undo in _UNDONE.values():
        with np.errstate(all="ignore"):
            unit = _unit(undo(rows.astype(float)))
        log, nearest = _nearest_direction(raw, unit)
        surest = int(np.argmin(log))
        chance = len(_UNDONE) * len(raw) * float(np.exp(log[surest]))
        if chance < best.chance:
            start = surest if turned else surest * raw.shape[1]
            locate = partial(block.leaf.element, start)
            best = Found(chance, locate, int(nearest[surest]), 1)
    return best


def _nearest_direction(raw: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each row the log chance of so small an angle to its nearest record, and that record.

    The second nearest record tells how near a record is by chance; an angle's square that is r
    times smaller is r^((d - 2) / 2) times less likely in d dimensions less one.
    """
    with np.errstate(all="ignore"):
        angles = 1 - np.abs(unit @ raw.T)
    nearest = np.argmin(angles, axis=1)
    second = np.partition(angles, 1, axis=1)[:, 1]
    one, other = unit, raw[nearest]
    gap = np.minimum(((one - other) ** 2).sum(axis=1), ((one + other) ** 2).sum(axis=1)) / 2
    ratio = np.maximum(gap, 1e-30) / np.maximum(second, 1e-30)
    log = np.log(np.minimum(ratio, 1.0)) * (raw.shape[1] - 2) / 2
    log[(gap > 1e-8) | (np.abs(unit).sum(axis=1) == 0)] = 0.0
    return log, nearest


def _unscaled(table: RawTable, released: Released) -> Match | None:
    """Rows that become a record by a mean and a deviation, or a least and a greatest, beside them."""
    width = table.numbers.shape[1]
    rows, origin = [], []
    for block, part, turned in _rows_of(released, width):
        for place, row in enumerate(part[:ROWS]):
            rows.append(row.astype(float))
            origin.append((block, place if turned else place * width))
    if not 3 <= len(rows) <= ROWS:
        return None
    stacked = np.array(rows)
    rule = "a record, scaled by a mean and a deviation that left with it"
    return _solved(table, stacked, origin).match(rule, table)


def _solved(table: RawTable, rows: np.ndarray, origin: list[tuple[Block, int]]) -> Found:
    raw = table.numbers
    order = np.argsort(raw[:, 0], kind="stable")
    column = raw[order, 0]
    scales = {"deviation": rows, "variance": np.sqrt(np.abs(rows))}
    for name, scale in scales.items():
        for shift_is_least in (False, True) if name == "deviation" else (False,):
            width = scale[None, :, :] - rows[:, None, :] if shift_is_least else scale[None, :, :]
            # first column: [y, shift, scale]
            first = rows[:, None, None, 0] * width[None, ..., 0] + rows[None, :, None, 0]
            place = np.clip(np.searchsorted(column, first), 1, len(column) - 1)
            slack = 1e-7 * (np.abs(first) + np.abs(rows[None, :, None, 0]))
            near = np.minimum(np.abs(column[place] - first), np.abs(column[place - 1] - first))
            for y, shift, by in np.argwhere(near <= slack)[:2000]:
                if len({int(y), int(shift), int(by)}) < 3:
                    continue
                factor = rows[by] - rows[shift] if shift_is_least else scale[by]
                row = rows[y] * factor + rows[shift]
                error = np.abs(raw - row).max(axis=1)
                record = int(np.argmin(np.where(np.isfinite(error), error, np.inf)))
                limit = 1e-6 * (np.abs(row) + np.abs(rows[shift])).max()
                if error[record] <= limit and np.ptp(rows[y]) > 0 and np.all(factor != 0):
                    block, start = origin[int(y)]
                    chance = len(rows) ** 3 * len(raw) * 1e-6 ** (raw.shape[1] - 1)
                    return Found(min(1.0, chance), partial(block.leaf.element, start), record, 1)
    return Found(1.0)
