"""Compares vectors with one entry per record to columns, by values, order, partition or scale: codes, one-hot
vectors, ranks, logarithms, hashes, sorted columns."""

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

SHORTEST = 8  #: Fewest records whose order or partition is informative
VECTORS = 4000  #: Most released vectors that are compared
#: A vector with fewer runs of equal entries than this fraction of its length is structured.
RUNS = 1 / 8
PERIOD = 16  #: Longest period of a cyclic assignment to arms or folds
_REMEDY = "it has an entry for each record; release counts or sums over many records, with noise"


@dataclass(frozen=True, eq=False)
class Vector:
    """A released vector with one entry per record; ``offset`` is its position in the flat block."""

    block: Block
    offset: int
    values: np.ndarray

    @cached_property
    def by_value(self) -> _GroupedColumn:
        """The vector with its groups of equal entries."""
        return _GroupedColumn(self.values)


def vectors_of(released: Released, records: int) -> list[Vector]:
    """Released vectors of the table's length."""
    vectors: list[Vector] = []
    for block in released.blocks if records >= SHORTEST else ():
        values = block.values
        if values.size == records:
            vectors.append(Vector(block, 0, values.reshape(-1).astype(float)))
        elif values.ndim == 2 and values.shape[0] == records:
            columns = values.T[:VECTORS].astype(float)
            vectors += [Vector(block, index, column) for index, column in enumerate(columns)]
        elif values.ndim == 2 and values.shape[1] == records:
            rows = values[:VECTORS].astype(float)
            vectors += [Vector(block, index * records, row) for index, row in enumerate(rows)]
    for path, text in released.texts if records >= SHORTEST else ():
        if text.count("\n") + 1 == records:  # a text per record, such as salted digests
            codes = np.unique(text.split("\n"), return_inverse=True)[1]
            vectors.append(Vector(Block(Leaf(path, codes), codes), 0, codes.astype(float)))
    return vectors[:VECTORS]


def best_vector(rule: str, vectors: list[Vector], table: RawTable) -> Evidence | None:
    """Evidence from the vector that matches a column most surprisingly by one rule."""
    names = [*table.names, *(text.name for text in table.texts if rule != SAME)]
    columns = [*table.numbers.T, *(table.codes.T if rule != SAME else ())]
    best, vector, name = 0.0, vectors[0], ""
    for column_name, column in zip(names, columns, strict=True):
        prepared = _GroupedColumn(column)
        if prepared.complete and (rule == SAME or not prepared.structured):
            for candidate in vectors:
                log_probability = RULES[rule](prepared, candidate)
                if log_probability < best:
                    best, vector, name = log_probability, candidate, column_name
    return Evidence(
        "columns",
        rule,
        -best - float(np.log(len(vectors) * len(columns))),
        partial(vector.block.leaf.element, vector.offset),
        partial(str, f"column {name!r}{table.whose}"),
        len(vector.values),
        remedy=_REMEDY,
        complexity=3,
    )


@dataclass(frozen=True, eq=False)
class _GroupedColumn:
    """A raw or released column and its groups of equal values."""

    values: np.ndarray

    @cached_property
    def complete(self) -> bool:
        """Whether every entry is a number."""
        return bool(np.isfinite(self.values).all())

    @cached_property
    def structured(self) -> bool:
        """Whether it matches many vectors anyway; see :func:`_is_structured`."""
        return _is_structured(self.values)

    @cached_property
    def log_probability(self) -> float:
        """Log-probability of the values in their order, each drawn from their empirical distribution."""
        unique = self.ordered[self.starts]
        spacing = step_of(unique) or float(np.spacing(np.float32(np.abs(unique).max())))
        density = densities(unique, np.arange(len(unique))) * spacing / len(unique)
        frequency = self.sizes / len(self.values)
        probability = np.where(self.sizes > 1, frequency, np.minimum(density, 1.0))
        return float(self.sizes @ np.log(probability))

    @cached_property
    def order(self) -> np.ndarray:
        """Positions that sort the values."""
        return np.argsort(self.values, kind="stable")

    @cached_property
    def ordered(self) -> np.ndarray:
        """Its values, ascending."""
        return np.asarray(self.values[self.order])

    @cached_property
    def starts(self) -> np.ndarray:
        """Start of each group in the sorted values."""
        return np.flatnonzero(np.r_[True, self.ordered[1:] != self.ordered[:-1]])

    @cached_property
    def sizes(self) -> np.ndarray:
        """Size of each group."""
        return np.diff(self.starts, append=len(self.values))

    @property
    def groups(self) -> np.ndarray:
        """Group of each sorted value."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


def _is_structured(values: np.ndarray) -> bool:
    """Whether a vector is sorted, has few runs, or is periodic, and so matches other vectors anyway."""
    steps = np.diff(values)
    if (steps >= 0).all() or (steps <= 0).all():
        return True
    if np.count_nonzero(steps) + 1 < max(4, len(values) * RUNS):
        return True
    head = values[: 4 * PERIOD]
    lags = (k for k in range(2, min(PERIOD, len(values) // 4) + 1) if (head[k:] == head[:-k]).all())
    return any((values[k:] == values[:-k]).all() for k in lags)


def _log_factorial(counts: np.ndarray) -> np.ndarray:
    """log(n!) of each count."""
    unique, inverse = np.unique(counts, return_inverse=True)
    return np.array([math.lgamma(count + 1) for count in unique.tolist()])[inverse]


def _log_arrangements(sizes: np.ndarray) -> float:
    """Log of the number of arrangements of groups of these sizes (multinomial coefficient)."""
    return float(_log_factorial(sizes.sum()) - _log_factorial(sizes).sum())


def _same_values(column: _GroupedColumn, vector: Vector) -> float:
    """Log-probability that entries are the column's values, in its order or in any other."""
    if not vector.by_value.complete:
        return 0.0
    entries, raw = vector.by_value.ordered, column.ordered
    if entries[0] != raw[0] or entries[-1] != raw[-1] or not np.array_equal(entries, raw):
        return 0.0
    in_order = not column.structured and np.array_equal(vector.values, column.values)
    return min(0.0, column.log_probability + (0.0 if in_order else _log_arrangements(column.sizes)))


