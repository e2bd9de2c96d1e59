"""One tree from noisy counts for all clients.

A genetic search does not work under noise: it needs the clients' own structures, which noise cannot
protect at a useful cost. Counts at all nodes of a level are disjoint, so a level's cost does not
depend on their number. Each client chooses its own subtrees below.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from privfed.errors import Note, small_budget
from privfed.exchange.disclosure import Disclosure
from privfed.learners.fuzzy_tree.shrinkage import Count
from privfed.learners.genetic_tree.counts import (
    ColumnCounts,
    NodeCounts,
    NodeTotals,
    RootCounts,
    TargetCells,
)
from privfed.learners.genetic_tree.local_subtrees import Shared
from privfed.learners.genetic_tree.numbers import Bins, TargetDistribution
from privfed.learners.genetic_tree.population import classes
from privfed.learners.genetic_tree.settings import SETTINGS
from privfed.learners.genetic_tree.top import (
    NoisyTreeGrower,
    SplitCriterion,
    gains,
    padded,
    quantile_edges,
)
from privfed.learners.private.marginals import total_of
from privfed.tables.schema import Column

_UNKNOWN = Count(0.0, math.inf)  #: Number of records before any release


@dataclass(frozen=True)
class TopPlan:
    """Size of a private tree."""

    depth: int = 4  #: levels grown from counts
    bins: int = 12  #: bins of a feature between which splits are searched
    cells: int = 64  #: finer bins from which those are computed
    rounds: int = 2  #: rounds of cells, increasingly fine where the mass is
    features: int = 6  #: features used below the root: those that split it best
    targets: int = 8  #: bins of a numeric target
    target_cells: int = 32  #: finer bins of the target
    target_rounds: int = 4  #: rounds of these


@dataclass
class PrivateTree:
    """Grows a tree by querying noisy counts."""

    federation: Disclosure
    plan: TopPlan
    classify: bool
    levels: int = 0  #: Number of queried levels
    _edges: list[np.ndarray] = field(default_factory=list)
    _bins: Bins | None = None
    #: Noisy counts of whole columns, and the noise variance of each count.
    _counts: list[tuple[np.ndarray, float]] = field(default_factory=list)

    def grow(self) -> Shared:
        """Query and split, level by level (NobodyAnswered: the first query has no answer)."""
        schema = self.federation.schema
        self._edges = self.find_edges()
        if not self.classify:
            self._bins = self.find_bins()
        rule = SplitCriterion(class_values=None if self._bins is None else self._bins.class_values)
        grower = NoisyTreeGrower(classes(schema) if self._bins is None else len(self._bins.means))
        open_, features = [0], np.arange(len(schema.features))
        for level in range(self.plan.depth):
            query = self._query(grower, open_, features, level)
            ask = self.federation.ask_offered if level else self.federation.ask
            reply = ask(query).only
            if "counts" not in reply:
                break
            counts = np.asarray(reply.total("counts"), dtype=float)
            variance = reply.deviation("counts") ** 2
            open_ = grower.level(open_, counts, features, query.edges, variance, rule)
            self.levels += 1
            if not level:
                features = self._best_features(counts[0], features, variance, rule)
            if not open_:
                break
        self._query_leaves(grower)
        if self._bins is None:
            return Shared(grower.tree, grower.smoothed(SETTINGS.parent_weight))
        return Shared(grower.tree, self._bins.values(grower))

    @property
    def _target_edges(self) -> np.ndarray | None:
        return None if self._bins is None else self._bins.edges

    def _query_leaves(self, grower: NoisyTreeGrower) -> None:
        """Query the leaves' counts again, as those that chose the last splits are biased."""
        tree = grower.tree
        reply = self.federation.ask_offered(NodeTotals(tree, tree.leaves, self._target_edges)).only
        if "counts" not in reply:
            return
        variance = reply.deviation("counts") ** 2
        for leaf, counts in zip(tree.leaves, np.asarray(reply.total("counts"), float), strict=True):
            grower.nodes[leaf].combine(counts, variance)

    def _query(
        self, grower: NoisyTreeGrower, open_: Sequence[int], features: np.ndarray, level: int
    ) -> NodeCounts:
        kind = NodeCounts if level else RootCounts
        edges = padded([self._edges[f] for f in features], self.plan.bins - 1)
        nodes = np.array(open_, dtype=np.int64)
        return kind(grower.tree, nodes, features, edges, self._target_edges)

    def _best_features(
        self, counts: np.ndarray, features: np.ndarray, variance: float, rule: SplitCriterion
    ) -> np.ndarray:
        """Return the features that split the root best, in the original order."""
        edges = padded([self._edges[f] for f in features], self.plan.bins - 1)
        best_gains = gains(counts, edges, variance, rule).max(axis=1)
        best = np.argsort(-best_gains, kind="stable")[: self.plan.features]
        return np.sort(features[best])

    # --- edges -------------------------------------------------------------------------------

    def find_edges(self) -> list[np.ndarray]:
        """Return edges of each feature's bins of equal mass, by rounds of finer cells; may raise NobodyAnswered."""
        columns, bins = list(self.federation.schema.features), self.plan.bins
        result = [np.arange(np.ceil(low), np.floor(high)) + 0.5 for low, high in _few(columns)]
        many = {n: columns[n] for n, edges in enumerate(result) if not 0 < len(edges) < bins}
        for n, (ends, counts) in self._refine(many).items():
            result[n] = quantile_edges(ends, counts, bins)
        return result

    def find_bins(self) -> Bins:
        """Return bins of a numeric target, by rounds that locate its mass; may raise NobodyAnswered.

        If the counts may be only noise, and show no narrow interval, its mean is the middle of its bounds.
        """
        schema, cells = self.federation.schema, self.plan.target_cells
        assert schema.target is not None
        column = np.array([len(schema.features)], dtype=np.int64)
        mass = TargetDistribution.blank(schema.target, cells)
        for number in range(self.plan.target_rounds):
            if number:
                mass = mass.closer(cells)
            query = TargetCells(column, padded([mass.edges[1:-1]], cells - 1))
            reply = self.federation.ask(query).only
            counts = np.asarray(reply.total("counts"), dtype=float)[0, : len(mass.shares)]
            variance = reply.deviation("counts") ** 2
            self._counts.append((counts, variance))
            mass = mass.updated(counts, variance, self._records.joined(_UNKNOWN).records)
        records = self._records
        low, high = schema.target.bounds
        if unsure := records.of_noise:
            warnings.warn(small_budget(records.noise), Note, stacklevel=6)
        if unsure and mass.width > (high - low) / 2:
            mass = replace(TargetDistribution.blank(schema.target, cells), uncertain=0.0)
        return mass.bins(self.plan.targets)

    @property
    def _records(self) -> Count:
        """Return the number of records by all columns' counts."""
        records, variance = total_of(*map(list, zip(*self._counts, strict=True)))
        return Count(records, math.sqrt(variance))

    def _refine(self, columns: dict[int, Column]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Return edges of each column's cells, and the last round's counts between them."""
        cells = self.plan.cells
        ends = {n: np.linspace(*column.bounds, cells + 1) for n, column in columns.items()}
        counted: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for _ in range(self.plan.rounds if columns else 0):
            for n, (edges, counts) in counted.items():
                finer = quantile_edges(edges, counts, cells)
                ends[n] = np.concatenate([edges[:1], finer, edges[-1:]])
            inner = padded([knots[1:-1] for knots in ends.values()], cells - 1)
            query = ColumnCounts(np.array(list(ends), dtype=np.int64), inner)
            answer = self.federation.ask(query).only
            rows = np.asarray(answer.total("counts"), dtype=float)
            counted = {
                n: (edges, row[: len(edges) - 1])
                for (n, edges), row in zip(ends.items(), rows, strict=True)
            }
            variance = answer.deviation("counts") ** 2
            self._counts += [(counts, variance) for _, counts in counted.values()]
        return counted


def _few(columns: Sequence[Column]) -> Iterator[tuple[float, float]]:
    """Yield bounds for integers and categories with few values; empty for all others."""
    for column in columns:
        low, high = column.bounds
        whole = column.kind != "number" and high - low <= SETTINGS.max_distinct
        yield (low, high) if whole else (0.0, 0.0)
