"""A numeric target's distribution and mean from noisy counts of its bins, as post-processing.

The mass is located in rounds (:mod:`privfed.learners.mass`), as public bounds may be many times too wide; values beyond
are winsorised. The mean is then shrunk according to its noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privfed.learners.fuzzy_tree.settings import SETTINGS
from privfed.learners.genetic_tree.top import NoisyTreeGrower, bin_means, quantile_edges
from privfed.learners.mass import Mass, likely_cells
from privfed.learners.private.grid import one_bin_each
from privfed.tables.schema import Column

_DOUBT = 0.05  #: Probability that the mass extends beyond an end of a round's interval
#: Margin for tails on either side without noise, in widths of the significant range; and the fraction of the records
#: explained by noise at which there is no margin.
_ROOM, _DIM = 2.0, 0.05
_BY_MASS = 0.5  #: Fraction of the next round's cells of equal mass; the others have equal width
#: Prior std of a mean about the middle of the mass's range, as a fraction of its width.
_STRAY_MEAN = 0.25
_STILL = 1e-6  #: Minimum variance of one record, in squared widths of the mass's range
_ALIKE = 0.5  #: Prior probability that a node does not differ from its parent


@dataclass(frozen=True, eq=False)
class TargetDistribution:
    """The estimate of a target's distribution between two rounds."""

    #: edges of its cells, increasing; values beyond the outer ones count in the outer cells
    edges: np.ndarray
    shares: np.ndarray  #: fractions of the records by cell, nonnegative; shape (cells,)
    mean: float  #: estimated mean of the winsorised target, and its noise variance
    uncertain: float
    whole: bool = False  #: whether cells have one integer each

    @classmethod
    def blank(cls, column: Column, cells: int) -> TargetDistribution:
        """Return a uniform distribution over the public bounds."""
        low, high = column.bounds
        whole = one_bin_each(column) and high - low < cells
        if whole:
            edges = np.arange(np.ceil(low), np.floor(high) + 2) - 0.5
        else:
            edges = low + (high - low) * np.linspace(0, 1, cells + 1)
        shares = np.full(len(edges) - 1, 1 / (len(edges) - 1))
        return cls(edges, shares, float(edges[0] / 2 + edges[-1] / 2), math.inf, whole)

    @property
    def middles(self) -> np.ndarray:
        """The cells' midpoints, shape (cells,)."""
        return np.asarray(self.edges[1:] / 2 + self.edges[:-1] / 2)

    @property
    def width(self) -> float:
        """The width of all cells together."""
        return float(self.edges[-1] - self.edges[0])

    @property
    def variance(self) -> float:
        """The variance of one record, never zero."""
        cells, shares = np.diff(self.edges) ** 2 / 12, self.shares
        squares = (self.middles - shares @ self.middles) ** 2 + (0.0 if self.whole else cells)
        return max(float(shares @ squares), _STILL * self.width**2)

    def closer(self, cells: int) -> TargetDistribution:
        """Return the same over as many cells, half of them of equal mass; integers keep theirs."""
        if self.whole:
            return self
        even = (self.edges - self.edges[0]) / self.width
        mass = np.concatenate([[0.0], np.cumsum(self.shares)])
        cdf = _BY_MASS * mass / mass[-1] + (1 - _BY_MASS) * even
        edges = np.interp(np.linspace(0, 1, cells + 1), cdf, self.edges)
        edges = np.unique(np.concatenate([self.edges[[0, -1]], edges[1:-1]]))
        shares = np.full(len(edges) - 1, 1 / (len(edges) - 1))
        return TargetDistribution(edges, shares, self.mean, self.uncertain)

    def updated(self, counts: np.ndarray, variance: float, records: float) -> TargetDistribution:
        """Return the update by one round's noisy counts by cell, with noise variance and number of records."""
        mass = Mass.from_counts(counts[None], np.array([variance]), np.array([records]))
        run, likely = mass.run(0, _DOUBT), likely_cells(self.edges, counts, variance, records)
        first, last = np.clip(self._with_room(run, variance, records), *likely).tolist()
        masses = mass.counts[0, first : last + 1]
        total = masses.sum()
        shares = masses / total if total > 0 else np.full(len(masses), 1 / len(masses))
        edges = self.edges[first : last + 2]
        result = TargetDistribution(edges, shares, self.mean, self.uncertain, self.whole)
        return result.combined(self, counts, variance, records)

    def _with_room(self, run: tuple[int, int], variance: float, records: float) -> tuple[int, int]:
        """Return the run of cells with a margin for tails, wider for less noise."""
        noise = math.sqrt(variance * len(self.shares)) / records
        ends = self.edges[[run[0], run[1] + 1]]
        margin = _ROOM * max(0.0, 1 - noise / _DIM) * float(ends[1] - ends[0])
        first = int(np.searchsorted(self.edges, ends[0] - margin, side="right")) - 1
        last = int(np.searchsorted(self.edges, ends[1] + margin, side="left")) - 1
        return max(min(first, run[0]), 0), min(max(last, run[1]), len(self.shares) - 1)

    def combined(
        self, previous: TargetDistribution, counts: np.ndarray, variance: float, records: float
    ) -> TargetDistribution:
        """Return the same, with the mean (clipped to these cells) combined by precision with former counts'."""
        ends = self.edges[[0, -1]] + (np.array([0.5, -0.5]) if self.whole else 0.0)
        middle = float(ends.sum() / 2)
        offsets = np.clip(previous.middles, *ends) - middle
        estimate = middle + float(np.clip(counts @ offsets / records, *(ends - middle)))
        within = 0.0 if self.whole else float(self.shares**2 @ np.diff(self.edges) ** 2) / 12
        noise = variance * float(offsets @ offsets) / records**2 + within
        gain = 1.0 if math.isinf(self.uncertain) else self.uncertain / (self.uncertain + noise)
        mean = float(np.clip(self.mean + gain * (estimate - self.mean), *ends))
        return replace(self, mean=mean, uncertain=gain * noise)

    def bins(self, limit: int) -> Bins:
        """Return at most ``limit`` bins of equal mass; the mean is shrunk towards the middle by its noise."""
        edges = quantile_edges(self.edges, self.shares, limit)
        if self.whole:
            cuts = self.edges[1:-1]
            edges = cuts if len(cuts) < limit else np.unique(np.floor(edges) + 0.5)
            edges = edges[(edges > self.edges[0]) & (edges < self.edges[-1])]
        if not len(edges):  # a single integer
            edges, means = self.edges[:1], np.repeat(self.middles, 2)
        else:
            means = bin_means(self.edges, self.shares, edges)
        middle, prior_var = float(self.edges[[0, -1]].sum() / 2), (_STRAY_MEAN * self.width) ** 2
        gain = prior_var / (prior_var + self.uncertain)
        mean = middle + gain * (self.mean - middle)
        return Bins(edges, means, mean, gain * self.uncertain, self.variance)


