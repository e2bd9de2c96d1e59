"""Noise on the scale of its own law: standard normal scores, exactly so where the law is the declared one."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import ndtri_exp

from privfed.privacy.laws import DiscreteGaussian, DiscreteLaplace, Law, SumOfGaussians

#: Sigma in grid units from which a discrete Gaussian with a uniform jitter is taken for a continuous
#: one: its variance is 1 / (12 sigma^2) too large, which a million draws do not show.
CONTINUOUS = 20.0


def normal_scores(law: Law, noise: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Map draws of a law to independent standard normal numbers, shape as given.

    The randomised probability integral transform (Rosenblatt 1952; Smith 1985): for V uniform and
    independent of k, U = P(X < k) + V P(X = k) is uniform if k is a draw of X, whatever the law, so that
    Phi^-1(U) is standard normal. Tails are computed from their own side, so that no far draw is lost.

    Args:
        law: the declared law.
        noise: whole numbers; of bits 1 for a flip.
        rng: gives V.
    """
    share = rng.random(noise.shape)
    if isinstance(law, DiscreteLaplace):
        return _laplace(law.parameter, noise, share)
    if isinstance(law, DiscreteGaussian | SumOfGaussians) and law.std > CONTINUOUS:
        return np.asarray((noise - 0.5 + share) / math.sqrt(law.std**2 + 1 / 12))
    points, below, above = _tails(law)
    at = np.clip(np.searchsorted(points, noise), 0, len(points) - 1)
    low = (1 - share) * below[at] + share * below[at + 1]
    high = (1 - share) * above[at] + share * above[at + 1]
    return np.where(low < high, _quantile(np.log(low)), -_quantile(np.log(high)))


def _laplace(scale: float, noise: np.ndarray, share: np.ndarray) -> np.ndarray:
    """P(X <= -k) = r^k / (1 + r), and so on either side."""
    ratio, mass = math.exp(-1 / scale), -math.expm1(-1 / scale)
    log_tail = -np.abs(noise) / scale - math.log1p(ratio) + np.log1p((share - 1) * mass)
    return _quantile(log_tail) * np.where(noise > 0, -1, 1)


def _quantile(log_tail: np.ndarray) -> np.ndarray:
    return np.asarray(ndtri_exp(np.clip(log_tail, -700.0, -1e-300)))


@lru_cache(maxsize=256)
def _tails(law: Law) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The law's points, and the probability below and from each on, with one more for the last's end."""
    points = law.window if law.additive else np.array([0, 1])
    steps = np.gradient(points.astype(float)) if len(points) > 1 else np.ones(1)
    mass = np.exp(law.log_mass(points)) * steps
    mass = np.maximum(mass / mass.sum(), 1e-300)
    below = np.concatenate([[1e-300], np.cumsum(mass)])
    above = np.concatenate([np.cumsum(mass[::-1])[::-1], [1e-300]])
    return points, below, above


@lru_cache(maxsize=256)
def silent(law: Law) -> float:
    """The probability that a law's noise is zero."""
    return float(np.exp(law.log_mass(np.array([0]))[0]))
