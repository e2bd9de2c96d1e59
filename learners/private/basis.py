"""Basis functions of a private model: linear terms, bins of columns, leaves of random trees.

A record has one bin per column and one leaf per tree, so that sums over records are sums by cell.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from privfed.errors import QueryError
from privfed.learners.private.grid import MOST_CUTS, BinEdges
from privfed.tables.schema import Schema

MOST_SLOPE = 16  #: Maximum scale of a linear term
DEEPEST = 8  #: Maximum depth of trees, so that leaves fit a byte
#: Maximum functions and trees of one query, and maximum cells processed at once.
MOST_FUNCTIONS, MOST_TREES, BLOCK = 50_000, 1_000, 2**20


@dataclass(frozen=True, eq=False)
class Trees:
    """Completely random oblivious trees of one depth: all nodes of a level have the same split."""

    features: np.ndarray  #: the column of each level, int64, shape (trees, depth)
    cuts: np.ndarray  #: a level's right branch is ``code >= cut``, uint8, shape (trees, depth)
    scale: float  #: factor of a leaf's indicator

    @property
    def count(self) -> int:
        """Number of trees."""
        return int(self.features.shape[0])

    @property
    def leaves(self) -> int:
        """Number of leaves per tree."""
        return 1 << int(self.features.shape[1])

    def check(self, columns: int) -> None:
        """Raise QueryError for unknown columns, and depths, counts or scales out of range."""
        shape = self.features.shape
        if len(shape) != 2 or not 1 <= shape[1] <= DEEPEST or not 1 <= shape[0] <= MOST_TREES:
            raise QueryError("malformed", f"1 to {MOST_TREES} trees of depth 1 to {DEEPEST}")
        if (
            self.features.dtype.kind != "i"
            or self.cuts.dtype != np.uint8
            or self.cuts.shape != shape
        ):
            raise QueryError("malformed", "trees are whole numbers: a column and a cut a level")
        if not ((self.features >= 0) & (self.features < columns)).all():
            raise QueryError("malformed", "a tree names an unknown column")
        if not 0 < self.scale <= 1:
            raise QueryError("malformed", "a tree's scale must lie between 0 and 1")

    def leaf_indices(self, codes: np.ndarray) -> np.ndarray:
        """Return each record's leaf in each tree, uint8; ``codes`` has shape (columns, records)."""
        leaf = np.zeros((self.count, codes.shape[1]), np.uint8)
        for level in range(self.features.shape[1]):
            right = codes[self.features[:, level]] >= self.cuts[:, level, None]
            leaf |= right.view(np.uint8) << level
        return leaf


@dataclass(frozen=True, eq=False)
class BasisIndices:
    """Nonzero basis functions of a block of records."""

    index: np.ndarray  #: of each group's indicator, shape (groups, records)
    lines: np.ndarray  #: the linear terms, shape (columns, records)
    shortening: np.ndarray  #: c of :class:`Basis`, shape (records,)


