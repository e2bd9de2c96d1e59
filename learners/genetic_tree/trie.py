"""Candidates fitted to a client's records, their common beginnings fitted once.

A node of the trie is a set of records; its child by a feature is known, known not to exist, or yet to be
fitted: all that a level of all candidates needs in one batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from privfed.learners.genetic_tree.splits import Ranked, best_cuts
from privfed.learners.genetic_tree.structures import NIL, length

#: Most bytes of a trie beyond what one candidate needs; a fuller one starts anew.
MEMORY = 32 * 2**20
BATCH = 2**20  #: Most records that are sorted in one batch, unless one node has more
_UNKNOWN, _NONE = -1, -2


class _Rows:
    """An array that grows by rows."""

    def __init__(self, dtype: type, *width: int) -> None:
        self._rows: np.ndarray = np.empty((64, *width), dtype)
        self.size = 0

    def extend(self, rows: np.ndarray) -> None:
        """Append rows."""
        end = self.size + len(rows)
        if end > len(self._rows):
            longer = np.empty((2 * end, *self._rows.shape[1:]), self._rows.dtype)
            longer[: self.size] = self._rows[: self.size]
            self._rows = longer
        self._rows[self.size : end] = rows
        self.size = end

    @property
    def all(self) -> np.ndarray:
        """The rows, to read and to change."""
        return self._rows[: self.size]

    @property
    def bytes(self) -> int:
        """What they take."""
        return int(self._rows.nbytes)


@dataclass(frozen=True, eq=False)
class LeafAssignments:
    """Where candidates end, leaf by leaf: the candidate's number, the root's, the node's."""

    candidate: np.ndarray
    root: np.ndarray
    node: np.ndarray


