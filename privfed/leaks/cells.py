"""Released numbers against raw values and functions of them, each at its own precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from privfed.leaks.artefact import Index, Released
from privfed.leaks.chance import densities, surprise, surprises
from privfed.leaks.evidence import Evidence
from privfed.leaks.functions import Derived, Function
from privfed.leaks.precision import DOUBLE, Precision, simplicity
from privfed.leaks.table import RawTable

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
    function: Function, table: RawTable, released: Released, tolerance: float
) -> Evidence | None:
    """Hold one function's values against all that left; the most surprising precision, if any."""
    derived = function.of(table)
    if derived is None or not len(derived.cells):
        return None
    best: tuple[float, Precision, Hits, np.ndarray] | None = None
    for precision, index in released.precisions.items():
        tried = derived
        if not function.main and precision is not DOUBLE and len(index.sizes) >= CROWD:
            if derived.through or _hopeless(derived.cells.sizes, precision):
                continue
            tried = replace(derived, cells=derived.cells.thinned(THIN))
        hits = _hits(tried, index, precision, tolerance)
        nats, inside = _surprise(index, hits)
        nats -= np.log(len(released.precisions))
        if nats > (best[0] if best else 0.0):
            best = (nats, precision, hits, inside)
            derived = tried
    return None if best is None else _told(function, derived, table, released, *best)


def _hopeless(sizes: np.ndarray, precision: Precision) -> bool:
    """Whether numbers are so short that most values are met by chance."""
    some = np.linspace(0, len(sizes) - 1, SOME).astype(np.int64)
    return bool(np.median(densities(sizes, some) * precision.cell(sizes[some])) > MET)


def _hits(rule: Derived, index: Index, precision: Precision, tolerance: float) -> Hits:
    """Released numbers within reach of a raw size; none if no block has more than it must."""
    sizes = rule.cells.sizes
    if rule.through is None:
        places = _candidates(index.sizes, sizes, precision, rule.slack, tolerance)
        values = index.sizes[places]
        cell = precision.cell(values)
    else:
        places = np.arange(len(index.sizes))
        values = rule.through(index.sizes)
        cell = precision.cell(index.sizes) * values / index.sizes
    nearest, distance = _nearest(sizes, values)
    reach = _reach(values, cell, precision, rule.slack, tolerance)
    close = distance <= reach
    places, nearest, values = places[close], nearest[close], values[close]
    width = np.maximum(2 * distance[close], cell[close])
    chance = np.minimum(densities(sizes, nearest) * width, 1.0)
    if _expected(index, places, chance):
        return Hits(places[:0], nearest[:0], chance[:0])
    if len(places) <= THIN:  # of more, simple ones are few
        chance = np.maximum(chance, simplicity(index.sizes[places]))
    return Hits(places, nearest, np.minimum(chance, 1.0))


def _expected(index: Index, places: np.ndarray, chance: np.ndarray) -> bool:
    """Whether no block has more matches than its numbers give by the least chance of any match."""
    if not len(places):
        return True
    hits = np.bincount(index.blocks[places], minlength=len(index.trials))
    return bool((hits <= index.trials * min(1.0, float(chance.min()))).all())


def _reach(
    values: np.ndarray, cell: np.ndarray, precision: Precision, slack: float, tolerance: float
) -> np.ndarray:
    """How far a raw size may be: a last digit that was rounded or cut off, or some last places."""
    places = PLACES if precision.bits == 53 else 1
    return np.asarray(cell * places + slack + tolerance * values)


def _candidates(
    released: np.ndarray,
    sizes: np.ndarray,
    precision: Precision,
    slack: float,
    tolerance: float,
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


def _surprise(index: Index, hits: Hits) -> tuple[float, np.ndarray]:
    """Nats of the most surprising block, or of all together; the hits that say so."""
    groups = index.blocks[hits.places].astype(np.int64)
    if not len(groups):
        return 0.0, groups
    each = surprises(groups, hits.chance, index.trials) - np.log((index.trials > 0).sum())
    _, once = np.unique(index.sizes[hits.places], return_index=True)  # copies tell nothing new
    whole = surprise(hits.chance[once], index.different)
    alone = float(each.max()) >= whole
    inside = np.flatnonzero(groups == int(np.argmax(each))) if alone else np.arange(len(groups))
    return max(float(each.max()), whole) - np.log(2), inside


def _told(
    function: Function,
    derived: Derived,
    table: RawTable,
    released: Released,
    nats: float,
    precision: Precision,
    hits: Hits,
    inside: np.ndarray,
) -> Evidence:
    index = released.precisions[precision]
    surest = inside[np.argmin(hits.chance[inside])]
    block = released.blocks[int(index.blocks[hits.places[surest]])]
    cell = int(derived.cells.first[min(hits.nearest[surest], len(derived.cells) - 1)])
    return Evidence(
        function.family,
        function.rule,
        nats,
        partial(block.find, float(index.sizes[hits.places[surest]])),
        partial(table.where, cell),
        len(np.unique(index.sizes[hits.places[inside]])),
        precision.name,
        partial(table.shown, cell),
        function.mend,
        function.plain,
    )
