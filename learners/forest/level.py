"""The open nodes of all trees, what is asked about each, and a client's records sorted by them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from privfed.errors import QueryError
from privfed.learners.forest.columns import Columns
from privfed.learners.forest.samples import Sampling
from privfed.learners.forest.trees import LEAF, Trees, category_sizes
from privfed.questions.query import View
from privfed.tables.schema import Schema

#: Instances (records times trees) that are sorted at once; more neither costs nor saves time.
BLOCK = 40_000
#: Most bytes of places and of sorted keys that a client keeps between two questions.
KEPT = 64 * 2**20
_U64 = np.uint64


@dataclass(frozen=True, eq=False)
class Pairs:
    """Features to look at, node by node.

    Args:
        sizes: how many at each open node, shape (nodes,).
        features: one after another, shape (pairs,).
    """

    sizes: np.ndarray
    features: np.ndarray

    def __len__(self) -> int:
        return len(self.features)

    @property
    def first(self) -> np.ndarray:
        """Where each node's pairs begin, shape (nodes,)."""
        return np.asarray(np.cumsum(self.sizes) - self.sizes)

    @property
    def nodes(self) -> np.ndarray:
        """The node of each pair, counted among the open ones, shape (pairs,)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def check(self, nodes: int, allowed: np.ndarray) -> None:
        """Hold it to known features of the right kind, each once a node; a QueryError otherwise."""
        sizes, features = self.sizes, self.features
        if (
            sizes.shape != (nodes,)
            or features.ndim != 1
            or {sizes.dtype.kind, features.dtype.kind} != {"i"}
        ):
            raise QueryError("malformed", "pairs need a number of features for each node")
        if (nodes and sizes.min() < 0) or sizes.sum() != len(features):
            raise QueryError("malformed", "pairs need as many features as they count")
        if len(features) and not (features.min() >= 0 and features.max() < len(allowed)):
            raise QueryError("malformed", "a pair names an unknown feature")
        if not allowed[features].all():
            raise QueryError("malformed", "a pair names a feature of another kind")
        node = self.nodes
        if ((np.diff(features) <= 0) & (np.diff(node) == 0)).any():
            raise QueryError("false-partition", "a node's features ascend, each named once")


@dataclass(frozen=True, eq=False)
class Level:
    """The nodes that a question is about.

    Args:
        trees: all trees as far as they have grown.
        sampling: which records each learns from.
        nodes: the open nodes, which do not split, tree by tree.
        numeric: which numeric features to look at.
        grouped: which categorical features to look at.
        classes: number of classes; 1 counts records alone, 0 is a regression.
    """

    trees: Trees
    sampling: Sampling
    nodes: np.ndarray
    numeric: Pairs
    grouped: Pairs
    classes: int

    def check(self, schema: Schema) -> None:
        """Hold all of it to the schema, and the nodes to be disjoint.

        Different nodes that do not split have different records of one tree's sample: each instance
        ends in one leaf.

        Raises:
            QueryError: see :meth:`Trees.check`, :meth:`Sampling.check` and :meth:`Pairs.check`.
        """
        self.trees.check(schema)
        self.sampling.check(self.trees.roots)
        nodes = self.nodes
        if nodes.ndim != 1 or nodes.dtype.kind != "i" or not 1 <= len(nodes) <= len(self.trees):
            raise QueryError("malformed", "a level needs nodes")
        if nodes.min() < 0 or nodes.max() >= len(self.trees):
            raise QueryError("malformed", "an open node is none of the trees'")
        if (self.trees.feature[nodes] != LEAF).any() or np.bincount(nodes).max() > 1:
            raise QueryError("false-partition", "open nodes do not split, and each is listed once")
        if (np.diff(self.trees.tree_of[nodes]) < 0).any():
            raise QueryError("malformed", "open nodes are listed tree by tree")
        sizes = category_sizes(schema)
        self.numeric.check(len(nodes), sizes == 0)
        self.grouped.check(len(nodes), sizes > 0)
        known = {0, 1} if schema.target is not None else {1}
        if not (self.classes in known or 2 <= self.classes <= 100):
            raise QueryError(
                "malformed", "classes must be 0 (a regression), 1 (counts) or up to 100"
            )


@dataclass(frozen=True, eq=False)
class Sorted:
    """One feature of each node of a block, sorted.

    Args:
        pairs: the pairs, shape (nodes of the block,).
        keys: sorted keys, nodes counted from the block's first.
        edges: where each node's keys begin, and their end, shape (nodes + 1,).
    """

    pairs: np.ndarray
    keys: np.ndarray
    edges: np.ndarray


@dataclass(eq=False)
class Bench:
    """A client's records as they lie in the open nodes; kept in the view's cache.

    What is kept makes the next question quicker and changes no answer.

    Args:
        columns: the records.
    """

    columns: Columns
    _asked: Level | None = None
    _places: dict[int, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    _blocks: dict[int, Instances | None] = field(default_factory=dict)
    _sorted: dict[int, list[Sorted]] = field(default_factory=dict)
    _room: int = 0

    @classmethod
    def of(cls, view: View, level: Level) -> Bench:
        """The bench for a question: the one kept from the last, if it was about the same forest."""
        known = view.cache.get("forest")
        sampling = level.sampling
        key = (sampling.way, sampling.label, sampling.trees.tobytes(), level.classes)
        if known is None or known[0] != key:
            known = (key, cls(Columns.of(view.table, level.classes)))
            view.cache["forest"] = known
        bench: Bench = known[1]
        bench._turn_to(level)
        return bench

    def _turn_to(self, level: Level) -> None:
        before = self._asked
        if before is not None and not _grew(before.trees, level.trees):
            self._places.clear()
        if before is None or not _same(before, level):
            self._blocks.clear()
            self._sorted.clear()
            self._room = KEPT
        self._asked = level

    def keep(self, size: int) -> bool:
        """Whether so many bytes more may be kept until the next level; then they count as kept."""
        fits = size <= self._room
        self._room -= size if fits else 0
        return fits

    def blocks(self, view: View, level: Level) -> Iterator[Instances]:
        """The instances in open nodes, a block of trees at a time."""
        number = np.full(len(level.trees), -1, np.int32)
        number[level.nodes] = np.arange(len(level.nodes))
        step = max(1, BLOCK // max(self.columns.records, 1))
        for first in range(0, level.trees.roots, step):
            if first in self._blocks:
                block = self._blocks[first]
            else:
                trees = range(first, min(first + step, level.trees.roots))
                block = self._open(*self._placed(view, level, trees), number, first)
                if block is None or self.keep(block.rows.nbytes + block.nodes.nbytes):
                    self._blocks[first] = block
            if block is not None:
                yield block

    def _open(
        self, rows: np.ndarray, at: np.ndarray, number: np.ndarray, first: int
    ) -> Instances | None:
        """A block's instances in open nodes, or none."""
        nodes = number.take(at)
        live = np.flatnonzero(nodes >= 0)
        return Instances(self, first, rows.take(live), nodes.take(live)) if len(live) else None

    def _placed(self, view: View, level: Level, trees: range) -> tuple[np.ndarray, np.ndarray]:
        """Records and leaves of a block's instances; walked on from where they were, if known."""
        known = self._places.get(trees.start)
        if known is None:
            each = [level.sampling.rows(view, tree) for tree in trees]
            rows = np.concatenate(each)
            roots = np.arange(trees.start, trees.stop, dtype=np.int32)
            known = rows, np.repeat(roots, [len(own) for own in each])
        rows, at = known[0], level.trees.descend(known[1], known[0], self.columns.values)
        if sum(r.nbytes + a.nbytes for r, a in self._places.values()) < KEPT:
            self._places[trees.start] = (rows, at)
        return rows, at


