"""Federated averaging of a neural network (McMahan et al. 2017): two hidden layers, in numpy."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import softmax

from privfed.errors import NobodyAnswered, QueryError
from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import Planned
from privfed.learners.baselines.base import (
    Baseline,
    BaselineClassifier,
    BaselineRegressor,
    LinearBaseline,
    Rows,
)
from privfed.learners.forest.columns import encoded_target
from privfed.learners.parameters import Allowed, Constraints, Integers, Reals
from privfed.learners.rulefit.averaging import LocalStepParams
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.estimation import Averaging
from privfed.learners.rulefit.pooled import Pooled
from privfed.learners.rulefit.queries import Increment, Objective, Supports
from privfed.learners.rulefit.rules import Terms
from privfed.privacy.policy import Policy
from privfed.questions.part import Part, PartType
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Schema

#: Maximum weights of a network, and maximum passes over a client's records in one round.
MAX_WEIGHTS, MAX_PASSES = 10_000_000, 1_000


@dataclass(frozen=True, eq=False)
class NetworkStep(Query):
    """A client's network after some passes over its records, and their number.

    Sensitivity: none is finite; gradients are not clipped, and steps depend on one another.
    """

    weights: np.ndarray  #: of all layers, concatenated
    hidden: tuple[int, ...]  #: units of the hidden layers
    classes: int  #: outputs; 0 for a regression
    passes: int  #: over the records, in batches of ``batch``
    batch: int  #: records of a batch
    step: float  #: size of a step (Adam's)
    round: int  #: number of the round, so that batches differ
    kind: ClassVar[str] = "baselines.network"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``weights`` and ``size``."""
        if schema.target is None or not self.hidden or min(self.hidden) < 1:
            raise QueryError("malformed", "a network needs a target and hidden units")
        size = sum((a + 1) * b for a, b in _layers(schema, self.hidden, self.classes))
        valid = self.weights.shape == (size,) and size <= MAX_WEIGHTS
        if not valid or not np.isfinite(self.weights).all():
            raise QueryError("malformed", "a network needs its weights, finite numbers")
        if not (1 <= self.passes <= MAX_PASSES and self.batch >= 1 and 0 < self.step <= 1):
            raise QueryError("malformed", "passes, batch and step must be positive numbers")
        return {
            "weights": Part(PartType.VALUES, ("weight",), (size,)),
            "size": Part(PartType.VALUES, ("all",), (1,)),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Take Adam's steps (Kingma and Ba 2015); without records, the weights are unchanged."""
        records = len(view.table)
        X, y = inputs(view.table.x, view.schema), _target(view.table, self.classes)
        rng = view.rng(f"baselines.network {self.round}")
        layers = _layers(view.schema, self.hidden, self.classes)
        weights, moments = self.weights.astype(float), np.zeros((2, len(self.weights)))
        for number, rows in enumerate(_batches(records, self.passes, self.batch, rng), start=1):
            gradient = _gradient(weights, layers, X[rows], y[rows], self.classes)
            moments[0] += 0.1 * (gradient - moments[0])
            moments[1] += 0.001 * (gradient**2 - moments[1])
            mean, square = moments[0] / (1 - 0.9**number), moments[1] / (1 - 0.999**number)
            weights -= self.step * mean / (np.sqrt(square) + 1e-8)
        return {"weights": weights.astype(np.float32), "size": np.array([float(records)])}


def inputs(X: np.ndarray, schema: Schema) -> np.ndarray:
    """Return numbers scaled to [-1, 1] by their public bounds, and one-hot categories."""
    columns = []
    for index, column in enumerate(schema.features):
        if column.categories:
            columns += [X[:, index] == code for code in range(len(column.categories))]
        else:
            low, high = column.bounds
            columns.append(2 * (X[:, index] - low) / (high - low) - 1)
    return np.column_stack(columns).astype(float)


def _target(records: Records, classes: int) -> np.ndarray:
    codes = encoded_target(records, classes)
    if classes:
        return np.asarray(np.eye(classes)[codes])
    assert records.schema.target is not None
    low, high = records.schema.target.bounds
    return ((records.target - low) / (high - low) - 0.5)[:, None]


def _layers(schema: Schema, hidden: Sequence[int], classes: int) -> list[tuple[int, int]]:
    n_inputs = sum(len(column.categories) or 1 for column in schema.features)
    sizes = [n_inputs, *hidden, classes or 1]
    return list(pairwise(sizes))


def _batches(
    records: int, passes: int, batch: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    for _ in range(passes if records else 0):
        order = rng.permutation(records)
        for first in range(0, records, batch):
            yield order[first : first + batch]


def _matrices(weights: np.ndarray, layers: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    """Return each layer's weights, with the biases as last row."""
    matrices, first = [], 0
    for n_in, n_out in layers:
        size = (n_in + 1) * n_out
        matrices.append(weights[first : first + size].reshape(n_in + 1, n_out))
        first += size
    return matrices


def forward(
    weights: np.ndarray, layers: Sequence[tuple[int, int]], X: np.ndarray
) -> list[np.ndarray]:
    """Return each layer's outputs: ReLU, except for the last one."""
    outputs, matrices = [X], _matrices(weights, layers)
    for number, matrix in enumerate(matrices):
        sums = outputs[-1] @ matrix[:-1] + matrix[-1]
        outputs.append(sums if number == len(matrices) - 1 else np.maximum(sums, 0))
    return outputs


def _gradient(
    weights: np.ndarray,
    layers: Sequence[tuple[int, int]],
    X: np.ndarray,
    y: np.ndarray,
    classes: int,
) -> np.ndarray:
    """Return the gradient of the mean loss: cross-entropy for classes, half the squared error for numbers."""
    outputs, matrices = forward(weights, layers, X), _matrices(weights, layers)
    error = (softmax(outputs[-1], axis=1) if classes else outputs[-1]) - y
    gradients = []
    for matrix, previous in zip(reversed(matrices), reversed(outputs[:-1]), strict=True):
        gradient = np.concatenate([previous.T @ error, error.sum(axis=0)[None]])
        gradients.append(gradient.reshape(-1) / len(X))
        error = (error @ matrix[:-1].T) * (previous > 0)
    return np.concatenate(gradients[::-1])


class Units(Allowed):
    """Units of each hidden layer."""

    words = "a tuple of whole numbers from 1 on"
    example = "(64, 32)"

    def holds(self, value: Any) -> bool:
        """See the base."""
        sizes = value if isinstance(value, tuple) else ()
        return bool(sizes) and all(Integers(at_least=1).holds(size) for size in sizes)


class _FedAvgNetwork(Baseline):
    """Averages the clients' networks in rounds, weighted by their records."""

    queries: ClassVar[tuple[type[Query], ...]] = (NetworkStep,)
    _parameter_constraints: ClassVar[Constraints] = {
        "hidden_layer_sizes": [Units()],
        "n_rounds": [Integers(at_least=1)],
        "local_epochs": [Integers(at_least=1, at_most=MAX_PASSES)],
        "batch_size": [Integers(at_least=1)],
        "learning_rate": [Reals(above=0, at_most=1)],
        "random_state": [Integers(at_least=0), None],
    }

    weights_: np.ndarray  #: The averaged network's weights, set by ``fit``

    def __init__(
        self,
        *,
        hidden_layer_sizes: tuple[int, ...] = (64, 32),
        n_rounds: int = 30,
        local_epochs: int = 3,
        batch_size: int = 32,
        learning_rate: float = 0.005,
        random_state: int | None = None,
    ) -> None:
        self._set(locals())

    def _shape(self, schema: Schema) -> list[tuple[int, int]]:
        return _layers(schema, self.hidden_layer_sizes, self._n_classes(schema))

    def _query(self, schema: Schema, weights: np.ndarray, number: int) -> NetworkStep:
        settings = (self.local_epochs, self.batch_size, float(self.learning_rate), number)
        return NetworkStep(
            weights, tuple(self.hidden_layer_sizes), self._n_classes(schema), *settings
        )

    def _initial_weights(self, schema: Schema) -> np.ndarray:
        """Draw initial weights (He et al. 2015), with zero biases."""
        rng = np.random.default_rng(self.random_state)
        parts = []
        for n_in, n_out in self._shape(schema):
            drawn = rng.normal(0, np.sqrt(2 / n_in), (n_in, n_out))
            parts.append(np.concatenate([drawn, np.zeros((1, n_out))]).reshape(-1))
        return np.concatenate(parts).astype(np.float32)

    def fit(self, federation: Disclosure) -> Self:
        """Average until the rounds are over or no client answers; errors as for the base."""
        self._start(federation)
        weights = self._initial_weights(self.schema_)
        for number in range(self.n_rounds):
            try:
                answers = federation.ask(self._query(self.schema_, weights, number))
            except NobodyAnswered:
                if number == 0:
                    raise
                break
            sizes = {client: float(size[0]) for client, size in answers.each("size").items()}
            replies = answers.each("weights")
            total = sum(sizes[client] for client in replies)
            if total:
                mean = sum(np.asarray(reply) * (sizes[c] / total) for c, reply in replies.items())
                weights = np.asarray(mean, dtype=np.float32)
        self.weights_ = weights
        return self

    def _outputs(self, X: Rows, client: Any) -> np.ndarray:
        """Return class probabilities, or the target within its public bounds; shape (rows, classes or 1)."""
        rows = inputs(self._encode(X, client), self.schema_)
        outputs = forward(self.weights_.astype(float), self._shape(self.schema_), rows)[-1]
        if self._classifies:
            return np.asarray(softmax(outputs, axis=1))
        assert self.schema_.target is not None
        low, high = self.schema_.target.bounds
        return np.asarray((np.clip(outputs, -0.5, 0.5) + 0.5) * (high - low) + low)

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        return [Planned(self._query(schema, self._initial_weights(schema), 0), self.n_rounds)]

    def readable(self) -> dict[str, Any]:
        layers = [{"inputs": n_in, "outputs": n_out} for n_in, n_out in self._shape(self.schema_)]
        return self._model_info("neural network by federated averaging", layers=layers)


class FedAvgNetworkClassifier(_FedAvgNetwork, BaselineClassifier):
    """A network for classes by federated averaging.

    Args:
        hidden_layer_sizes: units of the hidden layers.
        n_rounds: rounds of averaging.
        local_epochs: passes over a client's records in each round.
        batch_size: records of a batch.
        learning_rate: size of a step.
        random_state: seed of the first weights.
    """


class FedAvgNetworkRegressor(_FedAvgNetwork, BaselineRegressor):
    """A network for numbers; parameters as :class:`FedAvgNetworkClassifier`."""


# --- federated averaging of a logistic regression (McMahan et al. 2017)


class FedAvgLogistic(LinearBaseline):
    """Local gradient steps on every client, averaged by the clients' numbers of records.

    Without a penalty, dual averaging is federated averaging (dual and primal weights are the same),
    so the queries are those of RuleFit with linear terms only.

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
        """Average until the rounds are over or no client answers; errors as for the base."""
        self._start(federation)
        terms = _linear(federation.schema)
        answers = federation.ask(Supports(terms))
        sizes = {client: float(size[0]) for client, size in answers.each("size").items()}
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
        """Return sizes, rounds, and the objective."""
        terms = _linear(schema)
        zeros = np.zeros(1 + len(terms))
        steps = LocalStepParams(self.learning_rate, 0.0, self.local_steps, 0.0)
        return [
            Planned(Supports(terms), 1),
            Planned(Increment(terms, zeros, zeros, steps, logistic=True), self.n_rounds),
            Planned(Objective(terms, zeros, logistic=True), 1),
        ]


def _linear(schema: Schema) -> Terms:
    """Return linear terms only, scaled to [-2, 2] over the public bounds."""
    features = len(schema.features)
    scale = 0.1 * (schema.upper - schema.lower)
    cutoffs = Cutoffs(((),) * features, schema.lower, schema.upper, scale)
    return Terms(cutoffs, np.zeros((0, features, 2), np.uint8), tuple(range(features)))
