"""Mechanisms with planted faults: test doubles that an audit must convict. Never use them.

Each claims the cost of its honest parent and does something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.mechanism import Guarded, Protected, joint, unmasked
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse, flip_probability
from privfed.noise import Noise


class HalvedLaplace(Laplace):
    """Laplace noise of half the scale that the charge stands for: its true epsilon is twice that."""

    name: ClassVar[str] = "faulty-laplace-halved"

    def draw(self, noise: Noise, cells: int, scale: float) -> np.ndarray:
        """Draw as if twice as much were spent."""
        return super().draw(noise, cells, scale / 2)


class HalvedGaussian(Gaussian):
    """Gaussian noise of half the deviation: its true rho is four times the charge."""

    name: ClassVar[str] = "faulty-gaussian-halved"

    def draw(self, noise: Noise, cells: int, scale: float) -> np.ndarray:
        """Draw as if four times as much were spent."""
        return super().draw(noise, cells, scale / 2)


class FloatLaplace(Laplace):
    """The textbook's Laplace noise in floating point, whose low bits give the input away.

    Source of the fault: Mironov 2012, "On significance of the least significant bits".
    """

    name: ClassVar[str] = "faulty-laplace-float"

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def draw(self, noise: Noise, cells: int, scale: float) -> np.ndarray:
        """Draw numpy's Laplace noise, in floats."""
        return self._rng.laplace(0.0, scale, cells)


class YesLeaningResponse(RandomizedResponse):
    """Tells the truth with probability p, and otherwise says yes with probability q = 1 - p.

    A published implementation of federated rule search does this instead of telling the opposite of
    the truth. Its true epsilon is ln(1 + e^eps + e^(2 eps)), never below ln 3: yes comes with
    probability p + q^2 where it is true and q^2 where it is not, and p / q = e^eps.
    """

    name: ClassVar[str] = "faulty-randomized-response"

    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        group: Mapping[str, Guarded],
        spend: Fraction,
        noise: Noise,
        reveals: Mapping[str, np.ndarray],
    ) -> Protected:
        """Answer each bit."""
        flip = flip_probability(spend / joint(group).l1)
        answers = {}
        for name in group:
            truth = exact[name].astype(bool)
            lies, yes = (noise.bits(truth.size, flip).reshape(truth.shape) for _ in range(2))
            answers[name] = unmasked(np.where(lies, yes, truth))
        return answers


class UnsharedResponse(RandomizedResponse):
    """Flips each bit as if the whole spend were for it alone.

    Of m bits that one unit can change, its true epsilon is m times the charge: right for one bit,
    and for no more.
    """

    name: ClassVar[str] = "faulty-randomized-response-unshared"

    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        group: Mapping[str, Guarded],
        spend: Fraction,
        noise: Noise,
        reveals: Mapping[str, np.ndarray],
    ) -> Protected:
        """Protect as if the spend were given to each bit anew."""
        return super().protect(exact, group, spend * joint(group).l1, noise, reveals)


class OpenBitResponse(RandomizedResponse):
    """Flips all bits as it should, but for the first one, which it lets out as it is."""

    name: ClassVar[str] = "faulty-randomized-response-open"

    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        group: Mapping[str, Guarded],
        spend: Fraction,
        noise: Noise,
        reveals: Mapping[str, np.ndarray],
    ) -> Protected:
        """Protect, and put the first bit's truth back."""
        answers = dict(super().protect(exact, group, spend, noise, reveals))
        for name in group:
            answers[name][0] = exact[name][0]
        return answers
