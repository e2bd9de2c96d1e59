"""What the baselines share: binary targets, open policies, no private way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin

from privfed.errors import InputError, PolicyError
from privfed.exact import Number
from privfed.learners.base import FederatedLearner, Planned
from privfed.policy import Guard, Policy
from privfed.query import Query
from privfed.schema import Schema


class Baseline(FederatedLearner):
    """A learner that only serves as a yardstick: everything it asks for leaves as it is."""

    baseline: ClassVar[bool] = True

    def published(self) -> Policy:
        """All of its questions, unprotected."""
        guards: dict[str, tuple[Guard, ...]] = {
            query.kind: (Guard.of("open"),) for query in self.queries
        }
        return Policy(guards, name="published")

    def private(self, epsilon: Number, delta: Number = "1e-5") -> Policy:
        """There is none.

        Raises:
            PolicyError: always.
        """
        raise PolicyError(
            f"{type(self).__name__} is a baseline without a private way; write published()"
        )


class BinaryBaseline(ClassifierMixin, Baseline):  # type: ignore[misc]
    """A baseline for a binary outcome, with scikit-learn's classifier manners."""

    def predict_proba(self, x: pd.DataFrame | np.ndarray) -> np.ndarray:
        """Probabilities of both classes, shape (rows, 2)."""
        second = self._second(self._encode(x))
        return np.column_stack([1 - second, second])

    def predict(self, x: pd.DataFrame | np.ndarray) -> np.ndarray:
        """The likelier class of each row."""
        positive = self.predict_proba(x)[:, 1] > 0.5
        likelier: np.ndarray = self.classes_[positive.astype(int)]
        return likelier

    def _second(self, x: np.ndarray) -> np.ndarray:
        """Probability of the second class for encoded rows."""
        raise NotImplementedError

    def check(self, schema: Schema) -> None:
        """Hold the target to two values."""
        if schema.target is None or schema.target.bounds != (0.0, 1.0):
            raise InputError(f"{type(self).__name__} needs a target with two values, 0 and 1")

    def _start(self, schema: Schema) -> None:
        """Check, then set ``schema_`` and ``classes_``."""
        self.check(schema)
        target = schema.target
        assert target is not None
        self.schema_ = schema
        self.classes_ = np.array((0, 1) if target.numeric else target.categories)


def once(*queries: Query) -> Sequence[Planned]:
    """A plan that asks each question once."""
    return [Planned(query, 1) for query in queries]


def linear_dict(schema: Schema, weights: np.ndarray, kind: str) -> dict[str, Any]:
    """A linear model of the encoded covariates as plain data."""
    assert schema.target is not None
    return {
        "model": kind,
        "target": schema.target.name,
        "link": "logit",
        "intercept": float(weights[0]),
        "linear": dict(zip(schema.names, weights[1:].tolist(), strict=True)),
    }
