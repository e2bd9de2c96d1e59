"""Scores on held-out records, with targets clipped to the schema: a simulation, not a release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn import metrics
from sklearn.base import ClassifierMixin

from privfed.errors import NobodyAnswered, PluginError
from privfed.learners.base import FederatedLearner, FederatedRegressor, PersonalLearner
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema, label

Better = Literal["lower", "higher"]

#: Every score except the headline, and whether lower or higher is better.
SCORES: Mapping[str, Better] = {
    "area under the curve": "higher",
    "log loss": "lower",
    "Brier score": "lower",
    "mean absolute error": "lower",
    "R squared": "higher",
}
#: Minimum probability in a log loss, so that it is finite.
LEAST = float(np.finfo(float).eps)
#: Minimum fraction of the target's variance beyond a model's limits for separate scores within and beyond.
MUCH = 0.1
#: Distance from a limit, in distances between the two, up to which a target counts as within them.
NEAR = 0.01
#: Note on metrics of several runs.
NOTE = (
    "a simulation: every run drew fresh noise and secrets and had ledgers of its own, of which only the first "
    "run's are kept; on real data, each run would be charged"
)


def measure(
    model: FederatedLearner,
    train: pd.DataFrame,
    test: pd.DataFrame,
    schema: Schema,
    *,
    client: str | None = None,
) -> dict[str, Any]:
    """Score a fitted model and the constant baseline on held-out records.

    The baseline is the training records' mean, most frequent class, or class frequencies. ``client``
    selects a personal model; None the shared one.

    Returns:
        ``measure`` (the headline's name), ``better`` (``"lower"`` or ``"higher"``), ``value``,
        ``baseline``, ``scores`` (others, by the names in :data:`SCORES`), ``constants`` (the baseline's),
        ``score_better``, ``held_out``, and of heavy tails ``beyond`` (see :func:`beyond`).
    """
    target = schema.target
    if target is None:
        return {"held_out": len(test)}
    X = test[list(schema.names)]
    predicted = _predict(model, X, client)
    y_train, y_true = targets(train, target), targets(test, target)
    column = _classes_of(model, target)
    if column is None:
        scored = _measure_regression(predicted, y_train, y_true)
        if isinstance(model, FederatedRegressor):
            scored |= beyond(predicted, y_train, y_true, model.prediction_limits_)
    else:
        proba = probabilities_of(model, X, client)
        classes = y_train.round().astype(int), y_true.round().astype(int)
        scored = _measure_classes(
            _codes(predicted, column), proba, *classes, len(column.categories)
        )
    better = {name: SCORES[name] for name in scored["scores"]}
    return {**scored, "score_better": better, "held_out": len(test)}


def losses(
    model: FederatedLearner, test: pd.DataFrame, schema: Schema, *, client: str | None = None
) -> pd.Series[Any]:
    """Return each held-out record's squared error, or whether its class was missed, by ``test``'s index."""
    target = schema.target
    assert target is not None
    predicted = _predict(model, test[list(schema.names)], client)
    y_true, column = targets(test, target), _classes_of(model, target)
    if column is None:
        return pd.Series((predicted - y_true) ** 2, test.index)
    return pd.Series(_codes(predicted, column) != y_true.round(), test.index)


def _predict(model: FederatedLearner, X: pd.DataFrame, client: str | None) -> np.ndarray:
    """Return one prediction per row (PluginError: another shape, or missing values)."""
    predicted = np.asarray(model.predict(X, client=client))
    if predicted.shape != (len(X),) or pd.isna(predicted).any():
        raise PluginError(f"{type(model).__name__}: predict gives no value for each row")
    return predicted


def _classes_of(model: FederatedLearner, target: Column) -> Column | None:
    """Return the classes that a model predicts, also of a 0/1 number; None if it predicts numbers."""
    if not target.numeric:
        return target
    if isinstance(model, ClassifierMixin):
        return Column(target.name, "category", categories=("0", "1"))
    return None


def measure_own(
    model: PersonalLearner, train: pd.DataFrame, test: pd.DataFrame, schema: Schema, owner: str
) -> dict[str, Any]:
    """Score each client's personal model, loaded beforehand, on its held-out records.

    Returns:
        as :func:`measure`, as means over clients weighted by held-out records, with per-client baselines;
        and ``personal``: a note, each client's ``value``, ``baseline`` and ``held_out``, and the clients
        ``without`` a model.

    Raises:
        NobodyAnswered: no client with held-out records has a model.
    """
    parts = {str(name): part for name, part in test.groupby(owner)}
    without = [name for name in parts if name not in model.homes]
    parts = {name: part for name, part in parts.items() if name in model.homes}
    if not parts:
        raise NobodyAnswered("no client keeps a model of its own to be scored by")
    results = {
        name: measure(model, train[train[owner].astype(str) == name], part, schema, client=name)
        for name, part in parts.items()
    }
    sizes = [len(part) for part in parts.values()]
    first = next(iter(results.values()))
    if "value" not in first:
        return {"held_out": sum(sizes)}

    def mean(values: list[float]) -> float:
        return float(np.average(values, weights=sizes))

    names = [
        name
        for name in first["scores"]
        if all(name in result["scores"] for result in results.values())
    ]
    keys = ("value", "baseline", "held_out")
    return {
        **first,
        **{
            key: mean([result[key] for result in results.values()]) for key in ("value", "baseline")
        },
        **{
            key: {name: mean([result[key][name] for result in results.values()]) for name in names}
            for key in ("scores", "constants")
        },
        "held_out": sum(sizes),
        "personal": {
            "note": "each client's held-out records, predicted by its own model, which never left it",
            "clients": {name: {key: score[key] for key in keys} for name, score in results.items()},
            "without": without,
        },
    }


def targets(frame: pd.DataFrame, target: Column) -> np.ndarray:
    """Return the target by the schema: category codes, or numbers within the bounds."""
    return Records.from_frame(frame, Schema((target,))).x[:, 0]


def _measure_regression(
    predicted: np.ndarray, y_train: np.ndarray, y_true: np.ndarray
) -> dict[str, Any]:
    constant = np.full(len(y_true), y_train.mean())
    return {
        "measure": "root mean squared error",
        "better": "lower",
        "value": float(metrics.root_mean_squared_error(y_true, predicted)),
        "baseline": float(metrics.root_mean_squared_error(y_true, constant)),
        "scores": _regression_scores(predicted, y_true),
        "constants": _regression_scores(constant, y_true),
    }


def beyond(
    predicted: np.ndarray, y_train: np.ndarray, y_true: np.ndarray, limits: tuple[float, float]
) -> dict[str, Any]:
    """Score separately within and beyond a model's limits, if at least :data:`MUCH` of the variance is beyond.

    Targets beyond by up to :data:`NEAR` count as within: of skewed numbers above 0 there are many below a lower
    limit just above it.

    Returns:
        empty, or ``beyond``: ``limits``, the fractions of ``records`` and of the target's ``variance`` beyond
        them, the root mean squared errors ``outside`` and ``inside``, and inside the ``constant``'s, and ``r2``.
    """
    low, high = limits
    near = NEAR * (high - low)
    inside = (y_true >= low - near) & (y_true <= high + near)
    trained = y_train[(y_train >= low - near) & (y_train <= high + near)]
    squares = (y_true - y_true.mean()) ** 2
    fraction = float(squares[~inside].sum() / max(float(squares.sum()), 1e-300))
    if fraction < MUCH or inside.sum() < 2 or not len(trained):
        return {}
    within, predictions = y_true[inside], predicted[inside]
    constant = np.full(len(within), trained.mean())
    return {
        "beyond": {
            "limits": [low, high],
            "records": float(1 - inside.mean()),
            "variance": fraction,
            "outside": float(metrics.root_mean_squared_error(y_true[~inside], predicted[~inside])),
            "inside": float(metrics.root_mean_squared_error(within, predictions)),
            "constant": float(metrics.root_mean_squared_error(within, constant)),
            "r2": float(metrics.r2_score(within, predictions)),
        }
    }


def _regression_scores(predicted: np.ndarray, y_true: np.ndarray) -> dict[str, float]:
    scored = {"mean absolute error": float(metrics.mean_absolute_error(y_true, predicted))}
    if len(y_true) > 1:  # one record has no variance
        scored["R squared"] = float(metrics.r2_score(y_true, predicted))
    return scored


def probabilities_of(
    model: FederatedLearner, X: pd.DataFrame, client: str | None
) -> np.ndarray | None:
    """Return a classifier's probabilities, or None."""
    predict = getattr(model, "predict_proba", None)
    if predict is None:
        return None
    proba = np.asarray(predict(X, client=client), dtype=float)
    if np.isnan(proba).any():
        raise PluginError(
            f"{type(model).__name__}: predict_proba gives values that are not numbers"
        )
    return proba


def _measure_classes(
    predicted: np.ndarray,
    proba: np.ndarray | None,
    y_train: np.ndarray,
    y_true: np.ndarray,
    count: int,
) -> dict[str, Any]:
    priors = np.bincount(y_train, minlength=count) / len(y_train)
    constant = np.tile(priors, (len(y_true), 1))
    comparable = proba is not None and proba.shape == constant.shape
    return {
        "measure": "accuracy",
        "better": "higher",
        "value": float(np.mean(predicted == y_true)),
        "baseline": float(np.mean(y_true == priors.argmax())),
        "scores": probability_scores(proba, y_true) if comparable and proba is not None else {},
        "constants": probability_scores(constant, y_true) if comparable else {},
    }


def probability_scores(proba: np.ndarray, y_true: np.ndarray) -> dict[str, float]:
    """Score class probabilities, shape (records, classes), against codes ``y_true``, shape (records,).

    The area under the curve is the mean over classes, one against the rest, if every class has records
    inside and outside it. The Brier score is the sum over classes (Brier 1950), for two classes half of it.
    Log loss is in nats.
    """
    truth = np.eye(proba.shape[1])[y_true]
    mixed = [code for code in range(proba.shape[1]) if 0 < truth[:, code].sum() < len(truth)]
    scored = {}
    if mixed:
        aucs = [metrics.roc_auc_score(truth[:, code], proba[:, code]) for code in mixed]
        scored["area under the curve"] = float(np.mean(aucs))
    likelihoods = np.maximum(proba[np.arange(len(y_true)), y_true], LEAST)
    squares = ((proba - truth) ** 2).sum(axis=1) / (2 if proba.shape[1] == 2 else 1)
    return {
        **scored,
        "log loss": float(-np.log(likelihoods).mean()),
        "Brier score": float(squares.mean()),
    }


def _codes(values: Any, column: Column) -> np.ndarray:
    """Return codes of class labels, which may be codes already."""
    names = [label(value) for value in np.asarray(values).ravel()]
    codes = {name: code for code, name in enumerate(column.categories)}
    if all(name in codes for name in names):
        return np.array([codes[name] for name in names])
    return np.array([int(float(name)) for name in names])


def summarise_runs(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summarise the metrics of runs that differ only by noise.

    Returns:
        ``count``; ``without`` (runs without a score); the headline's ``values``, ``mean`` and
        ``deviation`` (sample standard deviation, None for fewer than two); ``scores``, the ``mean`` and
        ``deviation`` of each other score that all runs have; and ``note``.
    """
    scored = [run for run in runs if run.get("value") is not None]
    values = [float(run["value"]) for run in scored]
    names = [
        name
        for name, value in (scored[0].get("scores", {}) if scored else {}).items()
        if isinstance(value, int | float) and all(name in run["scores"] for run in scored)
    ]
    return {
        "count": len(runs),
        "without": len(runs) - len(scored),
        "values": values,
        **_moments(values),
        "scores": {name: _moments([run["scores"][name] for run in scored]) for name in names},
        "note": NOTE,
    }


def _moments(values: Sequence[float]) -> dict[str, float | None]:
    """Return mean and standard deviation, which is 0 for values that are equal up to rounding."""
    mean = float(np.mean(values)) if values else None
    equal = len(values) > 1 and np.ptp(values) <= 1e-12 * np.abs(values).max()
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": mean, "deviation": 0.0 if equal else std}
