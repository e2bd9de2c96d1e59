"""The paper's protocol: shared cut-offs, boosted rules, and one sparse model round by round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import UNSET, UnsetType

from privfed.errors import InputError
from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import Planned
from privfed.learners.rulefit.boosting import Boosting
from privfed.learners.rulefit.cutoffs import Cutoffs, read_cutoffs
from privfed.learners.rulefit.estimation import Estimation
from privfed.learners.rulefit.model import ClassEnsembles, RuleEnsemble
from privfed.learners.rulefit.pooled import ask_marginals, ask_pooled
from privfed.learners.rulefit.queries import (
    BoostedRules,
    CovariateHistogram,
    Increment,
    Objective,
    SmoothnessBound,
    Supports,
)
from privfed.learners.rulefit.rules import Terms, union
from privfed.learners.rulefit.spreads import Spreads
from privfed.learners.ways import Way
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import Number
from privfed.tables.schema import Schema


@dataclass(frozen=True)
class RuleFitParams:
    """The estimator's parameters for both ways; see :class:`.RuleFitClassifier`."""

    bins: int
    cutoffs: int
    boosting: Boosting
    max_rules: int | None
    linear: bool
    estimation: Estimation
    max_terms: int | None = None
    stable: bool = False
    monotonic: tuple[
        int, ...
    ] = ()  #: by feature 1 (increasing), -1 (decreasing) or 0; empty for none
    labels: tuple[int | UnsetType, ...] = (UNSET,)  #: codes of the classes, each against the rest


@dataclass(frozen=True, eq=False)
class FittedRules:
    """The result of either way."""

    model: RuleEnsemble | ClassEnsembles  #: one, or one per class
    target_limits: tuple[float, float]  #: target values that the scores -1 and 1 stand for
    #: as in :class:`.Estimate`, over all classes; objective and gap are means over classes
    rounds: int
    objective: float = math.nan
    gap: float = math.nan


class PublishedRuleFit(Way[RuleFitParams, FittedRules]):
    """Boosted rules, exact supports, coefficients round by round."""

    name = "published"
    queries = (
        CovariateHistogram,
        BoostedRules,
        Supports,
        Spreads,
        SmoothnessBound,
        Increment,
        Objective,
    )

    def plan(self, schema: Schema) -> Sequence[Planned]:
        """See the base."""
        terms, params = _placeholder(schema), self.params
        estimation, logistic = params.estimation, params.boosting.logistic
        zeros = np.zeros(1 + len(terms))
        label, models, first = params.labels[0], len(params.labels), int(not logistic)
        rounds = estimation.rounds + estimation.reference_rounds + first
        increment = Increment(terms, zeros, zeros, estimation.first_steps, logistic, label)
        return [
            Planned(CovariateHistogram((0,), params.bins), len(schema.features)),
            Planned(BoostedRules(terms.cutoffs, params.boosting, label), models),
            Planned(Supports(terms), 1),
            Planned(Spreads(terms.cutoffs, tuple(range(len(schema.features)))), 1),
            Planned(SmoothnessBound(terms, zeros), 1),
            Planned(increment, models * rounds),
            Planned(Objective(terms, zeros, logistic, label), (2 + first) * models),
        ]

    def learn(self, federation: Disclosure, rng: np.random.Generator) -> FittedRules:
        """See the base."""
        schema, params = federation.schema, self.params
        assert schema.target is not None
        if params.monotonic:
            raise InputError("monotonic_cst needs a policy of private(); leave it out")
        marginal = ask_marginals(federation, params.bins)
        cutoffs = read_cutoffs(marginal.counts, schema, params.bins, params.cutoffs)
        synthetic = marginal.synthetic(schema, rng)
        terms = Terms(cutoffs, self._boost(federation, cutoffs), self._linear(schema, cutoffs))
        pooled = ask_pooled(federation, terms, marginal, synthetic)
        fits = params.estimation.run(federation, terms, pooled, rng, params.labels)
        std = np.sqrt(np.maximum(pooled.variances, 0))
        models = [RuleEnsemble(schema, terms, fit.weights, pooled.supports, std) for fit in fits]
        low, high = schema.target.bounds
        return FittedRules(
            ClassEnsembles.joined(models, "one-vs-rest"),
            (low, high),
            sum(fit.rounds for fit in fits),
            float(np.mean([fit.objective for fit in fits])),
            float(np.mean([fit.gap for fit in fits])),
        )

    def _boost(self, federation: Disclosure, cutoffs: Cutoffs) -> np.ndarray:
        queries = [BoostedRules(cutoffs, self.params.boosting, k) for k in self.params.labels]
        answers = federation.ask_offered(*queries)
        groups = [(r["boxes"].data, r["mentions"].data) for r in answers.releases()]
        boxes, _ = union(groups, len(federation.schema.features))
        return boxes[: self.params.max_rules]

    def _linear(self, schema: Schema, cutoffs: Cutoffs) -> tuple[int, ...]:
        ordered = [column.numeric or len(column.categories) == 2 for column in schema.features]
        chosen = (cutoffs.upper > cutoffs.lower) & np.array(ordered) & self.params.linear
        return tuple(np.flatnonzero(chosen).tolist())


def published(epsilon: Number) -> Policy:
    """Return a policy with noise on histograms only, epsilon per covariate; the rest is unprotected."""
    kinds = PublishedRuleFit.queries
    guards: dict[str, tuple[Guard, ...]] = {kind.kind: (Guard.of("open"),) for kind in kinds}
    guards[CovariateHistogram.kind] = (Guard.of("laplace", spend=epsilon),)
    return Policy(guards, name="published")


def _placeholder(schema: Schema) -> Terms:
    features = len(schema.features)
    middle = (schema.lower + schema.upper) / 2
    cuts = tuple((float(m),) for m in middle)
    cutoffs = Cutoffs(cuts, schema.lower, schema.upper, schema.upper - schema.lower)
    return Terms(cutoffs, np.zeros((0, features, 2), np.uint8), ())
