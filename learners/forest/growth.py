"""The server's side of growing: level by level over all trees at once (paper, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from privfed.errors import NobodyAnswered
from privfed.exchange.disclosure import Disclosure
from privfed.learners.forest import draws
from privfed.learners.forest.columns import TARGET_GRID
from privfed.learners.forest.level import NodeFeatures, OpenNodes
from privfed.learners.forest.level_queries import (
    LevelReplies,
    PartReplies,
    Version,
    ask_about,
    versions,
)
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

#: Most cells of one answer; a level of more is asked about in several questions, tree by tree.
MOST_CELLS = 4_000_000
CRUMB = 1e-12  #: A decrease that rounding could make of none, relative to the node's records
#: Sums of targets are in whole units; decreases of squared error in their squares.
UNITS = float(TARGET_GRID.denominator) ** 2


@dataclass(frozen=True, kw_only=True)
class ForestParams:
    """The estimators' parameters; `classes` is 0 for a regression, `per_node` features are drawn a node."""

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
        """Statistics of a set of records."""
        return self.classes or 2


@dataclass(eq=False)
class Grown:
    """Trees as far as they have grown, and what is known of each node."""

    trees: BinaryTrees  #: the trees
    totals: np.ndarray  #: statistics by client, shape (clients, nodes, statistics)
    names: np.ndarray  #: what each node's draws hang on, shape (nodes,)
    depth: np.ndarray  #: splits above each node, shape (nodes,)
    tried: np.ndarray  #: how many of its features each node has looked at
    open: np.ndarray  #: which nodes may still split
    known: np.ndarray  #: which nodes' totals are known

    @classmethod
    def seeds(cls, params: ForestParams, clients: int) -> Grown:
        """Roots alone."""
        roots = params.trees
        return cls(
            BinaryTrees.stumps(roots),
            np.zeros((clients, roots, params.width), np.int64),
            draws.roots(params.seed, roots),
            np.zeros(roots, np.int64),
            np.zeros(roots, np.int64),
            np.ones(roots, bool),
            np.zeros(roots, bool),
        )


Versions = Sequence[Version | None]  #: What each client is asked about, in the federation's order


