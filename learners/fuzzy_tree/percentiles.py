"""Percentiles from histograms summed over clients, refined in rounds.

The percentiles' bins are divided further, and the ranges between and beyond are single bins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from privfed.exchange.disclosure import Answer
from privfed.learners.fuzzy_tree.fuzzy import to_unit
from privfed.learners.fuzzy_tree.queries import Scaling
from privfed.learners.fuzzy_tree.settings import SETTINGS
from privfed.learners.mass import Mass, likely_cells
from privfed.questions.query import Query
from privfed.tables.schema import Schema

_RESOLUTION = 1e-15  #: Numbers closer than this fraction of themselves are equal
NO_WIDTH = 1e-12  #: Ends closer than this fraction of the bounds' width have a single value
_FEWEST = 7  #: Minimum bins for two windows and the ranges between and beyond


def rounds(bins: int, finest: float = SETTINGS.usual_bin) -> int:
    """Return the number of rounds of `bins` bins until the percentiles' bins are at most `finest` of the bounds."""
    if bins < _FEWEST:
        return 1
    return 1 + max(0, math.ceil(math.log(1 / (finest * bins)) / math.log((bins - 3) // 2)))


def most_rounds(bins: int) -> int:
    """Return the same for the widest possible bounds."""
    return rounds(bins, SETTINGS.min_bin)


@dataclass(frozen=True, eq=False)
class Histograms:
    """Counts of each feature's values by bin."""

    counts: np.ndarray  #: shape (features, bins); noisy ones may be negative
    edges: np.ndarray  #: the bins' edges, nondecreasing, shape (features, bins + 1)
    noise: np.ndarray  #: std of the noise in each count of a feature, shape (features,); 0 if exact
    ends: tuple[float, float] = SETTINGS.percentiles  #: fractions of the percentiles

    @classmethod
    def from_answer(cls, answer: Answer, edges: np.ndarray) -> Histograms:
        """Build from a round's counts of the features and, last, of the target; zeros if withheld."""
        counts, noise = answer.total("counts"), answer.deviation("counts")
        target, target_std = np.zeros(counts.shape[1]), 0.0
        if "target" in answer:
            target, target_std = answer.total("target"), answer.deviation("target")
        stds = np.append(np.full(len(counts), noise), target_std)
        return cls(np.vstack([counts, target]), edges, stds)

    def percentiles(self) -> tuple[np.ndarray, np.ndarray]:
        """Return both percentiles of each feature, linear within bins, shape (features,) each."""
        ends = np.array([*map(self._ends, self.likely, self.edges)])
        return ends[:, 0], ends[:, 1]

    def noisy_ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the percentiles, the last column's beyond all bins whose counts no noise explains.

        Few records far from others may have most of a target's variance. The bins beyond a refined range do not count,
        as records anywhere in them do.
        """
        lower, upper = self.percentiles()
        first, last = likely_cells(
            self.edges[-1], self.counts[-1], self.noise[-1] ** 2, self.totals[-1]
        )
        lower[-1] = max(lower[-1], self.edges[-1, first])
        upper[-1] = min(upper[-1], self.edges[-1, last + 1])
        widths = np.diff(self.edges[-1])
        proven = self.counts[-1] > SETTINGS.proven_count * self.noise[-1]
        bins = np.flatnonzero(proven & (widths < 1.5 * widths.min()))
        if len(bins):
            lower[-1] = min(lower[-1], self.edges[-1, bins[0]])
            upper[-1] = max(upper[-1], self.edges[-1, bins[-1] + 1])
        return lower, upper

    @cached_property
    def likely(self) -> np.ndarray:
        """Nonnegative counts; if noisy, posterior means (:mod:`privfed.learners.mass`)."""
        noisy = self.noise > 0
        counts: np.ndarray = np.maximum(self.counts, 0.0)
        if noisy.any():
            variance, records = self.noise[noisy] ** 2, self.totals[noisy]
            counts[noisy] = Mass.from_counts(self.counts[noisy], variance, records).counts
        return counts

    @property
    def totals(self) -> np.ndarray:
        """Return the records by feature; with noise, averaged over features."""
        sums: np.ndarray = self.counts.sum(axis=1)
        noisy = self.noise > 0
        if not noisy.any():
            return sums
        return np.full(len(sums), np.average(sums[noisy], weights=self.noise[noisy] ** -2))

    def without_constants(self, whole: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the percentiles, equal if all records have one value; `whole` marks columns of whole numbers.

        Other columns' bins are divided until their ends differ by rounding only.
        """
        lower, upper = self.percentiles()
        for column in np.flatnonzero(whole & (self.counts.max(axis=1) == self.totals)):
            index = int(self.counts[column].argmax())
            first, end = self.edges[column, index : index + 2]
            # values on an edge are in the bin above it, but for the last edge
            last = math.floor(end) if index == self.counts.shape[1] - 1 else math.ceil(end) - 1
            if self.counts[column, index] > 0 and last == math.ceil(first):
                lower[column] = upper[column] = last
        return lower, upper

    def _ends(self, counts: np.ndarray, edges: np.ndarray) -> tuple[float, float]:
        bounds = float(edges[0]), float(edges[-1])
        total = counts.sum()
        if total <= 0:
            return bounds
        low = _inverse_cdf(counts, edges, self.ends[0] * total)
        high = -_inverse_cdf(counts[::-1], -edges[::-1], (1 - self.ends[1]) * total)
        return (low, high) if low <= high else bounds

    def fine(self, integer: np.ndarray) -> np.ndarray:
        """Return which columns' percentile bins are narrow for their distance; `integer` marks integers, target last."""
        limits = np.append(np.full(len(integer) - 1, SETTINGS.feature_bin), SETTINGS.target_bin)
        rows = zip(self.edges, *self.percentiles(), self.counts, limits, integer, strict=True)
        return np.array(
            [
                not counts.any() or _fine(edges, low, high, tolerance, number)
                for edges, low, high, counts, tolerance, number in rows
            ]
        )

    def noisy(self, column: int) -> bool:
        """Whether the noise of a mean over all bins is noticeable relative to the column's variance."""
        width = float(self.edges[column, -1] - self.edges[column, 0])
        mean = width * float(self.noise[column]) / max(float(self.totals[column]), 1.0)
        return bool(mean**2 > SETTINGS.shown_variance * self.moments()[1][column])

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each feature's mean and variance, from its bins' midpoints, shape (features,) each."""
        middles, widths = (self.edges[:, 1:] + self.edges[:, :-1]) / 2, np.diff(self.edges, axis=1)
        fractions = self.likely / np.maximum(self.likely.sum(axis=1), 1e-9)[:, None]
        means = (fractions * middles).sum(axis=1)
        squares = (middles - means[:, None]) ** 2 + widths**2 / 12
        return means, (fractions * squares).sum(axis=1)

    def clip(self, place: int) -> float:
        """Return the least limit, in a column's std, that cuts off little of its variance."""
        middles = (self.edges[place, 1:] + self.edges[place, :-1]) / 2
        fractions = self.likely[place] / max(float(self.likely[place].sum()), 1e-9)
        squares = (middles - fractions @ middles) ** 2
        squares = squares / max(float(fractions @ squares), 1e-300)
        tried = np.linspace(*SETTINGS.clips, 36)
        cut = np.maximum(squares - tried[:, None] ** 2, 0.0) @ fractions
        return float(tried[np.append(np.flatnonzero(cut <= SETTINGS.clipped_variance), -1)[0]])

    def with_former(self, former: Histograms) -> Histograms:
        """Return these counts combined with earlier rounds' by precision, for equal bins."""
        same = (self.edges == former.edges).all(axis=1)
        total = self.noise**2 + former.noise**2
        gain = np.where(same & (total > 0), self.noise**2 / np.where(total > 0, total, 1.0), 0.0)
        counts = self.counts + gain[:, None] * (former.counts - self.counts)
        return replace(self, counts=counts, noise=np.sqrt(1 - gain) * self.noise)

    def refined(self) -> np.ndarray:
        """Return edges of as many bins for the next round, most of them about the two percentiles.

        With noise, only features with percentiles a few bins apart are refined, over both at once.
        """
        if self.noise.any():
            return np.array([*map(_closer, self.edges, *self.noisy_ends())])
        return np.array([*map(_windows, self.edges, *self.percentiles())])


def _fine(edges: np.ndarray, low: float, high: float, tolerance: float, integer: bool) -> bool:
    """Whether two values' bins are narrow or have a single number, or the values are edges themselves."""
    narrow = max(tolerance * (high - low), 1.0 if integer else 0.0)
    for end, index in zip((low, high), _bins_of(edges, low, high), strict=True):
        same = _RESOLUTION * max(abs(edges[index]), abs(edges[index + 1]))
        on_edge = np.abs(edges - end).min() <= same
        if not on_edge and edges[index + 1] - edges[index] > max(narrow, same):
            return False
    return True


def _inverse_cdf(counts: np.ndarray, edges: np.ndarray, level: float) -> float:
    """Return the value at which the cumulative count reaches a fraction."""
    cumulative = np.cumsum(counts)
    last = min(int(np.searchsorted(cumulative, level)), len(counts) - 1)
    before = cumulative[last] - counts[last]
    inside = (level - before) / counts[last] if counts[last] > 0 else 1.0
    return float(edges[last] + min(inside, 1.0) * (edges[last + 1] - edges[last]))


def _bins_of(edges: np.ndarray, low: float, high: float) -> tuple[int, int]:
    """Return the bins of two values; a value on an edge is in the bin towards the other."""
    below = int(np.searchsorted(edges, low, side="right")) - 1
    above = int(np.searchsorted(edges, high, side="left")) - 1
    bins = np.clip([below, above], 0, len(edges) - 2)
    return int(bins.min()), int(bins.max())


def _closer(edges: np.ndarray, low: float, high: float) -> np.ndarray:
    """Divide few bins between two values evenly; many bins, or too few, are unchanged."""
    bins = len(edges) - 1
    first, last = _bins_of(edges, low, high)
    if bins < _FEWEST or last - first >= SETTINGS.max_refined_bins:
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
        lower = np.linspace(edges[first], edges[first + 1], half + 1)
        upper = np.linspace(edges[second], edges[second + 1], bins - 2 - half)
        inner = np.concatenate([lower, upper])
    return np.concatenate([edges[:1], inner, edges[-1:]])


def widened(
    low: float,
    high: float,
    *,
    bounds: tuple[float, float],
    share: float,
    room: float = SETTINGS.margin,
) -> tuple[float, ...]:
    """Return an interval about noisy percentiles, with a margin for noise; empty if not narrower than the bounds.

    Args:
        low, high: the percentiles.
        bounds: the public ones.
        share: maximum fraction of the bounds for the interval.
        room: the margin, in widths between the percentiles.
    """
    more = room * (high - low)
    narrow = max(low - more, bounds[0]), min(high + more, bounds[1])
    if not 0 < narrow[1] - narrow[0] < share * (bounds[1] - bounds[0]):
        return ()
    return narrow


@dataclass(eq=False)
class ScalingBounds:
    """Bounds for scaling: the public ones, or narrower released ones."""

    schema: Schema  #: the public one, with a numeric target
    lower: np.ndarray = field(init=False)  #: of the features, shape (features,)
    upper: np.ndarray = field(init=False)
    #: a released interval of the target; empty for its public bounds
    target: tuple[float, ...] = ()
    usual: float = SETTINGS.usual_variance  #: variance of the target over its interval's square
    clip: float = SETTINGS.clips[0]  #: limit of residuals, in their std
    end_fractions: tuple[float, ...] = ()  #: of the records, that may have sets of their own
    #: the features' values, scaled to [0, 1], with such fractions below and above, shape (2, fractions, features)
    end_values: np.ndarray | None = None

    def __post_init__(self) -> None:
        self.lower, self.upper = self.schema.lower.copy(), self.schema.upper.copy()

    @property
    def _bounds(self) -> list[tuple[float, float]]:
        """Return the bounds of all columns, the target's last."""
        assert self.schema.target is not None
        return [column.bounds for column in (*self.schema.features, self.schema.target)]

    def learn(self, ask: Callable[[Query], Answer], bins: int) -> None:
        """Refine histograms in rounds by `ask`, of clients that offer answers; else keep the public bounds."""
        low, high = np.array(self._bounds).T
        edges = np.linspace(low, high, bins + 1, axis=1)
        query, former = Scaling(bins), None
        integer = np.array([column.kind != "number" for column in self.schema.columns])
        for number in range(1, most_rounds(bins) + 1):
            answer = ask(query)
            if "counts" not in answer:
                break
            current = Histograms.from_answer(answer, edges)
            if noisy := bool(current.noise.any()):
                current = current if former is None else current.with_former(former)
                self._take_noisy(current)
            else:
                self._take(*current.without_constants(integer))
            fine = current.fine(integer) & (number >= rounds(bins)) & (not noisy)
            if fine.all() or (noisy and number == SETTINGS.noisy_rounds):
                return
            former, edges = current, np.where(fine[:, None], current.edges, current.refined())
            query = Scaling(bins, tuple(map(tuple, edges.tolist())))

    def _take(self, lower: np.ndarray, upper: np.ndarray) -> None:
        """Set exact percentiles; for the target, only a far narrower interval.

        A feature whose ends differ only by rounding has zero width, and so no slope.
        """
        wide = upper - lower > NO_WIDTH * np.ptp(self._bounds, axis=1)
        self.lower, self.upper = lower[:-1].copy(), np.where(wide, upper, lower)[:-1]
        ends, bounds = (float(lower[-1]), float(upper[-1])), self._bounds[-1]
        share, room = SETTINGS.exact_narrow_target, SETTINGS.exact_margin_target
        self.target = widened(*ends, bounds=bounds, share=share, room=room)

    def _take_noisy(self, histograms: Histograms) -> None:
        """Set a noisy round's percentiles, only for intervals far narrower than the bounds."""
        features, bounds = len(self.lower), self._bounds
        fractions = [SETTINGS.narrow] * features + [SETTINGS.narrow_target]
        columns = zip(*histograms.noisy_ends(), bounds, fractions, strict=True)
        ends = [widened(float(a), float(b), bounds=public, share=f) for a, b, public, f in columns]
        if not histograms.noisy(features):  # clipping beyond the ends would gain nothing
            ends[-1] = ()
        intervals = [narrow or public for narrow, public in zip(ends, bounds, strict=True)]
        self.lower, self.upper = np.array(intervals[:features], float).reshape(-1, 2).T.copy()
        self.target = ends[-1]
        self.clip = histograms.clip(features)
        self._take_ends(histograms)
        low, high = intervals[-1]
        self.usual = float(histograms.moments()[1][-1]) / (high - low) ** 2

    def _take_ends(self, histograms: Histograms) -> None:
        """Set the quantiles at which few records may have sets of their own, as many as noise allows."""
        signal = float(histograms.totals[0]) / 100 / max(float(histograms.noise[0]), 1e-300)
        allowed = [
            fractions for min_signal, fractions in SETTINGS.end_fractions if signal >= min_signal
        ]
        self.end_fractions, self.end_values = allowed[-1] if allowed else (), None
        ordered = [column.kind != "category" for column in self.schema.features]
        quantiles = [
            replace(histograms, ends=(fraction, 1 - fraction)).percentiles()
            for fraction in self.end_fractions
        ]
        if quantiles:
            unit = to_unit(np.array(quantiles)[..., :-1], self.lower, self.upper)
            self.end_values = np.where(ordered, unit, np.nan).swapaxes(0, 1)
