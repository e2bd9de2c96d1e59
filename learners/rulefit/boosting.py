"""Boosted rules at the shared cut-offs (paper, Algorithm 1; Friedman and Popescu 2008, Section 3.3)."""

from dataclasses import dataclass

import numpy as np
from scipy.special import logit

from privfed.learners.rulefit.averaging import residuals
from privfed.learners.rulefit.coded_tree import Growing


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
