"""A guarantee in words: how well the best attacker could tell whether a record took part."""

from __future__ import annotations

import math
from fractions import Fraction

from privfed.accountant import Accountant, Amount

#: False-positive rate at which reports state the membership risk.
FALSE_POSITIVES = 0.01
_DELTAS = tuple(Fraction(1, 10**power) for power in range(2, 13))


def best_detection(epsilon: float, delta: float, false_positives: float = FALSE_POSITIVES) -> float:
    """The highest true-positive rate of any membership test under (epsilon, delta).

    min(e^epsilon * a + delta, 1 - e^-epsilon * (1 - a - delta)) at false-positive rate a
    (Kairouz, Oh and Viswanath 2015, Theorem 2.1).
    """
    rising = math.exp(min(epsilon, 700.0)) * false_positives + delta
    falling = 1 - math.exp(-epsilon) * (1 - false_positives - delta)
    return max(false_positives, min(rising, falling, 1.0))


def detection(accountant: Accountant, total: Amount, delta: Fraction) -> float:
    """The least of :func:`best_detection` over the statements that a total implies.

    A zCDP total implies (epsilon, delta) at every delta, and all of them hold at once; each gives a
    bound, and the least one is still a bound.
    """
    deltas = {delta, *(step for step in _DELTAS if delta > 0)}
    rates = []
    for step in deltas:
        epsilon, paid = accountant.guarantee(total, step)
        rates.append(best_detection(float(epsilon), float(paid)))
    return min(rates)
