"""Audits of one single release that holds many canaries, each in or out by a coin of its own.

The auditor guesses some of the coins. What right guesses prove depends on the claim: pure epsilon
or (epsilon, delta) (Steinke, Nasr and Jagielski 2023), or a Gaussian trade-off curve (Mahloujifar,
Melis and Chaudhuri 2025), which is far tighter for Gaussian noise. Coins must never come from the
stream that the noise uses.
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

#: Fractions of the canaries, the surest first, guessed about under a claim of a Gaussian trade-off
#: curve, which is tightest in its tails; alpha is split among them.
GAUSSIAN_GUESSES = (0.025, 0.1, 0.25)
#: Under other claims: the fraction guessed about of those surest under Laplace noise of the claimed
#: scale, and the fraction of alpha for it; the rest is for guessing about all canaries.
SURE, SURE_ALPHA = 0.98, 0.9
#: What is claimed of a canary's trade-off curve.
TradeOff = Literal["any", "gaussian", "independent gaussian"]
FARTHEST = 700.0  #: Epsilon beyond which a proven bound is no longer told apart


def one_run_p_value(
    canaries: int, guesses: int, *, right: int, epsilon: float, delta: float = 0.0
) -> float:
    """Upper bound on the probability of so many right guesses under (epsilon, delta)-DP.

    Source: Steinke, Nasr and Jagielski 2023, Theorem 5.2 and Algorithm 2.

    Args:
        canaries: number m of fair coins, one a canary.
        guesses, right: numbers r of coins guessed from one run, and v of right guesses.
        epsilon, delta: the claim, epsilon in nats.
    """
    _check_counts(canaries, guesses, right)
    chance = 1 / (1 + np.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, chance))
    if delta == 0 or right == 0:
        return min(1.0, tail)
    steps = np.arange(1, right + 1)
    mass = binom.sf(right - steps - 1, guesses, chance) - tail
    return min(1.0, tail + float(2 * canaries * delta * np.max(mass / steps)))


def one_run_epsilon(
    canaries: int, guesses: int, *, right: int, delta: float = 0.0, alpha: float = 0.05
) -> float:
    """Lower bound, nats: the largest epsilon that one run rejects at level ``alpha``.

    Arguments as in :func:`one_run_p_value`; 0 where not even epsilon 0 is rejected.
    """

    def excess(epsilon: float) -> float:
        return one_run_p_value(canaries, guesses, right=right, epsilon=epsilon, delta=delta) - alpha

    return _largest(excess, alpha)


def one_run_mu(canaries: int, guesses: int, *, right: int, alpha: float = 0.05) -> float:
    """The largest mu of mu-Gaussian-DP that one run rejects at level ``alpha``; 0 for none.

    Valid however the canaries' answers depend on each other; for independent noise
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
    H_j = sum of ((c - i) / m) p_i: how often a random canary is guessed rightly, and wrongly, in such
    runs. Turning that canary's coin makes a right guess wrong and i into i - 1, so that the curve
    gives H_(j-1) >= Phi(Phi^-1(R_j) - mu). From a tail of probability alpha that lies at exactly
    ``right``, the least that the lower counts can weigh is followed down; beyond a whole it cannot be.
    """
    found = alpha * right / canaries
    missed = alpha * (guesses - right) / canaries
    for i in range(right - 1, -1, -1):
        least = max(missed, float(ndtr(ndtri(found) - mu)))
        found += i / (guesses - i) * (least - missed)
        missed = least
        if found + missed > guesses / canaries:
            return True
    return False


def _largest(excess: Callable[[float], float], alpha: float) -> float:
    """Where a function that rises from below 0 crosses it; 0 where it starts above."""
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
        included, scores: each canary's own fair coin, true if it was in, and the auditor's score, larger
            for "in"; shape (canaries,).
        claimed, delta: the claim, epsilon in nats.
        alpha: how often an innocent mechanism may be convicted, over all numbers of guesses tried.
        noise: ``"gaussian"`` where a Gaussian trade-off curve is claimed (needs delta above 0, at
            which epsilon is stated); ``"independent gaussian"`` where moreover each canary is
            answered with noise of its own, so that the claim is tested far more tightly.
        centre: the score that favours neither side; the median unless given.
        name: of the mechanism in the finding.
    """
    coins, values = np.asarray(included, bool), np.asarray(scores, float)
    if coins.ndim != 1 or coins.shape != values.shape or not np.isfinite(values).all():
        raise InputError("one run needs a coin and a finite score for each canary")
    if not (len(coins) and claimed >= 0) or (noise != "any" and not 0 < delta < 1):
        raise InputError(
            "one run needs a canary, a claimed epsilon, and for Gaussian noise a delta in (0, 1)"
        )
    shares = _shares(noise, claimed, len(np.unique(values)))
    tried, right = _guess(coins, values, centre, list(shares))
    levels = [alpha * level for level in shares.values()]
    proven = [
        _proven(noise, len(coins), int(r), int(v), delta, level)
        for r, v, level in zip(tried, right, levels, strict=True)
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
            "guesses": int(tried[best]),
            "right": int(right[best]),
        },
    )


def _shares(noise: TradeOff, claimed: float, levels: int) -> dict[float, float]:
    """The fractions of the canaries guessed about, and the fraction of alpha for each.

    Laplace noise of the claimed scale leaves (1 + e^-epsilon) / 2 of the canaries outside the two
    inputs' centres, where it tells most. That scores have but two levels is seen without the coins.
    """
    if levels <= 2 or noise == "independent gaussian":
        return {1.0: 1.0}
    if noise == "gaussian":
        return dict.fromkeys(GAUSSIAN_GUESSES, 1 / len(GAUSSIAN_GUESSES))
    return {SURE * (1 + math.exp(-claimed)) / 2: SURE_ALPHA, 1.0: 1 - SURE_ALPHA}


def _guess(
    coins: np.ndarray, values: np.ndarray, centre: float | None, shares: list[float]
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of guesses, the surest first, and of right ones among them."""
    levels = np.unique(values)
    if centre is None:
        centre = float(levels.mean() if len(levels) == 2 else np.median(values))
    surest = np.argsort(-np.abs(values - centre), kind="stable")
    right = np.cumsum((values > centre)[surest] == coins[surest])
    tried = np.maximum(1, (len(coins) * np.array(shares)).astype(int))
    return tried, right[tried - 1]


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
