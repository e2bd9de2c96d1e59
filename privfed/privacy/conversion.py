"""Convert between zero-concentrated, Gaussian and approximate differential privacy."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr, ndtr

from privfed.errors import InputError, PolicyError
from privfed.questions.exact import RESOLUTION, round_up


@lru_cache(maxsize=1024)  # many owners of one policy spend equally
def to_epsilon(rho: float, delta: float) -> float:
    """Return the smallest epsilon such that rho-zCDP implies (epsilon, delta)-DP, by the CKS bound.

    delta = inf over alpha > 1 of exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) * (1 -
    1/alpha)^alpha, solved for epsilon. Every alpha gives a valid bound; the smallest is searched
    for. PolicyError: delta is 0.
    """
    if rho == 0:
        return 0.0
    if not delta > 0:
        raise PolicyError('a rho has no epsilon at delta 0; state it at one above, such as "1e-5"')

    def bound(log_excess: float) -> float:
        excess = math.exp(log_excess)  # alpha - 1
        alpha = 1 + excess
        return (
            alpha * rho + (math.log(1 / delta) - math.log(alpha)) / excess + math.log1p(-1 / alpha)
        )

    guess = math.log(math.sqrt(math.log(1 / delta) / rho))
    best = minimize_scalar(
        bound, bounds=(guess - 8, guess + 8), method="bounded", options={"xatol": 1e-10}
    )
    return max(0.0, float(best.fun))


def to_delta(rho: float, epsilon: float) -> float:
    """Return the smallest delta such that rho-zCDP implies (epsilon, delta)-DP, by the same bound."""
    if rho == 0:
        return 0.0

    def bound(log_excess: float) -> float:
        excess = math.exp(log_excess)  # alpha - 1
        alpha = 1 + excess
        tilt = alpha * math.log1p(-1 / alpha) - math.log(excess)
        return excess * (alpha * rho - epsilon) + tilt

    guess = math.log(max((epsilon - rho) / (2 * rho), 1e-3))
    best = minimize_scalar(bound, bounds=(guess - 8, guess + 8), method="bounded")
    return min(1.0, math.exp(min(0.0, float(best.fun))))


def largest_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest rho (rounded down) whose :func:`to_epsilon`, rounded up, is at most epsilon.

    PolicyError: delta is 0, or epsilon is too small for any rho.
    """
    if delta <= 0:
        raise PolicyError(
            'zero-concentrated noise has no guarantee with delta 0; write delta = "1e-5", say'
        )
    target, small = float(epsilon), float(delta)
    upper = target + 1.0
    while to_epsilon(upper, small) < target:
        upper *= 2
    root = brentq(  # of the logarithm, so that a small rho is as exact as a large one
        lambda log_rho: to_epsilon(math.exp(log_rho), small) - target,
        math.log(1e-300),
        math.log(upper),
        xtol=1e-14,
    )
    rho, shrink = math.exp(root), 1e-13
    while rho > 0 and round_up(to_epsilon(rho, small)) > epsilon:
        rho, shrink = rho * (1 - shrink), 2 * shrink
    whole, fewer = math.floor(Fraction(rho) * RESOLUTION), 1
    # to_epsilon is exact to some digits, and may rise a little as rho falls
    while whole > 0 and round_up(to_epsilon(float(Fraction(whole, RESOLUTION)), small)) > epsilon:
        whole, fewer = whole - fewer, 2 * fewer
    if whole <= 0:
        raise PolicyError(f"epsilon {target:g} is too small for any noise; write a larger one")
    return Fraction(whole, RESOLUTION)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the delta of a mu-Gaussian-DP mechanism at epsilon (Balle and Wang 2018, Theorem 8)."""
    minor = np.exp(epsilon + log_ndtr(-epsilon / mu - mu / 2))
    return float(ndtr(-epsilon / mu + mu / 2) - minor)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of a mu-Gaussian-DP mechanism at delta, nats."""
    if not (0 < mu < np.inf and 0 < delta < 1):
        raise InputError("mu must be a positive number, and delta lie between 0 and 1")
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    top = mu**2 / 2 + mu * np.sqrt(2 * np.log(1 / delta)) + 1
    return float(brentq(lambda e: gaussian_delta(mu, e) - delta, 0.0, top))
