"""Trees that each client grows alone, and one tree on all records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import PersonalLearner, Planned
from privfed.learners.baselines.base import (
    Baseline,
    BaselineClassifier,
    BaselineRegressor,
    Rows,
    once,
)
from privfed.learners.baselines.pooled import POOLED, RawBaseline
from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.client import Client
from privfed.learners.genetic_tree.personal import PersonalTree
from privfed.learners.genetic_tree.population import MOST_FOLDS, Scoring, check_depth
from privfed.learners.genetic_tree.structures import DEEPEST
from privfed.learners.parameters import Constraints, Integers
from privfed.privacy.policy import Policy
from privfed.questions.query import LocalEffect, LocalView, Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Schema


@dataclass(frozen=True)
class KeepOwn(LocalEffect):
    """Grow a tree on the client's records, its depth by cross-validation, and keep it there."""

    scoring: Scoring
    lowest: int
    deepest: int
    kind: ClassVar[str] = "baselines.own_tree"

    def check(self, schema: Schema) -> None:
        """Check that trees can have the depths."""
        self.scoring.check(schema)
        check_depth(self.lowest)
        check_depth(self.deepest)

    def take_effect(self, view: LocalView) -> None:
        """Store the tree on the client's shelf."""
        view.shelf[self.kind] = grown(view, self.scoring, self.lowest, self.deepest).to_dict()


def grown(view: View, scoring: Scoring, min_depth: int, max_depth: int) -> PersonalTree:
    """Return a CART tree of the depth chosen by cross-validation, on all records of a view."""
    client = Client.of(view, scoring.classify)
    depth = client.local_depth(scoring.folds, range(min_depth, max_depth + 1))
    nodes = local.cart(client.x, client.y, client.classes, depth)
    return PersonalTree.of_nodes(nodes, "own")


class _Trees(Baseline):
    """Depths and folds."""

    _parameter_constraints: ClassVar[Constraints] = {
        "min_depth": [Integers(1, DEEPEST)],
        "max_depth": [Integers(1, DEEPEST)],
        "cv": [Integers(2, MOST_FOLDS)],
    }

    def __init__(self, *, min_depth: int = 2, max_depth: int = 15, cv: int = 5) -> None:
        self.min_depth = min_depth
        self.max_depth = max_depth
        self.cv = cv

    @property
    def _scoring(self) -> Scoring:
        return Scoring(self._classifies, folds=self.cv)


class _LocalTree(_Trees, PersonalLearner):
    """Each client grows a tree alone; nothing is released."""

    queries: ClassVar[tuple[type[Query], ...]] = (KeepOwn,)

    def fit(self, federation: Disclosure) -> Self:
        self._start(federation)
        federation.ask(self._keep)
        return self

    @property
    def _keep(self) -> KeepOwn:
        return KeepOwn(self._scoring, self.min_depth, self.max_depth)

    def own(self, shelf: Mapping[str, Any]) -> PersonalTree:
        return PersonalTree.off_shelf(shelf[KeepOwn.kind], self.schema_, self._classifies)

    def _outputs(self, X: Rows, client: Any) -> np.ndarray:
        encoded = self._encode(X, client)
        tree: PersonalTree = self.at_home(client)
        return tree.predict(encoded)

    def published(self) -> Policy:
        return Policy({KeepOwn.kind: ()}, name="published")

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        return once(self._keep)

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Any) -> None:
        """Do nothing."""


class _CentralTree(_Trees, RawBaseline):
    """One tree on all records."""

    _pools: ClassVar[bool] = True

    def _fit_model(self, name: str, records: Records) -> PersonalTree:
        view = View(records, self.schema_, name.encode())
        return grown(view, self._scoring, self.min_depth, self.max_depth)

    def _outputs(self, X: Rows, client: Any) -> np.ndarray:
        tree: PersonalTree = self.models_[POOLED]
        return tree.predict(self._encode(X, client))

    def _read(self, data: Mapping[str, Any]) -> PersonalTree:
        return PersonalTree.checked(data, self.schema_, self._classifies)


class LocalTreeClassifier(BaselineClassifier, _LocalTree):
    """A tree at each client, grown alone.

    Args:
        min_depth: minimum depth tried by cross-validation.
        max_depth: maximum one.
        cv: number of folds.
    """


class LocalTreeRegressor(BaselineRegressor, _LocalTree):
    """A regression tree at each client, grown alone; parameters as :class:`LocalTreeClassifier`."""


class CentralTreeClassifier(_CentralTree, BaselineClassifier):
    """One tree on all records; parameters as :class:`LocalTreeClassifier`."""


class CentralTreeRegressor(_CentralTree, BaselineRegressor):
    """One regression tree on all records; parameters as :class:`LocalTreeClassifier`."""
