"""Binary trees as arrays, roots first; children after parents, each right child next to the left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from privfed.errors import QueryError
from privfed.tables.schema import Schema

#: Special features: no split, or all of this client's records go one way.
LEAF, ALL_LEFT, ALL_RIGHT = -1, -2, -3
#: Maximum trees and nodes of one query, and maximum splits on a path.
MOST_TREES, MOST_NODES, MOST_DEPTH = 10_000, 8_000_000, 60


@dataclass(frozen=True, eq=False)
class BinaryTrees:
    """The trees of one forest.

    A record goes left if its value is at most the cut, or its category (its client) is in the subset. Values and cuts
    are compared as 32-bit floats.
    """

    roots: int  #: number of trees; tree t has root t
    #: each node's split feature, shape (nodes,); :data:`LEAF` for none, the number of features for
    #: the client, :data:`ALL_LEFT` and :data:`ALL_RIGHT` if decided for one client
    feature: np.ndarray
    cut: np.ndarray  #: shape (nodes,); zero if there is none
    #: number of the left child, shape (nodes,); zero for leaves. The right one is the next
    left: np.ndarray
    subset: np.ndarray  #: row of ``subsets`` that goes left, shape (nodes,); -1 for a cut
    subsets: np.ndarray  #: categories or clients, shape (rows, width)

    def __len__(self) -> int:
        return len(self.feature)

    @classmethod
    def stumps(cls, roots: int) -> BinaryTrees:
        """Return trees without splits."""
        none = np.zeros(roots, np.int32)
        return cls(roots, none - 1, none.astype(np.float32), none, none - 1, np.zeros((0, 1), bool))

    # --- traversal --------------------------------------------------------------------------

    def descend(self, nodes: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Descend from the nodes ``at`` to leaves.

        Args:
            at: node of each instance, shape (instances,).
            rows: record of each instance, shape (instances,).
            columns: values, shape (features, records), 32-bit floats.
        """
        moving = np.flatnonzero(self.inner.take(nodes))
        if not len(moving):
            return nodes
        nodes, current = nodes.copy(), nodes.take(moving).astype(np.intp)
        current_rows = rows.take(moving).astype(np.intp)
        while len(current):
            current = self.left.take(current) + self.goes_right(current, current_rows, columns)
            nodes[moving] = current
            further = np.flatnonzero(self.inner.take(current))
            moving, current, current_rows = moving[further], current[further], current_rows[further]
        return nodes

    def goes_right(
        self,
        nodes: np.ndarray,
        rows: np.ndarray,
        columns: np.ndarray,
        counts: np.ndarray | None = None,
    ) -> np.ndarray:
        """Whether each instance goes right at its (inner) node, shape (instances,).

        Args:
            nodes: the nodes, shape (nodes,).
            rows: record of each instance, grouped by node, shape (instances,).
            columns: values, shape (features, records), 32-bit floats.
            counts: number of instances of each node, shape (nodes,); default one each.
        """

        def repeat(array: np.ndarray) -> np.ndarray:
            return array if counts is None else np.repeat(array, counts)

        feature = self.feature.take(nodes)
        begin = np.maximum(feature, 0).astype(np.intp) * columns.shape[1]
        index = repeat(begin)
        index += rows
        values = columns.take(index)
        right: np.ndarray = values > repeat(self.cut.take(nodes))
        chosen = self.subset.take(nodes)
        by_set = np.flatnonzero(chosen >= 0)
        if len(by_set):
            by_subset = (
                slice(None) if len(by_set) == len(nodes) else np.flatnonzero(repeat(chosen >= 0))
            )
            begin = chosen[by_set].astype(np.intp) * self.subsets.shape[1]
            begin = begin if counts is None else np.repeat(begin, counts[by_set])
            right[by_subset] = ~self.subsets.take(begin + values[by_subset].astype(np.intp))
        if feature.min(initial=0) <= ALL_LEFT:
            right[repeat(feature == ALL_LEFT)] = False
            right[repeat(feature == ALL_RIGHT)] = True
        return right

    # --- for one client ------------------------------------------------------------------------

    def seen_by(self, client: int, features: int) -> BinaryTrees:
        """Return the trees with every split on the client decided for one client."""
        by_client = np.flatnonzero(self.feature == features)
        if not len(by_client):
            return self
        feature = self.feature.copy()
        left = self.subsets[self.subset[by_client], client]
        feature[by_client] = np.where(left, ALL_LEFT, ALL_RIGHT)
        subset = self.subset.copy()
        subset[by_client] = -1
        return replace(self, feature=feature, subset=subset)

    def only(self, kept: np.ndarray) -> tuple[BinaryTrees, np.ndarray]:
        """Return some of the trees (a mask over the roots), and their nodes' indices here."""
        if kept.all():
            return self, np.arange(len(self))
        nodes = np.flatnonzero(kept[self.tree_of])
        number = np.zeros(len(self), np.int64)
        number[nodes] = np.arange(len(nodes))
        inner = self.feature[nodes] != LEAF
        left = np.where(inner, number[self.left[nodes]], 0).astype(self.left.dtype)
        parts = (self.feature[nodes], self.cut[nodes], left, self.subset[nodes])
        return BinaryTrees(int(kept.sum()), *parts, self.subsets), nodes

    # --- derived arrays ----------------------------------------------------------

    @cached_property
    def inner(self) -> np.ndarray:
        """Which nodes split, shape (nodes,)."""
        return np.asarray(self.feature != LEAF)

    def parents(self) -> np.ndarray:
        """The node above each node, shape (nodes,); roots are their own."""
        parents = np.arange(len(self))
        inner = np.flatnonzero(self.feature != LEAF)
        parents[self.left[inner]] = inner
        parents[self.left[inner] + 1] = inner
        return parents

    @cached_property
    def tree_of(self) -> np.ndarray:
        """The tree of each node, shape (nodes,)."""
        ancestors = self.parents()
        while (ancestors[ancestors] != ancestors).any():
            ancestors = ancestors[ancestors]
        return ancestors

    def depth(self) -> np.ndarray:
        """Splits above each node, shape (nodes,)."""
        ancestors = self.parents()
        steps: np.ndarray = (ancestors != np.arange(len(self))).astype(np.int64)
        while (ancestors[ancestors] != ancestors).any():
            steps += steps[ancestors]
            ancestors = ancestors[ancestors]
        return steps

    # --- validation -------------------------------------------------------------------------

    def check(self, schema: Schema) -> None:
        """Check that the arrays are trees over the schema's features, before a record is read.

        Raises:
            QueryError: ``malformed`` for wrong shapes or types, unknown features, cuts that are
                not numbers and excessive sizes; ``false-partition`` if a node has no parent or
                several, so that nodes would overlap.
        """
        self._check_arrays()
        self._check_splits(schema)
        self._check_shape()

    def _check_arrays(self) -> None:
        nodes = len(self.feature) if self.feature.ndim == 1 else -1
        arrays = (self.feature, self.left, self.subset)
        valid = all(array.shape == (nodes,) and array.dtype.kind == "i" for array in arrays)
        if not valid or self.cut.shape != (nodes,) or self.cut.dtype.kind != "f":
            raise QueryError("malformed", "trees need a feature, cut, child and subset a node")
        if not (1 <= self.roots <= MOST_TREES and self.roots <= nodes <= MOST_NODES):
            raise QueryError(
                "malformed", f"at most {MOST_TREES} trees and {MOST_NODES} nodes can be asked about"
            )
        if self.subsets.ndim != 2 or self.subsets.dtype != bool:
            raise QueryError("malformed", "subsets are rows of bits")

    def _check_splits(self, schema: Schema) -> None:
        features = len(schema.features)
        if self.feature.min() < ALL_RIGHT or self.feature.max() >= features:
            raise QueryError("malformed", "a node splits on an unknown feature")
        if not np.isfinite(self.cut).all():
            raise QueryError("malformed", "a cut must be a finite number")
        sizes = category_sizes(schema)
        grouped = (self.feature >= 0) & (sizes[np.maximum(self.feature, 0)] > 0)
        if not np.array_equal(grouped, self.subset >= 0):
            raise QueryError("malformed", "categories are split by subsets, numbers by cuts")
        if grouped.any() and (
            self.subset.max() >= len(self.subsets)
            or sizes[self.feature[grouped]].max() > self.subsets.shape[1]
        ):
            raise QueryError("malformed", "a subset must say of every category where it goes")

    def _check_shape(self) -> None:
        inner = np.flatnonzero(self.feature != LEAF)
        left = self.left[inner]
        if len(inner) and ((left <= inner).any() or left.max() + 1 >= len(self)):
            raise QueryError("malformed", "children come after their parents")
        named = np.bincount(left, minlength=len(self)) + np.bincount(left + 1, minlength=len(self))
        if named[: self.roots].any() or (named[self.roots :] != 1).any():
            raise QueryError("false-partition", "every node but the roots has one parent")
        if self.depth().max() > MOST_DEPTH:
            raise QueryError("malformed", f"a path has more than {MOST_DEPTH} splits")


def category_sizes(schema: Schema) -> np.ndarray:
    """Return the number of categories of each feature, zero for numbers, shape (features,)."""
    return np.array([len(column.categories) for column in schema.features], dtype=np.int64)
