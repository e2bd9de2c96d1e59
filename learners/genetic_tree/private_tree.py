"""The private way: one tree from noisy counts for all, and below it each client's own affair.

A search for structures under noise finds nothing, for what makes the paper's search win are the
clients' own structures, which no noise makes private at a bearable cost. One tree grown from counts
pays: counts at all nodes of a level are disjoint, so that a level costs the same however many nodes
it has. Which subtree to hang below it, or whether to keep its own tree after all, a client decides
by itself, and nobody is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from privfed.exchange.disclosure import Disclosure
from privfed.learners.genetic_tree.below import Shared
from privfed.learners.genetic_tree.counts import Cells, NodeCounts, NodeTotals, RootCounts
from privfed.learners.genetic_tree.population import classes
from privfed.learners.genetic_tree.top import (
    Growth,
    Rule,
    bin_means,
    gains,
    padded,
    quantile_edges,
)
from privfed.tables.schema import Column

#: Most values of a column that are told apart one by one.
MOST_VALUES = 256
#: What a parent weighs in its children's shares, in records: least log loss over bank_marketing, california
#: and diabetes_pima (2,000 and 9,000 rows, epsilon 0.5, 1 and 4, splits 0 and 1) among 0.5, 1, 2, ..., 32.
PARENT = 8.0


@dataclass(frozen=True)
class TopPlan:
    """How large a private tree is.

    Args:
        depth: levels that are grown from counts.
        bins: bins of a feature that splits are looked for between.
        cells: finer bins that those are read off.
        rounds: how often cells are asked for, each time where the mass was found.
        features: how many features are looked at below the root: those that split it best.
        targets: bins of a numeric target.
    """

    depth: int = 4
    bins: int = 12
    cells: int = 64
    rounds: int = 2
    features: int = 6
    targets: int = 8


@dataclass
class PrivateTree:
    """Grows a tree by asking for noisy counts.

    Args:
        federation: whom to ask.
        plan: how large it may become.
        classify: whether the target is a class.
    """

    federation: Disclosure
    plan: TopPlan
    classify: bool
    #: Levels that were asked about.
    levels: int = 0
    _edges: list[np.ndarray] = field(default_factory=list)
    _target_edges: np.ndarray | None = None
    _worth: tuple[float, ...] | None = None

    def grow(self) -> Shared:
        """Ask and split, level by level.

        Raises:
            NobodyAnswered: nobody told anything at all.
        """
        schema = self.federation.schema
        self._edges = self.find_edges()
        targets = None if self._target_edges is None else len(self._target_edges) + 1
        growth = Growth(targets or classes(schema))
        open_, features = [0], np.arange(len(schema.features))
        for level in range(self.plan.depth):
            asked = self._question(growth, open_, features, level)
            ask = self.federation.ask_offered if level else self.federation.ask
            told = ask(asked).only
            if "counts" not in told:
                break
            counts = np.asarray(told.total("counts"), dtype=float)
            rule = Rule(worth=self._worth)
            variance = told.deviation("counts") ** 2
            open_ = growth.level(open_, counts, features, asked.edges, variance, rule)
            self.levels += 1
            if not level:
                features = self._promising(counts[0], features, variance)
            if not open_:
                break
        self._hear_leaves(growth)
        return Shared(growth.tree, self._values(growth))

    def _hear_leaves(self, growth: Growth) -> None:
        """Ask for the leaves' counts once more: those that chose the last splits favour them."""
        tree = growth.tree
        told = self.federation.ask_offered(NodeTotals(tree, tree.leaves, self._target_edges)).only
        if "counts" not in told:
            return
        variance = told.deviation("counts") ** 2
        for leaf, counts in zip(tree.leaves, np.asarray(told.total("counts"), float), strict=True):
            growth.nodes[leaf].hear(counts, variance)

    def _values(self, growth: Growth) -> np.ndarray:
        """What the counts say of each node: shares of the classes, or a mean; nothing: its parent's."""
        shares = growth.smoothed(PARENT)
        if self._worth is None:
            return shares
        assert self.federation.schema.target is not None
        low, high = self.federation.schema.target.bounds
        means: np.ndarray = low + (high - low) * (shares @ np.array(self._worth))[:, None]
        return means

    def _question(
        self, growth: Growth, open_: Sequence[int], features: np.ndarray, level: int
    ) -> NodeCounts:
        kind = NodeCounts if level else RootCounts
        edges = padded([self._edges[f] for f in features], self.plan.bins - 1)
        nodes = np.array(open_, dtype=np.int64)
        return kind(growth.tree, nodes, features, edges, self._target_edges)

    def _promising(self, counts: np.ndarray, features: np.ndarray, variance: float) -> np.ndarray:
        """The features that split the root best, in their own order."""
        edges = padded([self._edges[f] for f in features], self.plan.bins - 1)
        found = gains(counts, edges, variance, Rule(worth=self._worth)).max(axis=1)
        best = np.argsort(-found, kind="stable")[: self.plan.features]
        return np.sort(features[best])

    # --- edges -------------------------------------------------------------------------------

    def find_edges(self) -> list[np.ndarray]:
        """Edges of each feature's bins of equal mass, by rounds of ever finer cells where it is.

        Raises:
            NobodyAnswered: nobody told.
        """
        schema = self.federation.schema
        plan, columns = self.plan, list(schema.features)
        wanted = [plan.bins] * len(columns)
        if not self.classify:
            assert schema.target is not None
            columns, wanted = [*columns, schema.target], [*wanted, plan.targets]
        found = [np.arange(np.ceil(low), np.floor(high)) + 0.5 for low, high in _few(columns)]
        many = {n: columns[n] for n, w in enumerate(wanted) if not 0 < len(found[n]) < w}
        told = self._refined(many)
        for n, (ends, counts) in told.items():
            found[n] = quantile_edges(ends, counts, wanted[n])
        if not self.classify:
            self._target_edges = found.pop()
            self._worth = self._worths(told.get(len(found)))
        return found

    def _worths(self, told: tuple[np.ndarray, np.ndarray] | None) -> tuple[float, ...]:
        """What a record in each of the target's bins is worth, from 0 to 1: the bin's mean.

        Args:
            told: ends of the target's cells and the counts between; none where each value is a bin.
        """
        target = self.federation.schema.target
        assert target is not None and self._target_edges is not None
        low, high = target.bounds
        if told is None:
            values = np.arange(np.ceil(low), np.floor(high) + 1)
        else:
            values = bin_means(*told, self._target_edges)
        return tuple(((values - low) / (high - low)).tolist())

    def _refined(self, columns: dict[int, Column]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Ends of each column's cells, and the counts between them, as the last round told."""
        cells = self.plan.cells
        ends = {n: np.linspace(*column.bounds, cells + 1) for n, column in columns.items()}
        told: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for _ in range(self.plan.rounds if columns else 0):
            for n, (edges, counts) in told.items():
                finer = quantile_edges(edges, counts, cells)
                ends[n] = np.concatenate([edges[:1], finer, edges[-1:]])
            inner = padded([each[1:-1] for each in ends.values()], cells - 1)
            asked = Cells(np.array(list(ends), dtype=np.int64), inner)
            rows = np.asarray(self.federation.ask(asked).only.total("counts"), dtype=float)
            told = {
                n: (edges, row[: len(edges) - 1])
                for (n, edges), row in zip(ends.items(), rows, strict=True)
            }
        return told


def _few(columns: Sequence[Column]) -> Iterator[tuple[float, float]]:
    """Ends of whole numbers and categories that can be told apart; nothing for all others."""
    for column in columns:
        low, high = column.bounds
        whole = column.kind != "number" and high - low <= MOST_VALUES
        yield (low, high) if whole else (0.0, 0.0)
