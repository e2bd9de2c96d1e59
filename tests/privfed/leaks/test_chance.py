"""Scores in nats bound the exact tails they stand for, and see what is there."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from privfed.leaks.chance import chernoff, densities, surprise, surprises

RNG = np.random.default_rng(3)


@given(st.integers(1, 60), st.integers(0, 400), st.floats(1e-9, 0.9))
def test_scores_never_exceed_the_exact_tail(hits: int, more: int, chance: float) -> None:
    """Chernoff's bound: exp(-nats) is at least the binomial tail; one hit is exact."""
    trials = hits + more
    nats = float(chernoff(np.array([hits]), np.array([float(trials)]), np.array([chance]))[0])
    exact = float(binom.logsf(hits - 1, trials, chance))
    assert -nats >= exact - 1e-6 * (1 - exact)
    if hits == 1:
        assert np.isclose(-nats, exact, rtol=1e-6, atol=1e-9)


def test_scores_are_those_of_each_group() -> None:
    """All groups at once as one by one."""
    groups = RNG.integers(0, 6, 200)
    chances, trials = RNG.uniform(0, 0.2, 200), np.array([100, 60, 200, 150, 90, 80, 40])
    found = surprises(groups, chances, trials)
    for group in range(6):
        mine = chances[groups == group]
        assert np.isclose(found[group], surprise(mine, max(trials[group], len(mine))))
    assert found[6] == 0.0


def test_scores_are_honest() -> None:
    """Where each of n trials matches with its own probability, scores above 3 are as rare as e^-3."""
    high, trials, draws = 0, 60, 2000
    for _ in range(draws):
        chance = RNG.uniform(0.001, 0.3, trials)
        high += surprise(chance[RNG.random(trials) < chance], trials) >= 3
    assert high / draws <= np.exp(-3) + 3 * np.sqrt(np.exp(-3) / draws)


def test_scores_have_power() -> None:
    """One match of a chance of one in a million among a thousand trials; so many of 5 %."""
    assert surprise(np.array([1e-6]), 1000) > 6.5
    assert surprise(np.full(30, 0.05), 100) > 20
    assert surprise(np.empty(0), 10) == 0.0


def test_densities_are_not_too_low() -> None:
    """Two deviations above the count: of evenly drawn values few look lonely."""
    values = np.sort(RNG.uniform(0, 100, 2000))
    found = densities(values, np.arange(2000))
    assert (found >= 20).mean() > 0.95
    assert np.median(found) < 60
    assert densities(np.array([5.0]), np.array([0]))[0] > 0


def test_densities_beside_a_gap() -> None:
    """The last values of a column are as dense as without another column far away, on either side."""
    values = np.sort(RNG.uniform(0, 100, 300))
    places = np.arange(len(values))
    alone = densities(values, places)
    beside = densities(np.r_[values, values + 1e9], places)
    above = densities(np.r_[values - 1e9, values], places + len(values))
    assert (beside > alone / 5).all() and (above > alone / 5).all()
    assert (beside < alone * 3).all() and (above < alone * 3).all()
