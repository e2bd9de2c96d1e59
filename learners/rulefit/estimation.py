"""Estimation of coefficients by rounds of exact gradients, or by the paper's dual averaging."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from msgspec import UNSET, UnsetType

from privfed.errors import Note
from privfed.exchange.disclosure import Disclosure
from privfed.learners.rulefit.averaging import LocalStepParams, primal, stable_step
from privfed.learners.rulefit.pooled import Pooled
from privfed.learners.rulefit.queries import Increment, Objective, SmoothnessBound
from privfed.learners.rulefit.rules import Terms
from privfed.learners.rulefit.settings import SETTINGS

GRADIENT = LocalStepParams(1.0, 0.0, 1, 0.0)  #: Local steps whose increment is minus the gradient
LEVEL = 1.0  #: Curvature along the intercept, which is that of any record


@dataclass(frozen=True, eq=False)
class Iterate:
    """State of accelerated proximal gradient: x_k, y_(k+1), where the next gradient is taken, and t_(k+1).

    Source: Beck and Teboulle 2009, Section 4, restarted when momentum increases the objective (O'Donoghue and Candes
    2015, Section 3.2), as strong convexity is unknown.
    """

    weights: np.ndarray
    ahead: np.ndarray
    momentum: float

    @classmethod
    def at(cls, weights: np.ndarray) -> Self:
        """Return the initial state at some weights."""
        return cls(weights, weights, 1.0)

    def after(self, slope: np.ndarray, step: float, penalty: float) -> Iterate:
        """Return the next state, from minus the gradient of the smooth part at :attr:`ahead` (Eqs. 4.1 to 4.3)."""
        weights = primal(self.ahead + step * slope, step * penalty)
        uphill = (self.ahead - weights) @ (weights - self.weights) > 0
        momentum = 1.0 if uphill else self.momentum
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = weights + (momentum - 1) / following * (weights - self.weights)
        return Iterate(weights, ahead, following)

    def settled(self, before: Iterate) -> bool:
        """Whether the step from where its gradient was taken is too small for another round."""
        return bool(np.abs(self.weights - before.ahead).max() < SETTINGS.settled)


def descending_step(curvature: float, logistic: bool) -> float:
    """Return the inverse of the gradient's Lipschitz constant, allowing for Lanczos' precision."""
    return (4.0 if logistic else 1.0) / ((1 + 2 * SETTINGS.eigenvalue_tol) * curvature)


def optimum(
    slope: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    step: float,
    penalty: float,
    iterations: int = 5000,
) -> np.ndarray:
    """Return the minimiser after at most `iterations`; `step` is at most one over the Lipschitz constant."""
    state = Iterate.at(start)
    for _ in range(iterations):
        following = state.after(slope(state.ahead), step, penalty)
        if following.settled(state):
            return following.weights
        state = following
    return state.weights


@dataclass(frozen=True, eq=False)
class Estimate:
    """Estimated coefficients."""

    weights: np.ndarray  #: of intercept, rules and linear terms
    rounds: int  #: number of answered rounds
    objective: float  #: final pooled mean loss plus penalty; NaN if not released
    gap: float = math.nan  #: objective minus the proximal-gradient optimum's; NaN if not requested


@dataclass(frozen=True, eq=False)
class FitContext:
    """Data shared by all rounds; `rng` draws the clients of a round."""

    federation: Disclosure
    terms: Terms
    pooled: Pooled
    logistic: bool
    rng: np.random.Generator | None = None
    label: int | UnsetType = UNSET

    @property
    def means(self) -> np.ndarray:
        """The columns' means that are subtracted, shape (1 + terms,), the first zero."""
        return np.concatenate([[0.0], self.pooled.means])

    def increment(
        self, dual: np.ndarray, steps: LocalStepParams, clients: Sequence[str] | None = None
    ) -> np.ndarray | None:
        """Return the clients' mean increment; None if no client answers."""
        query = Increment(self.terms, self.means, dual, steps, self.logistic, self.label)
        increments = self.federation.ask_offered(query, clients=clients).each("increment")
        return self.pooled.average(increments) if increments else None

    def slope(self, weights: np.ndarray) -> np.ndarray | None:
        """Return minus the gradient of the pooled mean loss at some weights; None if no client answers."""
        return self.increment(weights, GRADIENT)

    def curvature(self) -> Curvatures:
        """Return the clients' largest eigenvalues, whose mean bounds the pooled one; else the variances' sum."""
        answers = self.federation.ask_offered(SmoothnessBound(self.terms, self.means)).only
        largest = answers.each("largest") if "largest" in answers else {}
        if not largest:
            return Curvatures(1 + float(self.pooled.variances.sum()))
        clients = tuple(max(float(value[0]), LEVEL) for value in largest.values())
        return Curvatures(max(float(self.pooled.average(largest)[0]), LEVEL), clients)

    def objective(self, weights: np.ndarray, penalty: float) -> float:
        """Return pooled mean loss plus penalty, for weights of centred columns; NaN if withheld."""
        if np.isnan(weights).any():
            return math.nan
        query = Objective(self.terms, self.uncentred(weights), self.logistic, self.label)
        answers = self.federation.ask_offered(query).only
        if "loss" not in answers:
            return math.nan
        mean = float(answers.total("loss")[0] / max(answers.total("size")[0], 1))
        return mean + penalty * float(np.abs(weights[1:]).sum())

    def uncentred(self, weights: np.ndarray) -> np.ndarray:
        """Return the weights with the intercept for uncentred columns."""
        shifted = weights.copy()
        shifted[0] -= self.means @ weights
        return shifted


