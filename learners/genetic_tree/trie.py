"""Candidates fitted to a client's records, their common beginnings fitted once.

A node of the trie is a set of records; its child by a feature is known, known not to exist, or yet to be
fitted: all that a level of all candidates needs in one batch. Of nodes at the candidates' depth the sums alone
are kept, and what nothing is scored on is not fitted for a score.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from privfed.learners.genetic_tree.splits import Ranked, best_cuts
from privfed.learners.genetic_tree.structures import NIL, length

#: Most bytes of a trie beyond what one candidate needs; a fuller one starts anew.
MEMORY = 16 * 2**20
BATCH = 2**14  #: Most records that are sorted in one batch, unless one node has more
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
    """Where candidates end, leaf by leaf: the candidate's number, the node's."""

    candidate: np.ndarray
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
        classes, numbers = self.table.classes, self.table.order.dtype.type
        count = np.int32 if classes else np.float64
        #: to fit to: class counts, or n and sum; to score on: class counts, or n, sum and sum of squares
        self._fitted, self._scored = _Rows(count, classes or 2), _Rows(count, classes or 3)
        self._open, self._cut = _Rows(np.int32), _Rows(np.float64)  # number among open nodes, or -1
        self._records = _Rows(numbers), _Rows(numbers)  # of open nodes, to fit to and to score on
        self._starts, self._sizes = _Rows(np.int64, 2), _Rows(np.int32, 2)
        self._child = _Rows(np.int32, self.table.features)
        for fit, held in self.roots:
            own = self.table.target[fit]
            sums = np.bincount(own, minlength=classes) if classes else [len(own), own.sum()]
            scored = self._summed(held, np.zeros(len(held), np.intp), 1)
            open_ = np.array([len(own) > 0 and own.min() < own.max()])
            self._add(np.array([sums]), scored, np.zeros(1), open_)
            if open_[0]:
                sizes = np.array([[len(fit), len(held)]])
                self._keep(np.zeros((1, 2), np.int64), sizes, (fit, held))

    # --- what is known of nodes --------------------------------------------------------------

    def fitted(self, node: np.ndarray | int) -> np.ndarray:
        """Of the records that nodes were fitted to: class counts, or n and sum."""
        return np.asarray(self._fitted.all[node])

    def scored(self, node: np.ndarray | int) -> np.ndarray:
        """Of the records that nodes are scored on: class counts, or n, sum and sum of squares."""
        return np.asarray(self._scored.all[node])

    def children(self, node: int, feature: int) -> tuple[int, int, float] | None:
        """Left and right child by a feature and the threshold between; none for a leaf."""
        number = self._open.all[[node]]
        if number[0] < 0:
            return None
        left = int(self._children(number, np.array([feature]), last=False)[0])
        return None if left == _NONE else (left, left + 1, float(self._cut.all[left]))

    @property
    def bytes(self) -> int:
        """What the trie takes."""
        rows = [self._fitted, self._scored, self._open, self._cut, self._starts, self._sizes]
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
        live = np.array([candidate, root, np.zeros_like(root)])  # ..., node, position
        found = []
        for level in range(self.depth):
            gene, number = genes[live[0], live[2]], self._open.all[live[1]]
            goes_on = (gene != NIL) & (number >= 0)
            scored_on = self._sizes.all[number[goes_on], 1]  # where none is, no score depends on it
            goes_on[goes_on] = scored_on > 0
            found.append(live[:2, ~goes_on])
            live = live[:, goes_on]
            left = self._children(number[goes_on], gene[goes_on], last=level == self.depth - 1)
            found.append(live[:2, left == _NONE])
            live, left = live[:, left != _NONE], left[left != _NONE]
            half = length(self.depth - level - 1)
            live = np.hstack([live, live])
            live[1] = np.concatenate([left, left + 1])
            live[2, : len(left)] += 1
            live[2, len(left) :] += 1 + half
        return LeafAssignments(*np.hstack([*found, live[:2]]))

    def _children(self, number: np.ndarray, gene: np.ndarray, last: bool) -> np.ndarray:
        """Left children of open nodes, fitted where they were not yet known; `last` if none will have any."""
        known = self._child.all[number, gene]
        missing = known == _UNKNOWN
        if missing.any():
            features = self.table.features
            pairs = np.unique(number[missing] * features + gene[missing])
            number_, feature = pairs // features, pairs % features
            batch = np.cumsum(self._sizes.all[number_, 0]) // BATCH
            for each in range(int(batch[0]), int(batch[-1]) + 1):
                if (batch == each).any():
                    self._fit(number_[batch == each], feature[batch == each], last)
            known = self._child.all[number, gene]
        return np.asarray(known)

    # --- fitting -----------------------------------------------------------------------------

    def _fit(self, number: np.ndarray, feature: np.ndarray, last: bool) -> None:
        """Fit pairs of an open node and a feature."""
        self._child.all[number, feature] = _NONE
        sizes = self._sizes.all[number, 0].astype(np.int64)
        cuts = best_cuts(self.table, self._gather(number, 0), sizes, feature)
        if not len(cuts.pairs):
            return
        number, feature, sizes = number[cuts.pairs], feature[cuts.pairs], sizes[cuts.pairs]
        self._child.all[number, feature] = self._open.size + 2 * np.arange(len(number))
        parts = np.column_stack([cuts.sizes, sizes - cuts.sizes]).ravel()
        sums = cuts.sums.reshape(len(parts), -1)
        fitted = sums if self.table.classes else np.column_stack([parts, sums])
        # the records to score on, in their order: floating-point sums of squares depend on it
        held, within = self._gather(number, 1), self._sizes.all[number, 1]
        values = self.table.x.ravel()[np.repeat(feature * len(self.table), within) + held]
        high = values > np.repeat(cuts.thresholds, within)
        half = np.repeat(2 * np.arange(len(number)), within) + high
        open_ = np.zeros(len(parts), bool) if last else self._mixed(cuts.records, parts, sums)
        scored = self._summed(held, half, len(parts))
        self._add(fitted, scored, np.repeat(cuts.thresholds, 2), open_)
        if not open_.any():
            return
        other = np.bincount(half, minlength=len(parts))
        rows = np.argsort(high, kind="stable")  # those on the left of their pair come first
        below = np.cumsum(other.reshape(-1, 2).T.ravel()).reshape(2, -1).T.ravel() - other
        starts = np.column_stack([np.cumsum(parts) - parts, below])
        both = np.column_stack([parts, other])
        self._keep(starts[open_], both[open_], (cuts.records, held[rows]))

    def _mixed(self, records: np.ndarray, sizes: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Which nodes, each with records, have several values of the target."""
        if self.table.classes:
            return np.asarray(sums.max(axis=1) < sizes)
        target, starts = self.table.target[records], np.cumsum(sizes) - sizes
        return np.asarray(np.minimum.reduceat(target, starts) < np.maximum.reduceat(target, starts))

    def _summed(self, records: np.ndarray, node: np.ndarray, count: int) -> np.ndarray:
        """Class counts of each node, or n, sum and sum of squares; shape (nodes, sums)."""
        target, classes = self.table.target[records], self.table.classes
        if classes:
            cells = np.bincount(node * classes + target, minlength=count * classes)
            return np.asarray(cells.reshape(-1, classes))
        value = target.astype(float)
        weights = None, value, value**2
        return np.column_stack([np.bincount(node, each, minlength=count) for each in weights])

    def _add(
        self, fitted: np.ndarray, scored: np.ndarray, cuts: np.ndarray, open_: np.ndarray
    ) -> None:
        """Append nodes, each left child before its right one."""
        self._fitted.extend(fitted)
        self._scored.extend(scored)
        self._cut.extend(cuts)
        self._open.extend(np.where(open_, self._child.size + np.cumsum(open_) - 1, -1))

    def _keep(
        self, starts: np.ndarray, sizes: np.ndarray, records: tuple[np.ndarray, np.ndarray]
    ) -> None:
        """Append what open nodes need to be split, by where theirs start among some records."""
        self._starts.extend(starts + [kept.size for kept in self._records])
        self._sizes.extend(sizes)
        self._child.extend(np.full((len(starts), self.table.features), _UNKNOWN))
        for kept, new in zip(self._records, records, strict=True):
            kept.extend(new)

    def _gather(self, number: np.ndarray, kind: int) -> np.ndarray:
        """Records of open nodes, node by node."""
        sizes, starts = self._sizes.all[number, kind], self._starts.all[number, kind]
        shift = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
        shift += np.arange(len(shift))
        return np.asarray(self._records[kind].all[shift])
