"""Counts that a private tree is grown from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.errors import QueryError
from privfed.learners.genetic_tree.population import classes
from privfed.questions.part import Bound, Part, PartType, Sensitivity
from privfed.questions.query import Query, View
from privfed.questions.tree import Tree
from privfed.tables.records import Records, nearest_class
from privfed.tables.schema import Schema

MOST_BINS = 4096  #: Maximum bins of a feature, and of a numeric target


@dataclass(frozen=True, eq=False)
class ColumnCounts(Query):
    """Counts of records by bin of each column (the target's column among them, if asked for).

    Sensitivity: a record is in exactly one bin of each column, so with p columns L1 = p and squared
    L2 = p. Replacing a record changes two bins of each by one: 2 p and 2 p.
    """

    columns: np.ndarray  #: indices of the columns, the target's after the last feature's
    #: edges of each column's bins, increasing, then infinite; shape (columns, bins - 1). A value on
    #: an edge is in the upper bin
    edges: np.ndarray
    kind: ClassVar[str] = "genetic_tree.cells"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``counts`` by column and bin."""
        check_edges(self.columns, self.edges, len(schema.columns))
        p, bins = len(self.columns), self.edges.shape[1] + 1
        bounds = Sensitivity(Bound(p, p), replace_one=Bound(2 * p, 2 * p))
        return {"counts": Part(PartType.COUNTS, ("column", "bin"), (p, bins), bounds)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count."""
        table, bins = view.table, self.edges.shape[1] + 1
        counts = []
        for column, edges in zip(self.columns, self.edges, strict=True):
            values = table.x[:, column] if column < table.x.shape[1] else table.target
            counts.append(np.bincount(np.searchsorted(edges, values, side="right"), minlength=bins))
        return {"counts": np.array(counts)}


class TargetCells(ColumnCounts):
    """Counts of records by bin of a numeric target. :class:`ColumnCounts` with p = 1, of its own budget."""

    kind: ClassVar[str] = "genetic_tree.target"


@dataclass(frozen=True, eq=False)
class NodeCounts(Query):
    """Counts at open nodes of a public tree, by feature, bin and class.

    Sensitivity: a record reaches at most one open node of the tree, where it is in exactly one bin of each of the f
    features, with one class. So L1 = f and squared L2 = f for any number of nodes; replacing a record changes two cells
    of each feature: 2 f and 2 f. Tree and edges are public fields of the query.
    """

    tree: Tree  #: the tree so far
    nodes: np.ndarray  #: its open leaves, each once
    features: np.ndarray  #: indices of the features, each once
    edges: np.ndarray  #: edges of their bins, increasing, then infinite; shape (features, bins - 1)
    #: edges of a numeric target's bins; empty for classes
    target_edges: np.ndarray | None
    kind: ClassVar[str] = "genetic_tree.nodes"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``counts`` by node, feature, bin and class."""
        check_open(self.tree, self.nodes, schema)
        check_edges(self.features, self.edges, len(schema.features))
        f = len(self.features)
        bounds = Sensitivity(Bound(f, f), replace_one=Bound(2 * f, 2 * f))
        targets = _targets(self.target_edges, schema)
        shape = (len(self.nodes), f, self.edges.shape[1] + 1, targets)
        return {"counts": Part(PartType.COUNTS, ("node", "feature", "bin", "class"), shape, bounds)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count."""
        table, targets = view.table, _targets(self.target_edges, view.schema)
        rows, node, code = _at_nodes(self.tree, self.nodes, self.target_edges, table)
        counts, bins = [], self.edges.shape[1] + 1
        for feature, edges in zip(self.features, self.edges, strict=True):
            index = np.searchsorted(edges, table.x[rows, feature], side="right")
            cell = (node * bins + index) * targets + code
            counts.append(np.bincount(cell, minlength=len(self.nodes) * bins * targets))
        shape = (len(self.features), len(self.nodes), bins, targets)
        return {"counts": np.array(counts).reshape(shape).transpose(1, 0, 2, 3)}


class RootCounts(NodeCounts):
    """Counts at the root of a tree, by feature, bin and class. :class:`NodeCounts` whose features share one budget."""

    kind: ClassVar[str] = "genetic_tree.root"


@dataclass(frozen=True, eq=False)
class NodeTotals(Query):
    """Counts at leaves of a public tree, by class.

    Sensitivity: a record reaches one leaf, where it counts once: L1 = 1 and squared L2 = 1;
    replacing a record changes two cells: 2 and 2. The tree must be public or released before.
    """

    tree: Tree  #: the grown tree
    nodes: np.ndarray  #: its leaves, each once
    #: edges of a numeric target's bins; empty for classes
    target_edges: np.ndarray | None
    kind: ClassVar[str] = "genetic_tree.totals"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``counts`` by node and class."""
        check_open(self.tree, self.nodes, schema)
        bounds = Sensitivity(Bound(1, 1), replace_one=Bound(2, 2))
        shape = (len(self.nodes), _targets(self.target_edges, schema))
        return {"counts": Part(PartType.COUNTS, ("node", "class"), shape, bounds)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count."""
        targets = _targets(self.target_edges, view.schema)
        _, node, code = _at_nodes(self.tree, self.nodes, self.target_edges, view.table)
        counts = np.bincount(node * targets + code, minlength=len(self.nodes) * targets)
        return {"counts": counts.reshape(-1, targets)}


def check_open(tree: Tree, nodes: np.ndarray, schema: Schema) -> None:
    """Raise QueryError unless the nodes are leaves of a tree of known features, each once."""
    tree.check(schema)
    valid = nodes.ndim == 1 and nodes.dtype == np.int64 and len(nodes) > 0
    if not valid or not np.isin(nodes, tree.leaves).all():
        raise QueryError("malformed", "open nodes must be leaves of the tree")
    if len(np.unique(nodes)) != len(nodes):
        raise QueryError("false-partition", "a node is listed twice")


def _targets(edges: np.ndarray | None, schema: Schema) -> int:
    """Return the target's number of classes, or of bins between edges."""
    if edges is not None:
        check_edges(np.zeros(1, np.int64), edges[None], 1)
        if schema.target is None or not schema.target.numeric:
            raise QueryError("malformed", "only a numeric target has edges")
        return len(edges) + 1
    if not classes(schema):
        raise QueryError("malformed", "the target has no classes; give edges")
    return classes(schema)


def _at_nodes(
    tree: Tree, nodes: np.ndarray, target_edges: np.ndarray | None, table: Records
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the records that reach one of some leaves, the leaf's index, and their class or target's bin."""
    index = np.full(len(tree.feature), -1)
    index[nodes] = np.arange(len(nodes))
    node = index[tree.reach(table.x)]
    if target_edges is None:
        code = nearest_class(table.target, 0, classes(table.schema))
    else:
        code = np.searchsorted(target_edges, table.target, side="right")
    rows = np.flatnonzero(node >= 0)
    return rows, node[rows], code[rows]


def check_edges(columns: np.ndarray, edges: np.ndarray, count: int) -> None:
    """Raise QueryError unless columns are known, each once, and their bins do not overlap."""
    if columns.ndim != 1 or columns.dtype != np.int64 or not len(columns):
        raise QueryError("malformed", "columns are a row of whole numbers")
    if columns.min() < 0 or columns.max() >= count or len(np.unique(columns)) != len(columns):
        raise QueryError("malformed", "columns must be known ones, each once")
    if edges.dtype != np.float64 or edges.ndim != 2 or len(edges) != len(columns):
        raise QueryError("malformed", "edges are a row of numbers for each column")
    if edges.shape[1] >= MOST_BINS or np.isnan(edges).any():
        raise QueryError("malformed", f"edges are numbers, fewer than {MOST_BINS}")
    with np.errstate(invalid="ignore"):  # adjacent infinite edges end a row
        rising = (np.diff(edges, axis=1) > 0) | (edges[:, 1:] == np.inf)
    if not rising.all():
        raise QueryError("false-partition", "edges must rise, or bins overlap")
