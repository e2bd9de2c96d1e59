"""Index of a client's records by leaf of its trees, and sorted within open nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from privfed.learners.forest.columns import Columns
from privfed.learners.forest.level import NodeFeatures, OpenNodes
from privfed.learners.forest.trees import BinaryTrees
from privfed.questions.query import View

#: Instances (records times trees) sorted at once: fewer take more time, more take more memory.
BLOCK = 320_000
#: Minimum instances of a run of nodes for copying runs one by one.
SHORT = 300
#: Maximum bytes of positions and of sorted keys cached between two queries.
KEPT = 64 * 2**20


@dataclass(frozen=True, eq=False)
class NodeInstances:
    """Instances of some trees, grouped by node."""

    rows: np.ndarray  #: the record of each instance, shape (instances,)
    nodes: np.ndarray  #: the distinct nodes with instances, shape (nodes,)
    counts: np.ndarray  #: number of instances of each node, shape (nodes,)

    @classmethod
    def at_roots(cls, view: View, level: OpenNodes, trees: range) -> NodeInstances:
        """Return the samples of some trees, in the records' order for fast access to values."""
        samples = [np.sort(level.sampling.rows(view, tree)) for tree in trees]
        counts = np.array([len(rows) for rows in samples])
        return cls(np.concatenate(samples), np.arange(trees.start, trees.stop), counts)._nonempty()

    @cached_property
    def edges(self) -> np.ndarray:
        """Start of each node's instances, and the end, shape (nodes + 1,)."""
        edges = np.zeros(len(self.counts) + 1, np.intp)
        np.cumsum(self.counts, out=edges[1:])
        return edges

    def repeat(self, values: np.ndarray) -> np.ndarray:
        """Repeat each node's value for each of its instances."""
        return np.repeat(values, self.counts)

    def cells(self, features: np.ndarray, records: int) -> np.ndarray:
        """Return the index of each instance's value of its node's feature, in a (features, records) table."""
        index = self.repeat(features.astype(np.intp) * records)
        index += self.rows
        return index

    def only(self, kept: np.ndarray) -> NodeInstances:
        """Select nodes by a mask of shape (nodes,)."""
        return self.at(np.flatnonzero(kept))

    def at(self, indices: np.ndarray) -> NodeInstances:
        """Select nodes in the given order, without a copy if they are contiguous."""
        counts = self.counts[indices]
        turns = np.ones(len(indices) + 1, bool)
        np.not_equal(indices[1:], indices[:-1] + 1, out=turns[1:-1])
        runs = np.flatnonzero(turns)
        if len(indices) == len(self.nodes) and len(runs) == 2:
            return self
        first, last = self.edges[indices[runs[:-1]]], self.edges[indices[runs[1:] - 1] + 1]
        if len(first) == 1:
            rows = self.rows[first[0] : last[0]]
        elif len(first) * SHORT < (total := int(counts.sum())):
            bounds = zip(first.tolist(), last.tolist(), strict=True)
            rows = np.concatenate([self.rows[a:b] for a, b in bounds])
        else:
            lengths = last - first
            index = np.repeat(last - np.cumsum(lengths), lengths)
            index += np.arange(total)
            rows = self.rows.take(index)
        return NodeInstances(rows, self.nodes[indices], counts)

    def slots(self, pairs: NodeFeatures) -> Iterator[tuple[NodeInstances, np.ndarray]]:
        """Yield the nodes with a first pair, a second, ..., and these pairs; each is a prefix of the one before."""
        sizes = pairs.sizes.take(self.nodes)
        order = np.argsort(-sizes, kind="stable")
        part, first = self.at(order), pairs.first.take(self.nodes[order])
        for slot in range(int(sizes.max(initial=0))):
            count = int(np.count_nonzero(sizes > slot))
            rows = part.rows[: part.edges[count]]
            yield NodeInstances(rows, part.nodes[:count], part.counts[:count]), first[:count] + slot

    def batches(self, size: int) -> Iterator[NodeInstances]:
        """Yield at most ``size`` nodes at a time."""
        for first in range(0, len(self.nodes), size):
            yield self.at(np.arange(first, min(first + size, len(self.nodes))))

    def descended(self, level: OpenNodes, columns: np.ndarray) -> list[NodeInstances]:
        """Descend from nodes to open ones; instances not above an open node stay."""
        moves = (level.trees.inner & level.leading).take(self.nodes)
        if not moves.any():
            return [self]
        deeper = self.only(moves)._step_down(level.trees, columns).descended(level, columns)
        return deeper if moves.all() else [*deeper, self.only(~moves)]

    def _step_down(self, trees: BinaryTrees, columns: np.ndarray) -> NodeInstances:
        """Descend one level: first all instances that go left, then all that go right."""
        right = trees.goes_right(self.nodes, self.rows, columns, self.counts)
        sides = [np.flatnonzero(side) for side in (~right, right)]
        right_counts = np.diff(np.searchsorted(sides[1], self.edges))
        left = trees.left.take(self.nodes).astype(np.intp)
        return NodeInstances(
            np.concatenate([self.rows.take(side) for side in sides]),
            np.concatenate([left, left + 1]),
            np.concatenate([self.counts - right_counts, right_counts]),
        )._nonempty()

    @classmethod
    def together(cls, parts: Sequence[NodeInstances]) -> NodeInstances:
        """Concatenate several, of distinct nodes."""
        full = [part for part in parts if len(part.nodes)] or parts[:1]
        arrays = ([part.rows, part.nodes, part.counts] for part in full)
        return full[0] if len(full) == 1 else cls(*map(np.concatenate, zip(*arrays, strict=True)))

    def _nonempty(self) -> NodeInstances:
        """Drop nodes without instances."""
        full = self.counts > 0
        return NodeInstances(self.rows, self.nodes[full], self.counts[full])


