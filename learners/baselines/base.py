"""What the baselines share: binary targets, open policies, no private way."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import expit

from privfed.errors import PolicyError
from privfed.learners.base import FederatedClassifier, FederatedLearner, Planned
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import Number
from privfed.questions.query import Query
from privfed.tables.schema import Schema


class Baseline(FederatedLearner):
    """A learner that only serves as a yardstick: everything it asks for leaves as it is."""

    baseline: ClassVar[bool] = True

    def published(self) -> Policy:
        """All of its questions, unprotected."""
        guards: dict[str, tuple[Guard, ...]] = {
            query.kind: (Guard.of("open"),) for query in self.queries
        }
        return Policy(guards, name="published")

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """There is none.

        Raises:
            PolicyError: always.
        """
        raise PolicyError(
            f"{type(self).__name__} is a baseline without a private way; write published()"
        )


class BinaryBaseline(FederatedClassifier, Baseline):
    """A baseline for a binary outcome."""

    binary: ClassVar[bool] = True

    def predict_proba(
        self, x: pd.DataFrame | np.ndarray, *, client: str | None = None
    ) -> np.ndarray:
        """Probabilities of both classes, shape (rows, 2)."""
        second = self._second(self._encode(x, client))
        return np.column_stack([1 - second, second])

    @abstractmethod
    def _second(self, x: np.ndarray) -> np.ndarray:
        """Probability of the second class for encoded rows."""


class LinearBaseline(BinaryBaseline):
    """A logistic regression on the encoded covariates."""

    #: What the model is called where people read it.
    called: ClassVar[str]
    #: Intercept, then a coefficient for each covariate; set by ``fit``.
    weights_: np.ndarray

    def decision_function(
        self, x: pd.DataFrame | np.ndarray, *, client: str | None = None
    ) -> np.ndarray:
        """Log-odds of the second class, shape (rows,)."""
        return self._log_odds(self._encode(x, client))

    def _log_odds(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.weights_[0] + x @ self.weights_[1:])

    def _second(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(expit(self._log_odds(x)))

    def readable(self) -> dict[str, Any]:
        """Intercept and coefficients."""
        schema = self.schema_
        assert schema.target is not None
        return {
            "model": self.called,
            "target": schema.target.name,
            "link": "logit",
            "intercept": float(self.weights_[0]),
            "linear": dict(zip(schema.names, self.weights_[1:].tolist(), strict=True)),
        }


def once(*queries: Query) -> Sequence[Planned]:
    """A plan that asks each question once."""
    return [Planned(query, 1) for query in queries]
