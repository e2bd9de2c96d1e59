"""What open nodes split on: the best of all pairs, by summed statistics or by averaged gains."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privfed.learners.forest.gains import Best, best_cut, best_subset, decreases, fisher_order
from privfed.learners.forest.level import OpenNodes
from privfed.learners.forest.level_queries import Summed
from privfed.learners.forest.trees import LEAF, BinaryTrees
from privfed.learners.impurity import Criterion, sizes


@dataclass(frozen=True, eq=False)
class Splits:
    """What some open nodes split on."""

    nodes: np.ndarray  #: the nodes, shape (splits,)
    feature: np.ndarray  #: shape (splits,); the number of features for the client itself
    cut: np.ndarray  #: shape (splits,); zero where a subset decides
    #: categories or clients that go left, shape (splits, width); all false for numbers
    chosen: np.ndarray
    grouped: np.ndarray  #: whether a subset decides, shape (splits,)
    gain: np.ndarray  #: impurity decrease times records, minus infinity for none, shape (splits,)
    #: statistics of the left side by client, shape (clients, splits, statistics); None if withheld
    left: np.ndarray | None = None

    def only(self, kept: np.ndarray) -> Splits:
        """Some of the splits."""
        names = ("nodes", "feature", "cut", "chosen", "grouped", "gain")
        left = None if self.left is None else self.left[:, kept]
        return replace(self, **{name: getattr(self, name)[kept] for name in names}, left=left)


@dataclass(frozen=True, eq=False)
class BestSplits:
    """The best of each pair of a level, numeric pairs first."""

    level: OpenNodes  #: the open nodes
    cuts: np.ndarray  #: candidates of the numeric pairs, shape (numeric pairs, cuts)
    place: np.ndarray  #: index of the best, shape (numeric pairs,)
    chosen: np.ndarray  #: categories that go left, shape (categorical pairs, width)
    gain: np.ndarray  #: impurity decrease times records, shape (pairs,)
    constant: np.ndarray  #: which pairs have but one value, shape (pairs,)

    @property
    def node(self) -> np.ndarray:
        """The node of each pair."""
        return np.concatenate([self.level.numeric.nodes, self.level.grouped.nodes])

    @property
    def feature(self) -> np.ndarray:
        """The feature of each pair."""
        return np.concatenate([self.level.numeric.features, self.level.grouped.features])

    @property
    def nothing(self) -> np.ndarray:
        """Which nodes have no pair of more than one value, shape (nodes,)."""
        varying = np.bincount(self.node, ~self.constant, minlength=len(self.level.nodes))
        return np.asarray(varying == 0)

    def picked(self) -> np.ndarray:
        """The pair of greatest decrease of each node, -1 for none; of equal ones the first feature's."""
        node = self.node
        order = np.lexsort((self.feature, -self.gain, node))
        best = order[np.flatnonzero(np.diff(node[order], prepend=-1))]
        some = best[np.isfinite(self.gain[best])]
        pair = np.full(len(self.level.nodes), -1)
        pair[node[some]] = some
        return pair

    def splits(self, picked: np.ndarray, width: int) -> Splits:
        """The picked pairs' splits, subsets at least ``width`` wide."""
        numbers, nodes = len(self.level.numeric), len(picked)
        some = np.flatnonzero(picked >= 0)
        by_cut, by_set = (some[picked[some] < numbers], some[picked[some] >= numbers])
        feature, cut = np.zeros(nodes, np.int64), np.zeros(nodes, np.float32)
        gain = np.full(nodes, -np.inf)
        sets = np.zeros((nodes, max(width, self.chosen.shape[1])), bool)
        feature[some], gain[some] = self.feature[picked[some]], self.gain[picked[some]]
        cut[by_cut] = self.cuts[picked[by_cut], self.place[picked[by_cut]]]
        sets[by_set, : self.chosen.shape[1]] = self.chosen[picked[by_set] - numbers]
        return Splits(self.level.nodes, feature, cut, sets, picked >= numbers, gain)


