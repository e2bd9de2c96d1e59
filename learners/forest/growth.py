"""The server's side of growing, level by level over all trees at once (paper, Algorithm 1)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from privfed.errors import NobodyAnswered
from privfed.exchange.disclosure import Disclosure
from privfed.learners.forest import draws
from privfed.learners.forest.columns import TARGET_GRID
from privfed.learners.forest.level import NodeFeatures, OpenNodes
from privfed.learners.forest.level_queries import LevelReplies, Version, ask_about, versions
from privfed.learners.forest.mixture import candidate_cuts, equal_steps, middles
from privfed.learners.forest.queries import BinStatistics, LocalGains, Shortlist, Sketches
from privfed.learners.forest.samples import Sampling
from privfed.learners.forest.settings import SETTINGS
from privfed.learners.forest.splits import (
    Splits,
    averaged_splits,
    exact_splits,
    split_trees,
    with_clients,
)
from privfed.learners.forest.trees import BinaryTrees, category_sizes
from privfed.learners.impurity import Criterion, sizes
from privfed.questions.query import Query

#: Maximum cells of one answer; a larger level is queried in several parts, tree by tree.
MOST_CELLS = 4_000_000
CRUMB = 1e-12  #: A decrease within rounding error, relative to the node's records
#: Sums of targets are in integer units; decreases of squared error in their squares.
UNITS = float(TARGET_GRID.denominator) ** 2


@dataclass(frozen=True, kw_only=True)
class ForestParams:
    """The estimators' parameters; `classes` is 0 for a regression, `per_node` features are drawn per node."""

    trees: int
    max_depth: int
    min_leaf: int
    criterion: Criterion
    classes: int
    per_node: int
    quantiles: int
    sampling: str
    seed: int
    max_quantiles: int = SETTINGS.max_quantiles
    min_decrease: float = 0.0
    candidates: str = "quantiles"
    interpolate: bool = False
    averaged: bool = False
    shortlist: int | None = None
    client_splits: bool = False
    clients_per_tree: int | None = None
    oob_score: bool = False

    @property
    def width(self) -> int:
        """Number of statistics of a set of records."""
        return self.classes or 2


@dataclass(eq=False)
class Grown:
    """The trees so far, and the state of each node."""

    trees: BinaryTrees  #: the trees
    totals: np.ndarray  #: statistics by client, shape (clients, nodes, statistics)
    names: np.ndarray  #: seeds of each node's draws, shape (nodes,)
    depth: np.ndarray  #: splits above each node, shape (nodes,)
    tried: np.ndarray  #: number of each node's features tried
    open: np.ndarray  #: which nodes may still split
    known: np.ndarray  #: which nodes' totals are known


Versions = Sequence[Version | None]  #: Each client's version of a level, in the federation's order


