"""Chance is computed: p-values hold what they promise, and see what is there."""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from privfed.testing.rules.chance import densities, tail, tails

RNG = np.random.default_rng(3)


def naive_tail(chances: np.ndarray, trials: int) -> float:
    """The same, match by match."""
    ordered = np.sort(chances)
    ranks = sorted({*(2**i for i in range(20) if 2**i <= len(ordered)), len(ordered)})
    best = min(binom.sf(j - 1, trials, ordered[j - 1]) for j in ranks)
    return min(1.0, float(best) * len(ranks))


def test_tails_are_those_of_each_group() -> None:
    """All groups at once as one by one."""
    groups = RNG.integers(0, 6, 200)
    chances, trials = RNG.uniform(0, 0.2, 200), np.array([100, 60, 200, 150, 90, 80, 40])
    found = tails(groups, chances, trials)
    for group in range(6):
        mine = chances[groups == group]
        assert np.isclose(found[group], naive_tail(mine, max(trials[group], len(mine))))
    assert found[6] == 1.0


def test_p_values_are_honest() -> None:
    """Where each of n trials matches with its own probability, p-values below alpha are that rare."""
    low, trials, draws = 0, 60, 2000
    for _ in range(draws):
        chance = RNG.uniform(0.001, 0.3, trials)
        low += tail(chance[RNG.random(trials) < chance], trials) <= 0.05
    assert low / draws <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / draws)


def test_p_values_have_power() -> None:
    """One match of a chance of one in a million is seen among a thousand trials; so are many of 5 %."""
    assert tail(np.array([1e-6]), 1000) < 2e-3
    assert tail(np.full(30, 0.05), 100) < 1e-10
    assert tail(np.empty(0), 10) == 1.0


def test_densities_are_not_too_low() -> None:
    """Two deviations above the count: of evenly drawn values few look lonely."""
    values = np.sort(RNG.uniform(0, 100, 2000))
    found = densities(values, np.arange(2000))
    assert (found >= 20).mean() > 0.95
    assert np.median(found) < 60
    assert densities(np.array([5.0]), np.array([0]))[0] > 0
