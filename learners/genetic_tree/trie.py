"""Candidates fitted to a client's records, with common prefixes fitted once.

A node of the trie is a set of records; its child by a feature is known, known not to exist, or not yet fitted. All fits
that a level of all candidates needs are one batch. Nodes at the candidates' depth have only sums, and nodes without
records to score on are not fitted for a score.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from privfed.learners.genetic_tree.splits import Ranked, best_cuts
from privfed.learners.genetic_tree.structures import length

#: Maximum bytes of a trie beyond what one candidate needs; a larger one is restarted.
MEMORY = 16 * 2**20
BATCH = 2**16  #: Maximum records sorted in one batch, unless one node has more
_UNKNOWN, _NONE, _CLOSED = -1, -2, -3


class _Rows:
    """An array that grows by rows."""

    def __init__(self, dtype: type, *width: int) -> None:
        self._rows: np.ndarray = np.empty((64, *width), dtype)
        self.size = 0

    def extend(self, rows: np.ndarray) -> None:
        """Append rows."""
        end = self.size + len(rows)
        if end > len(self._rows):
            larger = np.empty((end + end // 2, *self._rows.shape[1:]), self._rows.dtype)
            larger[: self.size] = self._rows[: self.size]
            self._rows = larger
        self._rows[self.size : end] = rows
        self.size = end

    @property
    def all(self) -> np.ndarray:
        """The rows, as a writable view."""
        return self._rows[: self.size]

    @property
    def bytes(self) -> int:
        """Their size in bytes."""
        return int(self._rows.nbytes)


@dataclass(frozen=True, eq=False)
class LeafAssignments:
    """Candidates' leaves: the candidate's and the node's number."""

    candidate: np.ndarray
    node: np.ndarray


