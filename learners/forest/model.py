"""A grown forest: predictions, importances, texts, and its form as plain data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from privfed.errors import InputError
from privfed.learners.forest import rules
from privfed.learners.forest.columns import single
from privfed.learners.forest.gains import decreases
from privfed.learners.forest.trees import LEAF, BinaryTrees
from privfed.learners.impurity import CRITERIA, Criterion
from privfed.tables.schema import Schema, shown

if TYPE_CHECKING:
    from privfed.learners.pictures import TreeNode

BLOCK = 2_000_000  #: Rows times trees that are predicted at once
CLIENT = "(client)"  #: Feature name of splits on the client


class ForestModel(Protocol):
    """Interface of a forest learned in either way."""

    def predict(self, X: np.ndarray, client: np.ndarray | None = None) -> np.ndarray:
        """Return class probabilities, or the target in its own unit; shape (rows, values).

        Args:
            X: encoded rows, shape (rows, features).
            client: index of each row's client, -1 if unknown; None: all unknown.
        """

    def importances(self) -> np.ndarray:
        """Return importances by feature, the client last; they sum to 1, or are zero for a constant."""

    def describe(self, tree: int | None) -> str:
        """Return one of its trees as text; for None, an overview."""

    def caption(self, tree: int) -> str:
        """Describe a tree's number and its leaves' values (InputError: no such tree)."""

    def drawn(self, tree: int) -> TreeNode:
        """Return one tree for plotting."""

    def to_text(self, head: Mapping[str, Any]) -> str:
        """Return all trees as text rules, after a line of JSON."""

    def readable(self) -> dict[str, str]:
        """Return the kind of model, and the meaning of its nodes' values."""

    def to_state(self) -> dict[str, Any]:
        """Return the state, without schema and clients, as plain data."""


