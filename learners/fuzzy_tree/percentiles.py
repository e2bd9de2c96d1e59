"""Percentiles read off histograms that add up over clients, refined round by round.

A column's tail may lie deep inside one bin of its public bounds. So the bins that hold the wanted
percentiles are divided again, and what lies beside them is counted as a whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privfed.exchange.answers import Answer

#: The 2.5 and 97.5 percentiles, between which features are scaled (paper, Section 5.1).
ENDS = (0.025, 0.975)
#: A share of the records counts as told where it is as many deviations of its noise.
PROVEN = 3.0
#: With noise, what is looked at again spans at most this many bins; ends that hold less than this
#: share of the records for certain are none.
_NEAR, _MOST = 4, 1 / 3
#: With noise, a feature's interval is narrowed to less than this share of its bounds or not at all, and
#: the target's to less than that; with so much of their width to spare on either side.
NARROW, NARROW_TARGET, _ROOM = 0.5, 0.75, 0.25
#: Fewest bins of which two windows and what lies beside them can be made.
_FEWEST = 7
#: After the last round a percentile's bin is at most this share of its feature's bounds wide.
_FINEST = 1e-7


def rounds(bins: int) -> int:
    """How many histograms of so many bins it takes until the percentiles' bins are fine."""
    if bins < _FEWEST:
        return 1
    return 1 + max(0, math.ceil(math.log(1 / (_FINEST * bins)) / math.log((bins - 3) // 2)))


@dataclass(frozen=True, eq=False)
class Histograms:
    """Counts of each feature's values by bin.

    Args:
        counts: shape (features, bins); noisy ones may be negative.
        edges: the bins' ends, never falling, shape (features, bins + 1).
        noise: standard deviation of the noise in each count of a feature, shape (features,); zero
            where exact.
        ends: the shares at which the percentiles lie, rising.
    """

    counts: np.ndarray
    edges: np.ndarray
    noise: np.ndarray
    ends: tuple[float, float] = ENDS

    @classmethod
    def of(cls, answer: Answer, edges: np.ndarray) -> Histograms:
        """A round's counts of the features and, last, of the target; zeros where that is withheld."""
        counts, noise = answer.total("counts"), answer.deviation("counts")
        target, spread = np.zeros(counts.shape[1]), 0.0
        if "target" in answer:
            target, spread = answer.total("target"), answer.deviation("target")
        each = np.append(np.full(len(counts), noise), spread)
        return cls(np.vstack([counts, target]), edges, each)

    def percentiles(self) -> tuple[np.ndarray, np.ndarray]:
        """Both ends of each feature, linear inside a bin, shape (features,) each.

        With noise, an end lies where the records beyond it are proven: further in the noisier the
        counts are. Where not even a third of the records is proven to lie between, they are the bins'.
        """
        rows = zip(self.counts, self.edges, self.noise, self._totals, strict=True)
        found = [self._ends(*row) for row in rows]
        pairs = np.array(found)
        return pairs[:, 0], pairs[:, 1]

    @property
    def _totals(self) -> np.ndarray:
        """The number of records by each feature; with noise, by all of them together."""
        sums: np.ndarray = self.counts.sum(axis=1)
        told = self.noise > 0
        if not told.any():
            return sums
        return np.full(len(sums), np.average(sums[told], weights=self.noise[told] ** -2))

    def _ends(
        self, counts: np.ndarray, edges: np.ndarray, noise: float, total: float
    ) -> tuple[float, float]:
        bounds = float(edges[0]), float(edges[-1])
        if total <= PROVEN * noise:
            return bounds
        low = self._reach(counts, edges, self.ends[0] * total, noise)
        high = -self._reach(counts[::-1], -edges[::-1], (1 - self.ends[1]) * total, noise)
        if low > high:
            return bounds
        first, last = _bins_of(edges, low, high)
        inside = counts[first : last + 1].sum()
        unsure = PROVEN * noise * math.sqrt(last + 1 - first)
        return (low, high) if inside - unsure >= _MOST * total or not noise else bounds

    def _reach(self, counts: np.ndarray, edges: np.ndarray, share: float, noise: float) -> float:
        """Where the records from the first bin on reach a share, and one that is proven.

        By the sum of all bins so far, whose noise grows with their number, or by one bin alone.
        """
        told = np.maximum(counts, 0) if not noise else counts
        reached = np.cumsum(told)
        wanted = np.maximum(share, PROVEN * noise * np.sqrt(np.arange(1, len(told) + 1)))
        alone = np.maximum(share, (PROVEN + 1) * noise)
        there = (reached >= wanted) | ((told >= alone) & bool(noise))
        if not there.any():
            return float(edges[-1])
        last = int(np.argmax(there))
        before = float(np.clip(reached[last] - told[last], 0.0, share))
        inside = (share - before) / told[last] if told[last] > 0 else 1.0
        return float(edges[last] + min(inside, 1.0) * (edges[last + 1] - edges[last]))

    def with_former(self, former: Histograms) -> Histograms:
        """These counts, averaged with an earlier round's where the bins are the same."""
        same = (self.edges == former.edges).all(axis=1)
        counts = np.where(same[:, None], (self.counts + former.counts) / 2, self.counts)
        spread = np.hypot(self.noise, former.noise) / 2
        return replace(self, counts=counts, noise=np.where(same, spread, self.noise))

    @property
    def proven(self) -> np.ndarray:
        """Whose ends are more than those of its bins, shape (features,)."""
        lower, upper = self.percentiles()
        found: np.ndarray = (lower > self.edges[:, 0]) | (upper < self.edges[:, -1])
        return found

    def refined(self) -> np.ndarray:
        """Edges of as many bins for a closer look, most of them about the two ends.

        With noise, only a feature whose ends lie within a few bins of each other is looked at again,
        and as a whole; others keep their edges.
        """
        lower, upper = self.percentiles()
        look = _closer if self.noise.any() else _windows
        rows = zip(self.edges, lower, upper, strict=True)
        return np.array([look(edges, low, high) for edges, low, high in rows])


def _bins_of(edges: np.ndarray, low: float, high: float) -> tuple[int, int]:
    """The bins of two values: one that lies on an edge counts to the side of the other."""
    below = int(np.searchsorted(edges, low, side="right")) - 1
    above = int(np.searchsorted(edges, high, side="left")) - 1
    places = np.clip([below, above], 0, len(edges) - 2)
    return int(places.min()), int(places.max())


def _closer(edges: np.ndarray, low: float, high: float) -> np.ndarray:
    """Divide the few bins from one value to the other evenly; many bins, or too few, stay."""
    bins = len(edges) - 1
    first, last = _bins_of(edges, low, high)
    if bins < _FEWEST or last - first >= _NEAR:
        return edges
    inner = np.linspace(edges[first], edges[last + 1], bins - 1)
    return np.concatenate([edges[:1], inner, edges[-1:]])


def _windows(edges: np.ndarray, low: float, high: float) -> np.ndarray:
    """Divide the bins of two values evenly, and leave one bin before, between and behind them."""
    bins = len(edges) - 1
    if bins < _FEWEST:
        return edges
    first, second = _bins_of(edges, low, high)
    if second - first <= 1:
        inner = np.linspace(edges[first], edges[second + 1], bins - 1)
    else:
        half = (bins - 3) // 2
        inner = np.concatenate(
            [
                np.linspace(edges[first], edges[first + 1], half + 1),
                np.linspace(edges[second], edges[second + 1], bins - 2 - half),
            ]
        )
    return np.concatenate([edges[:1], inner, edges[-1:]])


def widened(
    low: float, high: float, *, bounds: tuple[float, float], share: float
) -> tuple[float, ...]:
    """An interval about noisy percentiles; empty where the public bounds do as well.

    Some of its width more on either side leaves room for what noise hides, since what lies beyond
    counts as its ends. A narrow interval makes every released sum that much more precise.

    Args:
        low, high: the percentiles.
        bounds: the public ones.
        share: of the bounds, that the interval is to be narrower than.
    """
    more = _ROOM * (high - low)
    narrow = max(low - more, bounds[0]), min(high + more, bounds[1])
    if not 0 < narrow[1] - narrow[0] < share * (bounds[1] - bounds[0]):
        return ()
    return narrow
