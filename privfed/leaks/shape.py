"""The shape of a column's values: what they are multiples of, how they end; and others drawn in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privfed.leaks.chance import chernoff
from privfed.leaks.precision import NO_GRADE, decimals_of, denominators_of, fits

#: By how many ranks, and by what share of all, a re-drawn number may leave its place.
MOVED, MOVED_SHARE = 3.0, 0.05
APART = 8  #: How many steps away another value is looked for where one has been drawn
LARGE = 5000  #: From so many different values on, only next to it
#: Fewest values that tell an uneven step, into how many parts their least distance may fall, by what share of a
#: step they may miss it, and how many are tried before all are.
FEWEST, PARTS, MISSED, TRIED = 5, 60, 1e-4, 64
#: How many endings numbers have, and from how many nats on some are preferred.
ENDINGS, HEAPED = 100, 7.0


def step_of(values: np.ndarray) -> float:
    """The greatest common divisor of the differences between finite numbers; 0 where it tells nothing."""
    number, share, _ = _lattice_of(_decimals(np.unique(values[np.isfinite(values)]))[0])
    return number / share


def spacings_of(values: np.ndarray, column: np.ndarray) -> np.ndarray:
    """How far apart neighbours of some values are in the shortest float that holds a column."""
    kind = _decimals(np.unique(column[np.isfinite(column)]))[1]
    with np.errstate(over="ignore"):
        made = np.spacing(np.abs(values).astype(kind)).astype(float)
    return np.asarray(np.where(np.isfinite(made), made, 0.0))


def _lattice_of(different: np.ndarray) -> tuple[float, float, float]:
    """What different numbers are: for some whole k, (k number + base) / share, as three; number 0 for none.

    Short numbers are decimals; of others, as standardised whole numbers are, the differences tell.
    """
    grades = decimals_of(different[different != 0])
    if len(different) > 1 and not (grades == NO_GRADE).any():
        share = 10.0 ** max(int(grades.max(initial=0)), 0)
        scaled = np.rint(different * share)
        if np.abs(scaled).max() < 2.0**53:
            number = float(np.gcd.reduce(np.diff(scaled.astype(np.int64))))
            return number, share, float(scaled[0] % number)
    gaps = np.unique(np.diff(different))
    if len(different) < FEWEST or not np.isfinite(gaps).all():
        return 0.0, 1.0, 0.0
    tried = gaps[:: max(1, len(gaps) // TRIED)]
    coarse = 1e3 * np.spacing(np.abs(different).max())
    for parts in range(1, PARTS):
        step = gaps[-1] / np.rint(gaps[-1] / (gaps[0] / parts))
        if step < coarse:
            break
        if all(np.abs(part / step - np.rint(part / step)).max() < MISSED for part in (tried, gaps)):
            return float(step), 1.0, float(different[0])
    return 0.0, 1.0, 0.0


def _decimals(values: np.ndarray) -> tuple[np.ndarray, type[np.floating]]:
    """Numbers as they were before a shorter float held them (76.3, not 76.30000305), and the float."""
    long = values[values != 0]
    if len(long) and (decimals_of(long) == NO_GRADE).any():
        for bits, kind in ((11, np.float16), (24, np.float32)):
            with np.errstate(over="ignore"):
                short = values.astype(kind)
            if fits(long, bits).all() and (short == values).all():
                return short.astype(str).astype(float), kind
    return values, np.float64


@dataclass(frozen=True, eq=False)
class Shape:
    """One column's own values, and how fine each is written: as (k number + base) / share, for a whole k."""

    places: np.ndarray  #: the records that have them, by value
    which: np.ndarray  #: which of the different values each of these has
    values: np.ndarray  #: the different values, ascending
    number: np.ndarray  #: 0 for a value that has all its digits
    share: np.ndarray
    base: float
    taken: np.ndarray  #: values that are not to be drawn, for many records share them
    every: np.ndarray  #: these and the column's own
    kind: type[np.floating]  #: the float that held them

    @classmethod
    def of(cls, own: np.ndarray, column: np.ndarray | None = None) -> Shape:
        """Of own values (NaN for others), and the whole column, where that is more."""
        places = np.flatnonzero(np.isfinite(own))
        places = places[np.argsort(own[places], kind="stable")]
        values, which = np.unique(own[places], return_inverse=True)
        taken = np.empty(0) if column is None else np.unique(column[~np.isfinite(own)])
        every = own if column is None else column
        every, kind = _decimals(np.unique(every[np.isfinite(every)]))
        if kind is not np.float64:
            values, taken = (one.astype(kind).astype(str).astype(float) for one in (values, taken))
        step, share, base = _lattice_of(every)
        if step:  # how many zeros each value ends with on it
            units = np.rint((values * share - base) / step)
            zeros = -decimals_of(np.where(units == 0, 1.0, units)).astype(float)
            number, shares = step * 10.0 ** np.clip(zeros, 0, 3), np.full(len(values), share)
        else:
            grades = decimals_of(np.where(values == 0, 1.0, values)).astype(float)
            long, whole = grades == NO_GRADE, denominators_of(values)
            number = np.where(long, np.isfinite(whole), 10.0 ** np.maximum(-grades, 0))
            shares = np.where(
                long, np.where(np.isfinite(whole), whole, 1.0), 10.0 ** np.maximum(grades, 0)
            )
        return cls(places, which, values, number, shares, base, taken, every, kind)

    def redraw(self, column: np.ndarray, rng: np.random.Generator) -> None:
        """Put new values in their places: of a rank nearby, between its neighbours, as fine.

        As many are different as were, and none is one that many records share: a lattice that was
        full stays so. A single value becomes any of its size.
        """
        count = len(self.values)
        if not count:
            return
        if count == 1:
            drawn = self._rounded(self.values * rng.uniform(0.5, 1.5, count))
        else:
            drawn = self._several(rng)
        held = drawn if self.kind is np.float64 else drawn.astype(self.kind).astype(float)
        column[self.places] = held[self.which]

    def _several(self, rng: np.random.Generator) -> np.ndarray:
        count = len(self.values)
        far = max(MOVED, MOVED_SHARE * count)
        rank = np.abs(np.arange(count) + rng.uniform(-far, far, count))
        rank = np.where(rank > count - 1, 2 * (count - 1) - rank, rank)
        drawn = np.interp(np.maximum(rank, 0), np.arange(count), self.values)
        drawn = self._ended(self._rounded(drawn), rng)
        for away in range(1, APART if count < LARGE else 3):
            again = self._again(drawn)
            if not again.any():
                break
            near = drawn + rng.choice([-away, away], count) * self._steps
            near = np.clip(near, self.values[0], self.values[-1])
            drawn = np.where(again, self._rounded(near), drawn)
        again = self._again(drawn)
        left = self.values[~_among(self.values, np.sort(drawn[~again]))]
        left = rng.permutation(left)[: np.count_nonzero(again)]
        drawn[np.flatnonzero(again)[: len(left)]] = left
        return drawn

    def _again(self, drawn: np.ndarray) -> np.ndarray:
        """Which values were drawn before, or belong to many."""
        order = drawn.argsort(kind="stable")
        ordered = drawn[order]
        again = _among(drawn, self.taken)
        again[order[1:]] |= ordered[1:] == ordered[:-1]
        return again

    @cached_property
    def _safe(self) -> np.ndarray:
        return np.where(self.number > 0, self.number, 1.0)

    @cached_property
    def _slip(self) -> np.ndarray:
        return np.asarray(1e-6 * self.number / self.share)

    @cached_property
    def _steps(self) -> np.ndarray:
        """How far apart neighbours of each value are in the column, or those that end like it."""
        return np.asarray(self.number / self.share * np.where(self._heaps > 0, ENDINGS, 1))

    def _rounded(self, drawn: np.ndarray) -> np.ndarray:
        return np.where(self.number > 0, self._made(self._units(drawn)), drawn)

    def _units(self, drawn: np.ndarray) -> np.ndarray:
        return np.asarray(np.rint((drawn * self.share - self.base) / self._safe))

    def _made(self, units: np.ndarray) -> np.ndarray:
        """Numbers of so many steps; to the bit as the column has them."""
        made = (units * self.number + self.base) / self.share
        place = self.every.searchsorted(made - self._slip)
        near = self.every[np.minimum(place, len(self.every) - 1)]
        return np.asarray(np.where(np.abs(made - near) <= self._slip, near, made))

    @cached_property
    def _heaps(self) -> np.ndarray:
        """Which values are as fine as others with which they share their last two digits more often than chance
        has it, as prices do that end with 99: a number for each fineness, and 0 for all others."""
        found = np.zeros(len(self.values), dtype=int)
        endings = self._units(self.values) % ENDINGS
        for at, (number, share) in enumerate(
            set(zip(self.number.tolist(), self.share.tolist(), strict=True)), 1
        ):
            alike = (self.number == number) & (self.share == share)
            counts = np.unique(endings[alike], return_counts=True)[1]
            pairs, trials = (counts * (counts - 1) / 2).sum(), alike.sum() * (alike.sum() - 1) / 2
            if number and pairs and chernoff(pairs, trials, np.array(1 / ENDINGS)) > HEAPED:
                found[alike] = at
        return found

    def _ended(self, drawn: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """With the last two digits of others."""
        at = np.flatnonzero(self._heaps)
        if not len(at):
            return drawn
        mixed = at[np.lexsort((rng.random(len(at)), self._heaps[at]))]
        at = at[np.argsort(self._heaps[at], kind="stable")]
        units, endings = self._units(drawn), self._units(self.values) % ENDINGS
        units[at] += endings[mixed] - units[at] % ENDINGS
        return np.where(self._heaps > 0, self._made(units), drawn)


def _among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Which values are among others, which ascend."""
    if not len(ordered):
        return np.zeros(len(values), dtype=bool)
    return np.asarray(ordered.take(ordered.searchsorted(values), mode="clip") == values)
