"""Lower bounds on epsilon hold as often as they say, and agree with published figures."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, norm

from privfed.attacks.roc import clopper_pearson
from privfed.audits.bounds import epsilon_from_event, mu_from_event
from privfed.audits.one_run import one_run_epsilon, one_run_p_value
from privfed.errors import InputError
from privfed.privacy.conversion import gaussian_delta, gaussian_epsilon


def test_clopper_pearson_is_the_beta_quantile() -> None:
    """Against scipy's beta law, and at the ends."""
    low, high = clopper_pearson([0, 3, 10], 10, 0.05)
    assert low[0] == 0 and high[2] == 1
    assert low[1] == pytest.approx(beta.ppf(0.05, 3, 8))
    assert high[1] == pytest.approx(beta.ppf(0.95, 4, 7))


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_two_point_bound_covers(epsilon: float) -> None:
    """It exceeds the true epsilon of randomized response in at most alpha of all games."""
    rng = np.random.default_rng(3)
    truth = 1 / (1 + np.exp(-epsilon))
    inside, outside = (rng.binomial(2000, p, 4000) for p in (truth, 1 - truth))
    proven = epsilon_from_event(inside, outside, trials=2000, trials_outside=2000, alpha=0.1)
    wrong = (proven > epsilon).mean()
    assert wrong <= 0.1
    assert wrong > 0.005  # the bound is not idle: it is wrong now and then, as it may be
    assert np.median(proven) > 0.8 * epsilon


def test_one_run_reproduces_the_paper() -> None:
    """Steinke et al. 2023: 75 of 100 right at ln 3 has a p-value of 0.553."""
    assert one_run_p_value(100, 100, right=75, epsilon=np.log(3)) == pytest.approx(0.5535, abs=1e-4)


def test_one_run_bound_covers() -> None:
    """It exceeds the true epsilon of randomized response in at most alpha of all runs."""
    rng = np.random.default_rng(5)
    right = rng.binomial(1000, 1 / (1 + np.exp(-1.0)), 400)
    proven = np.array([one_run_epsilon(1000, 1000, right=int(v), alpha=0.1) for v in right])
    assert (proven > 1.0).mean() <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 400)
    assert np.median(proven) > 0.85


def test_one_run_delta_weakens() -> None:
    """Delta can only lower what a run proves."""
    exact = one_run_epsilon(1000, 500, right=450)
    assert 0 < one_run_epsilon(1000, 500, right=450, delta=1e-4) < exact
    assert one_run_epsilon(100, 100, right=50) == 0.0


def test_gaussian_conversion_inverts() -> None:
    """Epsilon at delta, turned back, is delta; a delta above the total variation costs nothing."""
    for mu in (0.3, 1.0, 4.0):
        epsilon = gaussian_epsilon(mu, 1e-5)
        assert gaussian_delta(mu, epsilon) == pytest.approx(1e-5, rel=1e-6)
    assert gaussian_epsilon(0.1, 0.5) == 0.0


def test_gdp_bound_on_expected_counts() -> None:
    """On the very rates of a Gaussian with mu = 1 it comes close to the true epsilon from below."""
    trials = 10**6
    rate = int(norm.sf(0.5) * trials)
    mu = mu_from_event(rate, rate, trials_without=trials, trials_with=trials)
    proven = gaussian_epsilon(float(mu), 1e-5)
    truth = gaussian_epsilon(1.0, 1e-5)
    assert 0.98 * truth < proven < truth


@pytest.mark.parametrize(
    "call",
    [
        lambda: clopper_pearson(3, 2, 0.05),
        lambda: clopper_pearson(1, 2, float("nan")),
        lambda: clopper_pearson(float("nan"), 2, 0.05),
        lambda: one_run_p_value(10, 11, right=3, epsilon=1.0),
        lambda: gaussian_epsilon(float("nan"), 0.1),
        lambda: gaussian_epsilon(1.0, 0.0),
    ],
)
def test_nonsense_is_refused(call) -> None:  # type: ignore[no-untyped-def]
    """Impossible counts, levels and NaN."""
    with pytest.raises(InputError):
        call()
