"""A tree grown from released noisy counts, level by level, as post-processing at no privacy cost."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from privfed.learners.impurity import neg_weighted_impurity
from privfed.questions.tree import Tree


@dataclass(frozen=True, eq=False)
class NoisySplit:
    """A split: a feature (index among the queried ones), an edge's index, and the counts on both sides."""

    feature: int
    edge: int
    gain: float
    below: np.ndarray


@dataclass(frozen=True)
class SplitCriterion:
    """Conditions for splitting a node."""

    min_records: float = 15.0  #: minimum records of a child, by the noisy counts
    noise_stds: float = 1.0  #: minimum records of a child, in standard deviations of a node's noise
    #: values of the classes, for the squared error of a numeric target; empty for Gini impurity
    class_values: tuple[float, ...] | None = None


def best_split(
    counts: np.ndarray, edges: np.ndarray, variance: float, rule: SplitCriterion
) -> NoisySplit | None:
    """Return the best split of one node by :func:`gains`; None without a gain."""
    table = gains(counts, edges, variance, rule)
    feature, edge = np.unravel_index(int(table.argmax()), table.shape)
    gain = float(table[feature, edge])
    if not gain > 0:
        return None
    sides = counts[feature, : edge + 1].sum(axis=0), counts[feature, edge + 1 :].sum(axis=0)
    return NoisySplit(int(feature), int(edge), gain, np.stack(sides))


def gains(
    counts: np.ndarray, edges: np.ndarray, variance: float, rule: SplitCriterion
) -> np.ndarray:
    """Return each split's gain, minus infinity if a child is too small, shape (features, bins - 1).

    Args:
        counts: noisy counts, shape (features, bins, classes).
        edges: of the features' bins, increasing, then infinite; shape (features, bins - 1).
        variance: of the noise of one cell.
        rule: when to split.
    """
    bins, classes = counts.shape[1:]
    left = np.cumsum(counts, axis=1)[:, :-1]
    right = counts.sum(axis=1, keepdims=True) - left
    n = np.arange(1, bins)
    minimum = max(rule.min_records, rule.noise_stds * float(np.sqrt(variance * bins * classes)))
    fine = np.isfinite(edges) & (left.sum(axis=2) > minimum) & (right.sum(axis=2) > minimum)
    sides = _quality(left, n * variance, rule) + _quality(right, (bins - n) * variance, rule)
    before = _quality(counts.sum(axis=1), np.array(bins * variance), rule).mean()
    return np.asarray(np.where(fine, sides - before, -np.inf))


def _quality(counts: np.ndarray, variance: np.ndarray, rule: SplitCriterion) -> np.ndarray:
    """Return minus weighted impurity, up to a constant, corrected for the noise's mean contribution.

    A noisy count c of a class with fraction p is p n + r, with the noisy n and r = e_c - p sum(e). So c^2 / n is p^2 n
    + 2 p r + r^2 / n, of which only the last is biased, by the variance of r: v ((1 - p)^2 + (C - 1) p^2). Likewise for
    a sum of values w: v sum (w - mean)^2.

    Args:
        counts: noisy counts, classes last.
        variance: v, of the noise of each of a side's counts.
        rule: values of the classes.
    """
    classes, records = counts.shape[-1], counts.sum(axis=-1)
    size = np.maximum(records, 1.0)[..., None]
    if rule.class_values is None:
        fractions = np.clip(counts / size, 0, 1)
        excess = classes - 2 + classes * (fractions**2).sum(axis=-1)
        return neg_weighted_impurity(counts, "gini", variance * excess)
    values = np.array(rule.class_values)
    statistics = np.stack([records, (counts * values).sum(axis=-1)], axis=-1)
    excess = ((values - statistics[..., 1:] / size) ** 2).sum(axis=-1)
    return neg_weighted_impurity(statistics, "squared_error", variance * excess)


@dataclass
class NoisyNode:
    """Noisy class counts of a node; `sound` if released after the split that chose it, and so unbiased."""

    counts: np.ndarray
    variance: float
    sound: bool
    feature: int = -1
    cut: float = 0.0
    children: tuple[int, int] = (-1, -1)

    def combine(self, counts: np.ndarray, variance: float) -> None:
        """Combine further counts with the known ones, weighted by precision."""
        if not self.sound:
            self.counts, self.variance, self.sound = counts, variance, True
            return
        total = self.variance + variance
        weight = variance / total if total else 0.5
        self.counts = weight * self.counts + (1 - weight) * counts
        self.variance = self.variance * weight


