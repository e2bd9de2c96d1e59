"""Best thresholds of many (node, feature) pairs at once, by one integer sort.

A cut maximises the sum over both sides of (sum_c n_c^2) / n, with the class counts n_c, or (sum y)^2 / n
(CART: Breiman et al. 1984). Sums are integers, so that a score does not depend on the order of the
records; of equal scores the lowest cut wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_EXACT = 2**52  #: Least and greatest whole numbers of a target's scale: sums stay below 2^53


@dataclass(frozen=True, eq=False)
class Ranked:
    """A client's records in each feature's order, made once."""

    x: np.ndarray  #: values, shape (features, records)
    #: each record's place in the order of a feature, and the record at each place, of the least types that
    #: hold them; shape (features * records,)
    places: np.ndarray
    order: np.ndarray
    rising: np.ndarray  #: values in that order, one feature behind the other
    tied: bool  #: whether any feature has one value twice
    target: np.ndarray  #: class codes, or a numeric target in whole units, shape (records,)
    classes: int  #: number of classes; 0 for a numeric target
    #: centre, unit: of a numeric target, what unit 0 stands for, and the size of a unit
    centre: float = 0.0
    unit: float = 1.0

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, classes: int, middle: float = 0.0) -> Ranked:
        """Order records x, shape (records, features); a numeric target's centre without records is `middle`."""
        columns = np.ascontiguousarray(x.T, dtype=float)
        order = np.argsort(columns, axis=1, kind="stable")
        places = np.empty(columns.shape, np.uint32)
        np.put_along_axis(places, order, np.arange(len(x), dtype=np.uint32)[None], axis=1)
        rising = np.take_along_axis(columns, order, axis=1)
        tied = bool((rising[:, 1:] == rising[:, :-1]).any())
        least = np.min_scalar_type(max(len(x) - 1, 0))
        ordered = places.ravel(), order.astype(least).ravel(), rising.ravel(), tied
        if classes:
            codes = y.astype(np.min_scalar_type(classes))
            return cls(columns, *ordered, codes, classes)
        centre = float(np.mean(y)) if len(y) else middle
        reach = float(np.abs(y - centre).max(initial=0.0)) or 1.0
        unit = reach * max(len(y), 1) / _EXACT
        whole = np.rint((y - centre) / unit).astype(np.int64)
        return cls(columns, *ordered, whole, 0, centre, unit)

    @property
    def features(self) -> int:
        """How many features there are."""
        return len(self.x)

    def __len__(self) -> int:
        return len(self.target)


@dataclass(frozen=True, eq=False)
class Cuts:
    """Where pairs are cut: those that can be, by their number, and of each what is known."""

    pairs: np.ndarray
    thresholds: np.ndarray
    sizes: np.ndarray  #: records on the left
    #: class counts on the left and on the right, or sums of the target; shape (pairs, 2, classes or 1)
    sums: np.ndarray
    #: of these pairs, each pair's in its feature's order: those on the left come first
    records: np.ndarray


def best_cuts(table: Ranked, records: np.ndarray, sizes: np.ndarray, features: np.ndarray) -> Cuts:
    """The best cut of each (node, feature) pair that has two different values.

    Args:
        table: the client's records.
        records: record numbers, pair by pair.
        sizes, features: of each pair: its records, at least one, and feature; shape (pairs,).
    """
    ends = np.cumsum(sizes)
    starts, bits = ends - sizes, max(len(table) - 1, 1).bit_length()
    keyed = np.dtype(np.uint32 if len(sizes) << bits <= 2**32 else np.uint64)
    at = np.repeat(features * len(table), sizes)
    keys = table.places[at + records].astype(keyed, copy=False)
    keys |= np.repeat((np.arange(len(sizes)) << bits).astype(keyed), sizes)
    keys.sort()
    keys &= keyed.type((1 << bits) - 1)
    at += keys.astype(np.int64, copy=False)
    records = table.order[at]
    sums, scores = _scores(table, table.target[records], starts, sizes)
    scores[ends - 1] = -1.0  # no cut behind the last record, or between equal values
    if table.tied:
        values = table.rising[at]
        scores[:-1][values[1:] == values[:-1]] = -1.0
    greatest = np.maximum.reduceat(scores, starts)
    winners = np.flatnonzero(scores == np.repeat(greatest, sizes))
    first = winners[np.searchsorted(winners, starts)]
    pairs = np.flatnonzero(greatest >= 0)
    if len(pairs) < len(sizes):
        records = records[np.repeat(greatest >= 0, sizes)]
    first = first[pairs]
    low, high = table.rising[at[first]], table.rising[at[first + 1]]
    middle = low / 2 + high / 2
    thresholds = np.where(middle < high, middle, low)  # never the higher value itself
    below, whole = sums[:, first].T, sums[:, ends[pairs] - 1].T
    parts = np.stack([below, whole - below], axis=1)
    return Cuts(pairs, thresholds, first + 1 - starts[pairs], parts, records)


def _scores(
    table: Ranked, target: np.ndarray, starts: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of each class, or the target's, up to each record of its pair; and the score of a cut behind it."""
    left = np.arange(1.0, len(target) + 1) - np.repeat(starts.astype(float), sizes)
    right = np.repeat(sizes.astype(float), sizes) - left
    sums = np.empty((table.classes or 1, len(target)))
    lower, upper = np.zeros(len(target)), np.zeros(len(target))
    others, beyond = left, right  # of classes that are still to come, on either side
    for number in range(max(table.classes - 1, 1)):
        each = target == number if table.classes else target
        running = np.concatenate([[0], np.cumsum(each, dtype=np.int64)])
        before = running[starts]
        one = np.subtract(running[1:], np.repeat(before, sizes), out=sums[number])
        other = np.repeat((running[starts + sizes] - before).astype(float), sizes) - one
        others, beyond = others - one, beyond - other
        lower += one**2
        upper += np.square(other, out=other)
    if table.classes > 1:
        sums[-1] = others
        lower += np.square(others, out=others)
        upper += np.square(beyond, out=beyond)
    right[starts + sizes - 1] = 1.0  # nothing lies behind a pair's last record
    lower /= left
    upper /= right
    lower += upper
    return sums, lower
