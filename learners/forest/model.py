"""A grown forest: what it predicts, and what it says of its features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from privfed.learners.forest.gains import Criterion, decreases
from privfed.learners.forest.trees import LEAF, Trees

#: Rows times trees that are predicted at once.
BLOCK = 2_000_000


@dataclass(frozen=True, eq=False)
class FittedForest:
    """Trees with a value at every node.

    Args:
        trees: the trees.
        values: class shares, or the scaled mean target, shape (nodes, values).
        records: records of the sample at each node, by client, shape (clients, nodes).
        features: how many there are; trees name the client by this number.
        criterion: the impurity that importances are decreases of.
    """

    trees: Trees
    values: np.ndarray
    records: np.ndarray
    features: int
    criterion: Criterion

    @property
    def sizes(self) -> np.ndarray:
        """Records of the sample at each node, shape (nodes,)."""
        return np.asarray(self.records.sum(axis=0))

    @property
    def splits_on_clients(self) -> bool:
        """Whether any node asks which client a record is from."""
        return bool((self.trees.feature == self.features).any())

    def seen_by(self, client: int) -> Trees:
        """The trees with every split on the client decided for one of them."""
        return self.trees.seen_by(client, self.features)

    def predict(self, columns: np.ndarray, client: np.ndarray | None = None) -> np.ndarray:
        """The mean value over trees, shape (rows, values).

        Args:
            columns: encoded rows, shape (features, rows), 32-bit floats.
            client: number of each row's client, -1 where it is unknown; none knows none. A row of an
                unknown client goes both ways where clients part, weighted by the records there.
        """
        rows = columns.shape[1]
        found = np.zeros((rows, self.values.shape[1]))
        clients = np.full(rows, -1) if client is None or not self.splits_on_clients else client
        for each in np.unique(clients):
            own = np.flatnonzero(clients == each)
            seen = self.trees if each < 0 else self.seen_by(int(each))
            step = max(1, BLOCK // self.trees.roots)
            for first in range(0, len(own), step):
                part = own[first : first + step]
                found[part] = self._mean(seen, columns[:, part])
        return found

    def _mean(self, trees: Trees, columns: np.ndarray) -> np.ndarray:
        rows, total = columns.shape[1], np.zeros((columns.shape[1], self.values.shape[1]))
        at = np.repeat(np.arange(trees.roots), rows)
        row = np.tile(np.arange(rows), trees.roots)
        for leaf, here, weight in self._reached(trees, at, row, columns):
            for place in range(total.shape[1]):
                worth = self.values[leaf, place] * weight
                total[:, place] += np.bincount(here, worth, minlength=rows)
        return total / trees.roots

    def _reached(
        self, trees: Trees, at: np.ndarray, row: np.ndarray, columns: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Leaves that rows reach, with weights; rows of unknown clients part where clients do."""
        weight = np.ones(len(at))
        sizes = self.sizes
        while len(at):
            inner = trees.feature[at] != LEAF
            done = ~inner
            yield at[done], row[done], weight[done]
            at, row, weight = at[inner], row[inner], weight[inner]
            parted = trees.feature[at] == self.features
            known = ~parted
            right = trees.goes_right(at[known], row[known], columns)
            left = trees.left[at]
            share = sizes[left[parted]] / np.maximum(sizes[at[parted]], 1)
            at = np.concatenate([left[known] + right, left[parted], left[parted] + 1])
            row = np.concatenate([row[known], row[parted], row[parted]])
            weight = np.concatenate(
                [weight[known], weight[parted] * share, weight[parted] * (1 - share)]
            )

    def apply(self, columns: np.ndarray, client: int = -1) -> np.ndarray:
        """The leaf of each row in each tree, shape (rows, trees); the client must be known if asked."""
        trees = self.trees if client < 0 else self.seen_by(client)
        rows = columns.shape[1]
        at = np.repeat(np.arange(trees.roots, dtype=np.int32), rows)
        row = np.tile(np.arange(rows, dtype=np.int32), trees.roots)
        return trees.descend(at, row, columns).reshape(trees.roots, rows).T

    def _decreases(self, inner: np.ndarray) -> np.ndarray:
        """Impurity decrease times records of each split, from its children's values."""
        size = self.sizes.astype(float)
        told = size[:, None] * self.values
        if self.criterion == "squared_error":
            told = np.column_stack([size, told])
        left = self.trees.left[inner]
        whole = told[left] + told[left + 1]
        worth = decreases(told[left][:, None], whole, self.criterion, 0)[:, 0]
        return np.asarray(np.maximum(worth, 0))

    def importances(self) -> np.ndarray:
        """Mean over trees of the decrease on each feature as a share of the tree's, the client last.

        Returns:
            shape (features + 1,), summing to 1, or zeros where nothing splits.
        """
        inner = np.flatnonzero(self.trees.feature != LEAF)
        cells = self.trees.tree_of[inner] * (self.features + 1) + self.trees.feature[inner]
        width = self.trees.roots * (self.features + 1)
        each = np.bincount(cells, self._decreases(inner), minlength=width)
        by_tree = each.astype(float).reshape(self.trees.roots, -1)
        whole = by_tree.sum(axis=1, keepdims=True)
        shares = np.divide(by_tree, whole, out=np.zeros_like(by_tree), where=whole > 0)
        total = shares.sum(axis=0)
        return np.asarray(total / max(total.sum(), 1e-300))
