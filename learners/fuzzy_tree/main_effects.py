"""Splits of a private tree on features whose effects are no lines; post-processing of releases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from privfed.learners.fuzzy_tree.fuzzy import Peaks
from privfed.learners.fuzzy_tree.growth import FuzzyNode, LevelSums, branch_out
from privfed.learners.fuzzy_tree.partitions import Partition
from privfed.learners.fuzzy_tree.settings import SETTINGS


@dataclass(eq=False)
class GrownTree:
    """A tree grown from noisy sums, and what the root's sums allow to grow in its place."""

    root: FuzzyNode
    candidates: tuple[int, ...]  #: features that it may split on
    uniform: tuple[Peaks, ...]  #: peaks of each feature's uniform sets
    sets: tuple[Peaks, ...]  #: the same of the sets that it splits on
    #: the root's by the candidates' finest sets, and these sets' peaks by feature; None if not released
    sums: tuple[LevelSums, tuple[Peaks, ...]] | None
    depth: int | None  #: maximum splits on a path
    regrown: bool = False  #: whether it was split again, on features whose effects are no lines

    @property
    def leaves(self) -> list[FuzzyNode]:
        """The leaves."""
        nodes = [self.root]
        for node in nodes:  # which grows, breadth first
            nodes.extend(node.children.values())
        return [node for node in nodes if node.leaf]

    @property
    def regular(self) -> bool:
        """Whether it splits on uniform sets, and at most once on a path."""
        return self.sets == self.uniform and all(leaf.path[1:] == () for leaf in self.leaves)

    @property
    def apart(self) -> float:
        """How far the mean targets of leaves with sets of few records are from that of all; else 0."""
        if self.sets == self.uniform:
            return 0.0
        return max((abs(leaf.mean - self.root.mean) for leaf in self.leaves), default=0.0)

    def records(self, index: int) -> np.ndarray:
        """Return the number of records by uniform set of one candidate, at least 0."""
        feature = self.candidates[index]
        cells = self._by(feature, self.uniform[feature]).cells
        return np.asarray(np.maximum(cells.weights[0, 0], 0.0))

    def split_on(self, features: Sequence[int]) -> None:
        """Grow again, all branches split on the first of these features, then on the next, while the leaves are few.

        A tree stays as it is without such features, or if it has other sets or several levels. Without interactions,
        means add up; for independent features, weights multiply.
        """
        if not features or not self.regular or self.sums is None or self.depth == 0:
            return
        self.regrown = True
        chosen = self._sets_of(features[: self.depth])
        self.sets = tuple(chosen.get(f, peaks) for f, peaks in enumerate(self.uniform))
        root = self.root = FuzzyNode((), self.root.mean, self.root.weight)
        leaves = [root]
        for feature, peaks in chosen.items():
            alone = self._split(feature, peaks)
            if alone.leaf:  # in no set do records stand out from noise
                continue
            for node in leaves:
                node.feature = feature
                for branch, other in alone.children.items():
                    mean = node.mean + other.mean - root.mean
                    weight = node.weight * other.weight / max(root.weight, 1e-12)
                    node.children[branch] = FuzzyNode((*node.path, (feature, branch)), mean, weight)
            leaves = [child for node in leaves for child in node.children.values()]

    def _sets_of(self, features: Sequence[int]) -> dict[int, Peaks]:
        """Return sets of as many features as give few leaves: uniform ones, or the lowest, middle and highest of them."""
        for count in range(min(len(features), SETTINGS.max_splits), 0, -1):
            full = {feature: self.uniform[feature] for feature in features[:count]}
            for sets in (full, {f: _coarser(peaks) for f, peaks in full.items()}):
                if math.prod(map(len, sets.values())) <= SETTINGS.max_leaves:
                    return sets
        return {features[0]: self.uniform[features[0]]}

    def _split(self, feature: int, peaks: Peaks) -> FuzzyNode:
        """Return the root, split on one candidate."""
        root = FuzzyNode((), self.root.mean, self.root.weight)
        branch_out(root, feature, self._by(feature, peaks), (0, 0))
        return root

    def _by(self, feature: int, peaks: Peaks) -> LevelSums:
        """Return the root's sums by sets with some of the finest peaks of one candidate."""
        assert self.sums is not None
        sums, finest = self.sums
        return Partition(peaks).sums(finest[feature], sums, self.candidates.index(feature))


def _coarser(peaks: Peaks) -> Peaks:
    """Return the first, the middle and the last of an odd number of peaks."""
    return peaks[:: len(peaks) // 2] if len(peaks) % 2 else peaks


def beyond_line(
    sums: np.ndarray, noise: float, weights: np.ndarray, peaks: Sequence[float], variance: float
) -> tuple[float, float]:
    """Return how much the means of one feature's sets explain beyond a line, and the p-value of a line.

    Leaves are linear, so that a line needs no split. Explained is the sum of squares of departures from the line, less
    what is expected of chance; the test is chi-square. Each mean has the variance of noise and of sampling, that of half
    of its records, as most records belong to two sets.

    Args:
        sums: residuals by set, shape (sets,).
        noise: std of the noise in each sum.
        weights: records by set.
        peaks: of the sets.
        variance: of the residuals.
    """
    known = weights > SETTINGS.min_records
    degrees = int(known.sum()) - 2
    if degrees < 1:
        return 0.0, 1.0
    w = weights[known]
    variances = (noise / w) ** 2 + variance / (2 * w)
    design = np.column_stack([np.ones(len(w)), np.array(peaks)[known]])
    scaled, means = design / np.sqrt(variances)[:, None], sums[known] / w / np.sqrt(variances)
    left = means - scaled @ np.linalg.lstsq(scaled, means, rcond=None)[0]
    chi_square = float(left @ left)
    explained = float(w @ (left**2 * variances)) * max(1 - degrees / max(chi_square, 1e-12), 0.0)
    return explained, float(chdtrc(degrees, chi_square))
