"""Mechanisms with planted faults: test doubles that an audit must convict. Never use them.

Each claims the cost of its honest parent and does something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.loss import Loss
from privfed.mechanism import Guarded, Mechanism, Protected, joint, unmasked
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.mechanisms.randomized_response import RandomizedResponse, flip_probability
from privfed.noise import Noise


class HalvedLaplace(Laplace):
    """Laplace noise of half the scale that the charge stands for: its true epsilon is twice that."""

    name: ClassVar[str] = "faulty-laplace-halved"

    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        group: Mapping[str, Guarded],
        spend: Fraction,
        noise: Noise,
        reveals: Mapping[str, np.ndarray],
    ) -> Protected:
        """Protect as if twice as much were spent."""
        return super().protect(exact, group, 2 * spend, noise, reveals)


class HalvedGaussian(Gaussian):
    """Gaussian noise of half the deviation: its true rho is four times the charge."""

    name: ClassVar[str] = "faulty-gaussian-halved"

    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        group: Mapping[str, Guarded],
        spend: Fraction,
        noise: Noise,
        reveals: Mapping[str, np.ndarray],
    ) -> Protected:
        """Protect as if four times as much were spent."""
        return super().protect(exact, group, 4 * spend, noise, reveals)


class FloatLaplace(Laplace):
    """The textbook's Laplace noise in floating point, whose low bits give the input away.

    Source of the fault: Mironov 2012, "On significance of the least significant bits".
    """

    name: ClassVar[str] = "faulty-laplace-float"

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        group: Mapping[str, Guarded],
        spend: Fraction,
        noise: Noise,
        reveals: Mapping[str, np.ndarray],
    ) -> Protected:
        """Add numpy's Laplace noise to floats."""
        scale = float(Fraction(joint(group).l1) / spend)
        return {
            name: unmasked(exact[name] + self._rng.laplace(0.0, scale, exact[name].shape))
            for name in group
        }


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


class PublishedRandomizedResponse(Mechanism):
    """The randomized response of DP-RuL's published code; it is far from private. Never use it.

    With probability p = e^eps / (1 + e^eps) the truth, and otherwise *yes* with probability
    q = 1 - p, where it should be the opposite of the truth. A true *no* becomes *yes* with
    probability q^2 only, a true *yes* stays one with p + q^2: the actual epsilon of a bit is
    ln(1 + p / q^2) = ln(1 + e^eps + e^(2 eps)), never below ln 3, whatever is stated.
    """

    name: ClassVar[str] = "published_randomized_response"
    currency: ClassVar[str | None] = "epsilon"
    #: One bit, always: it knows nothing of sensitivities either.
    _right = RandomizedResponse()

    def supports(self, group: Mapping[str, Guarded]) -> bool:
        """What the right mechanism supports."""
        return self._right.supports(group)

    def cost(self, group: Mapping[str, Guarded], spend: Fraction) -> Loss:
        """What is claimed, not what is true."""
        return self._right.cost(group, spend)

    def protect(
        self,
        exact: Mapping[str, np.ndarray],
        group: Mapping[str, Guarded],
        spend: Fraction,
        noise: Noise,
        reveals: Mapping[str, np.ndarray],
    ) -> Protected:
        """The published code's answer, bit by bit."""
        lie = flip_probability(spend)
        return {name: unmasked(_answer(exact[name].astype(bool), lie, noise)) for name in group}


def _answer(truth: np.ndarray, lie: Fraction, noise: Noise) -> np.ndarray:
    otherwise = noise.bits(truth.size, lie).reshape(truth.shape)
    yes = noise.bits(truth.size, lie).reshape(truth.shape)
    return np.where(otherwise, yes, truth)
