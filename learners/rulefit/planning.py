"""How a private budget is divided, and how large a model it can bear. Public values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from privfed.accountant import Budget
from privfed.conversion import largest_rho
from privfed.exact import Number
from privfed.learners.base import Planned
from privfed.learners.rulefit.averaging import Steps
from privfed.learners.rulefit.boosting import Boosting
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.queries import (
    BoostedRules,
    Gradient,
    Histogram,
    Increment,
    Marginals,
    Objective,
    Supports,
)
from privfed.learners.rulefit.rules import Terms
from privfed.policy import Guard, Policy
from privfed.schema import Schema

#: Shares of rho: each of two histograms, gradients, supports of the most important rules. What a
#: histogram that is not asked for would have cost goes to the gradients.
HISTOGRAM_SHARE, GRADIENT_SHARE, SUPPORT_SHARE = (
    Fraction(5, 100),
    Fraction(87, 100),
    Fraction(3, 100),
)
#: Most rounds of noisy gradients, and how many supports `private` tells.
MOST_ROUNDS, TOLD_RULES = 20, 20


def published(epsilon: Number) -> Policy:
    """Noise on the histograms alone, epsilon for each covariate; the rest leaves as it is."""
    kinds = (BoostedRules, Supports, Increment, Objective)
    guards: dict[str, tuple[Guard, ...]] = {kind.kind: (Guard.of("open"),) for kind in kinds}
    guards[Histogram.kind] = (Guard.of("laplace", spend=epsilon),)
    return Policy(guards, name="published")


def private(epsilon: Number, delta: Number) -> Policy:
    """Gaussian noise on everything, under zCDP; no rules grown on records."""
    budget = Budget.of(epsilon, delta)
    rho = largest_rho(budget.epsilon, budget.delta)
    gradients, histogram = rho * GRADIENT_SHARE, rho * HISTOGRAM_SHARE
    guards: dict[str, tuple[Guard, ...]] = {
        Marginals.kind: (Guard.of("gaussian", spend=histogram, times=2),),
        Gradient.kind: (
            Guard.of(
                "gaussian",
                spend=gradients / MOST_ROUNDS,
                cap=gradients + histogram,
                times=MOST_ROUNDS,
            ),
        ),
        Supports.kind: (Guard.of("gaussian", spend=rho * SUPPORT_SHARE, times=1),),
    }
    return Policy(guards, accountant="zcdp", budget=budget, name="private")


def spends(rho_histogram: float | None, histograms: int, rounds: int) -> Sequence[Fraction | None]:
    """What to propose for each round, read off what a histogram cost; none leaves it to the owner.

    Args:
        rho_histogram: what each histogram cost, zCDP.
        histograms: how many of the two were asked for.
        rounds: how many gradients will be asked for.
    """
    if rho_histogram is None:
        return [None] * rounds
    share = GRADIENT_SHARE / HISTOGRAM_SHARE + (2 - histograms)
    total = Fraction(rho_histogram * (1 - 1e-9)) * share
    return [(total / rounds).limit_denominator(10**12) * (1 - Fraction(1, 10**9))] * rounds


@dataclass(frozen=True)
class Size:
    """How large a private model the budget bears.

    Args:
        trees: random trees.
        depth: conditions on a rule's way.
        rounds: rounds of noisy gradients.
        ridge: added to the second moments of the columns in the distance-generating function.
        rule_weight: scale of the rules' columns beside that of the linear terms.
    """

    trees: int
    depth: int
    rounds: int
    ridge: float
    rule_weight: float

    @classmethod
    def for_signal(cls, signal: float, logistic: bool) -> Size:
        """Choose by the number of records over the noise of a count that cost one histogram's share.

        Chosen by measurement, on other splits than those that benchmarks/rulefit_private.py
        reports: deeper and heavier rules, more rounds and less of a ridge need more records per
        unit of noise. The squared loss is steeper than the logistic one and needs more of a ridge.
        """
        deeper = round(np.log2(max(1.4 * signal, 1.0)) / 2)
        depth = int(np.clip(deeper, 2, 4))
        rounds = 6 if signal < 50 else 10 if signal < 600 else 16
        ridge = float(np.clip(20 / max(signal, 1.0), 0.02 if logistic else 0.08, 1.0))
        return cls(12 * depth, depth, rounds, ridge, float(np.clip(signal / 200, 0.25, 1.0)))


def column_scales(terms: Terms, size: Size) -> np.ndarray:
    """Scale columns so that a record's norm is about that of one rule and its linear terms.

    A record satisfies one rule of each tree and depth; a linear term spans [-2, 2] / sqrt(terms).
    Rules weigh less where the budget is small.

    Returns:
        of the intercept, the rules and the linear terms, shape (1 + terms,).
    """
    chosen = list(terms.linear)
    half = 0.2 * (terms.cutoffs.upper - terms.cutoffs.lower)[chosen]
    rules = np.full(len(terms.boxes), size.rule_weight / np.sqrt(size.trees * size.depth))
    linear = 2 * terms.cutoffs.scale[chosen] / half / np.sqrt(max(len(chosen), 1))
    return np.concatenate([[1.0], rules, linear])


def placeholder(schema: Schema) -> Cutoffs:
    """Cut-offs of the right shape, to price questions before any data are read."""
    features = len(schema.features)
    middle = (schema.lower + schema.upper) / 2
    return Cutoffs(
        tuple((float(m),) for m in middle), schema.lower, schema.upper, np.ones(features)
    )


def placeholder_terms(schema: Schema, rules: int) -> Terms:
    """As many rules as will be asked about, over :func:`placeholder` cut-offs."""
    features = len(schema.features)
    boxes = np.zeros((rules, features, 2), np.uint8)
    boxes[:, :, 1] = 2
    return Terms(placeholder(schema), boxes, ())


def schedule(
    schema: Schema, bins: int, boosting: Boosting, steps: Steps, rounds: int, clip: float
) -> Sequence[Planned]:
    """Every question of either way, as often as it may be asked."""
    features = tuple(range(len(schema.features)))
    cutoffs, terms = placeholder(schema), placeholder_terms(schema, TOLD_RULES)
    zeros = np.zeros(1 + len(terms))
    logistic = boosting.logistic
    return [
        Planned(Histogram((0,), bins), len(features)),
        Planned(BoostedRules(cutoffs, boosting), 1),
        Planned(Increment(terms, zeros, zeros, steps, logistic), rounds),
        Planned(Objective(terms, zeros, logistic), 2),
        Planned(Marginals(features, bins), 2),
        Planned(Gradient(terms, zeros, zeros, clip, logistic), MOST_ROUNDS),
        Planned(Supports(terms), 1),
    ]
