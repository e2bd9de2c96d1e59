"""The budget of a private learner by kind and round; unused parts go to the gradients."""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from privfed.learners.base import Planned
from privfed.learners.private.basis import Basis, Trees
from privfed.learners.private.grid import BinEdges, first_cuts
from privfed.learners.private.queries import (
    BasisLeafCounts,
    CalibrationSums,
    Correlations,
    FeatureHistogram,
    Gradient,
    TargetHistogram,
)
from privfed.learners.private.settings import MAX_ROUNDS, SETTINGS
from privfed.learners.private.target_link import Outcome, ResidualBounds
from privfed.privacy.accountant import Budget
from privfed.privacy.conversion import largest_rho
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import Number
from privfed.questions.query import Query
from privfed.tables.schema import Schema

#: The queries of a private learner.
QUERIES: tuple[type[Query], ...] = (
    FeatureHistogram,
    TargetHistogram,
    Correlations,
    BasisLeafCounts,
    Gradient,
    CalibrationSums,
)


def private(epsilon: Number, delta: Number) -> Policy:
    """Return a policy with Gaussian noise on every query, under zCDP.

    At the guards' own spends and ``times``, the queries cost exactly rho.
    """
    budget = Budget.of(epsilon, delta)
    rho = largest_rho(budget.epsilon, budget.delta)
    return Policy(guards(rho), accountant="zcdp", budget=budget, name="private")


def guards(rho: Fraction) -> Mapping[str, tuple[Guard, ...]]:
    """Return a guard for each kind of query, for a budget in zCDP."""
    own = SETTINGS
    spare = own.once_fraction + (own.n_histograms - 1) * own.histogram_fraction
    gradient, most = own.gradient_fraction / MAX_ROUNDS, own.gradient_fraction + spare
    fractions: dict[type[Query], tuple[Fraction, Fraction | None, int]] = {
        FeatureHistogram: (own.histogram_fraction, own.max_histogram_fraction, own.n_histograms),
        TargetHistogram: (own.target_fraction, own.max_target_fraction, own.n_histograms),
        Correlations: (own.correlation_fraction, None, 1),
        BasisLeafCounts: (own.leaf_count_fraction, None, 1),
        CalibrationSums: (own.score_fraction, None, 1),
        Gradient: (gradient, most, MAX_ROUNDS),
    }
    return {
        query.kind: (Guard.of("gaussian", spend=rho * spend, cap=cap and rho * cap, times=times),)
        for query, (spend, cap, times) in fractions.items()
    }


class RemainingBudget:
    """A client's remaining rho (zCDP) after the first histogram; None if releases are exact."""

    def __init__(self, rho: float | None) -> None:
        self.rho = rho
        self._rho = None if rho is None else Fraction(rho * (1 - 1e-9))
        self._left = 1 - SETTINGS.histogram_fraction

    def paid(self, share: Fraction) -> None:
        """Subtract the cost of a query with a fixed fraction."""
        self._left -= share

    def part(self, share: Fraction | float) -> Fraction | None:
        """Spend a fraction of rho (a float's to a thousandth); None leaves the spend to the owner."""
        if isinstance(share, float):
            share = Fraction(share).limit_denominator(1000)
        share = min(share, self._left)
        self._left -= share
        if self._rho is None:
            return None
        return (self._rho * share).limit_denominator(10**12) * (1 - Fraction(1, 10**9))

    def rest(self, rounds: int) -> Fraction | None:
        """Spend an equal part of the remainder for ``rounds`` rounds, including this one."""
        return self.part(self._left / rounds)


def schedule(schema: Schema, outcome: Outcome) -> Sequence[Planned]:
    """Return every query as often as it may be sent, for pricing without data."""
    features, bins = len(schema.features), SETTINGS.first_bins
    every = BinEdges.from_arrays([first_cuts(column, bins) for column in schema.columns])
    grid = BinEdges(every.cuts[:features])
    width, still = int(grid.sizes.max()), np.zeros(features)
    stump = Trees(np.zeros((1, 1), np.int64), np.ones((1, 1), np.uint8), 1.0)
    values = np.zeros((features, width))
    basis = Basis(grid, values, values.astype(np.uint8), still, still, (stump,))
    window = ResidualBounds(np.zeros(outcome.classes), np.ones(outcome.classes), 1.0)
    if outcome.kind == "number":
        window = ResidualBounds(np.array([-0.5]), np.array([0.5]), 1.0)
    weights, start = np.zeros((basis.size, outcome.classes)), np.zeros(outcome.classes)
    found = [
        Planned(FeatureHistogram(every), SETTINGS.n_histograms),
        Planned(TargetHistogram(BinEdges(every.cuts[features:])), SETTINGS.n_histograms),
    ]
    if features > 1:
        found.append(Planned(Correlations(grid, values, 1.0), 1))
    cuts = np.tile(np.arange(1.0, SETTINGS.score_bins), (outcome.classes, 1))
    model = (basis, outcome, window, weights, start)
    return [
        *found,
        Planned(BasisLeafCounts(basis), 1),
        Planned(Gradient(*model), MAX_ROUNDS),
        Planned(CalibrationSums(*model, cuts), 1),
    ]
