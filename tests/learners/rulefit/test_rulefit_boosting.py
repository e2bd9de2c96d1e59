"""Boosted rules: boxes of codes, sizes of trees, bad clients."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.learners.rulefit.boosting import Boosting, grow_rules
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.pooled import drawn, moments
from privfed.learners.rulefit.rules import Terms

SIZES = np.array([6, 6, 6])
GROW = Boosting(30, 4.0, 0.1, 0.5, 5, True)


def data(seed: int = 0, records: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Codes of three covariates and an outcome that hangs on the first two."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 6, (records, 3)).astype(np.uint8)
    return codes, ((codes[:, 0] >= 3) & (codes[:, 1] < 4)).astype(float)


def test_grown_rules_find_the_outcome() -> None:
    """The true rule's conditions are among the rules; each is listed once."""
    codes, target = data()
    boxes, often = grow_rules(codes, target, SIZES, GROW, np.random.default_rng(0))
    assert [[3, 6], [0, 4], [0, 6]] in boxes.tolist()
    assert len(np.unique(boxes.reshape(len(boxes), -1), axis=0)) == len(boxes)
    assert often.min() >= 1


def test_two_leaves_on_average_make_stumps() -> None:
    """L = 2 gives rules with one condition each; L = 4 gives longer ones."""
    codes, target = data()
    longest = []
    for leaves in (2.0, 4.0):
        grow = Boosting(60, leaves, 0.1, 0.5, 5, True)
        boxes, _ = grow_rules(codes, target, SIZES, grow, np.random.default_rng(0))
        used = (boxes[..., 0] > 0) | (boxes[..., 1] < SIZES)
        longest.append(used.sum(axis=1).max())
    assert longest[0] == 1
    assert longest[1] >= 2


def test_tree_sizes_are_drawn_for_each_tree() -> None:
    """2 + floor(Exponential(mean L - 2)) leaves: of trees with room, 1 - e^-1/2 are stumps."""
    codes, target = data(records=400)
    grow = Boosting(1, 4.0, 0.1, 1.0, 1, True)
    noisy = np.where(np.random.default_rng(9).random(400) < 0.3, 1 - target, target)
    sizes = []
    for seed in range(400):
        _, often = grow_rules(codes, noisy, SIZES, grow, np.random.default_rng(seed))
        sizes.append(often.sum() // 2 + 1)  # a tree of k leaves has 2k - 2 nodes but the root
    drawn = np.bincount(sizes) / len(sizes)
    law = np.exp(-np.arange(5) / 2) * (1 - np.exp(-1 / 2))
    assert drawn[:2].sum() == 0
    assert drawn[2:7] == pytest.approx(law, abs=0.1)  # four deviations


@pytest.mark.parametrize("records", [0, 1, 6])
def test_a_client_with_fewer_records_than_two_leaves_sends_no_rules(records: int) -> None:
    """Nothing to split: an empty set of rules and no error."""
    codes, target = data(records=records)
    boxes, often = grow_rules(codes, target, SIZES, GROW, np.random.default_rng(0))
    assert boxes.shape == (0, 3, 2)
    assert len(often) == 0


def test_a_client_with_one_class_sends_no_rules() -> None:
    """Constant pseudo-residuals have no split worth naming."""
    codes, _ = data()
    boxes, _ = grow_rules(codes, np.ones(200), SIZES, GROW, np.random.default_rng(0))
    assert len(boxes) == 0


def test_a_constant_covariate_is_never_split() -> None:
    """No rule names it."""
    codes, target = data()
    codes[:, 2] = 1
    boxes, _ = grow_rules(codes, target, SIZES, GROW, np.random.default_rng(0))
    assert (boxes[:, 2] == [0, 6]).all()


def test_friedmans_subsample() -> None:
    """min(N / 2, 100 + 6 sqrt N)."""
    grow = Boosting(1, 4.0, 0.1, 0.0, 5, True)
    assert grow.drawn(100) == 50
    assert grow.drawn(10_000) == 700


def test_synthetic_records_have_the_marginals_that_it_was_given() -> None:
    """Means and variances of rules agree with independent covariates."""
    values = (np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    shares = np.array([[0.25, 0.75], [0.5, 0.5]])
    made = drawn(shares, values, np.random.default_rng(0), 100_000)
    cutoffs = Cutoffs(((0.5,), (0.5,)), np.zeros(2), np.ones(2), np.ones(2))
    terms = Terms(cutoffs, np.array([[[1, 2], [0, 2]], [[0, 2], [1, 2]]], np.uint8), ())
    means, variances = moments(terms, made)
    assert means == pytest.approx([1, 0.75, 0.5], abs=0.01)
    assert variances == pytest.approx([0, 0.1875, 0.25], abs=0.01)
