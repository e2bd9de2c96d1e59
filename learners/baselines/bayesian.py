"""Bayesian Federated Inference for logistic regression (Jonker, Pazira, Coolen 2024)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy.special import expit

from privfed.errors import QueryError
from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import Planned
from privfed.learners.baselines.base import LinearBaseline, once
from privfed.learners.parameters import Constraints, Reals
from privfed.privacy.policy import Policy
from privfed.questions.part import Part, PartType
from privfed.questions.query import Query, View
from privfed.tables.schema import Schema

MAX_PRECISION = 1e9  #: Maximum precision, and inverse of the minimum, that can be inverted


@dataclass(frozen=True)
class LocalPosterior(Query):
    """Mode and curvature of a client's posterior under a Gaussian prior.

    Sensitivity: none is finite; a separable client's mode changes as far as the prior allows.
    """

    precision: float  #: of the prior on every coefficient, Gamma
    kind: ClassVar[str] = "baselines.posterior"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``mode`` by term, the intercept first, and ``curvature`` by pair of terms."""
        if schema.target is None or not 1 / MAX_PRECISION <= self.precision <= MAX_PRECISION:
            raise QueryError("malformed", "a posterior needs a target and a positive precision")
        terms = 1 + len(schema.features)
        return {
            "mode": Part(PartType.VALUES, ("term",), (terms,)),
            "curvature": Part(PartType.VALUES, ("term", "other"), (terms, terms)),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Use Newton's method with step halving until the posterior no longer increases."""
        assert view.schema.target is not None
        design = np.column_stack([np.ones(len(view.table)), view.table.x])
        low, high = view.schema.target.bounds
        mode = posterior_mode(design, (view.table.target - low) / (high - low), self.precision)
        return {"mode": mode, "curvature": _curvature(design, mode, self.precision)}


def posterior_mode(design: np.ndarray, target: np.ndarray, precision: float) -> np.ndarray:
    """Return the maximum of log-likelihood minus precision times half the squared norm."""

    def log_posterior(weights: np.ndarray) -> float:
        scores = design @ weights
        fit = target @ scores - np.logaddexp(0, scores).sum()
        return float(fit - precision / 2 * weights @ weights)

    mode = np.zeros(design.shape[1])
    for _ in range(100):
        gradient = design.T @ (target - expit(design @ mode)) - precision * mode
        step = np.linalg.solve(_curvature(design, mode, precision), gradient)
        fraction = 1.0
        while log_posterior(mode + fraction * step) < log_posterior(mode) and fraction > 1e-6:
            fraction /= 2
        mode = mode + fraction * step
        if np.abs(fraction * step).max() < 1e-9:
            break
    return mode


def _curvature(design: np.ndarray, mode: np.ndarray, precision: float) -> np.ndarray:
    probability = expit(design @ mode)
    weighted = design * (probability * (1 - probability))[:, None]
    return np.asarray(design.T @ weighted + precision * np.eye(design.shape[1]))


class BayesianInference(LinearBaseline):
    """Combines the clients' posteriors: A = sum A_m - (M - 1) Gamma, mode A^-1 sum A_m mode_m.

    Args:
        precision: of the prior on every coefficient (features in their own units).
    """

    queries: ClassVar[tuple[type[Query], ...]] = (LocalPosterior,)
    called: ClassVar[str] = "Bayesian federated logistic regression"
    _parameter_constraints: ClassVar[Constraints] = {
        "precision": [Reals(at_least=1 / MAX_PRECISION, at_most=MAX_PRECISION)]
    }

    def __init__(self, precision: float = 0.01) -> None:
        self.precision = precision

    def fit(self, federation: Disclosure) -> Self:
        """Query once, and combine; errors as for the base."""
        self._start(federation)
        answers = federation.ask(LocalPosterior(float(self.precision)))
        modes = [np.asarray(mode) for mode in answers.each("mode").values()]
        curvatures = [np.asarray(curvature) for curvature in answers.each("curvature").values()]
        prior = self.precision * np.eye(len(modes[0]))
        joint = np.sum(curvatures, axis=0) - (len(modes) - 1) * prior
        moment = np.sum([a @ mode for a, mode in zip(curvatures, modes, strict=True)], axis=0)
        self.weights_ = np.linalg.solve(joint, moment)
        return self

    @property
    def feature_importances_(self) -> np.ndarray:
        """|coefficient| times the width of the public bounds, scaled to a maximum of 1."""
        size = np.abs(self.weights_[1:]) * (self.schema_.upper - self.schema_.lower)
        return np.asarray(size / max(size.max(), 1e-300))

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """One query."""
        return once(LocalPosterior(float(self.precision)))
