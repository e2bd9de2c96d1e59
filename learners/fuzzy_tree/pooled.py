"""Percentiles from counts below cuts, of which each client withholds what would reveal a record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from privfed.exchange.answers import Answer
from privfed.learners.fuzzy_tree.below import DEEPEST, Below, Cut, place
from privfed.learners.fuzzy_tree.percentiles import ENDS
from privfed.tables.schema import Column, Schema

#: Cuts of the first look, and the most of a closer one; how many looks there are at most.
_FIRST, _CLOSER, MOST = 2**5, 2**6, 20
#: Rounds of expectation and maximisation; the least share in them; beside what lies between both ends, a
#: wide cell.
_ROUNDS, _NOTHING, _WIDE = 12, 1e-30, 0.25


@dataclass(eq=False)
class Pool:
    """What clients told of one column.

    Args:
        column: the public one.
        told: places and counts, by client.
        totals: records, by client.
    """

    column: Column
    told: dict[str, dict[float, float]] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)
    _depth: int = field(default=_FIRST.bit_length() - 1, init=False)
    _asked: set[Cut] = field(default_factory=set, init=False)
    _known: set[Cut] = field(default_factory=set, init=False)

    def take(self, cuts: Sequence[Cut], counts: Mapping[str, np.ma.MaskedArray]) -> bool:
        """Note an answer; whether any of it was told.

        Args:
            counts: below each cut, by client.
        """
        self._asked.update(cuts)
        places = [place(cut, self.column.bounds) for cut in cuts]
        before = sum(map(len, self.told.values()))
        for client, row in counts.items():
            shown = ~np.ma.getmaskarray(row)
            own = zip(places, row.data.tolist(), shown, strict=True)
            self.told.setdefault(client, {}).update({at: n for at, n, seen in own if seen})
            self._known.update(cut for cut, seen in zip(cuts, shown, strict=True) if seen)
        return sum(map(len, self.told.values())) > before

    def percentiles(self) -> tuple[float, float]:
        """Both ends of the records of all clients together."""
        low, high = self.column.bounds
        places, below = self._below()
        if not below[-1] > 0:
            return low, high
        ends = (
            _reached(places, below, ENDS[0]),
            -_reached(-places[::-1], below[-1] - below[::-1], 1 - ENDS[1]),
        )
        return ends if ends[0] < ends[1] else (low, high)

    def _below(self) -> tuple[np.ndarray, np.ndarray]:
        """Places, and about how many records lie below each.

        What a client tells only of a cell lies in it as all clients' records do: the most likely
        shares of censored records, by expectation and maximisation (Turnbull 1976).
        """
        low, high = self.column.bounds
        places = np.array(sorted({low, high}.union(*self.told.values())))
        cells = []
        for client, total in self.totals.items():
            own = dict(sorted({**self.told.get(client, {}), low: 0.0, high: total}.items()))
            starts = np.searchsorted(places, list(own)[:-1])
            counts = np.diff(list(own.values()))
            cells.append((starts, counts, np.diff(np.append(starts, len(places) - 1))))
        shares = np.diff(places) / (high - low)
        for _ in range(_ROUNDS):
            shares = np.maximum(shares, _NOTHING)
            found = np.zeros(len(shares))
            for starts, counts, lengths in cells:
                found += shares * np.repeat(counts / np.add.reduceat(shares, starts), lengths)
            shares = found / max(found.sum(), 1.0)
        total = sum(self.totals.values())
        return places, total * np.append(0.0, np.cumsum(shares))

    def closer(self) -> list[Cut]:
        """Finer cuts about what lies between both ends; none where that is fine already."""
        low, high = self.column.bounds
        lower, upper = self.percentiles()
        step = (high - low) / 2**self._depth
        window = max(lower - step, low), min(upper + step, high)
        depth = math.floor(math.log2((high - low) / (window[1] - window[0]) * (_CLOSER - 1)))
        depth = min(depth, self._finest)
        if depth <= self._depth:
            return self._beside(lower, upper)
        self._depth = depth
        first, last = (math.ceil((end - low) / (high - low) * 2**depth) for end in window)
        inside = range(max(first, 1), min(last, 2**depth - 1) + 1)
        return [_reduced(depth, number) for number in inside][:_CLOSER]

    @property
    def _finest(self) -> int:
        """The halving that whole numbers need."""
        low, high = self.column.bounds
        return DEEPEST if self.column.kind == "number" else math.floor(math.log2(high - low))

    def _beside(self, lower: float, upper: float) -> list[Cut]:
        """Cuts that come nearer and nearer to told ones, where an end lies in a wide cell.

        So do clients' cuts where few records far off keep them from telling more.
        """
        known = sorted((place(cut, self.column.bounds), cut) for cut in self._known)
        places = np.array([at for at, _ in known])
        found: dict[Cut, None] = {}
        for end in (lower, upper):
            after = int(np.searchsorted(places, end))
            around = [known[n] for n in (after - 1, after) if 0 <= n < len(known)]
            ends = [at for at, _ in around] if len(around) == 2 else list(self.column.bounds)
            if ends[1] - ends[0] <= _WIDE * (upper - lower):
                continue
            for depth in range(1, self._finest + 1):
                for _, (own, number) in around:
                    deep = max(own, depth)
                    for step in (-1, 1):
                        moved = (number << deep - own) + step * (1 << deep - depth)
                        if 0 < moved < 1 << deep:
                            found.setdefault(_reduced(deep, moved))
        return [cut for cut in found if cut not in self._asked][:_CLOSER]


def _reached(places: np.ndarray, below: np.ndarray, share: float) -> float:
    """Where so large a share of the records is reached."""
    wanted = share * below[-1]
    after = max(int(np.searchsorted(below, wanted)), 1)
    inside = (wanted - below[after - 1]) / (below[after] - below[after - 1])
    return float(places[after - 1] + inside * (places[after] - places[after - 1]))


def _reduced(depth: int, number: int) -> Cut:
    """n / 2^k with n odd."""
    twos = (number & -number).bit_length() - 1
    return depth - twos, number >> twos


def first_look(schema: Schema) -> Below:
    """Even cuts of all public bounds."""
    depth = _FIRST.bit_length() - 1
    cuts = tuple(_reduced(depth, number) for number in range(1, _FIRST))
    columns = len(schema.features) + (schema.target is not None and schema.target.numeric)
    return Below((cuts,) * columns)


def closer_look(pools: Sequence[Pool], asked: Below, answer: Answer) -> Below | None:
    """Note an answer; the next question is about the columns of which more may be known, if any."""
    records = {
        client: float(told)
        for client, told in answer.each("records").items()
        if not np.ma.getmaskarray(told).any()
    }
    cuts = []
    for number, (pool, own) in enumerate(zip(pools, asked.cuts, strict=True)):
        pool.totals.update(records)
        rows = _rows(answer, number)
        more = pool.take(own, {client: rows[client] for client in records if client in rows})
        cuts.append(pool.closer() if more else [])
    wide = max(map(len, cuts))
    return Below(tuple((*own, *[(1, 1)] * (wide - len(own))) for own in cuts)) if wide else None


def _rows(answer: Answer, number: int) -> dict[str, np.ma.MaskedArray]:
    """What each client told of one column, the target coming after the features."""
    features = answer.each("below")
    if all(number < len(told) for told in features.values()):
        return {client: told[number] for client, told in features.items()}
    return dict(answer.each("target")) if "target" in answer else {}
