"""Discrete Gaussian noise on integer vectors (Canonne, Kamath and Steinke 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from privfed.loss import Loss
from privfed.mechanism import Guarded, joint, within_range
from privfed.mechanisms.additive import AdditiveNoise
from privfed.noise import Noise


class Gaussian(AdditiveNoise):
    """Adds discrete Gaussian noise with sigma^2 >= L2^2 / (2 rho) to every cell.

    With joint squared sensitivity D^2 in grid units, the discrete Gaussian on the integer lattice is
    D^2 / (2 sigma^2)-zCDP (Canonne et al. 2020, Theorem 4, and its multivariate form: the
    coordinates are independent and their divergences add up). Sigma is the least float whose exact
    square is large enough, so the charge is never too small.
    """

    name: ClassVar[str] = "gaussian"
    currency: ClassVar[str | None] = "rho"
    law: ClassVar[Literal["laplace", "gaussian"]] = "gaussian"

    def scale(self, group: Mapping[str, Guarded], spend: Fraction) -> float:
        """Sigma in grid units: exact sigma^2 is at least L2^2 / (2 rho)."""
        variance = Fraction(joint(group).l2_squared) / (2 * spend)
        sigma = math.sqrt(variance)
        while Fraction(sigma) ** 2 < variance:
            sigma = math.nextafter(sigma, math.inf)
        return within_range(sigma)

    def loss(self, group: Mapping[str, Guarded], spend: Fraction) -> Loss:
        """Zero-concentrated."""
        return Loss.zcdp(
            spend, ("gaussian", str(joint(group).l2_squared), repr(self.scale(group, spend)))
        )

    def draw(self, noise: Noise, cells: int, scale: float) -> np.ndarray:
        """Discrete Gaussian."""
        return noise.gaussian(cells, scale)
