"""Statistical lower bounds on epsilon from the outcomes of a distinguishing game.

Each holds with the stated confidence whatever the mechanism is; none proves that a mechanism is
private. Counts may be arrays: every function works element by element.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import logit
from scipy.stats import norm

from privfed.attacks.roc import check_share, clopper_pearson
from privfed.errors import InputError


def epsilon_from_event(
    inside: ArrayLike,
    outside: ArrayLike,
    *,
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
    *,
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
    check_share("delta", delta)
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


def right_guesses(right: ArrayLike, guesses: ArrayLike, alpha: float = 0.05) -> np.ndarray:
    """Lower bounds on epsilon from guesses which of two inputs each output came from.

    If the input of each output is a fair coin's choice, pure epsilon-DP leaves the odds of either
    input, given the output, at most e^epsilon, so that of the guesses that are made each is right
    with probability at most e^epsilon / (1 + e^epsilon), whichever outputs are left aside (Kairouz,
    Oh and Viswanath 2015). One binomial tail decides, where :func:`epsilon_from_event` pays for two.

    As many outputs under either input are the safer case: the count of right guesses beyond their
    share has the same mean, and its moment generating function is no greater, as a geometric mean is
    no greater than the arithmetic one. Where all outputs are guessed about, the tail itself is no
    greater (Hoeffding 1956, Theorem 4).

    Args:
        right: number of right guesses.
        guesses: number of guesses; no guess proves nothing.
        alpha: how often the bound may be wrong.

    Returns:
        lower bounds in nats, at least 0.
    """
    made = np.asarray(guesses, float)
    low, _ = clopper_pearson(right, np.maximum(made, 1), alpha)
    return np.asarray(np.maximum(logit(np.where(made > 0, low, 0.5)), 0.0))


def right_guesses_mu(right: ArrayLike, guesses: ArrayLike, alpha: float = 0.05) -> np.ndarray:
    """Lower bounds on mu *if* the mechanism is mu-Gaussian-DP and every output is guessed about.

    Of a fair coin's choice, a test with error rates a and f(a) is right with probability
    1 - (a + f(a)) / 2, for mu-Gaussian-DP at most Phi(mu / 2) (Dong et al. 2022). Outputs must be
    independent given the coins: separate runs, or cells whose noise is independent.

    Args:
        right: number of right guesses.
        guesses: number of outputs, each guessed about.
        alpha: how often the bound may be wrong.

    Returns:
        lower bounds on mu, at least 0.
    """
    low, _ = clopper_pearson(right, guesses, alpha)
    return np.asarray(np.maximum(2 * norm.ppf(low), 0.0))
