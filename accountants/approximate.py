"""Approximate zCDP: rhos and deltas add up, so that losses with a delta of their own fit in."""

from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

from privfed.accountants.zcdp import odometer
from privfed.errors import PolicyError, UnsupportedLoss
from privfed.privacy.accountant import Accountant, Amount, Budget
from privfed.privacy.conversion import largest_rho, to_epsilon
from privfed.privacy.loss import Loss, pure_to_zcdp
from privfed.questions.exact import round_up

CONVERSION = Fraction(1, 2)  #: The share of a budget's delta that converts rho


class ApproximateZeroConcentrated(Accountant):
    """Adds (rho, delta): delta-approximate rho-zCDP composes so (Bun and Steinke 2016, Lemma 8.2).

    An (epsilon, delta) loss enters as delta-approximate epsilon * tanh(epsilon / 2)-zCDP: but for
    an event of probability delta it is pure epsilon (Kairouz, Oh and Viswanath 2015). A filter like
    zCDP's own (Whitehouse et al. 2023). Total deltas and the conversion's add up.
    """

    name: ClassVar[str] = "approximate"
    components: ClassVar[tuple[str, ...]] = ("rho", "delta")

    def amount(self, loss: Loss) -> Amount:
        """The loss's rho, by its epsilon if need be, and its delta."""
        if loss.rho is not None:
            return loss.rho, loss.delta
        if loss.epsilon is None:
            raise UnsupportedLoss("a loss without epsilon or rho has nothing to add up")
        return pure_to_zcdp(loss.epsilon), loss.delta

    def ceiling(self, budget: Budget) -> Amount:
        """Half of delta for converting, half for the losses."""
        if budget.delta == 0:
            raise PolicyError(
                "accountant 'approximate' needs a budget with delta above 0, such as \"1e-5\""
            )
        converting = budget.delta * CONVERSION
        return largest_rho(budget.epsilon, converting), budget.delta - converting

    def guarantee(self, total: Amount, delta: Fraction) -> tuple[Fraction, Fraction]:
        """(epsilon, delta) with what the losses leave of delta for converting."""
        left = delta - total[1]
        if left <= 0:
            raise PolicyError("the losses' own deltas already exceed the one to report at")
        return round_up(to_epsilon(float(total[0]), float(left))), delta

    def odometer(
        self, total: Amount, delta: Fraction, fixed: Sequence[Amount] = ()
    ) -> tuple[Fraction, Fraction]:
        """Of a running total at any moment: see :func:`privfed.accountants.zcdp.odometer`."""
        return odometer(total[0], delta - total[1], [one[0] for one in fixed])[0], delta