@dataclass(frozen=True, eq=False)
class Bins:
    """A numeric target's bins, in its own unit."""

    edges: np.ndarray  #: inner edges, increasing, shape (bins - 1,)
    means: np.ndarray  #: mean target of each bin, shape (bins,)
    mean: float  #: the target's mean, and the variance of its error
    uncertain: float
    variance: float  #: of one record

    @property
    def class_values(self) -> tuple[float, ...]:
        """Return the means relative to the target's, in its std, for choosing splits."""
        return tuple(((self.means - self.mean) / math.sqrt(self.variance)).tolist())

    def values(self, grower: NoisyTreeGrower) -> np.ndarray:
        """Return a mean for each node, shrunk by the noise of its counts c; shape (nodes, 1).

        For n records with values w, d = sum c (w - m) / n is the node's deviation from m, its parent's mean, with noise
        of variance v sum (w - m)^2 / n^2; sampling adds the variance of one record over n. The root's m is the mean of
        the target's own cells. Any other node's deviation is zero with probability one half, or normal with a variance
        that is a fraction of the target's. The result is the posterior mean.
        """
        means = np.full(len(grower.nodes), self.mean)
        for number, node in enumerate(grower.added_up()):
            offsets = self.means - means[number]
            minimum = max(math.sqrt(node.variance * len(offsets)), 1.0)
            size = max(float(node.counts.sum()), minimum)
            deviation = float(node.counts @ offsets) / size
            noise = node.variance * float(offsets @ offsets) / size**2
            if not number:
                means[0] += self.uncertain / (self.uncertain + noise + 1e-300) * deviation
            else:
                means[number] += spike_slab(deviation, noise + self.variance / size, self.variance)
            clipped = np.clip(means[number], self.means.min(), self.means.max())
            means[[number, *(child for child in node.children if child >= 0)]] = clipped
        return means[:, None]


def spike_slab(deviation: float, noise: float, variance: float) -> float:
    """Return the posterior mean of a deviation that may be zero, from its noise variance and the target's."""
    priors = variance * np.array([0.0, *SETTINGS.prior_fractions])
    p = np.array(
        [_ALIKE, *((1 - _ALIKE) / len(SETTINGS.prior_fractions) for _ in SETTINGS.prior_fractions)]
    )
    variances = priors + noise
    logs = np.log(p) - deviation**2 / (2 * variances) - np.log(variances) / 2
    weights = np.exp(logs - logs.max())
    return float(deviation * (weights @ (priors / variances)) / weights.sum())
