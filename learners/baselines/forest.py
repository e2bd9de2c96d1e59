"""Local-ensemble random forest (Hauschild et al. 2022): clients' own forests, combined."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from privfed.errors import QueryError
from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import Planned
from privfed.learners.baselines.base import BinaryBaseline, once
from privfed.learners.baselines.scikit_forest import forest_of
from privfed.learners.parameters import Constraints, Integers
from privfed.privacy.policy import Policy
from privfed.questions import tree
from privfed.questions.part import Part, PartType
from privfed.questions.query import Query, View
from privfed.tables.schema import Schema

#: Maximum trees of a client, and maximum of ``min_leaf``.
MAX_TREES, MAX_LEAF = 10_000, 10**9
NODE = ("tree", "feature", "threshold", "left", "right", "value")  #: Columns of a node's row


@dataclass(frozen=True)
class LocalForest(Query):
    """A client's own forest, node by node.

    Sensitivity: none is finite; one record can change every tree.
    """

    trees: int  #: number of trees
    min_leaf: int  #: minimum records of a leaf
    kind: ClassVar[str] = "baselines.forest"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``nodes``: one row per node with the columns :data:`NODE`."""
        valid = 1 <= self.trees <= MAX_TREES and 1 <= self.min_leaf <= MAX_LEAF
        if schema.target is None or not valid:
            raise QueryError("malformed", "a forest needs a target, trees and leaves")
        return {"nodes": Part(PartType.ARTIFACT, ("node", "column"), (-1, len(NODE)))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Grow the trees; a client without records sends none."""
        table = view.table
        if not len(table):
            return {"nodes": np.zeros((0, len(NODE)))}
        assert view.schema.target is not None
        low, high = view.schema.target.bounds
        seed = int(view.rng(f"baselines.forest {self.digest}").integers(2**31))
        forest = RandomForestClassifier(
            self.trees, min_samples_leaf=self.min_leaf, random_state=seed
        ).fit(table.x, ((table.target - low) / (high - low)).round())
        rows = [
            _rows(number, tree.tree_, forest.classes_)
            for number, tree in enumerate(forest.estimators_)
        ]
        return {"nodes": np.concatenate(rows)}


def _rows(number: int, tree: Any, classes: np.ndarray) -> np.ndarray:
    weights = tree.value[:, 0]
    value = weights @ classes / weights.sum(axis=1)
    columns = (tree.feature, tree.threshold, tree.children_left, tree.children_right, value)
    return np.column_stack([np.full(tree.node_count, number), *columns]).astype(float)


class LocalForests(BinaryBaseline):
    """Averages all trees of all clients, each client with the same number of them.

    Args:
        n_estimators: trees of each client.
        min_samples_leaf: minimum records of a leaf.
    """

    queries: ClassVar[tuple[type[Query], ...]] = (LocalForest,)
    _parameter_constraints: ClassVar[Constraints] = {
        "n_estimators": [Integers(at_least=1, at_most=MAX_TREES)],
        "min_samples_leaf": [Integers(at_least=1, at_most=MAX_LEAF)],
    }

    def __init__(self, n_estimators: int = 100, min_samples_leaf: int = 1) -> None:
        self.n_estimators = n_estimators
        self.min_samples_leaf = min_samples_leaf

    def fit(self, federation: Disclosure) -> Self:
        """Query once; errors as for the base."""
        self._start(federation)
        answers = federation.ask(LocalForest(self.n_estimators, self.min_samples_leaf))
        self.forests_ = [
            np.asarray(nodes) for nodes in answers.each("nodes").values() if len(nodes)
        ]
        return self

    def _second(self, X: np.ndarray) -> np.ndarray:
        if not self.forests_:
            return np.full(len(X), 0.5)
        probabilities = [_to_forest(nodes).mean(X, nodes[:, 5]) for nodes in self.forests_]
        return np.asarray(np.mean(probabilities, axis=0))

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """Return one query."""
        return once(LocalForest(self.n_estimators, self.min_samples_leaf))

    def readable(self) -> dict[str, Any]:
        """Return the meaning of the node columns in the state's forests."""
        names = {"columns": list(NODE), "features": list(self.schema_.names)}
        return self._model_info("local-ensemble random forest", **names)

    def restore(self, state: Mapping[str, Any]) -> None:
        """See the base; saved trees are checked to have no cycles."""
        super().restore(state)
        for nodes in self.forests_:
            _to_forest(nodes).check(self.schema_)


def _to_forest(nodes: np.ndarray) -> tree.Forest:
    starts = np.flatnonzero(np.diff(nodes[:, 0], prepend=-1))
    return forest_of([tuple(rows[:, 1:5].T) for rows in np.split(nodes, starts[1:])])
