"""Which interval of its bounds holds a column's mass, and its posterior by noisy counts.

Public bounds may be many times too wide, and the noise in a bin's count larger than the records in it.
No bin then tells by itself where the mass is, but few intervals fit all bins, all rounds and the other
columns' bounds. Each is a hypothesis; estimates average over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
from scipy.special import logsumexp

from privfed.learners.private.settings import SETTINGS

PLACES = 256  #: Places between which quantiles are straight lines
LEAST = 1e-4  #: Least odds of an interval to the likeliest, that means are taken over
EXACT = 1e-18  #: Added to variances of shares: a huge budget adds no noise
ROUNDS = 20  #: Rounds of expectation and maximisation


@cache
def _intervals() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Starts, lengths, numbers of halvings, and log-probabilities among those of one length."""
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
    """Fraction of the mass below some places (0 to 1) under each interval, shape (intervals, places)."""
    starts, scale_factors, _, _ = _intervals()
    inside = np.clip((at - starts[:, None]) / scale_factors[:, None], 0, 1)
    return np.asarray((1 - SETTINGS.anywhere) * inside + SETTINGS.anywhere * at)


def usual_widths() -> np.ndarray:
    """Prior probability of each number of halvings, shape (halvings,)."""
    narrow = np.full(
        SETTINGS.support_halvings, (1 - SETTINGS.whole_probability) / SETTINGS.support_halvings
    )
    return np.concatenate([[SETTINGS.whole_probability], narrow])


@dataclass(frozen=True, eq=False)
class SupportPosterior:
    """What is held of one column."""

    edges: np.ndarray  #: of the bins, as shares of the bounds, shape (bins + 1,)
    shares: np.ndarray  #: of the records, expected by interval and bin, shape (intervals, bins)
    logs: np.ndarray  #: how likely each interval is, but for its width, shape (intervals,)
    widths: np.ndarray  #: chances of the bounds' halvings, shape (halvings,)
    expected: np.ndarray | None = None  #: shares before these bins were counted

    @classmethod
    def blank(cls, edges: np.ndarray) -> SupportPosterior:
        """The prior."""
        return cls(edges, np.diff(_reached(edges), axis=1), _intervals()[3], usual_widths())

    @property
    def chances(self) -> np.ndarray:
        """Of each interval, shape (intervals,)."""
        logs = self.logs + np.log(self.widths)[_intervals()[2]]
        return np.asarray(np.exp(logs - logsumexp(logs)))

    @property
    def narrow(self) -> float:
        """The probability that less than half of the bounds holds the mass."""
        return float(self.chances[_intervals()[2] > 1].sum())

    def below(self, at: np.ndarray) -> np.ndarray:
        """Fractions below some places under each interval, shape (intervals, places)."""
        bins = np.clip(np.searchsorted(self.edges, at, side="right") - 1, 0, len(self.edges) - 2)
        ends, places = _reached(self.edges), _reached(at)
        inside = (places - ends[:, bins]) / (ends[:, bins + 1] - ends[:, bins])
        before = np.cumsum(self.shares, axis=1) - self.shares
        return np.asarray(before[:, bins] + self.shares[:, bins] * inside)

    def quantiles(self, at: np.ndarray) -> np.ndarray:
        """Quantiles of the posterior mean."""
        places = np.union1d(self.edges, np.linspace(0, 1, PLACES + 1))
        reached = self.chances @ self.below(places)
        rising = reached + 1e-9 * np.arange(len(places))
        return np.asarray(np.interp(at, rising / rising[-1], places))

    def over(self, edges: np.ndarray) -> SupportPosterior:
        """The same over other bins."""
        return replace(self, edges=edges, shares=np.diff(self.below(edges), axis=1))

    def updated(self, noisy: np.ndarray, variance: float) -> SupportPosterior:
        """Joined with noisy shares by bin, whose noise has the variance v.

        Under an interval a bin's share s is N(m, max(m, least)^2) beforehand; what is told is
        N(m, max(m, least)^2 + v), and s has a Gaussian posterior.
        """
        spread = np.maximum(self.shares, SETTINGS.min_share_std / len(noisy)) ** 2
        rest, each = noisy - self.shares, spread + variance
        logs = self.logs - (rest**2 / each + np.log(each)).sum(axis=1) / 2
        shares = np.maximum(self.shares + spread / each * rest, 0)
        return replace(self, shares=shares, logs=logs - logs.max(), expected=self.shares)

    def with_full_bins(self, noisy: np.ndarray, variance: float) -> np.ndarray:
        """Posterior means of the shares by the noisy ones that :meth:`updated` joined; see :func:`with_full_bins`."""
        assert self.expected is not None
        likely = self.chances > LEAST * self.chances.max()
        expected = self.expected[likely]
        spread = np.maximum(expected, SETTINGS.min_share_std / len(noisy)) ** 2
        return with_full_bins(noisy, variance, expected, spread, np.log(self.chances[likely]))


def with_full_bins(
    noisy: np.ndarray, variance: float, expected: np.ndarray, spread: np.ndarray, logs: np.ndarray
) -> np.ndarray:
    """Posterior means of bins' shares, where some may hold far more than the others, shape (bins,).

    A column of few values, or with one that is frequent, has few full bins; what the noise counts in the others
    is not their records'. A fraction w of the bins has shares of f times the mean m and the std s that all would have
    (:meth:`SupportPosterior.updated`), the others (1 - f w) / (1 - w) times, so that noisy shares are N(f m,
    f^2 s^2 + v) or the like. All bins together tell w and f; w is 0 with probability ``1 - full_bins`` beforehand.

    Args:
        noisy: shares, shape (bins,).
        variance: v of the noise in each.
        expected: m by hypothesis and bin, shape (hypotheses, bins).
        spread: s^2, in the same shape.
        logs: log-probabilities of the hypotheses by these counts if w is 0, shape (hypotheses,).
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
    """The same under the widths that are likeliest for all columns, by EM under a Dirichlet prior."""
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
