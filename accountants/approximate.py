"""Approximate zCDP: rhos and deltas add up, so that losses with a delta are supported."""

from fractions import Fraction
from typing import ClassVar

from privfed.accountants.zcdp import ZeroConcentrated, needs_delta
from privfed.errors import UnsupportedLoss
from privfed.privacy.accountant import Amount, Budget
from privfed.privacy.conversion import largest_rho
from privfed.privacy.loss import Loss, pure_to_zcdp

CONVERSION = Fraction(1, 2)  #: Fraction of a budget's delta for converting rho


class ApproximateZeroConcentrated(ZeroConcentrated):
    """Adds (rho, delta), as delta-approximate rho-zCDP composes (Bun and Steinke 2016, Lemma 8.2).

    An (epsilon, delta) loss counts as delta-approximate epsilon * tanh(epsilon / 2)-zCDP: except
    for an event of probability delta it is pure epsilon (Kairouz, Oh and Viswanath 2015). It is a
    filter, like zCDP's (Whitehouse et al. 2023). The losses' deltas and the conversion's add up.
    """

    name: ClassVar[str] = "approximate"

    def amount(self, loss: Loss) -> Amount:
        """Return the loss's rho, from its epsilon if necessary, and its delta."""
        if loss.rho is not None:
            return loss.rho, loss.delta
        if loss.epsilon is None:
            raise UnsupportedLoss("a loss without epsilon or rho has nothing to add up")
        return pure_to_zcdp(loss.epsilon), loss.delta

    def ceiling(self, budget: Budget) -> Amount:
        """Return the ceiling with half of delta for converting, half for the losses."""
        if budget.delta == 0:
            raise needs_delta(self.name)
        converting = budget.delta * CONVERSION
        return largest_rho(budget.epsilon, converting), budget.delta - converting
