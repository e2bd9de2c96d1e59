"""Marginal distributions of the columns, from rounds of increasingly fine histograms.

Noisy counts are shrunk towards the previous round's expectation, according to their noise, so that far too wide bounds
or heavy tails cost a round, not resolution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privfed.learners.private.grid import BinEdges, first_cuts, one_bin_each, settled
from privfed.learners.private.settings import SETTINGS
from privfed.learners.private.support_posterior import SupportPosterior, with_full_bins
from privfed.tables.schema import Column

LARGEST_LOGIT, LOGITS = 10.0, 401  #: Grid of log-odds for classes' fractions
EXACT = 1e-12  #: Variance below which a count is certain, as a huge budget adds no noise


@dataclass(frozen=True, eq=False)
class ColumnEstimate:
    """One column's estimated counts."""

    column: Column  #: the public column
    cuts: np.ndarray  #: thresholds, strictly inside the bounds
    counts: np.ndarray  #: nonnegative estimates by bin
    variances: np.ndarray | None = None  #: posterior variances; None before counting
    beliefs: SupportPosterior | None = None  #: None for targets and few values
    #: of a number to predict: where its mass is if noise hides it in the counts; see :meth:`within_support`
    support: SupportPosterior | None = None
    #: noisy counts and their noise variance, over all rounds with these bins
    counted: tuple[np.ndarray, float] | None = None

    @classmethod
    def blank(cls, column: Column) -> ColumnEstimate:
        """Return the estimate before any counts."""
        cuts = first_cuts(column, SETTINGS.first_bins)
        return cls(column, cuts, np.zeros(len(cuts) + 1))

    @classmethod
    def of_target(cls, column: Column) -> ColumnEstimate:
        """Return the same of a number to predict, with a support; more than ``first_bins`` whole numbers share bins."""
        cuts = first_cuts(column, SETTINGS.first_bins, SETTINGS.first_bins)
        estimate = cls(column, cuts, np.zeros(len(cuts) + 1))
        return replace(estimate, support=SupportPosterior.blank(estimate.positions))

    @classmethod
    def in_an_interval(cls, column: Column) -> ColumnEstimate:
        """Return the same with a support posterior, unless each value has its own bin."""
        estimate = cls.blank(column)
        return (
            estimate
            if one_bin_each(column)
            else replace(estimate, beliefs=SupportPosterior.blank(estimate.positions))
        )

    @property
    def edges(self) -> np.ndarray:
        """Lower bound, thresholds, upper bound."""
        low, high = self.column.bounds
        return np.concatenate([[low], self.cuts, [high]])

    @property
    def cells(self) -> np.ndarray:
        """The edges halfway between the values of neighbouring bins: for whole numbers, a bin from a to below b holds a to b - 1."""
        if self.column.kind == "number":
            return self.edges
        return np.append(self.edges[:-1], self.edges[-1] + 1) - 0.5

    @property
    def has_bin_per_value(self) -> bool:
        """Whether every value has its own bin."""
        low, high = self.column.bounds
        return one_bin_each(self.column) and len(self.cuts) == np.floor(high) - np.ceil(low)

    @property
    def positions(self) -> np.ndarray:
        """The edges as fractions of the bounds' interval, from 0 to 1; evenly if each value has its own bin."""
        if self.has_bin_per_value:
            return np.linspace(0, 1, len(self.cuts) + 2)
        low, high = self.column.bounds
        return np.asarray((self.edges - low) / (high - low))

    @property
    def shares(self) -> np.ndarray:
        """Estimated fractions of the records by bin; equal if all counts are zero."""
        total = self.counts.sum()
        if total <= 0:
            return np.full(len(self.counts), 1 / len(self.counts))
        return np.asarray(self.counts / total)

    @property
    def cdf(self) -> np.ndarray:
        """Cumulative fractions at each edge, shape (bins + 1,)."""
        return np.concatenate([[0.0], np.cumsum(self.shares)])

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """Return quantiles at some fractions, linear within bins."""
        rising = self.cdf + 1e-9 * np.arange(len(self.shares) + 1)
        return np.asarray(np.interp(levels, rising / rising[-1], self.edges))

    def limits(self, tail: float) -> tuple[float, float]:
        """Return the quantiles at a tail and one minus it; of whole numbers, different values of records."""
        rising = self.cdf + 1e-9 * np.arange(len(self.shares) + 1)
        low, high = np.interp([tail, 1 - tail], rising / rising[-1], self.cells)
        if self.column.kind == "number":
            return float(low), float(high)
        least, most = self.column.bounds
        low, high = (float(end) + 0.0 for end in np.clip(np.rint([low, high]), least, most))
        return (low, high) if low < high else (max(low - 1, least), min(high + 1, most))

    def within_support(self, records: float, fraction: float, tail: float) -> ColumnEstimate:
        """Return fractions of the records: those between the support's ends, mixed with its expected distribution.

        If its ends are those of the bounds, that is uniform.

        Args:
            records: their number.
            fraction: of the latter; if it is not positive, all bins keep their own fractions.
            tail: expected fraction of the support beyond each of those ends.
        """
        fraction, fractions = float(np.clip(fraction, 0, 1)), self.shares
        if fraction and self.support is not None and self.counted is not None:
            noisy, variance = self.counted
            ends = self.support.ends(noisy / records, variance / records**2, tail)
            within = np.diff(np.clip(self.positions, *ends))
            known = ends != (0.0, 1.0)
            expected = np.diff(self.support.interval_cdf(self.positions)) if known else within
            counted = fractions * within / np.diff(self.positions)
            likely = counted / counted.sum() if counted.any() else expected
            fractions = (1 - fraction) * likely + fraction * expected
        return replace(self, counts=fractions)

    def closer(self, bins: int) -> ColumnEstimate:
        """Return the same over bins of equal expected mass.

        An outermost bin far wider than its neighbour is halved repeatedly towards it, as a bound says little about
        where a tail ends.
        """
        if self.has_bin_per_value:
            return self
        levels, (low, high) = np.linspace(0, 1, bins + 1), self.column.bounds
        if self.beliefs is None:
            knots = self.quantiles(levels)
        else:
            knots = low + (high - low) * self.beliefs.quantiles(levels)
        if bins > 1:
            below = knots[1] - _halves(knots[1] - knots[0], knots[2] - knots[1])
            above = knots[-2] + _halves(knots[-1] - knots[-2], knots[-2] - knots[-3])
            knots = np.concatenate([knots, below, above])
        cuts = settled(knots, self.column)
        finer = replace(self, cuts=cuts, variances=None, counted=None)
        if self.support is not None:
            finer = replace(finer, support=self.support.over(finer.positions))
        if self.beliefs is None:
            expected = np.diff(np.interp(finer.edges, self.edges, self.cdf))
            return replace(finer, counts=expected * self.counts.sum())
        return finer.believed(self.beliefs.over(finer.positions), float(self.counts.sum()))

    def updated(self, noisy: np.ndarray, variance: float, records: float) -> ColumnEstimate:
        """Combine noisy counts, with this noise variance, with the expectation, weighted by precision.

        The expectation is the support posterior's, if there is one. Otherwise its variance is, over bins not counted
        before, the excess of the noisy counts' variance (empirical Bayes); over others, the previous posterior's.
        Counts are then projected to be nonnegative, with at most the total of the records.
        """
        counted = joined(self.counted, (noisy, variance))
        if self.beliefs is not None:
            beliefs = self.beliefs.updated(noisy / records, variance / records**2)
            return replace(self, counted=counted).believed(beliefs, records)
        expected, even = self.counts, records / len(noisy)
        if not expected.any():
            expected = np.full(len(noisy), even)
        prior_var = self.variances
        if prior_var is None:
            prior_var = _excess(noisy, variance, expected, even)
        gain = (prior_var + EXACT) / (prior_var + variance + EXACT)
        counts = project(expected + gain * (noisy - expected), records)
        support = self.support and self.support.updated(noisy / records, variance / records**2)
        return replace(
            self, counts=counts, variances=gain * variance, counted=counted, support=support
        )

    def sharpened(self, records: float) -> ColumnEstimate:
        """Return the same allowing for few full bins, as with few values; see :func:`.with_full_bins`."""
        if self.counted is None or (self.beliefs is None and not one_bin_each(self.column)):
            return self
        noisy, variance = self.counted
        if self.beliefs is not None:
            fractions = self.beliefs.with_full_bins(noisy / records, variance / records**2)
        else:
            even = np.full((1, len(noisy)), 1 / len(noisy))
            prior_var = _excess(noisy, variance, records * even, records / len(noisy)) / records**2
            fractions = with_full_bins(
                noisy / records, variance / records**2, even, prior_var, np.zeros(1)
            )
        return replace(self, counts=project(records * fractions, records))

    def believed(self, beliefs: SupportPosterior, records: float) -> ColumnEstimate:
        """Return the same with a support posterior's counts over these bins."""
        counts = project(records * (beliefs.probabilities @ beliefs.shares), records)
        return replace(self, counts=counts, beliefs=beliefs)


