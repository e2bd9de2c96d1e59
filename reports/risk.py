"""A guarantee in words: how well the best attacker could tell whether a record took part."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy.optimize import brentq

from privfed.accountant import Accountant, Amount

#: False-positive rate at which reports state the membership risk.
FALSE_POSITIVES = 0.01
_DELTAS = tuple(Fraction(1, 10**power) for power in range(2, 13))
_ORDERS = 1 + np.geomspace(1e-3, 1e3, 400)


def best_detection(epsilon: float, delta: float, false_positives: float = FALSE_POSITIVES) -> float:
    """The highest true-positive rate of any membership test under (epsilon, delta).

    min(e^epsilon * a + delta, 1 - e^-epsilon * (1 - a - delta)) at false-positive rate a
    (Kairouz, Oh and Viswanath 2015, Theorem 2.1).
    """
    rising = math.exp(min(epsilon, 700.0)) * false_positives + delta
    falling = 1 - math.exp(-epsilon) * (1 - false_positives - delta)
    return max(false_positives, min(rising, falling, 1.0))


def concentrated_detection(rho: float, false_positives: float = FALSE_POSITIVES) -> float:
    """The highest true-positive rate of any membership test under rho-zCDP.

    A test turns the two outputs into two coins; no processing raises a Renyi divergence, so the
    coins' divergence of order a is at most rho * a, in both directions and for every a > 1
    (van Erven and Harremoes 2014, Theorem 9). The largest rate that all orders allow is found by
    bisection, and rounded up.
    """

    allowed = max(rho, 1e-9) * _ORDERS

    def excess(rate: float) -> float:
        both = (_divergence(rate, false_positives), _divergence(false_positives, rate))
        return float(max((one - allowed).max() for one in both))

    highest = 1 - 1e-12
    if rho == 0:
        return false_positives
    if excess(highest) <= 0:
        return 1.0
    return min(1.0, float(brentq(excess, false_positives, highest, xtol=1e-9)) + 1e-8)


def _divergence(p: float, q: float) -> np.ndarray:
    """Renyi divergence of Bernoulli(p) from Bernoulli(q), at each of the orders."""
    terms = np.stack(
        [
            _ORDERS * math.log(p) + (1 - _ORDERS) * math.log(q),
            _ORDERS * math.log1p(-p) + (1 - _ORDERS) * math.log1p(-q),
        ]
    )
    total: np.ndarray = np.logaddexp(terms[0], terms[1]) / (_ORDERS - 1)
    return total


def detection(accountant: Accountant, total: Amount, delta: Fraction) -> float:
    """The least bound on a membership test that a total implies.

    A zCDP total implies (epsilon, delta) at every delta, and all of them hold at once; each gives a
    bound, and the least one is still a bound.
    """
    deltas = {delta, *(step for step in _DELTAS if delta > 0)}
    rates = []
    for step in deltas:
        epsilon, paid = accountant.guarantee(total, step)
        rates.append(best_detection(float(epsilon), float(paid)))
    if accountant.components == ("rho", "delta"):
        rates.append(concentrated_detection(float(total[0])) + float(total[1]))
    return min(rates)
