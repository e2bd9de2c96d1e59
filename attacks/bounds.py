"""Statistical lower bounds on epsilon from the outcomes of a distinguishing game.

Each holds with the stated confidence whatever the mechanism is; none proves that a mechanism is
private. Counts may be arrays: every function works element by element.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import betaincinv
from scipy.stats import binom, norm

from privfed.errors import InputError


def clopper_pearson(hits: ArrayLike, trials: ArrayLike, alpha: float) -> tuple[Any, Any]:
    """One-sided exact bounds on a probability, each failing with probability at most ``alpha``.

    Source: Clopper and Pearson 1934.

    Args:
        hits: number of successes.
        trials: number of tries.
        alpha: how often each bound may be wrong, in (0, 1).

    Returns:
        (low, high), each of the counts' broadcast shape.
    """
    _check_share("alpha", alpha)
    k, n = np.broadcast_arrays(np.asarray(hits, float), np.asarray(trials, float))
    if not ((k >= 0) & (k <= n) & (n > 0)).all():
        raise InputError("counts need 0 <= hits <= trials, and at least one trial")
    low = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, alpha), 0.0)
    high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1), 1 - alpha), 1.0)
    return low, high


def epsilon_from_event(
    inside: ArrayLike,
    outside: ArrayLike,
    trials: ArrayLike,
    trials_outside: ArrayLike,
    delta: float = 0.0,
    alpha: float = 0.05,
) -> np.ndarray:
    """The two-point bound: an event's rates under two neighbouring inputs.

    For every (epsilon, delta)-DP mechanism P(E) <= e^epsilon Q(E) + delta, so with probability at
    least 1 - alpha epsilon >= ln((low(P(E)) - delta) / high(Q(E))), ``alpha / 2`` for each rate.

    Args:
        inside: how often the event happened under the input that makes it likelier.
        outside: how often under the other.
        trials: number of outputs under the first input.
        trials_outside: number of outputs under the second.
        delta: the claimed delta.
        alpha: how often the bound may be wrong.

    Returns:
        lower bounds on epsilon in nats, at least 0.
    """
    low, _ = clopper_pearson(inside, trials, alpha / 2)
    _, high = clopper_pearson(outside, trials_outside, alpha / 2)
    gain = np.maximum(low - delta, 0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.maximum(np.log(gain / high), 0.0))


def gdp_epsilon(
    alarms: ArrayLike,
    misses: ArrayLike,
    trials_without: ArrayLike,
    trials_with: ArrayLike,
    delta: float,
    alpha: float = 0.05,
) -> np.ndarray:
    """Lower bounds on epsilon(delta) *if* the mechanism is Gaussian-DP (Dong et al. 2022).

    mu >= norm.isf(FPR) - norm.ppf(FNR), each rate at its upper bound; then mu is turned into
    epsilon at delta. For mechanisms that are not Gaussian-DP it means nothing.

    Args:
        alarms: how often the event happened without the record.
        misses: how often it did not happen with the record.
        trials_without: number of outputs without the record.
        trials_with: number of outputs with it.
        delta: the delta at which epsilon is stated, in (0, 1).
        alpha: how often the bound may be wrong.

    Returns:
        lower bounds in nats; of many events only that with the greatest mu is inverted, the others'
        bounds are 0.
    """
    _check_share("delta", delta)
    _, false_positive = clopper_pearson(alarms, trials_without, alpha / 2)
    _, false_negative = clopper_pearson(misses, trials_with, alpha / 2)
    mu = np.atleast_1d(norm.isf(false_positive) - norm.ppf(false_negative))
    bounds = np.zeros(mu.shape)
    best = np.unravel_index(int(np.argmax(mu)), mu.shape)
    bounds[best] = gaussian_epsilon(float(mu[best]), delta) if mu[best] > 0 else 0.0
    return bounds


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The delta of a mu-Gaussian-DP mechanism at epsilon (Balle and Wang 2018, Theorem 8)."""
    minor = np.exp(epsilon + norm.logcdf(-epsilon / mu - mu / 2))
    return float(norm.cdf(-epsilon / mu + mu / 2) - minor)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon of a mu-Gaussian-DP mechanism at delta, nats."""
    if not 0 < mu < np.inf:
        raise InputError("mu must be a positive number")
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    top = mu**2 / 2 + mu * np.sqrt(2 * np.log(1 / delta)) + 1
    return float(brentq(lambda e: gaussian_delta(mu, e) - delta, 0.0, top))


def one_run_p_value(
    canaries: int, guesses: int, right: int, epsilon: float, delta: float = 0.0
) -> float:
    """How likely so many right guesses are under (epsilon, delta)-DP, at most.

    Source: Steinke, Nasr and Jagielski 2023, Theorem 5.2 and Algorithm 2. Each canary is in or out
    by its own fair coin; the auditor guesses some of the coins from one run.

    Args:
        canaries: number m of coins.
        guesses: number r of coins that were guessed (the others abstained).
        right: number v of right guesses.
        epsilon: the claimed epsilon, nats.
        delta: the claimed delta.
    """
    if not 0 <= right <= guesses <= canaries:
        raise InputError("one run needs 0 <= right <= guesses <= canaries")
    chance = 1 / (1 + np.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, chance))
    if delta == 0 or right == 0:
        return min(1.0, tail)
    steps = np.arange(1, right + 1)
    mass = binom.sf(right - steps - 1, guesses, chance) - tail
    return min(1.0, tail + float(2 * canaries * delta * np.max(mass / steps)))


def one_run_epsilon(
    canaries: int, guesses: int, right: int, delta: float = 0.0, alpha: float = 0.05
) -> float:
    """The largest epsilon that one run rejects at level ``alpha``: a lower bound, nats.

    Arguments as in :func:`one_run_p_value`; 0 where not even epsilon 0 is rejected.
    """
    _check_share("alpha", alpha)

    def excess(epsilon: float) -> float:
        return one_run_p_value(canaries, guesses, right, epsilon, delta) - alpha

    if excess(0.0) >= 0:
        return 0.0
    top = 1.0
    while excess(top) < 0:
        top *= 2
        if top > 700:
            return 700.0
    return float(brentq(excess, 0.0, top, xtol=1e-9))


def _check_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise InputError(f"{name} must lie between 0 and 1; write for example 0.05")
