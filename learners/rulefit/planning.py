"""The published policy, and every question of either way: public values only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privfed.learners import private
from privfed.learners.base import Planned
from privfed.learners.rulefit.averaging import Steps
from privfed.learners.rulefit.boosting import Boosting
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.queries import (
    BoostedRules,
    CovariateHistogram,
    Curvature,
    Increment,
    Objective,
    Supports,
)
from privfed.learners.rulefit.rules import Terms
from privfed.learners.rulefit.spreads import Spreads
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import Number
from privfed.tables.schema import Schema


def published(epsilon: Number) -> Policy:
    """Noise on the histograms alone, epsilon for each covariate; the rest leaves as it is."""
    kinds = (BoostedRules, Supports, Spreads, Curvature, Increment, Objective)
    guards: dict[str, tuple[Guard, ...]] = {kind.kind: (Guard.of("open"),) for kind in kinds}
    guards[CovariateHistogram.kind] = (Guard.of("laplace", spend=epsilon),)
    return Policy(guards, name="published")


def placeholder(schema: Schema) -> Terms:
    """Terms of the right shape, to price questions before any data are read."""
    features = len(schema.features)
    middle = (schema.lower + schema.upper) / 2
    cutoffs = Cutoffs(
        tuple((float(m),) for m in middle), schema.lower, schema.upper, np.ones(features)
    )
    return Terms(cutoffs, np.zeros((0, features, 2), np.uint8), ())


def schedule(
    schema: Schema, bins: int, boosting: Boosting, steps: Steps, rounds: int
) -> Sequence[Planned]:
    """Every question of either way, as often as it may be asked."""
    terms, logistic = placeholder(schema), boosting.logistic
    zeros = np.zeros(1 + len(terms))
    return [
        Planned(CovariateHistogram((0,), bins), len(schema.features)),
        Planned(BoostedRules(terms.cutoffs, boosting), 1),
        Planned(Supports(terms), 1),
        Planned(Spreads(terms.cutoffs, tuple(range(len(schema.features)))), 1),
        Planned(Curvature(terms, zeros), 1),
        Planned(Increment(terms, zeros, zeros, steps, logistic), rounds),
        Planned(Objective(terms, zeros, logistic), 2),
        *private.schedule(schema, private.Outcome.of(schema, not logistic)),
    ]
