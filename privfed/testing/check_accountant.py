"""Conformance of an accountant: exact sums, sharp ceilings, and only true guarantees.

Guarantees are compared with the exact composition of randomized response, which dominates every pure
loss, and of Gaussian noise, which a zCDP loss may be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from privfed.audits.compositions import (
    LOSSES,
    TIMES,
    Composition,
    compositions,
    stopped_too_strong,
    too_strong,
)
from privfed.errors import UnsupportedLoss
from privfed.privacy.accountant import Accountant, Amount, Budget
from privfed.privacy.loss import Loss
from privfed.testing.conformance import Check, checks_of, run_checks


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

    def check(self, chosen: Sequence[Composition]) -> None:
        """Check the guarantees of some compositions."""
        for composition in chosen:
            for untrue in too_strong(self.accountant, composition, self.budget.delta):
                raise AssertionError(untrue)


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
    case.check([one for one in compositions(case.composed()) if _all_of(one, "epsilon")])


def check_gaussian_losses(case: AccountantCase) -> None:
    """What is guaranteed of Gaussian noise is true of it."""
    case.check([one for one in compositions(case.composed()) if _all_of(one, "rho")])


def check_mixed_losses(case: AccountantCase) -> None:
    """What is guaranteed of losses of several kinds together, or that may fail with a delta, is true."""
    case.check(list(compositions(case.composed())))


def _all_of(composition: Composition, measure: str) -> bool:
    """Whether all losses state this alone, without a delta."""
    kinds = {"rho" if loss.epsilon is None else "epsilon" for loss, _ in composition}
    return kinds == {measure} and not any(loss.delta for loss, _ in composition)


def check_what_is_left(case: AccountantCase) -> None:
    """Of a budget no more than all is left before a charge, less after one, and nothing of a full one."""
    charged = case.accountant.cost(case.composed()[0])
    totals = case.accountant.nothing, charged, case.accountant.ceiling(case.budget)
    rest = [case.accountant.left(total, case.budget) for total in totals]
    assert case.budget.epsilon >= rest[0] > rest[1] >= rest[2] == 0, f"left: {[*map(float, rest)]}"


def check_any_moment(case: AccountantCase) -> None:
    """What is told of a running total is true at whatever moment a server stops by what it saw."""
    own = type(case.accountant).odometer is not Accountant.odometer
    fixed = (case.accountant.ceiling(case.budget),)
    for loss in (item for item in case.composed() if not item.delta):
        for budget in (case.budget, None):
            statement = case.accountant.stated(case.total(*[loss] * TIMES[-1]), budget)
            assert isinstance(statement.epsilon, Fraction) and statement.epsilon >= 0
        untrue = stopped_too_strong(case.accountant, loss, case.budget.delta, fixed)
        if not (own or loss.epsilon is not None):
            untrue = f"states one of {TIMES[-1]} releases of a rho that may depend on each other"
        assert not untrue, (
            f"{untrue}: write odometer(total, delta, fixed), such as that of privfed.extend"
        )


CHECKS: tuple[Check[AccountantCase], ...] = checks_of(__name__)