@dataclass(frozen=True, eq=False)
class Instances:
    """A block's instances in open nodes.

    Args:
        bench: the client's.
        block: which block.
        rows: the record of each, shape (instances,).
        nodes: its open node, shape (instances,).
    """

    bench: Bench
    block: int
    rows: np.ndarray
    nodes: np.ndarray

    def sorted(self, pairs: Pairs) -> Iterator[Sorted]:
        """Every numeric pair of the block's nodes, sorted; kept for the next question if room is."""
        kept = self.bench._sorted
        if self.block in kept:
            yield from kept[self.block]
            return
        made: list[Sorted] = []
        whole = True
        for each in self._sort(pairs):
            whole = whole and self.bench.keep(each.keys.nbytes)
            made = [*made, each] if whole else []
            yield each
        if whole:
            kept[self.block] = made

    def _sort(self, pairs: Pairs) -> Iterator[Sorted]:
        columns = self.bench.columns
        low, high = int(self.nodes.min()), int(self.nodes.max()) + 1
        for start in range(low, high, columns.room):
            stop = min(start + columns.room, high)
            rows, nodes = self.rows, self.nodes
            if stop - start < high - low:
                inside = np.flatnonzero((nodes >= start) & (nodes < stop))
                rows, nodes = rows[inside], nodes[inside]
            yield from self._slots(pairs, start, stop, rows, nodes.astype(np.intp) - start)

    def _slots(
        self, pairs: Pairs, start: int, stop: int, rows: np.ndarray, local: np.ndarray
    ) -> Iterator[Sorted]:
        """The first, second, ... pair of each of some nodes, each sorted by one call."""
        columns = self.bench.columns
        sizes, first = pairs.sizes[start:stop], pairs.first[start:stop]
        asked: np.ndarray | None = None
        for slot in range(int(sizes.max(initial=0))):
            now = np.flatnonzero(sizes > slot)
            if asked is None or len(now) < len(asked):
                asked = now
                kept, place, above = _among(asked, len(sizes), local, 32 + columns.payload)
                own = rows if kept is None else rows[kept]
                counts = np.bincount(place, minlength=len(asked))
                edges = np.concatenate([[0], np.cumsum(counts)])
            chosen = first[asked] + slot
            begin = pairs.features[chosen].astype(np.int64) * columns.records
            where = begin.take(place)
            where += own
            keys = columns.keys.reshape(-1).take(where)
            keys += above
            keys.sort()
            yield Sorted(chosen, keys, edges)