class ForestGrower:
    """Grows a forest from releases alone.

    Args:
        federation: the clients.
        params: how.
        target_client: whether the classes are the clients themselves (the covariate-shift test).
        sampling: which records the trees learn from, if not by the parameters.
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
        self.grown = Grown.seeds(params, self.clients)
        self.rounds = 0

    def grow(self) -> Grown:
        """Ask and split until every node is closed or no client answers; NobodyAnswered if none ever does."""
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
        """What each client that takes part in a tree is asked first."""
        p, nodes = self.params, self._portions()[0]
        level = self._level(nodes, self._drawn(nodes))
        levels = self._levels(len(level.numeric))
        for client, own in zip(
            self.federation.clients, versions(level, self.members, self.features), strict=True
        ):
            if own is None:
                continue
            if p.shortlist is not None:
                yield client, Shortlist(own.level, p.quantiles, p.shortlist, p.criterion)
            else:
                yield client, Sketches(own.level, levels, p.interpolate)

    # --- one round -----------------------------------------------------------------------------

    def _portions(self) -> list[np.ndarray]:
        """The open nodes, tree by tree, so many at once that no answer grows too large."""
        open_ = np.flatnonzero(self.grown.open)
        open_ = open_[np.argsort(self.grown.trees.tree_of[open_], kind="stable")]
        one = self.params.per_node * self.params.quantiles * self.params.width
        return np.array_split(open_, max(1, -(-len(open_) * one // MOST_CELLS)))

    def _round(self, nodes: np.ndarray) -> None:
        """Ask about some open nodes, and split or close them."""
        s, level = self.params, self._level(nodes, self._drawn(nodes))
        if s.shortlist is not None:
            level = self._shortlisted(level, s.shortlist)
        found = versions(level, self.members, self.features)
        levels, new = self._levels(len(level.numeric)), not self.grown.known[nodes].all()
        told = self._ask(level, found, lambda own: Sketches(own.level, levels, s.interpolate, new))
        if new:
            self._note_totals(told)
        cuts, constant = self._candidates(told)
        choose = self._averaged if s.averaged else self._exact
        self._apply(level, *choose(level, found, cuts, constant))

    def _levels(self, pairs: int) -> int:
        """Finer quantiles where there are few pairs: they cost little there, and decide most."""
        s = self.params
        if s.candidates == "range":
            return 1
        room = SETTINGS.max_quantile_cells // max(pairs, 1)
        return max(s.quantiles, min(s.max_quantiles, room))

    def _drawn(self, nodes: np.ndarray) -> np.ndarray:
        """The features each node looks at this time, -1 for none, shape (nodes, features a node)."""
        per_node = self.params.per_node
        order = draws.ranking(self.grown.names[nodes], self.features)
        place = self.grown.tried[nodes][:, None] + np.arange(per_node)
        chosen = np.take_along_axis(order, np.minimum(place, self.features - 1), axis=1)
        return np.sort(np.where(place < self.features, chosen, self.features), axis=1)

    def _level(self, nodes: np.ndarray, drawn: np.ndarray) -> OpenNodes:
        """A level that looks at the drawn features, ascending; too large a number is none."""
        exists = drawn < self.features
        categorical = exists & (self.categories[np.minimum(drawn, self.features - 1)] > 0)
        numeric = exists & ~categorical
        by_cut, by_set = (NodeFeatures(m.sum(axis=1), drawn[m]) for m in (numeric, categorical))
        classes = 1 if self.target_client else self.params.classes
        return OpenNodes(self.grown.trees, self.sampling, nodes, by_cut, by_set, classes)

    def _ask(
        self, level: OpenNodes, found: Versions, question: Callable[[Version], Query]
    ) -> LevelReplies:
        self.rounds += 1
        return ask_about(self.federation, level, found, question)

    def _shortlisted(self, level: OpenNodes, longest: int) -> OpenNodes:
        """The same level with the union of the clients' shortlists for features."""
        s = self.params
        told = self._ask(
            level,
            versions(level, self.members, self.features),
            lambda own: Shortlist(own.level, s.quantiles, longest, s.criterion),
        )
        wanted = np.zeros((len(level.nodes), self.features + 1), bool)  # -1 marks the last column
        for _, nodes, named in told.heard("features").said:
            wanted[nodes[:, None], named] = True
        order = np.where(wanted[:, : self.features], np.arange(self.features), self.features)
        return self._level(level.nodes, np.sort(order, axis=1))

    def _note_totals(self, told: LevelReplies) -> None:
        """Keep what the clients say of the nodes themselves."""
        nodes = told.level.nodes
        each = told.statistics(by_client=self.target_client).at(np.arange(len(nodes)))
        self.grown.totals[:, nodes] = each
        self.grown.known[nodes] = True

    def _candidates(self, told: LevelReplies) -> tuple[np.ndarray, np.ndarray]:
        """Cuts of each numeric pair, and which pairs have but one value."""
        numeric, sketches = told.level.numeric, told.heard("knots")
        if not len(numeric) or not sketches:
            return np.zeros((len(numeric), 1), np.float32), np.ones(len(numeric), bool)
        counts = sizes(self.grown.totals[:, told.level.nodes], self.params.criterion)
        counts = counts[:, numeric.nodes]
        cuts = self._cuts(told, counts)
        found = [
            self._proposed(sketches.everywhere(own), counts[:, own], cuts)
            for own in self._together(sketches)
        ]
        return np.concatenate([own for own, _ in found]), np.concatenate([one for _, one in found])

    def _together(self, sketches: PartReplies) -> Iterable[slice]:
        """Portions of the pairs; all at once where how many cuts a pair gets hangs on the others."""
        whole = [slice(0, sketches.items)]
        return whole if self.params.candidates == "midpoints" else sketches.portions()

    def _cuts(self, told: LevelReplies, counts: np.ndarray) -> int:
        """How many cuts each pair gets: bins of few records would be suppressed where any is."""
        knots = told.heard("knots")
        most = int(knots.said[0][2].shape[1]) - 2
        if not told.suppressed:
            return most
        counts = _told(knots.everywhere(), counts)
        typical = np.median(counts[counts > 0]) if counts.any() else 0
        return min(most, max(1, int(typical) // (2 * SETTINGS.min_shown) - 1))

    def _proposed(
        self, knots: np.ndarray, counts: np.ndarray, cuts: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cuts of some pairs, and which of them have but one value."""
        counts = _told(knots, counts)
        low = np.where(counts > 0, knots[:, :, 0], np.inf).min(axis=0)
        high = np.where(counts > 0, knots[:, :, -1], -np.inf).max(axis=0)
        if self.params.candidates == "midpoints":
            return middles(knots, counts), low >= high
        if self.params.candidates == "range":
            return equal_steps(low, high, self.params.quantiles), low >= high
        return candidate_cuts(knots, counts, cuts), low >= high

    # --- choosing splits -----------------------------------------------------------------------

    def _exact(
        self, level: OpenNodes, found: Versions, cuts: np.ndarray, constant: np.ndarray
    ) -> tuple[Splits, np.ndarray]:
        """The splits by exact statistics, and the nodes that cannot split on these features."""
        s, by_client = self.params, self.target_client
        told = self._ask(level, found, lambda own: BinStatistics(own.level, cuts[own.numeric]))
        bins, groups = (told.statistics(of, by_client=by_client) for of in ("bin", "group"))
        return exact_splits(level, cuts, constant, bins, groups, s.criterion, s.min_leaf)

    def _averaged(
        self, level: OpenNodes, found: Versions, cuts: np.ndarray, constant: np.ndarray
    ) -> tuple[Splits, np.ndarray]:
        """The splits by averaged local decreases; categories are told exactly, as in the paper."""
        s = self.params
        weights = sizes(self.grown.totals[:, level.nodes], s.criterion).astype(float)
        told = self._ask(
            level, found, lambda own: LocalGains(own.level, cuts[own.numeric], s.criterion)
        )
        local = told.heard("gains").everywhere()
        groups = np.zeros((self.clients, 0, 1, s.width), np.int64)
        if len(level.grouped):
            narrow = [None if own is None else _without_numbers(own) for own in found]
            none = np.zeros((0, 1), np.float32)
            exact = self._ask(level, narrow, lambda own: BinStatistics(own.level, none))
            groups = exact.statistics("group").at(np.arange(len(level.grouped)))
        return averaged_splits(
            level, cuts, constant, local, weights, groups, s.criterion, s.min_leaf
        )

    # --- growing the arrays --------------------------------------------------------------------

    def _apply(self, level: OpenNodes, splits: Splits, constant: np.ndarray) -> None:
        """Split what is worth it; close the rest, but for nodes that may look at other features."""
        s, grown, nodes = self.params, self.grown, level.nodes
        if s.client_splits:
            totals = grown.totals[:, nodes]
            splits = with_clients(splits, totals, self.features, s.criterion, s.min_leaf)
        worth = self._worth(splits)
        grown.tried[nodes] += s.per_node
        again = constant & (grown.tried[nodes] < self.features) & (s.shortlist is None)
        grown.open[nodes] = again & ~worth & self._may_split(nodes)
        self._append(splits.only(np.flatnonzero(worth)))

    def _worth(self, splits: Splits) -> np.ndarray:
        """Whether a split decreases the impurity, and by enough."""
        s, grown = self.params, self.grown
        totals = grown.totals[:, splits.nodes].sum(axis=0)
        tree = grown.trees.tree_of[splits.nodes]
        whole = sizes(grown.totals[:, : s.trees].sum(axis=0), s.criterion)[tree]
        needed = s.min_decrease * np.maximum(whole, 1)
        if s.criterion == "squared_error":
            crumb = CRUMB * totals[:, 1].astype(float) ** 2 / np.maximum(totals[:, 0], 1)
            enough = splits.gain > np.maximum(needed * UNITS, crumb)
        else:
            enough = splits.gain >= needed - CRUMB * np.maximum(whole, 1)
        return np.asarray(np.isfinite(splits.gain) & enough & self._may_split(splits.nodes))

    def _may_split(self, nodes: np.ndarray) -> np.ndarray:
        """Whether nodes are large, shallow and impure enough."""
        s, grown = self.params, self.grown
        totals = grown.totals[:, nodes].sum(axis=0)
        known = grown.known[nodes]
        large = sizes(totals, s.criterion) >= 2 * s.min_leaf
        impure = (totals > 0).sum(axis=1) > 1 if s.criterion != "squared_error" else True
        shallow = grown.depth[nodes] < s.max_depth
        return np.asarray((large & impure | ~known) & shallow)

    def _append(self, splits: Splits) -> None:
        """Give every split node its two children."""
        grown, count = self.grown, len(splits.nodes)
        if not count:
            return
        first = len(grown.trees) + 2 * np.arange(count)
        grown.trees = split_trees(grown.trees, splits, first)
        below = np.repeat(splits.nodes, 2)
        whole = grown.totals[:, splits.nodes]
        told = splits.left is not None
        left = splits.left if splits.left is not None else np.zeros_like(whole)
        sides = np.stack([left, whole - left if told else left], axis=2)
        new = 2 * count
        grown.totals = np.concatenate([grown.totals, sides.reshape(len(whole), new, -1)], axis=1)
        grown.names = np.concatenate(
            [grown.names, draws.children(grown.names[splits.nodes]).reshape(-1)]
        )
        grown.depth = np.concatenate([grown.depth, grown.depth[below] + 1])
        grown.tried = np.concatenate([grown.tried, np.zeros(new, np.int64)])
        grown.known = np.concatenate([grown.known, np.full(new, told)])
        grown.open = np.concatenate([grown.open, np.zeros(new, bool)])
        added = np.arange(len(grown.open) - new, len(grown.open))
        grown.open[added] = self._may_split(added)

    def _ask_unknown(self) -> None:
        """Ask for the totals of leaves that nobody told; without an answer they are their parent's."""
        grown = self.grown
        unknown = np.flatnonzero(~grown.known)
        if not len(unknown):
            return
        unknown = unknown[np.argsort(grown.trees.tree_of[unknown], kind="stable")]
        none = np.full((len(unknown), 1), self.features)
        level = self._level(unknown, none)
        try:
            found = versions(level, self.members, self.features)
            self._note_totals(self._ask(level, found, lambda own: Sketches(own.level, 1)))
        except NobodyAnswered:
            pass


def _members(params: ForestParams, clients: int) -> np.ndarray:
    """Which client takes part in which tree, shape (clients, trees)."""
    wanted = params.clients_per_tree
    if wanted is None or wanted >= clients:
        return np.ones((clients, params.trees), bool)
    order = draws.ranking(draws.roots(params.seed, params.trees) ^ np.uint64(1), clients)
    members = np.zeros((clients, params.trees), bool)
    members[order[:, :wanted].T, np.arange(params.trees)] = True
    return members


def _told(knots: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Records of each client at each pair's node, none where its sketch shows nothing."""
    return np.where(np.isnan(knots[:, :, 0]), 0, counts)


def _without_numbers(asked: Version) -> Version:
    none = NodeFeatures(np.zeros_like(asked.level.numeric.sizes), asked.level.numeric.features[:0])
    return replace(asked, level=replace(asked.level, numeric=none), numeric=asked.numeric[:0])
