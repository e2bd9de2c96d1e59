"""Risk in words: the stated bound holds against the best attacker, and is not idle."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from privfed.accountants.pure import PureEpsilon
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.reports.risk import best_detection, concentrated_detection, detection


@given(st.floats(0, 6), st.floats(0.001, 0.5))
def test_randomized_response_reaches_the_pure_bound_and_never_passes_it(
    epsilon: float, share: float
) -> None:
    """The best test on one randomized bit is exactly as good as the bound allows."""
    honest = math.exp(epsilon) / (1 + math.exp(epsilon))
    flipped = 1 - honest
    reached = honest * share / flipped if share <= flipped else None
    if reached is None:
        reached = honest + (1 - honest) * (share - flipped) / (1 - flipped)
    bound = best_detection(epsilon, 0.0, share)
    assert np.isclose(reached, bound, rtol=1e-9)


@given(st.floats(1e-4, 5), st.floats(0.001, 0.3))
def test_the_gaussian_mechanism_stays_below_the_concentrated_bound(
    rho: float, share: float
) -> None:
    """A Gaussian of rho-zCDP is a test between two normals at distance sqrt(2 rho)."""
    reached = norm.cdf(norm.ppf(share) + math.sqrt(2 * rho))
    assert reached <= concentrated_detection(rho, share) + 1e-9


@pytest.mark.parametrize("rho", [0.01, 0.1, 1.0])
def test_the_concentrated_bound_is_not_idle(rho: float) -> None:
    """It is less than twice what a Gaussian gives away, and catches a rho stated too small."""
    reached = norm.cdf(norm.ppf(0.01) + math.sqrt(2 * rho))
    assert concentrated_detection(rho) < 2 * reached
    assert concentrated_detection(rho / 4) < reached


def test_no_loss_is_no_risk_and_a_huge_one_is_all_of_it() -> None:
    """Both bounds begin at the false-positive rate and end at one."""
    assert best_detection(0.0, 0.0) == 0.01
    assert concentrated_detection(0.0) == 0.01
    assert best_detection(1e6, 0.0) == 1.0
    assert concentrated_detection(1e6) == 1.0


@given(st.floats(0, 5), st.floats(0, 5))
def test_more_loss_is_never_less_risk(one: float, other: float) -> None:
    """The bounds rise with the loss."""
    small, large = sorted((one, other))
    assert best_detection(small, 0.0) <= best_detection(large, 0.0)
    assert concentrated_detection(small) <= concentrated_detection(large) + 1e-7


def test_the_least_bound_is_reported() -> None:
    """zCDP at epsilon 8 says far less risk than the conversion to one (epsilon, delta) does."""
    accountant = ZeroConcentrated()
    total = (Fraction(12, 10), Fraction(0))
    epsilon = float(accountant.guarantee(total, Fraction(1, 10**5))[0])
    assert detection(accountant, total, Fraction(1, 10**5)) < 0.4 < best_detection(epsilon, 1e-5)
    pure = detection(PureEpsilon(), (Fraction(1), Fraction(0)), Fraction(0))
    assert np.isclose(pure, 0.01 * math.e)
