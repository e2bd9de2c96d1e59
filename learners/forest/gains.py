"""Impurity decreases from additive statistics, and the best split of each node (paper, Section 3.2)."""

from dataclasses import dataclass

import numpy as np

from privfed.learners.impurity import Criterion, neg_weighted_impurity, sizes


def together(counts: np.ndarray, sums: np.ndarray | None) -> np.ndarray:
    """Concatenate counts and sums along the last axis."""
    return counts if sums is None else np.stack([counts[..., 0], sums], axis=-1, dtype=np.int64)


def decreases(
    left: np.ndarray, total: np.ndarray, criterion: Criterion, min_leaf: int = 1
) -> np.ndarray:
    """Return impurity decrease times the node's records (paper, Eq. 2 and 6), shape (..., candidates).

    Args:
        left: statistics of the left side, shape (..., candidates, statistics).
        total: of the node, shape (..., statistics).
        criterion: the impurity.
        min_leaf: minimum records of a side; candidates with fewer get minus infinity.
    """
    left, total = left.astype(float), total.astype(float)[..., None, :]
    right = total - left
    scores = [neg_weighted_impurity(group, criterion) for group in (left, right, total)]
    fewest = np.minimum(sizes(left, criterion), sizes(right, criterion))
    return np.where(fewest >= min_leaf, scores[0] + scores[1] - scores[2], -np.inf)


@dataclass(frozen=True, eq=False)
class Best:
    """The best candidate of each pair."""

    gain: np.ndarray  #: impurity decrease times records; minus infinity for none, shape (pairs,)
    index: np.ndarray  #: the last bin, or rank in Fisher's order, that goes left


def best_cut(pooled: np.ndarray, criterion: Criterion, min_leaf: int) -> Best:
    """Return the first best cut between bins, from pooled statistics of shape (pairs, bins, statistics)."""
    cumulative = np.cumsum(pooled, axis=1)
    gains = decreases(cumulative[:, :-1], cumulative[:, -1], criterion, min_leaf)
    index = gains.argmax(axis=1) if gains.size else np.zeros(len(pooled), np.int64)
    return Best(gains[np.arange(len(pooled)), index], index)


def best_subset(pooled: np.ndarray, criterion: Criterion, min_leaf: int) -> tuple[Best, np.ndarray]:
    """Return the best binary split of categories along their Fisher order; empty ones go to the larger side.

    For regression and two classes it is the best of all binary splits (Fisher 1958); for more classes a heuristic.

    Args:
        pooled: summed statistics, shape (pairs, categories, statistics).
        criterion: the impurity.
        min_leaf: minimum records of a side.

    Returns:
        the best of each pair, and the categories that go left, shape (pairs, categories).
    """
    order, ranks = fisher_order(pooled, criterion)
    best = best_cut(np.take_along_axis(pooled, order[:, :, None], axis=1), criterion, min_leaf)
    chosen = ranks <= best.index[:, None]
    size = sizes(pooled, criterion)
    larger_left = 2 * np.where(chosen, size, 0).sum(axis=1) >= size.sum(axis=1)
    return best, np.where(size > 0, chosen, larger_left[:, None])


def fisher_order(pooled: np.ndarray, criterion: Criterion) -> tuple[np.ndarray, np.ndarray]:
    """Return order and ranks of categories by mean target or most frequent class's fraction, empty ones last."""
    size = sizes(pooled, criterion)
    if criterion == "squared_error":
        total = pooled[..., 1]
    else:
        total = pooled[np.arange(len(pooled)), :, pooled.sum(axis=1).argmax(axis=1)]
    mean = np.where(size > 0, total / np.maximum(size, 1), np.inf)
    order = np.argsort(mean, axis=1, kind="stable")
    return order, np.argsort(order, axis=1, kind="stable")
