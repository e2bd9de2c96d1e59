"""Federated RuleFit in scikit-learn's manners."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from scipy.special import expit

from privfed.errors import InputError, Note
from privfed.exchange.disclosure import Disclosure
from privfed.learners import private
from privfed.learners.base import (
    FederatedClassifier,
    FederatedLearner,
    FederatedRegressor,
    Planned,
    check_round,
)
from privfed.learners.parameters import Constraints
from privfed.learners.plain import plain
from privfed.learners.rulefit import planning
from privfed.learners.rulefit.averaging import Steps
from privfed.learners.rulefit.boosting import Boosting
from privfed.learners.rulefit.cutoffs import read_cutoffs
from privfed.learners.rulefit.estimation import Averaging, Estimate, Estimation, Gradients
from privfed.learners.rulefit.histograms import Marginal, ask_marginals
from privfed.learners.rulefit.model import RuleEnsemble
from privfed.learners.rulefit.parameters import ALLOWED, PAPER
from privfed.learners.rulefit.pooled import ask_pooled
from privfed.learners.rulefit.private_way import as_rules
from privfed.learners.rulefit.queries import (
    BoostedRules,
    CovariateHistogram,
    Curvature,
    Increment,
    Objective,
    Supports,
)
from privfed.learners.rulefit.rules import Rule, Terms, union
from privfed.learners.rulefit.spreads import Spreads
from privfed.privacy.policy import Policy
from privfed.questions.exact import Number
from privfed.questions.query import Query
from privfed.tables.schema import Schema

#: Fitted values that are saved as they are, beside the model.
_KEPT = ("private_", "rounds_", "objective_", "gap_", "target_limits_")


class _RuleFit(FederatedLearner):
    """What the classifier and the regressor share.

    Under a policy that answers `published`'s questions it learns as the paper does; where those are
    refused it asks `private`'s, and learns as :mod:`privfed.learners.private` does.

    The parameters are documented at :class:`RuleFitClassifier`.
    """

    queries: ClassVar[tuple[type[Query], ...]] = (
        CovariateHistogram,
        BoostedRules,
        Supports,
        Spreads,
        Curvature,
        Increment,
        Objective,
        *private.QUERIES,
    )
    _parameter_constraints: ClassVar[Constraints] = ALLOWED
    _logistic: ClassVar[bool]

    #: The fitted model, set by ``fit``.
    model_: RuleEnsemble

    def __init__(  # noqa: PLR0913 - an estimator's parameters
        self,
        *,
        bins: int = 100,
        cutoffs: int = 20,
        trees: int = 333,
        leaves: float = 4,
        shrinkage: float = 0.01,
        subsample: float = 0,
        min_leaf: int = 5,
        max_rules: int | None = 1000,
        linear: bool = True,
        penalty: float = 0.005,
        estimation: str = "gradient",
        rounds: int = 80,
        local_steps: int = 5,
        server_step: float = 1.0,
        client_step: float | None = None,
        clients_per_round: int | None = None,
        reference_rounds: int = 0,
        random_state: int | None = None,
    ) -> None:
        self.bins = bins
        self.cutoffs = cutoffs
        self.trees = trees
        self.leaves = leaves
        self.shrinkage = shrinkage
        self.subsample = subsample
        self.min_leaf = min_leaf
        self.max_rules = max_rules
        self.linear = linear
        self.penalty = penalty
        self.estimation = estimation
        self.rounds = rounds
        self.local_steps = local_steps
        self.server_step = server_step
        self.client_step = client_step
        self.clients_per_round = clients_per_round
        self.reference_rounds = reference_rounds
        self.random_state = random_state

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """The settings that the paper prints, with any of them changed; see :data:`PAPER`."""
        return cls(**(dict(PAPER) | changes))

    # --- learning ------------------------------------------------------------------------------

    def fit(self, federation: Disclosure) -> Self:
        """Learn from releases alone.

        Sets ``schema_``, ``cutoffs_``, ``model_``, ``private_`` (which way it learned), ``rounds_``,
        ``objective_`` (pooled mean loss plus penalty at the end; NaN where withheld), ``gap_`` (what
        the proximal-gradient optimum is below it; NaN unless ``reference_rounds`` asks for it).

        Raises:
            InputError: a parameter makes no sense, or the target is of the wrong kind.
            NobodyAnswered: no client answered the first question.
        """
        self._start(federation)
        check_round(self.clients_per_round, len(federation.clients))
        if self.clients_per_round is not None and self.estimation == "gradient":
            raise InputError(
                "clients_per_round draws clients for dual averaging, and gradients are everybody's; "
                'write estimation="averaging", or leave it out'
            )
        self._rng = np.random.default_rng(self.random_state)
        marginal = ask_marginals(federation, self.bins)
        self.private_ = marginal is None
        if marginal is None:
            self._fit_private(federation)
        else:
            self._fit_published(federation, marginal)
        return self

    def _fit_published(self, federation: Disclosure, marginal: Marginal) -> None:
        """Boosted rules, exact supports, coefficients round by round."""
        assert self.schema_.target is not None
        self.target_limits_ = self.schema_.target.bounds
        self.cutoffs_ = read_cutoffs(marginal.counts, self.schema_, marginal.bins, self.cutoffs)
        surrogate = marginal.surrogate(self.schema_, self._rng)
        terms = Terms(self.cutoffs_, self._boosted(federation), self._linear_terms())
        pooled = ask_pooled(federation, terms, marginal, surrogate)
        estimate = self._estimation(federation).run(federation, terms, pooled)
        deviations = np.sqrt(np.maximum(pooled.variances, 0))
        model = RuleEnsemble(self.schema_, terms, estimate.weights, pooled.supports, deviations)
        self._keep(model, estimate)

    def _fit_private(self, federation: Disclosure) -> None:
        """Random rules and noisy sums by bin and leaf; see :mod:`privfed.learners.private`."""
        outcome = private.Outcome.of(self.schema_, not self._logistic)
        fitted = private.learn(federation, outcome, self._rng, linear=self.linear)
        model = as_rules(fitted)
        self.cutoffs_ = model.terms.cutoffs
        self.target_limits_ = (fitted.outcome.lower, fitted.outcome.upper)
        self._keep(model, Estimate(model.weights, fitted.rounds, math.nan))

    def _boosted(self, federation: Disclosure) -> np.ndarray:
        """The union of the clients' rules; none where nobody tells."""
        features = len(self.schema_.features)
        answers = federation.ask_offered(BoostedRules(self.cutoffs_, self._boosting()))
        groups = [(r["boxes"].data, r["mentions"].data) for r in answers.releases()]
        if not groups:
            return np.zeros((0, features, 2), np.uint8)
        boxes, _ = union(groups, features)
        return boxes[: self.max_rules]

    def _boosting(self) -> Boosting:
        return Boosting(
            self.trees,
            float(self.leaves),
            self.shrinkage,
            float(self.subsample),
            self.min_leaf,
            self._logistic,
        )

    def _linear_terms(self) -> tuple[int, ...]:
        """Covariates with an order and more than one winsorised value."""
        spread = self.cutoffs_.upper > self.cutoffs_.lower
        ordered = [
            column.numeric or len(column.categories) == 2 for column in self.schema_.features
        ]
        chosen = np.flatnonzero(spread & np.array(ordered) & self.linear)
        return tuple(int(feature) for feature in chosen)

    def _estimation(self, federation: Disclosure) -> Estimation:
        """How coefficients are found."""
        given: dict[str, Any] = {
            "rounds": self.rounds,
            "client_step": self.client_step,
            "penalty": self.penalty,
            "logistic": self._logistic,
            "reference_rounds": self.reference_rounds,
        }
        if self.estimation == "gradient":
            return Gradients(**given)
        draw = None if self.clients_per_round is None else lambda: self._drawn(federation)
        return Averaging(
            **given, local_steps=self.local_steps, server_step=self.server_step, draw=draw
        )

    def _drawn(self, federation: Disclosure) -> Sequence[str]:
        """The clients of one round."""
        drawn = self._rng.choice(len(federation.clients), self.clients_per_round, replace=False)
        return [federation.clients[number] for number in sorted(drawn)]

    def _keep(self, model: RuleEnsemble, estimate: Estimate) -> None:
        self.model_, self.rounds_ = model, estimate.rounds
        self.objective_, self.gap_ = estimate.objective, estimate.gap
        if not estimate.rounds:
            warnings.warn(
                "no client answered a single round: the model predicts a constant",
                Note,
                stacklevel=3,
            )

    def _told(self) -> dict[str, Any]:
        """How learning went, as plain data; none stands for what was not released."""
        found = {"objective": self.objective_, "gap": self.gap_}
        known = {name: None if math.isnan(value) else value for name, value in found.items()}
        return {"convergence": {"rounds": self.rounds_, **known}}

    # --- the model as people read it -----------------------------------------------------------

    @property
    def rules_(self) -> list[Rule]:
        """The rules with a coefficient other than zero."""
        model = self.model_
        kept = np.flatnonzero(model.weights[1 : 1 + len(model.terms.boxes)])
        return [model.rules[k] for k in kept]

    @property
    def feature_importances_(self) -> np.ndarray:
        """Variable importances, the largest being 1 (paper, Section 2.3)."""
        return self.model_.variable_importances

    def table(self, top: int | None = None, least_support: float = 0.0) -> pd.DataFrame:
        """The terms as a clinician reads them; see :meth:`RuleEnsemble.table`."""
        return self.model_.table(top, least_support)

    def describe(self, top: int = 20) -> str:
        """The most important terms as text."""
        return self.model_.describe(top)

    # --- policies ------------------------------------------------------------------------------

    def published(self, epsilon: Number = 1) -> Policy:
        """What the paper releases: noise on histograms only, epsilon for each covariate.

        p covariates cost p * epsilon by composition; rules, supports and increments leave as
        they are, so the total is no finite guarantee.
        """
        return planning.published(epsilon)

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """Finite epsilon end to end, for one record, add-or-remove, under zCDP."""
        return private.private(epsilon, delta)

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """Every question of either way, as often as it may be asked."""
        exact = self.estimation == "gradient"
        steps = (
            Steps(1.0, 0.0, 1, 0.0) if exact else Steps(0.01, 0.0, self.local_steps, self.penalty)
        )
        rounds = self.rounds + self.reference_rounds
        grown = self._boosting()
        return planning.schedule(schema, self.bins, grown, steps, rounds)

    def _scores(self, x: pd.DataFrame | np.ndarray, client: str | None) -> np.ndarray:
        return self.model_.scores(self._encode(x, client))

    # --- saving --------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """See the base: how learning went, and the model with all its candidate rules."""
        return {**{name: plain(getattr(self, name)) for name in _KEPT}, **self.model_.to_state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See the base."""
        super().restore({name: state[name] for name in _KEPT})
        self.model_ = RuleEnsemble.from_state(self.schema_, state)
        self.cutoffs_ = self.model_.terms.cutoffs


class RuleFitClassifier(FederatedClassifier, _RuleFit):
    """Federated RuleFit for a binary outcome, with the logistic loss.

    Args:
        bins: histogram bins B of each covariate.
        cutoffs: quantile levels Q, which become cut-offs.
        trees: trees C that each client boosts.
        leaves: mean number of leaves L of a tree; 2 makes stumps.
        shrinkage: learning rate nu of the boosting.
        subsample: share of a client's records for each tree; 0 takes min(N/2, 100 + 6 sqrt N).
        min_leaf: fewest records of a leaf.
        max_rules: keep the rules that were grown most often; none keeps all.
        linear: whether covariates have linear terms (winsorised; two-valued categories too).
        penalty: lambda of the L1 norm, for the mean loss.
        estimation: how coefficients are found: ``gradient``, by accelerated proximal gradient, one exact
            gradient of each client a round; or ``averaging``, by the paper's dual averaging.
        rounds: rounds R, fewer where nothing moves any more.
        local_steps: local steps G of each round of averaging.
        server_step: eta_s of averaging.
        client_step: eta_c, or the gradient's step; none for one that cannot diverge.
        clients_per_round: clients drawn anew for each round of averaging; none for all.
        reference_rounds: rounds of exact federated proximal gradient after learning, only to report
            how far the model is from the optimum (``gap_``, in units of the objective, at least
            0 but for the reference's own distance to it); the model does not change, and each round
            is one more release of everybody's exact gradient. Without such a release there is no gap
            to tell: it is NaN under ``private``, and with 0 rounds.
        random_state: the server's own seed (random rules, draws of clients); no client's secret
            depends on it.
    """

    binary: ClassVar[bool] = True
    _logistic: ClassVar[bool] = True

    def decision_function(
        self, x: pd.DataFrame | np.ndarray, *, client: str | None = None
    ) -> np.ndarray:
        """Log-odds of the second class, shape (rows,)."""
        return self._scores(x, client)

    def predict_proba(
        self, x: pd.DataFrame | np.ndarray, *, client: str | None = None
    ) -> np.ndarray:
        """Probabilities of both classes, shape (rows, 2)."""
        second = expit(self._scores(x, client))
        return np.column_stack([1 - second, second])

    def predict(self, x: pd.DataFrame | np.ndarray, *, client: str | None = None) -> np.ndarray:
        """The likelier class of each row."""
        positive = self._scores(x, client) > 0
        likelier: np.ndarray = self.classes_[positive.astype(int)]
        return likelier

    def readable(self) -> dict[str, Any]:
        """Rules and linear terms; the linear predictor is the log-odds of class 1."""
        assert self.schema_.target is not None
        plain = self.model_.to_dict("logit")
        classes = [value.item() for value in self.classes_]
        return {"target": self.schema_.target.name, "classes": classes, **plain, **self._told()}


class RuleFitRegressor(FederatedRegressor, _RuleFit):
    """Federated RuleFit for a number, with the squared loss (the paper's future work).

    The target is scaled to [-1, 1] by its public bounds (privately by limits between which most of it
    was found, ``target_limits_``); ``penalty`` is for that scale, and the
    default keeps few terms: with many records a tenth of it explains more (see
    benchmarks/rulefit_regression.py). The parameters are those of :class:`RuleFitClassifier`.
    """

    _logistic: ClassVar[bool] = False

    def predict(self, x: pd.DataFrame | np.ndarray, *, client: str | None = None) -> np.ndarray:
        """Predict each row's target, within its public bounds."""
        unit = (np.clip(self._scores(x, client), -1, 1) + 1) / 2
        low, high = self.target_limits_
        predicted: np.ndarray = low + unit * (high - low)
        return predicted

    def readable(self) -> dict[str, Any]:
        """Rules and linear terms; the linear predictor is scaled to [-1, 1]."""
        target = self.schema_.target
        assert target is not None
        bounds = [float(bound) for bound in self.target_limits_]
        plain = self.model_.to_dict("scaled to [-1, 1]")
        return {"target": target.name, "target_bounds": bounds, **plain, **self._told()}
