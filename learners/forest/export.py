"""A forest as plain data, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from privfed.learners.forest.gains import CRITERIA
from privfed.learners.forest.model import FittedForest
from privfed.learners.forest.trees import LEAF, Trees
from privfed.tables.schema import Schema

if TYPE_CHECKING:
    from privfed.learners.forest.estimator import _FedForest

#: What stands for a feature where a node splits on the client.
CLIENT = "(client)"


def state_of(learner: _FedForest) -> dict[str, Any]:
    """A fitted forest as plain data, readable without privfed.

    Trees are dictionaries of lists, a place for each node: ``feature`` (a name, ``"(client)"``, or
    none for a leaf), ``cut`` (at most that goes left), ``left_if`` (the categories or clients that go
    left), ``left`` and ``right`` (places of the children), ``records`` (by client) and ``value``.
    """
    forest = learner.forest_
    trees = [tree_dict(learner, tree) for tree in range(forest.trees.roots)]
    return {"criterion": forest.criterion, "trees": trees}


def tree_dict(learner: _FedForest, tree: int) -> dict[str, list[Any]]:
    """One tree, a place in each list for each node."""
    forest, names = learner.forest_, _names(learner)
    nodes = np.flatnonzero(forest.trees.tree_of == tree)
    place = {int(node): at for at, node in enumerate(nodes)}
    trees, inner = forest.trees, forest.trees.feature[nodes] != LEAF
    left = [place[int(c)] if i else None for c, i in zip(trees.left[nodes], inner, strict=True)]
    right = [
        place[int(c) + 1] if i else None for c, i in zip(trees.left[nodes], inner, strict=True)
    ]
    return {
        "feature": [names[int(f)] if f != LEAF else None for f in trees.feature[nodes]],
        "cut": [
            float(trees.cut[n]) if i and trees.subset[n] < 0 else None
            for n, i in zip(nodes, inner, strict=True)
        ],
        "left_if": [_subset(learner, int(n)) for n in nodes],
        "left": left,
        "right": right,
        "records": forest.records[:, nodes].T.tolist(),
        "value": forest.values[nodes].tolist(),
    }


def _names(learner: _FedForest) -> list[str]:
    return [*learner.schema_.names, CLIENT]


def _subset(learner: _FedForest, node: int) -> list[str] | None:
    trees = learner.forest_.trees
    row = int(trees.subset[node])
    if row < 0:
        return None
    values = _values_of(learner.schema_, learner.clients_, int(trees.feature[node]))
    return [value for value, left in zip(values, trees.subsets[row], strict=False) if left]


def _values_of(schema: Schema, clients: tuple[str, ...], feature: int) -> tuple[str, ...]:
    return clients if feature == len(schema.features) else schema.features[feature].categories


def forest_of(schema: Schema, clients: tuple[str, ...], state: Mapping[str, Any]) -> FittedForest:
    """The forest from what :func:`state_of` gave.

    Raises:
        ValueError, TypeError, LookupError, QueryError: it makes no sense.
    """
    trees, criterion = state["trees"], state["criterion"]
    if criterion not in CRITERIA or not trees:
        raise ValueError("a forest needs trees and a criterion")
    features = {name: at for at, name in enumerate((*schema.names, CLIENT))}
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
    grown = Trees(len(trees), feature, cut, left, subset, rows)
    grown.seen_by(0, len(schema.features)).check(schema)
    return FittedForest(grown, values, records, len(schema.features), criterion)
