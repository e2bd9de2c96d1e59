"""The lattice and endings of a column's values, and random values with the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privfed.leaks.chance import chernoff
from privfed.leaks.precision import NO_GRADE, decimals_of, denominators_of, fits

#: Ranks, and fraction of all ranks, by which a redrawn number may move.
MOVED, MOVED_SHARE = 3.0, 0.05
APART = 8  #: Largest distance, in steps, of the replacement of a duplicate value
LARGE = 5000  #: With this many distinct values, only adjacent replacements are tried
#: Fewest values that determine a step, most steps in their smallest gap, largest deviation in steps, and gaps
#: that are tested before all are.
FEWEST, PARTS, MISSED, TRIED = 5, 60, 1e-4, 64
#: Endings (last two digits) of numbers, and nats from which some count as preferred.
ENDINGS, HEAPED = 100, 7.0


def step_of(values: np.ndarray) -> float:
    """Greatest common divisor of the differences between finite numbers; 0 if there is none."""
    step, scale, _ = _lattice_of(_decimals(np.unique(values[np.isfinite(values)]))[0])
    return step / scale


def spacings_of(values: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Distance from some values to the next number of the shortest float type that holds a column."""
    kind = _decimals(np.unique(column[np.isfinite(column)]))[1]
    with np.errstate(over="ignore"):
        spacings = np.spacing(np.abs(values).astype(kind)).astype(float)
    return np.asarray(np.where(np.isfinite(spacings), spacings, 0.0))


