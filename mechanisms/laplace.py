"""Discrete Laplace noise on integer vectors (Dwork et al. 2006; sampler of Canonne et al. 2020)."""

from fractions import Fraction
from typing import ClassVar

from privfed.mechanisms.additive import AdditiveNoise
from privfed.privacy.laws import DiscreteLaplace, Law
from privfed.privacy.mechanism import WIDEST, within_range
from privfed.questions.exact import float_up
from privfed.questions.part import Bound


class Laplace(AdditiveNoise):
    """Adds discrete Laplace noise of scale L1 / epsilon to every cell (of one grid).

    With joint sensitivity L1 = D grid units and scale s >= D / epsilon, the density ratio of any
    output under neighbouring records is at most exp(D / s) <= exp(epsilon): pure epsilon-DP. The
    scale is the smallest float not below the exact D / epsilon, so the charge is never too small.
    """

    name: ClassVar[str] = "laplace"
    currency: ClassVar[str | None] = "epsilon"
    law: ClassVar[type[Law]] = DiscreteLaplace

    def scale(self, bound: Bound, spend: Fraction) -> float:
        """Return the noise scale in grid units, at least the exact L1 / epsilon."""
        return within_range(float_up(min(bound.l1 / spend, Fraction(2 * WIDEST))))
