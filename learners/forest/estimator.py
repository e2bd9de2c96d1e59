"""FedForest with scikit-learn's interface.

Principled Federated Random Forests for Heterogeneous Data (FedForest).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from privfed.errors import InputError
from privfed.exchange.disclosure import Disclosure
from privfed.learners import private
from privfed.learners.base import FederatedClassifier, FederatedRegressor, check_round
from privfed.learners.forest import rules
from privfed.learners.forest.additive import single_apart, to_sklearn
from privfed.learners.forest.columns import class_count
from privfed.learners.forest.growth import ForestParams
from privfed.learners.forest.model import CLIENT, FittedForest, ForestModel
from privfed.learners.forest.out_of_bag import OutOfBag
from privfed.learners.forest.private_way import PrivateForest, PrivateForestWay
from privfed.learners.forest.published import LearnedForest, PublishedForest
from privfed.learners.forest.queries import BinStatistics, Sketches
from privfed.learners.forest.samples import WAYS, instances
from privfed.learners.forest.settings import SETTINGS
from privfed.learners.forest.trees import MOST_DEPTH, MOST_TREES
from privfed.learners.impurity import CRITERIA, Criterion
from privfed.learners.parameters import Boolean, Constraints, Integers, Reals, StrOptions, inherited
from privfed.learners.privacy_text import privacy_text
from privfed.learners.private.model import Aim
from privfed.learners.private.synthetic_tables import synthetic_table
from privfed.learners.ways import LearnerByWays, Ways
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import Number
from privfed.tables.schema import Schema, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: How an exported model's rows are encoded
ONNX_ROWS = (
    "columns in the schema's order, without the target; a category by its index, from 0; missing values filled as the "
    "schema says; numbers clipped to their bounds"
)
PUBLISHED = "intervals are of the noise of a private model; give a private policy"


class _FedForest(LearnerByWays):
    """Base class of the classifier and the regressor.

    ``fit`` sets ``schema_``, ``clients_``, ``way_`` and ``private_`` (how it learned), ``model_``,
    ``rounds_`` (rounds of queries), and ``oob_score_`` if requested (NaN if withheld).
    """

    ways: ClassVar[Ways] = (PublishedForest, PrivateForestWay)
    _criteria: ClassVar[tuple[Criterion, ...]]

    _parameter_constraints: ClassVar[Constraints] = {
        "n_estimators": [Integers(at_least=1, at_most=MOST_TREES)],
        "max_depth": [Integers(at_least=0, at_most=MOST_DEPTH), None],
        "min_samples_leaf": [Integers(at_least=1)],
        "min_impurity_decrease": [Reals(at_least=0)],
        "criterion": [StrOptions(*CRITERIA)],
        "max_features": [
            Integers(at_least=1),
            Reals(above=0, at_most=1),
            StrOptions("sqrt", "third"),
            None,
        ],
        "n_quantiles": [Integers(at_least=2, at_most=1000)],
        "max_quantiles": [Integers(at_least=1, at_most=1000)],
        "candidates": [StrOptions("quantiles", "midpoints", "range")],
        "interpolate": [Boolean()],
        "gain_aggregation": [StrOptions("exact", "average")],
        "top_k": [Integers(at_least=1), None],
        "client_splits": [Boolean()],
        "sampling": [StrOptions(*WAYS)],
        "clients_per_tree": [Integers(at_least=1), None],
        "oob_score": [Boolean()],
        "random_state": [Integers(at_least=0), None],
    }

    #: ten candidates at every level
    paper_settings: ClassVar[Mapping[str, Any]] = {"max_quantiles": 1}

    model_: ForestModel  #: The fitted model, set by ``fit``

    def __init__(  # noqa: PLR0913 - an estimator's parameters
        self,
        *,
        n_estimators: int = 100,
        max_depth: int | None = 10,
        min_samples_leaf: int = 5,
        min_impurity_decrease: float = 0.0,
        criterion: str = "gini",
        max_features: float | str | None = "sqrt",
        n_quantiles: int = 10,
        max_quantiles: int = SETTINGS.max_quantiles,
        candidates: str = "quantiles",
        interpolate: bool = False,
        gain_aggregation: str = "exact",
        top_k: int | None = None,
        client_splits: bool = False,
        sampling: str = "bootstrap",
        clients_per_tree: int | None = None,
        oob_score: bool = False,
        random_state: int | None = None,
    ) -> None:
        self._set(locals())

    # --- learning ------------------------------------------------------------------------------

    def _start(self, federation: Disclosure) -> None:
        super()._start(federation)
        check_round(self.clients_per_tree, len(federation.clients), "clients_per_tree")

    def check(self, schema: Schema) -> None:
        """Check that parameters are consistent; see the base."""
        self.check_parameters()
        if self.criterion not in self._criteria:
            known = ", ".join(self._criteria)
            raise InputError(f"criterion of {type(self).__name__} must be one of {known}")
        if self.client_splits and CLIENT in schema.names:
            raise InputError(
                f"a column is called {CLIENT!r}, as client_splits calls a split on the client; rename it"
            )
        if self.oob_score and self.sampling == "all":
            raise InputError(
                "oob_score needs a sampling other than 'all': no record is out of any bag"
            )

    def _params(self, schema: Schema) -> ForestParams:
        assert schema.target is not None
        low, high = schema.target.bounds
        classes, features = self._classes(schema), len(schema.features)
        return ForestParams(
            trees=self.n_estimators,
            max_depth=MOST_DEPTH if self.max_depth is None else self.max_depth,
            min_leaf=instances(self.min_samples_leaf, self.sampling),
            # of a number, relative to the target scaled by its bounds
            min_decrease=float(self.min_impurity_decrease / (1 if classes else (high - low) ** 2)),
            criterion=self.criterion,
            classes=classes,
            per_node=features_of(self.max_features, features),
            quantiles=self.n_quantiles,
            max_quantiles=self.max_quantiles,
            candidates=self.candidates,
            interpolate=self.interpolate,
            averaged=self.gain_aggregation == "average",
            shortlist=None if self.top_k is None else min(self.top_k, features),
            client_splits=self.client_splits,
            sampling=self.sampling,
            clients_per_tree=self.clients_per_tree,
            oob_score=self.oob_score,
            seed=int(np.random.default_rng(self.random_state).integers(2**62)),
        )

    def _classes(self, schema: Schema) -> int:
        """Return the number of classes, 0 for a regression."""
        return 0

    def _keep(self, result: LearnedForest) -> None:
        self.model_, self.rounds_ = result.model, result.rounds
        if self.oob_score:
            self.oob_score_ = result.oob_score

    # --- predicting ----------------------------------------------------------------------------

    def _values_of(
        self, X: pd.DataFrame | np.ndarray, client: str | Sequence[str] | None
    ) -> np.ndarray:
        """Class probabilities, or the target in its own unit; shape (rows, values)."""
        rows = self._encode(X)
        if client is None:
            return self.model_.predict(rows)
        names = self._clients_of_rows(client, len(rows)).tolist()
        index = {name: number for number, name in enumerate(self.clients_)}
        return self.model_.predict(rows, np.array([index[name] for name in names], dtype=np.int64))

    # --- the fitted model -----------------------------------------------------------

    @property
    def forest_(self) -> FittedForest:
        """The published way's forest."""
        if isinstance(self.model_, FittedForest):
            return self.model_
        raise AttributeError("forest_")

    @property
    def feature_importances_(self) -> np.ndarray:
        """Fractions of the impurity decrease (in private: of the trees' variance), including client splits."""
        return self.model_.importances()[:-1]

    @property
    def client_importance_(self) -> float:
        """The fraction of the impurity decrease that is due to splits on the client."""
        return float(self.model_.importances()[-1])

    def plot(
        self, feature: str | None = None, *, tree: int | None = None, ax: Axes | None = None
    ) -> Axes:
        """Plot importances, one tree's upper levels, or a feature's effect on a private model's score.

        The last is its partial dependence over synthetic records, with a 90 % band. InputError: no such plot.
        """
        from privfed.learners import pictures

        model = self.model_
        if feature is None:
            if tree is None and isinstance(model, PrivateForest) and model.model.errors:
                df = self.importance_intervals().sort_values("importance", ascending=False)
                names, values, ends = list(df.index), df.iloc[:, 0].to_numpy(), df.iloc[:, 1:]
                return pictures.bars(ax, names, values, model.moves, ends.to_numpy())
            if tree is None:
                return super().plot(ax=ax)
            caption = model.caption(tree)
            return pictures.titled(pictures.tree(ax, model.drawn(tree)), caption)
        if not isinstance(model, PrivateForest):
            return super().plot(feature, ax=ax)
        column, number = self._feature(feature)
        cuts = model.model.basis.grid.cuts[number]
        positions = pictures.places_of(column, cuts)
        heights, half_width = model.partial_dependence(number)
        codes = np.searchsorted(cuts, positions, side="right")
        band = np.stack([heights - half_width, heights + half_width], axis=-1)[codes]
        name, classes = shown(self.schema_.columns[-1].name), getattr(self, "classes_", None)
        if classes is not None and len(classes) > 2:
            named = [str(value) for value in classes]
            curves = dict(zip(named, heights[codes].T, strict=True))
            bands = dict(zip(named, band.swapaxes(0, 1), strict=True))
            ax = pictures.shape(
                ax, column, curves, f"adds to log-odds of each class of {name}", bands, cuts
            )
        else:
            of = name if classes is None else f"log-odds of {name} = {shown(str(classes[-1]))}"
            ax = pictures.shape(ax, column, heights[codes], f"adds to {of}", band, cuts)
        used = bool(np.ptp(heights))
        return ax if used else pictures.titled(ax, f"the model does not use {shown(column.name)}")

    def describe(self, tree: int | None = None) -> str:
        """Return one tree as text, a rule per leaf; by default the first, for a private model columns by effect.

        Numbers are rounded; :meth:`to_text` has a published model's exact ones.
        """
        notes = [*self.schema_.fill_notes(), privacy_text(self.privacy_)]
        return "\n".join([self.model_.describe(tree), *notes])

    @property
    def estimators_(self) -> list[Any]:
        """A private model's trees in scikit-learn's form, a list of one per output; see :meth:`to_sklearn`."""
        try:
            return list(self.to_sklearn().estimators_)
        except InputError as error:  # so that dir() and hasattr() skip it
            raise AttributeError(*error.args) from None

    def encode(self, X: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Encode rows for :meth:`to_sklearn` and :meth:`to_onnx`, shape (rows, features).

        Columns are in the order of ``feature_names_in_``, categories by code, with missing values filled and numbers
        clipped to their bounds as in :meth:`predict`. A private model's are 32-bit floats, each on its side of all
        thresholds. SchemaError: a missing value without ``fill``, or an unknown category.
        """
        x, model = self._encode(X), self.model_
        return single_apart(x, model.model.basis.grid) if isinstance(model, PrivateForest) else x

    def to_sklearn(self) -> BaseEstimator:
        """Return a private model as scikit-learn's gradient boosting, with the same trees, for rows of :meth:`encode`.

        It refuses missing numbers, and accepts any number as a category. A predicted number is not clipped to its
        limits; else predictions are the same.

        Raises:
            InputError: the model is not private (its trees are in ``forest_``, and in ``to_text()``), or a column lies so
                far from zero that no 32-bit float, by which trees split, lies between two of its thresholds.
        """
        if not isinstance(self.model_, PrivateForest):
            raise InputError(
                "only a private model is written as gradient boosting; the trees of this one are in forest_"
            )
        return to_sklearn(self.model_.model, getattr(self, "classes_", np.zeros(0)))

    def to_onnx(self) -> Any:
        """Return :meth:`to_sklearn` as an ``onnx.ModelProto``, for rows of :meth:`encode` as 32-bit floats.

        It refuses nothing: a missing number takes one side of every split. Its metadata have the schema (names, order,
        bounds and categories of the columns) as JSON, how rows are encoded, and the sentence on epsilon.

        Raises:
            InputError: the model is not private, or skl2onnx is not installed.
        """
        forest = self.to_sklearn()
        try:
            from skl2onnx import to_onnx
        except ImportError:
            raise InputError("ONNX needs skl2onnx; install privfed[onnx]") from None
        model = to_onnx(forest, np.zeros((1, len(self.schema_.features)), np.float32))
        notes = {"schema": json.dumps(self.schema_.to_dict()), "rows": ONNX_ROWS}
        for key, value in {**notes, "privacy": privacy_text(self.privacy_)}.items():
            model.metadata_props.add(key=key, value=value)
        return model

    def importance_intervals(self, level: float = 0.9, of: Aim = "truth") -> pd.DataFrame:
        """Return permutation importances of a private model's features, with intervals.

        An importance is the change of the prediction when a feature has another synthetic record's value: the root of
        half the mean square, in log-odds (over all classes, if more than two) or in the target's unit.

        Args:
            level: of the intervals.
            of: ``"truth"``, or ``"same"`` for the model of the same records without noise.

        Returns:
            columns importance, low and high, one row per feature. A low end of zero: the feature may have no effect.

        Raises:
            InputError: the model is not private.
        """
        if not isinstance(self.model_, PrivateForest):
            raise InputError(PUBLISHED)
        importances, ends = self.model_.permutation_importances(level, of)
        columns = np.column_stack([importances, ends])
        return pd.DataFrame(columns, list(self.feature_names_in_), ["importance", "low", "high"])

    def _interval(self, X: pd.DataFrame | np.ndarray, level: float, of: Aim) -> np.ndarray:
        if not isinstance(self.model_, PrivateForest):
            raise InputError(PUBLISHED)
        return self.model_.intervals(self._encode(X), level, of)

    def synthesize(self, rows: int, random_state: int | None = None) -> pd.DataFrame:
        """Draw synthetic records of a private model, in the schema's columns; see :func:`.synthetic_table`.

        They are drawn from the fitted model and the public schema only, at no privacy cost.

        Raises:
            InputError: the model is not private, or there is less than one row.
        """
        if not isinstance(self.model_, PrivateForest):
            raise InputError(
                "synthetic records are drawn from a private model's releases; fit with a private(epsilon) "
                "policy"
            )
        if rows < 1:
            raise InputError(f"rows must be at least 1, not {rows!r}")
        return synthetic_table(self.model_.model, rows, np.random.default_rng(random_state))

    def to_text(self) -> str:
        """Return the forest as text rules, which :meth:`from_text` reads (InputError: a private model)."""
        return self.model_.to_text({k: v for k, v in self.to_dict().items() if k != "state"})

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read the output of :meth:`to_text`, edited or not (InputError: invalid or missing rules)."""
        return cls.from_dict(rules.parse(text))

    def readable(self) -> dict[str, Any]:
        """What kind of model it is, and what the values of its nodes are."""
        return dict(self.model_.readable())

    def state(self) -> dict[str, Any]:
        """Return the model as plain data; see :meth:`.FittedForest.to_state`."""
        return self.model_.to_state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """See the base; invalid trees are refused."""
        self.way_ = "private" if "private" in state else "published"
        if self.private_:
            self.model_ = PrivateForest.from_state(self.schema_, state)
        else:
            self.model_ = FittedForest.from_state(self.schema_, self.clients_, state)

    # --- policies ------------------------------------------------------------------------------

    def published(self) -> Policy:
        """Return the paper's policy: all its queries, unprotected."""
        kinds = self.ways[0].queries
        return Policy({kind.kind: (Guard.of("open"),) for kind in kinds}, name="published")

    def nullified(self) -> Policy:
        """Return the paper's policy with small cells suppressed (see the queries' ``reveals``): not DP.

        Local gains and shortlists, which have no counts, are withheld.
        """
        guard = (Guard.of("nullify"),)
        kinds = (Sketches.kind, BinStatistics.kind, OutOfBag.kind)
        return Policy(dict.fromkeys(kinds, guard), name="nullified")

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """Return a policy with a finite total epsilon, for other queries; see :mod:`privfed.learners.private`."""
        return private.private(epsilon, delta)


class FedForestClassifier(_FedForest, FederatedClassifier):
    """A federated random forest for classes.

    The target has categories, or at most 100 integers; in private, at most 64 categories or 32 integers.

    Args:
        n_estimators: number of trees.
        max_depth: maximum splits on a path; None: the maximum, 60.
        min_samples_leaf: minimum distinct records of a leaf, on average over samples; see
            :func:`.samples.instances`.
        min_impurity_decrease: minimum weighted impurity decrease of a split (a node's fraction of the records times
            its decrease).
        criterion: ``"gini"`` or ``"entropy"``.
        max_features: features drawn for each node: a number, a fraction, ``"sqrt"``, ``"third"`` or None for all. A
            node whose features all have one value draws others.
        n_quantiles: Q, the quantiles released of a node's values, and its candidate cuts.
        max_quantiles: maximum in levels of few nodes, if more than `n_quantiles`.
        candidates: ``"quantiles"`` inverts the mixture of the clients' distributions at equal ranks;
            ``"midpoints"`` uses midpoints between all released values (centralized CART's candidates if Q is at least a
            node's records); ``"range"`` uses equal steps between the node's extremes, as federated histograms do.
        interpolate: whether quantiles are interpolated instead of the nearest value.
        gain_aggregation: ``"exact"`` sums the clients' statistics, ``"average"`` averages their local decreases
            (AvgImp, for homogeneous clients).
        top_k: L, features of a node on each client's shortlist (Top-L); None for all.
        client_splits: whether nodes may split on the client itself.
        sampling: sampling of each client's records for each tree: ``"bootstrap"``, ``"poisson"`` (each record
            repeated by its own coin), ``"split"`` (each record to one tree) or ``"all"``; see
            :class:`~privfed.learners.forest.samples.Sampling`.
        clients_per_tree: clients drawn for each tree; None for all.
        oob_score: whether to query the out-of-bag score, a separate release.
        random_state: seed of the server's draws; the clients' bootstraps depend on their secrets.
    """

    _criteria: ClassVar[tuple[Criterion, ...]] = ("gini", "entropy")

    @property
    def classes_(self) -> np.ndarray:
        """The schema's classes, in order."""
        target = self.schema_.target
        assert target is not None
        low, high = target.bounds
        return np.array(target.categories or np.arange(int(low), int(high) + 1))

    def check(self, schema: Schema) -> None:
        """Check that the target is classes; see the base."""
        super().check(schema)
        if not self._classes(schema):
            raise InputError(
                "FedForestClassifier needs a target of categories, or of whole numbers with at most 100 values "
                "between its bounds; for other numbers use FedForestRegressor"
            )

    def _classes(self, schema: Schema) -> int:
        return class_count(schema)

    def predict_proba(
        self, X: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Return class probabilities, shape (rows, classes); `client` is one name, or one per row."""
        return self._values_of(X, client)

    def confidence_interval(
        self, X: pd.DataFrame | np.ndarray, level: float = 0.9, of: Aim = "truth"
    ) -> np.ndarray:
        """Return a private model's intervals of the second class's probability, shape (rows, 2).

        They hold the true probability, or, of ``"same"``, that of the model of the same records without noise. For more
        than two classes, shape (rows, classes, 2).

        Raises:
            InputError: the model is not private.
        """
        return self._interval(X, level, of)

    def predict(
        self, X: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Return the most probable class of each row; arguments as for :meth:`predict_proba`."""
        return np.asarray(self.classes_[self.predict_proba(X, client=client).argmax(axis=1)])


@inherited(criterion="squared_error", max_features=None)
class FedForestRegressor(FederatedRegressor, _FedForest):
    """A federated random forest for a numeric target.

    Parameters as for :class:`FedForestClassifier`; ``criterion`` is ``"squared_error"``, and decreases are of the
    target's variance.
    """

    _criteria: ClassVar[tuple[Criterion, ...]] = ("squared_error",)

    @property
    def prediction_limits_(self) -> tuple[float, float]:
        """See the base."""
        if not isinstance(self.model_, PrivateForest):
            return super().prediction_limits_
        outcome = self.model_.model.outcome
        return outcome.lower, outcome.upper

    def confidence_interval(
        self, X: pd.DataFrame | np.ndarray, level: float = 0.9, of: Aim = "truth"
    ) -> np.ndarray:
        """Return intervals of the target's mean; see :meth:`FedForestClassifier.confidence_interval`."""
        return self._interval(X, level, of)

    def predict(
        self, X: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Return the mean of the target, shape (rows,); `client` is one name, or one per row."""
        return self._values_of(X, client)[:, 0]


def features_of(max_features: float | str | None, features: int) -> int:
    """Return the number of features per node, from None, a word, a fraction, or a number."""
    if max_features is None:
        return features
    if isinstance(max_features, str):
        return max(1, int(np.sqrt(features)) if max_features == "sqrt" else features // 3)
    if isinstance(max_features, float):
        return max(1, int(max_features * features))
    return min(int(max_features), features)
