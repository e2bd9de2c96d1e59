"""Posterior over the interval of a column's bounds that contains its mass, from noisy counts.

Public bounds may be many times too wide, and a bin's noise larger than its count. No single bin then locates the mass,
but few intervals fit all bins, all rounds and the other columns' bounds. Each interval is a hypothesis; estimates
average over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
from scipy.special import logsumexp

from privfed.learners.private.settings import SETTINGS

PLACES = 256  #: Grid points between which quantiles are linear
LEAST = 1e-4  #: Minimum odds of an interval to the likeliest, in averages
EXACT = 1e-18  #: Added to variances of fractions, as a huge budget adds no noise
ROUNDS = 20  #: EM iterations


@cache
def _intervals() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return starts, lengths, numbers of halvings, and log-probabilities among intervals of one length."""
    starts, halvings, chances = [], [], []
    for k in range(SETTINGS.support_halvings + 1):
        own = np.arange(2 ** (k + 1) - 1) / 2 ** (k + 1)
        usual = np.isin(np.arange(len(own)), (0, 2**k - 1, len(own) - 1))
        starts.append(own)
        halvings.append(np.full(len(own), k))
        chances.append(
            (1 - SETTINGS.usual_position) / len(own) + SETTINGS.usual_position * usual / usual.sum()
        )
    number = np.concatenate(halvings)
    return np.concatenate(starts), 0.5**number, number, np.log(np.concatenate(chances))


def _reached(at: np.ndarray) -> np.ndarray:
    """Return the mass below some positions (0 to 1) under each interval, shape (intervals, positions)."""
    starts, scale_factors, _, _ = _intervals()
    inside = np.clip((at - starts[:, None]) / scale_factors[:, None], 0, 1)
    return np.asarray((1 - SETTINGS.anywhere) * inside + SETTINGS.anywhere * at)


def usual_widths() -> np.ndarray:
    """Return the prior probability of each number of halvings, shape (halvings,)."""
    narrow = np.full(
        SETTINGS.support_halvings, (1 - SETTINGS.whole_probability) / SETTINGS.support_halvings
    )
    return np.concatenate([[SETTINGS.whole_probability], narrow])


@dataclass(frozen=True, eq=False)
class SupportPosterior:
    """The posterior over intervals of one column."""

    edges: np.ndarray  #: bin edges, as fractions of the bounds, shape (bins + 1,)
    #: expected fractions of the records by interval and bin, shape (intervals, bins)
    shares: np.ndarray
    logs: np.ndarray  #: log-probability of each interval, given its width, shape (intervals,)
    widths: np.ndarray  #: probabilities of the numbers of halvings, shape (halvings,)
    expected: np.ndarray | None = None  #: expected fractions before these bins were counted

    @classmethod
    def blank(cls, edges: np.ndarray) -> SupportPosterior:
        """Return the prior."""
        return cls(edges, np.diff(_reached(edges), axis=1), _intervals()[3], usual_widths())

    @property
    def chances(self) -> np.ndarray:
        """Probability of each interval, shape (intervals,)."""
        logs = self.logs + np.log(self.widths)[_intervals()[2]]
        return np.asarray(np.exp(logs - logsumexp(logs)))

    @property
    def narrow(self) -> float:
        """The probability that the mass is within less than half of the bounds."""
        return float(self.chances[_intervals()[2] > 1].sum())

    def below(self, at: np.ndarray) -> np.ndarray:
        """Return fractions below some positions under each interval, shape (intervals, positions)."""
        bins = np.clip(np.searchsorted(self.edges, at, side="right") - 1, 0, len(self.edges) - 2)
        ends, places = _reached(self.edges), _reached(at)
        inside = (places - ends[:, bins]) / (ends[:, bins + 1] - ends[:, bins])
        before = np.cumsum(self.shares, axis=1) - self.shares
        return np.asarray(before[:, bins] + self.shares[:, bins] * inside)

    def quantiles(self, at: np.ndarray) -> np.ndarray:
        """Return quantiles of the posterior mean distribution."""
        places = np.union1d(self.edges, np.linspace(0, 1, PLACES + 1))
        reached = self.chances @ self.below(places)
        rising = reached + 1e-9 * np.arange(len(places))
        return np.asarray(np.interp(at, rising / rising[-1], places))

    def over(self, edges: np.ndarray) -> SupportPosterior:
        """Return the same over other bins."""
        return replace(self, edges=edges, shares=np.diff(self.below(edges), axis=1))

    def updated(self, noisy: np.ndarray, variance: float) -> SupportPosterior:
        """Return the posterior given noisy fractions by bin, with noise variance v.

        Under an interval a bin's fraction s has the prior N(m, max(m, least)^2); the noisy one is
        N(m, max(m, least)^2 + v), and s has a Gaussian posterior.
        """
        spread = np.maximum(self.shares, SETTINGS.min_share_std / len(noisy)) ** 2
        rest, each = noisy - self.shares, spread + variance
        logs = self.logs - (rest**2 / each + np.log(each)).sum(axis=1) / 2
        shares = np.maximum(self.shares + spread / each * rest, 0)
        return replace(self, shares=shares, logs=logs - logs.max(), expected=self.shares)

    def with_full_bins(self, noisy: np.ndarray, variance: float) -> np.ndarray:
        """Return posterior mean fractions given those of :meth:`updated`; see :func:`with_full_bins`."""
        assert self.expected is not None
        likely = self.chances > LEAST * self.chances.max()
        expected = self.expected[likely]
        spread = np.maximum(expected, SETTINGS.min_share_std / len(noisy)) ** 2
        return with_full_bins(noisy, variance, expected, spread, np.log(self.chances[likely]))


