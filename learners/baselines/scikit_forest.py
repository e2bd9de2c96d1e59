"""scikit-learn's forest on pooled records or each client's own, categories encoded by their mean target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from privfed.learners.baselines.base import Baseline, BaselineClassifier, BaselineRegressor, Rows
from privfed.learners.baselines.pooled import RawBaseline
from privfed.learners.forest import FedForestClassifier, FedForestRegressor
from privfed.learners.forest.growth import ForestParams
from privfed.learners.forest.published import PublishedForest
from privfed.learners.forest.queries import BinStatistics, Sketches
from privfed.learners.parameters import Constraints, Integers, Reals, StrOptions, inherited
from privfed.learners.plain import plain, restored
from privfed.learners.ways import LearnerByWays, Ways
from privfed.questions import tree
from privfed.questions.query import Query
from privfed.tables.records import Records
from privfed.tables.schema import Schema


@dataclass(frozen=True, eq=False)
class EncodedForest:
    """A grown forest, with the codes of its categories."""

    forest: tree.Forest  #: the trees
    values: np.ndarray  #: class probabilities or mean target, shape (nodes, values)
    codes: Mapping[int, np.ndarray]  #: codes of categories, by the feature's index

    @classmethod
    def grown(cls, model: Any, records: Records, classes: int) -> Self:
        """Order the categories by their mean target (of the most frequent class), and fit."""
        X, y, schema = records.x, records.target, records.schema
        response = (
            (y == np.bincount((y - y.min()).astype(int)).argmax() + y.min()) if classes else y
        )
        codes = {
            index: _means(X[:, index].astype(int), response, len(column.categories))
            for index, column in enumerate(schema.features)
            if column.categories
        }
        model.fit(_numbers(X, codes), y)
        trees = [t.tree_ for t in model.estimators_]
        forest = forest_of(
            [(t.feature, t.threshold, t.children_left, t.children_right) for t in trees]
        )
        sums = np.concatenate([t.value[:, 0] for t in trees])
        if not classes:
            return cls(forest, sums, codes)
        assert schema.target is not None
        values = np.zeros((len(sums), classes))
        present = (model.classes_ - schema.target.bounds[0]).astype(int)
        values[:, present] = sums / sums.sum(axis=1, keepdims=True)
        return cls(forest, values, codes)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the mean over trees, shape (rows, values)."""
        return self.forest.mean(_numbers(X, self.codes), self.values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for :meth:`from_dict`."""
        trees = self.forest
        arrays = (
            trees.feature,
            trees.children,
            trees.cuts,
            trees.categories,
            trees.roots,
            self.values,
        )
        codes = {str(index): plain(array) for index, array in self.codes.items()}
        return {"arrays": [plain(array) for array in arrays], "codes": codes}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read the output of :meth:`to_dict`."""
        *trees, values = (restored(array) for array in data["arrays"])
        codes = {int(index): restored(array) for index, array in data["codes"].items()}
        return cls(tree.Forest(*trees), values, codes)


def forest_of(trees: Sequence[tuple[np.ndarray, ...]]) -> tree.Forest:
    """Build a forest from scikit-learn's arrays: feature, threshold, left and right child of each node."""
    return tree.Forest.of(
        [
            tree.Tree.binary(feature, tree.cuts_of_thresholds(threshold), left, right)
            for feature, threshold, left, right in trees
        ]
    )


def _numbers(X: np.ndarray, codes: Mapping[int, np.ndarray]) -> np.ndarray:
    X = X.copy()
    for index, numbers in codes.items():
        X[:, index] = numbers[X[:, index].astype(int)]
    return X


def _means(codes: np.ndarray, response: np.ndarray, categories: int) -> np.ndarray:
    sums = np.bincount(codes, response, categories)
    counts = np.bincount(codes, minlength=categories)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), response.mean()))


