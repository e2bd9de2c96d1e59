"""Iterative weight updates from the sums of all rounds so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privfed.learners.private.posterior import (
    Linearization,
    MarginalLikelihood,
    NoisyMoments,
    ProjectedMoments,
    WeightPosterior,
    mixed,
)
from privfed.learners.private.rounds import GradientRounds, SyntheticHessian, usual_misspecification
from privfed.learners.private.settings import SETTINGS


@dataclass(frozen=True, eq=False)
class WeightUpdates:
    """The weights after some steps."""

    posterior: WeightPosterior  #: map from sums to weights
    rounds: GradientRounds  #: the rounds so far
    weights: np.ndarray  #: of leading directions, shape (directions, outputs)
    mean_square: float  #: of the last step, or a typical model's
    unit: float  #: the settings' scale of weights
    origin: Linearization  #: linearization at zero weights
    taken: int = 0  #: number of steps
    #: arguments of :func:`.covariance` of the weights, initially None
    last: (
        tuple[list[tuple[float, WeightPosterior]], ProjectedMoments, Linearization, float] | None
    ) = None
    evidence: MarginalLikelihood | None = None  #: of the prior's scales, from the last step

    @classmethod
    def begun(
        cls, posterior: WeightPosterior, rounds: GradientRounds, mean_square: float, unit: float
    ) -> WeightUpdates:
        """Return the state before the first step, at zero weights; there may be rounds already."""
        zeros = np.zeros((posterior.leading.axes.shape[1], len(posterior.intercept)))
        return cls(posterior, rounds, zeros, mean_square, unit, posterior.at(zeros))

    def further(self, sums: NoisyMoments, sampling: float) -> WeightUpdates:
        """Return the next step, from the sums of a gradient at the weights so far.

        A step's length and the certainty of the sums at its end depend on each other: a first guess is tried, then the
        step for its end point, and their mean is returned.
        """
        rounds = self.rounds.joined(sums, self.weights)
        local = self.posterior.at(self.weights) if self.taken else self.origin
        curvature = SyntheticHessian.at(self.posterior, local)
        misspecification = (
            rounds.misspecification(curvature)
            if self.taken
            else usual_misspecification(curvature.records)
        )
        axes = self.posterior.leading.axes
        slopes = rounds.slopes(self.weights, curvature, misspecification, axes)
        current = rounds.at(self.weights, curvature, misspecification)
        extra = misspecification * SETTINGS.expected_step * self.mean_square * curvature.diagonal
        widened = replace(current, variance=current.variance + extra).along(axes)
        moments = replace(widened, slopes=slopes)
        evidence = self.posterior.evidence(moments, local, sampling)
        if self.taken:
            evidence = evidence.halved(self._without_weights(rounds, misspecification, sampling))
        posterior = self._scaled(evidence)
        priors = posterior.smaller(evidence)
        first = mixed(priors, moments, local, sampling)
        at_end = replace(
            current, variance=rounds.at(first, curvature, misspecification).variance
        ).along(axes)
        at_end = replace(at_end, slopes=slopes)
        second = mixed(priors, at_end, local, sampling)
        step, limit = (first + second) / 2 - self.weights, self._max_square
        mean_square = curvature.mean_square(step)
        if mean_square > limit:
            step, mean_square = step * math.sqrt(limit / mean_square), limit
        return replace(
            self,
            posterior=posterior,
            rounds=rounds,
            weights=self.weights + step,
            mean_square=mean_square,
            taken=self.taken + 1,
            last=(priors, at_end, local, sampling),
            evidence=evidence,
        )

    @property
    def _max_square(self) -> float:
        if not self.taken:
            return math.inf
        second = self.taken == 1 and self.posterior.outcome.kind == "number"
        return self.mean_square * (SETTINGS.max_second_step if second else SETTINGS.max_step)

    def _without_weights(
        self, rounds: GradientRounds, misspecification: float, sampling: float
    ) -> MarginalLikelihood:
        """Return the evidence at zero weights: near-certain predictions have too little curvature to compare priors."""
        local, axes = self.origin, self.posterior.leading.axes
        zeros = local.weights
        curvature = SyntheticHessian.at(self.posterior, local)
        moments = rounds.at(zeros, curvature, misspecification).along(axes)
        slopes = rounds.slopes(zeros, curvature, misspecification, axes)
        return self.posterior.evidence(replace(moments, slopes=slopes), local, sampling)

    def _scaled(self, evidence: MarginalLikelihood) -> WeightPosterior:
        """Return the posterior with the likeliest prior; before a number's first step no variance is explained."""
        posterior = self.posterior
        if not self.taken and posterior.outcome.kind == "number":
            return posterior
        return posterior.scaled(evidence.likeliest(posterior.prior.scales, self.unit))