def _excess(noisy: np.ndarray, variance: float, expected: np.ndarray, even: float) -> np.ndarray:
    """Return the counts' variances about their expectations, proportional to these, from the excess over noise."""
    scale = np.maximum(expected, SETTINGS.min_expected * even) ** 2
    stray = float(((noisy - expected) ** 2).sum()) - noisy.size * variance
    factor = np.clip(stray / scale.sum(), SETTINGS.min_stray, noisy.size)
    return np.asarray(scale * factor + 1e-9)


def joined(
    former: tuple[np.ndarray, float] | None, latter: tuple[np.ndarray, float]
) -> tuple[np.ndarray, float]:
    """Combine two noisy rows with their variances, weighted by precision."""
    if former is None:
        return latter
    gain = former[1] / max(former[1] + latter[1], 1e-9)
    return former[0] + gain * (latter[0] - former[0]), gain * latter[1]


def _halves(width: float, neighbour: float) -> np.ndarray:
    """Return the widths from halving while wider than the neighbour, at most ``max_halvings`` times."""
    pieces = width / 2.0 ** np.arange(1, SETTINGS.max_halvings + 1)
    return np.asarray(pieces[pieces > neighbour])


def project(counts: np.ndarray, total: float) -> np.ndarray:
    """Return the nearest nonnegative counts with at most this total.

    Source: projection onto a simplex, Duchi et al. 2008, Figure 1.
    """
    positive = np.maximum(counts, 0)
    if positive.sum() <= total:
        return np.asarray(positive)
    falling = np.sort(counts)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(counts) + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    return np.asarray(np.maximum(counts - excess[last], 0))


