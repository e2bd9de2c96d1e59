"""Vectors with an entry for each record, which may order, divide or scale them as a column does, or have its values:
codes, one-hot vectors, ranks, logarithms, hashes, sorted columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from privfed.leaks.artefact import Block, Released
from privfed.leaks.chance import densities
from privfed.leaks.evidence import Evidence
from privfed.leaks.precision import NO_GRADE, decimals_of
from privfed.leaks.reading.leaf import Leaf
from privfed.leaks.shape import step_of
from privfed.leaks.table import RawTable

SHORTEST = 8  #: Shortest table whose order or division says something
VECTORS = 4000  #: Most released vectors that are compared
#: A vector with fewer runs of equal entries than this share of its length is structured by itself.
RUNS = 1 / 8
PERIOD = 16  #: Longest period of arms and folds that records are assigned to in turn
_MEND = "it has an entry for each record; release counts or sums over many records, with noise"


@dataclass(frozen=True, eq=False)
class Vector:
    """A released vector with an entry for each record; ``start`` is its place in the flat block."""

    block: Block
    start: int
    values: np.ndarray

    @cached_property
    def by_value(self) -> _Prepared:
        """Its groups of equal entries."""
        return _Prepared(self.values)


def vectors_of(released: Released, records: int) -> list[Vector]:
    """Released vectors as long as the table."""
    found: list[Vector] = []
    for block in released.blocks if records >= SHORTEST else ():
        values = block.values
        if values.size == records:
            found.append(Vector(block, 0, values.reshape(-1).astype(float)))
        elif values.ndim == 2 and values.shape[0] == records:
            columns = values.T[:VECTORS].astype(float)
            found += [Vector(block, place, column) for place, column in enumerate(columns)]
        elif values.ndim == 2 and values.shape[1] == records:
            rows = values[:VECTORS].astype(float)
            found += [Vector(block, place * records, row) for place, row in enumerate(rows)]
    for path, text in released.texts if records >= SHORTEST else ():
        if text.count("\n") + 1 == records:  # a text for each record, as salted digests are
            codes = np.unique(text.split("\n"), return_inverse=True)[1]
            found.append(Vector(Block(Leaf(path, codes), codes), 0, codes.astype(float)))
    return found[:VECTORS]


def alike(rule: str, vectors: list[Vector], table: RawTable) -> Evidence | None:
    """The vector that follows a column by one rule, most surprisingly."""
    names = [*table.names, *(text.name for text in table.texts if rule != SAME)]
    columns = [*table.numbers.T, *(table.codes.T if rule != SAME else ())]
    best, vector, name = 0.0, vectors[0], ""
    for called, column in zip(names, columns, strict=True):
        prepared = _Prepared(column)
        if prepared.complete and (rule == SAME or not prepared.structured):
            for one in vectors:
                log = RULES[rule](prepared, one)
                if log < best:
                    best, vector, name = log, one, called
    return Evidence(
        "columns",
        rule,
        -best - float(np.log(len(vectors) * len(columns))),
        partial(vector.block.leaf.element, vector.start),
        partial(str, f"column {name!r}{table.whose}"),
        len(vector.values),
        mend=_MEND,
        plain=3,
    )


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A column, raw or released, and its groups of equal values."""

    values: np.ndarray

    @cached_property
    def complete(self) -> bool:
        """Whether every entry is a number."""
        return bool(np.isfinite(self.values).all())

    @cached_property
    def structured(self) -> bool:
        """Whether it is so by itself."""
        return _structured(self.values)

    @cached_property
    def log_chance(self) -> float:
        """Log chance of its values, in their order, if each were drawn from their distribution."""
        different = self.ordered[self.starts]
        cell = step_of(different) or float(np.spacing(np.float32(np.abs(different).max())))
        dense = densities(different, np.arange(len(different))) * cell / len(different)
        share = self.sizes / len(self.values)
        likely = np.where(self.sizes > 1, share, np.minimum(dense, 1.0))
        return float(self.sizes @ np.log(likely))

    @cached_property
    def order(self) -> np.ndarray:
        """Positions in ascending order."""
        return np.argsort(self.values, kind="stable")

    @cached_property
    def ordered(self) -> np.ndarray:
        """Its values, ascending."""
        return np.asarray(self.values[self.order])

    @cached_property
    def starts(self) -> np.ndarray:
        """Where in that order each group begins."""
        return np.flatnonzero(np.r_[True, self.ordered[1:] != self.ordered[:-1]])

    @cached_property
    def sizes(self) -> np.ndarray:
        """How many are in each."""
        return np.diff(self.starts, append=len(self.values))

    @property
    def groups(self) -> np.ndarray:
        """The group of each position in that order."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


def _structured(values: np.ndarray) -> bool:
    """Whether a vector is sorted, constant but for a few runs, or periodic: it then fits others by itself."""
    steps = np.diff(values)
    if (steps >= 0).all() or (steps <= 0).all():
        return True
    if np.count_nonzero(steps) + 1 < max(4, len(values) * RUNS):
        return True
    head = values[: 4 * PERIOD]
    turns = (
        at for at in range(2, min(PERIOD, len(values) // 4) + 1) if (head[at:] == head[:-at]).all()
    )
    return any((values[at:] == values[:-at]).all() for at in turns)


def _log_factorial(counts: np.ndarray) -> np.ndarray:
    """log(n!) of each."""
    different, places = np.unique(counts, return_inverse=True)
    return np.array([math.lgamma(one + 1) for one in different.tolist()])[places]


def _log_ways(sizes: np.ndarray) -> float:
    """Logarithm of the number of arrangements of groups of these sizes."""
    return float(_log_factorial(sizes.sum()) - _log_factorial(sizes).sum())


def _same(column: _Prepared, vector: Vector) -> float:
    """Log chance that entries are the column's values, in its order or in any other."""
    if not vector.by_value.complete:
        return 0.0
    mine, theirs = vector.by_value.ordered, column.ordered
    if mine[0] != theirs[0] or mine[-1] != theirs[-1] or not np.array_equal(mine, theirs):
        return 0.0
    placed = not column.structured and np.array_equal(vector.values, column.values)
    return min(0.0, column.log_chance + (0.0 if placed else _log_ways(column.sizes)))