class Trie:
    """Fitted nodes over one client's records.

    Args:
        table: the client's records.
        roots: for each root the records that it is fitted to and those that it is scored on.
        depth: of the candidates.
        memory: most bytes before it starts anew.
    """

    def __init__(
        self,
        table: Ranked,
        roots: Sequence[tuple[np.ndarray, np.ndarray]],
        depth: int,
        memory: int = MEMORY,
    ) -> None:
        self.table, self.roots, self.depth, self.memory = table, tuple(roots), depth, memory
        self._clear()

    def _clear(self) -> None:
        self._records = _Rows(np.int32), _Rows(np.int32)  # to fit to, to score on
        self._starts, self._sizes = _Rows(np.int64, 2), _Rows(np.int64, 2)
        self._sums = _Rows(np.float64, 2, self.table.classes or 3)
        self._final = _Rows(np.bool_)  # nothing left to split
        self._cut, self._sibling = _Rows(np.float64), _Rows(np.int32)  # of left children
        self._child = _Rows(np.int32, self.table.features)
        for pair in self.roots:
            self._add(pair, [np.array([len(each)]) for each in pair], np.zeros(1))

    # --- what is known of nodes --------------------------------------------------------------

    def fitted(self, node: np.ndarray | int) -> np.ndarray:
        """Of the records that nodes were fitted to: class counts, or n, sum and sum of squares."""
        return np.asarray(self._sums.all[node, 0])

    def scored(self, node: np.ndarray | int) -> np.ndarray:
        """The same of the records that nodes are scored on."""
        return np.asarray(self._sums.all[node, 1])

    def children(self, node: int, feature: int) -> tuple[int, int, float] | None:
        """Left and right child by a feature and the threshold between; none for a leaf."""
        if self._final.all[node]:
            return None
        left = int(self._children(np.array([node]), np.array([feature]))[0])
        if left == _NONE:
            return None
        return left, int(self._sibling.all[left]), float(self._cut.all[left])

    @property
    def bytes(self) -> int:
        """What the trie takes."""
        rows = [self._starts, self._sizes, self._sums, self._final, self._cut, self._sibling]
        return sum(each.bytes for each in [*self._records, *rows, self._child])

    # --- walking -----------------------------------------------------------------------------

    def walk(self, genes: np.ndarray) -> Iterator[LeafAssignments]:
        """Fit candidates and yield their leaves block by block, each valid until the next one is asked for."""
        candidate = np.repeat(np.arange(len(genes)), len(self.roots))
        root = np.tile(np.arange(len(self.roots)), len(genes))
        one = 8 * self.depth * max(len(self.table), 1)
        block = max(1, self.memory // one)
        for start in range(0, len(root), block):
            if self.bytes > self.memory:
                self._clear()
            yield self._block(genes, candidate[start : start + block], root[start : start + block])

    def _block(self, genes: np.ndarray, candidate: np.ndarray, root: np.ndarray) -> LeafAssignments:
        live = np.array([candidate, root, root, np.zeros_like(root)])  # ..., node, position
        found = []
        for level in range(self.depth):
            gene = genes[live[0], live[3]]
            ends = (gene == NIL) | self._final.all[live[2]]
            found.append(live[:3, ends])
            live, gene = live[:, ~ends], gene[~ends]
            left = self._children(live[2], gene)
            found.append(live[:3, left == _NONE])
            live, left = live[:, left != _NONE], left[left != _NONE]
            half = length(self.depth - level - 1)
            lower = (
                np.array([left, live[3] + 1]),
                np.array([self._sibling.all[left], live[3] + 1 + half]),
            )
            live = np.hstack([np.vstack([live[:2], side]) for side in lower])
        return LeafAssignments(*np.hstack([*found, live[:3]]))

    def _children(self, node: np.ndarray, gene: np.ndarray) -> np.ndarray:
        """Left children, fitted where they were not yet known."""
        known = self._child.all[node, gene]
        if (known == _UNKNOWN).any():
            features = self.table.features
            missing = known == _UNKNOWN
            pairs = np.unique(node[missing] * features + gene[missing])
            self._fit_all(pairs // features, pairs % features)
            known = self._child.all[node, gene]
        return np.asarray(known)

    # --- fitting -----------------------------------------------------------------------------

    def _fit_all(self, node: np.ndarray, feature: np.ndarray) -> None:
        """Fit pairs of a node and a feature, a bounded number of records at a time."""
        batch = np.cumsum(self._sizes.all[node, 0]) // BATCH
        for number in np.unique(batch):
            self._fit(node[batch == number], feature[batch == number])

    def _fit(self, node: np.ndarray, feature: np.ndarray) -> None:
        self._child.all[node, feature] = _NONE
        records, sizes = self._gather(node, 0)
        cuts = best_cuts(self.table, records, sizes, feature)
        if not len(cuts.pairs):
            return
        node, feature = node[cuts.pairs], feature[cuts.pairs]
        first = self._sibling.size
        self._child.all[node, feature] = first + np.arange(len(node))
        halves = [self._halve(node, kind, feature, cuts.thresholds) for kind in (0, 1)]
        self._add(
            [records for records, _ in halves],
            [sizes for _, sizes in halves],
            np.concatenate([cuts.thresholds, cuts.thresholds]),
        )

    def _gather(self, node: np.ndarray, kind: int) -> tuple[np.ndarray, np.ndarray]:
        """Records of nodes, node by node, and how many each has."""
        sizes, starts = self._sizes.all[node, kind], self._starts.all[node, kind]
        shift = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
        return self._records[kind].all[shift + np.arange(len(shift))], sizes

    def _halve(
        self, node: np.ndarray, kind: int, feature: np.ndarray, thresholds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Records of all left children, then of all right ones, and how many each has."""
        records, sizes = self._gather(node, kind)
        low = self.table.x[np.repeat(feature, sizes), records] <= np.repeat(thresholds, sizes)
        lower = np.bincount(np.repeat(np.arange(len(node)), sizes)[low], minlength=len(node))
        return (
            np.concatenate([records[low], records[~low]]),
            np.concatenate([lower, sizes - lower]),
        )

    def _add(
        self, records: Sequence[np.ndarray], sizes: Sequence[np.ndarray], cuts: np.ndarray
    ) -> None:
        """Append nodes, the left children before the right ones."""
        count = len(cuts)
        starts = [
            kept.size + np.cumsum(size) - size
            for kept, size in zip(self._records, sizes, strict=True)
        ]
        sums = [self._summed(*each) for each in zip(records, sizes, strict=True)]
        self._final.extend(self._settled(records[0], sizes[0], sums[0]))
        for kept, new in zip(self._records, records, strict=True):
            kept.extend(new)
        self._starts.extend(np.column_stack(starts))
        self._sizes.extend(np.column_stack(sizes))
        self._sums.extend(np.stack(sums, axis=1))
        self._sibling.extend(self._sibling.size + np.arange(count) + count // 2)
        self._cut.extend(cuts)
        self._child.extend(np.full((count, self.table.features), _UNKNOWN))

    def _summed(self, records: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Class counts of each node, or n, sum and sum of squares; shape (nodes, sums)."""
        node, target = np.repeat(np.arange(len(sizes)), sizes), self.table.target[records]
        classes = self.table.classes
        if classes:
            cells = np.bincount(node * classes + target, minlength=len(sizes) * classes)
            return cells.reshape(-1, classes).astype(float)
        value = target.astype(float)
        sums = [np.bincount(node, each, minlength=len(sizes)) for each in (value, value**2)]
        return np.column_stack([sizes, *sums])

    def _settled(self, records: np.ndarray, sizes: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Which nodes have one value of the target only, or no record."""
        if self.table.classes:
            return np.asarray(sums.max(axis=1) == sizes)
        settled = np.ones(len(sizes), dtype=bool)
        filled, target = sizes > 0, self.table.target[records]
        if filled.any():
            starts = (np.cumsum(sizes) - sizes)[filled]
            least = np.minimum.reduceat(target, starts)
            settled[filled] = least == np.maximum.reduceat(target, starts)
        return settled