@dataclass(frozen=True, eq=False)
class Shares:
    """The classes' fractions of the records."""

    means: np.ndarray  #: sum to one, shape (classes,)
    spread: float  #: mean std of their log-odds

    @property
    def uncertain(self) -> bool:
        """Whether the records of the classes are few for the noise."""
        return self.spread > SETTINGS.uncertain_std

    @classmethod
    def from_counts(
        cls, counts: np.ndarray, variance: float, records: float, uncertain: float
    ) -> Shares:
        """Return posterior means under Jeffreys' prior, each class against the others.

        A class's count is estimated by c_k - (sum of c - N) / K, with noisy counts c, shape (classes,), and N
        ``records``. Its noise has variance v (1 - 1/K), and N is uncertain, too; half a record per class is Jeffreys'
        own correction, at any budget.
        """
        classes = len(counts)
        fractions = (counts - (counts.sum() - records) / classes) / records
        error_var = variance * (1 - 1 / classes) + uncertain * (fractions - 1 / classes) ** 2
        logits = np.linspace(-LARGEST_LOGIT, LARGEST_LOGIT, LOGITS)
        grid = 1 / (1 + np.exp(-logits))
        prior = 0.5 * np.log(grid) + (classes - 1) / 2 * np.log1p(-grid)
        misfit = (fractions[:, None] - grid) ** 2 / (error_var[:, None] / records**2 + 1e-12)
        posterior = np.exp(prior - misfit / 2 - (prior - misfit / 2).max(axis=1, keepdims=True))
        posterior /= posterior.sum(axis=1, keepdims=True)
        means = (records * (posterior @ grid) + 0.5) / (records + classes / 2)
        # centred first: a difference of squares could be negative
        centred = logits - (posterior @ logits)[:, None]
        stds = np.sqrt((posterior * centred**2).sum(axis=1))
        return cls(means / means.sum(), float(stds.mean()))


@dataclass(frozen=True, eq=False)
class Marginals:
    """All columns' estimates."""

    features: tuple[ColumnEstimate, ...]  #: by feature
    target: ColumnEstimate  #: of the target
    records: float  #: how many there are, at least one
    signal: float  #: see :func:`signal_of`

    def sharpened(self) -> Marginals:
        """The features' likeliest masses where few of a column's bins may be full: what noise counts in others is gone.

        Synthetic records are drawn by these. Functions are chosen by the others, which keep apart values that noise
        may hide.
        """
        return replace(self, features=tuple(f.sharpened(self.records) for f in self.features))

    @property
    def grid(self) -> BinEdges:
        """Thresholds of the features."""
        return BinEdges.from_arrays([feature.cuts for feature in self.features])

    def shares(self) -> np.ndarray:
        """Fractions by column and code, padded with zeros, shape (columns, codes)."""
        return padded([feature.shares for feature in self.features])

    def ranks(self) -> np.ndarray:
        """Mid-rank of each code in [-1, 1], shape (columns, codes)."""
        rows = [m.cdf[:-1] + m.cdf[1:] - 1 for m in self.features]
        return np.asarray(np.clip(padded(rows), -1, 1))


def padded(rows: list[np.ndarray]) -> np.ndarray:
    """Stack rows of different lengths into a matrix, padded with zeros."""
    width = max(len(row) for row in rows)
    return np.array([np.pad(np.asarray(row, float), (0, width - len(row))) for row in rows])


def total_of(counts: list[np.ndarray], variances: list[float]) -> tuple[float, float]:
    """Return the number of records from noisy counts of several columns, and its variance.

    Weighted least squares: each column's sum has weight one over its bins times their variance.
    """
    weights = [
        1 / (len(row) * (variance + 1e-9)) for row, variance in zip(counts, variances, strict=True)
    ]
    sums = [row.sum() for row in counts]
    return max(1.0, float(np.dot(weights, sums)) / sum(weights)), 1 / sum(weights)


def signal_of(ratio: float, columns: int) -> float:
    """Return the signal-to-noise ratio N sqrt(2 rho / K) sqrt(10 / p) for K clients of one rho and p columns.

    It chooses the model's size; ``ratio`` is records over the noise of one count at the whole budget.
    """
    return ratio * math.sqrt(10 / max(columns, 3))
