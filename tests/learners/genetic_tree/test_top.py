"""A tree grown from counts: without noise it is CART's, with noise it does not believe in it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from privfed.learners.genetic_tree.top import (
    NoisyNode,
    NoisyTreeGrower,
    SplitCriterion,
    best_split,
    bin_means,
    gains,
    padded,
    quantile_edges,
)

BARE = SplitCriterion(min_records=0.0, noise_stds=0.0)


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
    split = best_split(
        _counts(x, y, 4), EDGES, 0.0, SplitCriterion(0.0, 0.0, tuple(worth.tolist()))
    )
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
    assert best_split(counts, EDGES[:1], 0.0, SplitCriterion()) is not None
    assert best_split(counts, EDGES[:1], 100.0, SplitCriterion()) is None
    assert best_split(counts, EDGES[:1], 0.0, SplitCriterion(min_records=40.0)) is None
    assert best_split(counts, np.full((1, 4), np.inf), 0.0, BARE) is None


def test_growth_numbers_children_after_their_parents() -> None:
    """Two levels; what is known of a node that noise emptied is its parent's."""
    x, y = _codes(2)
    growth, features = NoisyTreeGrower(2), np.arange(3)
    open_ = growth.level([0], _counts(x, y, 2)[None], features, EDGES, 0.0, BARE)
    assert open_ == [1, 2]
    goes_left = growth.tree.reach(x.astype(float)) == 1
    below = np.stack([_counts(x[side], y[side], 2) for side in (goes_left, ~goes_left)])
    growth.level(open_, below, features, EDGES, 0.0, BARE)
    assert growth.tree.depth == 2
    assert growth.fractions.sum(axis=1) == pytest.approx(1.0)
    assert growth.fractions[0] == pytest.approx(np.bincount(y) / 400)
    last = len(growth.nodes) - 1
    growth.nodes[last].counts = np.array([-3.0, -1.0])
    parent = next(n for n, node in enumerate(growth.nodes) if last in node.children)
    assert growth.fractions[last] == pytest.approx(growth.fractions[parent])


def test_quantile_edges_follow_the_mass() -> None:
    """Four bins of equal mass; empty cells, negative counts and a constant column are no trouble."""
    edges = np.linspace(0, 8, 9)
    counts = np.array([0, 0, 100, 100, 100, 100, -5, 0.0])
    assert quantile_edges(edges, counts, 4) == pytest.approx([3, 4, 5], abs=1e-6)
    assert len(quantile_edges(edges, np.zeros(8), 4)) == 3
    heap = quantile_edges(edges, np.eye(8)[0] * 1000, 4)
    assert ((heap > 0) & (heap < 1)).all()
    assert padded([heap, edges[:0]], 4)[1].tolist() == [np.inf] * 4


# --- what the counts bear out --------------------------------------------------------------------


def _split_in_two(left: np.ndarray, right: np.ndarray, variance: float) -> NoisyTreeGrower:
    nodes = [NoisyNode(np.zeros(2), 0.0, sound=False, children=(1, 2))]
    return NoisyTreeGrower(
        2, [*nodes, *(NoisyNode(each, variance, sound=True) for each in (left, right))]
    )


def test_shares_without_noise_are_drawn_to_the_parent_by_so_many_records() -> None:
    """The root towards even shares by one record, its children towards the root's by the weight."""
    growth = _split_in_two(np.array([30.0, 0.0]), np.array([10.0, 60.0]), 0.0)
    root = (np.array([40, 60]) + 0.5) / 101
    wanted = [root, (np.array([30, 0]) + 8 * root) / 38, (np.array([10, 60]) + 8 * root) / 78]
    assert growth.smoothed(8.0) == pytest.approx(np.array(wanted))


