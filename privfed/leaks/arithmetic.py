"""Released numbers that give a raw value away together: by a sum, a difference, a product.

Two totals of which one lacks a record differ by that record; a deviation from a mean that left too
is the value itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from privfed.leaks.artefact import Block, Released
from privfed.leaks.chance import densities, surprise
from privfed.leaks.evidence import Evidence
from privfed.leaks.precision import NO_GRADE, decimals_of, fits, simplicity
from privfed.leaks.table import RawTable

#: Most numbers of a release of which all pairs are formed, and all triples.
PAIRS, TRIPLES = 300, 60
#: Most numbers of which neighbours are subtracted; most arrays, and pairs of arrays of one shape.
LONG, BLOCKS, ARRAYS = 5_000_000, 2000, 300
_EPSILON = float(np.finfo(float).eps)
_MEND = "what left can be combined; release each statistic once, with noise, over the same records"


@dataclass(frozen=True, eq=False)
class Results:
    """What one combination of released numbers gives; the same for every table.

    Args:
        rule: the combination.
        values: sizes of the results.
        errors: by how much rounding may have moved each.
        locate: works out the path to the first number of a result.
    """

    rule: str
    values: np.ndarray
    errors: np.ndarray
    locate: Callable[[int], str]

    @classmethod
    def of(
        cls, rule: str, results: np.ndarray, errors: np.ndarray, locate: Callable[[int], str]
    ) -> Results:
        """Only those that rounding leaves something of."""
        sizes = np.abs(results)
        kept = np.flatnonzero(np.isfinite(sizes) & (sizes > 4 * errors))
        return cls(rule, sizes[kept], errors[kept], lambda at: locate(int(kept[at])))

    @cached_property
    def different(self) -> int:
        """How many different results there are."""
        return len(np.unique(self.values))

    def score(self, table: RawTable) -> Evidence | None:
        """Hold the results against a table's own cells."""
        sizes = table.cells.sizes
        if not len(sizes) or not len(self.values):
            return None
        after = np.minimum(np.searchsorted(sizes, self.values), len(sizes) - 1)
        before = np.maximum(after - 1, 0)
        nearer = sizes[after] - self.values < self.values - sizes[before]
        nearest = np.where(nearer, after, before)
        hit = np.flatnonzero(np.abs(sizes[nearest] - self.values) <= self.errors)
        if not len(hit):
            return None
        nearest, found, errors = nearest[hit], self.values[hit], self.errors[hit]
        width = np.maximum(2 * np.abs(sizes[nearest] - found), errors)
        chance = np.maximum(densities(sizes, nearest) * width, 1 / (1 + found / errors))
        chance = np.minimum(np.maximum(chance, simplicity(sizes[nearest])), 1.0)
        _, once = np.unique(found, return_index=True)  # equal results tell nothing new
        nats = surprise(chance[once], self.different)
        surest = int(np.argmin(chance))
        cell = int(table.cells.first[nearest[surest]])
        return Evidence(
            "combinations",
            f"a raw value, as {self.rule}",
            nats,
            partial(self.locate, int(hit[surest])),
            partial(table.where, cell),
            len(hit),
            value=partial(table.shown, cell),
            mend=_MEND,
            plain=5,
        )


def cells_of(values: np.ndarray) -> np.ndarray:
    """The distance of neighbouring numbers at each number's own precision."""
    sizes = np.abs(values)
    safe = np.where((sizes > 1e-30) & (sizes < 1e30), sizes, 1.0)
    grades = decimals_of(safe)
    cells = np.spacing(safe)
    single = fits(safe, 24)
    cells = np.where(single, np.spacing(safe.astype(np.float32)).astype(float), cells)
    return np.where(grades != NO_GRADE, np.maximum(cells, 10.0 ** -grades.astype(float)), cells)


def combinations_of(released: Released, records: int) -> Iterator[Results]:
    """Every combination that is looked at, of the numbers of a release.

    Args:
        released: what left.
        records: how many records the table has: means of so many and of one less are told apart.
    """
    blocks = [
        block for block in released.blocks if block.values.dtype != bool and block.values.size
    ]
    if sum(block.values.size for block in blocks) <= PAIRS:
        yield from _of_few(blocks, records)
        return
    small = [block for block in blocks[:BLOCKS] if 2 <= block.values.size <= LONG]
    yield from _merged(
        "the difference of two neighbouring released numbers", map(_neighbours, small)
    )
    yield from _merged("the difference to an array of the same shape", _arrays(blocks))


#: Results with the errors, and what says where each is.
Parts = tuple[np.ndarray, np.ndarray, Callable[[int], str]]


def _merged(rule: str, parts: Iterable[Parts]) -> Iterator[Results]:
    """All parts as one."""
    listed = list(parts)
    if listed:
        ends = np.cumsum([len(values) for values, _, _ in listed])

        def locate(at: int) -> str:
            part = int(np.searchsorted(ends, at, side="right"))
            return listed[part][2](at - int(ends[part]) + len(listed[part][0]))

        values = np.concatenate([one for one, _, _ in listed])
        yield Results.of(rule, values, np.concatenate([one for _, one, _ in listed]), locate)