@dataclass(frozen=True, eq=False)
class FittedForest:
    """Trees with a value at every node; a :class:`ForestModel`."""

    trees: BinaryTrees  #: the trees
    values: np.ndarray  #: class fractions, or the scaled mean target, shape (nodes, values)
    records: np.ndarray  #: records of the sample at each node, by client, shape (clients, nodes)
    schema: Schema  #: the public data dictionary
    clients: tuple[str, ...]  #: names of the clients
    criterion: Criterion  #: the impurity, for importances

    @property
    def features(self) -> int:
        """Number of features, which is also the client's index in trees."""
        return len(self.schema.features)

    @property
    def sizes(self) -> np.ndarray:
        """Records of the sample at each node, shape (nodes,)."""
        return np.asarray(self.records.sum(axis=0))

    def seen_by(self, client: int) -> BinaryTrees:
        """Return the trees with every split on the client decided for one client."""
        return self.trees.seen_by(client, self.features)

    # --- predicting ----------------------------------------------------------------------------

    def predict(self, X: np.ndarray, client: np.ndarray | None = None) -> np.ndarray:
        """See the base. At client splits, rows of unknown clients follow both branches, weighted by records."""
        columns, rows = single(X.T), len(X)
        mean = np.zeros((rows, self.values.shape[1]))
        clients = np.full(rows, -1)
        if client is not None and (self.trees.feature == self.features).any():
            clients = client
        for index in np.unique(clients):
            of_client = np.flatnonzero(clients == index)
            trees = self.trees if index < 0 else self.seen_by(int(index))
            step = max(1, BLOCK // self.trees.roots)
            for first in range(0, len(of_client), step):
                part = of_client[first : first + step]
                mean[part] = self._mean(trees, columns[:, part])
        if self.criterion != "squared_error":
            return mean
        return self._unscaled(mean)

    def _unscaled(self, mean: np.ndarray) -> np.ndarray:
        """Return means of the scaled target in the target's unit."""
        assert self.schema.target is not None
        low, high = self.schema.target.bounds
        return np.asarray((mean + 0.5) * (high - low) + low)

    def _mean(self, trees: BinaryTrees, columns: np.ndarray) -> np.ndarray:
        rows, total = columns.shape[1], np.zeros((columns.shape[1], self.values.shape[1]))
        nodes = np.repeat(np.arange(trees.roots), rows)
        row = np.tile(np.arange(rows), trees.roots)
        for leaf, samples, weight in self._leaf_weights(trees, nodes, row, columns):
            for column in range(total.shape[1]):
                votes = self.values[leaf, column] * weight
                total[:, column] += np.bincount(samples, votes, minlength=rows)
        return total / trees.roots

    def _leaf_weights(
        self, trees: BinaryTrees, nodes: np.ndarray, row: np.ndarray, columns: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield leaves that rows reach, with weights; rows of unknown clients follow both branches of client splits."""
        weight, sizes = np.ones(len(nodes)), self.sizes
        while len(nodes):
            inner = trees.inner[nodes]
            yield nodes[~inner], row[~inner], weight[~inner]
            nodes, row, weight = nodes[inner], row[inner], weight[inner]
            both = trees.feature[nodes] == self.features
            left = trees.left[nodes]
            right = trees.goes_right(nodes[~both], row[~both], columns)
            fraction = sizes[left[both]] / np.maximum(sizes[nodes[both]], 1)
            nodes = np.concatenate([left[~both] + right, left[both], left[both] + 1])
            row = np.concatenate([row[~both], row[both], row[both]])
            weight = np.concatenate(
                [weight[~both], weight[both] * fraction, weight[both] * (1 - fraction)]
            )

    def importances(self) -> np.ndarray:
        """See the base: mean over trees of the fraction of the tree's decrease, from its nodes' values."""
        inner, width = np.flatnonzero(self.trees.inner), self.features + 1
        size = self.sizes.astype(float)
        statistics = size[:, None] * self.values
        if self.criterion == "squared_error":
            statistics = np.column_stack([size, statistics])
        left, right = (statistics[self.trees.left[inner] + side] for side in (0, 1))
        gains = np.maximum(decreases(left[:, None], left + right, self.criterion, 0)[:, 0], 0)
        cells = self.trees.tree_of[inner] * width + self.trees.feature[inner]
        sums = np.bincount(cells, gains, minlength=self.trees.roots * width)
        by_tree = sums.astype(float).reshape(self.trees.roots, -1)
        whole = by_tree.sum(axis=1, keepdims=True)
        total = np.divide(by_tree, whole, out=np.zeros_like(by_tree), where=whole > 0).sum(axis=0)
        return np.asarray(total / max(total.sum(), 1e-300))

    # --- texts and plain data ---------------------------------------------------------

    def describe(self, tree: int | None) -> str:
        """Return one tree as rounded rules, one per leaf; for None, the first tree."""
        heading = f"{self.caption(tree or 0)}, after the number of the sample's records there:"
        data, classes = self._read(tree or 0)
        notes = rules.notes(data, self.schema)
        return "\n".join([heading, *rules.described(data, classes, self.schema), *notes])

    def caption(self, tree: int) -> str:
        """See the base."""
        last, target = self.trees.roots - 1, self.schema.target
        assert target is not None
        if not 0 <= tree <= last:
            raise InputError(f"there is no tree {tree}; the last is {last}")
        numbers, name = self.criterion == "squared_error", shown(target.name)
        leaves = f"means of {name}" if numbers else f"fractions of the classes of {name}"
        return f"tree {tree}, from 0 to {last}, whose mean is the model; its leaves have {leaves}"

    def drawn(self, tree: int) -> TreeNode:
        """See the base."""
        return rules.drawn(*self._read(tree), self.schema)

    def _read(self, tree: int) -> tuple[dict[str, list[Any]], Sequence[object]]:
        """Return one tree for display, with means in the target's unit, and the classes' names, if any."""
        data, target = self.tree_dict(tree), self.schema.target
        assert target is not None
        if self.criterion == "squared_error":
            return data | {"value": self._unscaled(np.array(data["value"])).tolist()}, ()
        low, high = target.bounds
        return data, target.categories or tuple(range(int(low), int(high) + 1))

    def to_text(self, head: Mapping[str, Any]) -> str:
        """See the base; :func:`.rules.parse` reads it."""
        parts = [json.dumps({**head, "criterion": self.criterion})]
        for tree in range(self.trees.roots):
            parts += [f"tree {tree}:", *rules.lines(self.tree_dict(tree))]
        return "\n".join(parts) + "\n"

    def readable(self) -> dict[str, str]:
        """See the base."""
        assert self.schema.target is not None
        numbers = self.criterion == "squared_error"
        return {
            "model": "federated random forest",
            "target": self.schema.target.name,
            "value": "mean target, scaled to [-1/2, 1/2]" if numbers else "class shares",
        }

    def to_state(self) -> dict[str, Any]:
        """Return trees as dictionaries of lists, one item per node, readable without privfed.

        ``feature`` (a name, ``"(client)"``, or None for a leaf), ``cut`` (values at most that go
        left), ``left_if`` (categories or clients that go left), ``left`` and ``right`` (indices of
        the children), ``records`` (by client) and ``value``.
        """
        trees = [self.tree_dict(tree) for tree in range(self.trees.roots)]
        return {"criterion": self.criterion, "trees": trees}

    def tree_dict(self, tree: int) -> dict[str, list[Any]]:
        """Return one tree; see :meth:`to_state`."""
        trees, names = self.trees, (*self.schema.names, CLIENT)
        nodes = np.flatnonzero(trees.tree_of == tree)
        index = {int(node): item for item, node in enumerate(nodes)}
        data: dict[str, list[Any]] = {
            key: [None] * len(nodes) for key in ("feature", "cut", "left_if", "left", "right")
        }
        for item in np.flatnonzero(trees.inner[nodes]):
            node, feature = nodes[item], int(trees.feature[nodes[item]])
            data["feature"][item] = names[feature]
            data["left"][item] = index[int(trees.left[node])]
            data["right"][item] = data["left"][item] + 1
            if trees.subset[node] < 0:
                data["cut"][item] = float(trees.cut[node])
                continue
            values = _values_of(self.schema, self.clients, feature)
            data["left_if"][item] = list(compress(values, trees.subsets[trees.subset[node]]))
        records, value = self.records[:, nodes].T.tolist(), self.values[nodes].tolist()
        return {**data, "records": records, "value": value}

    @classmethod
    def from_state(
        cls, schema: Schema, clients: tuple[str, ...], state: Mapping[str, Any]
    ) -> FittedForest:
        """Rebuild from the output of :meth:`to_state` (a lookup, type or value error: invalid)."""
        trees, criterion = state["trees"], state["criterion"]
        if criterion not in CRITERIA or not trees:
            raise ValueError("a forest needs trees and a criterion")
        features = {CLIENT: len(schema.names)} | {n: item for item, n in enumerate(schema.names)}
        width = max([len(clients), 1, *(len(column.categories) for column in schema.features)])
        offset, n_nodes = [], len(trees)
        for tree in trees:
            offset.append(n_nodes - 1)
            n_nodes += len(tree["feature"]) - 1
        feature, left = np.full(n_nodes, LEAF, np.int32), np.zeros(n_nodes, np.int32)
        cut, subset = np.zeros(n_nodes, np.float32), np.full(n_nodes, -1, np.int32)
        subsets: list[np.ndarray] = []
        values = np.zeros((n_nodes, len(trees[0]["value"][0])))
        records = np.zeros((len(trees[0]["records"][0]), n_nodes), np.int64)
        for number, tree in enumerate(trees):
            for item, name in enumerate(tree["feature"]):
                node = number if item == 0 else offset[number] + item
                values[node], records[:, node] = tree["value"][item], tree["records"][item]
                if name is None:
                    continue
                if tree["right"][item] != tree["left"][item] + 1:
                    raise ValueError("right children come after left ones")
                feature[node], left[node] = features[name], offset[number] + tree["left"][item]
                if tree["left_if"][item] is None:
                    cut[node] = tree["cut"][item]
                    continue
                subset[node] = len(subsets)
                known = _values_of(schema, clients, features[name])
                row = np.zeros(width, bool)
                row[[known.index(value) for value in tree["left_if"][item]]] = True
                subsets.append(row)
        rows = np.array(subsets) if subsets else np.zeros((0, width), bool)
        forest = BinaryTrees(len(trees), feature, cut, left, subset, rows)
        forest.seen_by(0, len(schema.features)).check(schema)
        return cls(forest, values, records, schema, clients, criterion)


def _values_of(schema: Schema, clients: tuple[str, ...], feature: int) -> tuple[str, ...]:
    """Return a feature's categories, or the clients."""
    return clients if feature == len(schema.features) else schema.features[feature].categories
