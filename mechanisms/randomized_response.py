"""Randomized response (Warner 1965): each bit is reported truthfully or flipped."""

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

from privfed.privacy.laws import BitFlips, Law
from privfed.privacy.loss import Loss
from privfed.privacy.mechanism import BoundedPart, Mechanism, Protection, joint
from privfed.privacy.policy import SHORT
from privfed.questions.exact import round_up
from privfed.questions.part import PartType


class RandomizedResponse(Mechanism):
    """Flips every bit with probability q = 1 / (1 + e^eps), rounded up to a multiple of 2^-64.

    If a unit's data can change at most m bits and the release spends epsilon, each bit gets eps =
    epsilon / m; the likelihood ratio of a bit is at most (1 - q) / q <= e^eps, and bits are flipped
    independently, so the whole is epsilon-DP: local privacy if the bound is over all possible data
    of one individual. Its zCDP is m * eps * tanh(eps / 2), which is tight.
    """

    name: ClassVar[str] = "randomized_response"
    currency: ClassVar[str | None] = "epsilon"
    memoises: ClassVar[bool] = True

    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Whether all parts are bits with a bound on how many of them a unit can change."""
        return all(g.bound is not None and g.part.type == PartType.BITS for g in group.values())

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """Choose the same flip probability for every bit; the loss is pure epsilon with its tight zCDP."""
        bits = joint(group).l1
        laws: dict[str, Law] = dict.fromkeys(group, BitFlips(flip_of(group, spend)))
        if bits == 0:
            return Protection(self, group, spend, laws)
        eps = float(spend / bits)
        rho, bound = round_up(bits * eps * math.tanh(eps / 2)), bits * (spend / bits) ** 2 / 2
        if bits <= SHORT:  # otherwise each new number of bits would lengthen all later sums
            rho = min(rho, bound)
        return Protection(self, group, spend, laws, Loss(spend, rho))


def flip_of(group: Mapping[str, BoundedPart], spend: Fraction) -> Fraction:
    """Return the exact flip probability of each bit; 0 if no unit can change any."""
    bits = joint(group).l1
    return flip_probability(spend / bits) if bits else Fraction(0)


@lru_cache(maxsize=1024)
def flip_probability(epsilon: Fraction) -> Fraction:
    """Return the smallest multiple of 2^-64 that is at least 1 / (1 + e^epsilon), at most one half."""
    with localcontext() as context:
        context.prec = 60
        value = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
        quotient = Decimal(2**64) / (1 + value.exp())
        rounded = quotient * (1 + Decimal(10) ** -40)
        threshold = int(rounded.to_integral_value(rounding=ROUND_CEILING))
        return Fraction(min(threshold, 2**63), 2**64)
