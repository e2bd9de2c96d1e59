"""Released numbers against raw values and functions of them, each at its own precision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from privfed.testing.rules.chance import densities, tail, tails
from privfed.testing.rules.functions import Derived
from privfed.testing.rules.match import Match
from privfed.testing.rules.precision import (
    DOUBLE,
    NO_GRADE,
    Precision,
    decimals_of,
    simplicity,
)
from privfed.testing.rules.released import Index, Released
from privfed.testing.rules.table import Cells, RawTable

#: Matches that chance explains this easily are not worth telling of.
LIKELY = 0.05
#: By how many last places a double may differ from a raw value: what a sum of thousands loses. A
#: match counts by how near it is, so that a wide reach costs nothing.
PLACES = 4096
#: In a crowd of so many short numbers, no more than so many values of each function are looked for:
#: few would not be told from chance.
CROWD, THIN = 1_000_000, 20_000
#: None are where more than this share of numbers of their precision are such values; so many of them
#: are looked at to tell.
MET, SOME = 0.05, 512


@dataclass(frozen=True, eq=False)
class Hits:
    """Released numbers that lie as near a raw one as their precision lets them.

    Args:
        places: their positions in the index.
        nearest: positions of the nearest raw sizes.
        chance: how likely each would match by chance.
    """

    places: np.ndarray
    nearest: np.ndarray
    chance: np.ndarray


def compare(
    rule: Derived, table: RawTable, released: Released, tolerance: float
) -> Iterator[Match | None]:
    """Hold one rule's values against all that left.

    Args:
        rule: what it computes from the raw values.
        table: the raw values.
        released: what left.
        tolerance: share of a value by which a released number may differ on top of its precision.

    Returns:
        for each precision the surest match, or none where chance explains all of them.
    """
    if not len(rule.cells):
        return
    for precision, index in released.precisions.items():
        tried = rule
        if not rule.main and precision is not DOUBLE and len(index.sizes) >= CROWD:
            if _hopeless(rule.cells.sizes, precision):
                continue
            tried = replace(rule, cells=rule.cells.thinned(THIN))
        hits = _hits(tried, index, precision, tolerance)
        if _verdict(index, hits).chance <= LIKELY:  # what is simple, or met by others, is likelier
            hits = replace(hits, chance=_likelier(tried, table, index, hits))
        yield _told(tried, table, released, index, precision, hits)


def _hopeless(sizes: np.ndarray, precision: Precision) -> bool:
    """Whether numbers are so short that most values are met by chance."""
    some = np.linspace(0, len(sizes) - 1, SOME).astype(np.int64)
    return bool(np.median(densities(sizes, some) * precision.cell(sizes[some])) > MET)


def _hits(rule: Derived, index: Index, precision: Precision, tolerance: float) -> Hits:
    """Released numbers within reach of a raw size; none if no block has more than it must."""
    sizes = rule.cells.sizes
    places = _candidates(index.sizes, sizes, precision, rule.slack, tolerance)
    values = index.sizes[places]
    nearest, distance = _nearest(sizes, values)
    cell = precision.cell(values)
    reach = _reach(values, cell, precision, rule.slack, tolerance)
    close = distance <= reach
    places, nearest, values = places[close], nearest[close], values[close]
    width = np.maximum(2 * distance[close], cell[close])
    chance = np.minimum(densities(sizes, nearest) * width, 1.0)
    if _expected(index, places, chance):
        return Hits(places[:0], nearest[:0], chance[:0])
    return Hits(places, nearest, chance)


def _likelier(rule: Derived, table: RawTable, index: Index, hits: Hits) -> np.ndarray:
    """The chance of each match, raised where the number is simple or its raw value common."""
    chance = np.maximum(hits.chance, simplicity(index.sizes[hits.places]))
    if not rule.of_data:
        chance = np.maximum(chance, _source(rule.cells, hits.nearest, table))
    return np.asarray(np.minimum(chance, 1.0))


def _expected(index: Index, places: np.ndarray, chance: np.ndarray) -> bool:
    """Whether no block has more matches than its numbers give by the least chance of any match."""
    if not len(places):
        return True
    hits = np.bincount(index.blocks[places], minlength=len(index.trials))
    most = index.trials * min(1.0, float(chance.min()))
    return bool((hits <= most).all())


def _reach(
    values: np.ndarray, cell: np.ndarray, precision: Precision, slack: float, tolerance: float
) -> np.ndarray:
    """How far a raw size may be: a last digit that was rounded or cut off, or some last places."""
    places = PLACES if precision.bits == 53 else 1
    return np.asarray(cell * places + slack + tolerance * values)


def _candidates(
    released: np.ndarray, sizes: np.ndarray, precision: Precision, slack: float, tolerance: float
) -> np.ndarray:
    """Positions of released numbers that may match: all, or those next to a raw size."""
    if len(released) <= len(sizes):
        return np.arange(len(released))
    reach = _reach(sizes, precision.cell(sizes), precision, slack, tolerance) * (1 + 1e-9)
    first = np.searchsorted(released, sizes - reach, side="left")
    upper = sizes + reach
    some = np.flatnonzero(released[np.minimum(first, len(released) - 1)] <= upper)
    some = some[first[some] < len(released)]
    if not len(some):
        return np.empty(0, dtype=np.int64)
    last = np.searchsorted(released, upper[some], side="right")
    starts = np.maximum(first[some], np.concatenate([[0], last[:-1]]))  # windows may overlap
    counts = np.maximum(last - starts, 0)
    ends = np.cumsum(counts)
    return np.asarray(np.arange(ends[-1]) + np.repeat(starts - ends + counts, counts))


def _nearest(sizes: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each value the position of the nearest size, and its distance."""
    after = np.minimum(np.searchsorted(sizes, values), len(sizes) - 1)
    before = np.maximum(after - 1, 0)
    far, near = np.abs(sizes[after] - values), np.abs(sizes[before] - values)
    return np.where(near < far, before, after), np.minimum(near, far)


