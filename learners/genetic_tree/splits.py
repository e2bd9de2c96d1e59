"""Best thresholds of many (node, feature) pairs at once, by one integer sort.

A cut maximises the sum over both sides of (sum_c n_c^2) / n, with the class counts n_c, or (sum y)^2 / n (CART: Breiman
et al. 1984). Sums are integers, so that a score does not depend on the order of the records; ties: the lowest cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

_EXACT = 2**52  #: Maximum absolute integer of a target's scale, so that sums stay below 2^53
_EXACTLY = 2**13  #: Pairs of fewer records are cut between two classes only; see :func:`best_cuts`
_SHORT = 46_340  #: Maximum number of records whose square is below 2^31


@dataclass(frozen=True, eq=False)
class Ranked:
    """A client's records sorted by each feature, computed once."""

    x: np.ndarray  #: values, shape (features, records)
    #: each record's rank by feature, features concatenated, and the record at each rank, in the smallest sufficient
    #: types; shape (features * records,)
    places: np.ndarray
    order: np.ndarray
    rising: np.ndarray  #: values in that order
    codes: np.ndarray  #: the target in that order
    tied: bool  #: whether any feature has one value twice
    target: np.ndarray  #: class codes, or a numeric target in integer units, shape (records,)
    classes: int  #: number of classes; 0 for a numeric target
    #: centre, unit: of a numeric target, the value of unit 0, and the size of a unit
    centre: float = 0.0
    unit: float = 1.0

    @classmethod
    def of(cls, X: np.ndarray, y: np.ndarray, classes: int, middle: float = 0.0) -> Ranked:
        """Order records X, shape (records, features); a numeric target's centre without records is `middle`."""
        columns = np.ascontiguousarray(X.T, dtype=float)
        order = np.argsort(columns, axis=1, kind="stable")
        places = np.empty(columns.shape, np.min_scalar_type(max(columns.size - 1, 0)))
        numbers = np.arange(columns.size).reshape(columns.shape).astype(places.dtype)
        np.put_along_axis(places, order, numbers, axis=1)
        rising = np.take_along_axis(columns, order, axis=1)
        tied = bool((rising[:, 1:] == rising[:, :-1]).any())
        dtype = np.min_scalar_type(max(len(X) - 1, 0))
        ordered = places.ravel(), order.astype(dtype).ravel(), rising.ravel()
        if classes:
            codes = y.astype(np.min_scalar_type(classes))
            return cls(columns, *ordered, codes[order].ravel(), tied, codes, classes)
        centre = float(np.mean(y)) if len(y) else middle
        extent = float(np.abs(y - centre).max(initial=0.0)) or 1.0
        unit = extent * max(len(y), 1) / _EXACT
        units = np.rint((y - centre) / unit).astype(np.int64)
        return cls(columns, *ordered, units[order].ravel(), tied, units, 0, centre, unit)

    @property
    def features(self) -> int:
        """The number of features."""
        return len(self.x)

    def __len__(self) -> int:
        return len(self.target)


class Cuts(NamedTuple):
    """The cuts of pairs that can be cut, by the pair's number."""

    pairs: np.ndarray
    thresholds: np.ndarray
    sizes: np.ndarray  #: records on the left and on the right, pair by pair, shape (2 * pairs,)
    #: their class counts, or sums of the target; shape (2 * pairs, classes or 1)
    sums: np.ndarray
    #: indices of these pairs' records in :attr:`Ranked.order`, pair by pair, left ones first
    places: np.ndarray