@dataclass
class NoisyTreeGrower:
    """A growing tree, with its nodes' noisy counts by class (or bin of a numeric target)."""

    classes: int
    nodes: list[NoisyNode] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.nodes:
            self.nodes = [NoisyNode(np.zeros(self.classes), 0.0, sound=False)]

    def level(
        self,
        nodes: Sequence[int],
        counts: np.ndarray,
        features: np.ndarray,
        edges: np.ndarray,
        variance: float,
        rule: SplitCriterion,
    ) -> list[int]:
        """Split open nodes by releases about them; return the new open nodes.

        Args:
            nodes, features: the open nodes, and the queried features' numbers.
            counts: shape (nodes, features, bins, classes).
            edges, variance, rule: as for :func:`gains`.
        """
        opened: list[int] = []
        bins = counts.shape[2]
        for node, cells in zip(nodes, counts, strict=True):
            node_var = variance * bins / len(features)
            self.nodes[node].combine(cells.sum(axis=1).mean(axis=0), node_var)
            split = best_split(cells, edges, variance, rule)
            if split is not None:
                cut = float(edges[split.feature, split.edge])
                widths = split.edge + 1, bins - split.edge - 1
                sides = [
                    NoisyNode(side, variance * width, sound=False)
                    for side, width in zip(split.below, widths, strict=True)
                ]
                opened += self._split(node, int(features[split.feature]), cut, sides)
        return opened

    def _split(self, node: int, feature: int, cut: float, sides: Sequence[NoisyNode]) -> list[int]:
        new = [len(self.nodes), len(self.nodes) + 1]
        parent = self.nodes[node]
        parent.feature, parent.cut, parent.children = feature, cut, (new[0], new[1])
        self.nodes += sides
        return new

    @property
    def tree(self) -> Tree:
        """The grown tree."""
        left, right = np.array([node.children for node in self.nodes]).T
        features, cuts = zip(*((node.feature, node.cut) for node in self.nodes), strict=True)
        return Tree.binary(np.array(features), np.array(cuts), left, right)

    @property
    def fractions(self) -> np.ndarray:
        """Class fractions of each node, shape (nodes, classes); the parent's if no count is positive."""
        totals = np.maximum([node.counts for node in self.nodes], 0.0)
        fractions = np.full(totals.shape, 1 / self.classes)
        for number, node in enumerate(self.nodes):
            if totals[number].any():
                fractions[number] = totals[number] / totals[number].sum()
            fractions[[child for child in node.children if child >= 0]] = fractions[number]
        return fractions

    def smoothed(self, weight: float) -> np.ndarray:
        """Return class fractions of each node, shrunk to its parent's, shape (nodes, classes).

        The parent's have the weight of `weight` records, and the node's own an effective number: n records with noise
        of variance v determine a fraction as precisely as n' = n^2 q / (n q + v s) without, where q = sum p (1 - p) is
        the variance of one record's class and s = C - 2 + C sum p^2 that of the noise in a fraction's numerator (see
        _quality), both at the parent's p. The root's parent is equal fractions of one record (Perks 1947).
        """
        fractions = np.full((len(self.nodes), self.classes), 1 / self.classes)
        for number, node in enumerate(self.added_up()):
            prior, size = fractions[number], float(node.counts.sum())
            squares = float((prior**2).sum())
            q, noise = 1 - squares, self.classes - 2 + self.classes * squares
            n_eff = size**2 * q / (size * q + node.variance * noise) if size > 0 else 0.0
            if n_eff > 0:
                clipped = np.maximum(node.counts, 0.0)
                w = weight if number else 1.0
                fractions[number] = (n_eff * clipped / clipped.sum() + w * prior) / (n_eff + w)
            fractions[[child for child in node.children if child >= 0]] = fractions[number]
        return fractions

    def added_up(self) -> list[NoisyNode]:
        """Return the nodes, each combined with the sum of its children's counts."""
        nodes = [replace(node) for node in self.nodes]
        for node in reversed(nodes):
            children = [nodes[child] for child in node.children if child >= 0]
            if children and all(child.sound for child in children):
                left, right = children
                node.combine(left.counts + right.counts, left.variance + right.variance)
        return nodes


def quantile_edges(edges: np.ndarray, counts: np.ndarray, bins: int) -> np.ndarray:
    """Return at most bins - 1 increasing inner edges at equal mass, assumed uniform between old edges.

    `edges` are old ones with both ends of the range, increasing, shape (old bins + 1,); `counts` noisy ones between.
    """
    mass = np.maximum(counts, 0.0) + 1e-9
    cdf = np.concatenate([[0.0], np.cumsum(mass) / mass.sum()])
    inner = np.interp(np.arange(1, bins) / bins, cdf, edges)
    return np.unique(inner[(inner > edges[0]) & (inner < edges[-1])])


def bin_means(edges: np.ndarray, counts: np.ndarray, inner: np.ndarray) -> np.ndarray:
    """Return the mean value in each new bin between the edges `inner`; other arguments as :func:`quantile_edges`."""
    mass = np.maximum(counts, 0.0) + 1e-9
    ends = np.unique(np.concatenate([edges, inner]))
    pieces = np.diff(np.interp(ends, edges, np.concatenate([[0.0], np.cumsum(mass)])))
    middles = (ends[1:] + ends[:-1]) / 2
    bins = np.searchsorted(inner, middles)
    weights = np.bincount(bins, pieces, minlength=len(inner) + 1)
    return np.asarray(np.bincount(bins, pieces * middles, minlength=len(inner) + 1) / weights)


def padded(rows: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Stack rows of edges, padded with infinity; shape (rows, width)."""
    array = np.full((len(rows), width), np.inf)
    for row, edges in zip(array, rows, strict=True):
        row[: len(edges)] = edges
    return array


def full_tree(depth: int) -> Tree:
    """Return a full tree of a depth with arbitrary cuts, the shape of a level's query."""
    nodes = 2 ** (depth + 1) - 1
    number = np.arange(nodes)
    feature = np.where(number < nodes // 2, 0, -1)
    return Tree.binary(feature, np.zeros(nodes), 2 * number + 1, 2 * number + 2)
