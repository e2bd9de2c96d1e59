"""Boosted rules at the shared cut-offs (paper, Algorithm 1; Friedman and Popescu 2008, Section 3.3)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import logit

from privfed.learners.rulefit.averaging import residuals


@dataclass(frozen=True)
class Boosting:
    """Parameters of boosting."""

    trees: int  #: number of base learners C
    leaves: float  #: mean number of leaves L of a tree; 2: stumps
    shrinkage: float  #: learning rate nu
    subsample: float  #: fraction of records for each tree; 0: min(N / 2, 100 + 6 sqrt N)
    min_leaf: int  #: minimum records of a leaf
    logistic: bool  #: logistic pseudo-residuals, else residuals

    def drawn(self, records: int) -> int:
        """Return the number of records for each tree."""
        if self.subsample:
            return max(1, round(self.subsample * records))
        return max(1, int(min(records / 2, 100 + 6 * np.sqrt(records))))

    def start(self, target: np.ndarray) -> float:
        """Return the best constant: the log-odds (bounded for a client with one class), or the mean."""
        if not self.logistic:
            return float(target.mean())
        return float(logit(np.clip(target.mean(), 1e-6, 1 - 1e-6)))

    def residuals(self, target: np.ndarray, score: np.ndarray) -> np.ndarray:
        """Return the (pseudo-)residuals for the next tree."""
        return residuals(target, score, self.logistic)


def grow_rules(
    codes: np.ndarray,
    target: np.ndarray,
    sizes: np.ndarray,
    boosting: Boosting,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Boost trees over codes, shape (records, features), and convert nodes except the root to rules.

    A tree has 2 + floor(Exponential(mean L - 2)) leaves, the best split first.

    The target lies in [0, 1] (logistic), or is centred.

    Returns:
        distinct boxes of codes, uint8, shape (rules, features, 2), and how often each was grown; none with too few
        records for two leaves, or one class only.
    """
    features = codes.shape[1]
    drawn = boosting.drawn(len(codes)) if len(codes) else 0
    if drawn < 2 * boosting.min_leaf or target.min() == target.max():
        return np.zeros((0, features, 2), np.uint8), np.zeros(0, np.int64)
    columns = np.ascontiguousarray(codes.T)
    score = np.full(len(codes), boosting.start(target))
    tree_boxes: list[np.ndarray] = []
    for _ in range(boosting.trees):
        chosen = rng.permutation(len(codes))[:drawn]
        residual = boosting.residuals(target[chosen], score[chosen])
        leaves = 2 + int(rng.exponential(boosting.leaves - 2))
        ties = np.random.default_rng(int(rng.integers(2**31))).permutation(features)
        tree = Growing(codes[chosen], residual, boosting.min_leaf, ties).tree(leaves)
        score += boosting.shrinkage * tree.predict(columns)
        tree_boxes.append(tree.boxes(sizes))
    flat = np.concatenate(tree_boxes).reshape(-1, 2 * features)
    boxes, counts = np.unique(flat, axis=0, return_counts=True)
    return boxes.reshape(-1, features, 2), counts.astype(np.int64)


# --- best-first regression trees over cut-off codes, as scikit-learn's with ``max_leaf_nodes`` But
# ties go to the first covariate of an order, and splits without a decrease are not made.

EXPLAINED = 1e-12  #: Minimum decrease of squared error by a split, per record


@dataclass(frozen=True)
class LeafSplit:
    """A split: records of `leaf` with a code of at least `cut` go to a new leaf with the next number."""

    leaf: int
    feature: int
    cut: int


@dataclass(frozen=True, eq=False)
class CodedTree:
    """A tree as its splits in order, and the mean of each leaf, shape (splits + 1,)."""

    splits: tuple[LeafSplit, ...]
    values: np.ndarray

    def predict(self, codes: np.ndarray) -> np.ndarray:
        """Return each record's value; ``codes`` has shape (features, records)."""
        leaves = np.zeros(codes.shape[1], np.intp)
        for number, split in enumerate(self.splits, start=1):
            above = codes[split.feature] >= split.cut
            if number > 1:  # else every record is in the leaf
                above &= leaves == split.leaf
            np.putmask(leaves, above, number)
        return np.asarray(self.values[leaves])

    def boxes(self, sizes: np.ndarray) -> np.ndarray:
        """Return the boxes of all nodes except the root, uint8, shape (2 splits, features, 2)."""
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
    """The best split of a leaf, and its decrease of the sum of squared errors."""

    gain: float
    feature: int
    cut: int


@dataclass(frozen=True, eq=False)
class Growing:
    """Grows trees on some records."""

    codes: np.ndarray  #: cut-off codes, uint8, shape (records, features)
    target: np.ndarray  #: the target, shape (records,)
    least: int  #: minimum records of a leaf
    order: np.ndarray  #: the covariates, in order of precedence in ties

    def tree(self, leaves: int) -> CodedTree:
        """Split the leaf with the largest gain, until there are ``leaves`` leaves or no gain."""
        rows = [np.arange(len(self.target))]
        best = [self._best(rows[0])]
        splits: list[LeafSplit] = []
        while len(rows) < leaves:
            leaf = max(range(len(best)), key=lambda index: best[index].gain)
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
        values = np.array([self.target[index].sum() / len(index) for index in rows])
        return CodedTree(tuple(splits), values)

    @cached_property
    def _width(self) -> int:
        return int(self.codes.max()) + 1

    @cached_property
    def _code_index(self) -> np.ndarray:
        """Each record's index among the codes of all covariates in order, shape (records, features)."""
        starts = np.arange(len(self.order)) * self._width
        return np.asarray(self.codes[:, self.order] + starts)

    def _best(self, rows: np.ndarray) -> _Best:
        n, features = len(rows), len(self.order)
        nothing = _Best(0.0, 0, 0)
        if n < 2 * self.least:
            return nothing
        index, target = self._code_index[rows].ravel(), self.target[rows]
        shape, size = (features, self._width), features * self._width
        counts = np.bincount(index, None, size).reshape(shape)
        sums = np.bincount(index, target.repeat(features), size).reshape(shape)
        left_n, left_sums, total = counts.cumsum(axis=1), sums.cumsum(axis=1), float(target.sum())
        both = left_n * (n - left_n)
        # squared sums over counts of both sides, minus the whole's
        gains = (n * left_sums - left_n * total) ** 2 / (np.maximum(both, 1) * n)
        gains[both < self.least * (n - self.least)] = 0.0  # fewer than ``least`` on one side
        position, code = divmod(int(gains.argmax()), self._width)
        gain = float(gains[position, code])
        if gain <= EXPLAINED * n:
            return nothing
        following = code + 1 + int((counts[position, code + 1 :] > 0).argmax())
        return _Best(gain, int(self.order[position]), (code + following) // 2 + 1)
