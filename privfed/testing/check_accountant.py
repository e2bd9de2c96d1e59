"""Conformance of an accountant: exact sums, sharp ceilings, and no guarantee that is untrue.

Guarantees are compared with the exact composition of randomized response, which dominates every pure
loss, and of Gaussian noise, which a zCDP loss may be.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
from scipy import stats

from privfed.errors import PolicyError, UnsupportedLoss
from privfed.privacy.accountant import STATED, Accountant, Amount, Budget
from privfed.privacy.conversion import gaussian_delta
from privfed.privacy.loss import Loss
from privfed.testing.conformance import Check, checks_of, run_checks

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
#: Where figures told at any moment are tried, too: chance is large enough to show.
STOPPED = Fraction(1, 100)


@dataclass(frozen=True)
class AccountantCase:
    """An accountant under test, with a budget that it can hold."""

    accountant: Accountant
    budget: Budget

    def composed(self) -> list[Loss]:
        """The losses that the accountant composes."""
        return [loss for loss in LOSSES if self.amount(loss) is not None]

    def amount(self, loss: Loss) -> Amount | None:
        """What a loss adds; None if the accountant refuses it."""
        try:
            return self.accountant.amount(loss)
        except UnsupportedLoss:
            return None

    def total(self, *losses: Loss) -> Amount:
        """Losses added one after another."""
        return reduce(self.accountant.add, losses, self.accountant.nothing)

    def guaranteed(self, loss: Loss) -> Iterator[tuple[int, float, float]]:
        """The guarantees of a loss composed with itself: times, epsilon, delta; none if refused.

        At the budget's delta, and at 0, where an accountant may have none (PolicyError).
        """
        for times in TIMES if self.amount(loss) is not None else ():
            total = self.total(*[loss] * times)
            for asked in {Fraction(0), self.budget.delta}:
                with nullcontext() if asked else suppress(PolicyError):
                    epsilon, delta = self.accountant.guarantee(total, asked)
                    yield times, float(epsilon), float(delta)


def check_accountant(
    accountant: Accountant, budget: Budget | None = None, *, skip: Mapping[str, str] | None = None
) -> list[str]:
    """Run every check on an accountant, with a ``budget`` that it can hold ((2, 1e-5)); as :func:`.run_checks`."""
    return run_checks(CHECKS, AccountantCase(accountant, budget or Budget.of(2, "1e-5")), skip)


def check_composes_something(case: AccountantCase) -> None:
    """At least one kind of loss is composed; the others are refused as unsupported."""
    assert case.composed()


def check_amounts(case: AccountantCase) -> None:
    """An amount has an exact, non-negative number for each component."""
    size = len(case.accountant.components)
    assert case.accountant.nothing == (Fraction(0),) * size
    for amount in map(case.accountant.amount, case.composed()):
        assert len(amount) == size
        assert all(isinstance(part, Fraction) and part >= 0 for part in amount)
        assert any(amount)


def check_unprotected_adds_nothing(case: AccountantCase) -> None:
    """An unprotected loss is counted apart, and a free one is free."""
    assert case.total(Loss.open("exact")) == case.accountant.nothing
    assert case.total(Loss.free()) == case.accountant.nothing


def check_exact_sums(case: AccountantCase) -> None:
    """Order does not matter, and a hundred small charges are exactly one hundred times one."""
    forth = case.total(*case.composed())
    assert forth == case.total(*reversed(case.composed()))
    for loss in case.composed():
        one = case.accountant.amount(loss)
        assert case.total(*[loss] * 100) == tuple(100 * part for part in one)


def check_sharp_ceiling(case: AccountantCase) -> None:
    """The ceiling itself fits; a hair more in any component does not; nothing latches."""
    ceiling = case.accountant.ceiling(case.budget)
    hair = Fraction(1, 10**30)
    assert case.accountant.fits(ceiling, ceiling)
    for index in range(len(ceiling)):
        over = tuple(part + hair * (at == index) for at, part in enumerate(ceiling))
        assert not case.accountant.fits(over, ceiling)
    assert case.accountant.fits(case.accountant.nothing, ceiling)


def check_the_budget_is_kept(case: AccountantCase) -> None:
    """A full ledger guarantees the budget, and an empty one guarantees zero."""
    ceiling = case.accountant.ceiling(case.budget)
    epsilon, delta = case.accountant.guarantee(ceiling, case.budget.delta)
    assert epsilon <= case.budget.epsilon
    assert delta <= case.budget.delta
    empty, _ = case.accountant.guarantee(case.accountant.nothing, case.budget.delta)
    assert empty == 0


def check_a_larger_budget_holds_more(case: AccountantCase) -> None:
    """Twice the epsilon is never a lower ceiling."""
    twice = Budget(2 * case.budget.epsilon, case.budget.delta)
    one, other = case.accountant.ceiling(case.budget), case.accountant.ceiling(twice)
    assert case.accountant.fits(one, other)
    assert one != other


def check_pure_losses(case: AccountantCase) -> None:
    """What is guaranteed of randomized responses is true of them."""
    for each in ("0.1", "0.7"):
        for times, epsilon, delta in case.guaranteed(Loss.pure(each)):
            assert responses_delta(float(each), times, epsilon) <= delta * (1 + 1e-6) + 1e-12


def check_gaussian_losses(case: AccountantCase) -> None:
    """What is guaranteed of Gaussian noise is true of it."""
    for rho in ("0.01", "0.3"):
        for times, epsilon, delta in case.guaranteed(Loss.zcdp(rho)):
            mu = math.sqrt(2 * float(rho) * times)
            assert gaussian_delta(mu, epsilon) <= delta * (1 + 1e-6)


def check_what_is_left(case: AccountantCase) -> None:
    """Of a budget no more than all is left before a charge, less after one, and nothing of a full one."""
    charged = case.accountant.cost(case.composed()[0])
    totals = case.accountant.nothing, charged, case.accountant.ceiling(case.budget)
    left = [case.accountant.left(total, case.budget) for total in totals]
    assert case.budget.epsilon >= left[0] > left[1] >= left[2] == 0, f"left: {[*map(float, left)]}"


def check_any_moment(case: AccountantCase) -> None:
    """What is told of a running total is true at whatever moment a server stops by what it saw.

    At such a moment no better composition than the plain sum of epsilons holds by itself (Rogers et al. 2016).
    Of randomized responses the best rule for stopping is found; other losses need an odometer.
    """
    own = type(case.accountant).odometer is not Accountant.odometer
    for loss in (each for each in case.composed() if not each.delta):
        for budget in (case.budget, None):
            told = case.accountant.stated(case.total(*[loss] * TIMES[-1]), budget)
            assert isinstance(told.epsilon, Fraction) and told.epsilon >= 0
        stopped = loss.epsilon is not None and _stopped(case, loss)
        if stopped or not (own or loss.epsilon is not None):
            raise AssertionError(
                f"states {float(told.epsilon):.4g} of {TIMES[-1]} releases that may depend on each other{stopped or ''}: "
                "write odometer(total, delta, fixed), such as that of privfed.accountants.zcdp"
            )


def _stopped(case: AccountantCase, loss: Loss) -> str:
    """By how much a running total of randomized responses exceeds its delta, in words; or nothing."""
    totals = [case.total(*[loss] * times) for times in range(1, TIMES[-1] + 1)]
    for fixed in ((), (case.accountant.ceiling(case.budget),)):
        for asked in {case.budget.delta or STATED, STOPPED}:
            told = [case.accountant.odometer(total, asked, fixed) for total in totals]
            most = float(max(asked, *(delta for _, delta in told)))
            found = stopped_delta(float(loss.epsilon or 0), [float(epsilon) for epsilon, _ in told])
            if found > most * (1 + 1e-6) + 1e-12:
                return f", and of some rule for stopping is untrue at delta {found:.4g}, where {most:.4g} is told"
    return ""


def stopped_delta(each: float, told: Sequence[float]) -> float:
    """The least delta at which epsilons told after 1, 2, ... randomized responses hold, whenever a server stops.

    E max(0, 1 - exp(told - loss)) under the best rule for stopping, which is found from the end.
    """
    truth, gains = 1 / (1 + math.exp(-each)), [np.zeros(1)]
    for times, epsilon in enumerate(told, 1):
        loss = each * (2 * np.arange(times + 1) - times)
        gains.append(-np.expm1(np.minimum(epsilon - loss, 0)))
    best = gains.pop()
    for gain in reversed(gains):
        best = np.maximum(gain, (1 - truth) * best[:-1] + truth * best[1:])
    return float(best[0])


def responses_delta(each: float, times: int, epsilon: float) -> float:
    """The least delta at which so many randomized responses are (epsilon, delta)-DP: binomial truths."""
    truths = np.arange(times + 1)
    truth = 1 / (1 + math.exp(-each))
    one = stats.binom.pmf(truths, times, truth)
    other = stats.binom.pmf(truths, times, 1 - truth)
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


CHECKS: tuple[Check[AccountantCase], ...] = checks_of(__name__)
