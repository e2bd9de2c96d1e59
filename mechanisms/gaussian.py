"""Discrete Gaussian noise on integer vectors (Canonne, Kamath and Steinke 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.loss import Loss
from privfed.mechanism import Guarded, Mechanism, Noised, Protected, joint, unmasked, within_range
from privfed.noise import Noise
from privfed.part import PartType


class Gaussian(Mechanism):
    """Adds discrete Gaussian noise with sigma^2 >= L2^2 / (2 rho) to every cell.

    With joint squared sensitivity D^2 in grid units, the discrete Gaussian on the integer lattice is
    D^2 / (2 sigma^2)-zCDP (Canonne et al. 2020, Theorem 4, and its multivariate form: the
    coordinates are independent and their divergences add up). Sigma is the least float whose exact
    square is large enough, so the charge is never too small.
    """

    name: ClassVar[str] = "gaussian"
    currency: ClassVar[str | None] = "rho"

    def supports(self, group: Mapping[str, Guarded]) -> bool:
        """Parts on a grid with a finite sensitivity; bits are for randomized response."""
        return all(
            g.bound is not None and g.part.exact and g.part.type != PartType.BITS
            for g in group.values()
        )

    def cost(self, group: Mapping[str, Guarded], spend: Fraction) -> Loss:
        """Zero-concentrated, with the law for tight retrospective accounting."""
        if joint(group).l2_squared == 0:
            return Loss.free()
        return Loss.zcdp(
            spend, ("gaussian", str(joint(group).l2_squared), repr(self.scale(group, spend)))
        )

    def scale(self, group: Mapping[str, Guarded], spend: Fraction) -> float:
        """Sigma in grid units: exact sigma^2 is at least L2^2 / (2 rho).

        Raises:
            ValueError: 64-bit integers cannot hold noise that wide.
        """
        variance = Fraction(joint(group).l2_squared) / (2 * spend)
        sigma = math.sqrt(variance)
        while Fraction(sigma) ** 2 < variance:
            sigma = math.nextafter(sigma, math.inf)
        return within_range(sigma)

    def noised(self, group: Mapping[str, Guarded], spend: Fraction) -> Mapping[str, Noised]:
        """The same sigma for every part of the group."""
        if joint(group).l2_squared == 0:
            return {}
        return {name: Noised(self.name, self.scale(group, spend)) for name in group}

    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        group: Mapping[str, Guarded],
        spend: Fraction,
        noise: Noise,
        reveals: Mapping[str, np.ndarray],
    ) -> Protected:
        """Add the noise in integers, part by part."""
        if joint(group).l2_squared == 0:
            return {name: unmasked(exact[name]) for name in group}
        sigma = self.scale(group, spend)
        return {
            name: unmasked(
                exact[name] + noise.gaussian(exact[name].size, sigma).reshape(exact[name].shape)
            )
            for name in group
        }
