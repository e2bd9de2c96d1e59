"""Discrete Laplace noise on integer vectors (Dwork et al. 2006; sampler of Canonne et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.exact import float_up
from privfed.loss import Loss
from privfed.mechanism import Guarded, Mechanism, Noised, Protected, joint, unmasked, within_range
from privfed.noise import Noise
from privfed.part import PartType


class Laplace(Mechanism):
    """Adds discrete Laplace noise of scale L1 / epsilon to every cell.

    With joint sensitivity L1 = D grid units and scale s >= D / epsilon, the density ratio of any
    output under neighbouring records is at most exp(D / s) <= exp(epsilon): pure epsilon-DP. The
    scale is the least float not below the exact D / epsilon, so the charge is never too small.
    """

    name: ClassVar[str] = "laplace"
    currency: ClassVar[str | None] = "epsilon"

    def supports(self, group: Mapping[str, Guarded]) -> bool:
        """Parts on a grid with a finite sensitivity; bits are for randomized response."""
        return all(
            g.bound is not None and g.part.exact and g.part.type != PartType.BITS
            for g in group.values()
        )

    def cost(self, group: Mapping[str, Guarded], spend: Fraction) -> Loss:
        """Pure epsilon, with the law for tight retrospective accounting."""
        if joint(group).l1 == 0:
            return Loss.free()
        return Loss.pure(spend, ("laplace", str(joint(group).l1), repr(self.scale(group, spend))))

    def scale(self, group: Mapping[str, Guarded], spend: Fraction) -> float:
        """Scale of the noise in grid units, at least L1 / epsilon exactly.

        Raises:
            ValueError: 64-bit integers cannot hold noise that wide.
        """
        return within_range(float_up(Fraction(joint(group).l1) / spend))

    def noised(self, group: Mapping[str, Guarded], spend: Fraction) -> Mapping[str, Noised]:
        """The same scale for every part of the group."""
        if joint(group).l1 == 0:
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
        if joint(group).l1 == 0:
            return {name: unmasked(exact[name]) for name in group}
        scale = self.scale(group, spend)
        return {
            name: unmasked(
                exact[name] + noise.laplace(exact[name].size, scale).reshape(exact[name].shape)
            )
            for name in group
        }