class ForestGrower:
    """Grows a forest from releases only.

    Args:
        federation: the clients.
        params: the estimator's parameters.
        target_client: whether the classes are the clients themselves (the covariate-shift
            test).
        sampling: the trees' samples, if not by the parameters.
    """

    def __init__(
        self,
        federation: Disclosure,
        params: ForestParams,
        *,
        target_client: bool = False,
        sampling: Sampling | None = None,
    ) -> None:
        self.federation, self.params = federation, params
        self.target_client = target_client
        self.clients, self.features = len(federation.clients), len(federation.schema.features)
        self.categories = category_sizes(federation.schema)
        self.members = _members(params, self.clients)
        self.sampling = sampling or Sampling(
            params.sampling, params.seed, np.arange(params.trees), params.trees
        )
        trees, none = params.trees, np.zeros(params.trees, np.int64)
        self.grown = Grown(
            BinaryTrees.stumps(trees),
            np.zeros((self.clients, trees, params.width), np.int64),
            draws.roots(params.seed, trees),
            depth=none,
            tried=none.copy(),
            open=np.ones(trees, bool),
            known=np.zeros(trees, bool),
        )
        self.rounds = 0

    def grow(self) -> Grown:
        """Query and split until all nodes are closed or no client answers (NobodyAnswered: none ever did)."""
        while self.grown.open.any():
            for nodes in self._portions():
                try:
                    self._round(nodes)
                except NobodyAnswered:
                    if not self.grown.known.any():
                        raise
                    self.grown.open[:] = False
                    break
        self._ask_unknown()
        return self.grown

    def first_queries(self) -> Iterator[tuple[str, Query]]:
        """Yield the first query of each client that takes part in a tree."""
        p, nodes = self.params, self._portions()[0]
        level = self._level(nodes, self._draw_features(nodes))
        levels = self._levels(len(level.numeric))
        for client, version in zip(self.federation.clients, self._versions(level), strict=True):
            if version is not None and p.shortlist is not None:
                yield client, Shortlist(version.level, p.quantiles, p.shortlist, p.criterion)
            elif version is not None:
                yield client, Sketches(version.level, levels, p.interpolate)

    # --- one round -----------------------------------------------------------------------------

    def _portions(self) -> list[np.ndarray]:
        """Return the open nodes in portions, tree by tree, that keep answers within the limit."""
        open_ = np.flatnonzero(self.grown.open)
        open_ = open_[np.argsort(self.grown.trees.tree_of[open_], kind="stable")]
        node_cells = self.params.per_node * self.params.quantiles * self.params.width
        return np.array_split(open_, max(1, -(-len(open_) * node_cells // MOST_CELLS)))

    def _round(self, nodes: np.ndarray) -> None:
        """Query some open nodes, and split or close them."""
        p, level = self.params, self._level(nodes, self._draw_features(nodes))
        if p.shortlist is not None:
            level = self._shortlist_level(level, p.shortlist)
        versions, levels = self._versions(level), self._levels(len(level.numeric))
        new = not self.grown.known[nodes].all()
        replies = self._ask(
            level, versions, lambda v: Sketches(v.level, levels, p.interpolate, new)
        )
        if new:
            self._note_totals(replies)
        cuts, constant = self._candidates(replies)
        choose = self._averaged if p.averaged else self._exact
        self._apply(level, *choose(level, versions, cuts, constant))

    def _levels(self, pairs: int) -> int:
        """Return the number of quantiles: more for few pairs, where they cost little and matter most."""
        p, limit = self.params, SETTINGS.max_quantile_cells // max(pairs, 1)
        return 1 if p.candidates == "range" else max(p.quantiles, min(p.max_quantiles, limit))

    def _draw_features(self, nodes: np.ndarray) -> np.ndarray:
        """Return the features that each node tries now, -1 for none, shape (nodes, features per node)."""
        per_node = self.params.per_node
        order = draws.ranking(self.grown.names[nodes], self.features)
        index = self.grown.tried[nodes][:, None] + np.arange(per_node)
        chosen = np.take_along_axis(order, np.minimum(index, self.features - 1), axis=1)
        return np.sort(np.where(index < self.features, chosen, self.features), axis=1)

    def _level(self, nodes: np.ndarray, drawn: np.ndarray) -> OpenNodes:
        """Return a level with the drawn features, ascending; too large numbers are ignored."""
        exists = drawn < self.features
        categorical = exists & (self.categories[np.minimum(drawn, self.features - 1)] > 0)
        numeric = exists & ~categorical
        by_cut, by_set = (NodeFeatures(m.sum(axis=1), drawn[m]) for m in (numeric, categorical))
        classes = 1 if self.target_client else self.params.classes
        return OpenNodes(self.grown.trees, self.sampling, nodes, by_cut, by_set, classes)

    def _versions(self, level: OpenNodes) -> Versions:
        return versions(level, self.members, self.features)

    def _ask(
        self, level: OpenNodes, versions: Versions, query: Callable[[Version], Query]
    ) -> LevelReplies:
        self.rounds += 1
        return ask_about(self.federation, level, versions, query)

    def _shortlist_level(self, level: OpenNodes, longest: int) -> OpenNodes:
        """Return the same level with the union of the clients' shortlists as features."""
        p = self.params
        replies = self._ask(
            level,
            self._versions(level),
            lambda v: Shortlist(v.level, p.quantiles, longest, p.criterion),
        )
        named = np.zeros((len(level.nodes), self.features + 1), bool)  # -1 indexes the last column
        for _, nodes, features in replies.part("features").arrays:
            named[nodes[:, None], features] = True
        order = np.where(named[:, : self.features], np.arange(self.features), self.features)
        return self._level(level.nodes, np.sort(order, axis=1))

    def _note_totals(self, replies: LevelReplies) -> None:
        """Store the released totals of the nodes themselves."""
        nodes = replies.level.nodes
        totals = replies.statistics(by_client=self.target_client).at(np.arange(len(nodes)))
        self.grown.totals[:, nodes] = totals
        self.grown.known[nodes] = True

    def _candidates(self, replies: LevelReplies) -> tuple[np.ndarray, np.ndarray]:
        """Return cuts of each numeric pair, and which pairs have only one value."""
        numeric, sketches = replies.level.numeric, replies.part("knots")
        if not len(numeric) or not sketches:
            return np.zeros((len(numeric), 1), np.float32), np.ones(len(numeric), bool)
        counts = sizes(self.grown.totals[:, replies.level.nodes], self.params.criterion)
        counts = counts[:, numeric.nodes]
        max_cuts = int(sketches.arrays[0][2].shape[1]) - 2
        if replies.suppressed:  # bins of few records would be suppressed, too
            shown = _shown(sketches.everywhere(), counts)
            typical = np.median(shown[shown > 0]) if shown.any() else 0
            max_cuts = min(max_cuts, max(1, int(typical) // (2 * SETTINGS.min_shown) - 1))
        whole = [slice(0, sketches.items)]  # midpoints of a pair are as many as the longest pair's
        portions = whole if self.params.candidates == "midpoints" else sketches.portions()
        cuts, constant = zip(
            *(self._propose_cuts(sketches.everywhere(p), counts[:, p], max_cuts) for p in portions),
            strict=True,
        )
        return np.concatenate(cuts), np.concatenate(constant)

    def _propose_cuts(
        self, knots: np.ndarray, counts: np.ndarray, cuts: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return cuts of some pairs, and which of them have only one value."""
        counts = _shown(knots, counts)
        low = np.where(counts > 0, knots[:, :, 0], np.inf).min(axis=0)
        high = np.where(counts > 0, knots[:, :, -1], -np.inf).max(axis=0)
        if self.params.candidates == "midpoints":
            return middles(knots, counts), low >= high
        if self.params.candidates == "range":
            return equal_steps(low, high, self.params.quantiles), low >= high
        return candidate_cuts(knots, counts, cuts), low >= high

    # --- choosing splits -----------------------------------------------------------------------

    def _exact(
        self, level: OpenNodes, versions: Versions, cuts: np.ndarray, constant: np.ndarray
    ) -> tuple[Splits, np.ndarray]:
        """Return the splits by exact statistics, and the nodes that cannot split on these features."""
        p, by_client = self.params, self.target_client
        replies = self._ask(level, versions, lambda v: BinStatistics(v.level, cuts[v.numeric]))
        bins, groups = (replies.statistics(kind, by_client=by_client) for kind in ("bin", "group"))
        return exact_splits(level, cuts, constant, bins, groups, p.criterion, p.min_leaf)

    def _averaged(
        self, level: OpenNodes, versions: Versions, cuts: np.ndarray, constant: np.ndarray
    ) -> tuple[Splits, np.ndarray]:
        """Return the splits by averaged local decreases (categories: exact statistics, as in the paper)."""
        p = self.params
        weights = sizes(self.grown.totals[:, level.nodes], p.criterion).astype(float)
        replies = self._ask(
            level, versions, lambda v: LocalGains(v.level, cuts[v.numeric], p.criterion)
        )
        local = replies.part("gains").everywhere()
        groups = np.zeros((self.clients, 0, 1, p.width), np.int64)
        if len(level.grouped):
            none, no_numbers = np.zeros((0, 1), np.float32), _without_numbers
            exact = self._ask(level, versions, lambda v: BinStatistics(no_numbers(v.level), none))
            groups = exact.statistics("group").at(np.arange(len(level.grouped)))
        return averaged_splits(
            level, cuts, constant, local, weights, groups, p.criterion, p.min_leaf
        )

    # --- growing the arrays --------------------------------------------------------------------

    def _apply(self, level: OpenNodes, splits: Splits, constant: np.ndarray) -> None:
        """Apply sufficient splits; close the other nodes, except those that may try other features."""
        p, grown, nodes = self.params, self.grown, level.nodes
        if p.client_splits:
            totals = grown.totals[:, nodes]
            splits = with_clients(splits, totals, self.features, p.criterion, p.min_leaf)
        sufficient = self._sufficient(splits)
        grown.tried[nodes] += p.per_node
        retry = constant & (grown.tried[nodes] < self.features) & (p.shortlist is None)
        grown.open[nodes] = retry & ~sufficient & self._may_split(nodes)
        self._append(splits.only(np.flatnonzero(sufficient)))

    def _sufficient(self, splits: Splits) -> np.ndarray:
        """Whether a split decreases the impurity sufficiently."""
        p, grown = self.params, self.grown
        totals = grown.totals[:, splits.nodes].sum(axis=0)
        tree = grown.trees.tree_of[splits.nodes]
        tree_sizes = np.maximum(sizes(grown.totals[:, : p.trees].sum(axis=0), p.criterion)[tree], 1)
        needed = p.min_decrease * tree_sizes
        if p.criterion == "squared_error":
            crumb = CRUMB * totals[:, 1].astype(float) ** 2 / np.maximum(totals[:, 0], 1)
            sufficient = splits.gain > np.maximum(needed * UNITS, crumb)
        else:
            sufficient = splits.gain >= needed - CRUMB * tree_sizes
        return np.asarray(np.isfinite(splits.gain) & sufficient & self._may_split(splits.nodes))

    def _may_split(self, nodes: np.ndarray) -> np.ndarray:
        """Whether nodes are sufficiently large, shallow and impure."""
        p, grown = self.params, self.grown
        totals = grown.totals[:, nodes].sum(axis=0)
        large = sizes(totals, p.criterion) >= 2 * p.min_leaf
        impure = (totals > 0).sum(axis=1) > 1 if p.criterion != "squared_error" else True
        shallow = grown.depth[nodes] < p.max_depth
        return np.asarray((large & impure | ~grown.known[nodes]) & shallow)

    def _append(self, splits: Splits) -> None:
        """Append two children to every split node."""
        grown, count = self.grown, len(splits.nodes)
        if not count:
            return
        first = len(grown.trees) + 2 * np.arange(count)
        grown.trees = split_trees(grown.trees, splits, first)
        whole, left = grown.totals[:, splits.nodes], splits.left
        none = np.zeros_like(whole)
        sides = np.stack([none, none] if left is None else [left, whole - left], axis=2)
        new = 2 * count
        added = {
            "names": draws.children(grown.names[splits.nodes]).reshape(-1),
            "depth": np.repeat(grown.depth[splits.nodes] + 1, 2),
            "tried": np.zeros(new, np.int64),
            "known": np.full(new, left is not None),
            "open": np.zeros(new, bool),
        }
        grown.totals = np.concatenate([grown.totals, sides.reshape(len(whole), new, -1)], axis=1)
        for name, values in added.items():
            setattr(grown, name, np.concatenate([getattr(grown, name), values]))
        grown.open[-new:] = self._may_split(np.arange(len(grown.open))[-new:])

    def _ask_unknown(self) -> None:
        """Query the unknown totals of leaves; without an answer they are their parent's."""
        unknown = np.flatnonzero(~self.grown.known)
        if not len(unknown):
            return
        unknown = unknown[np.argsort(self.grown.trees.tree_of[unknown], kind="stable")]
        level = self._level(unknown, np.full((len(unknown), 1), self.features))
        with suppress(NobodyAnswered):
            replies = self._ask(level, self._versions(level), lambda v: Sketches(v.level, 1))
            self._note_totals(replies)


def _members(params: ForestParams, clients: int) -> np.ndarray:
    """Return clients' participation in trees, shape (clients, trees)."""
    order = draws.ranking(draws.roots(params.seed, params.trees) ^ np.uint64(1), clients)
    members = np.zeros((clients, params.trees), bool)
    members[order[:, : params.clients_per_tree].T, np.arange(params.trees)] = True
    return members


def _shown(knots: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return each client's records at each pair's node, zero if its sketch is suppressed."""
    return np.where(np.isnan(knots[:, :, 0]), 0, counts)


def _without_numbers(level: OpenNodes) -> OpenNodes:
    none = NodeFeatures(np.zeros_like(level.numeric.sizes), level.numeric.features[:0])
    return replace(level, numeric=none)
