"""How far to trust what was released, by the noise that is known to be in it.

A private model has three stations: the public constant, which costs nothing (the middle of the target's
bounds, equal shares of the classes); the noisy mean; and the model's own predictions. It leaves each
for the next only as far as the releases prove that this pays beyond their noise. All here is
post-processing of released values and public noise: it costs nothing, and no guarantee depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

#: A target's mean lies about so far from the public constant, in the width of the target's bounds.
MEANS = 0.25
#: A departure counts as noise as far as so many variances of its noise explain it.
CAUTION = 1.5
#: Halvings by which a share is found.
_HALVINGS = 30


@dataclass(frozen=True, eq=False)
class NoisyMean:
    """A mean, drawn towards the public constant.

    Args:
        values: one for each output, shape (outputs,).
        spread: standard deviation of what is still unknown of each, if the noise was all that hid it.
        records: about how many records there are.
    """

    values: np.ndarray
    spread: float
    records: float

    @classmethod
    def told(
        cls,
        sums: np.ndarray,
        records: float,
        *,
        variances: tuple[float, float],
        public: np.ndarray,
        reach: float = MEANS,
    ) -> NoisyMean:
        """From noisy sums of the targets and a noisy number of records.

        Of N records a count n = N + e0 is released, and for each output L = N m + e1. Knowing that N
        is not negative, its posterior mean is n + s0 f / F, f and F being the normal density and
        distribution at n / s0 (a normal truncated at 0). With z = L / N and the prior
        m ~ N(public, reach^2), L - N m has about the variance s1^2 + reach^2 s0^2 (e0 moves it by the
        mean's distance from the public constant), so z - m has v = that / N^2, and the posterior mean
        goes reach^2 / (reach^2 + v) of the way from the public constant to z. Of what is left the non-negative garrote
        takes (1 - 1.5 v K / |z - public|^2)+, over all outputs: a prior that is too wide cannot make much
        of pure noise.

        Source: empirical Bayes and Stein estimation, Efron and Hastie 2016, chapter 7; the garrote,
        Breiman 1995, Section 2, whose factor is James and Stein's for each coordinate alone.

        Args:
            sums: of (target - public), shape (outputs,).
            records: n, positive or not.
            variances: s0^2 of the number, s1^2 of each sum.
            public: the constant that costs nothing, shape (outputs,).
            reach: standard deviation of the mean about it.
        """
        count = _positive(records, variances[0])
        variance = (variances[1] + reach**2 * variances[0]) / count**2
        away = sums / count
        bayes = reach**2 / (reach**2 + variance)
        length = float(away @ away)
        kept = 1 - CAUTION * len(away) * variance / length if length else 0.0
        spread = math.sqrt(bayes * variance)
        return cls(public + max(kept, 0.0) * bayes * away, spread, count)


def _positive(told: float, variance: float) -> float:
    """The mean of a number that is not negative, given that number with normal noise; at least 1."""
    deviation = math.sqrt(variance)
    if not deviation:
        return max(told, 1.0)
    at = told / deviation
    more = math.exp(float(norm.logpdf(at) - norm.logcdf(at)))
    return max(told + deviation * more, 1.0)


def proven_share(steepness: Callable[[float], float], gain: float, doubt: float) -> float:
    """How much of a departure from a constant to keep, from 0 (the constant) to 1.

    A loss along the departure g, kept to the share s, is L(s) = A(s) - s B: A is convex and known
    from public values and marginals (for squares s^2 |g|^2 / 2, for classes the log-partition), B =
    sum of g (target - constant) is released with noise. The departure leans on that noise, by which
    B is too large in expectation (Stein 1981, Theorem 1) by the doubt; the least L(s) has A'(s) = B -
    doubt. With squares and one direction that is the garrote again. The estimated loss does not rise
    from 0 to there.

    Args:
        steepness: A', never falling, 0 at 0.
        gain: B, as released.
        doubt: what the noise may feign of it.
    """
    wanted = gain - doubt
    if not wanted > 0:
        return 0.0
    if steepness(1.0) <= wanted:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if steepness(middle) <= wanted else (low, middle)
    return low
