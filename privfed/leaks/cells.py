"""Released numbers against raw values and functions of them, each at its own precision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from privfed.leaks.artefact import PLACES, Index, Released
from privfed.leaks.chance import densities, surprises
from privfed.leaks.evidence import Evidence
from privfed.leaks.functions import Function
from privfed.leaks.precision import DOUBLE, Precision, simplicity
from privfed.leaks.table import Cells, RawTable

#: In a crowd of so many short numbers, no more than so many values of each function are looked for:
#: few would not be told from chance.
CROWD, THIN = 1_000_000, 20_000
DULL = 3.0  #: Scores below this are not worth a closer look
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


def compare(
    function: Function, released: Released, tolerance: float, table: RawTable
) -> Evidence | None:
    """Hold one function's values against all that left; the most surprising block, if any."""
    whole = function.of(table)
    if whole is None or not len(whole):
        return None
    best: tuple[float, Index, Hits, np.ndarray, Cells] | None = None
    for index in released.indices:
        cells = whole
        crowded = index.precisions[0] is not DOUBLE and len(index.sizes) >= CROWD
        if crowded and function.plain:
            if _hopeless(cells.sizes, index.precisions[0]):
                continue
            cells = cells.thinned(THIN)
        hits = _hits(cells, index, tolerance)
        nats, inside = _surprise(index, hits)
        nats -= np.log(len(released.indices))
        if nats > (best[0] if best else 0.0):
            best = (nats, index, hits, inside, cells)
    return None if best is None else _evidence(function, table, released, *best)


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
    width = np.maximum(2 * distance[close], index.cells[places])
    chance = np.minimum(densities(cells.sizes, nearest) * width, 1.0)
    if not len(close) or _expected(index, places, chance):
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
    """Nats of the most surprising group, or of all together; the hits that say so.

    Where that is worth a closer look, simple numbers (0.5, 12, 44/97) are taken for as likely as
    they are.
    """
    if not len(hits.places):
        return 0.0, hits.places
    nats, inside = _of_groups(index, hits, hits.chance)
    if nats > DULL and len(hits.places) <= THIN:
        chance = np.maximum(hits.chance, simplicity(index.sizes[hits.places]))
        nats, inside = _of_groups(index, hits, np.minimum(chance, 1.0))
    return nats, inside


def _of_groups(index: Index, hits: Hits, chance: np.ndarray) -> tuple[float, np.ndarray]:
    groups, different = index.groups[hits.places], len(index.trials)
    # all together are a group more; ascending sizes, of which copies tell nothing new
    once = np.flatnonzero(np.diff(index.sizes[hits.places], prepend=-1.0))
    *each, whole = surprises(
        np.concatenate([groups, np.full(len(once), different)]),
        np.concatenate([chance, chance[once]]),
        np.append(index.trials, index.different),
    ).tolist()
    best = max(each) - float(np.log(different))
    inside = np.flatnonzero(groups == np.argmax(each)) if best >= whole else np.arange(len(groups))
    return max(best, whole) - float(np.log(2)), inside


def _evidence(
    function: Function,
    table: RawTable,
    released: Released,
    nats: float,
    index: Index,
    hits: Hits,
    inside: np.ndarray,
    cells: Cells,
) -> Evidence:
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
        index.precisions[group].name,
        partial(table.shown, cell),
        function.mend,
        function.plain,
    )
