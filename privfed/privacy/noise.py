"""Sources of noise: exact integer samplers, or a seeded generator for tests.

The low bits of floating-point noise reveal the exact value (Mironov 2012). All noise here is
integer, on a part's grid, drawn without the data and added in integers.
"""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace
from opendp.metrics import l1_distance, l2_distance
from opendp.mod import enable_features

from privfed.errors import InputError

# not from opendp.prelude, which also imports scikit-learn and takes a second
enable_features("contrib")
INTEGERS = vector_domain(atom_domain(T="i64"))  #: Input domain of measurements


class Noise(ABC):
    """A source of noise."""

    secure: bool  #: Whether it protects; the ledger records test noise

    @abstractmethod
    def laplace(self, size: int, scale: float) -> np.ndarray:
        """Draw discrete Laplace integers: P(k) proportional to exp(-|k| / scale)."""

    @abstractmethod
    def gaussian(self, size: int, scale: float) -> np.ndarray:
        """Draw discrete Gaussian integers: P(k) proportional to exp(-k^2 / (2 scale^2))."""

    @abstractmethod
    def bits(self, size: int, probability: Fraction) -> np.ndarray:
        """Draw independent bits that are 1 with an exact dyadic probability k / 2^64."""


class SecureNoise(Noise):
    """OpenDP's samplers, and dyadic thresholds on operating-system entropy for bits."""

    secure = True

    def laplace(self, size: int, scale: float) -> np.ndarray:
        """See :class:`Noise`; OpenDP's sampler (Canonne, Kamath and Steinke 2020)."""
        return np.array(_laplace(scale)(np.zeros(size, np.int64)), dtype=np.int64)

    def gaussian(self, size: int, scale: float) -> np.ndarray:
        """See :class:`Noise`; OpenDP's sampler (Canonne, Kamath and Steinke 2020)."""
        return np.array(_gaussian(scale)(np.zeros(size, np.int64)), dtype=np.int64)

    def bits(self, size: int, probability: Fraction) -> np.ndarray:
        """See :class:`Noise`."""
        return _dyadic(size, probability, os.urandom)


@lru_cache(maxsize=64)
def _laplace(scale: float) -> Any:
    return make_laplace(INTEGERS, l1_distance(T="i64"), scale=scale)


@lru_cache(maxsize=64)
def _gaussian(scale: float) -> Any:
    return make_gaussian(INTEGERS, l2_distance(T="f64"), scale=scale)


class TestNoise(Noise):
    """Seeded noise for tests and repeatable experiments, without any protection."""

    __test__ = False  # pytest would collect it by its name
    secure = False

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def laplace(self, size: int, scale: float) -> np.ndarray:
        """See :class:`Noise`: the difference of two geometric variables."""
        success = -math.expm1(-1 / scale)
        draws = self._rng.geometric(success, size=(2, size))
        return np.asarray(draws[0] - draws[1], dtype=np.int64)

    def gaussian(self, size: int, scale: float) -> np.ndarray:
        """See :class:`Noise`; for scales above 20 a rounded normal draw."""
        if scale > 20:  # its variance is 1/12 too large: less than 0.03 %
            return np.rint(self._rng.normal(0, scale, size)).astype(np.int64)
        reach = math.ceil(12 * scale) + 1
        points = np.arange(-reach, reach + 1)
        weights = np.exp(-(points**2) / (2 * scale**2))
        return self._rng.choice(points, size, p=weights / weights.sum())

    def bits(self, size: int, probability: Fraction) -> np.ndarray:
        """See :class:`Noise`."""
        return _dyadic(size, probability, self._rng.bytes)


def _dyadic(size: int, probability: Fraction, draw: Callable[[int], bytes]) -> np.ndarray:
    """Compare uniform 64-bit words with the threshold, drawing the last 56 bits only for ties."""
    first, remainder = _threshold(probability)
    leading = np.frombuffer(draw(size), dtype=np.uint8)
    below = leading < first
    ties = np.flatnonzero(leading == first)
    further = np.frombuffer(draw(8 * len(ties)), dtype=np.uint64) >> np.uint64(8)
    below[ties] = further < remainder
    return np.asarray(below)


@lru_cache(maxsize=64)
def _threshold(probability: Fraction) -> tuple[int, int]:
    """Return 2^64 times a probability as leading byte and 56 further bits (InputError: no integer)."""
    threshold = probability * 2**64
    if threshold.denominator != 1 or not 0 <= threshold <= 2**64:
        raise InputError("a bit's probability must be a multiple of 2^-64 between 0 and 1")
    return divmod(int(threshold), 2**56)