def _source(cells: Cells, nearest: np.ndarray, table: RawTable) -> np.ndarray:
    """How likely a raw value is met by a number as short as itself: high for small whole ones."""
    cell = cells.first[nearest]
    raw = np.abs(table.numbers.ravel()[cell])
    usable = np.isfinite(raw) & (raw > 0) & bool(len(table.cells))
    chance = np.zeros(len(raw))
    kept = raw[usable]
    grades = decimals_of(kept)
    step = np.where(grades == NO_GRADE, np.spacing(kept), 10.0 ** -grades.astype(float))
    step = np.maximum(step, table.steps[cell[usable] % table.numbers.shape[1]])
    places, _ = _nearest(table.cells.sizes, kept)
    chance[usable] = np.maximum(simplicity(kept), densities(table.cells.sizes, places) * step)
    return chance


@dataclass(frozen=True)
class _Verdict:
    """How likely matches are by chance, and which of them say so.

    Args:
        chance: the p-value, over blocks and over all of them together.
        inside: positions among the hits of those of the surest block, or of all.
    """

    chance: float
    inside: np.ndarray


def _verdict(index: Index, hits: Hits) -> _Verdict:
    groups = index.blocks[hits.places].astype(np.int64)
    if not len(groups):
        return _Verdict(1.0, groups)
    each = tails(groups, hits.chance, index.trials) * max(1, int((index.trials > 0).sum()))
    _, once = np.unique(index.sizes[hits.places], return_index=True)  # copies tell nothing new
    whole = tail(hits.chance[once], int(index.trials.sum()))
    alone = each.min() <= whole
    inside = np.flatnonzero(groups == int(np.argmin(each))) if alone else np.arange(len(groups))
    return _Verdict(min(1.0, 2 * float(min(each.min(), whole))), inside)


def _told(
    rule: Derived,
    table: RawTable,
    released: Released,
    index: Index,
    precision: Precision,
    hits: Hits,
) -> Match | None:
    verdict = _verdict(index, hits)
    if verdict.chance > LIKELY:
        return None
    inside = verdict.inside
    surest = inside[np.argmin(hits.chance[inside])]
    block = released.blocks[int(index.blocks[hits.places[surest]])]
    cell = int(rule.cells.first[hits.nearest[surest]])
    return Match(
        rule.rule,
        partial(block.find, float(index.sizes[hits.places[surest]])),
        table.where(cell),
        verdict.chance,
        len(np.unique(index.sizes[hits.places[inside]])),
        precision.name,
        repr(float(table.numbers.ravel()[cell])),
        rule.mend,
        rule.main,
    )
