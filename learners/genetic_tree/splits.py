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
    """A client's records as integers, made once."""

    x: np.ndarray  #: values, shape (features, records)
    ranks: np.ndarray  #: dense ranks of each feature's values, shape (features, records)
    values: np.ndarray  #: each feature's different values, rising, one feature behind the other
    starts: np.ndarray  #: where each feature's values start
    target: np.ndarray  #: class codes, or a numeric target in whole units, shape (records,)
    classes: int  #: number of classes; 0 for a numeric target
    #: centre, unit: of a numeric target, what unit 0 stands for, and the size of a unit
    centre: float = 0.0
    unit: float = 1.0

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, classes: int, middle: float = 0.0) -> Ranked:
        """Rank records x, shape (records, features); a numeric target's centre without records is `middle`."""
        columns = np.ascontiguousarray(x.T, dtype=float)
        distinct = [np.unique(column, return_inverse=True) for column in columns]
        values = [np.empty(0), *(each for each, _ in distinct)]
        ranks = np.array([rank for _, rank in distinct], np.int64).reshape(columns.shape)
        starts = np.cumsum([len(each) for each in values[:-1]])
        if classes:
            codes = y.astype(np.int64)
            return cls(columns, ranks, np.concatenate(values), starts, codes, classes)
        centre = float(np.mean(y)) if len(y) else middle
        reach = float(np.abs(y - centre).max(initial=0.0)) or 1.0
        unit = reach * max(len(y), 1) / _EXACT
        whole = np.rint((y - centre) / unit).astype(np.int64)
        return cls(columns, ranks, np.concatenate(values), starts, whole, 0, centre, unit)

    @property
    def features(self) -> int:
        """How many features there are."""
        return len(self.x)

    def __len__(self) -> int:
        return len(self.target)

    def middles(self, feature: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Thresholds between two ranks of a feature, never the higher value itself."""
        first, second = (self.values[self.starts[feature] + rank] for rank in (low, high))
        middle = first / 2 + second / 2
        return np.asarray(np.where(middle < second, middle, first))


@dataclass(frozen=True, eq=False)
class Cuts:
    """Where pairs are cut: those that can be, by their number; and the threshold of each."""

    pairs: np.ndarray
    thresholds: np.ndarray


def best_cuts(table: Ranked, records: np.ndarray, sizes: np.ndarray, features: np.ndarray) -> Cuts:
    """The best cut of each (node, feature) pair that has two different values.

    Args:
        table: the client's records.
        records: record numbers, pair by pair.
        sizes, features: of each pair: its records, at least one, and feature; shape (pairs,).
    """
    pair = np.repeat(np.arange(len(sizes)), sizes)
    rank_bits, tail_bits = (
        _bits(most) for most in (table.ranks.max(initial=0), (table.classes or len(table)) - 1)
    )
    tail = table.target[records] if table.classes else records
    column = np.repeat(features, sizes)
    keys = ((pair << rank_bits) | table.ranks[column, records]) << tail_bits
    keys |= tail
    keys.sort()
    tail = keys & ((1 << tail_bits) - 1)
    keys >>= tail_bits  # pair and rank
    ends = np.cumsum(sizes)
    cut = np.flatnonzero(keys[1:] != keys[:-1])
    cut = cut[pair[cut] == pair[cut + 1]]  # between neighbours of one pair
    if not len(cut):
        return Cuts(np.empty(0, np.int64), np.empty(0))
    of = pair[cut]
    scores = _scores(table, tail, cut, ends[of] - sizes[of], ends[of])
    chosen = _first_greatest(scores, of)
    best, mask = cut[chosen], (1 << rank_bits) - 1
    of = of[chosen]
    return Cuts(of, table.middles(features[of], keys[best] & mask, keys[best + 1] & mask))


def _bits(most: int) -> int:
    return max(int(most).bit_length(), 1)


def _scores(
    table: Ranked, tail: np.ndarray, cut: np.ndarray, start: np.ndarray, end: np.ndarray
) -> np.ndarray:
    """Score cuts, each the last record on the left of a range [start, end)."""
    left, right = (cut + 1 - start).astype(float), (end - cut - 1).astype(float)
    squares = [np.zeros(len(cut)), np.zeros(len(cut))]
    numbers = range(table.classes) if table.classes else (0,)
    for number in numbers:
        each = tail == number if table.classes else table.target[tail]
        sums = np.concatenate([[0], np.cumsum(each, dtype=np.int64)])
        before, at, whole = sums[start], sums[cut + 1], sums[end]
        squares[0] += (at - before).astype(float) ** 2
        squares[1] += (whole - at).astype(float) ** 2
    return np.asarray(squares[0] / left + squares[1] / right)


def _first_greatest(scores: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Position of the first greatest score of each group; groups stand together."""
    starts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
    greatest = np.maximum.reduceat(scores, starts)
    sizes = np.diff(np.concatenate([starts, [len(scores)]]))
    winners = np.flatnonzero(scores == np.repeat(greatest, sizes))
    return np.asarray(winners[np.searchsorted(winners, starts)])