def exact_splits(
    level: OpenNodes,
    cuts: np.ndarray,
    constant: np.ndarray,
    bins: Summed,
    groups: Summed,
    criterion: Criterion,
    min_leaf: int,
) -> tuple[Splits, np.ndarray]:
    """Each node's best split by summed statistics (paper, Eq. 6).

    Args:
        cuts: candidates of the numeric pairs, shape (pairs, cuts).
        constant: which numeric pairs have but one value.
        bins, groups: statistics between the cuts, and of categories.
        criterion: the impurity.
        min_leaf: fewest records of a side.

    Returns:
        the splits, and the nodes all of whose features have but one value.
    """
    numeric = _best_cuts(bins, criterion, min_leaf)
    by_group = groups.total()
    grouped, chosen = best_subset(by_group, criterion, min_leaf)
    found = BestSplits(
        level,
        cuts,
        numeric.place,
        chosen,
        np.concatenate([np.where(constant, -np.inf, numeric.gain), grouped.gain]),
        np.concatenate([constant, lone(by_group, criterion)]),
    )
    picked = found.picked()
    left = _left_of_cuts(bins, picked, len(level.numeric), numeric.place)
    if len(level.grouped):
        left = left + _left_of_groups(groups, picked, len(level.numeric), chosen)
    return replace(found.splits(picked, bins.counts.clients), left=left), found.nothing


def _best_cuts(bins: Summed, criterion: Criterion, min_leaf: int) -> Best:
    """The best cut of every pair; of a portion of the pairs at a time."""
    found = [best_cut(bins.total(own), criterion, min_leaf) for own in bins.counts.portions()]
    return Best(*(np.concatenate([getattr(b, name) for b in found]) for name in ("gain", "place")))


def averaged_splits(
    level: OpenNodes,
    cuts: np.ndarray,
    constant: np.ndarray,
    local: np.ndarray,
    weights: np.ndarray,
    groups: np.ndarray,
    criterion: Criterion,
    min_leaf: int,
) -> tuple[Splits, np.ndarray]:
    """Each node's best split by the clients' averaged local decreases (AvgImp; paper, Section 3.2).

    No left side is released: the candidates' ranks stand in for its size, and the children's totals are
    asked for in the next round.

    Args:
        level, cuts, constant, criterion, min_leaf: as for :func:`exact_splits`.
        local: the clients' decreases at each cut, shape (clients, pairs, cuts).
        weights: records of each client at each node, shape (clients, nodes).
        groups: statistics of categories by client, shape (clients, pairs, categories, statistics).
    """
    own = weights[:, level.numeric.nodes]
    worth = (local * own[:, :, None]).sum(axis=0)
    rank = np.arange(1, cuts.shape[1] + 1) / (cuts.shape[1] + 1)
    fewest = np.minimum(rank, 1 - rank) * own.sum(axis=0)[:, None]
    worth = np.where((fewest >= min_leaf) & ~constant[:, None], worth, -np.inf)
    place = worth.argmax(axis=1)
    by_group, chosen = averaged_subset(groups, criterion, min_leaf)
    found = BestSplits(
        level,
        cuts,
        place,
        chosen,
        np.concatenate([worth[np.arange(len(worth)), place], by_group]),
        np.concatenate([constant, lone(groups.sum(axis=0), criterion)]),
    )
    return found.splits(found.picked(), len(weights)), found.nothing


def with_clients(
    splits: Splits, totals: np.ndarray, features: int, criterion: Criterion, min_leaf: int
) -> Splits:
    """Replace splits that gain less than a division of the clients (Section 3.2), by known totals."""
    best, chosen = best_subset(totals.transpose(1, 0, 2), criterion, min_leaf)
    better = best.gain > splits.gain
    sets = splits.chosen.copy()
    sets[better] = False
    sets[better, : len(totals)] = chosen[better]
    left = None
    if splits.left is not None:
        left = np.where(better[:, None], totals * chosen.T[:, :, None], splits.left)
    return Splits(
        splits.nodes,
        np.where(better, features, splits.feature),
        np.where(better, np.float32(0), splits.cut),
        sets,
        splits.grouped | better,
        np.where(better, best.gain, splits.gain),
        left,
    )


