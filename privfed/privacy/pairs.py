"""Dominating pairs: hockey-stick curves that bound one release's delta at every epsilon.

Independent releases are dominated by the product of their pairs (Dong, Roth and Su 2022; Zhu, Dong
and Wang 2022).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr


@dataclass(frozen=True)
class DominatingPair(ABC):
    """A dominating pair, described by its hockey-stick curve."""

    size: float  #: epsilon; for Gaussian noise the sensitivity in standard deviations

    def curve(self, epsilon: np.ndarray) -> np.ndarray:
        """Return delta(epsilon), also for negative epsilon."""
        lower = -np.expm1(np.minimum(epsilon, 0))
        delta = np.asarray(np.clip(self.divergence(epsilon), lower, 1.0))
        delta[epsilon >= self.size] = 0.0
        return delta

    @abstractmethod
    def divergence(self, epsilon: np.ndarray) -> np.ndarray:
        """Return the hockey-stick divergence at each epsilon below the size."""

    @property
    def reach(self) -> float:
        """The largest loss with non-negligible probability."""
        return self.size


class ResponsePair(DominatingPair):
    """Randomized response at an epsilon, which dominates every pure loss (Kairouz et al. 2015)."""

    def divergence(self, epsilon: np.ndarray) -> np.ndarray:
        """Return (e^size - e^epsilon) / (1 + e^size), 0 above the size."""
        share = -np.expm1(np.minimum(epsilon, self.size) - self.size)
        return np.asarray(share / (1 + math.exp(-self.size)))


@dataclass(frozen=True)
class LaplacePair(DominatingPair):
    """Discrete Laplace noise."""

    steps: int  #: the shift in lattice steps

    def divergence(self, epsilon: np.ndarray) -> np.ndarray:
        """Return max over j of P(X >= j - D) - e^epsilon P(X >= j) for discrete Laplace X, D the steps.

        It is concave in j, and largest at one of the two integers next to equally likely tails.
        """
        step = self.size / self.steps
        middle = (self.steps + 1) / 2 + epsilon / (2 * step)
        low = np.clip(np.floor(middle), 0, self.steps)
        both = [
            1
            - (np.exp(-step * (self.steps - j + 1)) + np.exp(epsilon - step * j))
            / (1 + math.exp(-step))
            for j in (low, low + 1)
        ]
        return np.asarray(np.maximum(*both))


class GaussianPair(DominatingPair):
    """Gaussian noise; squared shifts, in standard deviations, add up over releases."""

    def divergence(self, epsilon: np.ndarray) -> np.ndarray:
        """Return Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu) (Balle and Wang 2018, Theorem 8)."""
        mu, ratio = self.size, epsilon / self.size
        return np.asarray(
            np.exp(log_ndtr(mu / 2 - ratio)) - np.exp(epsilon + log_ndtr(-mu / 2 - ratio))
        )

    def curve(self, epsilon: np.ndarray) -> np.ndarray:
        """Return delta(epsilon), which is never zero."""
        lower = -np.expm1(np.minimum(epsilon, 0))
        return np.asarray(np.clip(self.divergence(epsilon), lower, 1.0))

    @property
    def reach(self) -> float:
        """The loss beyond which the probability is negligible."""
        return self.size * (self.size / 2 + 9)
