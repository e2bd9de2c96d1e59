"""Combinations of released numbers that equal a raw value: sums, differences, products.

Two totals over records that differ by one record differ by its value; a deviation plus the released
mean is the value.
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
#: Most numbers of all arrays whose neighbours are subtracted; most arrays, and most pairs of arrays of one shape.
LONG, BLOCKS, ARRAYS = 5_000_000, 2000, 300
_EPSILON = float(np.finfo(float).eps)
_REMEDY = "released numbers can be combined; release each statistic once, with noise, over the same records"


@dataclass(frozen=True, eq=False)
class Results:
    """Results of one combination of released numbers: absolute values, rounding error bounds, and a
    function from a result's index to the path of its first number."""

    rule: str
    values: np.ndarray
    errors: np.ndarray
    locate: Callable[[int], str]

    @classmethod
    def of(
        cls, rule: str, results: np.ndarray, errors: np.ndarray, locate: Callable[[int], str]
    ) -> Results:
        """Build results, dropping those not larger than four times their rounding error."""
        sizes = np.abs(results)
        kept = np.flatnonzero(np.isfinite(sizes) & (sizes > 4 * errors))
        return cls(rule, sizes[kept], errors[kept], lambda index: locate(int(kept[index])))

    @cached_property
    def n_distinct(self) -> int:
        """Number of distinct results."""
        return len(np.unique(self.values))

    def score(self, table: RawTable) -> Evidence | None:
        """Compare the results with a table's identifying cells."""
        sizes = table.cells.sizes
        if not len(sizes) or not len(self.values):
            return None
        index = np.minimum(np.searchsorted(sizes, self.values), len(sizes) - 1)
        index -= (index > 0) & (self.values - sizes[index - 1] <= sizes[index] - self.values)
        hits = np.flatnonzero(np.abs(sizes[index] - self.values) <= self.errors)
        if not len(hits):
            return None
        nearest, values, errors = index[hits], self.values[hits], self.errors[hits]
        width = np.maximum(2 * np.abs(sizes[nearest] - values), errors)
        probability = np.maximum(densities(sizes, nearest) * width, 1 / (1 + values / errors))
        cells, inverse = np.unique(nearest, return_inverse=True)
        probability = np.minimum(np.maximum(probability, simplicity(sizes[cells])[inverse]), 1.0)
        _, first = np.unique(values, return_index=True)  # equal results are not independent
        nats = surprise(probability[first], self.n_distinct)
        best = int(np.argmin(probability))
        cell = int(table.cells.first[nearest[best]])
        return Evidence(
            "combinations",
            f"a raw value, as {self.rule}",
            nats,
            partial(self.locate, int(hits[best])),
            partial(table.where, cell),
            len(hits),
            value=partial(table.shown, cell),
            remedy=_REMEDY,
            complexity=5,
        )


def combinations_of(released: Released, records: int) -> Iterator[Results]:
    """Yield the results of every combination tried, also of means over ``records`` and one record fewer."""
    numbers = [
        (block, widths)
        for block, widths in zip(released.blocks, released.widths, strict=True)
        if block.values.dtype != bool and block.values.size
    ]
    all_pairs = sum(len(widths) for _, widths in numbers) <= PAIRS
    if all_pairs:
        yield from _pairs_and_triples(numbers, records)
    arrays = sorted(
        (pair for pair in numbers[:BLOCKS] if len(pair[1]) >= 2), key=lambda pair: len(pair[1])
    )
    n = int(np.cumsum([len(pair[1]) for pair in arrays]).searchsorted(LONG, side="right"))
    yield from _merge(
        "the difference of two neighbouring released numbers", starmap(_neighbours, arrays[:n])
    )
    if all_pairs:  # sums and differences of arrays are then covered
        return
    for sign, rule in ((-1, "difference to"), (1, "sum with")):
        yield from _merge(f"the {rule} an array of the same shape", _arrays(numbers, sign))


#: A block and, for each of its numbers, the distance to the next number at its precision.
Numbers = tuple[Block, np.ndarray]
#: Results, their error bounds, and a function from a result's index to its path.
Parts = tuple[np.ndarray, np.ndarray, Callable[[int], str]]


def _merge(rule: str, parts: Iterable[Parts]) -> Iterator[Results]:
    arrays = list(parts)
    if arrays:
        values, errors, locates = zip(*arrays, strict=True)
        locate = _locator(list(map(len, values)), locates)
        yield Results.of(rule, np.concatenate(values), np.concatenate(errors), locate)


def _locator(sizes: Sequence[int], locates: Sequence[Callable[[int], str]]) -> Callable[[int], str]:
    """Return a function from an index into the concatenated arrays to the number's path."""
    ends = np.cumsum(sizes)

    def locate(index: int) -> str:
        part = int(np.searchsorted(ends, index, side="right"))
        return locates[part](index - int(ends[part]) + sizes[part])

    return locate


