"""Candidates fitted to a client's records, with common prefixes fitted once.

A node of the trie is a set of records; its child by a feature is known, known not to exist, or not yet fitted. All fits
that a level of all candidates needs are one batch. Nodes at the candidates' depth have only sums, and nodes without
records to score on are not fitted for a score.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from privfed.learners.genetic_tree.splits import Ranked, best_cuts
from privfed.learners.genetic_tree.structures import NIL, length

#: Maximum bytes of a trie beyond what one candidate needs; a larger one is restarted.
MEMORY = 16 * 2**20
BATCH = 2**16  #: Maximum records sorted in one batch, unless one node has more
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
            longer = np.empty((end + end // 2, *self._rows.shape[1:]), self._rows.dtype)
            longer[: self.size] = self._rows[: self.size]
            self._rows = longer
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
        #: number n among open nodes, -2 - n if nothing is scored on it, -1 if it is not one
        self._open = _Rows(np.int32)
        self._cut = _Rows(np.float64)  #: of each pair of children
        #: open nodes' records for fitting and for scoring; start and number of both
        self._records, self._kept = _Rows(self.table.order.dtype.type), _Rows(np.int64, 4)
        self._child = _Rows(np.int32)  #: left children of open nodes, by node and feature
        for fit, held in self.roots:
            own = self.table.target[fit]
            sums = np.bincount(own, minlength=classes) if classes else [len(own), own.sum()]
            scored = self._summed(self.table.target[held], np.zeros(len(held), np.intp), 1)
            open_ = np.array([len(own) > 0 and own.min() < own.max()])
            self._add(np.array([sums]), scored, open_, np.array([len(held)]))
            if open_[0]:
                self._keep(np.array([[0, len(fit), len(fit), len(held)]]), fit, held)

    # --- fitted nodes --------------------------------------------------------------

    def fitted(self, node: np.ndarray | int) -> np.ndarray:
        """Return class counts, or n and sum, of the records that nodes were fitted to."""
        return np.asarray(self._fitted.all[node])

    def scored(self, node: np.ndarray | int) -> np.ndarray:
        """Return class counts, or n, sum and sum of squares, of the records that nodes are scored on."""
        return np.asarray(self._scored.all[node])

    def children(self, node: int, feature: int) -> tuple[int, int, float] | None:
        """Return left and right child by a feature, and the threshold; None for a leaf."""
        number = self._open.all[[node]]
        if number[0] == -1:
            return None
        number = np.maximum(number, -2 - number)
        left = int(self._children(number, np.array([feature]), last=False)[0])
        if left == _NONE:
            return None
        return left, left + 1, float(self._cut.all[(left - len(self.roots)) // 2])

    @property
    def bytes(self) -> int:
        """The trie's size in bytes."""
        nodes = self._fitted, self._scored, self._open, self._cut
        return sum(each.bytes for each in (*nodes, self._records, self._kept, self._child))

    # --- walking -----------------------------------------------------------------------------

    def walk(self, genes: np.ndarray) -> Iterator[LeafAssignments]:
        """Fit candidates and yield their leaves in blocks, each valid until the next one."""
        candidate = np.repeat(np.arange(len(genes)), len(self.roots))
        root = np.tile(np.arange(len(self.roots)), len(genes))
        one = 8 * self.depth * max(len(self.table), 1)
        block = max(1, self.memory // one)
        for start in range(0, len(root), block):
            if self.bytes > self.memory:
                self._clear()
            yield self._block(genes, candidate[start : start + block], root[start : start + block])

    def _block(self, genes: np.ndarray, candidate: np.ndarray, root: np.ndarray) -> LeafAssignments:
        codes, width = genes.ravel(), genes.shape[1]
        at, node = candidate * width, root  # at: position in all strings, concatenated
        found = list[tuple[np.ndarray, np.ndarray]]()
        for level in range(self.depth):
            gene, number = codes.take(at), self._open.all.take(node)
            goes_on = (gene != NIL) & (number >= 0)
            found.append((at[~goes_on], node[~goes_on]))
            at, node, number, gene = (each[goes_on] for each in (at, node, number, gene))
            left = self._children(number, gene, last=level == self.depth - 1)
            cut = left != _NONE
            found.append((at[~cut], node[~cut]))
            at, left = at[cut], left[cut]
            half = length(self.depth - level - 1)
            below = at + (half > 0)  # none past the last level
            at, node = np.concatenate([below, below + half]), np.concatenate([left, left + 1])
        at, node = (np.concatenate(each) for each in zip(*found, (at, node), strict=True))
        return LeafAssignments(at // width, node)

    def _children(self, number: np.ndarray, gene: np.ndarray, last: bool) -> np.ndarray:
        """Return left children of open nodes, fitting unknown ones; `last` if they will have no children."""
        pair, known = number * self.table.features + gene, self._child.all
        missing = pair[known.take(pair) == _UNKNOWN]
        if len(missing):
            places = np.arange(len(missing))
            known[missing] = places  # each pair once, at its last index
            pairs = missing[known.take(missing) == places]
            batch = self._kept.all[pairs // self.table.features, 2].cumsum() // BATCH
            for each in range(batch[0], batch[-1] + 1):
                if len(some := pairs[batch == each]):
                    self._fit(some, last)
        return np.asarray(self._child.all.take(pair))

    # --- fitting -----------------------------------------------------------------------------

    def _fit(self, pairs: np.ndarray, last: bool) -> None:
        """Fit pairs of an open node and a feature, numbered node by node."""
        table, count = self.table, len(pairs)
        number, feature = pairs // table.features, pairs % table.features
        self._child.all[pairs] = _NONE
        kept = self._kept.all[number].T
        starts, sizes = kept[:2].ravel(), kept[2:].ravel()  # for fitting, then for scoring
        ends = sizes.cumsum()
        places = (starts - ends + sizes).repeat(sizes)
        places += np.arange(len(places))
        records = self._records.all.take(places)
        firsts = feature * len(table)
        cells = np.concatenate([firsts, firsts]).repeat(sizes)
        cells += records
        own, within = ends[count - 1], sizes[count:]
        cuts = best_cuts(table, cells[:own], sizes[:count], feature)
        cells, held = cells[own:], records[own:]
        if len(cuts.pairs) < count:
            cut = np.zeros(count, bool)
            cut[cuts.pairs] = True
            rest = cut.repeat(within)
            pairs, within, cells, held = pairs[cut], within[cut], cells[rest], held[rest]
        if not len(pairs):
            return
        self._child.all[pairs] = np.arange(0, 2 * len(pairs), 2) + self._open.size
        parts, sums = cuts.sizes.ravel(), cuts.sums.reshape(2 * len(pairs), -1)
        # records for scoring in their order, on which float sums of squares depend
        high = table.x.take(cells) > cuts.thresholds.repeat(within)
        half = np.arange(0, len(parts), 2).repeat(within)
        half += high
        scored = self._summed(table.target.take(held), half, len(parts))
        other = np.bincount(half, minlength=len(parts))
        open_ = np.zeros(len(parts), bool) if last else self._mixed(cuts.places, parts, sums)
        self._add(sums if table.classes else np.column_stack([parts, sums]), scored, open_, other)
        self._cut.extend(cuts.thresholds)
        if not np.count_nonzero(open_):
            return
        sides = other.reshape(-1, 2).T.ravel()  # left ones of a pair first
        below = (len(cuts.places) + sides.cumsum() - sides).reshape(2, -1).T.ravel()
        both = np.array([parts.cumsum() - parts, below, parts, other]).T
        self._keep(both[open_], table.order.take(cuts.places), held[~high], held[high])

    def _mixed(self, places: np.ndarray, sizes: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Return which nodes, each with records, have several values of the target."""
        if self.table.classes:
            return np.asarray(sums.max(axis=1) < sizes)
        target, starts = self.table.codes.take(places), sizes.cumsum() - sizes
        return np.asarray(np.minimum.reduceat(target, starts) < np.maximum.reduceat(target, starts))

    def _summed(self, target: np.ndarray, node: np.ndarray, count: int) -> np.ndarray:
        """Return class counts of each node, or n, sum and sum of squares; shape (nodes, sums)."""
        classes = self.table.classes
        if classes:
            cells = np.bincount(node * classes + target, minlength=count * classes)
            return np.asarray(cells.reshape(-1, classes))
        value = target.astype(float)
        weights = None, value, value**2
        return np.column_stack([np.bincount(node, each, minlength=count) for each in weights])

    def _add(
        self, fitted: np.ndarray, scored: np.ndarray, open_: np.ndarray, held: np.ndarray
    ) -> None:
        """Append nodes, each left child before its right one; `held`: their numbers of records for scoring."""
        self._fitted.extend(fitted)
        self._scored.extend(scored)
        numbers = open_.cumsum() + (self._kept.size - 1)
        self._open.extend(np.where(open_, np.where(held, numbers, -2 - numbers), -1))

    def _keep(self, kept: np.ndarray, *records: np.ndarray) -> None:
        """Append the data for splitting open nodes, from their starts among some records."""
        kept[:, :2] += self._records.size
        self._kept.extend(kept)
        self._child.extend(np.full(len(kept) * self.table.features, _UNKNOWN))
        for each in records:
            self._records.extend(each)
