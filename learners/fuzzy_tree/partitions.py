"""Partitions of features into fuzzy sets, of which noisy sums choose; post-processing of releases.

Memberships in triangular sets are linear between peaks. So those in sets with some of the peaks are sums of those in
sets with all of them: sums by the finest sets give the sums of each coarser partition, at no further cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from privfed.learners.fuzzy_tree.fuzzy import MIN_DISTANCE, MOST_SETS, Peaks
from privfed.learners.fuzzy_tree.growth import FuzzySums, LevelSums
from privfed.learners.fuzzy_tree.settings import SETTINGS


@dataclass(frozen=True)
class Partition:
    """Sets of one feature: uniform ones, or two, one of which has the few records at one end."""

    peaks: Peaks
    end: int = 0  #: which of two sets is at an end
    share: float = 0.0  #: the fraction of the records expected in that set; 0 for uniform sets

    def sums(self, finest: Peaks, sums: LevelSums, index: int) -> LevelSums:
        """Return one feature's sums by these sets, from those by the finest.

        An end's noise counts several times, so that it has a gain only if its targets stand out: it is chosen from many
        that have few records.
        """
        among = np.array([np.interp(finest, self.peaks, row) for row in np.eye(len(self.peaks))])
        cells = [each[:, index, : len(finest)] @ among.T for each in sums.cells]
        noise = [np.linalg.norm(among, axis=1) * np.full_like(cells[0], std) for std in sums.noise]
        present = cells[0] > 2 * noise[0]
        hidden = sums.hidden[:, index, : len(finest)] @ (among.T > 0)
        if self.share:
            cells[0], noise[0] = self._weights(cells[0], noise[0], sums.nodes.weights)
            noise, present = [SETTINGS.end_std * std for std in noise], cells[0] > 0
        return replace(
            sums,
            cells=FuzzySums(*(each[:, None] for each in cells)),
            noise=(noise[0][:, None], noise[1][:, None]),
            present=present[:, None],
            hidden=(hidden & ~present)[:, None],
        )

    def _weights(
        self, released: np.ndarray, noise: np.ndarray, whole: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return both sets' weights and their error: released ones and those expected, combined by precision."""
        expected = np.maximum(self.share * whole, 0.0)
        prior_variance, variance = (SETTINGS.end_error * expected) ** 2, noise[:, self.end] ** 2
        gain = prior_variance / np.maximum(prior_variance + variance, 1e-300)
        weight = expected + gain * (released[:, self.end] - expected)
        weight = np.clip(weight, expected / 4, np.maximum(whole, 0.0))
        both = np.stack([weight, whole - weight], axis=1)[:, :: 1 - 2 * self.end]
        return both, np.sqrt(gain * variance)[:, None] * np.ones(2)


@dataclass(eq=False)
class Partitions:
    """The partitions that each feature may have."""

    possible: list[list[Partition]]  #: by feature, the uniform one first

    @classmethod
    def uniform(cls, sets: Sequence[int]) -> Partitions:
        """Return uniform sets alone."""
        return cls([[Partition(tuple(np.linspace(0, 1, own).tolist()))] for own in sets])

    def with_ends(self, fractions: Sequence[float], quantiles: np.ndarray) -> Partitions:
        """Return the same, and splits between neighbouring quantiles.

        Args:
            fractions: of the records, rising.
            quantiles: the values, scaled to [0, 1], that have these fractions of the records below them and above them,
                shape (2, fractions, features); NaN for features without order.
        """
        shares = [(a + b) / 2 for a, b in pairwise(fractions)]
        possible = [list(own) for own in self.possible]
        for end, side in enumerate(quantiles):
            for outer, inner, share in zip(side[:-1], side[1:], shares, strict=True):
                for own, *pair in zip(possible, outer.tolist(), inner.tolist(), strict=True):
                    peaks = (min(pair), max(pair))
                    finest = sorted({*_finest(own), *peaks})
                    nearest = np.min([peaks[1] - peaks[0], *np.diff(finest)])
                    if nearest >= MIN_DISTANCE and len(finest) <= MOST_SETS:
                        own.append(Partition(peaks, end, share))
        return Partitions(possible)

    @property
    def finest(self) -> tuple[Peaks, ...]:
        """Return by feature the peaks of all its partitions."""
        return tuple(map(_finest, self.possible))

    def chosen(
        self, sums: LevelSums, features: Sequence[int], gains: str
    ) -> tuple[LevelSums, Partitions]:
        """Return sums by each feature's partition of greatest gain, and these partitions."""
        if not self.peaks or not features:
            return sums, self
        finest, kept, sums_by_feature = self.finest, list(self.possible), []
        for index, feature in enumerate(features):
            options = []
            for partition in self.possible[feature]:
                option_sums = partition.sums(finest[feature], sums, index)
                gain = np.maximum(option_sums.gains(gains)[:, 0], 0.0) @ sums.nodes.weights
                options.append((float(gain), option_sums, partition))
            _, option_sums, best = max(options, key=lambda option: option[0])
            kept[feature] = [best]
            sums_by_feature.append(option_sums)
        return _joined(sums, sums_by_feature), Partitions(kept)

    @property
    def peaks(self) -> tuple[Peaks, ...]:
        """Return the same, as in queries: empty if all are uniform."""
        alone = all(len(own) == 1 and not own[0].share for own in self.possible)
        return () if alone else self.finest

    def fixed(self, features: set[int], chosen: Partitions) -> Partitions:
        """Return the same with only the chosen partitions of some features."""
        pairs = zip(self.possible, chosen.possible, strict=True)
        return Partitions([new if f in features else old for f, (old, new) in enumerate(pairs)])

    def settled(self, used: set[int]) -> Partitions:
        """Return the same with uniform sets of all features but those that splits use."""
        return Partitions([own if f in used else own[:1] for f, own in enumerate(self.possible)])


def _finest(partitions: Sequence[Partition]) -> Peaks:
    return tuple(sorted({peak for own in partitions for peak in own.peaks}))


def _joined(sums: LevelSums, found: Sequence[LevelSums]) -> LevelSums:
    """Return the sums of all features, with empty cells where a feature has fewer sets than another."""
    n_sets = max(own.present.shape[2] for own in found)

    def filled(each: Iterable[np.ndarray], fill: float = 0) -> np.ndarray:
        wide = [(a, [(0, 0), (0, 0), (0, n_sets - a.shape[2])]) for a in each]
        return np.concatenate([np.pad(a, more, constant_values=fill) for a, more in wide], axis=1)

    cells = (filled(own.cells[k] for own in found) for k in range(3))
    noise = [filled((own.noise[k] for own in found), (0.0, math.inf)[k]) for k in range(2)]
    return replace(
        sums,
        cells=FuzzySums(*cells),
        noise=(noise[0], noise[1]),
        present=filled(own.present for own in found),
        hidden=filled(own.hidden for own in found),
    )
