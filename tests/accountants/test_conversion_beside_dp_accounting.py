"""Our conversion of zCDP beside another library's, and beside the exact Gaussian."""

from __future__ import annotations

import math
from fractions import Fraction

import dp_accounting
import pytest
from dp_accounting import rdp
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.privacy.conversion import gaussian_delta, largest_rho, to_epsilon

POINTS = [(0.01, 1e-5), (0.1, 1e-6), (0.5, 1e-5), (2.0, 1e-3), (8.0, 1e-9)]


def by_dp_accounting(rho: float, delta: float) -> float:
    """Epsilon by dp_accounting's Renyi accountant over a fine set of orders."""
    orders = [1 + 10 ** (step / 200) for step in range(-600, 800)]
    accountant = rdp.RdpAccountant(orders)
    accountant.compose(dp_accounting.GaussianDpEvent((2 * rho) ** -0.5))
    return float(accountant.get_epsilon(delta))


@pytest.mark.parametrize(("rho", "delta"), POINTS)
def test_beside_dp_accounting(rho: float, delta: float) -> None:
    """The same bound searched over a continuum: never above theirs, and within a thousandth."""
    theirs = by_dp_accounting(rho, delta)
    ours = to_epsilon(rho, delta)
    assert ours <= theirs * (1 + 1e-9)
    assert ours == pytest.approx(theirs, rel=1e-3)


@settings(max_examples=60)
@given(st.floats(1e-4, 20), st.floats(-20, -1))
def test_the_bound_is_true(rho: float, exponent: float) -> None:
    """Exact Gaussian noise of that rho keeps the epsilon, and would break one a third smaller.

    The latter at a delta of a hundredth or less: Renyi orders lose more at larger ones.
    """
    delta = 10**exponent
    epsilon = to_epsilon(rho, delta)
    assert gaussian_delta(math.sqrt(2 * rho), epsilon) <= delta * (1 + 1e-6)
    if epsilon > 0.1 and delta <= 0.01:
        assert gaussian_delta(math.sqrt(2 * rho), epsilon / 1.5) > delta


@settings(max_examples=40)
@given(st.fractions(Fraction(1, 10**4), Fraction(30), max_denominator=10**4), st.floats(-12, -1))
def test_largest_rho(epsilon: Fraction, exponent: float) -> None:
    """The largest rho keeps the epsilon, and one a hundredth larger does not."""
    delta = 10**exponent
    rho = float(largest_rho(epsilon, Fraction(delta)))
    assert to_epsilon(rho, delta) <= float(epsilon)
    if rho > 1e-12:
        assert to_epsilon(rho * 1.01 + 1e-15, delta) > float(epsilon)
