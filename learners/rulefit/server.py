"""The server's side of learning: what it asks, in which order, and what it makes of the answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigvalsh

from privfed.disclosure import Disclosure
from privfed.errors import NobodyAnswered
from privfed.learners.rulefit.averaging import Steps, optimum, primal, stable_step
from privfed.learners.rulefit.histograms import Marginal
from privfed.learners.rulefit.model import RuleEnsemble
from privfed.learners.rulefit.planning import TOLD_RULES
from privfed.learners.rulefit.queries import Gradient, Increment, Objective, Supports
from privfed.learners.rulefit.random_rules import Surrogate
from privfed.learners.rulefit.rules import Terms


@dataclass(frozen=True, eq=False)
class Estimate:
    """What estimation gave.

    Args:
        weights: of intercept, rules and linear terms.
        rounds: how many rounds were answered.
        objective: pooled mean loss plus penalty at the end; NaN where it was not released.
        gap: objective minus that of the proximal-gradient optimum; NaN where it was not asked for.
    """

    weights: np.ndarray
    rounds: int
    objective: float
    gap: float = math.nan


@dataclass(frozen=True)
class Averaging:
    """Federated dual averaging (paper, Algorithm 2, with the sign of line 14 put right).

    Args:
        rounds: R.
        local_steps: G.
        server_step: eta_s.
        client_step: eta_c; none for one that cannot diverge.
        penalty: lambda.
        logistic: the loss.
        reference_rounds: rounds of federated proximal gradient afterwards, to tell the gap.
    """

    rounds: int
    local_steps: int
    server_step: float
    client_step: float | None
    penalty: float
    logistic: bool
    reference_rounds: int = 0

    def run(
        self,
        federation: Disclosure,
        terms: Terms,
        pooled: Pooled,
        draw: Callable[[], Sequence[str]],
    ) -> Estimate:
        """Average dual increments over clients, weighted by their records, round by round.

        Clients that do not answer a round are left out of it; when nobody answers, learning stops
        with what it has.
        """
        step = self.client_step or stable_step(pooled.variances, self.logistic)
        means = np.concatenate([[0.0], pooled.means])
        dual, elapsed, rounds = np.zeros(1 + len(terms)), 0.0, 0
        for _ in range(self.rounds):
            steps = Steps(step, elapsed, self.local_steps, self.penalty)
            query = Increment(terms, means, dual, steps, self.logistic)
            try:
                answers = federation.ask(query, clients=draw())
            except NobodyAnswered:
                break
            dual = dual + self.server_step * pooled.average(answers.each("increment"))
            elapsed += self.server_step * step * self.local_steps
            rounds += 1
        weights = primal(dual, elapsed * self.penalty)
        objective = self._objective(federation, terms, _moved_back(weights, means))
        gap = math.nan
        if self.reference_rounds:
            least = self._reference(federation, terms, pooled, weights)
            gap = objective - self._objective(federation, terms, _moved_back(least, means))
        return Estimate(_moved_back(weights, means), rounds, objective, gap)

    def _reference(
        self, federation: Disclosure, terms: Terms, pooled: Pooled, start: np.ndarray
    ) -> np.ndarray:
        """The pooled optimum by accelerated proximal gradient, each round an exact gradient.

        One local step of size one without penalty from "dual" weights w is minus the gradient at w.
        """
        means = np.concatenate([[0.0], pooled.means])
        step = stable_step(pooled.variances, self.logistic) / 2

        def slope(weights: np.ndarray) -> np.ndarray:
            query = Increment(terms, means, weights, Steps(1.0, 0.0, 1, 0.0), self.logistic)
            return pooled.average(federation.ask(query).each("increment"))

        try:
            return optimum(slope, start, step, self.penalty, self.reference_rounds)
        except NobodyAnswered:
            return np.full(len(start), math.nan)

    def _objective(self, federation: Disclosure, terms: Terms, weights: np.ndarray) -> float:
        if np.isnan(weights).any():
            return math.nan
        try:
            answers = federation.ask(Objective(terms, weights, self.logistic))
        except NobodyAnswered:
            return math.nan
        mean = float(answers.total("loss")[0] / max(answers.total("size")[0], 1))
        return mean + self.penalty * float(np.abs(weights[1:]).sum())


def _moved_back(weights: np.ndarray, means: np.ndarray) -> np.ndarray:
    """The intercept that goes with columns that are not centred."""
    moved = weights.copy()
    moved[0] -= means @ weights
    return moved


@dataclass(frozen=True, eq=False)
class Pooled:
    """Moments of the terms over all clients, and the clients' sizes.

    Args:
        sizes: each client's number of records.
        means: of the terms' columns, shape (terms,).
        variances: pooled within clients, shape (terms,).
        supports: of the rules, NaN where nothing was released.
    """

    sizes: Mapping[str, float]
    means: np.ndarray
    variances: np.ndarray
    supports: np.ndarray

    def average(self, each: Mapping[str, np.ma.MaskedArray]) -> np.ndarray:
        """Average clients' vectors by their sizes, so that the objective is the pooled one."""
        usual = float(np.mean(list(self.sizes.values()))) if self.sizes else 1.0
        weights = np.array([self.sizes.get(client, usual) for client in each])
        vectors = np.array([np.asarray(vector) for vector in each.values()])
        return np.asarray(weights @ vectors / weights.sum())


