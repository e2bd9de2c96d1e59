"""Released numbers that give a raw value away together: by a sum, a difference, a product.

Two totals of which one lacks a record differ by that record; a deviation from a mean that left too
is the value itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from privfed.testing.rules.chance import densities, tail
from privfed.testing.rules.match import Match
from privfed.testing.rules.precision import NO_GRADE, decimals_of, fits, simplicity
from privfed.testing.rules.released import Block, Released
from privfed.testing.rules.table import RawTable

#: Most numbers of a release of which all pairs are formed.
PAIRS = 1500
#: Most of which all triples are.
TRIPLES = 60
#: Most numbers of which neighbours are subtracted.
LONG = 5_000_000
#: From how many numbers on a block's type alone says how they were rounded.
LARGE = 200_000
#: Most arrays in which they are.
BLOCKS = 2000
#: Most pairs of equally shaped arrays that are subtracted.
ARRAYS = 300
_EPSILON = float(np.finfo(float).eps)
_MEND = "what left can be combined; release each statistic once, with noise, over the same records"


@dataclass(frozen=True)
class Numbers:
    """Released numbers with how far rounding may have moved each.

    Args:
        values: the numbers.
        cells: distance of neighbouring numbers of the same precision.
        origin: position of the block and in the block, shape (numbers, 2).
    """

    values: np.ndarray
    cells: np.ndarray
    origin: np.ndarray

    @classmethod
    def of(cls, blocks: list[Block]) -> Numbers:
        """All finite numbers of some blocks."""
        values, origin = [np.empty(0)], [np.empty((0, 2), np.int64)]
        for place, block in enumerate(blocks):
            flat = block.values.reshape(-1).astype(float)
            values.append(flat)
            origin.append(np.column_stack([np.full(flat.size, place), np.arange(flat.size)]))
        every = np.concatenate(values)
        kept = np.isfinite(every) & (np.abs(every) < 1e15)
        return cls(every[kept], cells_of(every[kept]), np.concatenate(origin)[kept])


def cells_of(values: np.ndarray) -> np.ndarray:
    """The distance of neighbouring numbers at each number's own precision."""
    sizes = np.abs(values)
    safe = np.where((sizes > 1e-30) & (sizes < 1e30), sizes, 1.0)
    grades = decimals_of(safe)
    cells = np.spacing(safe)
    single = fits(safe, 24)
    cells = np.where(single, np.spacing(safe.astype(np.float32)).astype(float), cells)
    return np.where(grades != NO_GRADE, np.maximum(cells, 10.0 ** -grades.astype(float)), cells)


def arithmetic_in(table: RawTable, released: Released) -> Iterator[Match | None]:
    """All rules about combinations, a match or none for each test."""
    blocks = [b for b in released.blocks if b.values.dtype != bool and b.values.size]
    if not len(table.cells) or not blocks:
        return
    total = sum(block.values.size for block in blocks)
    if total <= PAIRS:
        numbers = Numbers.of(blocks)
        yield from _pairs(table, blocks, numbers)
        if len(numbers.values) <= TRIPLES:
            yield from _triples(table, blocks, numbers)
        return
    for block in blocks[:BLOCKS]:
        if 2 <= block.values.size <= LONG:
            yield _neighbours(table, block)
    yield from _arrays(table, blocks)


def _pairs(table: RawTable, blocks: list[Block], numbers: Numbers) -> Iterator[Match | None]:
    """Every difference and sum of two, and differences of totals that means stand for."""
    first, second = np.triu_indices(len(numbers.values), 1)
    a, b = numbers.values[first], numbers.values[second]
    error = numbers.cells[first] + numbers.cells[second] + 2 * _EPSILON * (np.abs(a) + np.abs(b))
    telling = np.minimum(np.abs(a), np.abs(b)) > 2 * error  # else the sum is one of the two
    a, b, error, origin = a[telling], b[telling], error[telling], numbers.origin[first][telling]
    count = table.records
    yield _judged("the difference of two released numbers", table, blocks, a - b, error, origin)
    yield _judged("the sum of two released numbers", table, blocks, a + b, error, origin)
    for more in (count, count + 1) if count > 1 else ():
        for one, other in ((a, b), (b, a)):
            rule = f"the difference of two totals, from means of {more} and {more - 1} records"
            wider = more * error
            yield _judged(rule, table, blocks, more * one - (more - 1) * other, wider, origin)