def lone(groups: np.ndarray, criterion: Criterion) -> np.ndarray:
    """Which categorical pairs have records of one category alone."""
    return np.asarray((sizes(groups, criterion) > 0).sum(axis=1) < 2)


def _left_of_cuts(bins: Summed, picked: np.ndarray, numbers: int, place: np.ndarray) -> np.ndarray:
    """Left statistics of the picked numeric pairs by client, zero for other nodes."""
    by_cut = np.flatnonzero((picked >= 0) & (picked < numbers))
    pairs = picked[by_cut]
    order = np.argsort(pairs, kind="stable")
    each = bins.at(pairs[order])
    inside = np.arange(each.shape[2]) <= place[pairs[order]][:, None]
    left = np.zeros((len(each), len(picked), each.shape[3]), np.int64)
    for number in range(each.shape[3]):  # one statistic at a time: sums over a last axis are quick
        left[:, by_cut[order], number] = (each[..., number] * inside).sum(axis=2)
    return left


def _left_of_groups(
    groups: Summed, picked: np.ndarray, numbers: int, chosen: np.ndarray
) -> np.ndarray:
    """Left statistics of the picked categorical pairs by client, zero for other nodes."""
    by_set = np.flatnonzero(picked >= numbers)
    pairs = picked[by_set] - numbers
    order = np.argsort(pairs, kind="stable")
    each = groups.at(pairs[order])
    left = np.zeros((len(each), len(picked), each.shape[3]), np.int64)
    left[:, by_set[order]] = (each * chosen[pairs[order]][None, :, :, None]).sum(axis=2)
    return left


def averaged_subset(
    groups: np.ndarray, criterion: Criterion, min_leaf: int
) -> tuple[np.ndarray, np.ndarray]:
    """Summed local decreases of the best division in two along the pooled Fisher order.

    `groups` has shape (clients, pairs, categories, statistics). Returns decrease times records of each
    pair, and the categories that go left.
    """
    pooled = groups.sum(axis=0)
    order, ranks = fisher_order(pooled, criterion)
    upto = np.cumsum(np.take_along_axis(groups, order[None, :, :, None], axis=2), axis=2)
    local = decreases(upto[:, :, :-1], upto[:, :, -1], criterion)
    size = sizes(upto.sum(axis=0), criterion)
    allowed = np.minimum(size[:, :-1], size[:, -1:] - size[:, :-1]) >= min_leaf
    worth = np.where(allowed, np.where(np.isfinite(local), local, 0).sum(axis=0), -np.inf)
    place = worth.argmax(axis=1) if worth.size else np.zeros(len(worth), np.int64)
    if not worth.shape[1]:
        return np.full(len(worth), -np.inf), ranks <= place[:, None]
    return worth[np.arange(len(worth)), place], ranks <= place[:, None]


def split_trees(trees: BinaryTrees, splits: Splits, first: np.ndarray) -> BinaryTrees:
    """Trees with some leaves split; the children of the i-th are ``first[i]`` and the next."""
    new = 2 * len(splits.nodes)
    feature = np.concatenate([trees.feature, np.full(new, LEAF, np.int32)])
    cut = np.concatenate([trees.cut, np.zeros(new, np.float32)])
    left = np.concatenate([trees.left, np.zeros(new, np.int32)])
    subset = np.concatenate([trees.subset, np.full(new, -1, np.int32)])
    feature[splits.nodes], cut[splits.nodes], left[splits.nodes] = splits.feature, splits.cut, first
    added = splits.chosen[splits.grouped]
    width = max(trees.subsets.shape[1], splits.chosen.shape[1])
    subsets = np.zeros((len(trees.subsets) + len(added), width), bool)
    subsets[: len(trees.subsets), : trees.subsets.shape[1]] = trees.subsets
    subsets[len(trees.subsets) :, : splits.chosen.shape[1]] = added
    subset[splits.nodes[splits.grouped]] = len(trees.subsets) + np.arange(len(added))
    return BinaryTrees(
        trees.roots, feature, cut, left, subset, subsets if len(subsets) else trees.subsets
    )