def with_full_bins(
    noisy: np.ndarray, variance: float, expected: np.ndarray, spread: np.ndarray, logs: np.ndarray
) -> np.ndarray:
    """Return posterior means of bins' fractions if some bins may be far fuller than others, shape (bins,).

    A column of few values, or with a frequent one, has few full bins; counts of the others are mostly noise. A fraction
    w of the bins has f times the mean m and std s of :meth:`SupportPosterior.updated`, the others (1 - f w) / (1 - w)
    times, so that noisy fractions are N(f m, f^2 s^2 + v) and likewise. All bins together determine w and f; w is 0
    with prior probability ``1 - full_bins``.

    Args:
        noisy: fractions, shape (bins,).
        variance: noise variance v of each.
        expected: m by hypothesis and bin, shape (hypotheses, bins).
        spread: s^2, in the same shape.
        logs: log-probabilities of the hypotheses given these counts if w is 0, shape (hypotheses,).
    """
    v = variance + EXACT

    def told(factor: float) -> tuple[np.ndarray, np.ndarray]:
        mean, each = factor * expected, factor**2 * spread + v
        likely = -((noisy - mean) ** 2 / each + np.log(each)) / 2
        return likely, np.maximum(mean + (1 - v / each) * (noisy - mean), 0)

    dense, mean = told(1.0)
    odds, means = [np.log1p(-SETTINGS.full_bins) + logs], [mean]
    tried = list(product(SETTINGS.low_fractions, SETTINGS.low_factors))
    for fraction, factor in tried:
        low, low_mean = told(factor)
        high, high_mean = told((1 - factor * fraction) / (1 - fraction))
        low, high = low + np.log(fraction), high + np.log1p(-fraction)
        either = np.logaddexp(low, high)
        odds.append(np.log(SETTINGS.full_bins / len(tried)) + logs + (either - dense).sum(axis=1))
        means.append(np.exp(low - either) * low_mean + np.exp(high - either) * high_mean)
    weights = np.exp(np.array(odds) - logsumexp(odds))
    return np.asarray(np.einsum("wh,whb->b", weights, np.array(means)))


def shared(columns: Sequence[SupportPosterior]) -> list[SupportPosterior]:
    """Return the same with a common distribution of widths, by EM under a Dirichlet prior."""
    numbers, usual = _intervals()[2], usual_widths()
    each = np.array([own.logs for own in columns]).reshape(len(columns), len(numbers))
    logs = np.column_stack(
        [logsumexp(each[:, numbers == k], axis=1) for k in range(SETTINGS.support_halvings + 1)]
    )
    widths = usual
    for _ in range(ROUNDS if len(columns) > 1 else 0):
        chances = np.exp(logs + np.log(widths) - (logs + np.log(widths)).max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        widths = (chances.sum(axis=0) + SETTINGS.whole_columns * usual) / (
            len(columns) + SETTINGS.whole_columns
        )
    return [replace(own, widths=widths) for own in columns]
