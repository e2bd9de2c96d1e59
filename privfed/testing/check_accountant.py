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
    in_words,
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
        """Amount that a loss adds; None if the accountant refuses it; AssertionError if it raises anything else."""
        try:
            return self.accountant.amount(loss)
        except UnsupportedLoss:
            return None
        except Exception as error:
            raise AssertionError(
                f"amount of {in_words([(loss, 1)])} raises {type(error).__name__}: {error}; raise UnsupportedLoss for "
                "a loss that it cannot add, such as one without epsilon"
            ) from error

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
    assert case.composed(), "amount refuses every loss"


def check_amounts(case: AccountantCase) -> None:
    """An amount has an exact, non-negative number for each component."""
    size = len(case.accountant.components)
    assert case.accountant.nothing == (Fraction(0),) * size, "nothing is not zero"
    for loss in case.composed():
        amount = case.accountant.amount(loss)
        told = f"amount of {in_words([(loss, 1)])} is {amount!r}"
        assert type(amount) is tuple and len(amount) == size, (
            f"{told}; return a tuple, one number for each of {', '.join(case.accountant.components)}"
        )
        assert all(isinstance(part, Fraction) and part >= 0 for part in amount), (
            f"{told}; return Fractions of at least 0, and raise UnsupportedLoss for a loss that it cannot add"
        )
        assert any(amount), f"{told}: it forgets the loss"
        assert amount == case.accountant.amount(loss), f"{told}, and another one the second time"


def check_unprotected_adds_nothing(case: AccountantCase) -> None:
    """An unprotected loss is counted apart, and a free one is free."""
    for name, loss in {"unprotected": Loss.open("exact"), "free": Loss.free()}.items():
        total = case.total(loss)
        assert total == case.accountant.nothing, f"of an {name} loss it adds {total!r}"


def check_exact_sums(case: AccountantCase) -> None:
    """Order does not matter, and a hundred small charges are exactly one hundred times one."""
    total = case.total(*case.composed())
    assert total == case.total(*reversed(case.composed())), "in another order the sum differs"
    for loss in case.composed():
        amount = case.accountant.amount(loss)
        assert case.total(*[loss] * 100) == tuple(100 * part for part in amount), (
            f"100 of {in_words([(loss, 1)])} do not add 100 times {amount!r}; leave add to privfed"
        )


def check_sharp_ceiling(case: AccountantCase) -> None:
    """The ceiling itself fits; a hair more in any component does not; nothing latches."""
    ceiling = case.accountant.ceiling(case.budget)
    hair = Fraction(1, 10**30)
    assert case.accountant.fits(ceiling, ceiling), f"{ceiling!r} itself does not fit"
    for index in range(len(ceiling)):
        over = tuple(part + hair * (i == index) for i, part in enumerate(ceiling))
        over_in = case.accountant.components[index]
        assert not case.accountant.fits(over, ceiling), f"more {over_in} than the ceiling fits"
    assert case.accountant.fits(case.accountant.nothing, ceiling), "nothing does not fit"


def check_the_budget_is_kept(case: AccountantCase) -> None:
    """A full ledger guarantees the budget, and an empty one guarantees zero."""
    ceiling = case.accountant.ceiling(case.budget)
    epsilon, delta = case.accountant.guarantee(ceiling, case.budget.delta)
    assert epsilon <= case.budget.epsilon and delta <= case.budget.delta, (
        f"its ceiling for {case.budget} guarantees {float(epsilon):.6g} at {float(delta):.6g}; round ceiling down"
    )
    empty, _ = case.accountant.guarantee(case.accountant.nothing, case.budget.delta)
    assert empty == 0, f"of nothing it guarantees epsilon {float(empty):.6g}"


def check_a_larger_budget_holds_more(case: AccountantCase) -> None:
    """Twice the epsilon is never a lower ceiling."""
    twice = Budget(2 * case.budget.epsilon, case.budget.delta)
    ceiling, larger = case.accountant.ceiling(case.budget), case.accountant.ceiling(twice)
    assert case.accountant.fits(ceiling, larger) and ceiling != larger, (
        f"of {case.budget} it is {ceiling!r}, of {twice} {larger!r}"
    )


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
            assert isinstance(statement.epsilon, Fraction) and statement.epsilon >= 0, (
                f"odometer gives epsilon {statement.epsilon!r}; return a Fraction, rounded up"
            )
        untrue = stopped_too_strong(case.accountant, loss, case.budget.delta, fixed)
        if not (own or loss.epsilon is not None):
            untrue = f"states one of {TIMES[-1]} releases of a rho that may depend on each other"
        assert not untrue, (
            f"{untrue}: write odometer(total, delta, fixed), such as that of privfed.extend"
        )


CHECKS: tuple[Check[AccountantCase], ...] = checks_of(__name__)
