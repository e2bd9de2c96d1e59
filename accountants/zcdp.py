"""Zero-concentrated differential privacy (Bun and Steinke 2016): rhos add up, also adaptively."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

from privfed.errors import PolicyError, UnsupportedLoss
from privfed.privacy.accountant import Accountant, Amount, Budget
from privfed.privacy.conversion import largest_rho, to_epsilon
from privfed.privacy.loss import Loss
from privfed.questions.exact import float_up, round_up

FINEST, LEVEL = 1e-6, 1.05  #: An odometer's levels: the smallest, and their ratio


class ZeroConcentrated(Accountant):
    """Adds rho; a filter under full adaptivity (Feldman and Zrnic 2021; Whitehouse et al. 2023).

    Pure losses count by the tight epsilon * tanh(epsilon / 2). Conversion to (epsilon, delta):
    Canonne, Kamath and Steinke 2020, Corollary 13.
    """

    name: ClassVar[str] = "zcdp"
    components: ClassVar[tuple[str, ...]] = ("rho", "delta")

    def amount(self, loss: Loss) -> Amount:
        """Return the loss's rho and delta."""
        if loss.rho is None:
            raise UnsupportedLoss(
                'an (epsilon, delta) loss has no finite rho; write accountant = "pure"'
            )
        return loss.rho, loss.delta

    def ceiling(self, budget: Budget) -> Amount:
        """Return the largest rho whose conversion stays within the budget, with all of delta for converting."""
        if budget.delta == 0:
            raise needs_delta(self.name)
        return largest_rho(budget.epsilon, budget.delta), Fraction(0)

    def guarantee(self, total: Amount, delta: Fraction) -> tuple[Fraction, Fraction]:
        """Return (epsilon, delta), converting with the delta that remains after the total's own."""
        remaining = delta - total[1]
        if remaining <= 0:
            raise PolicyError(
                "the losses' own deltas already exceed the one to report at, or it is 0; report at a "
                'delta above, such as "1e-5"'
            )
        return round_up(to_epsilon(float(total[0]), float(remaining))), delta

    def odometer(
        self, total: Amount, delta: Fraction, fixed: Sequence[Amount] = ()
    ) -> tuple[Fraction, Fraction]:
        """Return (epsilon, delta) of a running total at any time; see :func:`odometer`.

        The losses' own deltas are also fixed before the first charge, as the ceiling's. A total beyond it is stated at
        a delta that is larger by the excess, since the remainder after the charges would not be fixed in advance.
        """
        fixed_delta, stated = fixed[-1][1] if fixed else Fraction(0), delta
        if not total[1] <= fixed_delta < delta:
            fixed_delta, stated = Fraction(0), delta + total[1]
        return odometer(total[0], delta - fixed_delta, [amount[0] for amount in fixed])[0], stated


def needs_delta(accountant: str) -> PolicyError:
    """Return the error for a budget without a delta."""
    return PolicyError(
        f'accountant {accountant!r} needs a budget with delta above 0, such as "1e-5"'
    )


def odometer(
    rho: Fraction, delta: Fraction, fixed: Sequence[Fraction] = ()
) -> tuple[Fraction, Fraction]:
    """Return (epsilon, delta) of a running total at a time that may depend on all releases so far.

    Totals c_1, c_2, ... and shares of delta d_1 + d_2 + ... <= delta are fixed before the first
    charge. The process stopped before it would exceed c_j is c_j-zCDP (a filter: Feldman and Zrnic
    2021; Whitehouse et al. 2023), so that its privacy loss L exceeds e_j = c_j + 2 sqrt(c_j log(1 /
    d_j)) with probability at most d_j, at any time (Bun and Steinke 2016; exp((a - 1)(L - a rho))
    is a supermartingale for every a > 1, and Ville's inequality bounds all of its values together).
    With probability 1 - delta all of them hold, at every time, whatever it depends on; a total of
    rho is read at the smallest e_j with c_j >= rho (the construction of Rogers et al. 2016).
    Amending a budget is one more such time.

    The last of the ``fixed`` totals is a budget's ceiling c: the levels are c * LEVEL^k for all
    integers k, with weights 1 / (1 + |k|)^2; each one before it takes half of the remaining delta.
    Without any, the levels are FINEST * LEVEL^n with weights 1 / (n + 1)^2.
    """
    if delta <= 0:
        raise PolicyError('an odometer of zCDP reports at a delta above 0, such as "1e-5"')
    if rho == 0:
        return Fraction(0), delta
    read = checkpoints(rho, float(delta), fixed)
    return round_up(min(c + 2 * math.sqrt(c * math.log(1 / d)) for c, d in read)), delta


def checkpoints(
    rho: Fraction, delta: float, fixed: Sequence[Fraction] = ()
) -> list[tuple[float, float]]:
    """Return the fixed totals at which a running total can be read, each with its part of delta."""
    if not fixed:
        number = max(0, _steps(rho, FINEST))
        first_delta = delta * 6 / (math.pi * (number + 1)) ** 2
        return [(FINEST * LEVEL**number, first_delta)]
    levels = []
    for level in fixed[:-1]:
        delta /= 2
        if rho <= level:
            levels.append((float_up(level), delta))
    ceiling = float_up(fixed[-1])
    delta /= math.pi**2 / 3 - 1  # the sum of 1 / (1 + |k|)^2
    if rho <= fixed[-1]:
        levels.append((ceiling, delta))
    number = _steps(rho, ceiling)
    return [*levels, (ceiling * LEVEL**number, delta / (1 + abs(number)) ** 2)]


def _steps(rho: Fraction, unit: float) -> int:
    """Return the smallest number of levels from a unit to at least a total."""
    return math.ceil(math.log(float(rho) / unit) / math.log(LEVEL) + 1e-9)