def _pairs_and_triples(numbers: list[Numbers], records: int) -> Iterator[Results]:
    """Yield all pairwise differences and sums, differences of totals implied by means, and triples."""
    values = np.concatenate([np.empty(0), *(block.values.reshape(-1) for block, _ in numbers)])
    widths = np.concatenate([np.empty(0), *(widths for _, widths in numbers)])
    sizes, locates = [len(w) for _, w in numbers], [block.leaf.element for block, _ in numbers]
    locate = _locator(sizes, locates)
    kept = np.flatnonzero(np.isfinite(values) & (np.abs(values) < 1e15))
    values, spacings = values[kept].astype(float), widths[kept]
    first, second = np.triu_indices(len(values), 1)
    a, b = values[first], values[second]
    error = spacings[first] + spacings[second] + 2 * _EPSILON * (np.abs(a) + np.abs(b))
    usable = np.minimum(np.abs(a), np.abs(b)) > 2 * error  # else the sum equals one of the two
    a, b, error, origin = a[usable], b[usable], error[usable], kept[first[usable]]

    def locate_pair(index: int) -> str:
        return locate(int(origin[index]))

    yield Results.of("the difference of two released numbers", a - b, error, locate_pair)
    yield Results.of("the sum of two released numbers", a + b, error, locate_pair)
    for count in (records, records + 1) if records > 1 else ():
        rule = f"the difference of two totals, from means of {count} and {count - 1} records"
        for x, y in ((a, b), (b, a)):
            yield Results.of(rule, count * x - (count - 1) * y, count * error, locate_pair)
    if 3 <= len(values) <= TRIPLES:
        yield _triples(values, spacings, lambda index: locate(int(kept[index])))


def _triples(values: np.ndarray, spacings: np.ndarray, locate: Callable[[int], str]) -> Results:
    """Products of two released numbers plus a third: undoes a scaling and shift that were released."""
    first, second = np.triu_indices(len(values), 1)
    product = values[first] * values[second]
    error = np.abs(values[first]) * spacings[second] + np.abs(values[second]) * spacings[first]
    total = product[:, None] + values[None, :]
    slack = error[:, None] + spacings[None, :] + 4 * _EPSILON * np.abs(product)[:, None]
    simple = simplicity(np.abs(values)) > 0.05
    skip = (simple[first] | simple[second])[:, None] | simple[None, :]
    skip |= (first[:, None] == np.arange(len(values))) | (second[:, None] == np.arange(len(values)))
    # a negligible term leaves the other one alone
    skip |= np.minimum(np.abs(product)[:, None], np.abs(values)) <= 2 * slack
    kept = np.flatnonzero(~skip.ravel())
    rule = "a released number times a second plus a third"
    width = len(values)
    return Results.of(
        rule,
        total.ravel()[kept],
        slack.ravel()[kept],
        lambda index: locate(int(first[kept[index] // width])),
    )


def _neighbours(block: Block, widths: np.ndarray) -> Parts:
    """Differences of neighbouring numbers along each axis, as for cumulative sums."""
    values, shape = block.values.astype(float), block.values.shape
    sizes, widths = np.abs(values), widths.reshape(shape)
    differences, errors, all_dims = [], [], []
    for axis in range(values.ndim):
        after, before = ((*(slice(None),) * axis, part) for part in (slice(1, None), slice(-1)))
        error = widths[after] + widths[before] + 2 * _EPSILON * (sizes[after] + sizes[before])
        differences.append((values[after] - values[before]).ravel())
        errors.append(error.ravel())
        all_dims.append((axis, error.shape))

    def locate(index: int) -> str:
        for axis, dims in all_dims:
            if index < (count := int(np.prod(dims))):
                second = np.array(np.unravel_index(index, dims)) + (np.arange(len(dims)) == axis)
                return block.leaf.element(int(np.ravel_multi_index(second, shape)))
            index -= count
        raise IndexError(index)

    return np.concatenate(differences), np.concatenate(errors), locate


def _arrays(numbers: list[Numbers], sign: int) -> Iterator[Parts]:
    """Yield differences of arrays of one shape (a node and its child, consecutive rounds), or sums (predictions
    plus residuals)."""
    pairs = (
        (first, second)
        for index, first in enumerate(numbers)
        for second in numbers[index + 1 : index + 5]
        if first[0].values.shape == second[0].values.shape and 1 < len(first[1]) <= LONG
    )
    for (first, widths), (second, other_widths) in islice(pairs, ARRAYS):
        a, b = (block.values.reshape(-1).astype(float) for block in (first, second))
        error = widths + other_widths + 2 * _EPSILON * (np.abs(a) + np.abs(b))
        yield a + sign * b, error, first.leaf.element
