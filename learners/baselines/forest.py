"""Local-ensemble random forest (Hauschild et al. 2022): clients' own forests, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from privfed.disclosure import Disclosure
from privfed.errors import InputError, QueryError
from privfed.learners.base import Planned
from privfed.learners.baselines.base import BinaryBaseline, once
from privfed.part import Part, PartType
from privfed.query import Query, View
from privfed.schema import Schema

#: Columns of a node's row.
NODE = ("tree", "feature", "threshold", "left", "right", "value")


@dataclass(frozen=True)
class Forest(Query):
    """A client's own forest, node by node.

    Sensitivity: none is finite; one record can change every tree.

    Args:
        trees: how many.
        min_leaf: fewest records of a leaf.
    """

    trees: int
    min_leaf: int
    kind: ClassVar[str] = "baselines.forest"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``nodes``: a row for each node with the columns :data:`NODE`."""
        if schema.target is None or not (1 <= self.trees <= 10_000 and self.min_leaf >= 1):
            raise QueryError("malformed", "a forest needs a target, trees and leaves")
        return {"nodes": Part(PartType.ARTIFACT, ("node", "column"), (-1, len(NODE)))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Grow; a client without records sends no tree."""
        table = view.table
        if not len(table):
            return {"nodes": np.zeros((0, len(NODE)))}
        seed = int(view.rng(f"baselines.forest {self.digest}").integers(2**31))
        forest = RandomForestClassifier(
            self.trees, min_samples_leaf=self.min_leaf, random_state=seed
        ).fit(table.x, _unit_target(view))
        rows = [
            _rows(number, tree.tree_, forest.classes_)
            for number, tree in enumerate(forest.estimators_)
        ]
        return {"nodes": np.concatenate(rows)}


def _unit_target(view: View) -> np.ndarray:
    assert view.schema.target is not None
    low, high = view.schema.target.bounds
    unit: np.ndarray = (view.table.target - low) / (high - low)
    return unit.round()


def _rows(number: int, tree: Any, classes: np.ndarray) -> np.ndarray:
    weights = tree.value[:, 0]
    value = weights @ classes / weights.sum(axis=1)
    columns = (tree.feature, tree.threshold, tree.children_left, tree.children_right, value)
    return np.column_stack([np.full(tree.node_count, number), *columns]).astype(float)


class LocalForests(BinaryBaseline):
    """Averages all trees of all clients, each client with the same number of them.

    Args:
        trees: trees of each client.
        min_leaf: fewest records of a leaf.
    """

    queries: ClassVar[tuple[type[Query], ...]] = (Forest,)

    def __init__(self, trees: int = 100, min_leaf: int = 1) -> None:
        self.trees = trees
        self.min_leaf = min_leaf

    def check(self, schema: Schema) -> None:
        """Hold the target to two values and the parameters to their ranges."""
        super().check(schema)
        if not (1 <= self.trees <= 10_000 and self.min_leaf >= 1):
            raise InputError("trees must lie between 1 and 10,000, min_leaf be at least 1")

    def fit(self, federation: Disclosure) -> Self:
        """Ask once.

        Raises:
            InputError: a parameter makes no sense, or the target is not binary.
            NobodyAnswered: no client answered.
        """
        self._start(federation.schema)
        answers = federation.ask(Forest(self.trees, self.min_leaf))
        self.forests_ = [
            np.asarray(nodes) for nodes in answers.each("nodes").values() if len(nodes)
        ]
        return self

    def _second(self, x: np.ndarray) -> np.ndarray:
        if not self.forests_:
            return np.full(len(x), 0.5)
        each = [_forest_value(nodes, x.astype(np.float32)) for nodes in self.forests_]
        return np.asarray(np.mean(each, axis=0))

    def plan(self, schema: Schema) -> Sequence[Planned]:
        """One question."""
        return once(Forest(self.trees, self.min_leaf))

    def to_dict(self) -> dict[str, Any]:
        """Every node of every forest."""
        assert self.schema_.target is not None
        return {
            "model": "local-ensemble random forest",
            "target": self.schema_.target.name,
            "columns": list(NODE),
            "features": list(self.schema_.names),
            "forests": [nodes.tolist() for nodes in self.forests_],
        }


def _forest_value(nodes: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Mean leaf value over a forest's trees; all trees and rows walk down together."""
    starts = np.flatnonzero(np.diff(nodes[:, 0], prepend=-1))
    feature, threshold = nodes[:, 1].astype(int), nodes[:, 2]
    offset = np.repeat(starts, np.diff(np.append(starts, len(nodes))))
    children = np.where(nodes[:, 3:5] >= 0, nodes[:, 3:5] + offset[:, None], -1).astype(int)
    at = np.repeat(starts[:, None], len(x), axis=1)
    rows = np.arange(len(x))
    while (inner := children[at, 0] >= 0).any():
        right = x[rows, np.maximum(feature[at], 0)] > threshold[at]
        at = np.where(inner, children[at, right.astype(int)], at)
    values: np.ndarray = nodes[at, 5].mean(axis=0)
    return values