def _same_order(column: _GroupedColumn, vector: Vector) -> float:
    """Log-probability that a vector has the column's order, ascending or descending; 0 if it does not."""
    if not vector.by_value.complete or vector.by_value.structured:
        return 0.0
    entries = vector.by_value  # the column is sorted only if the order matches
    raw = column.values[entries.order]
    low = np.minimum.reduceat(raw, entries.starts)
    high = np.maximum.reduceat(raw, entries.starts)
    if not ((high[:-1] <= low[1:]).all() or (low[:-1] >= high[1:]).all()):
        return 0.0
    # entries of equal raw values may have any order
    pairs = np.column_stack([column.groups, vector.values[column.order]])
    counts = np.unique(pairs, axis=0, return_counts=True)[1]
    log_free = float(_log_factorial(column.sizes).sum() - _log_factorial(counts).sum())
    return min(0.0, log_free - _log_arrangements(entries.sizes) + float(np.log(2)))


def _same_division(column: _GroupedColumn, vector: Vector) -> float:
    """Log-probability that a vector is constant on the column's groups and separates at least one of them."""
    if vector.by_value.structured or len(column.sizes) > len(vector.values) // 2:
        return 0.0
    by_value = np.nan_to_num(vector.values)[column.order]
    if not (by_value == by_value[column.starts][column.groups]).all():
        return 0.0
    _, entries = np.unique(by_value, return_inverse=True)
    pairs = np.unique(np.column_stack([column.groups, entries.ravel()]), axis=0)
    merged = np.bincount(pairs[:, 1], weights=column.sizes[pairs[:, 0]])
    coding = len(merged) * np.log(2 * max(2, len(column.sizes)))  # which groups were merged
    return float(coding - _log_arrangements(merged))


def _rescaled(column: _GroupedColumn, vector: Vector) -> float:
    """Log-probability that sorted entries are a times the sorted column plus b."""
    if len(vector.values) < 4 or not vector.by_value.complete:
        return 0.0
    raw, entries = column.values, np.sort(vector.values)
    varied = decimals_of(raw[raw != 0]) == NO_GRADE
    if varied.mean() < 0.5 or entries[-1] == entries[0]:
        return 0.0
    raw = raw[column.order]
    raw_unit = (raw - raw[0]) / (raw[-1] - raw[0])
    for signed in (entries, -entries[::-1]):
        unit = (signed - signed[0]) / (signed[-1] - signed[0])
        if np.abs(raw_unit - unit).max() < 1e-6:
            return float(-(len(entries) - 2) * np.log(1e3))
    return 0.0


def _permutation(column: _GroupedColumn, vector: Vector) -> float:
    """Log-probability that a vector lists the records (from 0 or 1) in the column's order.

    Records with equal values may have any order.
    """
    values, size = vector.values, len(vector.values)
    base = values.min() if vector.by_value.complete else -1
    if base not in (0, 1) or not np.array_equal(np.sort(values), np.arange(size) + base):
        return 0.0
    steps = np.diff(column.values[(values - base).astype(int)])
    if (steps >= 0).all() or (steps <= 0).all():
        return float(np.log(4)) - _log_arrangements(column.sizes)
    return 0.0


SAME = "the values of a column"
RULES: dict[str, Callable[[_GroupedColumn, Vector], float]] = {
    SAME: _same_values,
    "a vector in the order of a column": _same_order,
    "a vector that divides the records as a column does": _same_division,
    "a sorted column, scaled and shifted": _rescaled,
    "the records' order by a column": _permutation,
}
