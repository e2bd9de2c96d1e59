"""The splits of open nodes: the best of all pairs, by summed statistics or by averaged gains."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from privfed.learners.forest.gains import best_cut, best_subset, decreases, fisher_order
from privfed.learners.forest.level import OpenNodes
from privfed.learners.forest.level_queries import Summed
from privfed.learners.forest.trees import BinaryTrees
from privfed.learners.impurity import Criterion, sizes


@dataclass(frozen=True, eq=False)
class Splits:
    """The splits of some open nodes."""

    nodes: np.ndarray  #: the nodes, shape (splits,)
    feature: np.ndarray  #: shape (splits,); the number of features for the client
    cut: np.ndarray  #: shape (splits,); zero for subsets
    #: categories or clients that go left, shape (splits, width); all false for numbers
    chosen: np.ndarray
    grouped: np.ndarray  #: whether the split is by subset, shape (splits,)
    gain: np.ndarray  #: impurity decrease times records, minus infinity for none, shape (splits,)
    #: statistics of the left side by client, shape (clients, splits, statistics); None if withheld
    left: np.ndarray | None = None

    def only(self, kept: np.ndarray) -> Splits:
        """Return some of the splits."""
        names = ("nodes", "feature", "cut", "chosen", "grouped", "gain")
        left = None if self.left is None else self.left[:, kept]
        return replace(self, **{name: getattr(self, name)[kept] for name in names}, left=left)


@dataclass(frozen=True, eq=False)
class BestSplits:
    """The best split of each pair of a level, numeric pairs first."""

    level: OpenNodes  #: the open nodes
    cuts: np.ndarray  #: candidates of the numeric pairs, shape (numeric pairs, cuts)
    index: np.ndarray  #: of the best, shape (numeric pairs,)
    chosen: np.ndarray  #: categories that go left, shape (categorical pairs, width)
    gain: np.ndarray  #: impurity decrease times records, shape (pairs,)
    constant: np.ndarray  #: which pairs have only one value, shape (pairs,)

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
        """The pair of largest decrease of each node, -1 for none; ties: the first feature."""
        node = self.node
        order = np.lexsort((self.feature, -self.gain, node))
        best = order[np.flatnonzero(np.diff(node[order], prepend=-1))]
        some = best[np.isfinite(self.gain[best])]
        pair = np.full(len(self.level.nodes), -1)
        pair[node[some]] = some
        return pair

    def splits(self, picked: np.ndarray, width: int) -> Splits:
        """Return the picked pairs' splits, with subsets at least ``width`` wide."""
        numbers, nodes = len(self.level.numeric), len(picked)
        some = np.flatnonzero(picked >= 0)
        by_cut, by_set = (some[picked[some] < numbers], some[picked[some] >= numbers])
        feature, cut = np.zeros(nodes, np.int64), np.zeros(nodes, np.float32)
        gain = np.full(nodes, -np.inf)
        sets = np.zeros((nodes, max(width, self.chosen.shape[1])), bool)
        feature[some], gain[some] = self.feature[picked[some]], self.gain[picked[some]]
        cut[by_cut] = self.cuts[picked[by_cut], self.index[picked[by_cut]]]
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
    """Return each node's best split by summed statistics (paper, Eq. 6).

    Args:
        cuts: candidates of the numeric pairs, shape (pairs, cuts).
        constant: which numeric pairs have only one value.
        bins, groups: statistics between the cuts, and of categories.
        criterion: the impurity.
        min_leaf: fewest records of a side.

    Returns:
        the splits, and the nodes whose features all have only one value.
    """
    best = [best_cut(bins.total(p), criterion, min_leaf) for p in bins.counts.portions()]
    gain, index = (np.concatenate([getattr(b, name) for b in best]) for name in ("gain", "index"))
    subsets = [_best_subset(groups.total(p), criterion, min_leaf) for p in groups.counts.portions()]
    by_group, chosen, alone = map(np.concatenate, zip(*subsets, strict=True))
    splits = BestSplits(
        level,
        cuts,
        index,
        chosen,
        np.concatenate([np.where(constant, -np.inf, gain), by_group]),
        np.concatenate([constant, alone]),
    )
    picked = splits.picked()
    left = _left(bins, picked, np.arange(cuts.shape[1] + 1) <= index[:, None])
    if len(level.grouped):
        left += _left(groups, np.where(picked >= 0, picked - len(index), -1), chosen)
    return replace(splits.splits(picked, bins.counts.clients), left=left), splits.nothing


