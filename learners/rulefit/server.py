"""The server's side of learning: what it asks, in which order, and what it makes of the answers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from privfed.errors import Note
from privfed.exchange.disclosure import Disclosure
from privfed.learners.rulefit.averaging import Steps, optimum, primal, stable_step
from privfed.learners.rulefit.histograms import Marginal
from privfed.learners.rulefit.queries import Curvature, Increment, Objective, Supports
from privfed.learners.rulefit.rules import Terms
from privfed.learners.rulefit.spreads import ask_spreads
from privfed.learners.rulefit.surrogate import Surrogate

#: Curvature along the intercept alone, that of any record.
LEVEL = 1.0
#: Times the loss without any term from which a model is worse; less is rounding, or steps still to go.
WORSE = 1.001
#: A weight that no model of targets and terms of size one has.
DIVERGED = 1e3


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
        client_step: eta_c; none for the largest that cannot diverge at any client.
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
        means = np.concatenate([[0.0], pooled.means])
        asked = self.client_step is None or self.reference_rounds > 0
        stable = self._step(federation, terms, pooled) if asked else 0.0
        step = self.client_step or stable
        dual, elapsed, rounds = np.zeros(1 + len(terms)), 0.0, 0
        for _ in range(self.rounds):
            steps = Steps(step, elapsed, self.local_steps, self.penalty)
            query = Increment(terms, means, dual, steps, self.logistic)
            told = federation.ask_offered(query, clients=draw()).each("increment")
            if not told:
                break
            dual = dual + self.server_step * pooled.average(told)
            elapsed += self.server_step * step * self.local_steps
            rounds += 1
        weights = primal(dual, elapsed * self.penalty)
        objective = self._objective(federation, terms, _moved_back(weights, means))
        self._judge(objective, weights)
        gap = math.nan
        if self.reference_rounds:
            least = self._reference(federation, terms, pooled, weights, stable / 2)
            gap = objective - self._objective(federation, terms, _moved_back(least, means))
        return Estimate(_moved_back(weights, means), rounds, objective, gap)

    def _step(self, federation: Disclosure, terms: Terms, pooled: Pooled) -> float:
        """The largest stable step, by the clients' curvatures; by variances where nobody tells them."""
        query = Curvature(terms, np.concatenate([[0.0], pooled.means]))
        answers = federation.ask_offered(query).only
        told = answers.each("largest") if "largest" in answers else {}
        if not told:
            return stable_step(1 + float(pooled.variances.sum()), self.logistic)
        clients = [max(float(own[0]), LEVEL) for own in told.values()]
        return stable_step(max(float(pooled.average(told)[0]), LEVEL), self.logistic, clients)

    def _judge(self, objective: float, weights: np.ndarray) -> None:
        """Say where the steps led away: no model at all costs at most log 2, or a half."""
        without = math.log(2) if self.logistic else 0.5
        if objective > WORSE * without or not np.abs(weights).max() < DIVERGED:
            warnings.warn(
                "the model is worse than without any term: the steps were too large; leave client_step "
                "out, take fewer local_steps, or make server_step smaller",
                Note,
                stacklevel=2,
            )

    def _reference(
        self,
        federation: Disclosure,
        terms: Terms,
        pooled: Pooled,
        start: np.ndarray,
        step: float,
    ) -> np.ndarray:
        """The pooled optimum by accelerated proximal gradient, each round an exact gradient.

        One local step of size one without penalty from "dual" weights w is minus the gradient at w.
        Where nobody tells one, the optimum is not known: NaN.
        """
        means = np.concatenate([[0.0], pooled.means])

        def slope(weights: np.ndarray) -> np.ndarray:
            query = Increment(terms, means, weights, Steps(1.0, 0.0, 1, 0.0), self.logistic)
            told = federation.ask_offered(query).each("increment")
            return pooled.average(told) if told else np.full(len(start), math.nan)

        return optimum(slope, start, step, self.penalty, self.reference_rounds)

    def _objective(self, federation: Disclosure, terms: Terms, weights: np.ndarray) -> float:
        if np.isnan(weights).any():
            return math.nan
        answers = federation.ask_offered(Objective(terms, weights, self.logistic)).only
        if "loss" not in answers:
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
    """Ask for supports, sizes and the spreads of the linear terms.

    Where spreads are withheld, the histograms tell them; where supports are, the rules' are guessed
    from records made up from the histograms.
    """
    rules, linear = len(terms.boxes), list(terms.linear)
    told = [own[linear] for own in marginal.linear_moments(federation.schema, terms.cutoffs)]
    answers = federation.ask_offered(Supports(terms)).only
    if "counts" not in answers:
        guessed = [own[1 : 1 + rules] for own in surrogate.moments(terms)]
        means, variances = map(np.concatenate, zip(guessed, told, strict=True))
        return Pooled(marginal.sizes, means, variances, np.full(rules, np.nan))
    sizes = {client: float(own[0]) for client, own in answers.each("size").items()}
    total = max(sum(sizes.values()), 1.0)
    supports = answers.total("counts") / total
    spread = ask_spreads(federation, terms.cutoffs, terms.linear, sizes, told[0])
    shares = {c: np.asarray(own) / max(sizes[c], 1) for c, own in answers.each("counts").items()}
    within = _within(shares, sizes, supports)
    variances = np.concatenate([within, told[1] if spread is None else spread])
    means = np.concatenate([supports, told[0]])
    return Pooled(sizes, means, variances, supports)


def _within(
    shares: Mapping[str, np.ndarray], sizes: Mapping[str, float], supports: np.ndarray
) -> np.ndarray:
    """Variances of the rules, pooled within clients; of all records where none has two of them."""
    freedom = sum(max(size - 1, 0) for size in sizes.values())
    if not freedom:
        return np.asarray(supports * (1 - supports))
    each = [shares[c] * (1 - shares[c]) * sizes[c] for c in shares]
    return np.asarray(np.sum(each, axis=0) / freedom)