@dataclass(frozen=True, eq=False)
class Sorted:
    """One feature's sorted values, for each of some nodes."""

    pairs: np.ndarray  #: the pairs, shape (nodes,)
    features: np.ndarray  #: their features, shape (nodes,)
    keys: np.ndarray  #: sorted keys, with the node's number in the highest bits
    edges: np.ndarray  #: start of each node's keys, and the end, shape (nodes + 1,)


@dataclass(eq=False)
class NodeIndex:
    """A client's records by open node; cached in the view, without effect on answers."""

    columns: Columns
    _last_level: OpenNodes | None = None
    #: by block of trees, the instances in open nodes, and those not above a queried node
    _leaves: dict[int, tuple[NodeInstances, list[NodeInstances]]] = field(default_factory=dict)
    _open_cache: dict[int, NodeInstances] = field(default_factory=dict)
    _sorted: dict[int, list[Sorted]] = field(default_factory=dict)
    _leaf_bytes: int = 0
    _free_bytes: int = 0

    @classmethod
    def of(cls, view: View, level: OpenNodes) -> NodeIndex:
        """Return the index for a query, from the cache if the last one was about the same forest."""
        known, sampling = view.cache.get("forest"), level.sampling
        sample_key = (sampling.way, sampling.label, sampling.forest, sampling.trees.tobytes())
        key = (sample_key, level.classes)
        if known is None or known[0] != key:
            _keep_freed_memory()
            known = (key, cls(Columns.of(view.table, level.classes)))
            view.cache["forest"] = known
        index: NodeIndex = known[1]
        previous, index._last_level = index._last_level, level
        if previous is not None and not _extends(previous.trees, level.trees):
            index._leaves.clear()
            index._leaf_bytes = 0
        if previous is None or not _same(previous, level):
            index._open_cache.clear()
            index._sorted.clear()
            index._free_bytes = KEPT
        return index

    def open(self, view: View, level: OpenNodes) -> Iterator[NodeInstances]:
        """Yield the instances in open nodes, numbered among these, by block of trees."""
        for trees in self._blocks(level):
            yield self._open(view, level, trees)

    def sorted(self, view: View, level: OpenNodes) -> Iterator[Sorted]:
        """Yield every numeric pair of the open nodes, sorted, and cache them if there is room."""
        for trees in self._blocks(level):
            if trees.start in self._sorted:
                yield from self._sorted[trees.start]
                continue
            kept: list[Sorted] | None = []
            for part in self._sort(self._open(view, level, trees), level.numeric):
                kept = [*kept, part] if kept is not None and self._keep(part.keys.nbytes) else None
                yield part
            if kept is not None:
                self._sorted[trees.start] = kept

    def _blocks(self, level: OpenNodes) -> Iterator[range]:
        step = max(1, BLOCK // max(self.columns.records, 1))
        for first in range(0, level.trees.roots, step):
            yield range(first, min(first + step, level.trees.roots))

    def _keep(self, size: int) -> bool:
        """Reserve ``size`` bytes of the cache if available; return whether they were."""
        fits = size <= self._free_bytes
        self._free_bytes -= size if fits else 0
        return fits

    def _open(self, view: View, level: OpenNodes, trees: range) -> NodeInstances:
        """Return a block's instances in open nodes, descending from their cached nodes, if known."""
        if trees.start in self._open_cache:
            return self._open_cache[trees.start]
        cached = self._leaves.get(trees.start)
        open_, closed = cached or (NodeInstances.at_roots(view, level, trees), [])
        if any(level.leading.take(part.nodes).any() for part in closed):
            open_, closed = NodeInstances.together([open_, *closed]), []
        values = self.columns.values
        open_ = NodeInstances.together(open_.descended(level, values))
        numbers = level.numbers.take(open_.nodes)
        index = np.flatnonzero(numbers >= 0)
        if len(index) < len(numbers):
            rest = open_.only(numbers < 0)
            closed = [*closed, replace(rest, rows=rest.rows.copy())]  # a copy, to free the others
        sizes = [pairs.sizes.take(numbers[index]) for pairs in (level.grouped, level.numeric)]
        index = index[np.lexsort((sizes[0], -sizes[1]))]  # nodes with equally many pairs together
        open_, numbers = open_.at(index), numbers[index]
        if cached is None and self._leaf_bytes < KEPT:
            self._leaf_bytes += open_.rows.nbytes + sum(part.rows.nbytes for part in closed)
            cached = open_, closed
        instances = replace(open_, nodes=numbers)
        if cached is not None:
            self._leaves[trees.start], self._open_cache[trees.start] = (open_, closed), instances
        return instances

    def _sort(self, instances: NodeInstances, pairs: NodeFeatures) -> Iterator[Sorted]:
        """Yield the first, second, ... numeric pair of each node, each sorted by one call."""
        columns = self.columns
        kind = columns.keys.dtype.type
        for part in instances.batches(columns.room):
            node_bits = None
            for kept, chosen in part.slots(pairs):
                if node_bits is None:
                    nodes = np.arange(len(kept.nodes), dtype=kind)
                    node_bits = kept.repeat(nodes << kind(columns.bits))
                features = pairs.features.take(chosen)
                keys = columns.keys.take(kept.cells(features, columns.records))
                keys += node_bits[: len(keys)]
                keys.sort()
                yield Sorted(chosen, features, keys, kept.edges)


def _keep_freed_memory() -> None:
    """Free a large untouched block, so that glibc keeps freed memory.

    glibc returns freed memory to the system beyond twice the largest block freed so far, up to 32 MiB (mallopt(3),
    M_MMAP_THRESHOLD); each newly mapped page costs a fault.
    """
    np.empty(2**25 - 2**16, np.uint8)


@lru_cache(maxsize=2)  # in one process the same queries reach every client
def _extends(before: BinaryTrees, after: BinaryTrees) -> bool:
    """Whether trees extend earlier ones, so that cached nodes are above the new ones."""
    if before is after:
        return True
    if before.roots != after.roots or len(before) > len(after):
        return False
    inner = np.flatnonzero(before.inner)
    subset, now = before.subset[inner], after.subset[inner]
    return (
        np.array_equal(before.feature[inner], after.feature[inner])
        and np.array_equal(before.cut[inner], after.cut[inner])
        and np.array_equal(before.left[inner], after.left[inner])
        and np.array_equal(subset >= 0, now >= 0)
        and _same_subsets(before.subsets[subset[subset >= 0]], after.subsets[now[now >= 0]])
    )


def _same_subsets(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether subsets are equal, except for columns of zeros beyond the narrower ones'."""
    width = min(before.shape[1], after.shape[1])
    beyond = before[:, width:].any() or after[:, width:].any()
    return not beyond and np.array_equal(before[:, :width], after[:, :width])


@lru_cache(maxsize=2)
def _same(before: OpenNodes, after: OpenNodes) -> bool:
    """Whether two queries sort the same values of the same nodes of the same trees."""
    if before is after:
        return True
    return (
        len(before.trees) == len(after.trees)
        and _extends(before.trees, after.trees)
        and np.array_equal(before.trees.feature, after.trees.feature)
        and np.array_equal(before.nodes, after.nodes)
        and np.array_equal(before.numeric.sizes, after.numeric.sizes)
        and np.array_equal(before.numeric.features, after.numeric.features)
    )
