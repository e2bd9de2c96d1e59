"""Federated RuleFit with scikit-learn's interface."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from msgspec import UNSET
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from privfed.errors import InputError, Note, no_column
from privfed.exchange.disclosure import Disclosure
from privfed.learners import private
from privfed.learners.base import FederatedClassifier, FederatedRegressor, check_round
from privfed.learners.parameters import (
    Boolean,
    Constraints,
    Directions,
    Integers,
    Reals,
    StrOptions,
)
from privfed.learners.plain import plain
from privfed.learners.privacy_text import privacy_text
from privfed.learners.private.model import Aim
from privfed.learners.private.target_link import MOST_CLASSES
from privfed.learners.rulefit.alternatives import marked
from privfed.learners.rulefit.boosting import Boosting
from privfed.learners.rulefit.class_scorecards import class_scorecards
from privfed.learners.rulefit.cutoffs import MOST_CUTS, Cutoffs
from privfed.learners.rulefit.description import (
    NOTHING,
    STARRED,
    added_up,
    described,
    of_classes,
    of_number,
    unseen,
)
from privfed.learners.rulefit.estimation import Averaging, Gradients
from privfed.learners.rulefit.model import UNKNOWN, ClassEnsembles, RuleEnsemble
from privfed.learners.rulefit.private_way import PrivateRuleFit
from privfed.learners.rulefit.published import (
    FittedRules,
    PublishedRuleFit,
    RuleFitParams,
    published,
)
from privfed.learners.rulefit.rules import Rule
from privfed.learners.rulefit.scorecard import ScoreCard
from privfed.learners.ways import LearnerByWays, Ways
from privfed.privacy.policy import Policy
from privfed.questions.exact import Number
from privfed.questions.tree import rounding_note
from privfed.tables.schema import Schema, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LINES = 100  #: Of a score card beside its model; a longer one is not added up by hand
_KEPT = ("private_", "rounds_", "objective_", "gap_", "target_limits_")  #: Saved unchanged


ALLOWED: Constraints = {
    "n_bins": [Integers(at_least=2, at_most=100_000)],
    "n_quantiles": [Integers(at_least=1, at_most=MOST_CUTS)],
    "n_estimators": [Integers(at_least=1, at_most=10_000)],
    "tree_size": [Reals(at_least=2, at_most=64)],
    "learning_rate": [Reals(above=0, at_most=1)],
    "subsample": [Reals(at_least=0, at_most=1)],
    "min_samples_leaf": [Integers(at_least=1, at_most=10**9)],
    "max_rules": [Integers(at_least=1), None],
    "include_linear": [Boolean()],
    "alpha": [Reals(at_least=0, at_most=10**6)],
    "solver": [StrOptions("gradient", "averaging")],
    "n_rounds": [Integers(at_least=1, at_most=10**6)],
    "local_steps": [Integers(at_least=1, at_most=1_000)],
    "server_learning_rate": [Reals(above=0, at_most=10)],
    "client_learning_rate": [Reals(above=0, at_most=10), None],
    "clients_per_round": [Integers(at_least=1), None],
    "reference_rounds": [Integers(at_least=0, at_most=10**6)],
    "max_terms": [Integers(at_least=1, at_most=1_000), None],
    "stable": [Boolean()],
    "monotonic_cst": [Directions(), None],
    "random_state": [Integers(at_least=0), None],
}

#: The paper's parameters (Section 3.1) if they differ from the defaults; Algorithm 1 keeps all rules, fits trees to all
#: records and has no minimum leaf size. Its "mean depth 2" is read as four leaves: stumps make no such rules.
PAPER: Mapping[str, Any] = {
    "alpha": 0.01,
    "solver": "averaging",
    "n_rounds": 300,
    "local_steps": 20,
    "client_learning_rate": 0.01,
    "max_rules": None,
    "min_samples_leaf": 1,
    "subsample": 1,
}


class _RuleFit(LearnerByWays):
    """Base class of classifier and regressor; for parameters see :class:`RuleFitClassifier`.

    ``fit`` sets ``ensemble_`` (``model_``, or ``models_`` of several classes), ``way_`` and ``private_`` (how it
    learned), ``rounds_``, ``target_limits_``, ``objective_`` (final pooled mean loss plus penalty; NaN if withheld) and
    ``gap_`` (the objective minus the proximal-gradient optimum; NaN without ``reference_rounds``).
    """

    ways: ClassVar[Ways] = (PublishedRuleFit, PrivateRuleFit)
    _parameter_constraints: ClassVar[Constraints] = ALLOWED
    paper_settings: ClassVar[Mapping[str, Any]] = PAPER
    _logistic: ClassVar[bool]

    ensemble_: RuleEnsemble | ClassEnsembles  #: The fitted model, set by ``fit``
    target_limits_: tuple[float, float]  #: Target values of the scores -1 and 1

    def __init__(  # noqa: PLR0913 - an estimator's parameters
        self,
        *,
        n_bins: int = 100,
        n_quantiles: int = 20,
        n_estimators: int = 333,
        tree_size: float = 4,
        learning_rate: float = 0.01,
        subsample: float = 0,
        min_samples_leaf: int = 5,
        max_rules: int | None = 1000,
        include_linear: bool = True,
        alpha: float = 0.005,
        solver: str = "gradient",
        n_rounds: int = 80,
        local_steps: int = 5,
        server_learning_rate: float = 1.0,
        client_learning_rate: float | None = None,
        clients_per_round: int | None = None,
        reference_rounds: int = 0,
        max_terms: int | None = 20,
        stable: bool = False,
        monotonic_cst: Mapping[str, int] | Sequence[int] | None = None,
        random_state: int | None = None,
    ) -> None:
        self._set(locals())

    def _start(self, federation: Disclosure) -> None:
        super()._start(federation)
        check_round(self.clients_per_round, len(federation.clients))
        if self.clients_per_round is not None and self.solver == "gradient":
            raise InputError(
                "clients_per_round draws clients for dual averaging, and gradients are everybody's; "
                'write solver="averaging", or leave it out'
            )

    def _params(self, schema: Schema) -> RuleFitParams:
        categories = schema.target.categories if schema.target is not None else ()
        boosting = Boosting(
            self.n_estimators,
            float(self.tree_size),
            self.learning_rate,
            float(self.subsample),
            self.min_samples_leaf,
            self._logistic,
        )
        kwargs: dict[str, Any] = {
            "rounds": self.n_rounds,
            "client_step": self.client_learning_rate,
            "penalty": self.alpha,
            "logistic": self._logistic,
            "reference_rounds": self.reference_rounds,
        }
        if self.solver == "averaging":
            kwargs["local_steps"] = self.local_steps
            kwargs["server_step"] = self.server_learning_rate
            kwargs["clients_per_round"] = self.clients_per_round
        return RuleFitParams(
            self.n_bins,
            self.n_quantiles,
            boosting,
            self.max_rules,
            self.include_linear,
            Gradients(**kwargs) if self.solver == "gradient" else Averaging(**kwargs),
            max_terms=self.max_terms,
            stable=self.stable,
            monotonic=self._monotonic(schema),
            labels=tuple(range(len(categories))) if len(categories) > 2 else (UNSET,),
        )

    def _monotonic(self, schema: Schema) -> tuple[int, ...]:
        """Return the direction of each feature, or empty."""
        signs, columns = self.monotonic_cst, schema.features
        if signs is None:
            return ()
        if self.max_terms is None:
            raise InputError("monotonic_cst is for short private models only; write max_terms=20")
        if not isinstance(signs, Mapping):
            if len(signs) != len(columns):
                raise InputError(
                    f"monotonic_cst needs a number for each of {len(columns)} features, not {len(signs)}; "
                    f'write {{"{columns[0].name}": 1}}'
                )
            signs = dict(zip(schema.names, signs, strict=True))
        for name in signs:
            if name not in schema.names:
                raise InputError(f"monotonic_cst: {no_column(name, schema.names)}")
            if signs[name] and columns[schema.names.index(name)].kind == "category":
                raise InputError(
                    f"monotonic_cst: {name!r} is a category, which neither rises nor falls; leave it out"
                )
        return tuple(int(signs.get(name, 0)) for name in schema.names)

    def _keep(self, result: FittedRules) -> None:
        self.ensemble_ = result.model
        self.target_limits_, self.rounds_ = result.target_limits, result.rounds
        self.objective_, self.gap_ = result.objective, result.gap
        if not result.rounds:
            warnings.warn(
                "no client answered a single round: the model predicts a constant",
                Note,
                stacklevel=3,
            )

    def _convergence(self) -> dict[str, Any]:
        """Return the convergence as plain data; None for values that were not released."""
        values = {"objective": self.objective_, "gap": self.gap_}
        released = {name: None if math.isnan(value) else value for name, value in values.items()}
        return {"convergence": {"rounds": self.rounds_, **released}}

    @property
    def rules_(self) -> list[Rule]:
        """The distinct rules with a nonzero coefficient."""
        return list(dict.fromkeys(rule for model in self.models_ for rule in model.kept_rules))

    @property
    def cutoffs_(self) -> Cutoffs:
        """The cut-offs of the model's terms; short models of several classes have their own, in ``models_``."""
        return self.models_[0].terms.cutoffs

    @property
    def model_(self) -> RuleEnsemble:
        """The fitted model of two classes or a number; for several classes see ``models_``."""
        if isinstance(self.ensemble_, RuleEnsemble):
            return self.ensemble_
        raise AttributeError(
            "model_ is for two classes or a number; models_ has one for each class"
        )

    @property
    def models_(self) -> tuple[RuleEnsemble, ...]:
        """The fitted model, or one per class, in the order of ``classes_``."""
        return (
            self.ensemble_.models
            if isinstance(self.ensemble_, ClassEnsembles)
            else (self.ensemble_,)
        )

    @property
    def feature_importances_(self) -> np.ndarray:
        """Variable importances, scaled to a maximum of 1 (paper, Section 2.3)."""
        return self.ensemble_.variable_importances

    def importance_intervals(self, level: float = 0.9, of: Aim = "truth") -> pd.DataFrame:
        """Return importances of a short private model's features, with intervals.

        Args:
            level: of the intervals.
            of: ``"truth"``, or ``"same"`` for the terms' fit to the same records without noise.

        Returns:
            columns importance, low and high, one row per feature, relative to the largest importance.

        Raises:
            InputError: unknown, as the model is not short or not private.
        """
        check_is_fitted(self)
        model = self.ensemble_
        if any(ensemble.error is None for ensemble in self.models_):
            raise InputError(UNKNOWN)
        unit = float(model.covariate_importances.max()) or 1.0
        ends = model.importance_intervals(level, of) / unit
        columns = np.column_stack([model.variable_importances, ends])
        return pd.DataFrame(columns, list(self.feature_names_in_), ["importance", "low", "high"])

    def table(self, top: int | None = None, least_support: float = 0.0) -> pd.DataFrame:
        return self.ensemble_.table(top, least_support)

    def describe(self, top: int = 20) -> str:
        """Return the first ``top`` terms of :meth:`table` as text, with an explanation of its columns."""
        check_is_fitted(self)
        last = "\n".join([*self.schema_.fill_notes(), *self._notes(self.rules_)])
        return described(self.table(), top, self._explanation(), last, private=self.private_)

    def _notes(self, printed: Sequence[Rule]) -> list[str]:
        """Return the last notes on a text with some rules: whether cut-offs are rounded, and epsilon."""
        conditions = [condition for rule in printed for condition in rule.conditions]
        cuts = [(self.schema_.column(c.feature), end) for c in conditions for end in c.ends]
        return [*rounding_note(cuts), privacy_text(self.privacy_)]

    def plot(self, feature: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Plot terms as bars, or one feature's own terms; with 90 % intervals for a short private model.

        For several classes, bars are labelled by class, and each class has a curve.
        """
        from privfed.learners import pictures

        check_is_fitted(self)
        unit, label = self._unit
        if feature is None:
            table = self.table()
            known = {"low", "high"} <= set(table)
            ends = table[["low", "high"]].to_numpy() if known else None
            names = table["term"]
            if "class" in table:
                names = table["class"].map(shown) + ": " + names
            starred = [marked(text) for text in table.get("alternatives", ())]
            if any(starred):
                names += [" *" * own for own in starred]
            lengths = table["coefficient"].to_numpy()
            ax = pictures.bars(ax, names.tolist(), lengths, f"adds to {label}", ends)
            told = STARRED if any(starred) else ""
            return pictures.titled(ax, told if len(table) else NOTHING)
        column, number = self._feature(feature)
        shared = [model.terms.cutoffs for model in self.models_]
        cuts = [
            c for own in shared for c in (*own.cuts[number], own.lower[number], own.upper[number])
        ]
        points = pictures.places_of(column, cuts)
        shapes = [model.shape_of(number, points) for model in self.models_]
        left_out = unseen(column, [model.terms_of(number) for model in self.models_])
        if isinstance(self.ensemble_, ClassEnsembles):
            named = dict(zip(self.ensemble_.classes, shapes, strict=True))
            curves = {name: heights for name, (heights, _) in named.items()}
            bands = {name: band for name, (_, band) in named.items() if band is not None}
            ax = pictures.shape(ax, column, curves, f"adds to {label}", bands, cuts)
        else:
            heights, band = shapes[0]
            band = None if band is None else unit * band
            ax = pictures.shape(ax, column, unit * heights, f"adds to {label}", band, cuts)
        return pictures.titled(ax, left_out)

    @property
    @abstractmethod
    def _unit(self) -> tuple[float, str]:
        """Return the unit of a coefficient, and its text."""

    @abstractmethod
    def _explanation(self) -> str:
        """Describe what coefficients add to, and the intercept."""

    def published(self, epsilon: Number = 1) -> Policy:
        """Return a policy with noise on histograms only: p covariates cost p * epsilon; the rest is unprotected."""
        return published(epsilon)

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """Return a policy with a finite total epsilon, for one record, add-or-remove, under zCDP."""
        return private.private(epsilon, delta)

    def _scores(
        self, X: pd.DataFrame | np.ndarray, client: str | Sequence[str] | None
    ) -> np.ndarray:
        return self.ensemble_.scores(self._encode(X, client))

    def state(self) -> dict[str, Any]:
        """See the base: the convergence, and the model with all its candidate rules."""
        return {**{name: plain(getattr(self, name)) for name in _KEPT}, **self.ensemble_.to_state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.way_ = "private" if state["private_"] else "published"
        super().restore({name: state[name] for name in _KEPT[1:]})
        kind = ClassEnsembles if "models" in state else RuleEnsemble
        self.ensemble_ = kind.from_state(self.schema_, state)


class RuleFitClassifier(FederatedClassifier, _RuleFit):
    """Federated RuleFit for classes, with the logistic loss.

    More than two classes, at most 64, have one model each: published against the rest, private by softmax.

    Args:
        n_bins: histogram bins B of each covariate.
        n_quantiles: quantile levels Q, which become cut-offs.
        n_estimators: trees C that each client boosts.
        tree_size: mean number of leaves L of a tree; 2 gives stumps.
        learning_rate: learning rate nu of the boosting.
        subsample: fraction of a client's records for each tree; 0: min(N/2, 100 + 6 sqrt N).
        min_samples_leaf: fewest records of a leaf.
        max_rules: maximum number of rules, the most frequently grown; None keeps all.
        include_linear: whether covariates have linear terms (winsorised; two-valued categories too).
        alpha: lambda of the L1 norm, for the mean loss.
        solver: ``gradient``, accelerated proximal gradient with one exact gradient per client and round; or
            ``averaging``, the paper's dual averaging.
        n_rounds: maximum rounds R; fewer at convergence.
        local_steps: local steps G of each round of averaging.
        server_learning_rate: eta_s of averaging.
        client_learning_rate: eta_c, or the gradient's step; None for one that cannot diverge.
        clients_per_round: number of clients drawn in each round of averaging; None for all.
        reference_rounds: rounds of exact federated proximal gradient after learning, only to report the distance to
            the optimum (``gap_``, in units of the objective, at least 0 up to the reference's own distance); the model
            does not change, and each round is another release of all clients' exact gradients. Under ``private``, and
            with 0 rounds, ``gap_`` is NaN.
        max_terms: maximum rules and lines of the model learned by ``private``, fewer if noise supports no more;
            None for all of the engine's. It does not change releases or cost.
        stable: for that short model, whether rules are steps of single columns only.
        monotonic_cst: for that short model, columns in which it is increasing (1) or decreasing (-1): ``{"age":
            1}``, or a number per feature; for several classes, in each class's score.
        random_state: the server's own seed (random rules, draws of clients); no client's secret depends on it.
    """

    _logistic: ClassVar[bool] = True

    def check(self, schema: Schema) -> None:
        """Check that the target is classes, and not too many; see the base."""
        super().check(schema)
        assert schema.target is not None
        if len(schema.target.categories) > MOST_CLASSES:
            raise InputError(
                f"RuleFitClassifier distinguishes up to {MOST_CLASSES} classes, and the target "
                f"{schema.target.name!r} has more; merge categories, or use FedForestClassifier"
            )

    def decision_function(
        self, X: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Return log-odds of the second class, shape (rows,); for several, scores of each, shape (rows, classes)."""
        return self._scores(X, client)

    def predict_proba(
        self, X: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Return probabilities of the classes, shape (rows, classes)."""
        if isinstance(self.ensemble_, ClassEnsembles):
            return self.ensemble_.probabilities(self._encode(X, client))
        second = expit(self._scores(X, client))
        return np.column_stack([1 - second, second])

    def confidence_interval(
        self, X: pd.DataFrame | np.ndarray, level: float = 0.9, of: Aim = "truth"
    ) -> np.ndarray:
        """Return intervals of the second class's probabilities, shape (rows, 2), for a short private model.

        They hold the true probability, or, of ``"same"``, that of the terms' fit to the same records without noise. For
        more than two classes, shape (rows, classes, 2).

        Raises:
            InputError: the model's intervals are unknown.
        """
        check_is_fitted(self)
        if isinstance(self.ensemble_, ClassEnsembles):
            return self.ensemble_.probability_intervals(self._encode(X), level, of)
        return np.asarray(expit(self.ensemble_.score_intervals(self._encode(X), level, of)))

    @property
    def _unit(self) -> tuple[float, str]:
        name = shown(self.schema_.columns[-1].name)
        if not isinstance(self.ensemble_, ClassEnsembles):
            return 1.0, f"log-odds of {name} = {shown(str(self.classes_[1]))}"
        softmax = self.ensemble_.link == "softmax"
        return (
            1.0,
            f"score of each class of {name}" if softmax else f"log-odds of each class of {name}",
        )

    def _explanation(self) -> str:
        classes = [shown(str(name)) for name in self.classes_]
        target, own = shown(self.schema_.columns[-1].name), self.ensemble_
        if not isinstance(own, ClassEnsembles):
            return of_classes(self.models_, target, classes[1:], None)
        return of_classes(self.models_, target, classes, own.link, own.power)

    def scorecard(
        self, max_points: int | None = None, *, label: str | int | None = None
    ) -> ScoreCard:
        """Return the model as integer points that add up to a risk; see :meth:`.ScoreCard.from_ensemble`.

        Args:
            max_points: of a term, in absolute value; None for 10, or for a :class:`.ClassScoreCard` as many as let 10
                points double the odds.
            label: the class; required of more than two. Privately it has a :class:`.ClassScoreCard`, else one against the rest.

        Raises:
            InputError: no such class, a constant model, or one of several classes that is private and not short.
        """
        check_is_fitted(self)
        model, names = self.ensemble_, [str(name) for name in self.classes_]
        if isinstance(model, RuleEnsemble):
            names = names[1:]
        elif model.link == "softmax" and model.models[0].synthetic is None:
            raise InputError(
                "score cards of several classes are of short models; write max_terms = 20, or use predict_proba()"
            )
        if label is None and len(names) > 1:
            raise InputError(
                f"each of several classes has a score card of its own; write scorecard(label={names[0]!r})"
            )
        if label is not None and str(label) not in names:
            raise InputError(f"no score card of {label!r}; write label = {' or '.join(names)}")
        number = 0 if label is None else names.index(str(label))
        if isinstance(model, RuleEnsemble) or model.link != "softmax":
            most = 10 if max_points is None else max_points
            card = ScoreCard.from_ensemble(
                self.models_[number], most, names[number] if len(names) > 1 else ""
            )
            if isinstance(model, ClassEnsembles):
                card = replace(card, footnotes=(*card.footnotes, added_up(model, names)))
        else:
            card = class_scorecards(model.models, names, max_points)[number]
        return replace(card, footnotes=(*card.footnotes, *self._notes(card.rules)))

    def to_html(self) -> str:
        """Return plot, text and score cards, those that people can use, as HTML; errors as :meth:`plot`."""
        html = super().to_html()
        several = isinstance(self.ensemble_, ClassEnsembles)
        for label in map(str, self.classes_) if several else [None]:
            with suppress(InputError):
                card = self.scorecard(label=label)
                title = "Score card" if label is None else f"Score card of {escape(shown(label))}"
                if len(card.table()) <= MOST_LINES:
                    html += f"<details open><summary><strong>{title}</strong></summary>{card.to_html()}</details>"
        return html

    def readable(self) -> dict[str, Any]:
        """Return rules and linear terms; the linear predictor is the log-odds of class 1, or each class's score."""
        assert self.schema_.target is not None
        model = self.ensemble_
        data = model.to_dict("logit") if isinstance(model, RuleEnsemble) else model.to_dict()
        classes = [value.item() for value in self.classes_]
        return {
            "target": self.schema_.target.name,
            "classes": classes,
            **data,
            **self._convergence(),
        }


class RuleFitRegressor(FederatedRegressor, _RuleFit):
    """Federated RuleFit for a number, with the squared loss (the paper's future work).

    The target is scaled to [-1, 1] by its public bounds (privately by ``target_limits_``, which contain most of it).
    ``alpha`` is for that scale (where bounds are loose, in proportion to the target's standard deviation), and the default
    keeps few terms: with many records a tenth of it explains more. For parameters see :class:`RuleFitClassifier`.
    """

    _logistic: ClassVar[bool] = False

    @property
    def prediction_limits_(self) -> tuple[float, float]:
        """See the base."""
        return self.target_limits_

    @property
    def _unit(self) -> tuple[float, str]:
        low, high = self.target_limits_
        return (high - low) / 2, shown(self.schema_.columns[-1].name)

    def _explanation(self) -> str:
        target = self.schema_.target
        assert target is not None
        return of_number(self.model_, target, self.target_limits_)

    def table(self, top: int | None = None, least_support: float = 0.0) -> pd.DataFrame:
        """Return the terms, with coefficients in the target's unit; see :meth:`.RuleEnsemble.table`."""
        table = super().table(top, least_support).drop(columns="exp_coefficient")
        numbers = [name for name in ("coefficient", "low", "high") if name in table]
        table[numbers] *= self._unit[0]
        return table

    def predict(
        self, X: pd.DataFrame | np.ndarray, *, client: str | Sequence[str] | None = None
    ) -> np.ndarray:
        """Predict each row's target, within its public bounds."""
        return self._in_unit(self._scores(X, client))

    def confidence_interval(
        self, X: pd.DataFrame | np.ndarray, level: float = 0.9, of: Aim = "truth"
    ) -> np.ndarray:
        """Return intervals of the target's mean, not of targets; see :meth:`RuleFitClassifier.confidence_interval`."""
        check_is_fitted(self)
        return self._in_unit(self.models_[0].score_intervals(self._encode(X), level, of))

    def _in_unit(self, scores: np.ndarray) -> np.ndarray:
        low, high = self.target_limits_
        return np.asarray(low + (np.clip(scores, -1, 1) + 1) / 2 * (high - low))

    def readable(self) -> dict[str, Any]:
        """Return rules and linear terms; the linear predictor is scaled to [-1, 1]."""
        target = self.schema_.target
        assert target is not None
        bounds = [float(bound) for bound in self.target_limits_]
        data = self.models_[0].to_dict("scaled to [-1, 1]")
        return {"target": target.name, "target_bounds": bounds, **data, **self._convergence()}
