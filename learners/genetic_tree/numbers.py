"""A numeric target's distribution and mean, by noisy counts of its bins; post-processing of releases.

The mass is found in rounds (:mod:`privfed.learners.mass`), as public bounds may be many times too wide;
what lies beyond counts as its ends (winsorised). A mean is then shrunk by its noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privfed.learners.fuzzy_tree.settings import SETTINGS
from privfed.learners.genetic_tree.top import NoisyTreeGrower, bin_means, quantile_edges
from privfed.learners.mass import Mass
from privfed.learners.private.grid import one_bin_each
from privfed.tables.schema import Column

_DOUBT = 0.05  #: The chance that the mass reaches beyond an end of what a round closes in on
#: Without noise as much of the tails is looked at on either side, in widths of what stands out; with
#: noise that could feign this share of the records, nothing of them.
_ROOM, _DIM = 2.0, 0.05
_BY_MASS = 0.5  #: What of the next round's cells are of equal mass; the others are equally wide
#: A mean is thought to stray from the middle of where the mass is by this share of its width.
_STRAY_MEAN = 0.25
_STILL = 1e-6  #: Least variance of one record, in squared widths of where the mass is
_ALIKE = 0.5  #: How likely it is beforehand that a node is no different from its parent


@dataclass(frozen=True, eq=False)
class TargetDistribution:
    """What is known of a target's distribution between two rounds."""

    #: of its cells, rising; what lies beyond the outer ones counts as in the outer cells
    edges: np.ndarray
    shares: np.ndarray  #: of the records by cell, none negative; shape (cells,)
    mean: float  #: what was told of the winsorised target's, and the variance of the noise in that
    uncertain: float
    whole: bool = False  #: whether cells hold one whole number each

    @classmethod
    def blank(cls, column: Column, cells: int) -> TargetDistribution:
        """Uniform over the public bounds."""
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
        """Of the cells, shape (cells,)."""
        return np.asarray(self.edges[1:] / 2 + self.edges[:-1] / 2)

    @property
    def width(self) -> float:
        """Of all cells together."""
        return float(self.edges[-1] - self.edges[0])

    @property
    def variance(self) -> float:
        """Of one record, never zero."""
        cells, shares = np.diff(self.edges) ** 2 / 12, self.shares
        away = (self.middles - shares @ self.middles) ** 2 + (0.0 if self.whole else cells)
        return max(float(shares @ away), _STILL * self.width**2)

    def closer(self, cells: int) -> TargetDistribution:
        """The same over as many cells, half of them where the mass is; integers keep theirs."""
        if self.whole:
            return self
        even = (self.edges - self.edges[0]) / self.width
        mass = np.concatenate([[0.0], np.cumsum(self.shares)])
        reached = _BY_MASS * mass / mass[-1] + (1 - _BY_MASS) * even
        edges = np.interp(np.linspace(0, 1, cells + 1), reached, self.edges)
        edges = np.unique(np.concatenate([self.edges[[0, -1]], edges[1:-1]]))
        shares = np.full(len(edges) - 1, 1 / (len(edges) - 1))
        return TargetDistribution(edges, shares, self.mean, self.uncertain)

    def updated(self, counts: np.ndarray, variance: float, records: float) -> TargetDistribution:
        """Close in on the mass by one round's noisy counts by cell, the noise's variance, and the records' number."""
        mass = Mass.from_counts(counts[None], np.array([variance]), np.array([records]))
        first, last = self._with_room(mass.run(0, _DOUBT), variance, records)
        likely = mass.counts[0, first : last + 1]
        total = likely.sum()
        shares = likely / total if total > 0 else np.full(len(likely), 1 / len(likely))
        edges = self.edges[first : last + 2]
        found = TargetDistribution(edges, shares, self.mean, self.uncertain, self.whole)
        return found.heard(self, counts, variance, records)

    def _with_room(
        self, found: tuple[int, int], variance: float, records: float
    ) -> tuple[int, int]:
        """The run with a margin for tails: the less noise there is, the wider."""
        noise = math.sqrt(variance * len(self.shares)) / records
        ends = self.edges[[found[0], found[1] + 1]]
        room = _ROOM * max(0.0, 1 - noise / _DIM) * float(ends[1] - ends[0])
        first = int(np.searchsorted(self.edges, ends[0] - room, side="right")) - 1
        last = int(np.searchsorted(self.edges, ends[1] + room, side="left")) - 1
        return max(min(first, found[0]), 0), min(max(last, found[1]), len(self.shares) - 1)

    def heard(
        self, former: TargetDistribution, counts: np.ndarray, variance: float, records: float
    ) -> TargetDistribution:
        """The same, with the mean of what is clipped to these cells by counts of former ones, joined by precision."""
        ends = self.edges[[0, -1]] + (np.array([0.5, -0.5]) if self.whole else 0.0)
        middle = float(ends.sum() / 2)
        away = np.clip(former.middles, *ends) - middle
        told = middle + float(np.clip(counts @ away / records, *(ends - middle)))
        unknown = 0.0 if self.whole else float(self.shares**2 @ np.diff(self.edges) ** 2) / 12
        noise = variance * float(away @ away) / records**2 + unknown
        trust = 1.0 if math.isinf(self.uncertain) else self.uncertain / (self.uncertain + noise)
        mean = float(np.clip(self.mean + trust * (told - self.mean), *ends))
        return replace(self, mean=mean, uncertain=trust * noise)

    def bins(self, most: int) -> Bins:
        """At most so many bins of equal mass; the mean is shrunk towards the middle by its noise."""
        edges = quantile_edges(self.edges, self.shares, most)
        if self.whole:
            cuts = self.edges[1:-1]
            edges = cuts if len(cuts) < most else np.unique(np.floor(edges) + 0.5)
            edges = edges[(edges > self.edges[0]) & (edges < self.edges[-1])]
        if not len(edges):  # a single whole number
            edges, means = self.edges[:1], np.repeat(self.middles, 2)
        else:
            means = bin_means(self.edges, self.shares, edges)
        middle, spread = float(self.edges[[0, -1]].sum() / 2), (_STRAY_MEAN * self.width) ** 2
        trust = spread / (spread + self.uncertain)
        mean = middle + trust * (self.mean - middle)
        return Bins(edges, means, mean, trust * self.uncertain, self.variance)


