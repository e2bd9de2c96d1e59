"""Released numbers against raw values and functions of them, each at its own precision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from privfed.leaks.artefact import PLACES, Index, Released
from privfed.leaks.chance import DULL, densities, surprises
from privfed.leaks.evidence import Evidence
from privfed.leaks.functions import Function
from privfed.leaks.precision import DOUBLE, Precision, simplicity
from privfed.leaks.table import Cells, RawTable
from privfed.leaks.windows import each_of

#: In a crowd of so many short numbers, no more than so many values of each function are looked for:
#: few would not be told from chance.
CROWD, THIN = 1_000_000, 20_000
#: None are where more than this share of numbers of their precision are such values; so many of them
#: are looked at to tell.
MET, SOME = 0.05, 512


@dataclass(frozen=True, eq=False)
class Hits:
    """Places in an index of numbers as near a raw size as their precision lets them, the places of
    those sizes, and how likely each would match by chance."""

    places: np.ndarray
    nearest: np.ndarray
    chance: np.ndarray


def compared(
    function: Function, released: Released, tolerance: float, table: RawTable
) -> Evidence | None:
    """The block that a function's values explain most surprisingly, if any."""
    values = function.of(table)
    if values is None or not len(values):
        return None
    best: tuple[Index, Hits, Cells] | None = None
    most = DULL
    for index in released.indices:
        cells = values
        crowded = index.precisions[0] is not DOUBLE and len(index.sizes) >= CROWD
        if crowded and function.plain:
            if _hopeless(cells.sizes, index.precisions[0]):
                continue
            cells = cells.thinned(THIN)
        hits = _hits(cells, index, tolerance)
        if len(hits.places):
            nats = _surprise(index, hits) - float(np.log(len(released.indices)))
            if nats > most:
                most, best = nats, (index, hits, cells)
    return None if best is None else _evidence(function, table, released, most, *best)


def _hopeless(sizes: np.ndarray, precision: Precision) -> bool:
    """Whether numbers are so short that most values are met by chance."""
    some = np.linspace(0, len(sizes) - 1, SOME).astype(np.int64)
    return bool(np.median(densities(sizes, some) * precision.cell(sizes[some])) > MET)


def _hits(cells: Cells, index: Index, tolerance: float) -> Hits:
    """Released numbers within reach of a raw size; none if no group has more than it must."""
    places = _candidates(index, cells, tolerance)
    values = index.sizes[places]
    nearest, distance = _nearest(cells.sizes, values)
    slack = cells.slack[nearest] if isinstance(cells.slack, np.ndarray) else cells.slack
    close = np.flatnonzero(distance <= index.reaches[places] + slack + tolerance * values)
    places, nearest = places[close], nearest[close]
    if not len(close):
        return Hits(places, nearest, np.empty(0))
    width = np.maximum(2 * distance[close], index.cells[places])
    chance = np.minimum(densities(cells.sizes, nearest) * width, 1.0)
    if _expected(index, places, chance):
        return Hits(places[:0], nearest[:0], chance[:0])
    return Hits(places, nearest, chance)


def _expected(index: Index, places: np.ndarray, chance: np.ndarray) -> bool:
    """Whether no group has more matches than its numbers give by the least chance of any match."""
    hits = np.bincount(index.groups[places], minlength=len(index.trials))
    return bool((hits <= index.trials * min(1.0, float(chance.min()))).all())


def _candidates(index: Index, cells: Cells, tolerance: float) -> np.ndarray:
    """Positions of released numbers that may match: all, or those next to a raw size."""
    released, sizes = index.sizes, cells.sizes
    if len(released) <= 4 * len(sizes) or len(set(index.precisions)) > 1:
        return np.arange(len(released))
    precision = index.precisions[0]
    cell = precision.cell(sizes) * (PLACES if precision.bits == 53 else 1)
    reach = (cell + cells.slack + tolerance * sizes) * (1 + 1e-9)
    first = np.searchsorted(released, sizes - reach, side="left")
    upper = sizes + reach
    some = np.flatnonzero(released[np.minimum(first, len(released) - 1)] <= upper)
    some = some[first[some] < len(released)]
    if not len(some):
        return np.empty(0, dtype=np.int64)
    last = np.searchsorted(released, upper[some], side="right")
    starts = np.maximum(first[some], np.concatenate([[0], last[:-1]]))  # windows may overlap
    return each_of(starts, np.maximum(last - starts, 0))


def _nearest(sizes: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each value the position of the nearest size, and its distance."""
    after = np.minimum(np.searchsorted(sizes, values), len(sizes) - 1)
    before = np.maximum(after - 1, 0)
    far, near = np.abs(sizes[after] - values), np.abs(sizes[before] - values)
    return np.where(near < far, before, after), np.minimum(near, far)


def _surprise(index: Index, hits: Hits) -> float:
    """The nats of the most surprising group, or of all together.

    Where that is worth a closer look, simple numbers (0.5, 12, 44/97) are taken for as likely as
    they are.
    """
    each, whole = _of_groups(index, hits)
    if max(each.max(), whole) > DULL and len(hits.places) <= THIN:
        simple = simplicity(index.sizes[hits.places])
        hits.chance[:] = np.minimum(np.maximum(hits.chance, simple), 1.0)
        each, whole = _of_groups(index, hits)
    return float(max(each.max(), whole))


def _of_groups(index: Index, hits: Hits) -> tuple[np.ndarray, float]:
    """The nats of each group, and of all groups together."""
    groups, sizes = len(index.trials), index.sizes[hits.places]
    # all together are a group more; ascending sizes, of which copies tell nothing new
    once = np.flatnonzero(np.r_[True, np.diff(sizes) != 0])
    nats = surprises(
        np.concatenate([index.groups[hits.places], np.full(len(once), groups)]),
        np.concatenate([hits.chance, hits.chance[once]]),
        np.append(index.trials, index.different),
    ) - float(np.log(2))
    return nats[:-1] - float(np.log(groups)), float(nats[-1])


def _evidence(
    function: Function,
    table: RawTable,
    released: Released,
    nats: float,
    index: Index,
    hits: Hits,
    cells: Cells,
) -> Evidence:
    each, whole = _of_groups(index, hits)
    groups = index.groups[hits.places]
    alone = each.max() >= whole
    inside = np.flatnonzero(groups == np.argmax(each)) if alone else np.arange(len(groups))
    surest = inside[np.argmin(hits.chance[inside])]
    group = int(index.groups[hits.places[surest]])
    block = released.blocks[int(index.blocks[group])]
    cell = int(cells.first[hits.nearest[surest]])
    return Evidence(
        function.family,
        function.rule.format(k=table.shared),
        nats,
        partial(block.find, float(index.sizes[hits.places[surest]])),
        partial(table.where, cell),
        len(np.unique(index.sizes[hits.places[inside]])),
        "a date" if table.dated(cell) else index.precisions[group].name,
        partial(table.shown, cell),
        function.mend,
        function.plain,
    )
