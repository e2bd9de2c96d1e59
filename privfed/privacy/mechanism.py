"""The base of every mechanism: it protects a group of parts jointly."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.privacy.loss import Loss
from privfed.privacy.noise import Noise
from privfed.questions.part import Bound, Part

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
class BoundedPart:
    """A part together with its bound under the owner's unit and relation (none: no finite one)."""

    part: Part
    bound: Bound | None


class Mechanism(ABC):
    """Protects a group of parts jointly; knows no learner and no accountant.

    ``price`` says all that can be said without data, once. ``protect`` sees exact values and
    returns what may leave.
    """

    #: What policies call it.
    name: ClassVar[str]
    #: What a guard's ``spend`` counts: ``"epsilon"`` (nats), ``"rho"`` (zCDP) or ``None`` (nothing).
    currency: ClassVar[str | None] = None
    #: Whether the same question at no greater spend gets the remembered answer, free.
    memoises: ClassVar[bool] = False
    #: Whether suppression also covers what could be subtracted from other releases.
    strict: bool = False
    #: Whether it reads which cells reveal a record; where it does not, nobody works that out.
    suppresses: ClassVar[bool] = True

    @abstractmethod
    def supports(self, group: Mapping[str, BoundedPart]) -> bool:
        """Whether it can protect these parts."""

    @abstractmethod
    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """Say what one release costs, exactly, and what noise each part gets; without data.

        It follows from the arguments alone, so that it may be kept for equal ones.
        """

    def dearest(self, spend: Fraction) -> Loss | None:
        """Give a loss that dominates any release at this spend, whatever is asked; or none.

        Every epsilon-DP release is dominated by randomized response at that epsilon (Kairouz, Oh and
        Viswanath 2015), which is what a loss without a law stands for; a rho by its Renyi curve.
        """
        if self.currency is None:
            return None
        return Loss.pure(spend) if self.currency == "epsilon" else Loss.zcdp(spend)

    @abstractmethod
    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        priced: Protection,
        noise: Noise,
        reveals: Mapping[str, np.ndarray],
    ) -> Protected:
        """Turn exact arrays into what may leave; suppressed cells are masked and hold zero.

        Args:
            exact: the exact array of each part.
            priced: what :meth:`price` said of them.
            noise: where all randomness comes from.
            reveals: the cells of each part that would give a record away.
        """


@dataclass(frozen=True)
class Protection:
    """A mechanism at work on one group of parts, priced: all that is public about it.

    Args:
        mechanism: what protects them.
        group: the parts, with their bounds.
        spend: what is spent on them, in the mechanism's currency.
        loss: what that costs.
        noised: the law of the noise on each part; parts to which none is added are left out.
    """

    mechanism: Mechanism
    group: Mapping[str, BoundedPart]
    spend: Fraction
    loss: Loss
    noised: Mapping[str, Noised] = field(default_factory=dict)

    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        noise: Noise,
        reveals: Mapping[str, np.ndarray] | None = None,
    ) -> Protected:
        """Turn exact arrays into what may leave; see :meth:`Mechanism.protect`."""
        return self.mechanism.protect(exact, self, noise, reveals or {})


def joint(group: Mapping[str, BoundedPart]) -> Bound:
    """The bound of all parts of a group together, each in units of its own grid.

    Raises:
        ValueError: a part has no finite bound.
    """
    bounds = []
    for name, bounded in group.items():
        if bounded.bound is None:
            raise ValueError(f"part {name!r} has no finite sensitivity")
        bounds.append(bounded.bound)
    return Bound(sum(b.l1 for b in bounds), sum(b.l2_squared for b in bounds))


def within_range(scale: float) -> float:
    """Give a noise scale back, in grid units, if 64-bit integers can hold its noise.

    Raises:
        ValueError: the scale is not a finite positive number, or wider than :data:`WIDEST`.
    """
    if not 0 < scale <= WIDEST:
        raise ValueError("the spend is too small: 64-bit integers cannot hold its noise")
    return scale


def unmasked(array: np.ndarray, mask: np.ndarray | None = None) -> np.ma.MaskedArray:
    """Wrap a copy for release; masked cells are overwritten with zero, not merely hidden."""
    if mask is None:
        return np.ma.MaskedArray(array.copy())
    return np.ma.MaskedArray(np.where(mask, np.zeros((), array.dtype), array), mask=mask)