def _best_subset(
    groups: np.ndarray, criterion: Criterion, min_leaf: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return categorical pairs' gains, the categories that go left, and which pairs have only one."""
    best, chosen = best_subset(groups, criterion, min_leaf)
    return best.gain, chosen, lone(groups, criterion)


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
    """Return each node's best split by the clients' averaged local decreases (AvgImp; paper, Section 3.2).

    No left side is released: its size is approximated by the candidates' ranks, and the children's totals are queried
    in the next round.

    Args:
        level, cuts, constant, criterion, min_leaf: as for :func:`exact_splits`.
        local: the clients' decreases at each cut, shape (clients, pairs, cuts).
        weights: records of each client at each node, shape (clients, nodes).
        groups: statistics of categories by client, shape (clients, pairs, categories, statistics).
    """
    weight = weights[:, level.numeric.nodes]
    gain = (local * weight[:, :, None]).sum(axis=0)
    rank = np.arange(1, cuts.shape[1] + 1) / (cuts.shape[1] + 1)
    fewest = np.minimum(rank, 1 - rank) * weight.sum(axis=0)[:, None]
    gain = np.where((fewest >= min_leaf) & ~constant[:, None], gain, -np.inf)
    index = gain.argmax(axis=1)
    by_group, chosen = averaged_subset(groups, criterion, min_leaf)
    splits = BestSplits(
        level,
        cuts,
        index,
        chosen,
        np.concatenate([gain[np.arange(len(gain)), index], by_group]),
        np.concatenate([constant, lone(groups.sum(axis=0), criterion)]),
    )
    return splits.splits(splits.picked(), len(weights)), splits.nothing


def with_clients(
    splits: Splits, totals: np.ndarray, features: int, criterion: Criterion, min_leaf: int
) -> Splits:
    """Replace splits that gain less than a split of the clients (Section 3.2), by known totals."""
    best, chosen = best_subset(totals.transpose(1, 0, 2), criterion, min_leaf)
    better = best.gain > splits.gain
    sets = splits.chosen & ~better[:, None]
    sets[better, : len(totals)] = chosen[better]
    left = splits.left
    return Splits(
        splits.nodes,
        np.where(better, features, splits.feature),
        np.where(better, np.float32(0), splits.cut),
        sets,
        splits.grouped | better,
        np.where(better, best.gain, splits.gain),
        left if left is None else np.where(better[:, None], totals * chosen.T[:, :, None], left),
    )


def lone(groups: np.ndarray, criterion: Criterion) -> np.ndarray:
    """Return which categorical pairs have records of only one category."""
    return np.asarray((sizes(groups, criterion) > 0).sum(axis=1) < 2)


def _left(statistics: Summed, picked: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Return statistics of the picked pairs' left cells by client, shape (clients, nodes, statistics).

    Args:
        statistics: by pair and cell.
        picked: each node's pair; zeros for nodes of a pair out of range.
        inside: the cells that go left, shape (pairs, cells).
    """
    nodes = np.flatnonzero((picked >= 0) & (picked < len(inside)))
    nodes = nodes[np.argsort(picked[nodes], kind="stable")]
    cell = statistics.at(picked[nodes])
    left = np.zeros((len(cell), len(picked), cell.shape[3]), np.int64)
    for number in range(cell.shape[3]):  # one statistic at a time: sums over the last axis are fast
        left[:, nodes, number] = (cell[..., number] * inside[picked[nodes]]).sum(axis=2)
    return left


def averaged_subset(
    groups: np.ndarray, criterion: Criterion, min_leaf: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return summed local decreases of the best binary split along the pooled Fisher order.

    For `groups`, shape (clients, pairs, categories, statistics): decrease times records of each
    pair, and the categories that go left.
    """
    pooled = groups.sum(axis=0)
    order, ranks = fisher_order(pooled, criterion)
    cumulative = np.cumsum(np.take_along_axis(groups, order[None, :, :, None], axis=2), axis=2)
    local = decreases(cumulative[:, :, :-1], cumulative[:, :, -1], criterion)
    size = sizes(cumulative.sum(axis=0), criterion)
    allowed = np.minimum(size[:, :-1], size[:, -1:] - size[:, :-1]) >= min_leaf
    gain = np.where(allowed, np.where(np.isfinite(local), local, 0).sum(axis=0), -np.inf)
    if not gain.shape[1]:
        return np.full(len(gain), -np.inf), ranks <= 0
    index = gain.argmax(axis=1)
    return gain[np.arange(len(gain)), index], ranks <= index[:, None]


def split_trees(trees: BinaryTrees, splits: Splits, first: np.ndarray) -> BinaryTrees:
    """Return trees with some leaves split; the children of the i-th are ``first[i]`` and the next."""
    none = BinaryTrees.stumps(2 * len(splits.nodes))
    feature, cut, left, subset = (
        np.concatenate([getattr(trees, name), getattr(none, name)])
        for name in ("feature", "cut", "left", "subset")
    )
    feature[splits.nodes], cut[splits.nodes], left[splits.nodes] = splits.feature, splits.cut, first
    added = splits.chosen[splits.grouped]
    width = max(trees.subsets.shape[1], splits.chosen.shape[1])
    subsets = np.zeros((len(trees.subsets) + len(added), width), bool)
    subsets[: len(trees.subsets), : trees.subsets.shape[1]] = trees.subsets
    subsets[len(trees.subsets) :, : splits.chosen.shape[1]] = added
    subset[splits.nodes[splits.grouped]] = len(trees.subsets) + np.arange(len(added))
    subsets = subsets if len(subsets) else trees.subsets
    return BinaryTrees(trees.roots, feature, cut, left, subset, subsets)
