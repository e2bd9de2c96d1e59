"""Vectors as long as the table: they may order, divide or scale the records as a column does.

Such a vector has an entry for each record, and each entry is a function of one record alone, however
it was encoded: codes, one-hot vectors, ranks, logarithms, hashes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import gammaln

from privfed.testing.rules.match import Match
from privfed.testing.rules.precision import NO_GRADE, decimals_of
from privfed.testing.rules.released import Block, Released
from privfed.testing.rules.table import RawTable

#: Shortest table whose order or division says something.
SHORTEST = 8
#: Most released vectors that are compared.
VECTORS = 4000
#: A vector with fewer runs of equal entries than this share of its length is structured by itself.
RUNS = 1 / 8
_MEND = "it has an entry for each record; release counts or sums over many records, with noise"


@dataclass(frozen=True)
class Vector:
    """A released vector with an entry for each record.

    Args:
        block: where it was.
        start: position of its first entry in the flattened block.
        values: the entries.
    """

    block: Block
    start: int
    values: np.ndarray


def columns_in(table: RawTable, released: Released) -> Iterator[Match | None]:
    """All rules about columns, a match or none for each test."""
    if table.records < SHORTEST:
        return
    vectors = list(_vectors(released, table.records))[:VECTORS]
    columns = [*zip(table.names, table.numbers.T, strict=True)]
    columns += [*zip(table.code_names, table.codes.T, strict=True)]
    if not vectors:
        return
    looks = len(vectors) * len(columns)
    for rule, judge in RULES.items():
        best: tuple[float, Vector, str] = (0.0, vectors[0], "")
        for name, column in columns:
            prepared = _Prepared.of(column)
            if prepared is None:
                continue
            for vector in vectors:
                log = judge(prepared, vector.values)
                if log < best[0]:
                    best = (log, vector, name)
        chance = min(1.0, float(np.exp(best[0] + np.log(looks))))
        yield _match(rule, table, best[1], best[2], chance) if chance < 0.05 else None


def _match(rule: str, table: RawTable, vector: Vector, name: str, chance: float) -> Match:
    whose = f" of {table.owner}" if table.owner else ""
    locate = partial(vector.block.leaf.element, vector.start)
    return Match(rule, locate, f"column {name!r}{whose}", chance, len(vector.values), mend=_MEND)


def _vectors(released: Released, records: int) -> Iterator[Vector]:
    for block in released.blocks:
        values = block.values
        if values.size % records or values.size < records:
            continue
        if values.size == records:
            yield Vector(block, 0, values.reshape(-1).astype(float))
        elif values.ndim == 2 and values.shape[0] == records:
            for place, column in enumerate(values.T[:VECTORS]):
                yield Vector(block, place, column.astype(float))
        elif values.ndim == 2 and values.shape[1] == records:
            for place, row in enumerate(values[:VECTORS]):
                yield Vector(block, place * records, row.astype(float))


@dataclass(frozen=True)
class _Prepared:
    """A raw column, sorted once.

    Args:
        values: its values.
        order: positions of its values, ascending.
        codes: the group of equal values that each belongs to, by size.
        sizes: how large each group is.
    """

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


def _log_ways(sizes: np.ndarray) -> float:
    """Logarithm of the number of arrangements of groups of these sizes."""
    return float(gammaln(sizes.sum() + 1) - gammaln(sizes + 1.0).sum())


def _ordered(column: _Prepared, vector: np.ndarray) -> float:
    """Log chance that a vector's order follows the column's, up or down; 0 where it does not."""
    if not np.isfinite(vector).all() or _structured(vector):
        return 0.0
    sorted_ = vector[column.order]
    best = 0.0
    for signed in (sorted_, -sorted_):
        # equal raw values leave the order among their entries open
        groups = np.repeat(np.arange(len(column.sizes)), column.sizes)
        ends = np.cumsum(column.sizes)
        starts = ends - column.sizes
        low = np.minimum.reduceat(signed, starts)
        high = np.maximum.reduceat(signed, starts)
        if (high[:-1] <= low[1:]).all():
            _, counts = np.unique(signed, return_counts=True)
            inside = np.unique(np.column_stack([groups, signed]), axis=0, return_counts=True)[1]
            free = float(gammaln(column.sizes + 1.0).sum() - gammaln(inside + 1.0).sum())
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
    """Log chance that a vector lists the records in the column's order, from 0 or from 1."""
    if len(column.sizes) < len(vector):
        return 0.0
    for base in (0, 1):
        if np.array_equal(vector - base, column.order) or np.array_equal(
            vector - base, column.order[::-1]
        ):
            return float(np.log(4) - gammaln(len(vector) + 1))
    return 0.0


RULES = {
    "a vector in the order of a column": _ordered,
    "a vector that divides the records as a column does": _divided,
    "a sorted column, scaled and shifted": _stretched,
    "the records' order by a column": _permuted,
}
