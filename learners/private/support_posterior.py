"""Posterior over the interval of a column's bounds that contains its mass, from noisy counts.

Public bounds may be many times too wide, and a bin's noise larger than its count. No single bin then locates the mass,
but few intervals fit all bins, all rounds and the other columns' bounds. Each interval is a hypothesis; estimates
average over them.
"""

from __future__ import annotations

import math
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
    starts, halvings, probs = [], [], []
    for k in range(SETTINGS.support_halvings + 1):
        pos = np.arange(2 ** (k + 1) - 1) / 2 ** (k + 1)
        peaks = np.isin(np.arange(len(pos)), (0, 2**k - 1, len(pos) - 1))
        starts.append(pos)
        halvings.append(np.full(len(pos), k))
        probs.append(
            (1 - SETTINGS.usual_position) / len(pos) + SETTINGS.usual_position * peaks / peaks.sum()
        )
    number = np.concatenate(halvings)
    return np.concatenate(starts), 0.5**number, number, np.log(np.concatenate(probs))


def _inside_below(x: np.ndarray) -> np.ndarray:
    """Return the fraction of each interval below some positions (0 to 1), shape (intervals, positions)."""
    starts, scale_factors, _, _ = _intervals()
    return np.asarray(np.clip((x - starts[:, None]) / scale_factors[:, None], 0, 1))


def _mass_below(x: np.ndarray) -> np.ndarray:
    """Return the mass below some positions (0 to 1) under each interval, shape (intervals, positions)."""
    return np.asarray((1 - SETTINGS.anywhere) * _inside_below(x) + SETTINGS.anywhere * x)


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
        return cls(edges, np.diff(_mass_below(edges), axis=1), _intervals()[3], usual_widths())

    @property
    def probabilities(self) -> np.ndarray:
        """Probability of each interval, shape (intervals,)."""
        logs = self.logs + np.log(self.widths)[_intervals()[2]]
        return np.asarray(np.exp(logs - logsumexp(logs)))

    @property
    def narrow(self) -> float:
        """The probability that the mass is within less than half of the bounds."""
        return float(self.probabilities[_intervals()[2] > 1].sum())

    def interval_cdf(self, x: np.ndarray) -> np.ndarray:
        """Return the expected fraction of the interval below some positions, shape (positions,)."""
        return np.asarray(self.probabilities @ _inside_below(x))

    def ends(self, noisy: np.ndarray, variance: float, tail: float) -> tuple[float, float]:
        """Return the positions beyond which an expected fraction ``tail`` of the interval lies, on either side.

        The whole bounds if the bins between them seem to hold too few records: a frequent value in one bin would also make
        a narrow interval. Of k bins there and l others, the sum of the k and one minus that of the others have noise of
        variance k v and l v; their mean by precision and its std must reach ``least_inside``.

        Args:
            noisy: fractions of the last update, shape (bins,).
            variance: noise variance v of each.
            tail: fraction.
        """
        grid = np.linspace(0, 1, 4 * PLACES + 1)
        rising = self.interval_cdf(grid) + 1e-12 * np.arange(len(grid))
        low, high = np.interp([tail, 1 - tail], rising, grid)
        met = (self.edges[:-1] < high) & (self.edges[1:] > low)
        k, others = int(met.sum()), int((~met).sum())
        inside = (others * noisy[met].sum() + k * (1 - noisy[~met].sum())) / len(met)
        std = math.sqrt(variance * k * others / len(met))
        return (float(low), float(high)) if inside + std >= SETTINGS.least_inside else (0.0, 1.0)

    def below(self, x: np.ndarray) -> np.ndarray:
        """Return fractions below some positions under each interval, shape (intervals, positions)."""
        bins = np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, len(self.edges) - 2)
        ends, mass = _mass_below(self.edges), _mass_below(x)
        inside = (mass - ends[:, bins]) / (ends[:, bins + 1] - ends[:, bins])
        before = np.cumsum(self.shares, axis=1) - self.shares
        return np.asarray(before[:, bins] + self.shares[:, bins] * inside)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """Return quantiles of the posterior mean distribution."""
        positions = np.union1d(self.edges, np.linspace(0, 1, PLACES + 1))
        cdf = self.probabilities @ self.below(positions)
        rising = cdf + 1e-9 * np.arange(len(positions))
        return np.asarray(np.interp(levels, rising / rising[-1], positions))

    def over(self, edges: np.ndarray) -> SupportPosterior:
        """Return the same over other bins."""
        return replace(self, edges=edges, shares=np.diff(self.below(edges), axis=1))

    def updated(self, noisy: np.ndarray, variance: float) -> SupportPosterior:
        """Return the posterior given noisy fractions by bin, with noise variance v.

        Under an interval a bin's fraction s has the prior N(m, max(m, least)^2); the noisy one is
        N(m, max(m, least)^2 + v), and s has a Gaussian posterior.
        """
        prior_var = np.maximum(self.shares, SETTINGS.min_share_std / len(noisy)) ** 2
        residual, total_var = noisy - self.shares, prior_var + variance
        logs = self.logs - (residual**2 / total_var + np.log(total_var)).sum(axis=1) / 2
        fractions = np.maximum(self.shares + prior_var / total_var * residual, 0)
        return replace(self, shares=fractions, logs=logs - logs.max(), expected=self.shares)

    def with_full_bins(self, noisy: np.ndarray, variance: float) -> np.ndarray:
        """Return posterior mean fractions given those of :meth:`updated`; see :func:`with_full_bins`."""
        assert self.expected is not None
        likely = self.probabilities > LEAST * self.probabilities.max()
        expected = self.expected[likely]
        s2 = np.maximum(expected, SETTINGS.min_share_std / len(noisy)) ** 2
        return with_full_bins(noisy, variance, expected, s2, np.log(self.probabilities[likely]))


