"""Boosted rules at the shared cut-offs (paper, Algorithm 1; Friedman and Popescu 2008, Section 3.3)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import logit

from privfed.learners.rulefit.averaging import residuals


@dataclass(frozen=True)
class Boosting:
    """How rules are grown."""

    trees: int  #: number of base learners C
    leaves: float  #: mean number of leaves L of a tree; 2 makes every tree a stump
    shrinkage: float  #: learning rate nu
    subsample: float  #: fraction of records a tree sees; 0 for min(N / 2, 100 + 6 sqrt N)
    min_leaf: int  #: fewest records of a leaf
    logistic: bool  #: logistic pseudo-residuals, else plain ones

    def drawn(self, records: int) -> int:
        """How many records each tree sees."""
        if self.subsample:
            return max(1, round(self.subsample * records))
        return max(1, int(min(records / 2, 100 + 6 * np.sqrt(records))))

    def start(self, target: np.ndarray) -> float:
        """The best constant: the log-odds (held finite for a client with one class), or the mean."""
        if not self.logistic:
            return float(target.mean())
        return float(logit(np.clip(target.mean(), 1e-6, 1 - 1e-6)))

    def residuals(self, target: np.ndarray, score: np.ndarray) -> np.ndarray:
        """What the next tree is fitted to."""
        return residuals(target, score, self.logistic)


def grow_rules(
    codes: np.ndarray,
    target: np.ndarray,
    sizes: np.ndarray,
    boosting: Boosting,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Boost trees over codes, shape (records, features), and turn nodes but the root into rules.

    A tree has 2 + floor(Exponential(mean L - 2)) leaves, the best split first.

    The target lies in [0, 1] (logistic), or is centred.

    Returns:
        different boxes of codes, uint8, shape (rules, features, 2), and how often each was grown; none
        with fewer records than two leaves need, or one class only.
    """
    features = codes.shape[1]
    drawn = boosting.drawn(len(codes)) if len(codes) else 0
    if drawn < 2 * boosting.min_leaf or target.min() == target.max():
        return np.zeros((0, features, 2), np.uint8), np.zeros(0, np.int64)
    columns = np.ascontiguousarray(codes.T)
    score = np.full(len(codes), boosting.start(target))
    grown: list[np.ndarray] = []
    for _ in range(boosting.trees):
        chosen = rng.permutation(len(codes))[:drawn]
        residual = boosting.residuals(target[chosen], score[chosen])
        leaves = 2 + int(rng.exponential(boosting.leaves - 2))
        ties = np.random.default_rng(int(rng.integers(2**31))).permutation(features)
        tree = Growing(codes[chosen], residual, boosting.min_leaf, ties).tree(leaves)
        score += boosting.shrinkage * tree.predict(columns)
        grown.append(tree.boxes(sizes))
    flat = np.concatenate(grown).reshape(-1, 2 * features)
    boxes, often = np.unique(flat, axis=0, return_counts=True)
    return boxes.reshape(-1, features, 2), often.astype(np.int64)


# --- regression trees over cut-off codes, best split first: scikit-learn's with ``max_leaf_nodes``
# But ties go to the first covariate of an order, and splits that explain nothing are not made.

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
