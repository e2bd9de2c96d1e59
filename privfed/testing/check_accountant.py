"""Conformance of an accountant: exact sums, sharp ceilings, and no guarantee that is untrue.

The guarantees are held against the exact composition of the two worst cases: randomized response,
which dominates every pure loss, and Gaussian noise, which a zCDP loss may be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy import stats
from scipy.special import log_ndtr

from privfed.errors import UnsupportedLoss
from privfed.privacy.accountant import Accountant, Amount, Budget
from privfed.privacy.loss import Loss
from privfed.testing.conformance import Check, run_checks

#: Losses that an accountant may be given: pure, zCDP, approximate.
LOSSES = (
    Loss.pure("0.1"),
    Loss.pure("0.7"),
    Loss.zcdp("0.01"),
    Loss.zcdp("0.3"),
    Loss(epsilon=Fraction(1, 10), delta=Fraction(1, 10**7)),
    Loss(rho=Fraction(1, 100), delta=Fraction(1, 10**7)),
)
#: How often a loss is composed with itself where guarantees are held against the truth.
TIMES = (1, 2, 10, 100)


@dataclass(frozen=True)
class AccountantCase:
    """An accountant on the bench, with a budget that it can hold."""

    accountant: Accountant
    budget: Budget

    def composed(self) -> list[Loss]:
        """The losses that the accountant composes."""
        return [loss for loss in LOSSES if self.amount(loss) is not None]

    def amount(self, loss: Loss) -> Amount | None:
        """What a loss adds; none where the accountant refuses it."""
        try:
            return self.accountant.amount(loss)
        except UnsupportedLoss:
            return None

    def total(self, *losses: Loss) -> Amount:
        """Losses added one after another."""
        total = self.accountant.nothing
        for loss in losses:
            total = self.accountant.add(total, loss)
        return total


def check_accountant(
    accountant: Accountant,
    budget: Budget | None = None,
    *,
    skip: Mapping[str, str] | None = None,
) -> list[str]:
    """Run every check on an accountant.

    Args:
        accountant: what is checked.
        budget: a ceiling that it can hold; (2, 1e-5) unless given.
        skip: checks that do not apply, each with the reason.

    Returns:
        The names of the checks that ran.

    Raises:
        AssertionError: a check failed; the message names it.
    """
    bench = AccountantCase(accountant, budget or Budget.of(2, "1e-5"))
    return run_checks(CHECKS, bench, skip)


def check_composes_something(bench: AccountantCase) -> None:
    """At least one kind of loss is composed; the others are refused as unsupported."""
    assert bench.composed()


def check_amounts(bench: AccountantCase) -> None:
    """An amount has an exact, non-negative number for each component."""
    size = len(bench.accountant.components)
    assert bench.accountant.nothing == (Fraction(0),) * size
    for loss in bench.composed():
        amount = bench.accountant.amount(loss)
        assert len(amount) == size
        assert all(isinstance(part, Fraction) and part >= 0 for part in amount)
        assert any(amount)


def check_unprotected_adds_nothing(bench: AccountantCase) -> None:
    """An unprotected loss is counted apart, and a free one is free."""
    assert bench.total(Loss.open("exact")) == bench.accountant.nothing
    assert bench.total(Loss.free()) == bench.accountant.nothing


def check_exact_sums(bench: AccountantCase) -> None:
    """Order does not matter, and a hundred small charges are exactly one hundred times one."""
    forth = bench.total(*bench.composed())
    assert forth == bench.total(*reversed(bench.composed()))
    for loss in bench.composed():
        one = bench.accountant.amount(loss)
        assert bench.total(*[loss] * 100) == tuple(100 * part for part in one)


def check_sharp_ceiling(bench: AccountantCase) -> None:
    """The ceiling itself fits; a hair more in any component does not; nothing latches."""
    ceiling = bench.accountant.ceiling(bench.budget)
    hair = Fraction(1, 10**30)
    assert bench.accountant.fits(ceiling, ceiling)
    for index in range(len(ceiling)):
        over = tuple(part + hair * (at == index) for at, part in enumerate(ceiling))
        assert not bench.accountant.fits(over, ceiling)
    assert bench.accountant.fits(bench.accountant.nothing, ceiling)


def check_the_budget_is_kept(bench: AccountantCase) -> None:
    """A full ledger guarantees the budget, and an empty one guarantees zero."""
    ceiling = bench.accountant.ceiling(bench.budget)
    epsilon, delta = bench.accountant.guarantee(ceiling, bench.budget.delta)
    assert epsilon <= bench.budget.epsilon
    assert delta <= bench.budget.delta
    empty, _ = bench.accountant.guarantee(bench.accountant.nothing, bench.budget.delta)
    assert empty == 0


def check_a_larger_budget_holds_more(bench: AccountantCase) -> None:
    """Twice the epsilon is never a lower ceiling."""
    twice = Budget(2 * bench.budget.epsilon, bench.budget.delta)
    one, other = bench.accountant.ceiling(bench.budget), bench.accountant.ceiling(twice)
    assert bench.accountant.fits(one, other)
    assert one != other


def check_pure_losses(bench: AccountantCase) -> None:
    """What is guaranteed of randomized responses is true of them."""
    for loss in (Loss.pure("0.1"), Loss.pure("0.7")):
        if bench.amount(loss) is None:
            continue
        for times in TIMES:
            stated = bench.accountant.guarantee(bench.total(*[loss] * times), bench.budget.delta)
            epsilon, delta = map(float, stated)
            assert loss.epsilon is not None
            assert (
                responses_delta(float(loss.epsilon), times, epsilon) <= delta * (1 + 1e-6) + 1e-12
            )


def check_gaussian_losses(bench: AccountantCase) -> None:
    """What is guaranteed of Gaussian noise is true of it."""
    for loss in (Loss.zcdp("0.01"), Loss.zcdp("0.3")):
        if bench.amount(loss) is None:
            continue
        for times in TIMES:
            stated = bench.accountant.guarantee(bench.total(*[loss] * times), bench.budget.delta)
            epsilon, delta = map(float, stated)
            assert loss.rho is not None
            assert gaussian_delta(float(loss.rho) * times, epsilon) <= delta * (1 + 1e-6)


def responses_delta(each: float, times: int, epsilon: float) -> float:
    """The least delta at which ``times`` randomized responses are (epsilon, delta)-DP, exactly.

    The number of truths is binomial under either neighbour; the divergence is a sum over it.
    """
    truths = np.arange(times + 1)
    truth = 1 / (1 + math.exp(-each))
    one = stats.binom.pmf(truths, times, truth)
    other = stats.binom.pmf(truths, times, 1 - truth)
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


def gaussian_delta(rho: float, epsilon: float) -> float:
    """The least delta at which Gaussian noise of ``rho`` zCDP is (epsilon, delta)-DP, exactly.

    Source: Balle and Wang 2018, Theorem 8, with mean shift sqrt(2 rho) in deviations.
    """
    shift = math.sqrt(2 * rho)
    near = log_ndtr(shift / 2 - epsilon / shift)
    far = epsilon + log_ndtr(-shift / 2 - epsilon / shift)
    return float(np.exp(near) - np.exp(far))


CHECKS: tuple[Check[AccountantCase], ...] = (
    check_composes_something,
    check_amounts,
    check_unprotected_adds_nothing,
    check_exact_sums,
    check_sharp_ceiling,
    check_the_budget_is_kept,
    check_a_larger_budget_holds_more,
    check_pure_losses,
    check_gaussian_losses,
)
