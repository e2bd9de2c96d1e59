"""FedForest in scikit-learn's manners.

Principled Federated Random Forests for Heterogeneous Data (FedForest).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from privfed.errors import InputError, NobodyAnswered
from privfed.exchange.disclosure import Disclosure
from privfed.learners import private
from privfed.learners.base import (
    FederatedClassifier,
    FederatedLearner,
    FederatedRegressor,
    Planned,
    check_numeric_target,
    check_round,
)
from privfed.learners.forest import export, private_way, rules
from privfed.learners.forest.columns import TARGET_GRID, class_count, single
from privfed.learners.forest.gains import CRITERIA, Criterion, sizes
from privfed.learners.forest.growth import FINE, MOST_CELLS, Grown, Growth, Settings
from privfed.learners.forest.level import Level, Pairs
from privfed.learners.forest.model import FittedForest
from privfed.learners.forest.out_of_bag import OutOfBag, score
from privfed.learners.forest.queries import Bins, LocalGains, Shortlist, Sketches
from privfed.learners.forest.samples import WAYS, Sampling, instances
from privfed.learners.forest.trees import MOST_DEPTH, MOST_TREES, Trees, category_sizes
from privfed.learners.parameters import Constraints, Flag, OneOf, Real, Whole
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import Number
from privfed.questions.query import Query
from privfed.tables.schema import Schema

#: Largest number of questions of a kind that a plan states.
MOST_TIMES = 1_000_000


class _FedForest(FederatedLearner):
    """What the classifier and the regressor share; parameters are documented there."""

    queries: ClassVar[tuple[type[Query], ...]] = (
        Sketches,
        Bins,
        LocalGains,
        Shortlist,
        OutOfBag,
        *private.QUERIES,
    )
    _criteria: ClassVar[tuple[Criterion, ...]]

    _parameter_constraints: ClassVar[Constraints] = {
        "trees": [Whole(at_least=1, at_most=MOST_TREES)],
        "max_depth": [Whole(at_least=0, at_most=MOST_DEPTH), None],
        "min_leaf": [Whole(at_least=1)],
        "min_decrease": [Real(at_least=0)],
        "criterion": [OneOf(*CRITERIA)],
        "max_features": [Whole(at_least=1), Real(above=0, at_most=1), OneOf("sqrt", "third"), None],
        "quantiles": [Whole(at_least=2, at_most=1000)],
        "candidates": [OneOf("quantiles", "midpoints", "range")],
        "interpolate": [Flag()],
        "evaluation": [OneOf("exact", "average")],
        "shortlist": [Whole(at_least=1), None],
        "client_splits": [Flag()],
        "sampling": [OneOf(*WAYS)],
        "clients_per_tree": [Whole(at_least=1), None],
        "oob_score": [Flag()],
        "random_state": [Whole(at_least=0), None],
    }

    #: The fitted forest, set by ``fit``; its splits name clients in the order of ``clients_``.
    forest_: FittedForest
    #: Whether it learned in the private way, and the model that it then has in the forest's place.
    private_: bool
    private_model_: private.PrivateModel

    def __init__(  # noqa: PLR0913 - an estimator's parameters
        self,
        *,
        trees: int = 100,
        max_depth: int | None = 10,
        min_leaf: int = 5,
        min_decrease: float = 0.0,
        criterion: str = "gini",
        max_features: float | str | None = "sqrt",
        quantiles: int = 10,
        candidates: str = "quantiles",
        interpolate: bool = False,
        evaluation: str = "exact",
        shortlist: int | None = None,
        client_splits: bool = False,
        sampling: str = "bootstrap",
        clients_per_tree: int | None = None,
        oob_score: bool = False,
        random_state: int | None = None,
    ) -> None:
        self.trees = trees
        self.max_depth = max_depth
        self.min_leaf = min_leaf
        self.min_decrease = min_decrease
        self.criterion = criterion
        self.max_features = max_features
        self.quantiles = quantiles
        self.candidates = candidates
        self.interpolate = interpolate
        self.evaluation = evaluation
        self.shortlist = shortlist
        self.client_splits = client_splits
        self.sampling = sampling
        self.clients_per_tree = clients_per_tree
        self.oob_score = oob_score
        self.random_state = random_state

    # --- learning ------------------------------------------------------------------------------

    def fit(self, federation: Disclosure) -> Self:
        """Grow the forest from releases alone.

        Where no client offers the first question of the published protocol it learns in the private
        way, by :mod:`privfed.learners.private`; of the parameters only ``random_state`` then counts.

        Sets ``schema_``, ``clients_``, ``private_`` (which way it learned), ``forest_`` (or
        ``private_model_``), ``rounds_`` (questions asked), and ``oob_score_`` where that is wanted
        (NaN where the clients withhold it).

        Raises:
            InputError: a parameter makes no sense, or the target is of the wrong kind.
            NobodyAnswered: no client answered the first question.
        """
        self._start(federation)
        check_round(self.clients_per_tree, len(federation.clients), "clients_per_tree")
        growth = Growth(federation, self._settings(self.schema_))
        self.private_ = not (self.baseline or growth.offered())
        if self.private_:
            return self._fit_private(federation)
        grown = growth.grow()
        self.forest_ = self._valued(grown)
        self.rounds_ = growth.rounds
        if self.oob_score:
            self.oob_score_ = self._ask_out_of_bag(federation, growth)
        return self

    def check(self, schema: Schema) -> None:
        """Hold parameters and target to what it can do; see the class."""
        self.check_parameters()
        if self.criterion not in self._criteria:
            known = ", ".join(self._criteria)
            raise InputError(f"criterion of {type(self).__name__} must be one of {known}")
        if self.oob_score and self.sampling == "all":
            raise InputError(
                "oob_score needs a sampling other than 'all': no record is out of any bag"
            )
        self._check_target(schema)

    def _check_target(self, schema: Schema) -> None:
        raise NotImplementedError

    def _settings(self, schema: Schema) -> Settings:
        drawn = np.random.default_rng(self.random_state).integers(2**62)
        return Settings(
            trees=self.trees,
            max_depth=MOST_DEPTH if self.max_depth is None else self.max_depth,
            min_leaf=instances(self.min_leaf, self.sampling),
            min_decrease=float(self.min_decrease),
            criterion=self.criterion,  # type: ignore[arg-type]
            classes=self._classes(schema),
            per_node=features_of(self.max_features, len(schema.features)),
            quantiles=self.quantiles,
            fine=max(FINE, self.quantiles),
            candidates=self.candidates,
            interpolate=self.interpolate,
            averaged=self.evaluation == "average",
            shortlist=None if self.shortlist is None else min(self.shortlist, len(schema.features)),
            client_splits=self.client_splits,
            sampling=self.sampling,
            clients_per_tree=self.clients_per_tree,
            seed=int(drawn),
        )

    def _classes(self, schema: Schema) -> int:
        raise NotImplementedError

    def _fit_private(self, federation: Disclosure) -> Self:
        """Random trees and noisy sums; see :mod:`privfed.learners.forest.private_way`."""
        outcome = private_way.outcome(self.schema_, not self._classes(self.schema_))
        rng = np.random.default_rng(self.random_state)
        self.private_model_ = private.learn(federation, outcome, rng)
        self.rounds_ = self.private_model_.rounds
        if self.oob_score:
            self.oob_score_ = float("nan")
        return self

    def _valued(self, grown: Grown) -> FittedForest:
        """Give every node its value; one without records has its parent's."""
        pooled = grown.totals.sum(axis=0).astype(float)
        size = np.asarray(sizes(pooled, self.criterion))  # type: ignore[arg-type]
        above = grown.trees.parents()
        source = np.arange(len(size))
        while (empty := (size[source] <= 0) & (above[source] != source)).any():
            source[empty] = above[source[empty]]
        values = self._values(pooled[source], np.maximum(size[source], 1))
        by_client = np.asarray(sizes(grown.totals, self.criterion))  # type: ignore[arg-type]
        return FittedForest(
            grown.trees,
            values,
            by_client,
            len(self.schema_.features),
            self.criterion,  # type: ignore[arg-type]
        )

    def _values(self, pooled: np.ndarray, size: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _ask_out_of_bag(self, federation: Disclosure, growth: Growth) -> float:
        """Ask each client about the trees that it took part in; NaN where nobody tells."""
        questions: dict[str, list[Query]] = {}
        for number, client in enumerate(federation.clients):
            member = growth.members[number]
            if member.any():
                trees, nodes = self.forest_.seen_by(number).only(member)
                sampling = replace(growth.sampling, trees=growth.sampling.trees[member])
                values = self.forest_.values[nodes].astype(np.float32)
                questions[client] = [OutOfBag(trees, sampling, values)]
        told: dict[str, float] = {}
        try:
            answers = federation.ask(questions)
        except NobodyAnswered:
            return float("nan")
        for answer in answers:
            for part in ("records", "correct", "errors", "sums", "squares"):
                if part in answer:
                    told[part] = told.get(part, 0.0) + float(answer.total(part).sum())
        return score(told)

    # --- predicting ----------------------------------------------------------------------------

    def _values_of(
        self, x: pd.DataFrame | np.ndarray, client: str | Sequence[str] | None
    ) -> np.ndarray:
        """Class shares, or the target in its own unit; shape (rows, values)."""
        if not self.private_:
            return self._in_unit(self._mean(x, client))
        rows = self._encode(x)
        self._numbers(client, len(rows))
        return private_way.values(self.private_model_, rows)

    def _in_unit(self, mean: np.ndarray) -> np.ndarray:
        """The forest's mean value in the target's own unit."""
        return mean

    def _mean(self, x: pd.DataFrame | np.ndarray, client: str | Sequence[str] | None) -> np.ndarray:
        """The forest's mean value of each row, shape (rows, values)."""
        columns = single(self._encode(x).T)
        return self.forest_.predict(columns, self._numbers(client, columns.shape[1]))

    def _numbers(self, client: str | Sequence[str] | None, rows: int) -> np.ndarray | None:
        """Each row's client as a number."""
        if client is None:
            return None
        names = np.full(rows, client) if isinstance(client, str) else np.asarray(client).astype(str)
        if names.shape != (rows,):
            raise InputError(f"client must be one name, or one for each of the {rows} rows")
        for name in np.unique(names).tolist():
            self._check_client(name)
        known = {name: number for number, name in enumerate(self.clients_)}
        return np.array([known[name] for name in names.tolist()], dtype=np.int64)

    # --- the model as people read it -----------------------------------------------------------

    @property
    def feature_importances_(self) -> np.ndarray:
        """Mean impurity decrease on each feature, as shares of all (clients' included).

        Of a private model, shares of the score's variance.
        """
        if self.private_:
            return private_way.importances(self.private_model_)
        return self.forest_.importances()[:-1]

    @property
    def client_importance_(self) -> float:
        """The share of the impurity decrease that is due to splits on the client."""
        return 0.0 if self.private_ else float(self.forest_.importances()[-1])

    def describe(self, tree: int = 0) -> str:
        """One tree as text, a rule for each leaf; of a private model, what weighs most."""
        if self.private_:
            return "\n".join(private_way.lines(self.private_model_, self.schema_.names))
        return "\n".join(rules.lines(self, tree))

    def to_text(self) -> str:
        """The whole forest as text rules, which :meth:`from_text` reads again.

        Raises:
            InputError: a private model, whose trees are weighted through a link, is no set of rules.
        """
        if self.private_:
            raise InputError("a private model is no set of rules; write to_dict() or describe()")
        return rules.to_text(self)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what :meth:`to_text` gave, edited or not.

        Raises:
            InputError: a line is no rule, or rules of a tree leave gaps.
        """
        return cls.from_dict(rules.parse(text))

    def readable(self) -> dict[str, Any]:
        """What kind of model it is, and what the values of its nodes are."""
        assert self.schema_.target is not None
        if self.private_:
            return {"model": "private random trees", "target": self.schema_.target.name}
        numbers = self.forest_.criterion == "squared_error"
        return {
            "model": "federated random forest",
            "target": self.schema_.target.name,
            "value": "mean target, scaled to [-1/2, 1/2]" if numbers else "class shares",
        }

    def state(self) -> dict[str, Any]:
        """The trees node by node, readable as they are; see :mod:`privfed.learners.forest.export`."""
        if self.private_:
            return {"private": private_way.state_of(self.private_model_)}
        return export.state_of(self)

    def restore(self, state: Mapping[str, Any]) -> None:
        """See the base; trees that make no sense are refused."""
        self.private_ = "private" in state
        if self.private_:
            self.private_model_ = private_way.model_of(self.schema_, state["private"])
        else:
            self.forest_ = export.forest_of(self.schema_, self.clients_, state)

    # --- policies ------------------------------------------------------------------------------

    def published(self) -> Policy:
        """What the paper releases: everything it asks for, as it is."""
        guards: dict[str, tuple[Guard, ...]] = {
            query.kind: (Guard.of("open"),) for query in self.queries
        }
        return Policy(guards, name="published")

    def nullified(self) -> Policy:
        """The paper's releases with small cells suppressed: no differential privacy.

        Sketches of nodes with few records, and counts of few, are withheld (see the questions'
        ``reveals``); local gains and shortlists, which no count stands beside, altogether.
        """
        guard = (Guard.of("nullify"),)
        kinds = (Sketches.kind, Bins.kind, OutOfBag.kind)
        return Policy(dict.fromkeys(kinds, guard), name="nullified")

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """A finite epsilon end to end, by other questions; see :mod:`privfed.learners.private`."""
        return private.private(epsilon, delta)

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """Two or three questions a level, more where a level's answer would grow too large.

        Where the policy does not name the published protocol's, those of the private way.
        """
        s = self._settings(schema)
        if not (Sketches.kind in policy.guards or self.baseline):
            return private.schedule(schema, private_way.outcome(schema, not self._classes(schema)))
        level = _example(schema, s)
        cuts = np.zeros((len(level.numeric), max(s.quantiles - 1, 1)), np.float32)
        times = _rounds(s, len(schema.features))
        planned = [Planned(Sketches(level, s.quantiles, s.interpolate), times)]
        if s.shortlist is not None:
            planned.append(Planned(Shortlist(level, s.quantiles, s.shortlist, s.criterion), times))
        if s.averaged:
            planned.append(Planned(LocalGains(level, cuts, s.criterion), times))
        planned.append(Planned(Bins(level, cuts), times))
        if self.oob_score:
            values = np.zeros((s.trees, s.classes or 1), np.float32)
            planned.append(Planned(OutOfBag(level.trees, level.sampling, values), 1))
        return planned


class FedForestClassifier(_FedForest, FederatedClassifier):
    """A federated random forest for classes.

    A target of categories, or of at most 100 whole numbers; in private, of 64 categories or 32 integers.

    Args:
        trees: how many.
        max_depth: most splits on a path; none for as many as there can be, at most 60.
        min_leaf: about the fewest different records of a leaf, on average over samples; see :func:`.samples.instances`.
        min_decrease: least weighted impurity decrease of a split (a node's share of the records times
            its decrease).
        criterion: ``"gini"`` or ``"entropy"``.
        max_features: how many features each node looks at, drawn for it: a number, a share, ``"sqrt"``,
            ``"third"`` or none for all. A node whose features all have one value draws others.
        quantiles: Q, at how many equal ranks a node's values are told and cut; upper levels of a
            forest, where nodes are few, use up to 64.
        candidates: ``"quantiles"`` inverts the mixture of the clients' distributions at equal ranks;
            ``"midpoints"`` tries the middles between all told values (centralized CART's candidates
            where Q is no less than a node's records); ``"range"`` tries equal steps between the
            node's extremes, as federated histograms do.
        interpolate: whether told quantiles lie between two values instead of being the nearer one.
        evaluation: ``"exact"`` sums the clients' statistics, ``"average"`` averages their local
            decreases (AvgImp, for alike clients).
        shortlist: L, how many features of a node each client may speak for (Top-L); none for all.
        client_splits: whether nodes may split on the client itself.
        sampling: how each tree is given each client's records: ``"bootstrap"``, ``"poisson"`` (each
            record repeated by its own coin), ``"split"`` (each record to one tree) or ``"all"``; see
            :class:`~privfed.learners.forest.samples.Sampling`.
        clients_per_tree: how many clients, drawn for it, each tree learns from; none for all.
        oob_score: whether to ask for the out-of-bag score, a release of its own.
        random_state: seed of the server's own draws; the clients' bootstraps hang on their secrets.
    """

    _criteria: ClassVar[tuple[Criterion, ...]] = ("gini", "entropy")

    @property
    def classes_(self) -> np.ndarray:
        """The schema's classes, in order."""
        target = self.schema_.target
        assert target is not None
        low, high = target.bounds
        return np.array(target.categories or np.arange(int(low), int(high) + 1))

    def _check_target(self, schema: Schema) -> None:
        if not self._classes(schema):
            raise InputError(
                "FedForestClassifier needs a target of categories, or of whole numbers with at most "
                "100 values between its bounds; for other numbers take FedForestRegressor"
            )

    def _classes(self, schema: Schema) -> int:
        return class_count(schema)

    def _values(self, pooled: np.ndarray, size: np.ndarray) -> np.ndarray:
        return np.asarray(pooled / size[:, None])

    def predict_proba(
        self, x: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Class probabilities, shape (rows, classes).

        Args:
            x: rows to predict.
            client: the client that they are from, one name or one each, where it is known.
        """
        return self._values_of(x, client)

    def predict(
        self, x: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """The likeliest class of each row; arguments as for :meth:`predict_proba`."""
        likeliest: np.ndarray = self.classes_[self.predict_proba(x, client=client).argmax(axis=1)]
        return likeliest


class FedForestRegressor(_FedForest, FederatedRegressor):
    """A federated random forest for a numeric target.

    Args:
        trees, max_depth, min_leaf, min_decrease, max_features, quantiles, candidates, interpolate,
        evaluation, shortlist, client_splits, sampling, clients_per_tree, oob_score, random_state:
            as for :class:`FedForestClassifier`; decreases are of the target's variance.
        criterion: ``"squared_error"``.
    """

    _criteria: ClassVar[tuple[Criterion, ...]] = ("squared_error",)

    def __init__(  # noqa: PLR0913 - an estimator's parameters
        self,
        *,
        trees: int = 100,
        max_depth: int | None = 10,
        min_leaf: int = 5,
        min_decrease: float = 0.0,
        criterion: str = "squared_error",
        max_features: float | str | None = None,
        quantiles: int = 10,
        candidates: str = "quantiles",
        interpolate: bool = False,
        evaluation: str = "exact",
        shortlist: int | None = None,
        client_splits: bool = False,
        sampling: str = "bootstrap",
        clients_per_tree: int | None = None,
        oob_score: bool = False,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            trees=trees,
            max_depth=max_depth,
            min_leaf=min_leaf,
            min_decrease=min_decrease,
            criterion=criterion,
            max_features=max_features,
            quantiles=quantiles,
            candidates=candidates,
            interpolate=interpolate,
            evaluation=evaluation,
            shortlist=shortlist,
            client_splits=client_splits,
            sampling=sampling,
            clients_per_tree=clients_per_tree,
            oob_score=oob_score,
            random_state=random_state,
        )

    def _check_target(self, schema: Schema) -> None:
        check_numeric_target(schema, learner="FedForestRegressor")

    def _classes(self, schema: Schema) -> int:
        return 0

    def _settings(self, schema: Schema) -> Settings:
        """Decreases are held against the target's own variance, which is scaled by its bounds."""
        assert schema.target is not None
        low, high = schema.target.bounds
        scaled = self.min_decrease / (high - low) ** 2
        return replace(super()._settings(schema), min_decrease=float(scaled))

    def _values(self, pooled: np.ndarray, size: np.ndarray) -> np.ndarray:
        return np.asarray((pooled[:, 1] / size)[:, None] * float(TARGET_GRID))

    def predict(
        self, x: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """The mean of the target, shape (rows,).

        Args:
            x: rows to predict.
            client: the client that they are from, one name or one each, where it is known.
        """
        return self._values_of(x, client)[:, 0]

    def _in_unit(self, mean: np.ndarray) -> np.ndarray:
        assert self.schema_.target is not None
        low, high = self.schema_.target.bounds
        return np.asarray((mean + 0.5) * (high - low) + low)


def features_of(wanted: float | str | None, features: int) -> int:
    """How many features each node looks at: all, by a word, a share, or a number of them."""
    if wanted is None:
        return features
    if isinstance(wanted, str):
        return max(1, int(np.sqrt(features)) if wanted == "sqrt" else features // 3)
    if isinstance(wanted, float):
        return max(1, int(wanted * features))
    return min(int(wanted), features)


def _example(schema: Schema, settings: Settings) -> Level:
    """The first level: the roots, each looking at the first features."""
    roots = np.arange(settings.trees, dtype=np.int64)
    first = np.arange(settings.per_node)
    categorical = category_sizes(schema)[first] > 0
    numeric, grouped = (
        Pairs(np.full(len(roots), len(own)), np.tile(own, len(roots)))
        for own in (first[~categorical], first[categorical])
    )
    sampling = Sampling(settings.sampling, settings.seed, roots, settings.trees)
    return Level(Trees.stumps(settings.trees), sampling, roots, numeric, grouped, settings.classes)


def _rounds(settings: Settings, features: int) -> int:
    """The most questions of a kind: every level, every second draw of features, every portion."""
    draws = -(-features // settings.per_node)
    one = settings.trees * settings.per_node * settings.quantiles * settings.width
    levels = sum(1 + one * 2**depth // MOST_CELLS for depth in range(settings.max_depth + 1))
    return int(min(draws * levels + 1, MOST_TIMES))