class _ScikitForest(RawBaseline):
    """Base class: queries all records, then fits scikit-learn's forest to them."""

    _parameter_constraints: ClassVar[Constraints] = {
        "n_estimators": [Integers(at_least=1, at_most=10_000)],
        "max_depth": [Integers(at_least=1), None],
        "min_samples_leaf": [Integers(at_least=1)],
        "max_features": [
            Integers(at_least=1),
            Reals(above=0, at_most=1),
            StrOptions("sqrt", "log2"),
            None,
        ],
        "random_state": [Integers(at_least=0), None],
    }

    def __init__(
        self,
        *,
        n_estimators: int = 100,
        max_depth: int | None = 10,
        min_samples_leaf: int = 5,
        max_features: float | str | None = None,
        random_state: int | None = None,
    ) -> None:
        self._set(locals())

    def _fit_model(self, name: str, records: Records) -> EncodedForest:
        kind = RandomForestClassifier if self._classifies else RandomForestRegressor
        forest = kind(
            self.n_estimators,
            max_depth=self.max_depth,
            min_samples_leaf=self.min_samples_leaf,
            max_features=1.0 if self.max_features is None else self.max_features,
            random_state=self.random_state,
        )
        return EncodedForest.grown(forest, records, self._n_classes(self.schema_))

    def _outputs(self, X: Rows, client: str | Sequence[str] | None) -> np.ndarray:
        """Predict by the model of a row's client if known, else by the mean over models."""
        rows = self._encode(X)
        values = {name: model.predict(rows) for name, model in self.models_.items()}
        mean = np.asarray(np.mean(list(values.values()), axis=0))
        if client is None or self._pools:
            return mean
        single = isinstance(client, str)
        names = np.full(len(rows), client) if single else np.asarray(client).astype(str)
        for name, predictions in values.items():
            mean[names == name] = predictions[names == name]
        return mean

    def readable(self) -> dict[str, Any]:
        nodes = {name: len(model.forest.feature) for name, model in self.models_.items()}
        return self._model_info("scikit-learn's random forest", nodes=nodes)

    def _read(self, data: Mapping[str, Any]) -> EncodedForest:
        model = EncodedForest.from_dict(data)
        model.forest.check(self.schema_)
        return model


class CentralForestClassifier(_ScikitForest, BaselineClassifier):
    """scikit-learn's forest on the pooled records, for classes.

    Parameters as scikit-learn's of the same names; ``max_features=None`` for all.
    """

    _pools: ClassVar[bool] = True


class CentralForestRegressor(_ScikitForest, BaselineRegressor):
    """The same for numbers; parameters as :class:`CentralForestClassifier`."""

    _pools: ClassVar[bool] = True


class LocalForestClassifier(_ScikitForest, BaselineClassifier):
    """scikit-learn's forest on each client's own records.

    ``predict`` without a client gives the mean of all clients' forests, a local ensemble (Hauschild
    et al. 2022); with one, that client's own. Parameters as :class:`CentralForestClassifier`.
    """

    _pools: ClassVar[bool] = False


class LocalForestRegressor(_ScikitForest, BaselineRegressor):
    """The same for numbers; parameters as :class:`CentralForestClassifier`."""

    _pools: ClassVar[bool] = False


# --- federated histogram forest (Kalloori and Klingler 2022): equal widths between all clients' extremes

_SHARED = ("n_estimators", "max_depth", "min_samples_leaf", "max_features", "random_state")
_CONSTRAINTS: Constraints = {
    **{name: FedForestClassifier._parameter_constraints[name] for name in _SHARED},
    "n_bins": [Integers(at_least=2, at_most=1000)],
}


class HistogramForest(PublishedForest):
    """FedForest's protocol, with only extremes and bins queried."""

    queries: ClassVar[tuple[type[Query], ...]] = (Sketches, BinStatistics)


class _HistogramForest(Baseline, LearnerByWays):
    """Base class of both, with parameters, and bins of equal width."""

    ways: ClassVar[Ways] = (HistogramForest,)
    _parameter_constraints: ClassVar[Constraints] = _CONSTRAINTS

    def __init__(
        self,
        *,
        n_estimators: int = 100,
        max_depth: int | None = 10,
        min_samples_leaf: int = 5,
        max_features: float | str | None = None,
        n_bins: int = 10,
        random_state: int | None = None,
    ) -> None:
        self.n_bins = n_bins
        super().__init__(
            n_estimators=n_estimators,
            max_depth=max_depth,
            min_samples_leaf=min_samples_leaf,
            max_features=max_features,
            random_state=random_state,
        )

    def _params(self, schema: Schema) -> ForestParams:
        params: ForestParams = super()._params(schema)  # type: ignore[safe-super]
        return replace(params, quantiles=self.n_bins, candidates="range")


@inherited(max_features="sqrt")
class HistogramForestClassifier(_HistogramForest, FedForestClassifier):
    """A federated forest over equal-width bins.

    Args:
        n_estimators: number of trees.
        max_depth: maximum splits on a path.
        min_samples_leaf: fewest records of a leaf.
        max_features: number of features tried at each node.
        n_bins: equal-width bins of each feature.
        random_state: seed of the server's draws.
    """


class HistogramForestRegressor(_HistogramForest, FedForestRegressor):
    """A regression forest over equal-width bins; parameters as :class:`HistogramForestClassifier`."""
