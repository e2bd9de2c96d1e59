"""Federated RuleFit in scikit-learn's manners."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.base import ClassifierMixin, RegressorMixin

from privfed.disclosure import Disclosure
from privfed.errors import InputError, NobodyAnswered, Note
from privfed.exact import Number
from privfed.learners.base import FederatedLearner, Planned, check_round
from privfed.learners.rulefit import planning
from privfed.learners.rulefit.averaging import Steps
from privfed.learners.rulefit.boosting import Boosting
from privfed.learners.rulefit.cutoffs import read_cutoffs
from privfed.learners.rulefit.histograms import Marginal, ask_marginals
from privfed.learners.rulefit.model import RuleEnsemble
from privfed.learners.rulefit.parameters import PAPER, check_parameters
from privfed.learners.rulefit.queries import (
    BoostedRules,
    Gradient,
    Histogram,
    Increment,
    Marginals,
    Objective,
    Supports,
)
from privfed.learners.rulefit.random_rules import Surrogate, random_boxes
from privfed.learners.rulefit.rules import Rule, Terms, union
from privfed.learners.rulefit.server import (
    Averaging,
    Estimate,
    NoisyAveraging,
    Pooled,
    ask_pooled,
    tell_supports,
)
from privfed.policy import Policy
from privfed.query import Query
from privfed.schema import Schema


class _RuleFit(FederatedLearner):
    """What the classifier and the regressor share.

    Under a policy that answers `published`'s questions it learns as the paper does; where those are
    refused it asks `private`'s: one joint histogram, then noisy clipped gradients for rules drawn at
    random over the released cut-offs.

    The parameters are documented at :class:`RuleFitClassifier`.
    """

    queries: ClassVar[tuple[type[Query], ...]] = (
        Histogram,
        Marginals,
        BoostedRules,
        Supports,
        Increment,
        Objective,
        Gradient,
    )
    _logistic: ClassVar[bool]

    #: The fitted model, set by ``fit``.
    model_: RuleEnsemble

    def __init__(
        self,
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
        rounds: int = 100,
        local_steps: int = 20,
        server_step: float = 1.0,
        client_step: float | None = None,
        clients_per_round: int | None = None,
        reference_rounds: int = 0,
        threshold: float = 0.0,
        ridge: float | None = None,
        clip: float = 1.5,
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
        self.rounds = rounds
        self.local_steps = local_steps
        self.server_step = server_step
        self.client_step = client_step
        self.clients_per_round = clients_per_round
        self.reference_rounds = reference_rounds
        self.threshold = threshold
        self.ridge = ridge
        self.clip = clip
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
        self.check(federation.schema)
        check_round(self.clients_per_round, len(federation.clients))
        self.schema_ = federation.schema
        self._rng = np.random.default_rng(self.random_state)
        marginal = ask_marginals(federation, self.bins)
        self.cutoffs_ = read_cutoffs(marginal.counts, self.schema_, marginal.bins, self.cutoffs)
        surrogate = marginal.surrogate(self.schema_, self._rng)
        self.private_ = marginal.rho is not None
        learn = self._fit_private if self.private_ else self._fit_published
        learn(federation, marginal, surrogate)
        return self

    def _fit_published(
        self, federation: Disclosure, marginal: Marginal, surrogate: Surrogate
    ) -> None:
        """Boosted rules, exact supports, dual averaging."""
        terms = Terms(self.cutoffs_, self._boosted(federation), self._linear_terms())
        pooled = ask_pooled(federation, terms, marginal, surrogate)
        averaging = Averaging(
            self.rounds,
            self.local_steps,
            self.server_step,
            self.client_step,
            self.penalty,
            self._logistic,
            self.reference_rounds,
        )
        estimate = averaging.run(federation, terms, pooled, lambda: self._drawn(federation))
        self._keep(terms, estimate, pooled)

    def _fit_private(
        self, federation: Disclosure, marginal: Marginal, surrogate: Surrogate
    ) -> None:
        """Random rules, noisy gradients, and the supports of the rules that matter most.

        The noisier the histograms, the nearer the winsorising limits move to the public bounds.
        """
        self.cutoffs_ = self.cutoffs_.widened(self.schema_, marginal.noise_share)
        size = planning.Size.for_signal(marginal.signal, self._logistic)
        boxes, _ = random_boxes(self.cutoffs_, size.trees, size.depth, self._rng)
        terms = Terms(self.cutoffs_, boxes, self._linear_terms())
        means, variances = (moment[1:] for moment in surrogate.moments(terms))
        scales = planning.column_scales(terms, size)
        ridge = size.ridge if self.ridge is None else self.ridge
        averaging = NoisyAveraging(ridge, self.clip, self._logistic, self.threshold)
        spends = planning.spends(marginal.rho, marginal.asked, size.rounds)
        estimate = averaging.run(federation, terms, scales, marginal, surrogate, spends)
        guessed = Pooled(marginal.sizes, means, variances, np.full(len(boxes), np.nan))
        self._keep(terms, estimate, guessed)
        self.model_ = tell_supports(federation, self.model_, marginal.total)

    def _boosted(self, federation: Disclosure) -> np.ndarray:
        """The union of the clients' rules; none where nobody tells."""
        features = len(self.schema_.features)
        try:
            answers = federation.ask(BoostedRules(self.cutoffs_, self._boosting()))
        except NobodyAnswered:
            return np.zeros((0, features, 2), np.uint8)
        groups = [(r["boxes"].data, r["mentions"].data) for r in answers.releases()]
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

    def _drawn(self, federation: Disclosure) -> Sequence[str]:
        if self.clients_per_round is None:
            return federation.clients
        drawn = self._rng.choice(len(federation.clients), self.clients_per_round, replace=False)
        return [federation.clients[number] for number in sorted(drawn)]

    def _keep(self, terms: Terms, estimate: Estimate, pooled: Pooled) -> None:
        self.rounds_ = estimate.rounds
        self.objective_, self.gap_ = estimate.objective, estimate.gap
        deviations = np.sqrt(np.maximum(pooled.variances, 0))
        self.model_ = RuleEnsemble(
            self.schema_, terms, estimate.weights, pooled.supports, deviations
        )
        if not estimate.rounds:
            warnings.warn(
                "no client answered a single round: the model predicts a constant",
                Note,
                stacklevel=3,
            )

    def check(self, schema: Schema) -> None:
        """Hold the target to the loss and the parameters to their ranges."""
        self._check_target(schema)
        check_parameters(self.get_params())

    def _check_target(self, schema: Schema) -> None:
        raise NotImplementedError

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

        p covariates cost p * epsilon by composition; rules, supports and dual increments leave as
        they are, so the total is no finite guarantee.
        """
        return planning.published(epsilon)

    def private(self, epsilon: Number, delta: Number = "1e-5") -> Policy:
        """Finite epsilon end to end, for one record, add-or-remove, under zCDP."""
        return planning.private(epsilon, delta)

    def plan(self, schema: Schema) -> Sequence[Planned]:
        """Every question of either way, as often as it may be asked."""
        steps = Steps(0.01, 0.0, self.local_steps, self.penalty)
        rounds = self.rounds + self.reference_rounds
        grown = self._boosting()
        return planning.schedule(schema, self.bins, grown, steps, rounds, self.clip)

    def _scores(self, x: pd.DataFrame | np.ndarray) -> np.ndarray:
        encoded = self._encode(x)
        return self.model_.scores(encoded)


class RuleFitClassifier(ClassifierMixin, _RuleFit):  # type: ignore[misc]
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
        rounds: rounds R of dual averaging.
        local_steps: local steps G of each round.
        server_step: eta_s.
        client_step: eta_c; none for one that cannot diverge.
        clients_per_round: clients drawn anew for each round of averaging; none for all.
        reference_rounds: rounds of exact federated proximal gradient after learning, only to report
            how far dual averaging is from the optimum; the model does not change.
        threshold: L1 penalty of `private`'s last proximal map, in standard deviations of the noise: 0
            keeps all terms, 1 keeps what stands out of the noise and costs some accuracy.
        ridge: regularises `private`'s distance-generating function; none for one that suits the
            budget.
        clip: C, norm to which `private` clips a record's scaled columns.
        random_state: the server's own seed (random rules, draws of clients); no client's secret
            depends on it.
    """

    _logistic: ClassVar[bool] = True

    def _check_target(self, schema: Schema) -> None:
        target = schema.target
        if target is None or target.bounds != (0.0, 1.0):
            raise InputError(
                "RuleFitClassifier needs a target with two values: a category with two categories, "
                "or a number from 0 to 1"
            )
        names = (0, 1) if target.numeric else target.categories
        self.classes_ = np.array(names)

    def decision_function(self, x: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Log-odds of the second class, shape (rows,)."""
        return self._scores(x)

    def predict_proba(self, x: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Probabilities of both classes, shape (rows, 2)."""
        second = expit(self._scores(x))
        return np.column_stack([1 - second, second])

    def predict(self, x: pd.DataFrame | np.ndarray) -> np.ndarray:
        """The likelier class of each row."""
        positive = self._scores(x) > 0
        likelier: np.ndarray = self.classes_[positive.astype(int)]
        return likelier

    def to_dict(self) -> dict[str, Any]:
        """The fitted model as plain data; the linear predictor is the log-odds of class 1."""
        assert self.schema_.target is not None
        plain = self.model_.to_dict("logit")
        classes = [value.item() for value in self.classes_]
        return {"target": self.schema_.target.name, "classes": classes, **plain, **self._told()}


class RuleFitRegressor(RegressorMixin, _RuleFit):  # type: ignore[misc]
    """Federated RuleFit for a number, with the squared loss (the paper's future work).

    The target is scaled by its public bounds to [-1, 1]; ``penalty`` is for that scale, and the
    default keeps few terms: with many records a tenth of it explains more (see
    benchmarks/rulefit_regression.py). The parameters are those of :class:`RuleFitClassifier`.
    """

    _logistic: ClassVar[bool] = False

    def _check_target(self, schema: Schema) -> None:
        if schema.target is None or not schema.target.numeric:
            raise InputError("RuleFitRegressor needs a schema with a numeric target")

    def predict(self, x: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Predict each row's target, within its public bounds."""
        unit = (np.clip(self._scores(x), -1, 1) + 1) / 2
        assert self.schema_.target is not None
        low, high = self.schema_.target.bounds
        predicted: np.ndarray = low + unit * (high - low)
        return predicted

    def to_dict(self) -> dict[str, Any]:
        """The fitted model as plain data; the linear predictor is scaled to [-1, 1]."""
        target = self.schema_.target
        assert target is not None
        bounds = [float(bound) for bound in target.bounds]
        plain = self.model_.to_dict("scaled to [-1, 1]")
        return {"target": target.name, "target_bounds": bounds, **plain, **self._told()}
