"""What Laplace and Gaussian noise share: one scale for every cell of a group of integer parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from privfed.loss import Loss
from privfed.mechanism import Guarded, Mechanism, Noised, Protected, joint, unmasked
from privfed.noise import Noise
from privfed.part import PartType


class AdditiveNoise(Mechanism):
    """Adds independent integer noise of one scale to every cell of a group.

    A law derives its scale from the joint sensitivity of the group, says what that costs, and draws.
    A group that no record can change is released as it is, for nothing.
    """

    #: What estimators and attacks know the noise by; see :class:`.Noised`.
    law: ClassVar[Literal["laplace", "gaussian"]]

    @abstractmethod
    def scale(self, group: Mapping[str, Guarded], spend: Fraction) -> float:
        """Scale of the noise in grid units, never less than the sensitivity asks for.

        Raises:
            ValueError: 64-bit integers cannot hold noise that wide.
        """

    @abstractmethod
    def loss(self, group: Mapping[str, Guarded], spend: Fraction) -> Loss:
        """What a group that records can change costs at that scale."""

    @abstractmethod
    def draw(self, noise: Noise, cells: int, scale: float) -> np.ndarray:
        """That many independent integers, from the law at that scale."""

    def supports(self, group: Mapping[str, Guarded]) -> bool:
        """Parts on a grid with a finite sensitivity; bits are for randomized response."""
        return all(
            g.bound is not None and g.part.exact and g.part.type != PartType.BITS
            for g in group.values()
        )

    def cost(self, group: Mapping[str, Guarded], spend: Fraction) -> Loss:
        """The law's loss, with its name and scale for tight retrospective accounting."""
        return self.loss(group, spend) if changeable(group) else Loss.free()

    def noised(self, group: Mapping[str, Guarded], spend: Fraction) -> Mapping[str, Noised]:
        """The same scale for every part of the group."""
        if not changeable(group):
            return {}
        return {name: Noised(self.law, self.scale(group, spend)) for name in group}

    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        group: Mapping[str, Guarded],
        spend: Fraction,
        noise: Noise,
        reveals: Mapping[str, np.ndarray],
    ) -> Protected:
        """Add the noise in integers, part by part."""
        if not changeable(group):
            return {name: unmasked(exact[name]) for name in group}
        scale = self.scale(group, spend)
        return {
            name: unmasked(
                exact[name] + self.draw(noise, exact[name].size, scale).reshape(exact[name].shape)
            )
            for name in group
        }


def changeable(group: Mapping[str, Guarded]) -> bool:
    """Whether one record can change anything in the group."""
    return joint(group).l1 != 0
