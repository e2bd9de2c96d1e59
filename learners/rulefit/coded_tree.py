"""Regression trees over cut-off codes, best split first: scikit-learn's with ``max_leaf_nodes``.

But ties go to the first covariate of an order, and splits that explain nothing are not made.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

EXPLAINED = 1e-12  #: Least decrease of squared error by a split, for each of its records


@dataclass(frozen=True)
class LeafSplit:
    """Records of `leaf` with a code of at least `cut` go to a new leaf, which gets the next number."""

    leaf: int
    feature: int
    cut: int


@dataclass(frozen=True, eq=False)
class CodedTree:
    """A tree as the splits that made it, in order, and the mean of each leaf, shape (splits + 1,)."""

    splits: tuple[LeafSplit, ...]
    values: np.ndarray

    def predict(self, codes: np.ndarray) -> np.ndarray:
        """Each record's value; ``codes`` has shape (features, records)."""
        leaves = np.zeros(codes.shape[1], np.intp)
        for number, split in enumerate(self.splits, start=1):
            above = codes[split.feature] >= split.cut
            if number > 1:  # else every record is in the leaf
                above &= leaves == split.leaf
            np.putmask(leaves, above, number)
        return np.asarray(self.values[leaves])

    def boxes(self, sizes: np.ndarray) -> np.ndarray:
        """The boxes of all nodes but the root, uint8, shape (2 splits, features, 2)."""
        whole = np.zeros((len(sizes), 2), np.uint8)
        whole[:, 1] = sizes
        leaves, nodes = [whole], np.empty((len(self.splits), 2, len(sizes), 2), np.uint8)
        for split, (below, above) in zip(self.splits, nodes, strict=True):
            below[:] = above[:] = leaves[split.leaf]
            below[split.feature, 1] = above[split.feature, 0] = split.cut
            leaves[split.leaf] = below
            leaves.append(above)
        return nodes.reshape(-1, len(sizes), 2)


@dataclass(frozen=True, eq=False)
class _Best:
    """The best split of a leaf, and how much it lowers the sum of squared errors."""

    gain: float
    feature: int
    cut: int


@dataclass(frozen=True, eq=False)
class Growing:
    """Trees of some records."""

    codes: np.ndarray  #: cut-off codes, uint8, shape (records, features)
    target: np.ndarray  #: what is fitted, shape (records,)
    least: int  #: fewest records of a leaf
    order: np.ndarray  #: the covariates, those first that win ties

    def tree(self, leaves: int) -> CodedTree:
        """Split the leaf that gains most, until there are so many leaves or none gains."""
        rows = [np.arange(len(self.target))]
        best = [self._best(rows[0])]
        splits: list[LeafSplit] = []
        while len(rows) < leaves:
            leaf = max(range(len(best)), key=lambda own: best[own].gain)
            chosen = best[leaf]
            if chosen.gain <= 0:
                break
            splits.append(LeafSplit(leaf, chosen.feature, chosen.cut))
            above = self.codes[rows[leaf], chosen.feature] >= chosen.cut
            rows.append(rows[leaf][above])
            rows[leaf] = rows[leaf][~above]
            if len(rows) < leaves:
                best[leaf] = self._best(rows[leaf])
                best.append(self._best(rows[-1]))
        values = np.array([self.target[own].sum() / len(own) for own in rows])
        return CodedTree(tuple(splits), values)

    @cached_property
    def _width(self) -> int:
        return int(self.codes.max()) + 1

    @cached_property
    def _places(self) -> np.ndarray:
        """Each record's place among the codes of all covariates in order, shape (records, features)."""
        starts = np.arange(len(self.order)) * self._width
        return np.asarray(self.codes[:, self.order] + starts)

    def _best(self, rows: np.ndarray) -> _Best:
        many, features = len(rows), len(self.order)
        nothing = _Best(0.0, 0, 0)
        if many < 2 * self.least:
            return nothing
        places, target = self._places[rows].ravel(), self.target[rows]
        shape, size = (features, self._width), features * self._width
        counts = np.bincount(places, None, size).reshape(shape)
        sums = np.bincount(places, target.repeat(features), size).reshape(shape)
        below, told, total = counts.cumsum(axis=1), sums.cumsum(axis=1), float(target.sum())
        both = below * (many - below)
        # of both sides' squared sums over their counts, less the whole's: one square by one product
        gains = (many * told - below * total) ** 2 / (np.maximum(both, 1) * many)
        gains[both < self.least * (many - self.least)] = 0.0  # fewer than least on one of the sides
        place, code = divmod(int(gains.argmax()), self._width)
        gain = float(gains[place, code])
        if gain <= EXPLAINED * many:
            return nothing
        following = code + 1 + int((counts[place, code + 1 :] > 0).argmax())
        return _Best(gain, int(self.order[place]), (code + following) // 2 + 1)
