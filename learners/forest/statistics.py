"""A client's statistics of the open nodes: totals, quantiles, bins, gains and shortlists."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from privfed.learners.forest.columns import Columns, unordered
from privfed.learners.forest.gains import best_cut, best_subset, decreases, together
from privfed.learners.forest.level import NodeFeatures, OpenNodes
from privfed.learners.forest.node_index import NodeIndex, NodeInstances, Sorted
from privfed.learners.impurity import Criterion, sizes
from privfed.questions.query import View

#: Maximum mean instances of a pair for comparing with each cut instead of sorting, which is then no faster.
FEW = 100
TABLED = 2**17  #: Maximum size of a cached table of ranks
Arrays = dict[str, np.ndarray]


def totals(index: NodeIndex, view: View, level: OpenNodes) -> Arrays:
    """Return class counts of each open node, or count and sum of the target."""
    target, nodes = index.columns.target, len(level.nodes)
    counts = np.zeros((nodes, level.classes or 1), np.int64)
    sums = np.zeros(nodes, np.int64)
    for part in index.open(view, level):
        size = len(part.nodes)
        cells = part.repeat(np.arange(size) * (level.classes or 1))
        if level.classes:
            cells += target.take(part.rows)
            cell_counts = np.bincount(cells, minlength=size * level.classes)
            counts[part.nodes] = cell_counts.reshape(size, level.classes)
        else:
            counts[part.nodes] = part.counts[:, None]
            sums[part.nodes] = _sum_by_cell(cells, target.take(part.rows), size)
    return {"counts": counts} if level.classes else {"counts": counts, "sums": sums}


def node_sizes(index: NodeIndex, view: View, level: OpenNodes) -> np.ndarray:
    """Return the number of instances in each open node, shape (nodes,)."""
    result = np.zeros(len(level.nodes), np.int64)
    for part in index.open(view, level):
        result[part.nodes] = part.counts
    return result


def quantiles(
    index: NodeIndex, view: View, level: OpenNodes, levels: int, interpolate: bool
) -> np.ndarray:
    """Return values at ranks 0, 1/Q, ..., 1 of each numeric pair, nearest or interpolated; zero without records."""
    knots = np.zeros((len(level.numeric), levels + 1), np.float32)
    for part in index.sorted(view, level):
        knots[part.pairs] = _knots(part, levels, index.columns, interpolate)
    return knots


def _knots(part: Sorted, levels: int, columns: Columns, interpolate: bool) -> np.ndarray:
    payload, bases = part.keys.dtype.type(columns.payload), columns.bases(part.features)[:, None]

    def values(index: np.ndarray) -> np.ndarray:
        ranks = (part.keys.take(index) >> payload).astype(np.intp)
        ranks += bases
        return unordered(columns.ascending.take(ranks))

    starts = part.edges[:-1, None]
    counts = part.edges[1:] - part.edges[:-1]
    if not interpolate:
        return values(starts + _nearest(counts, levels))
    exact = np.arange(levels + 1) * (counts - 1)[:, None] / levels
    floor = np.floor(exact)
    lower = starts + floor.astype(np.int64)
    low, high = (values(index).astype(float) for index in (lower, lower + (exact > floor)))
    return np.asarray(low + (high - low) * (exact - floor), np.float32)


def _nearest(counts: np.ndarray, levels: int) -> np.ndarray:
    """Return the indices nearest to equal ranks among ``counts`` values, shape (nodes, levels + 1)."""
    max_count = int(counts.max(initial=1))
    if max_count * (levels + 1) > TABLED:
        return _ranks(counts, levels)
    return _table(1 << max_count.bit_length(), levels).take(counts, axis=0)


@lru_cache(maxsize=64)
def _table(max_count: int, levels: int) -> np.ndarray:
    """Return :func:`_nearest` of all counts up to ``most``, cached for the many small nodes."""
    return _ranks(np.arange(max_count + 1), levels)


def _ranks(counts: np.ndarray, levels: int) -> np.ndarray:
    last = np.maximum(counts - 1, 0)[:, None]
    return np.asarray(np.rint(np.arange(levels + 1) * last / levels), dtype=np.int64)


def bins(index: NodeIndex, view: View, level: OpenNodes, cuts: np.ndarray) -> Arrays:
    """Return statistics of (low, high] between cuts of each numeric pair, shape (pairs, cuts + 1, ...).

    In large nodes each cut is searched among the sorted instances; in small ones, each instance is compared with the
    cuts.
    """
    pairs, width = cuts.shape[0], cuts.shape[1] + 1
    shape = (pairs, width, level.classes or 1)
    arrays = {"bins": np.zeros(shape, np.int64)}
    if not level.classes:
        arrays["bin_sums"] = np.zeros(shape[:2], np.int64)
    cuts = cuts.astype(np.float32)
    if node_sizes(index, view, level) @ level.numeric.sizes <= FEW * pairs:
        for part in index.open(view, level):
            _add_compared(arrays, part, level.numeric, cuts, index.columns)
        return arrays
    for block in index.sorted(view, level):
        for name, values in _bin_sums(block, cuts[block.pairs], index.columns).items():
            arrays[name][block.pairs] = values
    return arrays


def _add_compared(
    arrays: Arrays, part: NodeInstances, pairs: NodeFeatures, cuts: np.ndarray, columns: Columns
) -> None:
    """Add the bins of some nodes' pairs, by comparing each instance with each cut."""
    classes, width = columns.classes or 1, cuts.shape[1] + 1
    offsets, target = None, columns.target
    for kept, pair in part.slots(pairs):
        if offsets is None:
            offsets = kept.repeat(np.arange(len(pair)) * (width * classes))
            target = columns.target.take(kept.rows)
            if columns.classes > 1:
                offsets += target * width
        values = columns.values.take(kept.cells(pairs.features.take(pair), columns.records))
        bin_ = np.zeros(len(values), np.min_scalar_type(width))
        for cut in cuts[pair].T:
            bin_ += values > kept.repeat(cut)
        cells = offsets[: len(bin_)] + bin_
        counts = np.bincount(cells, minlength=len(pair) * width * classes)
        arrays["bins"][pair] = counts.reshape(len(pair), classes, width).transpose(0, 2, 1)
        if not columns.classes:
            sums = _sum_by_cell(cells, target[: len(bin_)], len(pair) * width)
            arrays["bin_sums"][pair] = sums.reshape(len(pair), width)


