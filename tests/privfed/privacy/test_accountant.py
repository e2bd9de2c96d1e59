"""What an accountant states of a total: its ceiling, what is spent so far, and what is left."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privfed.accountants.approximate import ApproximateZeroConcentrated
from privfed.accountants.pure import PureEpsilon
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.privacy.accountant import STATED, Accountant, Budget

BUDGETS = [Budget.of("1", "1e-5"), Budget.of("8", "1e-5"), Budget.of("30", "1e-5")]
ACCOUNTANTS = [PureEpsilon(), ZeroConcentrated(), ApproximateZeroConcentrated()]


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
@pytest.mark.parametrize("budget", BUDGETS, ids=lambda b: str(b.epsilon))
@settings(max_examples=25)
@given(share=st.fractions(0, 1))
def test_a_filter_states_its_ceiling_and_never_more(
    accountant: Accountant, budget: Budget, share: Fraction
) -> None:
    """The ceiling for any further queries; so far the smaller of that and the odometer's figure."""
    total = tuple(share * part for part in accountant.ceiling(budget))
    stated = accountant.stated(total, budget)
    odometer, at = accountant.odometer(total, budget.delta)
    assert stated.ceiling == budget.epsilon
    assert stated.epsilon == min(odometer if at <= budget.delta else budget.epsilon, budget.epsilon)
    assert stated.delta == budget.delta


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
def test_an_amended_or_exceeded_ceiling_certifies_nothing(accountant: Accountant) -> None:
    """What was not fixed before the first charge is no filter's ceiling."""
    budget, total = BUDGETS[0], accountant.ceiling(BUDGETS[1])
    for stated in (
        accountant.stated(accountant.ceiling(budget), budget, amended=True),
        accountant.stated(total, budget),
        accountant.stated(total, None),
    ):
        assert stated.ceiling is None
        assert stated.delta in (budget.delta, STATED, STATED + total[1])
    assert accountant.stated(total, budget).epsilon >= accountant.odometer(total, budget.delta)[0]


EPSILONS = st.fractions(Fraction(1, 10**4), 10**6) | st.integers(1, 40).map(Fraction)
DELTAS = st.integers(1, 300).map(lambda power: Fraction(1, 10**power)) | st.just(Fraction(9, 10))


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
@given(epsilon=EPSILONS, delta=DELTAS)
@example(Fraction(10**6), Fraction(1, 10**300))
@example(Fraction(76062565881749, 10646462084665000), Fraction(9, 10))
def test_a_full_ceiling_is_within_every_budget(
    accountant: Accountant, epsilon: Fraction, delta: Fraction
) -> None:
    """Rounded up on one way and down on the other: to the last digit, for what a person may write."""
    ceiling = accountant.ceiling(Budget(epsilon, delta))
    told = accountant.guarantee(ceiling, delta)
    assert told[0] <= epsilon and told[1] <= delta
    if ceiling[0] > Fraction(1, 10**9):  # of less, what is rounded down to 15 digits shows
        assert told[0] >= epsilon * (1 - Fraction(1, 10**4))


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
def test_under_an_amended_budget_the_first_ceiling_still_bounds_what_fits_it(
    accountant: Accountant,
) -> None:
    """At the delta that is told the smaller of the odometer's figure and of the filter's that was there before any charge."""
    first, later = BUDGETS[0], BUDGETS[1]
    ceiling = accountant.ceiling(first)
    stated = accountant.stated(ceiling, later, amended=True, fixed=(ceiling,))
    filtered = accountant.guarantee(ceiling, stated.delta)[0]
    odometer, _ = accountant.odometer(ceiling, stated.delta, (ceiling,))
    assert stated.epsilon == min(odometer, filtered)
    assert filtered < odometer or isinstance(accountant, PureEpsilon)
    beyond = accountant.ceiling(later)
    told = accountant.stated(beyond, later, amended=True, fixed=(ceiling,))
    assert told.epsilon == accountant.odometer(beyond, later.delta, (ceiling,))[0]


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
def test_of_an_untouched_budget_all_is_left_and_of_a_crumb_nothing(accountant: Accountant) -> None:
    """To the last digit; and what the rounding of shares leaves is told as nothing, as is less than nothing."""
    budget = BUDGETS[1]
    ceiling = accountant.ceiling(budget)
    assert accountant.left(accountant.nothing, budget) == budget.epsilon
    for rest in (ceiling[0] / 100_001, Fraction(0), -ceiling[0]):
        assert accountant.left((ceiling[0] - rest, Fraction(0)), budget) == 0
    assert accountant.left((ceiling[0] * Fraction(9, 10), Fraction(0)), budget) > 0


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
@settings(max_examples=15)
@given(share=st.fractions(0, 1))
def test_what_is_left_can_be_spent_and_no_more(accountant: Accountant, share: Fraction) -> None:
    """A study of that epsilon fits into what is left; one a thousandth larger does not; under 0.001 % is nothing."""
    budget = BUDGETS[1]
    ceiling = accountant.ceiling(budget)
    total = (share * ceiling[0], Fraction(0))
    left = accountant.left(total, budget)
    rest = ceiling[0] - total[0]
    if left:
        assert accountant.ceiling(Budget(left, budget.delta))[0] <= rest
        assert accountant.ceiling(Budget(left * Fraction(1001, 1000), budget.delta))[0] > rest
    else:
        assert rest < ceiling[0] / 100_000


@pytest.mark.parametrize("epsilon", ["8", "30"])
def test_stopping_at_will_breaks_the_sum_so_far_and_not_what_is_stated(epsilon: str) -> None:
    """A server that stops when its answers favour it: the total's own figure fails, ours holds.

    Two hundred Gaussian answers of equal rho; it stops as soon as the privacy loss is a quarter above
    what is claimed then. How much likelier that is under the one input than e^claim times under the
    other is the delta that the claim really has.
    """
    accountant, budget = ZeroConcentrated(), Budget.of(epsilon, "1e-2")
    rng, steps = np.random.default_rng(5), 200
    whole = float(accountant.ceiling(budget)[0]) * (1 - 1e-12)
    totals = [(Fraction(whole) * (n + 1) / steps, Fraction(0)) for n in range(steps)]
    naive = np.array([float(accountant.guarantee(t, budget.delta)[0]) for t in totals])
    told = np.array([float(accountant.stated(t, budget).epsilon) for t in totals])
    rho = whole / steps
    losses = np.cumsum(rng.normal(rho, np.sqrt(2 * rho), size=(40_000, steps)), axis=1)

    def delta(claimed: np.ndarray) -> float:
        over = losses > claimed + 0.25
        first = over.argmax(axis=1)
        excess = losses[np.arange(len(losses)), first] - claimed[first]
        return float(np.where(over.any(axis=1), -np.expm1(-excess), 0).mean())

    assert delta(naive) > 1.5e-2, "stopping at will must matter, or the test has no power"
    assert delta(told) < 1e-2
