"""scikit-learn's forest at the two ends: on the pooled records, and on each client's own.

Categories are encoded once by what they say of the target (Fisher's order at the root), for
scikit-learn's trees cut numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from privfed.errors import InputError
from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import FederatedClassifier, FederatedRegressor, Planned
from privfed.learners.baselines.base import Baseline, once
from privfed.learners.baselines.pooled import RawRecords
from privfed.learners.forest.columns import class_count
from privfed.learners.parameters import Constraints, OneOf, Real, Whole
from privfed.learners.plain import plain, restored
from privfed.privacy.policy import Policy
from privfed.questions import tree
from privfed.questions.query import Query
from privfed.tables.schema import Schema

#: What the one forest of all records is called among ``models_``.
_POOLED = "pooled"


@dataclass(frozen=True, eq=False)
class Encoded:
    """A grown forest, and what its categories are replaced by.

    Args:
        forest: the trees.
        values: class shares, or the mean target, of each node; shape (nodes, values).
        codes: a number for each category of each categorical feature, by the feature's place.
    """

    forest: tree.Forest
    values: np.ndarray
    codes: Mapping[int, np.ndarray]

    @classmethod
    def grown(cls, model: Any, schema: Schema, table: np.ndarray, classes: int) -> Encoded:
        """Order the categories by their mean target (of the most frequent class), and fit.

        Args:
            model: scikit-learn's forest, not fitted yet.
            schema: the public data dictionary.
            table: records, the target last.
            classes: how many there are; 0 for numbers.
        """
        x, y = table[:, :-1], table[:, -1]
        said = (y == np.bincount((y - y.min()).astype(int)).argmax() + y.min()) if classes else y
        codes = {
            place: _means(x[:, place].astype(int), said, len(column.categories))
            for place, column in enumerate(schema.features)
            if column.categories
        }
        model.fit(_numbers(x, codes), y)
        trees = [own.tree_ for own in model.estimators_]
        forest = tree.Forest.of(
            [
                tree.Tree.binary(
                    own.feature,
                    tree.cuts_of_thresholds(own.threshold),
                    own.children_left,
                    own.children_right,
                )
                for own in trees
            ]
        )
        told = np.concatenate([own.value[:, 0] for own in trees])
        if not classes:
            return cls(forest, told, codes)
        assert schema.target is not None
        values = np.zeros((len(told), classes))
        seen = (model.classes_ - schema.target.bounds[0]).astype(int)
        values[:, seen] = told / told.sum(axis=1, keepdims=True)
        return cls(forest, values, codes)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """The mean over trees, shape (rows, values)."""
        return self.forest.mean(_numbers(x, self.codes), self.values)

    def state(self) -> dict[str, Any]:
        """Plain data, from which :meth:`restored` makes it again."""
        own = self.forest
        arrays = (own.feature, own.children, own.cuts, own.categories, own.roots, self.values)
        codes = {str(place): plain(array) for place, array in self.codes.items()}
        return {"arrays": [plain(array) for array in arrays], "codes": codes}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Encoded:
        """Read what :meth:`state` gave."""
        *trees, values = (restored(array) for array in state["arrays"])
        codes = {int(place): restored(array) for place, array in state["codes"].items()}
        return cls(tree.Forest(*trees), values, codes)


def _numbers(x: np.ndarray, codes: Mapping[int, np.ndarray]) -> np.ndarray:
    """The rows with numbers for categories."""
    x = x.copy()
    for place, numbers in codes.items():
        x[:, place] = numbers[x[:, place].astype(int)]
    return x


def _means(codes: np.ndarray, said: np.ndarray, categories: int) -> np.ndarray:
    sums = np.bincount(codes, said, categories)
    counts = np.bincount(codes, minlength=categories)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), said.mean()))


class _ScikitForest(Baseline):
    """Asks for all records, then fits scikit-learn's forest to them."""

    queries: ClassVar[tuple[type[Query], ...]] = (RawRecords,)
    _predicts_classes: ClassVar[bool]
    #: Whether each client's records are learned from on their own.
    _apart: ClassVar[bool]
    _parameter_constraints: ClassVar[Constraints] = {
        "trees": [Whole(at_least=1, at_most=10_000)],
        "max_depth": [Whole(at_least=1), None],
        "min_leaf": [Whole(at_least=1)],
        "max_features": [Whole(at_least=1), Real(above=0, at_most=1), OneOf("sqrt", "log2"), None],
        "random_state": [Whole(at_least=0), None],
    }

    #: The fitted forests: one, or one for each client that has records.
    models_: dict[str, Encoded]

    def __init__(
        self,
        *,
        trees: int = 100,
        max_depth: int | None = 10,
        min_leaf: int = 5,
        max_features: float | str | None = None,
        random_state: int | None = None,
    ) -> None:
        self.trees = trees
        self.max_depth = max_depth
        self.min_leaf = min_leaf
        self.max_features = max_features
        self.random_state = random_state

    def fit(self, federation: Disclosure) -> Self:
        """Ask for the records and fit; sets ``models_``.

        Raises:
            InputError: the target is of another kind, or nobody has a record.
            NobodyAnswered: no client answered.
        """
        self._start(federation)
        told = federation.ask(RawRecords()).each("records")
        tables = {client: np.asarray(table) for client, table in told.items() if len(table)}
        if not tables:
            raise InputError("no client has a record to learn from")
        if not self._apart:
            tables = {_POOLED: np.concatenate(list(tables.values()))}
        classes = class_count(self.schema_) if self._predicts_classes else 0
        self.models_ = {
            name: Encoded.grown(self._forest(), self.schema_, table, classes)
            for name, table in tables.items()
        }
        return self

    def _forest(self) -> Any:
        kind = RandomForestClassifier if self._predicts_classes else RandomForestRegressor
        return kind(
            self.trees,
            max_depth=self.max_depth,
            min_samples_leaf=self.min_leaf,
            max_features=1.0 if self.max_features is None else self.max_features,
            random_state=self.random_state,
        )

    def _each(self, x: pd.DataFrame | np.ndarray, client: str | Sequence[str] | None) -> np.ndarray:
        """Class shares or the mean target: of a row's own client where it is known, else the mean."""
        rows = self._encode(x)
        values = {name: model.predict(rows) for name, model in self.models_.items()}
        mean = np.asarray(np.mean(list(values.values()), axis=0))
        if client is None or not self._apart:
            return mean
        one = isinstance(client, str)
        names = np.full(len(rows), client) if one else np.asarray(client).astype(str)
        for name, own in values.items():
            mean[names == name] = own[names == name]
        return mean

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """One question, for everything."""
        return once(RawRecords())

    def readable(self) -> dict[str, Any]:
        """What was fitted, and how large it is."""
        assert self.schema_.target is not None
        nodes = {name: len(model.forest.feature) for name, model in self.models_.items()}
        return {
            "model": "scikit-learn's random forest",
            "target": self.schema_.target.name,
            "nodes": nodes,
        }

    def state(self) -> dict[str, Any]:
        """Each forest's arrays."""
        return {name: model.state() for name, model in self.models_.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See the base."""
        self.models_ = {name: Encoded.restored(own) for name, own in state.items()}
        for model in self.models_.values():
            model.forest.check(self.schema_)


class _Classes(_ScikitForest, FederatedClassifier):
    _predicts_classes: ClassVar[bool] = True

    def predict_proba(
        self, x: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Class probabilities, shape (rows, classes); of each row's own client where it is given."""
        return self._each(x, client)

    def predict(
        self, x: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """The likeliest class of each row."""
        likeliest: np.ndarray = self.classes_[self._each(x, client).argmax(axis=1)]
        return likeliest


class _Numbers(_ScikitForest, FederatedRegressor):
    _predicts_classes: ClassVar[bool] = False

    def predict(
        self, x: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """The mean target of each row; of its own client's forest where that is given."""
        return self._each(x, client)[:, 0]


class CentralForestClassifier(_Classes):
    """scikit-learn's forest on the pooled records, for classes.

    Args:
        trees, max_depth, min_leaf, random_state: as scikit-learn's ``n_estimators``, ``max_depth``,
            ``min_samples_leaf``, ``random_state``.
        max_features: as scikit-learn's; none for all.
    """

    _apart: ClassVar[bool] = False


class CentralForestRegressor(_Numbers):
    """scikit-learn's forest on the pooled records, for numbers; see the classifier.

    Args:
        trees, max_depth, min_leaf, max_features, random_state: as for the classifier.
    """

    _apart: ClassVar[bool] = False


class LocalForestClassifier(_Classes):
    """scikit-learn's forest on each client's own records.

    ``predict`` without a client gives the mean of all clients' forests, a local ensemble (Hauschild
    et al. 2022); with one, that client's own forest.

    Args:
        trees, max_depth, min_leaf, max_features, random_state: as for the centralized one.
    """

    _apart: ClassVar[bool] = True


class LocalForestRegressor(_Numbers):
    """scikit-learn's forest on each client's own records; see the classifier.

    Args:
        trees, max_depth, min_leaf, max_features, random_state: as for the centralized one.
    """

    _apart: ClassVar[bool] = True
