"""Released numbers that give a raw value away together: by a sum, a difference, a product.

Two totals of which one lacks a record differ by that record; a deviation from a mean that left too
is the value itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice, starmap

import numpy as np

from privfed.leaks.artefact import Block, Released
from privfed.leaks.chance import densities, surprise
from privfed.leaks.evidence import Evidence
from privfed.leaks.precision import simplicity
from privfed.leaks.table import RawTable

#: Most numbers of a release of which all pairs are formed, and all triples.
PAIRS, TRIPLES = 300, 60
#: Most numbers of which neighbours are subtracted, of all arrays; most arrays, and pairs of arrays of one shape.
LONG, BLOCKS, ARRAYS = 5_000_000, 2000, 300
_EPSILON = float(np.finfo(float).eps)
_MEND = "released numbers can be combined; release each statistic once, with noise, over the same records"


@dataclass(frozen=True, eq=False)
class Results:
    """What one combination of released numbers gives: sizes, by how much rounding may have moved
    each, and what works out the path to the first number of a result."""

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
        after -= (after > 0) & (self.values - sizes[after - 1] <= sizes[after] - self.values)
        hit = np.flatnonzero(np.abs(sizes[after] - self.values) <= self.errors)
        if not len(hit):
            return None
        nearest, found, errors = after[hit], self.values[hit], self.errors[hit]
        width = np.maximum(2 * np.abs(sizes[nearest] - found), errors)
        chance = np.maximum(densities(sizes, nearest) * width, 1 / (1 + found / errors))
        near, place = np.unique(nearest, return_inverse=True)
        chance = np.minimum(np.maximum(chance, simplicity(sizes[near])[place]), 1.0)
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


def combinations_of(released: Released, records: int) -> Iterator[Results]:
    """Every combination that is looked at; of means of ``records`` and of one less too."""
    numbers = [
        (block, widths)
        for block, widths in zip(released.blocks, released.widths, strict=True)
        if block.values.dtype != bool and block.values.size
    ]
    few = sum(len(widths) for _, widths in numbers) <= PAIRS
    if few:
        yield from _of_few(numbers, records)
    small = sorted(
        (one for one in numbers[:BLOCKS] if len(one[1]) >= 2), key=lambda one: len(one[1])
    )
    most = int(np.cumsum([len(one[1]) for one in small]).searchsorted(LONG, side="right"))
    yield from _merged(
        "the difference of two neighbouring released numbers", starmap(_neighbours, small[:most])
    )
    if few:  # any two of which were subtracted and added
        return
    for sign, rule in ((-1, "difference to"), (1, "sum with")):
        yield from _merged(f"the {rule} an array of the same shape", _arrays(numbers, sign))


#: A block with the distance of neighbouring numbers at each of its own.
Numbers = tuple[Block, np.ndarray]
#: Results with the errors, and what says where each is.
Parts = tuple[np.ndarray, np.ndarray, Callable[[int], str]]


def _merged(rule: str, parts: Iterable[Parts]) -> Iterator[Results]:
    listed = list(parts)
    if listed:
        values, errors, locates = zip(*listed, strict=True)
        locate = _in_turn(list(map(len, values)), locates)
        yield Results.of(rule, np.concatenate(values), np.concatenate(errors), locate)


def _in_turn(sizes: Sequence[int], locates: Sequence[Callable[[int], str]]) -> Callable[[int], str]:
    """What says where each number of several arrays is, one array after the other."""
    ends = np.cumsum(sizes)

    def locate(at: int) -> str:
        part = int(np.searchsorted(ends, at, side="right"))
        return locates[part](at - int(ends[part]) + sizes[part])

    return locate


def _of_few(numbers: list[Numbers], records: int) -> Iterator[Results]:
    """Every difference and sum of two, differences of totals that means stand for, and triples."""
    values = np.concatenate([np.empty(0), *(block.values.reshape(-1) for block, _ in numbers)])
    widths = np.concatenate([np.empty(0), *(widths for _, widths in numbers)])
    sizes, locates = [len(one) for _, one in numbers], [block.leaf.element for block, _ in numbers]
    locate = _in_turn(sizes, locates)
    kept = np.flatnonzero(np.isfinite(values) & (np.abs(values) < 1e15))
    values, cells = values[kept].astype(float), widths[kept]
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
    # where either adds nothing, the other is all of it
    dull |= np.minimum(np.abs(product)[:, None], np.abs(values)) <= 2 * slack
    kept = np.flatnonzero(~dull.ravel())
    rule = "a released number times a second plus a third"
    width = len(values)
    return Results.of(
        rule,
        whole.ravel()[kept],
        slack.ravel()[kept],
        lambda at: locate(int(first[kept[at] // width])),
    )


def _neighbours(block: Block, widths: np.ndarray) -> Parts:
    """Differences of numbers that lie side by side along an axis, as in running totals."""
    values, shape = block.values.astype(float), block.values.shape
    sizes, widths = np.abs(values), widths.reshape(shape)
    differences, errors, places = [], [], []
    for axis in range(values.ndim):
        after, before = ((*(slice(None),) * axis, one) for one in (slice(1, None), slice(-1)))
        error = widths[after] + widths[before] + 2 * _EPSILON * (sizes[after] + sizes[before])
        differences.append((values[after] - values[before]).ravel())
        errors.append(error.ravel())
        places.append((axis, error.shape))

    def locate(at: int) -> str:
        for axis, kept in places:
            if at < (count := int(np.prod(kept))):
                where = np.array(np.unravel_index(at, kept)) + (np.arange(len(kept)) == axis)
                return block.leaf.element(int(np.ravel_multi_index(where, shape)))
            at -= count
        raise IndexError(at)

    return np.concatenate(differences), np.concatenate(errors), locate


def _arrays(numbers: list[Numbers], sign: int) -> Iterator[Parts]:
    """Differences of arrays of one shape, as a node and its branch or one round and the next; or sums, as
    predictions and what they missed."""
    pairs = (
        (one, other)
        for place, one in enumerate(numbers)
        for other in numbers[place + 1 : place + 5]
        if one[0].values.shape == other[0].values.shape and 1 < len(one[1]) <= LONG
    )
    for (one, width), (other, narrow) in islice(pairs, ARRAYS):
        a, b = (block.values.reshape(-1).astype(float) for block in (one, other))
        error = width + narrow + 2 * _EPSILON * (np.abs(a) + np.abs(b))
        yield a + sign * b, error, one.leaf.element
