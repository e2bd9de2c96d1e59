"""The base of every mechanism: it protects a group of parts jointly."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.loss import Loss
from privfed.noise import Noise
from privfed.part import Bound, Part

#: Widest noise that may be asked for, in grid units. Samplers of 64-bit integers saturate, and a
#: saturated draw added to an exact value gives it away; noise of this scale reaches 2^62 with
#: probability below exp(-4096), and exact values stay below 2^53.
WIDEST = 2.0**50

#: What a mechanism gives back: integers (or floats for values) with suppressed cells masked.
Protected = Mapping[str, np.ma.MaskedArray]


@dataclass(frozen=True)
class Noised:
    """The law of the noise on a part's cells: a public fact that estimators and attacks need.

    Args:
        law: ``"laplace"`` or ``"gaussian"`` (discrete, in grid units), or ``"flip"`` (of bits).
        parameter: scale, standard deviation, or probability of a flip.
    """

    law: str
    parameter: float

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise on one cell, in grid units."""
        if self.law == "flip":
            return math.sqrt(self.parameter * (1 - self.parameter))
        if self.law == "laplace":
            ratio = math.exp(-1 / self.parameter)
            return math.sqrt(2 * ratio) / (1 - ratio)
        if self.parameter < 1:  # on the integers it falls short of sigma
            points = np.arange(-12, 13)
            weights = np.exp(-(points**2) / (2 * self.parameter**2))
            return math.sqrt(float(weights @ points**2 / weights.sum()))
        return self.parameter


@dataclass(frozen=True)
class Guarded:
    """A part together with its bound under the owner's unit and relation (none: no finite one)."""

    part: Part
    bound: Bound | None


class Mechanism(ABC):
    """Protects a group of parts jointly; knows no learner and no accountant.

    ``cost`` is known without data. ``protect`` sees exact values and returns what may leave.
    """

    #: What policies call it.
    name: ClassVar[str]
    #: What a guard's ``spend`` counts: ``"epsilon"`` (nats), ``"rho"`` (zCDP) or ``None`` (nothing).
    currency: ClassVar[str | None] = None
    #: Whether the same question at no greater spend gets the remembered answer, free.
    memoises: ClassVar[bool] = False
    #: Whether suppression also covers what could be subtracted from other releases.
    strict: bool = False

    @abstractmethod
    def supports(self, group: Mapping[str, Guarded]) -> bool:
        """Whether it can protect these parts."""

    @abstractmethod
    def cost(self, group: Mapping[str, Guarded], spend: Fraction) -> Loss:
        """Give the loss of one release, without data, exactly."""

    @abstractmethod
    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        group: Mapping[str, Guarded],
        spend: Fraction,
        noise: Noise,
        reveals: Mapping[str, np.ndarray],
    ) -> Protected:
        """Turn exact arrays into what may leave; suppressed cells are masked and hold zero."""

    def noised(self, group: Mapping[str, Guarded], spend: Fraction) -> Mapping[str, Noised]:
        """Give the law of the noise on each part; empty where nothing is added."""
        return {}


def joint(group: Mapping[str, Guarded]) -> Bound:
    """The bound of all parts of a group together.

    Raises:
        ValueError: a part has no finite bound.
    """
    total = Bound(0, 0)
    for name, guarded in group.items():
        if guarded.bound is None:
            raise ValueError(f"part {name!r} has no finite sensitivity")
        total = total + guarded.bound
    return total


def within_range(scale: float) -> float:
    """Give a noise scale back, in grid units, if 64-bit integers can hold its noise.

    Raises:
        ValueError: the scale is not a finite positive number, or wider than :data:`WIDEST`.
    """
    if not 0 < scale <= WIDEST:
        raise ValueError("the spend is too small: 64-bit integers cannot hold its noise")
    return scale


def unmasked(array: np.ndarray, mask: np.ndarray | None = None) -> np.ma.MaskedArray:
    """Wrap an array for release; masked cells are overwritten with zero, not merely hidden."""
    if mask is None:
        mask = np.zeros(array.shape, dtype=bool)
    return np.ma.MaskedArray(np.where(mask, np.zeros((), array.dtype), array), mask=mask)
