"""The open nodes of all trees, and the features queried at each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from privfed.errors import QueryError
from privfed.learners.forest.samples import Sampling
from privfed.learners.forest.trees import LEAF, BinaryTrees, category_sizes
from privfed.tables.schema import Schema


@dataclass(frozen=True, eq=False)
class NodeFeatures:
    """Candidate features by node: their number at each open node, and the concatenated features."""

    sizes: np.ndarray
    features: np.ndarray

    def __len__(self) -> int:
        return len(self.features)

    @cached_property
    def first(self) -> np.ndarray:
        """Index of each node's first pair, shape (nodes,)."""
        return np.asarray(np.cumsum(self.sizes) - self.sizes)

    @cached_property
    def nodes(self) -> np.ndarray:
        """The node of each pair, counted among the open ones, shape (pairs,)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def check(self, nodes: int, allowed: np.ndarray) -> None:
        """Check that features are known, of the right kind, and once per node (else QueryError)."""
        sizes, features = self.sizes, self.features
        if (
            sizes.shape != (nodes,)
            or features.ndim != 1
            or {sizes.dtype.kind, features.dtype.kind} != {"i"}
        ):
            raise QueryError("malformed", "pairs need a number of features for each node")
        if (nodes and sizes.min() < 0) or sizes.sum() != len(features):
            raise QueryError("malformed", "pairs need as many features as they count")
        if len(features) and not (features.min() >= 0 and features.max() < len(allowed)):
            raise QueryError("malformed", "a pair names an unknown feature")
        if not allowed[features].all():
            raise QueryError("malformed", "a pair names a feature of another kind")
        node = self.nodes
        if ((np.diff(features) <= 0) & (np.diff(node) == 0)).any():
            raise QueryError("false-partition", "a node's features ascend, each named once")


@dataclass(frozen=True, eq=False)
class OpenNodes:
    """The open nodes of a query."""

    trees: BinaryTrees  #: all trees so far
    sampling: Sampling  #: the sample of records of each tree
    nodes: np.ndarray  #: the open nodes, tree by tree
    numeric: NodeFeatures  #: numeric, grouped: numeric and categorical candidate features
    grouped: NodeFeatures
    classes: int  #: number of classes; 1: only record counts, 0: a regression

    @cached_property
    def numbers(self) -> np.ndarray:
        """Index of each node among the open ones, -1 for others, shape (nodes,)."""
        numbers = np.full(len(self.trees), -1)
        numbers[self.nodes] = np.arange(len(self.nodes))
        return numbers

    @cached_property
    def leading(self) -> np.ndarray:
        """Which nodes are open or above an open one, shape (nodes,)."""
        leading, parents, nodes = np.zeros(len(self.trees), bool), self.trees.parents(), self.nodes
        while len(nodes):
            leading[nodes] = True
            nodes = parents[nodes]
            nodes = nodes[~leading[nodes]]
        return leading

    def check(self, schema: Schema) -> None:
        """Raise QueryError unless all of it fits the schema and the nodes are disjoint leaves."""
        _check(self, schema)


@lru_cache(maxsize=2)  # in one process the same query reaches every client's gate
def _check(level: OpenNodes, schema: Schema) -> None:
    level.trees.check(schema)
    level.sampling.check(level.trees.roots)
    nodes = level.nodes
    if nodes.ndim != 1 or nodes.dtype.kind != "i" or not 1 <= len(nodes) <= len(level.trees):
        raise QueryError("malformed", "a level needs nodes")
    if nodes.min() < 0 or nodes.max() >= len(level.trees):
        raise QueryError("malformed", "an open node is none of the trees'")
    if (level.trees.feature[nodes] != LEAF).any() or np.bincount(nodes).max() > 1:
        raise QueryError("false-partition", "open nodes do not split, and each is listed once")
    if (np.diff(level.trees.tree_of[nodes]) < 0).any():
        raise QueryError("malformed", "open nodes are listed tree by tree")
    sizes = category_sizes(schema)
    level.numeric.check(len(nodes), sizes == 0)
    level.grouped.check(len(nodes), sizes > 0)
    known = {0, 1} if schema.target is not None else {1}
    if not (level.classes in known or 2 <= level.classes <= 100):
        raise QueryError("malformed", "classes must be 0 (a regression), 1 (counts) or up to 100")