def _lattice_of(values: np.ndarray) -> tuple[float, float, float]:
    """Lattice (step, scale, base) of distinct values: each is (k step + base) / scale, for integers k; step 0 if none.

    Rounded numbers are decimals; for others, such as standardised integers, the differences determine the step.
    """
    grades = decimals_of(values[values != 0])
    if len(values) > 1 and not (grades == NO_GRADE).any():
        scale = 10.0 ** max(int(grades.max(initial=0)), 0)
        scaled = np.rint(values * scale)
        if np.abs(scaled).max() < 2.0**53:
            divisor = float(np.gcd.reduce(np.diff(scaled.astype(np.int64))))
            return divisor, scale, float(scaled[0] % divisor)
    gaps = np.unique(np.diff(values))
    if len(values) < FEWEST or not np.isfinite(gaps).all():
        return 0.0, 1.0, 0.0
    probe = gaps[:: max(1, len(gaps) // TRIED)]
    coarse = 1e3 * np.spacing(np.abs(values).max())
    for parts in range(1, PARTS):
        step = gaps[-1] / np.rint(gaps[-1] / (gaps[0] / parts))
        if step < coarse:
            break
        if all(np.abs(part / step - np.rint(part / step)).max() < MISSED for part in (probe, gaps)):
            return float(step), 1.0, float(values[0])
    return 0.0, 1.0, 0.0


def _decimals(values: np.ndarray) -> tuple[np.ndarray, type[np.floating]]:
    """Values as decimals before their conversion to a shorter float (76.3, not 76.30000305), and its type."""
    nonzero = values[values != 0]
    if len(nonzero) and (decimals_of(nonzero) == NO_GRADE).any():
        for bits, kind in ((11, np.float16), (24, np.float32)):
            with np.errstate(over="ignore"):
                short = values.astype(kind)
            if fits(nonzero, bits).all() and (short == values).all():
                return short.astype(str).astype(float), kind
    return values, np.float64


@dataclass(frozen=True, eq=False)
class Shape:
    """Identifying values of a column, each with its lattice: (k step + base) / scale, for an integer k."""

    records: np.ndarray  #: records with such a value, sorted by value
    value_index: np.ndarray  #: index of each one's value in ``values``
    values: np.ndarray  #: distinct values, ascending
    steps: np.ndarray  #: step of each value; 0 for unrounded values
    scales: np.ndarray
    base: float
    excluded: np.ndarray  #: values that are not drawn, because many records share them
    all_values: np.ndarray  #: all distinct values of the column
    kind: type[np.floating]  #: float type of the column

    @classmethod
    def of(cls, identifying: np.ndarray, column: np.ndarray | None = None) -> Shape:
        """Build from identifying values (NaN for others) and the whole column, if that has more values."""
        records = np.flatnonzero(np.isfinite(identifying))
        records = records[np.argsort(identifying[records], kind="stable")]
        values, value_index = np.unique(identifying[records], return_inverse=True)
        excluded = np.empty(0) if column is None else np.unique(column[~np.isfinite(identifying)])
        all_values = identifying if column is None else column
        all_values, kind = _decimals(np.unique(all_values[np.isfinite(all_values)]))
        if kind is not np.float64:
            values, excluded = (
                v.astype(kind).astype(str).astype(float) for v in (values, excluded)
            )
        step, scale, base = _lattice_of(all_values)
        if step:  # trailing zeros of each value on the lattice
            units = np.rint((values * scale - base) / step)
            zeros = -decimals_of(np.where(units == 0, 1.0, units)).astype(float)
            steps, scales = step * 10.0 ** np.clip(zeros, 0, 3), np.full(len(values), scale)
        else:
            grades = decimals_of(np.where(values == 0, 1.0, values)).astype(float)
            long, whole = grades == NO_GRADE, denominators_of(values)
            steps = np.where(long, np.isfinite(whole), 10.0 ** np.maximum(-grades, 0))
            scales = np.where(
                long, np.where(np.isfinite(whole), whole, 1.0), 10.0 ** np.maximum(grades, 0)
            )
        return cls(records, value_index, values, steps, scales, base, excluded, all_values, kind)

    def redraw(self, column: np.ndarray, rng: np.random.Generator) -> None:
        """Replace the identifying values in ``column``, each by one of similar rank on the same lattice.

        The number of distinct values is kept, and values that many records share are not drawn, so a full
        lattice stays full. A single distinct value is drawn from 0.5 to 1.5 times its size.
        """
        column[:] = self.redraws(column, [rng])[0]

    def redraws(self, column: np.ndarray, rngs: Sequence[np.random.Generator]) -> np.ndarray:
        """Return as many copies of a column as there are generators, shape (copies, records), each as by :meth:`redraw`."""
        redrawn, count = np.tile(column, (len(rngs), 1)), len(self.values)
        if count:
            drawn = self._redraw_several(rngs) if count > 1 else self._redraw_one(rngs)
            values = drawn if self.kind is np.float64 else drawn.astype(self.kind).astype(float)
            redrawn[:, self.records] = values[:, self.value_index]
        return redrawn

    def _redraw_one(self, rngs: Sequence[np.random.Generator]) -> np.ndarray:
        return self._round(self.values * np.array([rng.uniform(0.5, 1.5, 1) for rng in rngs]))

    def _redraw_several(self, rngs: Sequence[np.random.Generator]) -> np.ndarray:
        """Distinct values for each generator, shape (generators, values)."""
        count = len(self.values)
        max_shift = max(MOVED, MOVED_SHARE * count)
        ranks = np.arange(count)
        rank = np.abs(ranks + np.array([r.uniform(-max_shift, max_shift, count) for r in rngs]))
        rank = np.where(rank > count - 1, 2 * (count - 1) - rank, rank)
        drawn = np.interp(np.maximum(rank, 0), ranks, self.values)
        drawn = self._with_endings(self._round(drawn), rngs)
        is_taken = self._is_taken(drawn)
        for distance in range(1, APART if count < LARGE else 3):
            left = np.flatnonzero(is_taken.any(axis=1)).tolist()
            if not left:
                break
            ups = np.array([rngs[i].integers(0, 2, count) for i in left])
            shifted = drawn[left] + distance * (2 * ups - 1) * self._spacings
            shifted = np.minimum(np.maximum(shifted, self.values[0]), self.values[-1])
            drawn[left] = np.where(is_taken[left], self._round(shifted), drawn[left])
            is_taken[left] = self._is_taken(drawn[left])
        for row, taken, rng in zip(drawn, is_taken, rngs, strict=True):
            unused = self.values[~_is_among(self.values, np.sort(row[~taken]))]
            unused = rng.permutation(unused)[: np.count_nonzero(taken)]
            row[np.flatnonzero(taken)[: len(unused)]] = unused
        return drawn

    def _is_taken(self, drawn: np.ndarray) -> np.ndarray:
        """Whether each value is excluded, a duplicate in its row, or, as 4 rounded to tens, beyond the column's ends."""
        order = drawn.argsort(axis=1, kind="stable")
        order += np.arange(0, drawn.size, drawn.shape[1])[:, None]
        ordered = drawn.take(order)
        is_taken = _is_among(drawn.ravel(), self.excluded)
        is_taken[order[:, 1:]] |= ordered[:, 1:] == ordered[:, :-1]
        beyond = (drawn < self.values[0]) | (drawn > self.values[-1])
        return np.asarray(is_taken.reshape(drawn.shape) | beyond)

    @cached_property
    def _safe_steps(self) -> np.ndarray:
        return np.where(self.steps > 0, self.steps, 1.0)

    @cached_property
    def _tolerance(self) -> np.ndarray:
        return np.asarray(1e-6 * self.steps / self.scales)

    @cached_property
    def _spacings(self) -> np.ndarray:
        """Distance between neighbours of each value on its lattice, or with the same ending."""
        return np.asarray(self.steps / self.scales * np.where(self._heap_ids > 0, ENDINGS, 1))

    def _round(self, drawn: np.ndarray) -> np.ndarray:
        return np.where(self.steps > 0, self._numbers_at(self._units(drawn)), drawn)

    def _units(self, drawn: np.ndarray) -> np.ndarray:
        return np.asarray(np.rint((drawn * self.scales - self.base) / self._safe_steps))

    def _numbers_at(self, units: np.ndarray) -> np.ndarray:
        """Numbers at lattice positions; bitwise equal to the column's where it has them."""
        numbers = (units * self.steps + self.base) / self.scales
        index = self.all_values.searchsorted(numbers - self._tolerance)
        nearest = self.all_values[np.minimum(index, len(self.all_values) - 1)]
        return np.asarray(np.where(np.abs(numbers - nearest) <= self._tolerance, nearest, numbers))

    @cached_property
    def _heap_ids(self) -> np.ndarray:
        """Group of each value among those of equal fineness whose last two digits coincide more often than by
        chance, as in prices ending with 99; 0 for all others."""
        ids = np.zeros(len(self.values), dtype=int)
        endings = self._units(self.values) % ENDINGS
        for heap, (step, scale) in enumerate(
            set(zip(self.steps.tolist(), self.scales.tolist(), strict=True)), 1
        ):
            group = (self.steps == step) & (self.scales == scale)
            counts = np.unique(endings[group], return_counts=True)[1]
            pairs, trials = (counts * (counts - 1) / 2).sum(), group.sum() * (group.sum() - 1) / 2
            if step and pairs and chernoff(pairs, trials, np.array(1 / ENDINGS)) > HEAPED:
                ids[group] = heap
        return ids

    def _with_endings(self, drawn: np.ndarray, rngs: Sequence[np.random.Generator]) -> np.ndarray:
        """Numbers with their last two digits exchanged within each row and each group of ``_heap_ids``."""
        heaped = np.flatnonzero(self._heap_ids)
        if not len(heaped):
            return drawn
        ids = self._heap_ids[heaped]
        mixed = np.array([heaped[np.lexsort((rng.random(len(heaped)), ids))] for rng in rngs])
        heaped = heaped[np.argsort(ids, kind="stable")]
        units, endings = self._units(drawn), self._units(self.values) % ENDINGS
        units[:, heaped] += endings[mixed] - units[:, heaped] % ENDINGS
        return np.where(self._heap_ids > 0, self._numbers_at(units), drawn)


def _is_among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Whether each value is in a sorted array."""
    if not len(ordered):
        return np.zeros(len(values), dtype=bool)
    return np.asarray(ordered.take(ordered.searchsorted(values), mode="clip") == values)