def _of_few(blocks: list[Block], records: int) -> Iterator[Results]:
    """Every difference and sum of two, differences of totals that means stand for, and triples."""
    flat = [block.values.reshape(-1).astype(float) for block in blocks]
    values = np.concatenate([np.empty(0), *flat])
    ends = np.cumsum([len(one) for one in flat])

    def locate(at: int) -> str:
        block = int(np.searchsorted(ends, at, side="right"))
        return blocks[block].leaf.element(at - int(ends[block]) + len(flat[block]))

    kept = np.flatnonzero(np.isfinite(values) & (np.abs(values) < 1e15))
    values, cells = values[kept], cells_of(values[kept])
    first, second = np.triu_indices(len(values), 1)
    a, b = values[first], values[second]
    error = cells[first] + cells[second] + 2 * _EPSILON * (np.abs(a) + np.abs(b))
    telling = np.minimum(np.abs(a), np.abs(b)) > 2 * error  # else the sum is one of the two
    a, b, error, origin = a[telling], b[telling], error[telling], kept[first[telling]]

    def at(place: int) -> str:
        return locate(int(origin[place]))

    yield Results.of("the difference of two released numbers", a - b, error, at)
    yield Results.of("the sum of two released numbers", a + b, error, at)
    for more in (records, records + 1) if records > 1 else ():
        rule = f"the difference of two totals, from means of {more} and {more - 1} records"
        for one, other in ((a, b), (b, a)):
            yield Results.of(rule, more * one - (more - 1) * other, more * error, at)
    if 3 <= len(values) <= TRIPLES:
        yield _triples(values, cells, lambda place: locate(int(kept[place])))


def _triples(values: np.ndarray, cells: np.ndarray, locate: Callable[[int], str]) -> Results:
    """A released number times a second plus a third: a scaled value, its scale and its shift."""
    first, second = np.triu_indices(len(values), 1)
    product = values[first] * values[second]
    error = np.abs(values[first]) * cells[second] + np.abs(values[second]) * cells[first]
    whole = product[:, None] + values[None, :]
    slack = error[:, None] + cells[None, :] + 4 * _EPSILON * np.abs(product)[:, None]
    simple = simplicity(np.abs(values)) > 0.05
    dull = (simple[first] | simple[second])[:, None] | simple[None, :]
    dull |= (first[:, None] == np.arange(len(values))) | (second[:, None] == np.arange(len(values)))
    kept = np.flatnonzero(~dull.ravel())
    rule = "a released number times a second plus a third"
    width = len(values)
    return Results.of(
        rule,
        whole.ravel()[kept],
        slack.ravel()[kept],
        lambda at: locate(int(first[kept[at] // width])),
    )


def _neighbours(block: Block) -> Parts:
    """Differences of numbers that lie side by side, as in running totals."""
    values = block.values.astype(float)
    where = np.arange(values.size).reshape(values.shape)
    cells = _cells(block).reshape(values.shape)
    results, errors, places = [np.empty(0)], [np.empty(0)], [np.empty(0, np.int64)]
    for axis in range(values.ndim):
        if values.shape[axis] > 1:
            (after, before), (wide, narrow) = _shifted(values, axis), _shifted(cells, axis)
            error = wide + narrow + 2 * _EPSILON * (np.abs(after) + np.abs(before))
            results.append((after - before).ravel())
            errors.append(error.ravel())
            places.append(_shifted(where, axis)[0].ravel())
    at = np.concatenate(places)
    return np.concatenate(results), np.concatenate(errors), partial(_element, block, at)


def _element(block: Block, places: np.ndarray, at: int) -> str:
    return block.leaf.element(int(places[at]))


def _cells(block: Block) -> np.ndarray:
    """The distance of neighbouring numbers; in a large block that of its type alone."""
    flat = block.values.reshape(-1)
    if flat.size <= 200_000 or flat.dtype.kind != "f":
        return cells_of(flat.astype(float))
    return np.asarray(np.nan_to_num(np.spacing(np.abs(flat)).astype(float)))


def _shifted(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    moved = np.moveaxis(values, axis, 0)
    return moved[1:], moved[:-1]


def _arrays(blocks: list[Block]) -> Iterator[Parts]:
    """Differences of arrays of one shape, as a node and its branch or one round and the next."""
    tried = 0
    for place, one in enumerate(blocks):
        for other in blocks[place + 1 : place + 5]:
            alike = one.values.shape == other.values.shape and 1 < one.values.size <= LONG
            if alike and tried < ARRAYS:
                tried += 1
                a, b = (block.values.reshape(-1).astype(float) for block in (one, other))
                error = _cells(one) + _cells(other) + 2 * _EPSILON * (np.abs(a) + np.abs(b))
                yield a - b, error, one.leaf.element
