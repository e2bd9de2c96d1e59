"""Membership from scores finds whom the closed form says it finds, and nobody where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest
from score_membership import (
    Detected,
    detect,
    directions,
    expected_rates,
    gaussian_rates,
)


def _pool(scores: int, size: int, seed: int, noise: float = 0.0, copies: int = 1) -> Detected:
    """Scores that are means of independent right answers (times copies of each), and an attacker."""
    rng = np.random.default_rng(seed)
    chance = rng.uniform(0.6, 0.9, scores)
    right = (rng.random((size + 1000, scores)) < chance).astype(float) - chance
    own = (rng.random((1200, scores)) < chance).astype(float) - chance
    told = right[:size].mean(axis=0) + rng.normal(0, 1, scores) * noise
    right, own, told = (np.repeat(each, copies, axis=-1) for each in (right, own, told))
    member = np.arange(len(right)) < size
    return detect(told, np.zeros(scores * copies), right, own, member, size)


@pytest.mark.parametrize(("scores", "size"), [(10, 80), (80, 80), (240, 80)])
def test_the_closed_form_says_how_many_are_found(scores: int, size: int) -> None:
    """For independent scores, m is their number, and the area follows sqrt(m / 2n)."""
    each = [_pool(scores, size, seed) for seed in range(5)]
    assert each[0].dimensions == pytest.approx(scores, rel=0.2)
    assert np.mean([one.auc for one in each]) == pytest.approx(each[0].expected_auc, abs=0.04)
    assert np.mean([one.found for one in each]) == pytest.approx(each[0].expected_found, abs=0.1)


def test_copies_of_a_score_add_nothing() -> None:
    """The same score ten times over is one score: m counts what is different."""
    once, often = _pool(40, 80, 0), _pool(40, 80, 0, copies=10)
    assert often.dimensions == pytest.approx(once.dimensions, rel=0.05)
    assert often.auc == pytest.approx(once.auc, abs=0.02)


def test_noise_hides_members() -> None:
    """The power twin: with noise ten times the means' own deviation, nobody is found."""
    assert _pool(400, 80, 1).auc > 0.9
    assert _pool(400, 80, 1, noise=0.5).auc == pytest.approx(0.5, abs=0.08)


def test_the_limits_are_those_of_a_guess_and_of_certainty() -> None:
    """No score: one half and 1 %; endless scores, or no noise at all: everybody."""
    assert expected_rates(0, 50) == pytest.approx((0.5, 0.01))
    assert expected_rates(1e6, 50) == pytest.approx((1, 1))
    assert gaussian_rates(0.0) == pytest.approx((0.5, 0.01))
    assert gaussian_rates(0.5)[0] == pytest.approx(0.7602, abs=1e-3)
    assert gaussian_rates(1e4) == pytest.approx((1, 1))


def test_constant_scores_have_no_direction() -> None:
    """Where no record adds anything, there is nothing to lean on."""
    basis, spread = directions(np.zeros((10, 4)))
    assert basis.shape == (4, 0) and spread.shape == (0,)
