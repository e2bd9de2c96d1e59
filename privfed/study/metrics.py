"""Utility on held-out records: the experimenter's yardstick, never a release.

In a real federation such a score would be a query like any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn import metrics
from sklearn.base import ClassifierMixin

from privfed.learners.base import FederatedLearner
from privfed.schema import Column, Schema


def measure(
    model: FederatedLearner, train: pd.DataFrame, test: pd.DataFrame, schema: Schema
) -> dict[str, Any]:
    """Score a fitted model on held-out records, beside the best constant answer.

    Returns:
        ``measure`` (the headline's name), ``better`` (``"lower"`` or ``"higher"``), ``value``,
        ``baseline`` (the same for a constant answer), ``scores`` and ``held_out``.
    """
    target = schema.target
    if target is None:
        return {"held_out": len(test)}
    names = list(schema.names)
    predicted = np.asarray(model.predict(test[names]))
    if target.numeric and not isinstance(model, ClassifierMixin):
        scored = _numbers(predicted, train[target.name], test[target.name])
    else:
        scored = _classes(model, predicted, train, test, schema)
    return {**scored, "held_out": len(test)}


def _numbers(predicted: np.ndarray, known: pd.Series, wanted: pd.Series) -> dict[str, Any]:
    constant = np.full(len(wanted), known.mean())
    return {
        "measure": "root mean squared error",
        "better": "lower",
        "value": _rmse(wanted, predicted),
        "baseline": _rmse(wanted, constant),
        "scores": {
            "mean absolute error": float(metrics.mean_absolute_error(wanted, predicted)),
            "R squared": float(metrics.r2_score(wanted, predicted)),
        },
    }


def _classes(
    model: FederatedLearner,
    predicted: np.ndarray,
    train: pd.DataFrame,
    test: pd.DataFrame,
    schema: Schema,
) -> dict[str, Any]:
    assert schema.target is not None
    column = _as_category(schema.target)
    wanted, known = (_codes(part[column.name], column) for part in (test, train))
    most = np.bincount(known).argmax()
    scored = {
        "measure": "accuracy",
        "better": "higher",
        "value": float(np.mean(_codes(predicted, column) == wanted)),
        "baseline": float(np.mean(wanted == most)),
        "scores": {},
    }
    if len(column.categories) == 2 and hasattr(model, "predict_proba") and len(set(wanted)) == 2:
        chances = np.asarray(model.predict_proba(test[list(schema.names)]))[:, 1]
        scored["scores"] = {"area under the curve": float(metrics.roc_auc_score(wanted, chances))}
    return scored


def _as_category(target: Column) -> Column:
    """A number from 0 to 1 that a classifier predicts has two classes."""
    return target if not target.numeric else Column(target.name, "category", categories=("0", "1"))


def _codes(values: Any, column: Column) -> np.ndarray:
    """Codes of class labels; predictions may be labels or codes already."""
    labels = [_label(value) for value in np.asarray(values).ravel()]
    places = {label: code for code, label in enumerate(column.categories)}
    if all(label in places for label in labels):
        return np.array([places[label] for label in labels])
    return np.array([int(float(label)) for label in labels])


def _label(value: Any) -> str:
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _rmse(wanted: pd.Series, predicted: np.ndarray) -> float:
    return float(np.sqrt(metrics.mean_squared_error(wanted, predicted)))