def _bin_sums(part: Sorted, cuts: np.ndarray, columns: Columns) -> Arrays:
    kind = part.keys.dtype.type
    bounds = columns.above(cuts, part.features)
    bounds += np.arange(len(cuts), dtype=kind)[:, None] << kind(columns.bits)
    edges = np.empty((len(cuts), cuts.shape[1] + 2), np.int64)
    edges[:, 0], edges[:, -1] = part.edges[:-1], part.edges[1:]
    edges[:, 1:-1] = np.searchsorted(part.keys, bounds.reshape(-1)).reshape(cuts.shape)
    counts = _steps(edges)
    if columns.classes == 1:
        return {"bins": counts[:, :, None]}
    values = np.zeros(len(part.keys) + 1, np.int64)
    if columns.classes == 0:
        positions = part.keys.astype(np.intp)
        positions += np.repeat(columns.bases(part.features), np.diff(part.edges))
        values[:-1] = columns.sums.take(positions)
        return {"bins": counts[:, :, None], "bin_sums": _between_edges(values, edges, counts)}
    np.bitwise_and(part.keys, kind((1 << columns.payload) - 1), out=values[:-1], casting="unsafe")
    if columns.classes == 2:
        second = _between_edges(values, edges, counts)
        by_class = np.empty((*counts.shape, 2), np.int64)
        np.subtract(counts, second, out=by_class[:, :, 0])
        by_class[:, :, 1] = second
        return {"bins": by_class}
    cells = np.repeat(np.arange(counts.size) * columns.classes, counts.reshape(-1)) + values[:-1]
    by_class = np.bincount(cells, minlength=counts.size * columns.classes)
    return {"bins": by_class.reshape(*counts.shape, columns.classes)}


