"""Discrete Gaussian noise on integer vectors (Canonne, Kamath and Steinke 2020)."""

import math
from fractions import Fraction
from typing import ClassVar

from privfed.mechanisms.additive import AdditiveNoise
from privfed.privacy.laws import Charged, DiscreteGaussian, Law
from privfed.privacy.loss import Loss
from privfed.privacy.mechanism import WIDEST, within_range
from privfed.questions.part import Bound


class Gaussian(AdditiveNoise):
    """Adds discrete Gaussian noise with sigma^2 >= L2^2 / (2 rho) to every cell (of one grid).

    With joint squared sensitivity D^2 in grid units, the discrete Gaussian on the integer lattice
    is D^2 / (2 sigma^2)-zCDP (Canonne et al. 2020, Theorem 4, and its multivariate form: the
    coordinates are independent and their divergences add up). Sigma is the smallest float whose
    exact square is large enough.
    """

    name: ClassVar[str] = "gaussian"
    currency: ClassVar[str | None] = "rho"
    law: ClassVar[type[Law]] = DiscreteGaussian

    def scale(self, bound: Bound, spend: Fraction) -> float:
        """Return sigma in grid units; exact sigma^2 is at least L2^2 / (2 rho)."""
        variance = min(bound.l2_squared / (2 * spend), Fraction(2 * WIDEST) ** 2)
        sigma = math.sqrt(variance)
        while Fraction(sigma) ** 2 < variance:
            sigma = math.nextafter(sigma, math.inf)
        return within_range(sigma)

    def dearest(self, spend: Fraction) -> Loss:
        """Return the loss for a sensitivity of one grid unit, the coarsest lattice and so the worst at a rho."""
        sigma = math.sqrt(1 / (2 * spend))
        return Loss.zcdp(spend, Charged(DiscreteGaussian(math.nextafter(sigma, 0)), 1))