def ask_pooled(
    federation: Disclosure, terms: Terms, marginal: Marginal, surrogate: Surrogate
) -> Pooled:
    """Ask for supports and sizes; where they are withheld, guess from the marginals."""
    means, variances = (moment[1:] for moment in surrogate.moments(terms))
    rules = len(terms.boxes)
    try:
        answers = federation.ask(Supports(terms))
    except NobodyAnswered:
        return Pooled(marginal.sizes, means, variances, np.full(rules, np.nan))
    sizes = {client: float(own[0]) for client, own in answers.each("size").items()}
    total = max(sum(sizes.values()), 1.0)
    supports = answers.total("counts") / total
    shares = {c: np.asarray(own) / max(sizes[c], 1) for c, own in answers.each("counts").items()}
    within = [shares[c] * (1 - shares[c]) * sizes[c] for c in shares]
    freedom = max(sum(max(size - 1, 0) for size in sizes.values()), 1.0)
    means[:rules], variances[:rules] = supports, np.sum(within, axis=0) / freedom
    return Pooled(sizes, means, variances, supports)


def tell_supports(federation: Disclosure, model: RuleEnsemble, total: float) -> RuleEnsemble:
    """Ask for noisy supports of the rules with the largest importance; the rest stay unknown.

    Args:
        federation: whom to ask.
        model: the model to complete.
        total: records of all clients, as the noisy histograms tell.
    """
    rules = len(model.terms.boxes)
    top = np.argsort(-model.term_importances[:rules], kind="stable")[:TOLD_RULES]
    if not len(top):
        return model
    try:
        answers = federation.ask(Supports(Terms(model.terms.cutoffs, model.terms.boxes[top], ())))
    except NobodyAnswered:
        return model
    supports = model.supports.copy()
    supports[top] = np.clip(answers.total("counts") / total, 0, 1)
    return replace(model, supports=supports)


@dataclass(frozen=True)
class NoisyAveraging:
    """Dual averaging over noisy clipped gradients, with a distance learnt from the marginals.

    G = 1. The distance-generating function is h(w) = w' A w / 2, where A is the curvature of the
    loss for made-up records with the released marginals and a ridge: so that few rounds, each of
    which costs budget, go far.

    Args:
        ridge: added to the columns' second moments.
        clip: C, the norm of a record's scaled columns.
        logistic: the loss.
        threshold: L1 penalty of the last proximal map, in standard deviations of the dual's noise.
    """

    ridge: float
    clip: float
    logistic: bool
    threshold: float = 0.0

    def run(
        self,
        federation: Disclosure,
        terms: Terms,
        scales: np.ndarray,
        marginal: Marginal,
        surrogate: Surrogate,
        spends: Sequence[Fraction | None],
    ) -> Estimate:
        """One round for each spend; the mean gradient is the noisy sum over the noisy total."""
        curvature = surrogate.curvature(terms, scales, self.clip)
        distance = Distance(curvature, self.ridge, self.logistic)
        dual, weights, rounds, noise = np.zeros(len(scales)), np.zeros(len(scales)), 0, 0.0
        for spend in spends:
            query = Gradient(terms, weights, scales, self.clip, self.logistic)
            try:
                answers = federation.ask(query, spend=spend)
            except NobodyAnswered:
                break
            answered = answers.each("gradient")
            present = sum(marginal.sizes.get(client, 0.0) for client in answered)
            records = marginal.total * (present / max(sum(marginal.sizes.values()), 1.0) or 1.0)
            slope, deviation = answers.total("gradient") / records, answers.deviation("gradient")
            dual, noise = dual + slope, noise + (deviation / records) ** 2
            weights, rounds = distance.weights(dual, slope, deviation / records), rounds + 1
        curvature = distance.curvature
        if self.threshold:
            weights = _sparse(curvature, dual, weights, self.threshold * math.sqrt(noise))
        return Estimate(weights * scales, rounds, math.nan)


class Distance:
    """`private`'s distance-generating function, which grows where steps in it overshoot.

    The marginals do not tell how covariates go together; along those that go together the curvature
    is larger than they say. The squared loss then overshoots, more in each round. Where a gradient
    has turned against the last step by more than half of what that step promised, beyond the noise,
    the ridge is doubled: dual averaging allows a distance that grows.

    Args:
        curvature: second moments of the columns, as the marginals tell.
        ridge: added to them.
        logistic: the loss, at most a quarter as steep; it levels off and needs no such care.
    """

    def __init__(self, curvature: np.ndarray, ridge: float, logistic: bool) -> None:
        self._plain, self._ridge, self._logistic = curvature, ridge, logistic
        self._before = self._step = self._weights = np.zeros(len(curvature))
        self._solve()

    def _solve(self) -> None:
        steepness = 0.25 if self._logistic else 1.0
        self.curvature = steepness * (self._plain + self._ridge * np.eye(len(self._plain)))
        self._factor = cho_factor(self.curvature)

    def weights(self, dual: np.ndarray, slope: np.ndarray, deviation: float) -> np.ndarray:
        """The proximal map of the dual, after a look at its last increment.

        Args:
            dual: the sum of all gradients so far.
            slope: the last of them.
            deviation: standard deviation of its noise in each coordinate.
        """
        promised = float(self._before @ self._step)
        allowed = promised / 2 + 2 * deviation * float(np.linalg.norm(self._step))
        if not self._logistic and promised > 0 and float(slope @ self._step) < -allowed:
            self._ridge *= 2
            self._solve()
        moved = np.asarray(cho_solve(self._factor, dual))
        self._before, self._step, self._weights = slope, moved - self._weights, moved
        return moved


def _sparse(
    curvature: np.ndarray, dual: np.ndarray, start: np.ndarray, penalty: float
) -> np.ndarray:
    """The proximal map argmin <-z, w> + penalty |w|_1 + w' A w / 2 (paper, Algorithm 2, line 19)."""
    last = len(curvature) - 1
    largest = float(eigvalsh(curvature, subset_by_index=[last, last])[0])
    return optimum(lambda w: dual - curvature @ w, start, 1 / largest, penalty, 300)