def _steps(rising: np.ndarray) -> np.ndarray:
    """Return each row's differences, computed over all rows at once, as NumPy is slow over short ones."""
    steps = np.empty_like(rising)
    flat = rising.reshape(-1)
    np.subtract(flat[1:], flat[:-1], out=steps.reshape(-1)[:-1])
    return steps[:, :-1]


def _between_edges(values: np.ndarray, edges: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return sums of integers between each row's edges, from cumulative sums."""
    sums = np.add.reduceat(values, edges[:, :-1].reshape(-1))
    return sums.reshape(counts.shape) * (counts > 0)


def categories(index: NodeIndex, view: View, level: OpenNodes, width: int) -> Arrays:
    """Return statistics of each category of each categorical pair, shape (pairs, width, ...)."""
    columns, pairs = index.columns, level.grouped
    shape = len(pairs), width, level.classes or 1
    arrays = {"groups": np.zeros(shape, np.int64)}
    if not level.classes:
        arrays["group_sums"] = np.zeros(shape[:2], np.int64)
    size = width * shape[2]
    for part in index.open(view, level) if len(pairs) else ():
        offsets = None
        for kept, pair in part.slots(pairs):
            if offsets is None:
                offsets = kept.repeat(np.arange(len(pair)) * size)
            cells = columns.cells.take(kept.cells(pairs.features.take(pair), columns.records))
            cells = offsets[: len(cells)] + cells
            counts = np.bincount(cells, minlength=len(pair) * size)
            arrays["groups"][pair] = counts.reshape(len(pair), *shape[1:])
            if not level.classes:
                sums = _sum_by_cell(cells, columns.target.take(kept.rows), len(pair) * size)
                arrays["group_sums"][pair] = sums.reshape(len(pair), width)
    return arrays


def _sum_by_cell(cells: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Return sums by cell, of integers below 2^53, so that float sums are exact."""
    return np.bincount(cells, values, size).astype(np.int64)


def local_gains(statistics: Mapping[str, np.ndarray], criterion: Criterion) -> np.ndarray:
    """Return the impurity decrease at each cut from bins; zero if a side is empty, shape (pairs, cuts)."""
    cumulative = np.cumsum(together(statistics["bins"], statistics.get("bin_sums")), axis=1)
    gain = decreases(cumulative[:, :-1], cumulative[:, -1], criterion)
    size = np.maximum(sizes(cumulative[:, -1], criterion), 1)[:, None]
    return np.where(np.isfinite(gain), np.maximum(gain, 0) / size, 0).astype(np.float32)


def shortlist(
    view: View, level: OpenNodes, levels: int, longest: int, width: int, criterion: Criterion
) -> Mapping[str, np.ndarray]:
    """Return the ``longest`` features of largest local decrease at each node, and their gains."""
    index = NodeIndex.of(view, level)
    cuts = quantiles(index, view, level, levels, interpolate=False)[:, 1:-1]
    by_bin, by_group = bins(index, view, level, cuts), categories(index, view, level, width)
    numeric = together(by_bin["bins"], by_bin.get("bin_sums"))
    grouped = together(by_group["groups"], by_group.get("group_sums"))
    cut, subset = best_cut(numeric, criterion, 1), best_subset(grouped, criterion, 1)[0]
    gain = np.concatenate([cut.gain, subset.gain])
    node = np.concatenate([level.numeric.nodes, level.grouped.nodes])
    feature = np.concatenate([level.numeric.features, level.grouped.features])
    order = np.lexsort((feature, -gain, node))
    node, feature, gain = node[order], feature[order], gain[order]
    rank = np.arange(len(node)) - np.searchsorted(node, node)
    kept = (rank < longest) & np.isfinite(gain)
    features = np.full((len(level.nodes), longest), -1)
    gains = np.zeros((len(level.nodes), longest), np.float32)
    features[node[kept], rank[kept]] = feature[kept]
    gains[node[kept], rank[kept]] = np.maximum(gain[kept], 0)
    return {"features": features, "gains": gains}
