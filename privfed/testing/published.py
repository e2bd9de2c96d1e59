"""The mechanism of DP-RuL's published code, kept so that audits can convict it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.loss import Loss
from privfed.mechanism import Guarded, Mechanism, Protected, unmasked
from privfed.mechanisms.randomized_response import RandomizedResponse, flip_probability
from privfed.noise import Noise


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
