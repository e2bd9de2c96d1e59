"""The target on a common scale, and its link function: logistic, softmax or identity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit, logsumexp, softmax

from privfed.errors import QueryError
from privfed.learners.private.grid import one_bin_each
from privfed.tables.records import nearest_class
from privfed.tables.schema import Schema

MOST_CLASSES = 64  #: Maximum classes of a target


@dataclass(frozen=True)
class Outcome:
    """How the target is encoded, and how scores map to predictions."""

    #: ``binary`` (a target in [0, 1], logistic loss), ``classes`` (a category or a few integers,
    #: softmax) or ``number`` (squared loss)
    kind: Literal["binary", "classes", "number"]
    classes: int = 1  #: number of scores of a record: 1, or the classes
    #: a number's lower limit; targets are clipped, then scaled to [-1/2, 1/2]. For classes, the
    #: first one.
    lower: float = 0.0
    upper: float = 1.0  #: a number's upper limit

    @classmethod
    def of(cls, schema: Schema, number: bool) -> Outcome:
        """Return the outcome of a schema's target; limits are the public bounds."""
        assert schema.target is not None
        low, high = schema.target.bounds
        if number:
            return cls("number", 1, low, high)
        if (low, high) == (0.0, 1.0):
            return cls("binary")
        return cls("classes", int(high - low) + 1, low, high)

    def check(self, schema: Schema) -> None:
        """Raise QueryError for a schema without target, or with classes or limits that do not fit it."""
        target = schema.target
        if target is None:
            raise QueryError("malformed", "the schema has no target")
        low, high = target.bounds
        if self.kind == "classes":
            fits = one_bin_each(target) and self.classes == high - low + 1 <= MOST_CLASSES
            fits &= self.lower == low
        else:
            fits = self.classes == 1
        if self.kind == "binary":
            fits &= (low, high) == (0.0, 1.0)
        if self.kind == "number":
            fits &= low <= self.lower < self.upper <= high
            fits &= self.upper - self.lower >= (high - low) * 2.0**-40
        if not fits:
            raise QueryError("malformed", "the outcome does not fit the schema's target")

    def targets(self, y: np.ndarray) -> np.ndarray:
        """Return encoded targets, shape (records, classes).

        Every record has exactly one class, as sensitivities assume; see :func:`.nearest_class`.
        """
        if self.kind == "classes":
            nearest = nearest_class(y, self.lower, self.classes)
            return np.asarray(nearest[:, None] == np.arange(self.classes), dtype=float)
        if self.kind == "binary":
            return np.asarray(y[:, None], dtype=float)
        middle = self.lower / 2 + self.upper / 2
        centred = np.clip(y, self.lower, self.upper) - middle
        return np.asarray(centred / (self.upper - self.lower))[:, None]

    def predictions(self, scores: np.ndarray) -> np.ndarray:
        """Return predictions for scores, shape (records, classes), bitwise independent between records."""
        if self.kind == "binary":
            return np.asarray(expit(scores))
        if self.kind == "number":
            return scores
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        total = sum(powers[:, k] for k in range(self.classes))
        return np.asarray(powers / np.asarray(total)[:, None])

    def log_odds(self, scores: np.ndarray, output: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return a class's log-odds against the rest (for one output, the score), and its derivative by each score.

        Returns:
            of shapes (records,) and (records, outputs).
        """
        if self.kind != "classes":
            return scores[:, output], np.ones((len(scores), 1))
        others = np.delete(scores, output, axis=1)
        slopes = np.insert(-softmax(others, axis=1), output, 1.0, axis=1)
        return scores[:, output] - logsumexp(others, axis=1), slopes

    @property
    def coupled(self) -> float:
        """K / (K - 1) for K classes whose scores are centred, else 1."""
        return self.classes / (self.classes - 1) if self.kind == "classes" else 1.0

    def variances(self, predictions: np.ndarray) -> np.ndarray:
        """Return the link's derivative by score: IRLS weights of the logistic loss, or 1.

        For K classes it is K / (K - 1) times the softmax's diagonal, its curvature along scores that sum to zero at
        equal probabilities.
        """
        if self.kind == "number":
            return np.ones_like(predictions)
        return np.asarray(np.maximum(self.coupled * predictions * (1 - predictions), 1e-3))

    def start(self, means: np.ndarray) -> np.ndarray:
        """Return the scores whose predictions are ``means``, shape (classes,)."""
        if self.kind == "number":
            return means
        logs = np.log(means)
        return np.asarray(logs - np.log1p(-means) if self.kind == "binary" else logs)

    def values(self, predictions: np.ndarray) -> np.ndarray:
        """Return a number's predictions in the target's unit, within its limits; shape (records,)."""
        fraction = np.clip(predictions[:, 0], -0.5, 0.5) + 0.5
        return np.asarray(self.lower + fraction * (self.upper - self.lower))


@dataclass(frozen=True, eq=False)
class ResidualBounds:
    """Clipping of residuals: target - clip(prediction, low, high), then to +-clip.

    Clipping *predictions* leaves the residual linear in the target, so that releases stay unbiased
    statistics of it; only a number's residuals are clipped themselves.
    """

    low: np.ndarray  #: minimum prediction of each score, shape (classes,)
    high: np.ndarray  #: maximum prediction
    clip: float  #: maximum residual

    def check(self, outcome: Outcome) -> None:
        """Raise QueryError for limits of wrong shape, not increasing, or outside the range of predictions."""
        minimum = -0.5 if outcome.kind == "number" else 0.0
        for limit in (self.low, self.high):
            if limit.shape != (outcome.classes,) or limit.dtype.kind != "f":
                raise QueryError("malformed", "limits are needed for every score")
        inside = (self.low >= minimum) & (self.low <= self.high) & (self.high <= minimum + 1)
        if not inside.all() or not 2.0**-20 <= self.clip <= 1:
            raise QueryError("malformed", "limits of predictions must rise between those there are")

    def residuals(self, targets: np.ndarray, predictions: np.ndarray) -> np.ndarray:
        """Return clipped residuals, shape (records, classes)."""
        residuals = targets - np.clip(predictions, self.low, self.high)
        return np.asarray(np.clip(residuals, -self.clip, self.clip))

    def norm(self, outcome: Outcome) -> float:
        """Return the maximum L2 norm D of one record's residuals.

        Binary: y in [0, 1], so |y - p| <= max(1 - low, high). A class c: its own residual is at most
        1 - low_c and another's at most high_j, so D^2 = max over c of (1 - low_c)^2 + sum over j not
        c of high_j^2. A number's residual is clipped.
        """
        if outcome.kind == "number":
            return self.clip
        same, other = (1 - self.low) ** 2, self.high**2
        if outcome.kind == "binary":
            return math.sqrt(float(max(same[0], other[0])))
        return math.sqrt(float((same + other.sum() - other).max()))
