"""How a private budget is divided over kinds and rounds; what no round needs goes to the gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from privfed.learners.base import Planned
from privfed.learners.private.basis import Basis, Trees
from privfed.learners.private.calibration import BINS
from privfed.learners.private.grid import Grid, first_cuts
from privfed.learners.private.marginals import FIRST_BINS
from privfed.learners.private.outcome import Outcome, Window
from privfed.learners.private.queries import (
    Correlations,
    FeatureHistogram,
    Gradient,
    Masses,
    TargetHistogram,
)
from privfed.learners.private.scores import Scores
from privfed.learners.private.settings import MOST_ROUNDS
from privfed.privacy.accountant import Budget
from privfed.privacy.conversion import largest_rho
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import Number
from privfed.questions.query import Query
from privfed.tables.schema import Schema

#: Rounds of histograms, each of which costs at most :data:`HISTOGRAM_SHARE` of rho.
HISTOGRAMS = 3
HISTOGRAM_SHARE, TARGET_SHARE = Fraction(6, 100), Fraction(1, 100)
#: Most of rho that one later look at all columns, or at the target alone, may cost.
MOST_HISTOGRAM_SHARE, MOST_TARGET_SHARE = Fraction(10, 100), Fraction(15, 100)
CORRELATION_SHARE, MASS_SHARE, SCORE_SHARE = Fraction(5, 100), Fraction(5, 100), Fraction(3, 100)
#: What questions cost that are asked once at most.
ONCE = CORRELATION_SHARE + MASS_SHARE + SCORE_SHARE
#: Share of rho that gradients have for certain.
GRADIENT_SHARE = 1 - HISTOGRAMS * (HISTOGRAM_SHARE + TARGET_SHARE) - ONCE
#: The questions that a private learner asks.
QUERIES: tuple[type[Query], ...] = (
    FeatureHistogram,
    TargetHistogram,
    Correlations,
    Masses,
    Gradient,
    Scores,
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
    gradients = rho * GRADIENT_SHARE
    spare = rho * (ONCE + (HISTOGRAMS - 1) * HISTOGRAM_SHARE)
    return {
        FeatureHistogram.kind: (
            Guard.of(
                "gaussian",
                spend=rho * HISTOGRAM_SHARE,
                cap=rho * MOST_HISTOGRAM_SHARE,
                times=HISTOGRAMS,
            ),
        ),
        TargetHistogram.kind: (
            Guard.of(
                "gaussian",
                spend=rho * TARGET_SHARE,
                cap=rho * MOST_TARGET_SHARE,
                times=HISTOGRAMS,
            ),
        ),
        Correlations.kind: (Guard.of("gaussian", spend=rho * CORRELATION_SHARE, times=1),),
        Masses.kind: (Guard.of("gaussian", spend=rho * MASS_SHARE, times=1),),
        Scores.kind: (Guard.of("gaussian", spend=rho * SCORE_SHARE, times=1),),
        Gradient.kind: (
            Guard.of(
                "gaussian",
                spend=gradients / MOST_ROUNDS,
                cap=gradients + spare,
                times=MOST_ROUNDS,
            ),
        ),
    }


class Purse:
    """What is left after the first histogram, read off what that cost.

    Args:
        rho: the whole budget of a client in zCDP, or none where releases are exact; then owners
            spend what their guards say.
    """

    def __init__(self, rho: float | None) -> None:
        self.rho = rho
        self._rho = None if rho is None else Fraction(rho * (1 - 1e-9))
        self._left = 1 - HISTOGRAM_SHARE

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
    every = Grid.of([first_cuts(column, FIRST_BINS) for column in columns])
    grid = Grid(every.cuts[: len(features)])
    basis = placeholder(grid)
    window = Window(np.zeros(outcome.classes), np.ones(outcome.classes), 1.0)
    if outcome.kind == "number":
        window = Window(np.array([-0.5]), np.array([0.5]), 1.0)
    weights = np.zeros((basis.size, outcome.classes))
    start = np.zeros(outcome.classes)
    target = TargetHistogram(Grid(every.cuts[len(features) :]))
    found = [Planned(FeatureHistogram(every), HISTOGRAMS), Planned(target, HISTOGRAMS)]
    if len(features) > 1:
        ranks = np.zeros((len(features), int(grid.sizes.max())))
        found.append(Planned(Correlations(grid, ranks, 1.0), 1))
    found.append(Planned(Masses(basis), 1))
    found.append(Planned(Gradient(basis, outcome, window, weights, start), MOST_ROUNDS))
    cuts = np.tile(np.arange(1.0, BINS), (outcome.classes, 1))
    found.append(Planned(Scores(basis, outcome, window, weights, start, cuts), 1))
    return found


def placeholder(grid: Grid) -> Basis:
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
