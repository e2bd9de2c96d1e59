"""A tree grown from counts: without noise it is CART's, with noise it does not believe in it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from privfed.learners.genetic_tree.top import (
    Growth,
    Rule,
    best_split,
    gains,
    padded,
    quantile_edges,
)

BARE = Rule(least=0.0, doubt=0.0)


def _codes(classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(classes)
    x = rng.integers(0, 5, (400, 3))
    return x, (x[:, 0] * 3 + x[:, 1] + rng.integers(0, 4, 400)) % classes


def _counts(x: np.ndarray, y: np.ndarray, classes: int) -> np.ndarray:
    counts = np.zeros((x.shape[1], 5, classes))
    for feature, column in enumerate(x.T):
        np.add.at(counts[feature], (column, y), 1)
    return counts


EDGES = np.tile(np.arange(4) + 0.5, (3, 1))


@pytest.mark.parametrize("classes", [2, 3])
def test_exact_counts_split_as_cart_does(classes: int) -> None:
    """The same feature, and the same edge."""
    x, y = _codes(classes)
    split = best_split(_counts(x, y, classes), EDGES, 0.0, BARE)
    stump = DecisionTreeClassifier(max_depth=1).fit(x, y).tree_
    assert split is not None
    assert (split.feature, split.edge + 0.5) == (stump.feature[0], stump.threshold[0])
    assert split.below.sum(axis=1).tolist() == stump.n_node_samples[1:].tolist()


def test_numbers_split_by_the_squared_error() -> None:
    """With what a bin is worth in the target's place, as CART does on such targets."""
    x, y = _codes(4)
    worth = np.array([0.0, 0.5, 0.2, 1.0])
    split = best_split(_counts(x, y, 4), EDGES, 0.0, Rule(0.0, 0.0, tuple(worth.tolist())))
    stump = DecisionTreeRegressor(max_depth=1).fit(x, worth[y]).tree_
    assert split is not None
    assert (split.feature, split.edge + 0.5) == (stump.feature[0], stump.threshold[0])
    assert split.gain / 400 == pytest.approx(
        stump.impurity[0] - (stump.impurity[1:] * stump.n_node_samples[1:]).sum() / 400
    )


def test_noise_alone_gains_nothing_on_average() -> None:
    """Counts that no feature tells apart: gains are centred on zero; uncorrected ones are not."""
    rng, sigma = np.random.default_rng(0), 20.0
    even = np.full((1, 5, 2), 400.0)
    corrected, raw = [], []
    for _ in range(400):
        noisy = even + rng.normal(0, sigma, even.shape)
        corrected.append(gains(noisy, EDGES[:1], sigma**2, BARE)[0, 0])
        raw.append(gains(noisy, EDGES[:1], 0.0, BARE)[0, 0])
    spread = float(np.std(corrected)) / 20
    assert abs(np.mean(corrected)) < 4 * spread
    assert np.mean(raw) > 4 * spread


def test_children_must_stand_out_of_the_noise() -> None:
    """A side smaller than the noise of a node's counts is no child, nor one of too few records."""
    counts = np.zeros((1, 5, 2))
    counts[0, 0, 0], counts[0, 4, 1] = 30, 300
    assert best_split(counts, EDGES[:1], 0.0, Rule()) is not None
    assert best_split(counts, EDGES[:1], 100.0, Rule()) is None
    assert best_split(counts, EDGES[:1], 0.0, Rule(least=40.0)) is None
    assert best_split(counts, np.full((1, 4), np.inf), 0.0, BARE) is None


def test_growth_numbers_children_after_their_parents() -> None:
    """Two levels; what is known of a node that noise emptied is its parent's."""
    x, y = _codes(2)
    growth, features = Growth(2), np.arange(3)
    open_ = growth.level([0], _counts(x, y, 2)[None], features, EDGES, 0.0, BARE)
    assert open_ == [1, 2]
    goes_left = growth.tree.reach(x.astype(float)) == 1
    below = np.stack([_counts(x[side], y[side], 2) for side in (goes_left, ~goes_left)])
    growth.level(open_, below, features, EDGES, 0.0, BARE)
    assert growth.tree.depth == 2
    assert growth.shares.sum(axis=1) == pytest.approx(1.0)
    assert growth.shares[0] == pytest.approx(np.bincount(y) / 400)
    last = len(growth.counts) - 1
    growth.counts[last] = np.array([-3.0, -1.0])
    parent = next(node for node, pair in enumerate(growth.children) if last in pair)
    assert growth.shares[last] == pytest.approx(growth.shares[parent])


def test_quantile_edges_follow_the_mass() -> None:
    """Four bins of equal mass; empty cells, negative counts and a constant column are no trouble."""
    edges = np.linspace(0, 8, 9)
    counts = np.array([0, 0, 100, 100, 100, 100, -5, 0.0])
    assert quantile_edges(edges, counts, 4) == pytest.approx([3, 4, 5], abs=1e-6)
    assert len(quantile_edges(edges, np.zeros(8), 4)) == 3
    heap = quantile_edges(edges, np.eye(8)[0] * 1000, 4)
    assert ((heap > 0) & (heap < 1)).all()
    assert padded([heap, edges[:0]], 4)[1].tolist() == [np.inf] * 4
