"""Vectors with an entry for each record, which may order, divide or scale them as a column does:
codes, one-hot vectors, ranks, logarithms, hashes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from privfed.leaks.artefact import Block, Released
from privfed.leaks.evidence import Evidence
from privfed.leaks.precision import NO_GRADE, decimals_of
from privfed.leaks.table import RawTable

SHORTEST = 8  #: Shortest table whose order or division says something
VECTORS = 4000  #: Most released vectors that are compared
#: A vector with fewer runs of equal entries than this share of its length is structured by itself.
RUNS = 1 / 8
_MEND = "it has an entry for each record; release counts or sums over many records, with noise"


@dataclass(frozen=True, eq=False)
class Vector:
    """A released vector with an entry for each record; ``start`` is its place in the flat block."""

    block: Block
    start: int
    values: np.ndarray


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
    return found[:VECTORS]


def alike(rule: str, vectors: list[Vector], table: RawTable) -> Evidence | None:
    """The vector that follows a column by one rule, most surprisingly."""
    names = [*table.names, *(text.name for text in table.texts)]
    columns = [*table.numbers.T, *table.codes.T]
    best, vector, name = 0.0, vectors[0], ""
    for called, column in zip(names, columns, strict=True):
        prepared = _Prepared.of(column)
        if prepared is not None:
            for one in vectors:
                log = RULES[rule](prepared, one.values)
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
    """A raw column: positions in ascending order, and groups of equal values with their sizes."""

    values: np.ndarray
    order: np.ndarray
    codes: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, column: np.ndarray) -> _Prepared | None:
        """None for columns that are constant, incomplete, or structured by themselves."""
        if not np.isfinite(column).all() or _structured(column):
            return None
        _, codes, sizes = np.unique(column, return_inverse=True, return_counts=True)
        return cls(column, np.argsort(column, kind="stable"), codes.ravel(), sizes)


def _structured(values: np.ndarray) -> bool:
    """Whether a vector is sorted, or constant but for a few runs: it then fits others by itself."""
    steps = np.diff(values)
    if (steps >= 0).all() or (steps <= 0).all():
        return True
    return bool(np.count_nonzero(steps) + 1 < max(4, len(values) * RUNS))


def _log_factorial(counts: np.ndarray) -> np.ndarray:
    """log(n!) of each."""
    different, places = np.unique(counts, return_inverse=True)
    return np.array([math.lgamma(one + 1) for one in different.tolist()])[places]


def _log_ways(sizes: np.ndarray) -> float:
    """Logarithm of the number of arrangements of groups of these sizes."""
    return float(_log_factorial(sizes.sum()) - _log_factorial(sizes).sum())


def _ordered(column: _Prepared, vector: np.ndarray) -> float:
    """Log chance that a vector's order follows the column's, up or down; 0 where it does not."""
    if not np.isfinite(vector).all() or _structured(vector):
        return 0.0
    sorted_ = vector[column.order]
    best = 0.0
    for signed in (sorted_, -sorted_):
        # equal raw values leave the order among their entries open
        ends = np.cumsum(column.sizes)
        starts = ends - column.sizes
        low = np.minimum.reduceat(signed, starts)
        high = np.maximum.reduceat(signed, starts)
        if (high[:-1] <= low[1:]).all():
            groups = np.repeat(np.arange(len(column.sizes)), column.sizes)
            _, counts = np.unique(signed, return_counts=True)
            inside = np.unique(np.column_stack([groups, signed]), axis=0, return_counts=True)[1]
            free = float(_log_factorial(column.sizes).sum() - _log_factorial(inside).sum())
            best = min(best, free - _log_ways(counts) + np.log(2))
    return best


def _divided(column: _Prepared, vector: np.ndarray) -> float:
    """Log chance that a vector is constant on the column's groups and tells them, or one, apart."""
    if _structured(vector) or len(column.sizes) > len(vector) // 2:
        return 0.0
    _, entries = np.unique(np.nan_to_num(vector), return_inverse=True)
    pairs = np.unique(np.column_stack([column.codes, entries.ravel()]), axis=0)
    if len(pairs) != len(column.sizes):
        return 0.0
    merged = np.bincount(pairs[:, 1], weights=column.sizes[pairs[:, 0]])
    coding = len(merged) * np.log(2 * max(2, len(column.sizes)))  # which groups were merged
    return float(coding - _log_ways(merged))


def _stretched(column: _Prepared, vector: np.ndarray) -> float:
    """Log chance that sorted entries are a times the sorted column plus b."""
    if len(vector) < 4 or not np.isfinite(vector).all():
        return 0.0
    mine, theirs = column.values[column.order], np.sort(vector)
    varied = decimals_of(mine[mine != 0]) == NO_GRADE
    if varied.mean() < 0.5 or theirs[-1] == theirs[0]:
        return 0.0
    own = (mine - mine[0]) / (mine[-1] - mine[0])
    for signed in (theirs, -theirs[::-1]):
        other = (signed - signed[0]) / (signed[-1] - signed[0])
        if np.abs(own - other).max() < 1e-6:
            return float(-(len(vector) - 2) * np.log(1e3))
    return 0.0


def _permuted(column: _Prepared, vector: np.ndarray) -> float:
    """Log chance that a vector lists the records in the column's order, from 0 or from 1.

    Records with equal values may stand in any order among themselves.
    """
    size = len(vector)
    base = np.nanmin(vector) if np.isfinite(vector).all() else -1
    if base not in (0, 1) or not np.array_equal(np.sort(vector), np.arange(size) + base):
        return 0.0
    steps = np.diff(column.values[(vector - base).astype(int)])
    if (steps >= 0).all() or (steps <= 0).all():
        return float(np.log(4)) - _log_ways(column.sizes)
    return 0.0


RULES: dict[str, Callable[[_Prepared, np.ndarray], float]] = {
    "a vector in the order of a column": _ordered,
    "a vector that divides the records as a column does": _divided,
    "a sorted column, scaled and shifted": _stretched,
    "the records' order by a column": _permuted,
}