@dataclass(frozen=True, eq=False)
class Basis:
    """Basis functions phi of a record.

    In order: for each column a linear term ``linear[j] * values[j, code]``, for each column and bin an indicator times
    ``binned[j]``, for each tree and leaf an indicator times the tree's scale. In sums a record has weight c = 1 /
    max(1, |phi|), so that the squares of c phi sum to at most :attr:`squares`.
    """

    grid: BinEdges  #: shared thresholds
    values: np.ndarray  #: the linear term of each code, in [-1, 1], shape (columns, codes)
    bins: np.ndarray  #: the bin of each code, uint8, shape (columns, codes)
    linear: np.ndarray  #: scale of each column's linear term, shape (columns,)
    binned: np.ndarray  #: scale of each column's bins, shape (columns,)
    trees: tuple[Trees, ...]  #: random trees, by depth

    def check(self, schema: Schema) -> None:
        """Raise QueryError unless all public values fit the schema, before any record is read."""
        columns = len(schema.features)
        self.grid.check(schema, columns)
        shape = (columns, int(self.grid.sizes.max()))
        if self.values.shape != shape or self.values.dtype.kind != "f":
            raise QueryError("malformed", "linear terms need a value for every code")
        if self.bins.shape != shape or self.bins.dtype != np.uint8:
            raise QueryError("malformed", "every code needs a bin")
        if not (np.abs(self.values) <= 1).all() or self.bins.max() > MOST_CUTS:
            raise QueryError("malformed", "linear terms lie between -1 and 1, bins from 0 to 250")
        for scales, limit in ((self.linear, MOST_SLOPE), (self.binned, 1)):
            if scales.shape != (columns,) or scales.dtype.kind != "f":
                raise QueryError("malformed", "every column needs its scales")
            if not ((scales >= 0) & (scales <= limit)).all():
                raise QueryError("malformed", f"scales must lie between 0 and {limit}")
        for trees in self.trees:
            trees.check(columns)
        if self.size > MOST_FUNCTIONS:
            raise QueryError("malformed", f"at most {MOST_FUNCTIONS} functions can be asked about")

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.linear)

    @cached_property
    def widths(self) -> np.ndarray:
        """Number of indicators of each group: columns' bins, then trees' leaves."""
        bins = self.bins.max(axis=1).astype(np.int64) + 1
        return np.asarray(np.concatenate([bins, *(np.full(t.count, t.leaves) for t in self.trees)]))

    @cached_property
    def starts(self) -> np.ndarray:
        """Index of each group's first indicator among all functions."""
        return np.asarray(self.columns + np.concatenate([[0], np.cumsum(self.widths)[:-1]]))

    @cached_property
    def scales(self) -> np.ndarray:
        """Factor of each group's indicators."""
        return np.concatenate([self.binned, *(np.full(t.count, t.scale) for t in self.trees)])

    @property
    def multipliers(self) -> np.ndarray:
        """Factor of every function, shape (functions,)."""
        return np.concatenate([self.linear, np.repeat(self.scales, self.widths)])

    @property
    def groups(self) -> tuple[slice, ...]:
        """Functions by kind: linear terms, bins, and the leaves of trees of each depth."""
        bins = int(self.widths[: self.columns].sum())
        ends = np.cumsum([self.columns, bins, *(t.count * t.leaves for t in self.trees)])
        return tuple(slice(int(a), int(b)) for a, b in pairwise([0, *ends]))

    @property
    def one(self) -> np.ndarray:
        """Weights of the constant function 1: divided evenly among the groups."""
        weights = self.scales / max(float((self.scales**2).sum()), 1e-12)
        return np.concatenate([np.zeros(self.columns), np.repeat(weights, self.widths)])

    @property
    def size(self) -> int:
        """Number of functions L."""
        return self.columns + int(self.widths.sum())

    @property
    def squares(self) -> float:
        """Bound on c^2 |phi|^2: one, or less if |values| <= 1 and one indicator per group imply less."""
        return min(1.0, float((self.linear**2).sum() + (self.scales**2).sum()))

    @property
    def absolutes(self) -> float:
        """Bound on the sum of |c phi|, at most the root of the number of nonzero ones (Cauchy-Schwarz)."""
        bound = math.sqrt(self.squares * (self.columns + len(self.scales)))
        return min(bound, float(self.linear.sum() + self.scales.sum()))

    def blocks(self, records: int) -> Iterator[slice]:
        """Yield slices of records for bounded memory."""
        rows = max(1, BLOCK // (len(self.widths) + self.columns))
        return (slice(k, min(k + rows, records)) for k in range(0, records, rows))

    def cells(self, codes: np.ndarray) -> BasisIndices:
        """Return indices and linear terms of a block; ``codes`` has shape (columns, records)."""
        columns = np.arange(self.columns)[:, None]
        leaves = [trees.leaf_indices(codes) for trees in self.trees]
        indices = np.concatenate([self.bins[columns, codes], *leaves])
        lines = self.values[columns, codes] * self.linear[:, None]
        squares = np.full(codes.shape[1], float((self.scales**2).sum()))
        for line in lines:  # in the same order for any other records
            squares += line**2
        shortening = 1 / np.sqrt(np.maximum(squares, 1))
        return BasisIndices(indices + self.starts[:, None], lines, shortening)

    def by_column(self, codes: np.ndarray, column: int, weights: np.ndarray) -> np.ndarray:
        """Return weighted sums of a block's functions of one column, shape (records, outputs)."""
        indices, groups = [self.bins[column, codes[column]][None]], [np.array([column])]
        begin = self.columns
        for trees in self.trees:
            chosen = np.flatnonzero((trees.features == column).any(axis=1))
            subset = replace(trees, features=trees.features[chosen], cuts=trees.cuts[chosen])
            indices.append(subset.leaf_indices(codes))
            groups.append(begin + chosen)
            begin += trees.count
        total = np.multiply.outer(
            self.values[column, codes[column]] * self.linear[column], weights[column]
        )
        for group, index in zip(np.concatenate(groups), np.concatenate(indices), strict=True):
            total += self.scales[group] * weights[self.starts[group] + index]
        return np.asarray(total)

    def scores(self, cells: BasisIndices, weights: np.ndarray) -> np.ndarray:
        """Return weighted sums of a block's functions, shape (records, outputs), independent between records.

        Functions are added in the same order for every table: in a matrix product, the rounding of a record's sum could
        depend on other records.
        """
        total = np.zeros((cells.index.shape[1], weights.shape[1]))
        for output in range(weights.shape[1]):
            w = weights[:, output].copy()
            w[self.columns :] *= np.repeat(self.scales, self.widths)
            sums = total[:, output]
            for j, line in enumerate(cells.lines):
                sums += line * w[j]
            for index in cells.index:
                sums += w[index]
        return total

    def sums(self, cells: BasisIndices, factors: np.ndarray, unit: float) -> np.ndarray:
        """Return sums over a block's records of c phi times factors, in integer units, shape (functions, outputs).

        Each record's contribution to each function is truncated towards zero before it is added.
        """
        indices = cells.index.ravel()
        total = np.empty((self.size, factors.shape[1]))
        for output in range(factors.shape[1]):
            units = factors[:, output] * cells.shortening / unit
            terms = np.trunc(np.multiply.outer(self.scales, units))
            total[:, output] = np.bincount(indices, terms.ravel(), minlength=self.size)
            total[: self.columns, output] = np.trunc(cells.lines * units).sum(axis=1)
        return total

    def each(self, cells: BasisIndices, factors: np.ndarray, unit: float) -> np.ndarray:
        """Return the terms of :meth:`sums` by record, shape (records, functions, outputs)."""
        records, outputs = factors.shape
        terms = np.zeros((records, self.size, outputs))
        for output in range(outputs):
            units = factors[:, output] * cells.shortening / unit
            out = terms[:, :, output]
            out[np.arange(records), cells.index] = np.trunc(np.multiply.outer(self.scales, units))
            out[:, : self.columns] = np.trunc(cells.lines * units).T
        return terms

    def matrix(self, codes: np.ndarray) -> np.ndarray:
        """Return all functions of synthetic records, float32, shape (records, functions)."""
        records, cells = codes.shape[1], self.cells(codes)
        dense = np.zeros((records, self.size), np.float32)
        dense[np.arange(records), cells.index] = self.scales[:, None]
        dense[:, : self.columns] = cells.lines.T
        return dense
