"""Utility on held-out records: the experimenter's yardstick, never a release.

In a real federation such a score would be a query like any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn import metrics
from sklearn.base import ClassifierMixin

from privfed.errors import NobodyAnswered
from privfed.learners.base import FederatedLearner, PersonalLearner
from privfed.tables.records import label
from privfed.tables.schema import Column, Schema


def measure(
    model: FederatedLearner,
    train: pd.DataFrame,
    test: pd.DataFrame,
    schema: Schema,
    *,
    client: str | None = None,
) -> dict[str, Any]:
    """Score a fitted model on held-out records, beside the best constant answer.

    Args:
        model: the fitted model.
        train: what it learned from; the constant answer is this table's.
        test: the held-out records.
        schema: the public data dictionary.
        client: whose own model is scored, of a personal learner; none for the public one.

    Returns:
        ``measure`` (the headline's name), ``better`` (``"lower"`` or ``"higher"``), ``value``,
        ``baseline`` (the same for a constant answer), ``scores`` and ``held_out``.
    """
    target = schema.target
    if target is None:
        return {"held_out": len(test)}
    x = test[list(schema.names)]
    predicted = np.asarray(model.predict(x, client=client))
    if target.numeric and not isinstance(model, ClassifierMixin):
        scored = _numbers(predicted, train[target.name], test[target.name])
    else:
        chances = _chances(model, x, client)
        scored = _classes((predicted, chances), train, test, schema)
    return {**scored, "held_out": len(test)}


def measure_own(
    model: PersonalLearner,
    train: pd.DataFrame,
    test: pd.DataFrame,
    schema: Schema,
    owner: str,
) -> dict[str, Any]:
    """Score each client's own model on that client's held-out records.

    Args:
        model: the fitted learner, with every client's model that is scored taken home.
        train: what the clients own.
        test: what was held out of it.
        schema: the public data dictionary.
        owner: the column that names each record's owner.

    Returns:
        as :func:`measure`, each number the mean over clients, weighted by their held-out records,
        and the constant answer each client's own; ``personal``: what was done, in words, each
        client's ``value``, ``baseline`` and ``held_out``, and which keep no model (``without``).

    Raises:
        NobodyAnswered: no client with held-out records keeps a model.
    """
    parts = {str(name): part for name, part in test.groupby(owner, sort=False)}
    without = [name for name in parts if name not in model.homes]
    parts = {name: part for name, part in parts.items() if name in model.homes}
    if not parts:
        raise NobodyAnswered("no client keeps a model of its own to be scored by")
    each = {
        name: measure(model, train[train[owner].astype(str) == name], part, schema, client=name)
        for name, part in parts.items()
    }
    sizes = [len(part) for part in parts.values()]
    first = next(iter(each.values()))
    if "value" not in first:
        return {"held_out": sum(sizes)}

    def mean(key: str) -> float:
        return float(np.average([found[key] for found in each.values()], weights=sizes))

    told = ("value", "baseline", "held_out")
    return {
        **first,
        "value": mean("value"),
        "baseline": mean("baseline"),
        "scores": {},
        "held_out": sum(sizes),
        "personal": {
            "note": "each client's held-out records, predicted by its own model, which never left it",
            "clients": {name: {key: found[key] for key in told} for name, found in each.items()},
            "without": without,
        },
    }


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


def _chances(model: FederatedLearner, x: pd.DataFrame, client: str | None) -> np.ndarray | None:
    """A classifier's probabilities; none of a model that tells none."""
    tell = getattr(model, "predict_proba", None)
    return None if tell is None else np.asarray(tell(x, client=client))


def _classes(
    told: tuple[np.ndarray, np.ndarray | None],
    train: pd.DataFrame,
    test: pd.DataFrame,
    schema: Schema,
) -> dict[str, Any]:
    predicted, chances = told
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
    if chances is not None and chances.shape[1] == 2 and len(set(wanted)) == 2:
        area = float(metrics.roc_auc_score(wanted, chances[:, 1]))
        scored["scores"] = {"area under the curve": area}
    return scored


def _as_category(target: Column) -> Column:
    """A number from 0 to 1 that a classifier predicts has two classes."""
    return target if not target.numeric else Column(target.name, "category", categories=("0", "1"))


def _codes(values: Any, column: Column) -> np.ndarray:
    """Codes of class labels; predictions may be labels or codes already."""
    names = [label(value) for value in np.asarray(values).ravel()]
    places = {name: code for code, name in enumerate(column.categories)}
    if all(name in places for name in names):
        return np.array([places[name] for name in names])
    return np.array([int(float(name)) for name in names])


def _rmse(wanted: pd.Series, predicted: np.ndarray) -> float:
    return float(np.sqrt(metrics.mean_squared_error(wanted, predicted)))
