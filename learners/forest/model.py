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

    def predict(self, x: np.ndarray, client: np.ndarray | None = None) -> np.ndarray:
        """Return class probabilities, or the target in its own unit; shape (rows, values).

        Args:
            x: encoded rows, shape (rows, features).
            client: index of each row's client, -1 if unknown; None: all unknown.
        """

    def importances(self) -> np.ndarray:
        """Return importances by feature, the client last; they sum to 1, or are zero for a constant."""

    def describe(self, tree: int | None) -> str:
        """Return one of its trees as text; for None, an overview."""

    def told(self, tree: int) -> str:
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

    def predict(self, x: np.ndarray, client: np.ndarray | None = None) -> np.ndarray:
        """See the base. At client splits, rows of unknown clients follow both branches, weighted by records."""
        columns, rows = single(x.T), len(x)
        mean = np.zeros((rows, self.values.shape[1]))
        clients = np.full(rows, -1)
        if client is not None and (self.trees.feature == self.features).any():
            clients = client
        for each in np.unique(clients):
            of_client = np.flatnonzero(clients == each)
            trees = self.trees if each < 0 else self.seen_by(int(each))
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
        at = np.repeat(np.arange(trees.roots), rows)
        row = np.tile(np.arange(rows), trees.roots)
        for leaf, here, weight in self._reached(trees, at, row, columns):
            for column in range(total.shape[1]):
                votes = self.values[leaf, column] * weight
                total[:, column] += np.bincount(here, votes, minlength=rows)
        return total / trees.roots

    def _reached(
        self, trees: BinaryTrees, at: np.ndarray, row: np.ndarray, columns: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield leaves that rows reach, with weights; rows of unknown clients follow both branches of client splits."""
        weight, sizes = np.ones(len(at)), self.sizes
        while len(at):
            inner = trees.inner[at]
            yield at[~inner], row[~inner], weight[~inner]
            at, row, weight = at[inner], row[inner], weight[inner]
            both = trees.feature[at] == self.features
            left = trees.left[at]
            right = trees.goes_right(at[~both], row[~both], columns)
            share = sizes[left[both]] / np.maximum(sizes[at[both]], 1)
            at = np.concatenate([left[~both] + right, left[both], left[both] + 1])
            row = np.concatenate([row[~both], row[both], row[both]])
            weight = np.concatenate(
                [weight[~both], weight[both] * share, weight[both] * (1 - share)]
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
        each = np.bincount(cells, gains, minlength=self.trees.roots * width)
        by_tree = each.astype(float).reshape(self.trees.roots, -1)
        whole = by_tree.sum(axis=1, keepdims=True)
        total = np.divide(by_tree, whole, out=np.zeros_like(by_tree), where=whole > 0).sum(axis=0)
        return np.asarray(total / max(total.sum(), 1e-300))

    # --- texts and plain data ---------------------------------------------------------

    def describe(self, tree: int | None) -> str:
        """Return one tree as rounded rules, one per leaf; for None, the first tree."""
        heading = f"{self.told(tree or 0)}, after the number of the sample's records there:"
        return "\n".join([heading, *rules.described(*self._read(tree or 0), self.schema)])

    def told(self, tree: int) -> str:
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
        plain, target = self.tree_dict(tree), self.schema.target
        assert target is not None
        if self.criterion == "squared_error":
            return plain | {"value": self._unscaled(np.array(plain["value"])).tolist()}, ()
        low, high = target.bounds
        return plain, target.categories or tuple(range(int(low), int(high) + 1))

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
        index = {int(node): at for at, node in enumerate(nodes)}
        plain: dict[str, list[Any]] = {
            key: [None] * len(nodes) for key in ("feature", "cut", "left_if", "left", "right")
        }
        for at in np.flatnonzero(trees.inner[nodes]):
            node, feature = nodes[at], int(trees.feature[nodes[at]])
            plain["feature"][at] = names[feature]
            plain["left"][at] = index[int(trees.left[node])]
            plain["right"][at] = plain["left"][at] + 1
            if trees.subset[node] < 0:
                plain["cut"][at] = float(trees.cut[node])
                continue
            values = _values_of(self.schema, self.clients, feature)
            plain["left_if"][at] = list(compress(values, trees.subsets[trees.subset[node]]))
        records, value = self.records[:, nodes].T.tolist(), self.values[nodes].tolist()
        return {**plain, "records": records, "value": value}

    @classmethod
    def from_state(
        cls, schema: Schema, clients: tuple[str, ...], state: Mapping[str, Any]
    ) -> FittedForest:
        """Rebuild from the output of :meth:`to_state` (a lookup, type or value error: invalid)."""
        trees, criterion = state["trees"], state["criterion"]
        if criterion not in CRITERIA or not trees:
            raise ValueError("a forest needs trees and a criterion")
        features = {CLIENT: len(schema.names)} | {n: at for at, n in enumerate(schema.names)}
        width = max([len(clients), 1, *(len(column.categories) for column in schema.features)])
        offset, rest = [], len(trees)
        for tree in trees:
            offset.append(rest - 1)
            rest += len(tree["feature"]) - 1
        feature, left = np.full(rest, LEAF, np.int32), np.zeros(rest, np.int32)
        cut, subset = np.zeros(rest, np.float32), np.full(rest, -1, np.int32)
        subsets: list[np.ndarray] = []
        values = np.zeros((rest, len(trees[0]["value"][0])))
        records = np.zeros((len(trees[0]["records"][0]), rest), np.int64)
        for number, tree in enumerate(trees):
            for at, name in enumerate(tree["feature"]):
                node = number if at == 0 else offset[number] + at
                values[node], records[:, node] = tree["value"][at], tree["records"][at]
                if name is None:
                    continue
                if tree["right"][at] != tree["left"][at] + 1:
                    raise ValueError("right children come after left ones")
                feature[node], left[node] = features[name], offset[number] + tree["left"][at]
                if tree["left_if"][at] is None:
                    cut[node] = tree["cut"][at]
                    continue
                subset[node] = len(subsets)
                known = _values_of(schema, clients, features[name])
                row = np.zeros(width, bool)
                row[[known.index(value) for value in tree["left_if"][at]]] = True
                subsets.append(row)
        rows = np.array(subsets) if subsets else np.zeros((0, width), bool)
        grown = BinaryTrees(len(trees), feature, cut, left, subset, rows)
        grown.seen_by(0, len(schema.features)).check(schema)
        return cls(grown, values, records, schema, clients, criterion)


def _values_of(schema: Schema, clients: tuple[str, ...], feature: int) -> tuple[str, ...]:
    """Return a feature's categories, or the clients."""
    return clients if feature == len(schema.features) else schema.features[feature].categories
