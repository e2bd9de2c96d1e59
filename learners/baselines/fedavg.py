"""Federated averaging of a logistic regression (McMahan et al. 2017)."""

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import Planned
from privfed.learners.baselines.base import LinearBaseline
from privfed.learners.parameters import Constraints, Integers, Reals
from privfed.learners.rulefit.averaging import LocalStepParams
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.estimation import Averaging
from privfed.learners.rulefit.pooled import Pooled
from privfed.learners.rulefit.queries import Increment, Objective, Supports
from privfed.learners.rulefit.rules import Terms
from privfed.privacy.policy import Policy
from privfed.questions.query import Query
from privfed.tables.schema import Schema


class FedAvgLogistic(LinearBaseline):
    """Local gradient steps on every client, averaged by the clients' numbers of records.

    Without a penalty, dual averaging is federated averaging (dual and primal weights are the same),
    so the queries are those of RuleFit with linear terms alone.

    Args:
        n_rounds: rounds of averaging.
        local_steps: full-batch gradient steps of each client in a round.
        learning_rate: size of a step, for features scaled to [-2, 2] by their public bounds.
    """

    queries: ClassVar[tuple[type[Query], ...]] = (Supports, Increment, Objective)
    called: ClassVar[str] = "logistic regression by federated averaging"
    _parameter_constraints: ClassVar[Constraints] = {
        "n_rounds": [Integers(at_least=1)],
        "local_steps": [Integers(at_least=1)],
        "learning_rate": [Reals(above=0, at_most=10)],
    }

    def __init__(
        self, *, n_rounds: int = 100, local_steps: int = 20, learning_rate: float = 0.5
    ) -> None:
        self.n_rounds = n_rounds
        self.local_steps = local_steps
        self.learning_rate = learning_rate

    def fit(self, federation: Disclosure) -> Self:
        """Average until the rounds are over or nobody answers; errors as for the base."""
        self._start(federation)
        terms = _linear(federation.schema)
        answers = federation.ask(Supports(terms))
        sizes = {client: float(own[0]) for client, own in answers.each("size").items()}
        zeros = np.zeros(len(terms))
        averaging = Averaging(
            rounds=self.n_rounds,
            client_step=self.learning_rate,
            penalty=0.0,
            logistic=True,
            local_steps=self.local_steps,
        )
        pooled = Pooled(sizes, zeros, zeros, np.zeros(0))
        (result,) = averaging.run(federation, terms, pooled)
        slopes = result.weights[1:] * 0.4 / terms.cutoffs.scale
        middle = (federation.schema.lower + federation.schema.upper) / 2
        self.rounds_ = result.rounds
        self.weights_ = np.concatenate([[result.weights[0] - slopes @ middle], slopes])
        return self

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """Sizes, rounds, and the objective."""
        terms = _linear(schema)
        zeros = np.zeros(1 + len(terms))
        steps = LocalStepParams(self.learning_rate, 0.0, self.local_steps, 0.0)
        return [
            Planned(Supports(terms), 1),
            Planned(Increment(terms, zeros, zeros, steps, logistic=True), self.n_rounds),
            Planned(Objective(terms, zeros, logistic=True), 1),
        ]


def _linear(schema: Schema) -> Terms:
    """Linear terms alone, scaled to [-2, 2] over the public bounds."""
    features = len(schema.features)
    scale = 0.1 * (schema.upper - schema.lower)
    cutoffs = Cutoffs(((),) * features, schema.lower, schema.upper, scale)
    return Terms(cutoffs, np.zeros((0, features, 2), np.uint8), tuple(range(features)))
