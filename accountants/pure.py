"""Pure differential privacy: epsilons add up (Dwork et al. 2006), also when chosen adaptively."""

from fractions import Fraction
from typing import ClassVar

from privfed.errors import UnsupportedLoss
from privfed.privacy.accountant import Accountant, Amount, Budget
from privfed.privacy.loss import Loss


class PureEpsilon(Accountant):
    """Adds (epsilon, delta); a filter, also for adaptive parameters (Rogers et al. 2016, Section 3)."""

    name: ClassVar[str] = "pure"
    components: ClassVar[tuple[str, ...]] = ("epsilon", "delta")

    def amount(self, loss: Loss) -> Amount:
        """Return the loss's epsilon and delta."""
        if loss.epsilon is None:
            raise UnsupportedLoss(
                'the pure accountant needs an epsilon and got zCDP; write accountant = "zcdp"'
            )
        return loss.epsilon, loss.delta

    def ceiling(self, budget: Budget) -> Amount:
        """Return the budget itself."""
        return budget.epsilon, budget.delta

    def guarantee(self, total: Amount, delta: Fraction) -> tuple[Fraction, Fraction]:
        """Return the total itself."""
        return total[0], total[1]