def best_cuts(table: Ranked, cells: np.ndarray, sizes: np.ndarray, features: np.ndarray) -> Cuts:
    """Return the best cut of each (node, feature) pair with at least two distinct values.

    Within a run of one class no cut is best, and none is tried: with s of n records on the left, b and B of other
    classes there and on the right, and S and T the sums of these classes' squared counts, the score is n - 2 (b + B) +
    (b^2 + S) / s + (B^2 + T) / (n - s). Its second derivative is at least 4 / n^3 unless b + B is 0, so that it is at
    least 2 / n^3 lower than at the run's better end, which is a cut (if b or B is 0, scores increase towards the other
    end). Two scores are rounded by less than n / 2^51 together, which is less below 2^13 records.

    Args:
        table: the client's records.
        cells: for each record of each pair, its number plus ``len(table)`` times the feature.
        sizes, features: of each pair: number of records, at least one, and feature; shape (pairs,).
    """
    ends = sizes.cumsum()
    largest = max(len(sizes), table.features) * len(table)
    keyed = np.uint32 if largest <= 2**32 else np.int64
    delta = (np.arange(len(sizes)) - features) * len(table)  # each pair's indices after the last's
    shift = delta.astype(keyed).repeat(sizes)
    keys = np.add(table.places.take(cells), shift, dtype=keyed)
    keys.sort()
    keys -= shift
    index = keys.astype(np.intp)
    codes, apart = table.codes.take(index), np.ones(len(index), bool)
    if table.tied:
        values = table.rising.take(index)
        np.not_equal(values[1:], values[:-1], out=apart[:-1])
    elif table.classes and sizes.max() < _EXACTLY:
        np.not_equal(codes[1:], codes[:-1], out=apart[:-1])
    apart[ends - 1] = True  # no cut, but the end of its pair
    borders = apart.nonzero()[0]
    until = borders.searchsorted(ends)
    cuts = until.copy()
    cuts[1:] -= until[:-1]
    sides, scores = _scores(table, codes, borders, until - 1, cuts)
    since = until - cuts
    greatest = np.maximum.reduceat(scores, since)
    winners = (scores == greatest.repeat(cuts)).nonzero()[0]
    first = winners.take(winners.searchsorted(since))
    found = greatest >= 0
    if not found.all():
        first, kept = first.compress(found), index.compress(found.repeat(sizes))
    else:
        kept = index
    last = borders.take(first)
    low, high = table.rising.take(index.take([last, last + 1]))
    middle = low / 2 + high / 2
    thresholds = np.where(middle < high, middle, low)  # never the higher value itself
    parts = sides.take(first, axis=2).transpose(2, 0, 1).reshape(2 * len(first), len(sides[0]))
    return Cuts(found.nonzero()[0], thresholds, parts[:, 0], parts[:, 1:], kept)


def _scores(
    table: Ranked, codes: np.ndarray, borders: np.ndarray, last: np.ndarray, cuts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return both sides' sums and the score of cuts after some records, ``cuts`` per pair; -1 for the ``last`` ones.

    The sums have shape (2, 1 + sums, cuts): number of records, then by class, or the target's sum.
    """
    short = table.classes > 0 and len(table) <= _SHORT
    integer, squared = (np.int32, np.int32) if short else (np.int64, np.float64)
    listed = np.arange(max(table.classes - 1, 1), dtype=codes.dtype)[:, None]
    member = codes == listed if table.classes else codes[None]
    sum_to = np.empty((1 + len(member), len(borders)), integer)  # up to each cut, in all pairs
    sum_to[0] = borders
    sum_to[1:] = member.cumsum(axis=1, dtype=integer).take(borders, axis=1)
    ends = np.zeros((2, len(sum_to), len(cuts)), integer)  # of each pair, and of the one before
    ends[1] = sum_to.take(last, axis=1)
    ends[0, :, 1:] = ends[1, :, :-1]
    ends[0, 0, 0] = -1
    sides = np.empty((2, len(sum_to) + (table.classes > 1), len(borders)), integer)
    counted = sides[:, : len(sum_to)]
    np.subtract(ends.repeat(cuts, axis=2), sum_to, out=counted)
    np.negative(counted[0], out=counted[0])
    if table.classes > 1:
        np.subtract(sides[:, 0], sides[:, 1:-1].sum(axis=1, dtype=integer), out=sides[:, -1])
    squares = np.square(sides[:, 1:], dtype=squared).sum(axis=1, dtype=squared)
    sides[1, 0, last] = 1  # not 0: no cut, as no records are on its right
    left, right = squares / sides[:, 0]
    scores = np.asarray(left + right)
    scores[last] = -1.0
    return sides, scores
