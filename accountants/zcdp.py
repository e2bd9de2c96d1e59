"""Zero-concentrated differential privacy (Bun and Steinke 2016): rhos add up, adaptively too."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

from privfed.errors import PolicyError, UnsupportedLoss
from privfed.privacy.accountant import Accountant, Amount, Budget
from privfed.privacy.conversion import largest_rho, to_epsilon
from privfed.privacy.loss import Loss
from privfed.questions.exact import round_up

#: An odometer's levels: the finest, and how far each is from the next.
FINEST, LEVEL = 1e-6, 1.05


class ZeroConcentrated(Accountant):
    """Adds rho; a valid filter under full adaptivity (Feldman and Zrnic 2021; Whitehouse et al. 2023).

    Pure losses enter by the tight epsilon * tanh(epsilon / 2). Conversion to (epsilon, delta) by
    Canonne, Kamath and Steinke 2020, Corollary 13.
    """

    name: ClassVar[str] = "zcdp"
    components: ClassVar[tuple[str, ...]] = ("rho", "delta")

    def amount(self, loss: Loss) -> Amount:
        """The loss's rho and delta."""
        if loss.rho is None:
            raise UnsupportedLoss(
                'an (epsilon, delta) loss has no finite rho; write accountant = "pure"'
            )
        return loss.rho, loss.delta

    def ceiling(self, budget: Budget) -> Amount:
        """The largest rho whose conversion stays within the budget; all delta pays for converting."""
        if budget.delta == 0:
            raise PolicyError(
                "accountant 'zcdp' needs a budget with delta above 0, such as \"1e-5\""
            )
        return largest_rho(budget.epsilon, budget.delta), Fraction(0)

    def guarantee(self, total: Amount, delta: Fraction) -> tuple[Fraction, Fraction]:
        """(epsilon, delta) with what the total's own delta leaves for converting."""
        left = delta - total[1]
        if left <= 0:
            raise PolicyError("accountant 'zcdp' reports at a delta above 0, such as \"1e-5\"")
        return round_up(to_epsilon(float(total[0]), float(left))), delta

    def odometer(self, total: Amount, delta: Fraction) -> tuple[Fraction, Fraction]:
        """Of a running total without a ceiling: see :func:`odometer`."""
        return odometer(total[0], delta - total[1])[0], delta


def odometer(rho: Fraction, delta: Fraction) -> tuple[Fraction, Fraction]:
    """Give (epsilon, delta) of a running total at a moment that may depend on all releases so far.

    A sum compared with a ceiling fixed in advance is a filter; without a ceiling, one filter runs
    at each level of a grid, LEVEL apart, with delta shared out among them as 6 / (pi (n + 1))^2
    (the construction of Rogers et al. 2016 and Feldman and Zrnic 2021). At each level the privacy
    loss exceeds rho + 2 sqrt(rho log(1 / delta)) with probability at most delta (Bun and Steinke
    2016).
    """
    if delta <= 0:
        raise PolicyError('an odometer of zCDP reports at a delta above 0, such as "1e-5"')
    if rho == 0:
        return Fraction(0), delta
    number = max(0, math.ceil(math.log(float(rho) / FINEST) / math.log(LEVEL) + 1e-9))
    level = FINEST * LEVEL**number
    share = float(delta) * 6 / (math.pi * (number + 1)) ** 2
    return round_up(level + 2 * math.sqrt(level * math.log(1 / share))), delta