@dataclass(frozen=True)
class Curvatures:
    """Bounds on the largest eigenvalue of the columns' second moments, pooled and by client."""

    pooled: float
    clients: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Estimation(ABC):
    """Base class of iterative estimation of coefficients."""

    rounds: int  #: maximum number of rounds
    client_step: float | None  #: step size; None: one that cannot diverge
    penalty: float  #: lambda
    logistic: bool  #: the loss
    reference_rounds: int = 0  #: later rounds of federated proximal gradient, for the gap
    intercept: float = 0.0  #: where the rounds begin; of numbers their mean

    remedy: ClassVar[str]  #: Remedy for too large steps

    def run(
        self,
        federation: Disclosure,
        terms: Terms,
        pooled: Pooled,
        rng: np.random.Generator | None = None,
        labels: Sequence[int | UnsetType] = (UNSET,),
    ) -> list[Estimate]:
        """Estimate the weights of each label's model, with the same steps for all.

        A client that does not answer a round is left out of it; a round without answers ends
        learning.
        """
        context = FitContext(federation, terms, pooled, self.logistic, rng)
        needed = self.client_step is None or self.reference_rounds > 0
        curvatures = context.curvature() if needed else Curvatures(math.inf)
        chosen = self if self.logistic else self._in_proportion(context)
        return [chosen._estimate(replace(context, label=label), curvatures) for label in labels]

    def _in_proportion(self, context: FitContext) -> Self:
        """Return the estimation of numbers from their mean, the penalty lowered where their bounds are loose.

        Otherwise the intercept might not reach them, and no term be worth its penalty. Unchanged where nobody answers.
        """
        weights = np.zeros(1 + len(context.terms))
        slope = context.slope(weights)
        if slope is None:
            return self
        weights[0] = slope[0]
        std = math.sqrt(2 * max(context.objective(weights, 0.0), 0.0))
        factor = min(std / SETTINGS.loose_std, 1.0) if std > 0 else 1.0
        return replace(self, intercept=float(slope[0]), penalty=factor * self.penalty)

    def _begin(self, context: FitContext) -> np.ndarray:
        weights = np.zeros(1 + len(context.terms))
        weights[0] = self.intercept
        return weights

    def _estimate(self, context: FitContext, curvatures: Curvatures) -> Estimate:
        step = self.client_step or self._step(curvatures)
        weights, rounds = self._iterate(context, step)
        objective = context.objective(weights, self.penalty)
        self._warn_if_diverged(objective, weights)
        gap = math.nan
        if self.reference_rounds:
            gap = objective - self._minimum(context, weights, curvatures)
        return Estimate(context.uncentred(weights), rounds, objective, gap)

    @property
    @abstractmethod
    def first_steps(self) -> LocalStepParams:
        """Return the local steps of the first round."""

    @abstractmethod
    def _step(self, curvatures: Curvatures) -> float: ...

    @abstractmethod
    def _iterate(self, context: FitContext, step: float) -> tuple[np.ndarray, int]:
        """Return the weights for centred columns, and the number of answered rounds."""

    def _warn_if_diverged(self, objective: float, weights: np.ndarray) -> None:
        """Warn if the model is worse than no model, whose loss is at most log 2, or a half."""
        without = math.log(2) if self.logistic else 0.5
        if objective > SETTINGS.worse * without or not np.abs(weights).max() < SETTINGS.diverged:
            warnings.warn(
                f"the model is worse than without any term: the steps were too large; {self.remedy}",
                Note,
                stacklevel=2,
            )

    def _minimum(self, context: FitContext, start: np.ndarray, curvatures: Curvatures) -> float:
        """Return the objective's minimum by exact gradients; NaN if a round has no answers."""

        def slope(weights: np.ndarray) -> np.ndarray:
            released = context.slope(weights)
            return np.full(len(start), math.nan) if released is None else released

        step = descending_step(curvatures.pooled, self.logistic)
        weights = optimum(slope, start, step, self.penalty, self.reference_rounds)
        return context.objective(weights, self.penalty)