def _among(
    asked: np.ndarray, nodes: int, local: np.ndarray, bits: int
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """Instances in the asked nodes (none for all), their place among them, and that in high bits."""
    kept = None
    if len(asked) < nodes:
        rank = np.full(nodes, -1)
        rank[asked] = np.arange(len(asked))
        local = rank[local]
        kept = np.flatnonzero(local >= 0)
        local = local[kept]
    return kept, local, local.astype(_U64) << _U64(bits)


def _grew(before: Trees, after: Trees) -> bool:
    """Whether trees are earlier ones grown on, so that places in those are on the way."""
    size = len(before)
    if before is after:
        return True
    if before.roots != after.roots or size > len(after):
        return False
    inner = before.feature != LEAF
    same = all(
        np.array_equal(getattr(before, name)[inner], getattr(after, name)[:size][inner])
        for name in ("feature", "cut", "left")
    )
    grouped = before.subset[inner]
    chosen, now = grouped[grouped >= 0], after.subset[:size][inner]
    return (
        same
        and np.array_equal(grouped >= 0, now >= 0)
        and np.array_equal(before.subsets[chosen], after.subsets[now[grouped >= 0]])
    )


def _same(one: Level, other: Level) -> bool:
    """Whether two questions sort the same values by the same nodes of the same trees."""
    if one is other:
        return True
    return (
        len(one.trees) == len(other.trees)
        and _grew(one.trees, other.trees)
        and np.array_equal(one.trees.feature, other.trees.feature)
        and np.array_equal(one.nodes, other.nodes)
        and np.array_equal(one.numeric.sizes, other.numeric.sizes)
        and np.array_equal(one.numeric.features, other.numeric.features)
    )