def test_noise_makes_records_count_for_less() -> None:
    """By hand: n' = n^2 q / (n q + v s); counts of noise alone leave the parent's shares."""
    parent = np.array([0.9, 0.1])
    growth = NoisyTreeGrower(
        2, [NoisyNode(np.array([90.0, 10.0]) * 1e9, 0.0, sound=True, children=(1, 1))]
    )
    growth.nodes.append(NoisyNode(np.array([100.0, 100.0]), 50.0, sound=True))
    n, q, s = 200.0, 2 * 0.9 * 0.1, 2 * (0.81 + 0.01)
    own = n**2 * q / (n * q + 50.0 * s)
    assert growth.smoothed(4.0)[1] == pytest.approx((own * 0.5 + 4 * parent) / (own + 4), rel=1e-6)
    growth.nodes[1].variance = 1e9
    assert growth.smoothed(4.0)[1] == pytest.approx(parent, abs=1e-3)
    growth.nodes[1].counts = np.array([-5.0, 2.0])
    assert growth.smoothed(4.0)[1] == pytest.approx(parent, rel=1e-6)


def test_noisy_shares_lose_less_than_the_constant() -> None:
    """Classes of 9 to 1 under ever more noise: log loss never above the constant's by a hundredth.

    The plain shares of the same counts are far above it, which is what the smoothing is for.
    """
    rng, rare = np.random.default_rng(0), np.array([0.05, 0.15])
    truth = np.column_stack([1 - rare, rare])
    even = -(0.9 * np.log(0.9) + 0.1 * np.log(0.1))
    plain: list[float] = []
    for sigma in (0.0, 10.0, 40.0, 160.0, 640.0):
        found: list[float] = []
        for _ in range(60):
            noisy = [500 * row + rng.normal(0, sigma, 2) for row in truth]
            growth = _split_in_two(noisy[0], noisy[1], sigma**2)
            growth.nodes[0].combine(np.array([900.0, 100.0]), 1.0)
            for shares, losses in ((growth.smoothed(8.0), found), (growth.fractions, plain)):
                told = np.clip(shares[1:], 1e-15, 1)
                losses.append(-(truth * np.log(told)).sum(axis=1).mean())
        assert np.mean(found) < even + 0.01
    assert np.mean(plain) > even + 1


def test_later_counts_stand_beside_earlier_ones_by_their_variances() -> None:
    """Inverse variances; but what chose a split is forgotten, for it favours the split."""
    node = NoisyNode(np.array([10.0, 0.0]), 4.0, sound=False)
    node.combine(np.array([8.0, 2.0]), 12.0)
    assert node.counts.tolist() == [8.0, 2.0] and node.variance == 12.0
    node.combine(np.array([4.0, 4.0]), 4.0)
    assert node.counts == pytest.approx([5.0, 3.5]) and node.variance == pytest.approx(3.0)


def test_a_parent_hears_what_its_children_hold() -> None:
    """Their sum stands beside its own counts; nothing is heard twice, however often it is asked."""
    growth = _split_in_two(np.array([30.0, 10.0]), np.array([10.0, 50.0]), 8.0)
    growth.nodes[0].combine(np.array([60.0, 60.0]), 16.0)
    once = growth.smoothed(0.0)
    assert once[0, 0] * 100 == pytest.approx(50 * 100 / 110, abs=1)
    assert np.array_equal(once, growth.smoothed(0.0))
    assert growth.nodes[0].counts.tolist() == [60.0, 60.0]


def test_bins_are_worth_what_lies_in_them() -> None:
    """The mean by finer counts, not the middle: most of the last bin's mass is at its lower end."""
    edges, counts = np.array([0.0, 1, 2, 10]), np.array([10.0, 30, 10])
    assert bin_means(edges, counts, np.array([1.0])) == pytest.approx(
        [0.5, (30 * 1.5 + 10 * 6) / 40]
    )
    assert bin_means(edges, counts, np.array([1.5])) == pytest.approx([23.75 / 25, 86.25 / 25])
    assert np.isfinite(bin_means(edges, -counts, np.array([0.3, 1.5]))).all()
