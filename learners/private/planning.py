"""How a private budget is divided over kinds and rounds; what no round needs goes to the gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from privfed.exact import Number
from privfed.learners.base import Planned
from privfed.learners.private.basis import Basis, Trees
from privfed.learners.private.grid import BinEdges, first_cuts
from privfed.learners.private.queries import (
    BasisLeafCounts,
    Correlations,
    FeatureHistogram,
    Gradient,
    TargetHistogram,
)
from privfed.learners.private.scores import CalibrationSums
from privfed.learners.private.settings import MAX_ROUNDS, SETTINGS
from privfed.learners.private.target_link import Outcome, ResidualBounds
from privfed.privacy.accountant import Budget
from privfed.privacy.conversion import largest_rho
from privfed.privacy.policy import Guard, Policy
from privfed.questions.query import Query
from privfed.tables.schema import Schema

#: The questions that a private learner asks.
QUERIES: tuple[type[Query], ...] = (
    FeatureHistogram,
    TargetHistogram,
    Correlations,
    BasisLeafCounts,
    Gradient,
    CalibrationSums,
)


def private(epsilon: Number, delta: Number) -> Policy:
    """Gaussian noise on every question, under zCDP: finite from end to end.

    Asked as often as their times say at the guards' own spends, the questions cost exactly rho.
    """
    budget = Budget.of(epsilon, delta)
    return Policy(
        guards(largest_rho(budget.epsilon, budget.delta)),
        accountant="zcdp",
        budget=budget,
        name="private",
    )


def guards(rho: Fraction) -> Mapping[str, tuple[Guard, ...]]:
    """A guard for each kind of question, of a budget in zCDP."""
    gradients = rho * SETTINGS.gradient_fraction
    spare = rho * (
        SETTINGS.once_fraction + (SETTINGS.n_histograms - 1) * SETTINGS.histogram_fraction
    )
    return {
        FeatureHistogram.kind: (
            Guard.of(
                "gaussian",
                spend=rho * SETTINGS.histogram_fraction,
                cap=rho * SETTINGS.max_histogram_fraction,
                times=SETTINGS.n_histograms,
            ),
        ),
        TargetHistogram.kind: (
            Guard.of(
                "gaussian",
                spend=rho * SETTINGS.target_fraction,
                cap=rho * SETTINGS.max_target_fraction,
                times=SETTINGS.n_histograms,
            ),
        ),
        Correlations.kind: (
            Guard.of("gaussian", spend=rho * SETTINGS.correlation_fraction, times=1),
        ),
        BasisLeafCounts.kind: (
            Guard.of("gaussian", spend=rho * SETTINGS.leaf_count_fraction, times=1),
        ),
        CalibrationSums.kind: (Guard.of("gaussian", spend=rho * SETTINGS.score_fraction, times=1),),
        Gradient.kind: (
            Guard.of(
                "gaussian",
                spend=gradients / MAX_ROUNDS,
                cap=gradients + spare,
                times=MAX_ROUNDS,
            ),
        ),
    }


class RemainingBudget:
    """What is left after the first histogram, read off what that cost.

    Args:
        rho: the whole budget of a client in zCDP, or none where releases are exact; then owners
            spend what their guards say.
    """

    def __init__(self, rho: float | None) -> None:
        self.rho = rho
        self._rho = None if rho is None else Fraction(rho * (1 - 1e-9))
        self._left = 1 - SETTINGS.histogram_fraction

    def paid(self, share: Fraction) -> None:
        """A question with a fixed share was asked."""
        self._left -= share

    def part(self, share: Fraction) -> Fraction | None:
        """Take a share of rho for the next question; none leaves it to the owner."""
        share = min(share, self._left)
        self._left -= share
        return self._amount(share)

    def rest(self, rounds: int) -> Fraction | None:
        """Take an even share of what is left for so many more rounds, this one among them."""
        return self.part(self._left / rounds)

    def _amount(self, share: Fraction) -> Fraction | None:
        if self._rho is None:
            return None
        amount = (self._rho * share).limit_denominator(10**12)
        return amount * (1 - Fraction(1, 10**9))


def schedule(schema: Schema, outcome: Outcome) -> Sequence[Planned]:
    """Every question as often as it may be asked, before anything is known of the data."""
    features, columns = schema.features, schema.columns
    every = BinEdges.from_arrays([first_cuts(column, SETTINGS.first_bins) for column in columns])
    grid = BinEdges(every.cuts[: len(features)])
    basis = placeholder(grid)
    window = ResidualBounds(np.zeros(outcome.classes), np.ones(outcome.classes), 1.0)
    if outcome.kind == "number":
        window = ResidualBounds(np.array([-0.5]), np.array([0.5]), 1.0)
    weights = np.zeros((basis.size, outcome.classes))
    start = np.zeros(outcome.classes)
    target = TargetHistogram(BinEdges(every.cuts[len(features) :]))
    found = [
        Planned(FeatureHistogram(every), SETTINGS.n_histograms),
        Planned(target, SETTINGS.n_histograms),
    ]
    if len(features) > 1:
        ranks = np.zeros((len(features), int(grid.sizes.max())))
        found.append(Planned(Correlations(grid, ranks, 1.0), 1))
    found.append(Planned(BasisLeafCounts(basis), 1))
    found.append(Planned(Gradient(basis, outcome, window, weights, start), MAX_ROUNDS))
    cuts = np.tile(np.arange(1.0, SETTINGS.score_bins), (outcome.classes, 1))
    found.append(Planned(CalibrationSums(basis, outcome, window, weights, start, cuts), 1))
    return found


def placeholder(grid: BinEdges) -> Basis:
    """A basis of the right shape over some grid."""
    columns, width = len(grid.cuts), int(grid.sizes.max())
    stump = Trees(np.zeros((1, 1), np.int64), np.ones((1, 1), np.uint8), 1.0)
    return Basis(
        grid,
        np.zeros((columns, width)),
        np.zeros((columns, width), np.uint8),
        np.zeros(columns),
        np.zeros(columns),
        (stump,),
    )
