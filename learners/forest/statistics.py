"""A client's exact statistics of the open nodes: totals, quantiles, and bins between cuts."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from privfed.learners.forest.columns import Columns, ordered, unordered
from privfed.learners.forest.level import Bench, Instances, Level, Sorted
from privfed.questions.query import View

_U64 = np.uint64
#: Largest table of ranks that is kept.
TABLED = 2**17
Arrays = dict[str, np.ndarray]


def totals(bench: Bench, view: View, level: Level) -> Arrays:
    """Class counts of each open node, or count and sum of the target."""
    columns, nodes = bench.columns, len(level.nodes)
    counts = np.zeros(nodes * (level.classes or 1), np.int64)
    sums = np.zeros(nodes, np.int64)
    for block in bench.blocks(view, level):
        if level.classes:
            cells = block.nodes * level.classes + columns.target[block.rows]
            counts += np.bincount(cells, minlength=len(counts))
        else:
            counts += np.bincount(block.nodes, minlength=nodes)
            sums += _summed(block.nodes, columns.target[block.rows], nodes)
    found = {"counts": counts.reshape(nodes, -1)}
    return found if level.classes else {**found, "sums": sums}


def node_sizes(bench: Bench, view: View, level: Level) -> np.ndarray:
    """Instances in each open node, shape (nodes,)."""
    found = np.zeros(len(level.nodes), np.int64)
    for block in bench.blocks(view, level):
        found += np.bincount(block.nodes, minlength=len(found))
    return found


def quantiles(bench: Bench, view: View, level: Level, levels: int, interpolate: bool) -> np.ndarray:
    """Values at the ranks 0, 1/Q, ..., 1 of each numeric pair, shape (pairs, Q + 1).

    They are order statistics (the nearest rank) unless interpolated between two. A node without
    records here says zero.
    """
    knots = np.zeros((len(level.numeric), levels + 1), np.float32)
    for block in bench.blocks(view, level):
        for part in block.sorted(level.numeric):
            knots[part.pairs] = _knots(part, levels, bench.columns.payload, interpolate)
    return knots


def _knots(part: Sorted, levels: int, payload: int, interpolate: bool) -> np.ndarray:
    counts, starts = np.diff(part.edges), part.edges[:-1, None]
    last = len(part.keys) - 1
    if last < 0:
        return np.zeros((len(counts), levels + 1), np.float32)
    if not interpolate:
        rank = _nearest(counts, levels)
        knots = _values(part.keys.take(np.minimum(starts + rank, last)), payload)
    else:
        exact = np.arange(levels + 1) * np.maximum(counts - 1, 0)[:, None] / levels
        below = np.floor(exact)
        place = np.minimum(starts + below.astype(np.int64), last)
        upper = np.minimum(place + (exact > below), last)
        low, high = (_values(part.keys.take(at), payload).astype(float) for at in (place, upper))
        knots = (low + (high - low) * (exact - below)).astype(np.float32)
    knots[counts == 0] = 0
    return knots


def _nearest(counts: np.ndarray, levels: int) -> np.ndarray:
    """The places nearest to equal ranks among so many values, shape (nodes, levels + 1)."""
    most = int(counts.max(initial=1))
    if most * (levels + 1) > TABLED:
        return _ranks(counts, levels)
    return np.asarray(_table(1 << most.bit_length(), levels)[counts])


@lru_cache(maxsize=64)
def _table(most: int, levels: int) -> np.ndarray:
    """:func:`_nearest` of all counts up to ``most``: few differ, and small nodes are many."""
    return _ranks(np.arange(most + 1), levels)


def _ranks(counts: np.ndarray, levels: int) -> np.ndarray:
    last = np.maximum(counts - 1, 0)[:, None]
    return np.asarray(np.rint(np.arange(levels + 1) * last / levels), dtype=np.int64)


def _values(keys: np.ndarray, payload: int) -> np.ndarray:
    return unordered((keys >> _U64(payload)).astype(np.uint32))


def bins(bench: Bench, view: View, level: Level, cuts: np.ndarray) -> Arrays:
    """Statistics between cuts of each numeric pair, shape (pairs, cuts + 1, ...).

    The first bin holds values up to the first cut, each other one those up to its own and above the
    one before, the last one the rest.
    """
    pairs, width = cuts.shape[0], cuts.shape[1] + 1
    shape = (pairs, width, level.classes or 1)
    found = {"bins": np.zeros(shape, np.int32)}
    if not level.classes:
        found["bin_sums"] = np.zeros(shape[:2], np.int64)
    for block in bench.blocks(view, level):
        for part in block.sorted(level.numeric):
            for name, values in _between(part, cuts[part.pairs], bench.columns).items():
                found[name][part.pairs] = values
    return found


def _between(part: Sorted, cuts: np.ndarray, columns: Columns) -> Arrays:
    nodes, payload = len(part.pairs), columns.payload
    mask = _U64((1 << payload) - 1)
    above = np.arange(nodes, dtype=_U64)[:, None] << _U64(32 + payload)
    needles = above | (ordered(cuts).astype(_U64) << _U64(payload)) | mask
    place = np.searchsorted(part.keys, needles.reshape(-1), side="right").reshape(cuts.shape)
    edges = np.concatenate([part.edges[:-1, None], place, part.edges[1:, None]], axis=1)
    counts = edges[:, 1:] - edges[:, :-1]
    below = (part.keys & mask).astype(np.intp)
    if columns.classes == 0:
        upto = _cumulated(columns.target.take(below)).take(edges)
        return {"bins": counts[:, :, None], "bin_sums": upto[:, 1:] - upto[:, :-1]}
    if columns.classes == 1:
        return {"bins": counts[:, :, None]}
    if columns.classes == 2:
        upto = _cumulated(below).take(edges)
        second = upto[:, 1:] - upto[:, :-1]
        return {"bins": np.stack([counts - second, second], axis=2)}
    cells = np.repeat(np.arange(counts.size) * columns.classes, counts.reshape(-1)) + below
    each = np.bincount(cells, minlength=counts.size * columns.classes)
    return {"bins": each.reshape(*counts.shape, columns.classes)}


def _cumulated(values: np.ndarray) -> np.ndarray:
    found = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=found[1:])
    return found


def categories(bench: Bench, view: View, level: Level, width: int) -> Arrays:
    """Statistics of each category of each categorical pair, shape (pairs, width, ...)."""
    classes, pairs = level.classes or 1, level.grouped
    counts = np.zeros(len(pairs) * width * classes, np.int64)
    sums = np.zeros(len(pairs) * width, np.int64)
    for block in bench.blocks(view, level) if len(pairs) else ():
        for cells, rows in _category_cells(block, level, width):
            if level.classes:
                cells = cells * classes + bench.columns.target[rows]
            else:
                sums += _summed(cells, bench.columns.target[rows], len(sums))
            counts += np.bincount(cells, minlength=len(counts))
    found = {"groups": counts.reshape(len(pairs), width, classes)}
    return found if level.classes else {**found, "group_sums": sums.reshape(len(pairs), width)}


def _category_cells(
    block: Instances, level: Level, width: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    pairs, columns = level.grouped, block.bench.columns
    found = []
    for slot in range(int(pairs.sizes[block.nodes].max(initial=0))):
        kept = np.flatnonzero(pairs.sizes[block.nodes] > slot)
        pair = pairs.first[block.nodes[kept]] + slot
        rows = block.rows[kept]
        codes = columns.values[pairs.features[pair], rows].astype(np.int64)
        found.append((pair * width + codes, rows))
    return found


def _summed(cells: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Sums by cell: of whole numbers below 2^53, so that adding them up as floats is exact."""
    return np.bincount(cells, values, size).astype(np.int64)
