"""One run with many canaries: its bounds hold as often as they say, and convict what they should."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from privfed.audits.bounds import right_guesses_mu
from privfed.audits.one_run import (
    FARTHEST,
    audit_one_run,
    one_run_epsilon,
    one_run_mu,
    one_run_p_value,
)
from privfed.errors import InputError
from privfed.privacy.conversion import gaussian_epsilon


def _gaussian_run(canaries: int, mu: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Coins, and scores with Gaussian noise that is independent from canary to canary."""
    rng = np.random.default_rng(seed)
    coins = rng.random(canaries) < 0.5
    return coins, (coins - 0.5) * mu + rng.normal(size=canaries)


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_the_gaussian_bound_covers(mu: float, share: float) -> None:
    """With independent noise it never comes near being wrong; it is no idle zero either."""
    proven = []
    for seed in range(40):
        coins, scores = _gaussian_run(600, mu, seed)
        surest = np.argsort(-np.abs(scores))[: int(share * 600)]
        right = int(((scores > 0) == coins)[surest].sum())
        proven.append(one_run_mu(600, len(surest), right=right, alpha=0.1))
    assert max(proven) < mu
    assert np.median(proven) > 0.2 * mu


def _together(mu: float, lucky: float) -> float:
    """How sure guesses may be in a lucky run that comes with a probability, all within mu.

    The state of the run is no secret, and in the lucky one each guess is right with probability a.
    Of one canary that is the point (lucky (1 - a), lucky a) of the curve of accused and found, which
    must not lie above mu-Gaussian-DP's.
    """

    def above(sure: float) -> float:
        return lucky * sure - float(ndtr(ndtri(lucky * (1 - sure)) + mu))

    return float(brentq(above, 0.5, 1 - 1e-12))


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("lucky", [0.02, 0.1, 0.3])
def test_the_gaussian_bound_covers_where_canaries_fall_together(mu: float, lucky: float) -> None:
    """A mechanism within mu that gives many canaries away at once is not convicted, and only just."""
    canaries = 2000
    right = round(canaries * _together(mu, lucky))  # reached in half of the lucky runs
    assert one_run_mu(canaries, canaries, right=right, alpha=lucky / 2) <= mu
    assert one_run_mu(canaries, canaries, right=right, alpha=lucky) > 0.9 * mu


def test_a_gaussian_claim_is_convicted_at_one_and_a_half_times_its_mu() -> None:
    """From 4,000 canaries with noise of their own; the honest claim is kept."""
    for claimed, seed in product((0.5, 1.0), range(5)):
        epsilon = gaussian_epsilon(claimed, 1e-5)
        for factor, severity in ((1.0, "none"), (1.5, "breach")):
            coins, scores = _gaussian_run(4000, factor * claimed, seed)
            found = audit_one_run(
                coins,
                scores,
                epsilon,
                delta=1e-5,
                alpha=0.01,
                noise="independent gaussian",
                centre=0.0,
            )
            assert found.severity == severity


def test_independent_noise_is_held_as_tightly_as_a_binomial() -> None:
    """The bound on mu covers in the share of runs that it says, and is no idle one."""
    rng = np.random.default_rng(8)
    right = rng.binomial(4000, ndtr(0.5), 3000)
    wrong = (right_guesses_mu(right, np.full(3000, 4000), 0.1) > 1.0).mean()
    assert 0.06 < wrong <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 3000)


def test_the_fast_p_value_is_the_papers() -> None:
    """Steinke, Nasr and Jagielski's own loop, term by term."""
    for canaries, guesses, right, epsilon, delta in (
        (100, 100, 75, 1.0, 1e-3),
        (1000, 300, 250, 1.2, 1e-5),
        (50, 20, 20, 0.5, 1e-2),
    ):
        chance = 1 / (1 + np.exp(-epsilon))
        tail, total, most = float(binom.sf(right - 1, guesses, chance)), 0.0, 0.0
        for i in range(1, right + 1):
            total += float(binom.pmf(right - i, guesses, chance))
            most = max(most, total / i)
        naive = min(1.0, tail + 2 * canaries * delta * most)
        assert one_run_p_value(
            canaries, guesses, right=right, epsilon=epsilon, delta=delta
        ) == pytest.approx(naive)


def test_bounds_grow_with_right_guesses() -> None:
    """No right guess proves nothing, all of them prove most; a run of few stays finite."""
    for bound in (one_run_epsilon, one_run_mu):
        found = [bound(200, 100, right=right) for right in (0, 50, 70, 90, 100)]
        assert found == sorted(found)
        assert found[0] == 0 and 0 < found[-1] < FARTHEST


def test_nonsense_is_refused() -> None:
    """No canary, claims of Gaussian noise without a delta, impossible counts and levels."""
    one, none = np.ones(1, bool), np.empty(0, bool)
    calls: list[Callable[[], object]] = [
        lambda: audit_one_run(none, np.empty(0), 1.0),
        lambda: audit_one_run(one, np.ones(1), 1.0, noise="gaussian"),
        lambda: one_run_mu(10, 11, right=3),
        lambda: one_run_mu(10, 10, right=3, alpha=float("nan")),
    ]
    for call in calls:
        with pytest.raises(InputError):
            call()
