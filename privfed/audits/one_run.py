"""Audits of one single release that holds many canaries, each in or out by an independent coin.

The auditor guesses some of the coins. The bound from right guesses depends on the claim: pure epsilon
or (epsilon, delta) (Steinke, Nasr and Jagielski 2023), or a Gaussian trade-off curve (Mahloujifar,
Melis and Chaudhuri 2025), which is far tighter for Gaussian noise. Coins must never come from the
noise's stream.
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from privfed.attacks.finding import Finding
from privfed.attacks.roc import check_fraction
from privfed.audits.bounds import right_guesses_mu, verdict
from privfed.errors import InputError
from privfed.privacy.conversion import gaussian_epsilon

#: Fractions of the canaries that are guessed, most confident first, under a claim of a Gaussian trade-off
#: curve, which is tightest in its tails; alpha is split among them.
GAUSSIAN_GUESSES = (0.025, 0.1, 0.25)
#: Under other claims: the fraction guessed of the most confident ones under Laplace noise of the claimed
#: scale, and the fraction of alpha for it; the rest is for guessing all canaries.
SURE, SURE_ALPHA = 0.98, 0.9
#: The claim of a canary's trade-off curve.
TradeOff = Literal["any", "gaussian", "independent gaussian"]
FARTHEST = 700.0  #: Largest epsilon that a bound reports


def one_run_p_value(
    canaries: int, guesses: int, *, right: int, epsilon: float, delta: float = 0.0
) -> float:
    """Upper bound on the probability of as many right guesses under (epsilon, delta)-DP.

    Source: Steinke, Nasr and Jagielski 2023, Theorem 5.2 and Algorithm 2.

    Args:
        canaries: number m of fair coins, one per canary.
        guesses, right: numbers r of coins guessed from one run, and v of right guesses.
        epsilon, delta: the claim, epsilon in nats.
    """
    _check_counts(canaries, guesses, right)
    probability = 1 / (1 + np.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, probability))
    if delta == 0 or right == 0:
        return min(1.0, tail)
    steps = np.arange(1, right + 1)
    mass = binom.sf(right - steps - 1, guesses, probability) - tail
    return min(1.0, tail + float(2 * canaries * delta * np.max(mass / steps)))


def one_run_epsilon(
    canaries: int, guesses: int, *, right: int, delta: float = 0.0, alpha: float = 0.05
) -> float:
    """Lower bound, nats: the largest epsilon that one run rejects at level ``alpha``.

    Arguments as in :func:`one_run_p_value`; 0 if not even epsilon 0 is rejected.
    """

    def excess(epsilon: float) -> float:
        return one_run_p_value(canaries, guesses, right=right, epsilon=epsilon, delta=delta) - alpha

    return _largest(excess, alpha)


def one_run_mu(canaries: int, guesses: int, *, right: int, alpha: float = 0.05) -> float:
    """The largest mu of mu-Gaussian-DP that one run rejects at level ``alpha``; 0 for none.

    Valid for any dependence of the canaries' answers; for independent noise
    :func:`.right_guesses_mu` is far tighter. Arguments as in :func:`one_run_p_value`.
    """
    _check_counts(canaries, guesses, right)

    def excess(mu: float) -> float:
        return -1.0 if _impossible(canaries, guesses, right, mu, alpha) else 1.0

    return _largest(excess, alpha)


def _impossible(canaries: int, guesses: int, right: int, mu: float, alpha: float) -> bool:
    """Whether ``right`` or more right guesses have probability below ``alpha`` under mu-Gaussian-DP.

    Source: Mahloujifar, Melis and Chaudhuri 2025, Algorithm 3. Let p_i be the probability of i right
    guesses out of c, and over all i of at least j let R_j = sum of (i / m) p_i and
    H_j = sum of ((c - i) / m) p_i: the probabilities that a random canary is guessed rightly, and wrongly, in such
    runs. Flipping that canary's coin makes a right guess wrong and i into i - 1, so that the curve
    gives H_(j-1) >= Phi(Phi^-1(R_j) - mu). Starting with a tail of probability alpha concentrated at
    ``right``, the least mass of the lower counts is accumulated downwards; a total above 1 is impossible.
    """
    right_mass = alpha * right / canaries
    wrong_mass = alpha * (guesses - right) / canaries
    for i in range(right - 1, -1, -1):
        bound = max(wrong_mass, float(ndtr(ndtri(right_mass) - mu)))
        right_mass += i / (guesses - i) * (bound - wrong_mass)
        wrong_mass = bound
        if right_mass + wrong_mass > guesses / canaries:
            return True
    return False


def _largest(excess: Callable[[float], float], alpha: float) -> float:
    """The root of an increasing function; 0 if it starts above 0."""
    check_fraction("alpha", alpha)
    if excess(0.0) >= 0:
        return 0.0
    top = 1.0
    while excess(top) < 0:
        top *= 2
        if top > FARTHEST:
            return FARTHEST
    return float(brentq(excess, 0.0, top, xtol=1e-9))


def audit_one_run(
    included: np.ndarray,
    scores: np.ndarray,
    claimed: float,
    *,
    delta: float = 0.0,
    alpha: float = 0.05,
    noise: TradeOff = "any",
    centre: float | None = None,
    name: str = "mechanism",
) -> Finding:
    """Audit one single release that holds many canaries.

    Args:
        included, scores: each canary's fair coin, true if it was in, and the auditor's score, larger
            for "in"; shape (canaries,).
        claimed, delta: the claim, epsilon in nats.
        alpha: probability of rejecting a correct mechanism's claim, over all numbers of guesses.
        noise: ``"gaussian"`` if a Gaussian trade-off curve is claimed (needs delta above 0, at
            which epsilon is stated); ``"independent gaussian"`` if moreover each canary's answer
            has independent noise, so that the claim is tested far more tightly.
        centre: the score that favours neither side; the median by default.
        name: of the mechanism in the finding.
    """
    coins, values = np.asarray(included, bool), np.asarray(scores, float)
    if coins.ndim != 1 or coins.shape != values.shape or not np.isfinite(values).all():
        raise InputError("one run needs a coin and a finite score for each canary")
    if not (len(coins) and claimed >= 0) or (noise != "any" and not 0 < delta < 1):
        raise InputError(
            "one run needs a canary, a claimed epsilon, and for Gaussian noise a delta in (0, 1)"
        )
    fractions = _fractions(noise, claimed, len(np.unique(values)))
    guesses, right = _guess(coins, values, centre, list(fractions))
    levels = [alpha * level for level in fractions.values()]
    proven = [
        _proven(noise, len(coins), int(r), int(v), delta, level)
        for r, v, level in zip(guesses, right, levels, strict=True)
    ]
    best = int(np.argmax(proven))
    return verdict(
        name,
        proven[best],
        claimed,
        {
            "delta": delta,
            "confidence": 1 - alpha,
            "canaries": len(coins),
            "guesses": int(guesses[best]),
            "right": int(right[best]),
        },
    )


def _fractions(noise: TradeOff, claimed: float, levels: int) -> dict[float, float]:
    """The fractions of the canaries to guess, and the fraction of alpha for each.

    Laplace noise of the claimed scale leaves (1 + e^-epsilon) / 2 of the canaries outside the two
    inputs' centres, where the likelihood ratio is largest. The number of levels does not depend on the coins.
    """
    if levels <= 2 or noise == "independent gaussian":
        return {1.0: 1.0}
    if noise == "gaussian":
        return dict.fromkeys(GAUSSIAN_GUESSES, 1 / len(GAUSSIAN_GUESSES))
    return {SURE * (1 + math.exp(-claimed)) / 2: SURE_ALPHA, 1.0: 1 - SURE_ALPHA}


def _guess(
    coins: np.ndarray, values: np.ndarray, centre: float | None, fractions: list[float]
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of guesses, most confident first, and of right ones among them."""
    levels = np.unique(values)
    if centre is None:
        centre = float(levels.mean() if len(levels) == 2 else np.median(values))
    order = np.argsort(-np.abs(values - centre), kind="stable")
    right = np.cumsum((values > centre)[order] == coins[order])
    guesses = np.maximum(1, (len(coins) * np.array(fractions)).astype(int))
    return guesses, right[guesses - 1]


def _proven(
    noise: TradeOff, canaries: int, guesses: int, right: int, delta: float, alpha: float
) -> float:
    if noise == "any":
        return one_run_epsilon(canaries, guesses, right=right, delta=delta, alpha=alpha)
    if noise == "independent gaussian":
        mu = float(right_guesses_mu(right, guesses, alpha))
    else:
        mu = one_run_mu(canaries, guesses, right=right, alpha=alpha)
    return gaussian_epsilon(mu, delta) if mu > 0 else 0.0


def _check_counts(canaries: int, guesses: int, right: int) -> None:
    if not 0 <= right <= guesses <= canaries:
        raise InputError("one run needs 0 <= right <= guesses <= canaries")