class Trie:
    """Fitted nodes over one client's records.

    Args:
        table: the client's records.
        roots: for each root, the records for fitting and those for scoring.
        depth: of the candidates.
        memory: maximum bytes before it is restarted.
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
        classes = self.table.classes
        count = np.int32 if classes else np.float64
        #: of records for fitting: class counts, or n and sum; for scoring: class counts, or n, sum and sum of squares
        self._fitted, self._scored = _Rows(count, classes or 2), _Rows(count, classes or 3)
        #: number among open nodes, from 1; 0 if it is not one
        self._open = _Rows(np.int32)
        self._cut = _Rows(np.float64)  #: of each pair of children
        #: open nodes' records for fitting and for scoring; start and number of both
        self._records, self._kept = _Rows(self.table.order.dtype.type), _Rows(np.int64, 4)
        #: left children, by number and feature; nil, gene -1, is the last entry of the number before
        self._child = _Rows(np.int32)
        self._kept.extend(np.zeros((1, 4), np.int64))
        self._child.extend(np.full(self.table.features + 1, _CLOSED))
        for fit, test in self.roots:
            y = self.table.target[fit]
            sums = np.bincount(y, minlength=classes) if classes else [len(y), y.sum()]
            scored = self._summed(self.table.target[test], np.zeros(len(test), np.intp), 1)
            open_ = np.array([len(y) > 0 and y.min() < y.max()])
            self._add(np.array([sums]), scored, open_)
            if open_[0]:
                self._keep(np.array([[0, len(fit), len(fit), len(test)]]), fit, test)

    # --- fitted nodes --------------------------------------------------------------

    def fitted(self, node: np.ndarray | int) -> np.ndarray:
        """Return class counts, or n and sum, of the records that nodes were fitted to."""
        return np.asarray(self._fitted.all[node])

    def scored(self, node: np.ndarray | int) -> np.ndarray:
        """Return class counts, or n, sum and sum of squares, of the records that nodes are scored on."""
        return np.asarray(self._scored.all[node])

    def children(self, node: int, feature: int) -> tuple[int, int, float] | None:
        """Return left and right child by a feature, and the threshold; None for a leaf."""
        pair, child = self._open.all[[node]] * (self.table.features + 1) + feature, self._child.all
        if pair[0] > feature and child[pair[0]] == _CLOSED:  # for want of records to score on
            child[pair] = _UNKNOWN
        left = int(self._children(pair, last=False)[0])
        if left < 0:
            return None
        return left, left + 1, float(self._cut.all[(left - len(self.roots)) // 2])

    @property
    def bytes(self) -> int:
        """The trie's size in bytes."""
        nodes = self._fitted, self._scored, self._open, self._cut
        return sum(array.bytes for array in (*nodes, self._records, self._kept, self._child))

    # --- walking -----------------------------------------------------------------------------

    def walk(self, genes: np.ndarray) -> Iterator[LeafAssignments]:
        """Fit candidates and yield their leaves in blocks, each valid until the next one."""
        candidate = np.repeat(np.arange(len(genes)), len(self.roots))
        root = np.tile(np.arange(len(self.roots)), len(genes))
        size = 8 * self.depth * max(len(self.table), 1)
        block = max(1, self.memory // size)
        for start in range(0, len(root), block):
            if self.bytes > self.memory:
                self._clear()
            yield self._block(genes, candidate[start : start + block], root[start : start + block])

    def _block(self, genes: np.ndarray, candidate: np.ndarray, root: np.ndarray) -> LeafAssignments:
        codes, width = genes.ravel(), genes.shape[1]
        pos, node = candidate * width, root  # at: position in all strings, concatenated
        leaves = list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
        for level in range(self.depth):
            pair = self._open.all.take(node) * (self.table.features + 1) + codes.take(pos)
            left = self._children(pair, last=level == self.depth - 1)
            leaves.append((pos, node, left))
            cut = left >= 0
            pos, left = pos.compress(cut), left.compress(cut)
            half = length(self.depth - level - 1)
            child = pos + (half > 0)  # none past the last level
            pos, node = np.concatenate([child, child + half]), np.concatenate([left, left + 1])
        leaves.append((pos, node, np.full(len(pos), _CLOSED)))
        return self._leaves(leaves, width)

    def _leaves(
        self, found: list[tuple[np.ndarray, np.ndarray, np.ndarray]], width: int
    ) -> LeafAssignments:
        """Return the ends of branches, of each level first those that are closed."""
        at, node, left = (np.concatenate(each) for each in zip(*found, strict=True))
        ends = (left < 0).nonzero()[0]
        if not self.table.classes:  # sums of floats depend on their order
            level = np.arange(len(found)).repeat([len(each) for each, _, _ in found])
            after = 2 * level.take(ends) + (left.take(ends) == _NONE)
            ends = ends.take(after.argsort(kind="stable"))
        return LeafAssignments(at.take(ends) // width, node.take(ends))

    def _children(self, pair: np.ndarray, last: bool) -> np.ndarray:
        """Return left children of pairs, fitting unknown ones; `last` if they will have no children."""
        left: np.ndarray = self._child.all.take(pair)
        missing = pair.compress(left == _UNKNOWN)
        if not len(missing):
            return left
        known, index = self._child.all, np.arange(len(missing))
        known[missing] = index  # each pair once, at its last index
        self._fit(missing.compress(known.take(missing) == index), last)
        return np.asarray(self._child.all.take(pair))

    # --- fitting -----------------------------------------------------------------------------

    def _fit(self, pairs: np.ndarray, last: bool) -> None:
        """Fit pairs of an open node and a feature, numbered node by node."""
        table, count = self.table, len(pairs)
        number, feature = np.divmod(pairs, table.features + 1)
        kept = self._kept.all.take(number, axis=0).T.ravel()
        starts, sizes = kept[: 2 * count], kept[2 * count :]  # for fitting, then for scoring
        ends = sizes.cumsum()
        if ends[count - 1] > BATCH and count > 1:
            for some in np.array_split(pairs, 2):
                self._fit(some, last)
            return
        index = (starts - ends + sizes).repeat(sizes)
        index += np.arange(len(index))
        records = self._records.all.take(index)
        firsts = feature * len(table)
        cells = np.concatenate([firsts, firsts]).repeat(sizes)
        cells += records
        n_fit, within = ends[count - 1], sizes[count:]
        cuts = best_cuts(table, cells[:n_fit], sizes[:count], feature)
        cells, test = cells[n_fit:], records[n_fit:]
        if len(cuts.pairs) < count:
            self._child.all[pairs] = _NONE
            cut = np.zeros(count, bool)
            cut[cuts.pairs] = True
            rows = cut.repeat(within)
            pairs, within = pairs[cut], within[cut]
            cells, test = cells.compress(rows), test.compress(rows)
            if not len(pairs):
                return
        new, parts, sums = self._open.size, cuts.sizes, cuts.sums
        self._child.all[pairs] = np.arange(new, new + len(parts), 2)
        # records for scoring in their order, on which float sums of squares depend
        high = table.x.take(cells) > cuts.thresholds.repeat(within)
        half = np.arange(0, len(parts), 2).repeat(within)
        half += high
        scored = self._summed(table.target.take(test), half, len(parts))
        n_test = scored.sum(axis=1) if table.classes else scored[:, 0].astype(np.intp)
        open_ = np.zeros(len(parts), bool) if last else self._mixed(cuts.places, parts, sums)
        self._add(sums if table.classes else np.column_stack([parts, sums]), scored, open_)
        self._cut.extend(cuts.thresholds)
        if not np.count_nonzero(open_):
            return
        sides = n_test.reshape(-1, 2).T.ravel()  # left ones of a pair first
        below = (len(cuts.places) + sides.cumsum() - sides).reshape(2, -1).T.ravel()
        ranges = np.array([parts.cumsum() - parts, below, parts, n_test]).T
        sorted_ = table.order.take(cuts.places)
        self._keep(ranges[open_], sorted_, test.compress(~high), test.compress(high))

    def _mixed(self, index: np.ndarray, sizes: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Return which nodes, each with records, have several values of the target."""
        if self.table.classes:
            return np.asarray(sums.max(axis=1) < sizes)
        target, starts = self.table.codes.take(index), sizes.cumsum() - sizes
        return np.asarray(np.minimum.reduceat(target, starts) < np.maximum.reduceat(target, starts))

    def _summed(self, target: np.ndarray, node: np.ndarray, count: int) -> np.ndarray:
        """Return class counts of each node, or n, sum and sum of squares; shape (nodes, sums)."""
        classes = self.table.classes
        if classes:
            cells = np.bincount(node * classes + target, minlength=count * classes)
            return np.asarray(cells.reshape(-1, classes))
        value = target.astype(float)
        weights = None, value, value**2
        return np.column_stack([np.bincount(node, w, minlength=count) for w in weights])

    def _add(self, fitted: np.ndarray, scored: np.ndarray, open_: np.ndarray) -> None:
        """Append nodes, each left child before its right one."""
        self._fitted.extend(fitted)
        self._scored.extend(scored)
        self._open.extend((open_.cumsum() + (self._kept.size - 1)) * open_)

    def _keep(self, ranges: np.ndarray, *records: np.ndarray) -> None:
        """Append the data for splitting open nodes, from their starts among some records."""
        ranges[:, :2] += self._records.size
        self._kept.extend(ranges)
        child = np.full((len(ranges), self.table.features + 1), _UNKNOWN)
        child[:, -1] = _CLOSED
        child[ranges[:, 3] == 0] = _CLOSED  # nothing is scored on it
        self._child.extend(child.ravel())
        for array in records:
            self._records.extend(array)