def _ordered(column: _Prepared, vector: Vector) -> float:
    """Log chance that a vector's order follows the column's, up or down; 0 where it does not."""
    if not vector.by_value.complete or vector.by_value.structured:
        return 0.0
    mine = vector.by_value  # nothing is sorted of a column whose order is another
    theirs = column.values[mine.order]
    low = np.minimum.reduceat(theirs, mine.starts)
    high = np.maximum.reduceat(theirs, mine.starts)
    if not ((high[:-1] <= low[1:]).all() or (low[:-1] >= high[1:]).all()):
        return 0.0
    # equal raw values leave the order among their entries open
    both = np.column_stack([column.groups, vector.values[column.order]])
    inside = np.unique(both, axis=0, return_counts=True)[1]
    free = float(_log_factorial(column.sizes).sum() - _log_factorial(inside).sum())
    return min(0.0, free - _log_ways(mine.sizes) + float(np.log(2)))


def _divided(column: _Prepared, vector: Vector) -> float:
    """Log chance that a vector is constant on the column's groups and tells them, or one, apart."""
    if vector.by_value.structured or len(column.sizes) > len(vector.values) // 2:
        return 0.0
    known = np.nan_to_num(vector.values)[column.order]
    if not (known == known[column.starts][column.groups]).all():
        return 0.0
    _, entries = np.unique(known, return_inverse=True)
    pairs = np.unique(np.column_stack([column.groups, entries.ravel()]), axis=0)
    merged = np.bincount(pairs[:, 1], weights=column.sizes[pairs[:, 0]])
    coding = len(merged) * np.log(2 * max(2, len(column.sizes)))  # which groups were merged
    return float(coding - _log_ways(merged))


def _stretched(column: _Prepared, vector: Vector) -> float:
    """Log chance that sorted entries are a times the sorted column plus b."""
    if len(vector.values) < 4 or not vector.by_value.complete:
        return 0.0
    mine, theirs = column.values, np.sort(vector.values)
    varied = decimals_of(mine[mine != 0]) == NO_GRADE
    if varied.mean() < 0.5 or theirs[-1] == theirs[0]:
        return 0.0
    mine = mine[column.order]
    own = (mine - mine[0]) / (mine[-1] - mine[0])
    for signed in (theirs, -theirs[::-1]):
        other = (signed - signed[0]) / (signed[-1] - signed[0])
        if np.abs(own - other).max() < 1e-6:
            return float(-(len(theirs) - 2) * np.log(1e3))
    return 0.0


def _permuted(column: _Prepared, vector: Vector) -> float:
    """Log chance that a vector lists the records in the column's order, from 0 or from 1.

    Records with equal values may stand in any order among themselves.
    """
    values, size = vector.values, len(vector.values)
    base = values.min() if vector.by_value.complete else -1
    if base not in (0, 1) or not np.array_equal(np.sort(values), np.arange(size) + base):
        return 0.0
    steps = np.diff(column.values[(values - base).astype(int)])
    if (steps >= 0).all() or (steps <= 0).all():
        return float(np.log(4)) - _log_ways(column.sizes)
    return 0.0


SAME = "the values of a column"
RULES: dict[str, Callable[[_Prepared, Vector], float]] = {
    SAME: _same,
    "a vector in the order of a column": _ordered,
    "a vector that divides the records as a column does": _divided,
    "a sorted column, scaled and shifted": _stretched,
    "the records' order by a column": _permuted,
}