def _triples(table: RawTable, blocks: list[Block], numbers: Numbers) -> Iterator[Match | None]:
    """A released number times a second plus a third: a scaled value, its scale and its shift."""
    values, cells = numbers.values, numbers.cells
    first, second = np.triu_indices(len(values), 1)
    product = values[first] * values[second]
    error = np.abs(values[first]) * cells[second] + np.abs(values[second]) * cells[first]
    whole = (product[:, None] + values[None, :]).ravel()
    slack = (error[:, None] + cells[None, :] + 4 * _EPSILON * np.abs(product)[:, None]).ravel()
    simple = simplicity(np.abs(values)) > 0.05
    dull = (simple[first] | simple[second])[:, None] | simple[None, :]
    dull |= (first[:, None] == np.arange(len(values))) | (second[:, None] == np.arange(len(values)))
    kept = ~dull.ravel()
    origin = np.repeat(numbers.origin[first], len(values), axis=0)
    rule = "a released number times a second plus a third"
    yield _judged(rule, table, blocks, whole[kept], slack[kept], origin[kept])


def _neighbours(table: RawTable, block: Block) -> Match | None:
    """Differences of numbers that lie side by side, as in running totals."""
    values = block.values.astype(float)
    where = np.arange(values.size).reshape(values.shape)
    cells = _cells(block).reshape(values.shape)
    parts = []
    for axis in range(values.ndim):
        if values.shape[axis] > 1:
            (after, before), (wide, narrow) = _shifted(values, axis), _shifted(cells, axis)
            error = wide + narrow + 2 * _EPSILON * (np.abs(after) + np.abs(before))
            place = _shifted(where, axis)[0]
            parts.append([part.ravel() for part in (after - before, error, place)])
    if not parts:
        return None
    results, errors, places = (np.concatenate(listed) for listed in zip(*parts, strict=True))
    origin = np.column_stack([np.zeros(len(places), np.int64), places])
    rule = "the difference of two neighbouring released numbers"
    return _judged(rule, table, [block], results, errors, origin)


def _cells(block: Block) -> np.ndarray:
    """The distance of neighbouring numbers; in a large block that of its type alone."""
    flat = block.values.reshape(-1)
    if flat.size <= LARGE or flat.dtype.kind != "f":
        return cells_of(flat.astype(float))
    return np.asarray(np.nan_to_num(np.spacing(np.abs(flat)).astype(float)))


def _shifted(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    moved = np.moveaxis(values, axis, 0)
    return moved[1:], moved[:-1]


def _arrays(table: RawTable, blocks: list[Block]) -> Iterator[Match | None]:
    """Differences of arrays of one shape, as a node and its branch or one round and the next."""
    tried = 0
    for place, one in enumerate(blocks):
        for other in blocks[place + 1 : place + 5]:
            alike = one.values.shape == other.values.shape and 1 < one.values.size <= LONG
            if alike and tried < ARRAYS:
                tried += 1
                yield _difference(table, one, other)


def _difference(table: RawTable, one: Block, other: Block) -> Match | None:
    a, b = (block.values.reshape(-1).astype(float) for block in (one, other))
    error = cells_of(a) + cells_of(b) + 2 * _EPSILON * (np.abs(a) + np.abs(b))
    origin = np.column_stack([np.zeros(len(a), np.int64), np.arange(len(a))])
    rule = f"the difference to {other.path}"
    return _judged(rule, table, [one], a - b, error, origin)


def _judged(
    rule: str,
    table: RawTable,
    blocks: list[Block],
    results: np.ndarray,
    errors: np.ndarray,
    origin: np.ndarray,
) -> Match | None:
    """Hold results against the raw values; each may be off by its error."""
    sizes = table.cells.sizes
    result = np.abs(results)
    kept = np.flatnonzero(np.isfinite(result) & (result > 4 * errors))
    result, error = result[kept], errors[kept]
    after = np.minimum(np.searchsorted(sizes, result), len(sizes) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(sizes[after] - result < result - sizes[before], after, before)
    hit = np.flatnonzero(np.abs(sizes[nearest] - result) <= error)
    if not len(hit):
        return None
    nearest, found = nearest[hit], result[hit]
    width = np.maximum(2 * np.abs(sizes[nearest] - found), error[hit])
    columns = table.cells.first[nearest] % table.numbers.shape[1]
    width = np.maximum(width, table.steps[columns])
    chance = np.maximum(densities(sizes, nearest) * width, _simple(found, error[hit]))
    chance = np.maximum(chance, simplicity(sizes[nearest]))
    whole = tail(np.minimum(chance, 1.0), len(kept))
    if whole > 0.05:
        return None
    surest = int(np.argmin(chance))
    block, place = origin[kept[hit[surest]]]
    cell = int(table.cells.first[nearest[surest]])
    return Match(
        f"a raw value, as {rule}",
        partial(blocks[int(block)].leaf.element, int(place)),
        table.where(cell),
        whole,
        len(hit),
        value=repr(float(table.numbers.ravel()[cell])),
        mend=_MEND,
    )


def _simple(values: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """The simplicity of results, as many digits as their errors leave."""
    return np.asarray(1 / (1 + values / errors))
