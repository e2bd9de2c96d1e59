"""Queries about a fitted model's errors on records that each owner holds out from training.

A query contains the model; each owner predicts the held-out records by it and releases sums, which are
charged like any others. Local models are not evaluated: they depend on the client's training records
without noise, so that their errors have no useful sensitivity.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin

from privfed.errors import QueryError
from privfed.learners.base import FederatedLearner, PersonalLearner
from privfed.learners.cohort import CohortLearner
from privfed.learners.saved import from_dict
from privfed.questions.part import Bound, Part, PartType, Sensitivity
from privfed.questions.query import Query, View
from privfed.questions.threads import one_thread
from privfed.tables.records import Records, nearest_class
from privfed.tables.schema import Column, Schema

UNIT = Fraction(1, 2**20)  #: One unit of a released sum
LEAST = 0.01  #: Minimum probability in a log loss, which bounds it by ln 100
BINS = 10  #: Equal-width bins of predicted numbers over the target's range
BIN_WEIGHT = 2  #: A record adds 1 / BIN_WEIGHT to its bin, to reduce the noise of the other sums
#: Lower edges of the bins of a class's probability, except the first bin's; including 1/2.
EDGES = (0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 0.99)
LARGEST = 2**25  #: Maximum size of a model to rebuild, bytes
EACH = 100  #: Maximum bytes of memory per byte of a model
SAVED = (
    "format",
    "learner",
    "parameters",
    "schema",
    "clients",
    "state",
)  #: Keys of a model's data that rebuild it


@dataclass(frozen=True, eq=False)
class _HeldOut(Query):
    """Base class of queries about a model's errors on held-out records.

    Each record is predicted alone, so that rounding in a matrix product does not depend on the others. A
    constant replaces a prediction that fails or is no finite number. So the query is total, with the
    memory of one prediction.
    """

    model: bytes  #: the model as JSON; empty for a constant, by which a study is priced
    held_out: ClassVar[bool] = True
    #: Attacks test answers against training records, to which these sums are unrelated.
    linear: ClassVar[bool] = False

    @classmethod
    def about(cls, model: FederatedLearner) -> Self:
        """Return the query about a fitted model (InputError: its data is not JSON-compatible)."""
        saved = model.to_dict()
        data = {key: saved[key] for key in SAVED}
        return cls(json.dumps(data, sort_keys=True, separators=(",", ":")).encode())

    @cached_property
    def _fitted_model(self) -> FederatedLearner | None:
        return from_dict(json.loads(self.model)) if self.model else None

    def memory(self, cells: int) -> int:
        """Return the maximum memory in bytes, of the rebuilt model and the answer."""
        return super().memory(cells) + EACH * len(self.model)

    def _check(self, schema: Schema) -> None:
        """Check that the model has this schema, is no local model, and predicts a record (else QueryError)."""
        try:
            if len(self.model) > LARGEST:
                raise ValueError
            fitted = self._fitted_model
            if fitted is None:
                return
            fits = fitted.schema_ == schema and not isinstance(fitted, PersonalLearner)
            if not fits or not np.isfinite(self._raw_prediction(schema.lower)).all():
                raise ValueError
        except Exception:
            reason = "a model of this schema that serves all clients"
            raise QueryError("malformed", reason) from None

    def _raw_prediction(self, row: np.ndarray) -> np.ndarray:
        """Return the model's prediction of one encoded record, shape (outputs,)."""
        raise NotImplementedError

    def _row(self, row: np.ndarray) -> Any:
        assert self._fitted_model is not None
        return Records(Schema(self._fitted_model.schema_.features), row[None, :])

    def _predict_row(self, row: np.ndarray, default: np.ndarray) -> np.ndarray:
        """Return the prediction of one record, or ``default`` of the same shape."""
        if self._fitted_model is None:
            return default
        try:
            outputs = np.asarray(self._raw_prediction(row), dtype=float)
        except Exception:
            return default
        return outputs if outputs.shape == default.shape and np.isfinite(outputs).all() else default

    def _units(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(np.trunc(values * UNIT.denominator)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class RegressionErrors(_HeldOut):
    """Sums of a regressor's errors, and of the target, over held-out records.

    In units of half the target's range, a record adds 1, |e|, e^2, t and t^2: e is the prediction minus the
    target, clipped to [-1, 1], t the target minus the middle of its bounds; and, for calibration, 1/2 and t/2
    to the prediction's bin. Products are truncated towards zero to units of 2^-20.

    Sensitivity: a record adds at most 1 to each of ``sums``, so L1 = 5 and squared L2 = 5. Replacing a record
    leaves the first unchanged, and changes |e|, e^2 and t^2, which are in [0, 1], by at most 1, and t by at most
    2: L1 = 5 and squared L2 = 7. In ``bins`` a record changes one row by 1/2 and at most 1/2: L1 = 1, squared
    L2 = 1/2. Replacing it changes two rows by as much, L1 = 2 and squared L2 = 1, or one by 0 and at most 1.
    """

    kind: ClassVar[str] = "evaluation.errors"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``sums`` of 1, |e|, e^2, t, t^2; ``bins`` of 1/2 and t/2, by the prediction's bin."""
        target = schema.target
        if (
            target is None
            or not target.numeric
            or isinstance(self._learned(schema), ClassifierMixin)
        ):
            raise QueryError("malformed", "a regressor, and a numeric target")
        return {
            "sums": _sums(("moment",), (5,), 5, 5, Bound(5, 5 + 2)),
            "bins": _sums(("bin", "moment"), (BINS, 2), 1, Fraction(1, 2), Bound(2, 1)),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Sum over records, one at a time."""
        target, total = view.schema.target, np.zeros(5, np.int64)
        bins = np.zeros((BINS, 2), np.int64)
        assert target is not None
        middle, half = middle_and_half(target)
        with one_thread():
            for row, y in zip(view.table.x, view.table.target, strict=True):
                (predicted,) = self._predict_row(row, np.array([middle]))
                error = abs(np.clip((predicted - y) / half, -1, 1))
                t = np.clip((y - middle) / half, -1, 1)
                total += self._units(np.array([1.0, error, error**2, t, t**2]))
                scaled = np.clip((predicted - middle) / half, -1, 1) + 1
                index = min(int(scaled * BINS / 2), BINS - 1)
                bins[index] += self._units(np.array([1.0, t]) / BIN_WEIGHT)
        return {"sums": total, "bins": bins}

    def _learned(self, schema: Schema) -> FederatedLearner | None:
        self._check(schema)
        return self._fitted_model

    def _raw_prediction(self, row: np.ndarray) -> np.ndarray:
        assert self._fitted_model is not None
        return np.asarray(self._fitted_model.predict(self._row(row)), dtype=float)


@dataclass(frozen=True, eq=False)
class ClassScores(_HeldOut):
    """Sums of a classifier's errors and log losses, and counts of its probabilities by class and truth.

    A record adds to ``sums`` 1, whether its most probable class is wrong, and -ln max(p, 0.01) / ln 100, with
    the probability p of its class; and for each class (of two, only for the second) 1 to one cell of
    ``scores``: by whether the record is of the class, and the bin of the class's probability.

    Sensitivity: a record's terms of ``sums`` are in [0, 1], so L1 = 3 and squared L2 = 3; in ``scores`` one
    cell of each of the C classes changes by 1: L1 = C and squared L2 = C. Replacing a record leaves the
    first sum unchanged: 2 and 2; and changes two cells of each class: 2C and 2C.
    """

    kind: ClassVar[str] = "evaluation.scores"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``sums`` of 1, errors and log losses; ``scores`` by class, truth and bin."""
        self._check(schema)
        count = classes_of(schema)
        if not isinstance(self._fitted_model, ClassifierMixin | None):
            raise QueryError("malformed", "a classifier")
        rows = 1 if count == 2 else count
        shape = (rows, 2, len(EDGES) + 1)
        return {
            "sums": _sums(("figure",), (3,), 3, 3, Bound(2, 2)),
            "scores": _sums(
                ("class", "truth", "bin"), shape, rows, rows, Bound(2 * rows, 2 * rows)
            ),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Sum over records, one at a time."""
        count = classes_of(view.schema)
        codes = [1] if count == 2 else range(count)
        sums, scores = np.zeros(3, np.int64), np.zeros((len(codes), 2, len(EDGES) + 1), np.int64)
        truth = nearest_class(view.table.target, 0.0, count)
        with one_thread():
            for row, label in zip(view.table.x, truth, strict=True):
                probabilities = self._predict_row(row, np.full(count, 1 / count))
                loss = np.clip(np.log(max(probabilities[label], LEAST)) / np.log(LEAST), 0, 1)
                sums += self._units(np.array([1.0, float(probabilities.argmax() != label), loss]))
                for row_index, code in enumerate(codes):
                    bin_index = np.searchsorted(EDGES, probabilities[code], side="right")
                    scores[row_index, int(label == code), bin_index] += UNIT.denominator
        return {"sums": sums, "scores": scores}

    def _raw_prediction(self, row: np.ndarray) -> np.ndarray:
        model: Any = self._fitted_model
        probabilities: np.ndarray = np.asarray(model.predict_proba(self._row(row)), dtype=float)[0]
        return probabilities


def question_about(model: FederatedLearner) -> type[_HeldOut] | None:
    """Return the class of queries about a learner's models; None for local models and cohorts."""
    if isinstance(model, PersonalLearner | CohortLearner):
        return None
    return ClassScores if isinstance(model, ClassifierMixin) else RegressionErrors


def classes_of(schema: Schema) -> int:
    """Return the number of the target's classes; 2 for a number from 0 to 1 (QueryError: it has none)."""
    target = schema.target
    if target is not None and not target.numeric and len(target.categories) > 1:
        return len(target.categories)
    if target is None or target.bounds != (0.0, 1.0):
        raise QueryError("malformed", "a target with classes")
    return 2


def middle_and_half(target: Column) -> tuple[float, float]:
    """Return the middle of a target's bounds, and half their distance."""
    low, high = target.bounds
    return (low + high) / 2, (high - low) / 2


def _sums(
    axes: tuple[str, ...],
    shape: tuple[int, ...],
    l1: int,
    l2_squared: int | Fraction,
    replace: Bound,
) -> Part:
    unit = UNIT.denominator
    norms = ((l1, l2_squared), (replace.l1, replace.l2_squared))
    bounds = (Bound(l1 * unit, int(squared * unit**2)) for l1, squared in norms)
    return Part(PartType.SUMS, axes, shape, Sensitivity(*bounds), UNIT)
