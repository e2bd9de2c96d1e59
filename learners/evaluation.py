"""Questions about a fitted model's errors on records that each owner keeps from training.

A question carries the model; each owner predicts her held-out records by it and releases sums, charged
as any other. A model of which each client has its own is not asked about: it follows from her
training records in ways that no noise covered, so its errors have no useful sensitivity.
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
LEAST = 0.01  #: Least probability in a log loss, which bounds it by ln 100
BINS = 10  #: Equal bins of a predicted number over the target's range
BIN_WEIGHT = (
    2  #: A record counts for one in so many in its bin: the other sums' noise is less for it
)
#: Where the bins of a class's probability begin, but for the first; 1/2 is among them.
EDGES = (0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 0.99)
LARGEST = 2**25  #: Largest model that is rebuilt, in bytes
EACH = 100  #: Bytes of memory, at most, for each of a model's
SAVED = (
    "format",
    "learner",
    "parameters",
    "schema",
    "clients",
    "state",
)  #: What a model is made of


@dataclass(frozen=True, eq=False)
class _HeldOut(Query):
    """A question about a model, put to held-out records.

    Each record is predicted by itself, so that rounding in a matrix product never depends on the others;
    where a prediction fails or is no number, a constant stands in. So it is total, and takes the memory
    of one prediction.
    """

    model: bytes  #: the model as JSON; empty for a constant, by which a study is priced
    held_out: ClassVar[bool] = True
    #: Attacks hold answers against the training records, of which this says nothing.
    linear: ClassVar[bool] = False

    @classmethod
    def about(cls, model: FederatedLearner) -> Self:
        """The question about a fitted model; InputError if it is no plain data."""
        saved = model.to_dict()
        data = {key: saved[key] for key in SAVED}
        return cls(json.dumps(data, sort_keys=True, separators=(",", ":")).encode())

    @cached_property
    def _fitted_model(self) -> FederatedLearner | None:
        return from_dict(json.loads(self.model)) if self.model else None

    def memory(self, cells: int) -> int:
        """What the rebuilt model takes, and the answer."""
        return super().memory(cells) + EACH * len(self.model)

    def _check(self, schema: Schema) -> None:
        """QueryError unless the model reads this schema, serves all clients and predicts a record."""
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
        """The model's own prediction of one encoded record, shape (outputs,)."""
        raise NotImplementedError

    def _row(self, row: np.ndarray) -> Any:
        assert self._fitted_model is not None
        return Records(Schema(self._fitted_model.schema_.features), row[None, :])

    def _predict_row(self, row: np.ndarray, default: np.ndarray) -> np.ndarray:
        """The prediction of one record, or a constant of the same shape."""
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

    In units of half the target's range h, a record adds 1, |e|, e^2, t and t^2: e is the prediction less
    the target, held to [-1, 1], t the target less the middle of its bounds; and, for calibration, 1/2 and
    t/2 to the prediction's bin. Products are truncated towards zero to units of 2^-20.

    Sensitivity: of ``sums`` every number is at most 1, so L1 = 5 and squared L2 = 5. Replacing a record leaves
    the first, moves |e|, e^2 and t^2, which lie in [0, 1], by at most 1 and t by at most 2: L1 = 5 and
    squared L2 = 7. Of ``bins`` a record moves one row by 1/2 and at most 1/2: L1 = 1, squared L2 = 1/2.
    Replacing it moves two rows so, L1 = 2 and squared L2 = 1, or one by 0 and at most 1.
    """

    kind: ClassVar[str] = "evaluation.errors"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``sums`` of 1, |e|, e^2, t, t^2; ``bins`` of the prediction, of 1/2 and t/2."""
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
        """Add up record by record."""
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
    """A classifier's errors and log loss, and its probabilities by class and truth, over held-out records.

    A record adds to ``sums`` 1, whether its likeliest class is wrong, and -ln max(p, 0.01) / ln 100, p
    being the probability of its class; and for each class (of two, the second alone) 1 to one cell of
    ``scores``: by whether it is of the class, and the bin of the class's probability.

    Sensitivity: each number of ``sums`` lies in [0, 1], so L1 = 3 and squared L2 = 3; of ``scores`` one
    cell for each of the C classes moves by 1: L1 = C and squared L2 = C. Replacing a record leaves the
    first sum: 2 and 2; and moves two cells of each class: 2C and 2C.
    """

    kind: ClassVar[str] = "evaluation.scores"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``sums`` of 1, errors and log losses; ``scores`` by class, truth and bin."""
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
        """Add up record by record."""
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
    """The kind of question that a learner's models are asked about by, or None: see the module."""
    if isinstance(model, PersonalLearner | CohortLearner):
        return None
    return ClassScores if isinstance(model, ClassifierMixin) else RegressionErrors


def classes_of(schema: Schema) -> int:
    """The number of a target's classes; 0 and 1 of a number. QueryError if it has none."""
    target = schema.target
    if target is not None and not target.numeric and len(target.categories) > 1:
        return len(target.categories)
    if target is None or target.bounds != (0.0, 1.0):
        raise QueryError("malformed", "a target with classes")
    return 2


def middle_and_half(target: Column) -> tuple[float, float]:
    """The middle of a target's bounds, and half their distance."""
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