@dataclass(frozen=True, eq=False)
class Bins:
    """A numeric target's bins, in its own unit."""

    edges: np.ndarray  #: inner ones, rising, shape (bins - 1,)
    means: np.ndarray  #: what a record in each is worth, shape (bins,)
    mean: float  #: the target's mean, and the variance of what is unknown about it
    uncertain: float
    variance: float  #: of one record

    @property
    def worth(self) -> tuple[float, ...]:
        """The means about the target's, in its std: what splits are told apart by."""
        return tuple(((self.means - self.mean) / math.sqrt(self.variance)).tolist())

    def values(self, growth: NoisyTreeGrower) -> np.ndarray:
        """A mean for each node, shrunk by the noise of its counts c; shape (nodes, 1).

        Of n records with values w, d = sum c (w - m) / n is the node's departure from m, its parent's mean, with noise
        of variance v sum (w - m)^2 / n^2; sampling adds the variance of one record over n. The root's m is the
        mean of the target's own cells. Any other node's departure is zero with probability one half, or normal
        of a variance that is a fraction of the target's. The result is the posterior mean.
        """
        found = np.full(len(growth.nodes), self.mean)
        for number, node in enumerate(growth.added_up()):
            away = self.means - found[number]
            least = max(math.sqrt(node.variance * len(away)), 1.0)
            size = max(float(node.counts.sum()), least)
            departure = float(node.counts @ away) / size
            noise = node.variance * float(away @ away) / size**2
            if not number:
                found[0] += self.uncertain / (self.uncertain + noise + 1e-300) * departure
            else:
                found[number] += borne_out(departure, noise + self.variance / size, self.variance)
            held_to = np.clip(found[number], self.means.min(), self.means.max())
            found[[number, *(child for child in node.children if child >= 0)]] = held_to
        return found[:, None]


def borne_out(departure: float, noise: float, variance: float) -> float:
    """The posterior mean of a departure that may be zero, by its noise's variance and the target's."""
    priors = variance * np.array([0.0, *SETTINGS.prior_fractions])
    chances = np.array(
        [_ALIKE, *((1 - _ALIKE) / len(SETTINGS.prior_fractions) for _ in SETTINGS.prior_fractions)]
    )
    whole = priors + noise
    logs = np.log(chances) - departure**2 / (2 * whole) - np.log(whole) / 2
    weights = np.exp(logs - logs.max())
    return float(departure * (weights @ (priors / whole)) / weights.sum())
