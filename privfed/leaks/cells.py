"""Compares released numbers with raw values and functions of them, each at its precision."""

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

#: From CROWD rounded numbers on, at most THIN values of each function are searched: more would be
#: indistinguishable from chance.
CROWD, THIN = 1_000_000, 20_000
#: None are if more than a fraction MET of numbers of their precision would match, estimated from SOME
#: values.
MET, SOME = 0.05, 512


@dataclass(frozen=True, eq=False)
class Hits:
    """Indices of released numbers that match a raw value at their precision, indices of these values,
    and the probability of each match by chance."""

    indices: np.ndarray
    nearest: np.ndarray
    probability: np.ndarray


def compare(
    function: Function, released: Released, tolerance: float, table: RawTable
) -> Evidence | None:
    """Evidence from the block that a function's values match most surprisingly, if any."""
    values = function.evaluate(table)
    if values is None or not len(values):
        return None
    best: tuple[Index, Hits, Cells] | None = None
    best_score = DULL
    for index in released.indices:
        cells = values
        crowded = index.precisions[0] is not DOUBLE and len(index.sizes) >= CROWD
        if crowded and function.complexity:
            if _is_too_coarse(cells.sizes, index.precisions[0]):
                continue
            cells = cells.thinned(THIN)
        hits = _hits(cells, index, tolerance)
        if len(hits.indices):
            nats = _surprise(index, hits) - float(np.log(len(released.indices)))
            if nats > best_score:
                best_score, best = nats, (index, hits, cells)
    return None if best is None else _evidence(function, table, released, best_score, *best)


def _is_too_coarse(sizes: np.ndarray, precision: Precision) -> bool:
    """Whether numbers are rounded so coarsely that most values match by chance."""
    sample = np.linspace(0, len(sizes) - 1, SOME).astype(np.int64)
    return bool(np.median(densities(sizes, sample) * precision.spacing(sizes[sample])) > MET)


def _hits(cells: Cells, index: Index, tolerance: float) -> Hits:
    """Released numbers that match a raw value; none if no group has more matches than expected."""
    indices = _candidates(index, cells, tolerance)
    values = index.sizes[indices]
    nearest, distance = _nearest(cells.sizes, values)
    slack = cells.slack[nearest] if isinstance(cells.slack, np.ndarray) else cells.slack
    close = np.flatnonzero(distance <= index.max_distances[indices] + slack + tolerance * values)
    indices, nearest = indices[close], nearest[close]
    if not len(close):
        return Hits(indices, nearest, np.empty(0))
    width = np.maximum(2 * distance[close], index.spacings[indices])
    probability = np.minimum(densities(cells.sizes, nearest) * width, 1.0)
    if _is_expected(index, indices, probability):
        return Hits(indices[:0], nearest[:0], probability[:0])
    return Hits(indices, nearest, probability)


def _is_expected(index: Index, indices: np.ndarray, probability: np.ndarray) -> bool:
    """Whether no group has more matches than expected at the smallest probability of any match."""
    hits = np.bincount(index.groups[indices], minlength=len(index.trials))
    return bool((hits <= index.trials * min(1.0, float(probability.min()))).all())


def _candidates(index: Index, cells: Cells, tolerance: float) -> np.ndarray:
    """Indices of released numbers that may match: all, or those near a raw value."""
    released, sizes = index.sizes, cells.sizes
    if len(released) <= 4 * len(sizes) or len(set(index.precisions)) > 1:
        return np.arange(len(released))
    precision = index.precisions[0]
    spacing = precision.spacing(sizes) * (PLACES if precision.bits == 53 else 1)
    reach = (spacing + cells.slack + tolerance * sizes) * (1 + 1e-9)
    first = np.searchsorted(released, sizes - reach, side="left")
    upper = sizes + reach
    present = np.flatnonzero(released[np.minimum(first, len(released) - 1)] <= upper)
    present = present[first[present] < len(released)]
    if not len(present):
        return np.empty(0, dtype=np.int64)
    last = np.searchsorted(released, upper[present], side="right")
    starts = np.maximum(first[present], np.concatenate([[0], last[:-1]]))  # windows may overlap
    return each_of(starts, np.maximum(last - starts, 0))


def _nearest(sizes: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each value, the index of the nearest size and the distance to it."""
    after = np.minimum(np.searchsorted(sizes, values), len(sizes) - 1)
    before = np.maximum(after - 1, 0)
    far, near = np.abs(sizes[after] - values), np.abs(sizes[before] - values)
    return np.where(near < far, before, after), np.minimum(near, far)


def _surprise(index: Index, hits: Hits) -> float:
    """Nats of the most surprising group, or of all groups pooled, whichever is larger.

    Above ``DULL``, the probability of simple numbers (0.5, 12, 44/97) is raised to their prior.
    """
    by_group, overall = _group_scores(index, hits)
    if max(by_group.max(), overall) > DULL and len(hits.indices) <= THIN:
        simple = simplicity(index.sizes[hits.indices])
        hits.probability[:] = np.minimum(np.maximum(hits.probability, simple), 1.0)
        by_group, overall = _group_scores(index, hits)
    return float(max(by_group.max(), overall))


def _group_scores(index: Index, hits: Hits) -> tuple[np.ndarray, float]:
    """Nats of each group, and of all groups pooled."""
    groups, sizes = len(index.trials), index.sizes[hits.indices]
    # the pool is one more group, of distinct sizes (ascending)
    first = np.flatnonzero(np.r_[True, np.diff(sizes) != 0])
    nats = surprises(
        np.concatenate([index.groups[hits.indices], np.full(len(first), groups)]),
        np.concatenate([hits.probability, hits.probability[first]]),
        np.append(index.trials, index.n_distinct),
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
    by_group, overall = _group_scores(index, hits)
    groups = index.groups[hits.indices]
    single = by_group.max() >= overall
    members = np.flatnonzero(groups == np.argmax(by_group)) if single else np.arange(len(groups))
    best = members[np.argmin(hits.probability[members])]
    group = int(index.groups[hits.indices[best]])
    block = released.blocks[int(index.blocks[group])]
    cell = int(cells.first[hits.nearest[best]])
    return Evidence(
        function.family,
        function.rule.format(k=table.shared),
        nats,
        partial(block.find, float(index.sizes[hits.indices[best]])),
        partial(table.where, cell),
        len(np.unique(index.sizes[hits.indices[members]])),
        "a date" if table.dated(cell) else index.precisions[group].name,
        partial(table.shown, cell),
        function.remedy,
        function.complexity,
    )
