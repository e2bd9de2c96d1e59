"""Conformance of an accountant: exact sums, sharp ceilings, and only true guarantees.

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
#: Numbers of self-compositions for which guarantees are compared with the truth.
TIMES = (1, 2, 10, 100)
#: Another delta at which odometers are tested, large enough for violations to show.
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
        """Amount that a loss adds; None if the accountant refuses it."""
        try:
            return self.accountant.amount(loss)
        except UnsupportedLoss:
            return None

    def total(self, *losses: Loss) -> Amount:
        """Sum of the losses' amounts."""
        return reduce(self.accountant.add, losses, self.accountant.nothing)

    def guaranteed(self, loss: Loss) -> Iterator[tuple[int, float, float]]:
        """Yield number, epsilon and delta for self-compositions of a loss; nothing if it is refused.

        At the budget's delta, and at 0, for which an accountant may have no guarantee (PolicyError).
        """
        for times in TIMES if self.amount(loss) is not None else ():
            total = self.total(*[loss] * times)
            for requested in {Fraction(0), self.budget.delta}:
                with nullcontext() if requested else suppress(PolicyError):
                    epsilon, delta = self.accountant.guarantee(total, requested)
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
    total = case.total(*case.composed())
    assert total == case.total(*reversed(case.composed()))
    for loss in case.composed():
        amount = case.accountant.amount(loss)
        assert case.total(*[loss] * 100) == tuple(100 * part for part in amount)


def check_sharp_ceiling(case: AccountantCase) -> None:
    """The ceiling itself fits; a hair more in any component does not; nothing latches."""
    ceiling = case.accountant.ceiling(case.budget)
    hair = Fraction(1, 10**30)
    assert case.accountant.fits(ceiling, ceiling)
    for index in range(len(ceiling)):
        over = tuple(part + hair * (i == index) for i, part in enumerate(ceiling))
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
    ceiling, larger = case.accountant.ceiling(case.budget), case.accountant.ceiling(twice)
    assert case.accountant.fits(ceiling, larger)
    assert ceiling != larger


def check_pure_losses(case: AccountantCase) -> None:
    """What is guaranteed of randomized responses is true of them."""
    for single in ("0.1", "0.7"):
        for times, epsilon, delta in case.guaranteed(Loss.pure(single)):
            true = responses_delta(float(single), times, epsilon)
            stated = f"{times} of epsilon {single}: at epsilon {epsilon:.4g}"
            assert true <= delta * (1 + 1e-6) + 1e-12, _too_low(stated, true, delta)


def check_gaussian_losses(case: AccountantCase) -> None:
    """What is guaranteed of Gaussian noise is true of it."""
    for rho in ("0.01", "0.3"):
        for times, epsilon, delta in case.guaranteed(Loss.zcdp(rho)):
            true = gaussian_delta(math.sqrt(2 * float(rho) * times), epsilon)
            stated = f"{times} of rho {rho}: at epsilon {epsilon:.4g}"
            assert true <= delta * (1 + 1e-6), _too_low(stated, true, delta)


def _too_low(stated: str, true: float, delta: float) -> str:
    return f"{stated} delta is {true:.4g}, not {delta:.4g}: the guarantee is too strong"


def check_what_is_left(case: AccountantCase) -> None:
    """Of a budget no more than all is left before a charge, less after one, and nothing of a full one."""
    charged = case.accountant.cost(case.composed()[0])
    totals = case.accountant.nothing, charged, case.accountant.ceiling(case.budget)
    rest = [case.accountant.left(total, case.budget) for total in totals]
    assert case.budget.epsilon >= rest[0] > rest[1] >= rest[2] == 0, f"left: {[*map(float, rest)]}"


def check_any_moment(case: AccountantCase) -> None:
    """What is told of a running total is true at whatever moment a server stops by what it saw.

    With adaptive stopping, no composition better than the sum of epsilons holds in general (Rogers et al. 2016).
    For randomized responses the optimal stopping rule is computed; other losses require an odometer.
    """
    odometer = type(case.accountant).odometer is not Accountant.odometer
    for loss in (item for item in case.composed() if not item.delta):
        for budget in (case.budget, None):
            statement = case.accountant.stated(case.total(*[loss] * TIMES[-1]), budget)
            assert isinstance(statement.epsilon, Fraction) and statement.epsilon >= 0
        excess = loss.epsilon is not None and _excess_if_stopped(case, loss)
        if excess or not (odometer or loss.epsilon is not None):
            raise AssertionError(
                f"states {float(statement.epsilon):.4g} of {TIMES[-1]} releases that may depend on each other{excess or ''}: "
                "write odometer(total, delta, fixed), such as that of privfed.accountants.zcdp"
            )


def _excess_if_stopped(case: AccountantCase, loss: Loss) -> str:
    """Excess of an odometer over its delta for randomized responses, in words; empty if there is none."""
    totals = [case.total(*[loss] * times) for times in range(1, TIMES[-1] + 1)]
    for fixed in ((), (case.accountant.ceiling(case.budget),)):
        for requested in {case.budget.delta or STATED, STOPPED}:
            pairs = [case.accountant.odometer(total, requested, fixed) for total in totals]
            stated = float(max(requested, *(delta for _, delta in pairs)))
            true = stopped_delta(float(loss.epsilon or 0), [float(epsilon) for epsilon, _ in pairs])
            if true > stated * (1 + 1e-6) + 1e-12:
                return (
                    f", and of some rule for stopping is untrue at delta {true:.4g}, where {stated:.4g} is "
                    "stated"
                )
    return ""


def stopped_delta(single: float, epsilons: Sequence[float]) -> float:
    """Smallest delta at which the epsilons stated after 1, 2, ... randomized responses hold under any stopping rule.

    E max(0, 1 - exp(stated - loss)) under the optimal stopping rule, by backward induction.

    Args:
        single: epsilon of one response.
        epsilons: stated after each response, in nats.
    """
    truth, gains = 1 / (1 + math.exp(-single)), [np.zeros(1)]
    for times, epsilon in enumerate(epsilons, 1):
        loss = single * (2 * np.arange(times + 1) - times)
        gains.append(-np.expm1(np.minimum(epsilon - loss, 0)))
    best = gains.pop()
    for gain in reversed(gains):
        best = np.maximum(gain, (1 - truth) * best[:-1] + truth * best[1:])
    return float(best[0])


def responses_delta(single: float, times: int, epsilon: float) -> float:
    """Smallest delta at which ``times`` randomized responses of epsilon ``single`` are (epsilon, delta)-DP.

    The number of true responses is binomial.
    """
    truths = np.arange(times + 1)
    truth = 1 / (1 + math.exp(-single))
    present = stats.binom.pmf(truths, times, truth)
    absent = stats.binom.pmf(truths, times, 1 - truth)
    return float(np.maximum(present - math.exp(epsilon) * absent, 0).sum())


CHECKS: tuple[Check[AccountantCase], ...] = checks_of(__name__)
