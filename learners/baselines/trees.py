"""Trees that each client grows alone, and the tree of all records together: two ends to compare with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd

from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import FederatedClassifier, FederatedRegressor, PersonalLearner, Planned
from privfed.learners.baselines.base import Baseline
from privfed.learners.baselines.pooled import RawRecords
from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.client import Client
from privfed.learners.genetic_tree.personal import PersonalTree
from privfed.learners.genetic_tree.population import MOST_FOLDS, Scoring, check_depth, classes
from privfed.learners.genetic_tree.structures import DEEPEST
from privfed.learners.parameters import Constraints, Whole
from privfed.privacy.policy import Policy
from privfed.questions.query import LocalEffect, LocalView, Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Schema


@dataclass(frozen=True)
class KeepOwn(LocalEffect):
    """Grow a tree alone, its depth by cross-validation, and keep it; nothing leaves."""

    scoring: Scoring
    lowest: int
    deepest: int
    kind: ClassVar[str] = "baselines.own_tree"

    def check(self, schema: Schema) -> None:
        """Hold depths to what trees can have."""
        self.scoring.check(schema)
        check_depth(self.lowest)
        check_depth(self.deepest)

    def take_effect(self, view: LocalView) -> None:
        """Put it on the client's shelf."""
        view.shelf[self.kind] = grown(view, self.scoring, self.lowest, self.deepest).to_dict()


def grown(view: View, scoring: Scoring, lowest: int, deepest: int) -> PersonalTree:
    """A CART tree of the depth that cross-validation prefers, on all records of a view."""
    client = Client.of(view, scoring.classify)
    depths = range(lowest, deepest + 1)
    depth = client.own_depth(scoring.folds, depths)
    nodes = local.cart(client.x, client.y, client.classes, depth)
    return PersonalTree.of_nodes(nodes, "own")


class _Trees(Baseline):
    """What both ends share: depths and folds."""

    _classify: ClassVar[bool]
    _parameter_constraints: ClassVar[Constraints] = {
        "lowest": [Whole(1, DEEPEST)],
        "deepest": [Whole(1, DEEPEST)],
        "folds": [Whole(2, MOST_FOLDS)],
    }

    def __init__(self, *, lowest: int = 2, deepest: int = 15, folds: int = 5) -> None:
        self.lowest = lowest
        self.deepest = deepest
        self.folds = folds

    @property
    def _scoring(self) -> Scoring:
        return Scoring(self._classify, folds=self.folds)


class _LocalTree(_Trees, PersonalLearner):
    """Each client grows a tree alone; nothing is asked for that leaves."""

    queries: ClassVar[tuple[type[Query], ...]] = (KeepOwn,)

    def fit(self, federation: Disclosure) -> Self:
        """Ask every client to keep a tree of its own."""
        self._start(federation)
        federation.ask(KeepOwn(self._scoring, self.lowest, self.deepest))
        return self

    def own(self, shelf: Mapping[str, Any]) -> PersonalTree:
        """A client's tree, off its shelf.

        Raises:
            KeyError: it keeps none.
            InputError: it keeps a tree over another schema, or a damaged one.
        """
        outputs = classes(self.schema_) if self._scoring.classify else 1
        return PersonalTree.off_shelf(shelf[KeepOwn.kind], self.schema_, outputs)

    def _said(self, x: pd.DataFrame | np.ndarray, client: str | None) -> np.ndarray:
        encoded = self._encode(x, client)
        tree: PersonalTree = self.at_home(client)
        return tree.predict(encoded)

    def published(self) -> Policy:
        """A local effect, and nothing else."""
        return Policy({KeepOwn.kind: ()}, name="published")

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """One question, of which nothing leaves."""
        return [Planned(KeepOwn(self._scoring, self.lowest, self.deepest), 1)]

    def state(self) -> dict[str, Any]:
        """Nothing: the trees are the clients'."""
        return {}

    def restore(self, state: Any) -> None:
        """Nothing."""


class _CentralTree(_Trees):
    """All records leave, and one tree is grown on them."""

    queries: ClassVar[tuple[type[Query], ...]] = (RawRecords,)
    #: The tree, set by ``fit``.
    tree_: PersonalTree

    def fit(self, federation: Disclosure) -> Self:
        """Ask for the records, pool them, grow; sets ``tree_``."""
        self._start(federation)
        tables = [
            np.asarray(each) for each in federation.ask(RawRecords()).each("records").values()
        ]
        pooled = np.concatenate(tables)
        records = Records(self.schema_, pooled[:, :-1], pooled[:, -1])
        view = View(records, self.schema_, b"pooled")
        self.tree_ = grown(view, self._scoring, self.lowest, self.deepest)
        return self

    def _said(self, x: pd.DataFrame | np.ndarray, client: str | None) -> np.ndarray:
        return self.tree_.predict(self._encode(x, client))

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """One question, for everything."""
        return [Planned(RawRecords(), 1)]

    def state(self) -> dict[str, Any]:
        """The tree."""
        return self.tree_.to_dict()

    def restore(self, state: Any) -> None:
        """Read the tree."""
        self.tree_ = PersonalTree.from_dict(state)
        self.tree_.tree.check(self.schema_)


class _Classes(FederatedClassifier):
    """What classifiers share."""

    _classify: ClassVar[bool] = True

    def predict_proba(
        self, x: pd.DataFrame | np.ndarray, *, client: str | None = None
    ) -> np.ndarray:
        """Shares of the classes in each row's leaf, shape (rows, classes)."""
        return self._said(x, client)

    if TYPE_CHECKING:

        def _said(self, x: pd.DataFrame | np.ndarray, client: str | None) -> np.ndarray: ...


class _Numbers(FederatedRegressor):
    """What regressors share."""

    _classify: ClassVar[bool] = False

    def predict(self, x: pd.DataFrame | np.ndarray, *, client: str | None = None) -> np.ndarray:
        """The mean of each row's leaf, shape (rows,)."""
        return self._said(x, client)[:, 0]

    if TYPE_CHECKING:

        def _said(self, x: pd.DataFrame | np.ndarray, client: str | None) -> np.ndarray: ...


class LocalTreeClassifier(_Classes, _LocalTree):
    """A tree at each client, grown alone.

    Args:
        lowest: least depth that cross-validation tries.
        deepest: greatest one.
        folds: of cross-validation.
    """


class LocalTreeRegressor(_Numbers, _LocalTree):
    """A regression tree at each client, grown alone; parameters as :class:`LocalTreeClassifier`."""


class CentralTreeClassifier(_Classes, _CentralTree):
    """One tree on all records; parameters as :class:`LocalTreeClassifier`."""


class CentralTreeRegressor(_Numbers, _CentralTree):
    """One regression tree on all records; parameters as :class:`LocalTreeClassifier`."""
