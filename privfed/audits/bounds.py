"""Lower bounds on epsilon from the outcomes of a distinguishing game.

Each holds with the stated confidence for any mechanism; none proves that a mechanism is
private. Counts may be arrays: every function works element by element.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logit, ndtri

from privfed.attacks.finding import Finding
from privfed.attacks.roc import at_least, at_most


def epsilon_from_event(
    inside: ArrayLike,
    outside: ArrayLike,
    *,
    trials: ArrayLike,
    trials_outside: ArrayLike,
    delta: float = 0.0,
    alpha: float = 0.05,
) -> np.ndarray:
    """Two-point lower bounds on epsilon, nats, at least 0, each wrong with probability at most ``alpha``.

    Every (epsilon, delta)-DP mechanism has P(E) <= e^epsilon Q(E) + delta, so
    epsilon >= ln((low(P(E)) - delta) / high(Q(E))), ``alpha / 2`` for each rate.

    Args:
        inside, outside: counts of the event under the input that makes it likelier, and the other.
        trials, trials_outside: numbers of outputs under either.
        delta: the claimed delta.
        alpha: error probability of the bound.
    """
    gain = np.maximum(at_least(inside, trials, alpha / 2) - delta, 0)
    with np.errstate(divide="ignore"):
        return np.asarray(
            np.maximum(np.log(gain / at_most(outside, trials_outside, alpha / 2)), 0.0)
        )


def mu_from_event(
    alarms: ArrayLike,
    misses: ArrayLike,
    *,
    trials_without: ArrayLike,
    trials_with: ArrayLike,
    alpha: float = 0.05,
) -> np.ndarray:
    """Lower bounds on mu, at least 0, *if* the mechanism is mu-Gaussian-DP (Dong et al. 2022).

    mu >= Phi^-1(1 - FPR) - Phi^-1(FNR), each rate at its upper bound at ``alpha / 2``.

    Args:
        alarms, misses: counts of the event without the record, and of its absence with it.
        trials_without, trials_with: numbers of outputs of either kind.
        alpha: error probability of the bound.
    """
    false_positive = at_most(alarms, trials_without, alpha / 2)
    false_negative = at_most(misses, trials_with, alpha / 2)
    with np.errstate(invalid="ignore"):
        mu = np.maximum(-ndtri(false_positive) - ndtri(false_negative), 0.0)
    return np.asarray(np.nan_to_num(mu))


def right_guesses(right: ArrayLike, guesses: ArrayLike, alpha: float = 0.05) -> np.ndarray:
    """Lower bounds on epsilon, nats, from guesses of each output's input, one of two.

    If a fair coin chooses each output's input, pure epsilon-DP leaves the odds of either input,
    given the output, at most e^epsilon, so that each guess made is right with probability at most
    e^epsilon / (1 + e^epsilon), whichever outputs are not guessed (Kairouz, Oh and Viswanath 2015).
    One binomial tail decides, whereas :func:`epsilon_from_event` needs two. As many outputs under
    either input are the conservative case: the number of right guesses beyond their fraction has the same
    mean, and its moment generating function is no greater, as a geometric mean is no greater than
    the arithmetic one; if all are guessed, the tail itself (Hoeffding 1956, Theorem 4).

    Args:
        right, guesses: numbers of right guesses, and of all; no guesses prove nothing.
        alpha: error probability of the bound.
    """
    made = np.asarray(guesses, float)
    low = at_least(right, np.maximum(made, 1), alpha)
    return np.asarray(np.maximum(logit(np.where(made > 0, low, 0.5)), 0.0))


def right_guesses_mu(right: ArrayLike, guesses: ArrayLike, alpha: float = 0.05) -> np.ndarray:
    """Lower bounds on mu *if* the mechanism is mu-Gaussian-DP and every output is guessed.

    Of a fair coin's choice, a test with error rates a and f(a) is right with probability
    1 - (a + f(a)) / 2, for mu-Gaussian-DP at most Phi(mu / 2) (Dong et al. 2022). Outputs must be
    independent given the coins: separate runs, or cells whose noise is independent.
    Arguments as in :func:`right_guesses`.
    """
    return np.asarray(np.maximum(2 * ndtri(at_least(right, guesses, alpha)), 0.0))


def verdict(name: str, proven: float, claimed: float, detail: Mapping[str, Any]) -> Finding:
    """An audit's finding: the proven lower bound on epsilon, nats, out of the claimed one; a breach beyond it."""
    return Finding(
        f"audit {name}",
        "Do the outputs contradict the epsilon that the mechanism claims?",
        "epsilon proven by the outputs, at least",
        proven,
        of=claimed,
        low=proven,
        baseline=0.0,
        severity="breach" if proven > claimed else "none",
        detail=dict(detail),
        simulation=False,
    )