@dataclass(frozen=True, kw_only=True)
class Gradients(Estimation):
    """Accelerated proximal gradient: one local step per round (paper, Algorithm 3 with G = 1)."""

    remedy = "leave client_learning_rate out, or make it smaller"
    first_steps = GRADIENT

    def _step(self, curvatures: Curvatures) -> float:
        return descending_step(curvatures.pooled, self.logistic)

    def _iterate(self, context: FitContext, step: float) -> tuple[np.ndarray, int]:
        state = Iterate.at(self._begin(context))
        for done in range(self.rounds):
            slope = context.slope(state.ahead)
            if slope is None:
                return state.weights, done
            following = state.after(slope, step, self.penalty)
            if following.settled(state):
                return following.weights, done + 1
            state = following
        return state.weights, self.rounds


@dataclass(frozen=True, kw_only=True)
class Averaging(Estimation):
    """Federated dual averaging (paper, Algorithm 2, with the sign of line 14 corrected).

    Dual increments are averaged over clients, weighted by their records.
    """

    local_steps: int  #: G
    server_step: float = 1.0  #: eta_s
    clients_per_round: int | None = None  #: number of clients drawn in each round; None for all

    remedy = "leave client_learning_rate out, use fewer local_steps, or make server_learning_rate smaller"

    @property
    def first_steps(self) -> LocalStepParams:
        """Return steps of size .01 for any ``client_learning_rate``: the size does not affect the cost."""
        return LocalStepParams(0.01, 0.0, self.local_steps, self.penalty)

    def _step(self, curvatures: Curvatures) -> float:
        return stable_step(curvatures.pooled, self.logistic, curvatures.clients)

    def _iterate(self, context: FitContext, step: float) -> tuple[np.ndarray, int]:
        dual, elapsed, rounds = self._begin(context), 0.0, 0
        for _ in range(self.rounds):
            steps = LocalStepParams(step, elapsed, self.local_steps, self.penalty)
            increment = context.increment(dual, steps, self._draw(context))
            if increment is None:
                break
            dual = dual + self.server_step * increment
            elapsed += self.server_step * step * self.local_steps
            rounds += 1
        return primal(dual, elapsed * self.penalty), rounds

    def _draw(self, context: FitContext) -> Sequence[str] | None:
        if self.clients_per_round is None or context.rng is None:
            return None
        clients = context.federation.clients
        drawn = context.rng.choice(len(clients), self.clients_per_round, replace=False)
        return [clients[number] for number in sorted(drawn)]
