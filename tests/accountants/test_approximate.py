"""Approximate zCDP and the odometer."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from privfed.accountants.approximate import ApproximateZeroConcentrated
from privfed.accountants.zcdp import FINEST, LEVEL, ZeroConcentrated, odometer
from privfed.errors import PolicyError, UnsupportedLoss
from privfed.privacy.accountant import Budget
from privfed.privacy.conversion import to_delta, to_epsilon
from privfed.privacy.loss import Loss, pure_to_zcdp

APPROXIMATE = ApproximateZeroConcentrated()
SMALL = Fraction(1, 10**6)


def test_losses_with_a_delta_of_their_own_fit() -> None:
    """(epsilon, delta), zCDP and pure losses add up under one ceiling."""
    budget = Budget.of("2", "1e-5")
    ceiling = APPROXIMATE.ceiling(budget)
    total = APPROXIMATE.nothing
    for loss in (
        Loss(Fraction(1, 10), delta=SMALL),
        Loss.zcdp("0.01"),
        Loss.pure("0.2"),
        Loss(rho=Fraction(1, 100), delta=SMALL),
    ):
        total = APPROXIMATE.add(total, loss)
    assert total[0] == 2 * Fraction(1, 100) + pure_to_zcdp(Fraction(1, 10)) + pure_to_zcdp(
        Fraction(1, 5)
    )
    assert total[1] == 2 * SMALL
    assert APPROXIMATE.fits(total, ceiling)
    epsilon, delta = APPROXIMATE.guarantee(total, budget.delta)
    assert epsilon <= budget.epsilon and delta == budget.delta
    assert not APPROXIMATE.fits(APPROXIMATE.add(total, Loss(Fraction(0), delta=SMALL * 5)), ceiling)


def test_what_has_no_bound_is_not_added() -> None:
    """A loss without epsilon or rho."""
    with pytest.raises(UnsupportedLoss, match="nothing to add up"):
        APPROXIMATE.amount(Loss.open("left as it was"))


def test_an_odometer_asked_at_no_more_than_losses_may_take_says_so_much_more() -> None:
    """At just the delta that the first ceiling left to the losses, nothing of it would be left to convert rho."""
    ceiling = APPROXIMATE.ceiling(Budget.of("2", "1e-5"))
    total = Fraction(1, 100), SMALL
    told = APPROXIMATE.odometer(total, ceiling[1], [ceiling])
    assert told == (odometer(total[0], ceiling[1], [ceiling[0]])[0], ceiling[1] + SMALL)


def test_a_full_ceiling_keeps_the_budget() -> None:
    """What fits the ceiling exactly is within (epsilon, delta)."""
    for epsilon, delta in (("0.1", "1e-9"), ("1", "1e-5"), ("8", "1e-3")):
        budget = Budget.of(epsilon, delta)
        stated = APPROXIMATE.guarantee(APPROXIMATE.ceiling(budget), budget.delta)
        assert stated[0] <= budget.epsilon
        assert float(stated[0]) == pytest.approx(float(epsilon), rel=1e-6)


def test_a_budget_without_delta_is_refused() -> None:
    """Conversion needs a delta, and what the losses spent of it is gone."""
    with pytest.raises(PolicyError, match="delta above 0"):
        APPROXIMATE.ceiling(Budget.of("1"))
    with pytest.raises(PolicyError, match="already exceed"):
        APPROXIMATE.guarantee((Fraction(1), SMALL), SMALL)


def test_zcdp_alone_takes_no_losses_without_rho() -> None:
    """The plain accountant refuses what this one composes."""
    with pytest.raises(UnsupportedLoss):
        ZeroConcentrated().amount(Loss(Fraction(1), delta=SMALL))


@pytest.mark.parametrize("rho", [1e-4, 0.05, 1.0, 7.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_the_two_conversions_are_inverse(rho: float, delta: float) -> None:
    """delta at the epsilon of a delta is that delta, unless epsilon is 0."""
    epsilon = to_epsilon(rho, delta)
    if epsilon > 0:
        assert to_delta(rho, epsilon) == pytest.approx(delta, rel=1e-3)


def test_the_odometer_rises_and_stays_above_the_filter() -> None:
    """A figure valid at any moment costs more than one for a ceiling fixed in advance."""
    delta, last = Fraction(1, 10**5), Fraction(0)
    for rho in (Fraction(0), Fraction(1, 10**7), Fraction(1, 100), Fraction(1), Fraction(9)):
        epsilon, same = odometer(rho, delta)
        assert same == delta and epsilon >= last
        assert float(epsilon) >= to_epsilon(float(rho), float(delta))
        last = epsilon
    assert float(odometer(Fraction(1), delta)[0]) < 1.6 * to_epsilon(1.0, 1e-5)
    with pytest.raises(PolicyError):
        odometer(Fraction(1), Fraction(0))


def test_the_odometers_shares_of_delta_add_up() -> None:
    """All levels together spend no more than delta."""
    shares = 6 / (math.pi * (np.arange(10**6) + 1)) ** 2
    assert shares.sum() <= 1
    assert FINEST > 0 and LEVEL > 1


def test_the_odometer_holds_when_the_moment_is_chosen_from_the_outcomes() -> None:
    """Stop as soon as the privacy loss exceeds what the odometer says: rarely, over many runs.

    Gaussian releases of rho each; the loss after n of them is N(n rho, 2 n rho). A naive figure
    for the last moment alone, at the same delta, is exceeded more often (the power twin).
    """
    rng, delta, rho, steps, runs = np.random.default_rng(5), 0.05, 0.02, 200, 4000
    loss = rng.normal(rho, math.sqrt(2 * rho), (runs, steps)).cumsum(axis=1)
    totals = [Fraction(n + 1) / 50 for n in range(steps)]
    valid = np.array([float(odometer(total, Fraction(1, 20))[0]) for total in totals])
    assert (loss > valid).any(axis=1).mean() <= delta
    deviation = np.sqrt(2 * rho * np.arange(1, steps + 1))
    naive = rho * np.arange(1, steps + 1) + 1.645 * deviation
    assert (loss > naive).any(axis=1).mean() > 3 * delta


def test_the_share_of_delta_that_losses_may_take_is_fixed_before_the_first_charge() -> None:
    """A server that stops at a bad loss, and else spends what deltas are left, fails no oftener than delta.

    The odometer's own share was what the charges had left of delta: it bounded a bad loss by all of it first,
    and the event of the losses' own deltas by nearly all of it once more.
    """
    delta, budget = Fraction(1, 20), Budget.of("20", "0.05")
    ceiling = APPROXIMATE.ceiling(budget)
    first, most = (Fraction(1, 10), Fraction(0)), (Fraction(1, 10), ceiling[1])
    before, after = (APPROXIMATE.odometer(x, delta, [ceiling]) for x in (first, most))
    assert before == after and before[1] == delta
    own = odometer(first[0], delta - ceiling[1], [ceiling[0]])
    assert before[0] == own[0]


def test_deltas_beyond_what_was_fixed_are_told_on_top() -> None:
    """Without a budget, or beyond it, no share of delta was fixed for them."""
    total = (Fraction(1, 100), 3 * SMALL)
    epsilon, delta = APPROXIMATE.odometer(total, 10 * SMALL)
    assert (epsilon, delta) == (odometer(total[0], 10 * SMALL)[0], 13 * SMALL)
    stated = APPROXIMATE.stated(total, None)
    assert stated.delta == 13 * SMALL and stated.epsilon == epsilon
    within = APPROXIMATE.stated(total, Budget.of("1", "1e-5"))
    assert within.delta == 10 * SMALL and within.epsilon <= 1
