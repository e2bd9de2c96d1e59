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
    s = SETTINGS
    spare = s.once_fraction + (s.n_histograms - 1) * s.histogram_fraction
    gradient, max_gradient = s.gradient_fraction / MAX_ROUNDS, s.gradient_fraction + spare
    fractions: dict[type[Query], tuple[Fraction, Fraction | None, int]] = {
        FeatureHistogram: (s.histogram_fraction, s.max_histogram_fraction, s.n_histograms),
        TargetHistogram: (s.target_fraction, s.max_target_fraction, s.n_histograms),
        Correlations: (s.correlation_fraction, None, 1),
        BasisLeafCounts: (s.leaf_count_fraction, None, 1),
        CalibrationSums: (s.score_fraction, None, 1),
        Gradient: (gradient, max_gradient, MAX_ROUNDS),
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
        self._remaining = 1 - SETTINGS.histogram_fraction

    def paid(self, fraction: Fraction) -> None:
        """Subtract the cost of a query with a fixed fraction."""
        self._remaining -= fraction

    def part(self, fraction: Fraction | float) -> Fraction | None:
        """Spend a fraction of rho (a float's to a thousandth); None leaves the spend to the owner."""
        if isinstance(fraction, float):
            fraction = Fraction(fraction).limit_denominator(1000)
        fraction = min(fraction, self._remaining)
        self._remaining -= fraction
        if self._rho is None:
            return None
        return (self._rho * fraction).limit_denominator(10**12) * (1 - Fraction(1, 10**9))

    def rest(self, rounds: int) -> Fraction | None:
        """Spend an equal part of the remainder for ``rounds`` rounds, including this one."""
        return self.part(self._remaining / rounds)


def schedule(schema: Schema, outcome: Outcome) -> Sequence[Planned]:
    """Return every query as often as it may be sent, for pricing without data."""
    features, bins = len(schema.features), SETTINGS.first_bins
    edges = BinEdges.from_arrays([first_cuts(column, bins) for column in schema.columns])
    grid = BinEdges(edges.cuts[:features])
    width, zeros = int(grid.sizes.max()), np.zeros(features)
    stump = Trees(np.zeros((1, 1), np.int64), np.ones((1, 1), np.uint8), 1.0)
    values = np.zeros((features, width))
    basis = Basis(grid, values, values.astype(np.uint8), zeros, zeros, (stump,))
    window = ResidualBounds(np.zeros(outcome.classes), np.ones(outcome.classes), 1.0)
    if outcome.kind == "number":
        window = ResidualBounds(np.array([-0.5]), np.array([0.5]), 1.0)
    weights, intercept = np.zeros((basis.size, outcome.classes)), np.zeros(outcome.classes)
    planned = [
        Planned(FeatureHistogram(edges), SETTINGS.n_histograms),
        Planned(TargetHistogram(BinEdges(edges.cuts[features:])), SETTINGS.n_histograms),
    ]
    if features > 1:
        planned.append(Planned(Correlations(grid, values, 1.0), 1))
    cuts = np.tile(np.arange(1.0, SETTINGS.score_bins), (outcome.classes, 1))
    model = (basis, outcome, window, weights, intercept)
    return [
        *planned,
        Planned(BasisLeafCounts(basis), 1),
        Planned(Gradient(*model), MAX_ROUNDS),
        Planned(CalibrationSums(*model, cuts), 1),
    ]
