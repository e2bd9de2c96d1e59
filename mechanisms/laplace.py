"""Discrete Laplace noise on integer vectors (Dwork et al. 2006; sampler of Canonne et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from privfed.exact import float_up
from privfed.loss import Loss
from privfed.mechanism import Guarded, joint, within_range
from privfed.mechanisms.additive import AdditiveNoise
from privfed.noise import Noise


class Laplace(AdditiveNoise):
    """Adds discrete Laplace noise of scale L1 / epsilon to every cell.

    With joint sensitivity L1 = D grid units and scale s >= D / epsilon, the density ratio of any
    output under neighbouring records is at most exp(D / s) <= exp(epsilon): pure epsilon-DP. The
    scale is the least float not below the exact D / epsilon, so the charge is never too small.
    """

    name: ClassVar[str] = "laplace"
    currency: ClassVar[str | None] = "epsilon"
    law: ClassVar[Literal["laplace", "gaussian"]] = "laplace"

    def scale(self, group: Mapping[str, Guarded], spend: Fraction) -> float:
        """Scale of the noise in grid units, at least L1 / epsilon exactly."""
        return within_range(float_up(Fraction(joint(group).l1) / spend))

    def loss(self, group: Mapping[str, Guarded], spend: Fraction) -> Loss:
        """Pure epsilon."""
        return Loss.pure(spend, ("laplace", str(joint(group).l1), repr(self.scale(group, spend))))

    def draw(self, noise: Noise, cells: int, scale: float) -> np.ndarray:
        """Discrete Laplace."""
        return noise.laplace(cells, scale)
