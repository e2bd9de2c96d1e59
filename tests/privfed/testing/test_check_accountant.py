"""The accountants' kit: ours pass it, planted faults do not."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest

from privfed.accountants.pure import PureEpsilon
from privfed.accountants.zcdp import ZeroConcentrated
from privfed.errors import PolicyError
from privfed.privacy.accountant import Accountant, Amount, Budget
from privfed.privacy.loss import Loss
from privfed.questions import plugins
from privfed.testing.check_accountant import CHECKS, check_accountant
from tests.own_accountant import PureAndRho, PureOnly


@pytest.mark.parametrize("name", sorted(plugins.available("accountants")))
@pytest.mark.parametrize("budget", [("2", "1e-5"), ("0.05", "1e-9"), ("30", "0.01")])
def test_ours_conform(name: str, budget: tuple[str, str]) -> None:
    """Every installed accountant passes all twelve checks, under three budgets."""
    accountant: Accountant = plugins.load("accountants", name)()
    assert len(check_accountant(accountant, Budget.of(*budget))) == len(CHECKS) == 12


class Choosy(PureEpsilon):
    """A planted fault: composes nothing."""

    def amount(self, loss: Loss) -> Amount:
        """Refuse as the pure accountant refuses Gaussian noise."""
        return super().amount(Loss.zcdp(1))


class Floating(PureEpsilon):
    """A planted fault: binary noise instead of exact numbers."""

    def amount(self, loss: Loss) -> Amount:
        """Floats."""
        return tuple(float(part) for part in super().amount(loss))  # type: ignore[misc]


class Comfortable(PureEpsilon):
    """A planted fault: an unprotected loss costs a comfortable number."""

    def cost(self, loss: Loss) -> Amount:
        """One tenth."""
        return (Fraction(1, 10), Fraction(0)) if not loss.finite else self.amount(loss)


class Rounding(PureEpsilon):
    """A planted fault: totals rounded to hundredths."""

    def add(self, total: Amount, loss: Loss) -> Amount:
        """Rounded."""
        return tuple(Fraction(round(part * 7), 7) for part in super().add(total, loss))


class Lenient(PureEpsilon):
    """A planted fault: a hair over the ceiling fits."""

    def fits(self, total: Amount, ceiling: Amount) -> bool:
        """Nearly."""
        return all(a <= b + Fraction(1, 10**9) for a, b in zip(total, ceiling, strict=True))


class Generous(ZeroConcentrated):
    """A planted fault: a ceiling that holds more than the budget."""

    def ceiling(self, budget: Budget) -> Amount:
        """One percent too much."""
        return tuple(part * Fraction(101, 100) for part in super().ceiling(budget))


class Stuck(PureEpsilon):
    """A planted fault: one ceiling for every budget."""

    def ceiling(self, budget: Budget) -> Amount:
        """One."""
        return Fraction(1), Fraction(0)


class Root(PureEpsilon):
    """A planted fault: epsilons added in squares, as the deviations of noise are."""

    def amount(self, loss: Loss) -> Amount:
        """The square."""
        epsilon, delta = super().amount(loss)
        return epsilon**2, delta

    def ceiling(self, budget: Budget) -> Amount:
        """The square."""
        return budget.epsilon**2, budget.delta

    def guarantee(self, total: Amount, delta: Fraction) -> tuple[Fraction, Fraction]:
        """The root."""
        return Fraction(float(total[0]) ** 0.5), total[1]


class Discount(ZeroConcentrated):
    """A planted fault: Gaussian noise at seven tenths of its rho."""

    def amount(self, loss: Loss) -> Amount:
        """Too little."""
        rho, delta = super().amount(loss)
        return rho if loss.epsilon is not None else rho * Fraction(7, 10), delta


class Untouched(PureEpsilon):
    """A planted fault: the whole budget is left, whatever was charged."""

    def left(self, total: Amount, budget: Budget) -> Fraction:
        """All of it."""
        return budget.epsilon


class Momentary(ZeroConcentrated):
    """A planted fault: a total at a moment that a server chose is told as one at a fixed time."""

    odometer = Accountant.odometer


class Forwarded(ZeroConcentrated):
    """A planted fault: an odometer of its own, which tells the same as of a fixed time."""

    def odometer(
        self, total: Amount, delta: Fraction, fixed: Sequence[Amount] = ()
    ) -> tuple[Fraction, Fraction]:
        """As of a fixed time."""
        return self.guarantee(total, delta)


class Halved(PureEpsilon):
    """A planted fault: an odometer that tells half."""

    def odometer(
        self, total: Amount, delta: Fraction, fixed: Sequence[Amount] = ()
    ) -> tuple[Fraction, Fraction]:
        """Half of the sum."""
        return total[0] / 2, total[1]


class Always(PureAndRho):
    """A planted fault: at delta 0 it states what holds at another delta alone."""

    def guarantee(self, total: Amount, delta: Fraction) -> tuple[Fraction, Fraction]:
        """At delta 1e-5, say."""
        return super().guarantee(total, delta or Fraction(1, 10**5))[0], delta


class Deltaless(PureEpsilon):
    """A planted fault: forgets with which probability a loss may fail."""

    def amount(self, loss: Loss) -> Amount:
        """The epsilon alone."""
        return super().amount(loss)[0], Fraction(0)


class Larger(PureAndRho):
    """A planted fault: epsilons and rhos are added apart, and the larger of both is the guarantee."""

    def amount(self, loss: Loss) -> Amount:
        """One or the other."""
        if loss.epsilon is None and loss.rho is not None and not loss.delta:
            return Fraction(0), loss.rho
        return super().amount(loss)[0], Fraction(0)

    def guarantee(self, total: Amount, delta: Fraction) -> tuple[Fraction, Fraction]:
        """The larger."""
        if not delta and total[1]:
            raise PolicyError("a rho has a delta")
        converted = (
            ZeroConcentrated().guarantee((total[1], Fraction(0)), delta)[0]
            if delta
            else Fraction(0)
        )
        return max(total[0], converted), delta


def test_amounts_of_one_number_conform() -> None:
    """What is left of a budget is found of amounts of one component, too."""
    assert len(check_accountant(PureOnly())) == 12
    assert PureOnly().left((Fraction(1),), Budget.of(3)) == 2


@pytest.mark.parametrize(
    ("accountant", "check"),
    [
        (Choosy(), "composes_something"),
        (Floating(), "amounts"),
        (Comfortable(), "unprotected_adds_nothing"),
        (Rounding(), "exact_sums"),
        (Lenient(), "sharp_ceiling"),
        (Generous(), "the_budget_is_kept"),
        (Stuck(), "a_larger_budget_holds_more"),
        (Root(), "pure_losses"),
        (Discount(), "gaussian_losses"),
        (Deltaless(), "mixed_losses"),
        (Larger(), "mixed_losses"),
        (Untouched(), "what_is_left"),
        (Momentary(), "any_moment"),
        (Forwarded(), "any_moment"),
        (Halved(), "any_moment"),
        (Always(), "pure_losses"),
    ],
)
def test_each_fault_is_caught(accountant: Accountant, check: str) -> None:
    """Every check has a fault that it, by name, catches."""
    with pytest.raises(AssertionError, match=f"^{check}: "):
        check_accountant(accountant)


def test_a_guarantee_that_is_too_strong_is_told_with_its_figures() -> None:
    """At which epsilon, and the delta there."""
    with pytest.raises(AssertionError, match=r"of epsilon 0\.1: at epsilon \S+ delta is \S+, not "):
        check_accountant(Root())
    with pytest.raises(AssertionError, match=r"of rho 0\.01: at epsilon \S+ delta is \S+, not "):
        check_accountant(Discount())


def test_an_amount_that_raises_says_of_which_loss_and_what_to_write() -> None:
    """An author who forgets that a rho has no epsilon."""

    class Hasty(PureOnly):
        def amount(self, loss: Loss) -> Amount:
            return (loss.epsilon / 1000,)  # type: ignore[operator, return-value]

    with pytest.raises(
        AssertionError, match=r"amount of 1 of rho 0\.01 raises TypeError.* raise UnsupportedLoss"
    ):
        check_accountant(Hasty())