def with_full_bins(
    noisy: np.ndarray, variance: float, expected: np.ndarray, s2: np.ndarray, logs: np.ndarray
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
        s2: s^2, in the same shape.
        logs: log-probabilities of the hypotheses given these counts if w is 0, shape (hypotheses,).
    """
    v = variance + EXACT

    def conditional(factor: float) -> tuple[np.ndarray, np.ndarray]:
        mean, var = factor * expected, factor**2 * s2 + v
        likely = -((noisy - mean) ** 2 / var + np.log(var)) / 2
        return likely, np.maximum(mean + (1 - v / var) * (noisy - mean), 0)

    dense, mean = conditional(1.0)
    odds, means = [np.log1p(-SETTINGS.full_bins) + logs], [mean]
    options = list(product(SETTINGS.low_fractions, SETTINGS.low_factors))
    for fraction, factor in options:
        low, low_mean = conditional(factor)
        high, high_mean = conditional((1 - factor * fraction) / (1 - fraction))
        low, high = low + np.log(fraction), high + np.log1p(-fraction)
        both = np.logaddexp(low, high)
        odds.append(np.log(SETTINGS.full_bins / len(options)) + logs + (both - dense).sum(axis=1))
        means.append(np.exp(low - both) * low_mean + np.exp(high - both) * high_mean)
    weights = np.exp(np.array(odds) - logsumexp(odds))
    return np.asarray(np.einsum("wh,whb->b", weights, np.array(means)))


def shared(columns: Sequence[SupportPosterior]) -> list[SupportPosterior]:
    """Return the same with a common distribution of widths, by EM under a Dirichlet prior."""
    numbers, prior = _intervals()[2], usual_widths()
    rows = np.array([column.logs for column in columns]).reshape(len(columns), len(numbers))
    logs = np.column_stack(
        [logsumexp(rows[:, numbers == k], axis=1) for k in range(SETTINGS.support_halvings + 1)]
    )
    widths = prior
    for _ in range(ROUNDS if len(columns) > 1 else 0):
        probs = np.exp(logs + np.log(widths) - (logs + np.log(widths)).max(axis=1, keepdims=True))
        probs /= probs.sum(axis=1, keepdims=True)
        widths = (probs.sum(axis=0) + SETTINGS.whole_columns * prior) / (
            len(columns) + SETTINGS.whole_columns
        )
    return [replace(column, widths=widths) for column in columns]
