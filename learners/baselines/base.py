"""Base classes of baselines: open policies, no private mode, a common form for classes and numbers."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import expit

from privfed.errors import PolicyError
from privfed.learners.base import FederatedClassifier, FederatedLearner, FederatedRegressor, Planned
from privfed.learners.forest.columns import class_count
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import Number
from privfed.questions.query import Query
from privfed.tables.schema import Schema

Rows = pd.DataFrame | np.ndarray  #: Rows to predict: a table, or an array of shape (rows, features)


class Baseline(FederatedLearner):
    """A learner for comparison, whose queries are answered without protection."""

    baseline: ClassVar[bool] = True
    _classifies: ClassVar[bool] = True  #: Whether it predicts classes

    def published(self) -> Policy:
        """Return a policy with all queries unprotected."""
        guards = {query.kind: (Guard.of("open"),) for query in self.queries}
        return Policy(guards, name="published")

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """Raise PolicyError: there is no private mode."""
        raise PolicyError(
            f"{type(self).__name__} is a baseline, and has no private policy; use published(), in a "
            'study base = "published"'
        )

    def _n_classes(self, schema: Schema) -> int:
        return class_count(schema) if self._classifies else 0

    def _outputs(self, X: Rows, client: Any) -> np.ndarray:
        """Return class probabilities or numbers, for the two classes below; shape (rows, classes or 1)."""
        raise NotImplementedError

    def _model_info(self, model: str, **more: Any) -> dict[str, Any]:
        assert self.schema_.target is not None
        return {"model": model, "target": self.schema_.target.name, **more}


class BaselineClassifier(Baseline, FederatedClassifier):
    """A baseline that predicts classes."""

    def predict_proba(self, X: Rows, *, client: Any = None) -> np.ndarray:
        """Return probabilities of the classes, shape (rows, classes); ``Local...`` accept a client per row."""
        return self._outputs(X, client)


class BaselineRegressor(Baseline, FederatedRegressor):
    """A baseline that predicts a number."""

    _classifies: ClassVar[bool] = False

    def predict(self, X: Rows, *, client: Any = None) -> np.ndarray:
        """Return predictions, shape (rows,); arguments as for :meth:`BaselineClassifier.predict_proba`."""
        return self._outputs(X, client)[:, 0]


class BinaryBaseline(BaselineClassifier):
    """A baseline for a binary target."""

    binary: ClassVar[bool] = True

    def _outputs(self, X: Rows, client: Any) -> np.ndarray:
        second = self._second(self._encode(X, client))
        return np.column_stack([1 - second, second])

    @abstractmethod
    def _second(self, X: np.ndarray) -> np.ndarray:
        """Return the probability of the second class for encoded rows, shape (rows,)."""


class LinearBaseline(BinaryBaseline):
    """A logistic regression on the encoded features."""

    called: ClassVar[str]  #: Name of the model in texts
    weights_: np.ndarray  #: Intercept, then one coefficient per feature; set by ``fit``

    def decision_function(self, X: Rows, *, client: Any = None) -> np.ndarray:
        """Return log-odds of the second class, shape (rows,)."""
        return self._log_odds(self._encode(X, client))

    def _log_odds(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.weights_[0] + X @ self.weights_[1:])

    def _second(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(expit(self._log_odds(X)))

    def readable(self) -> dict[str, Any]:
        """Return intercept and coefficients."""
        linear = dict(zip(self.schema_.names, self.weights_[1:].tolist(), strict=True))
        intercept = float(self.weights_[0])
        return self._model_info(self.called, link="logit", intercept=intercept, linear=linear)


def once(*queries: Query) -> Sequence[Planned]:
    """Return a plan that sends each query once."""
    return [Planned(query, 1) for query in queries]
