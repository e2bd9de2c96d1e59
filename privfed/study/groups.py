"""Error by group: a model's headline score within each value of a public column, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from privfed.attacks.roc import clopper_pearson
from privfed.errors import StudyError, unknown
from privfed.learners.base import FederatedLearner, PersonalLearner
from privfed.study.metrics import losses
from privfed.tables.records import match_category
from privfed.tables.schema import Column, Schema, label

TAIL = 0.025  #: Probability beyond each end of an interval


def check_groups(names: Sequence[str], schema: Schema, owner: str) -> None:
    """Check that groups are defined by public categories or the owner (StudyError: by another column)."""
    known = [*(column.name for column in schema.columns if not column.numeric), owner]
    for name in names:
        if name not in known:
            raise StudyError(f"[data]: groups: {unknown('column of categories', name, known)}")


def by_group(
    model: FederatedLearner, test: pd.DataFrame, schema: Schema, names: Sequence[str], owner: str
) -> dict[str, list[dict[str, Any]]]:
    """Score a model on each group of held-out records; a personal learner by each client's own model.

    Returns:
        for each column, for each of its categories or "missing" (what ``fill`` replaces): ``group``, ``held_out``, ``value`` (root
        mean squared error, or accuracy), and its interval ``low`` and ``high``, None for a single
        number.
    """
    if schema.target is None:
        return {}
    parts: list[tuple[str | None, pd.DataFrame]] = [(None, test)]
    if isinstance(model, PersonalLearner):
        by_client = ((str(name), part) for name, part in test.groupby(owner, sort=False))
        parts = [(name, part) for name, part in by_client if name in model.homes]
    columns = {column.name: column for column in schema.columns}
    loss = pd.concat([losses(model, part, schema, client=name) for name, part in parts])
    return {
        name: [
            {"group": value, **interval(part.to_numpy())}
            for value, part in loss.groupby(_labels(test.loc[loss.index, name], columns.get(name)))
        ]
        for name in names
    }


def _labels(values: pd.Series, column: Column | None) -> pd.Series:
    """Return the public categories of a column's values, or labels of what is not in the schema."""
    labels = values.map(label, na_action="ignore").astype(object)
    if column is not None:
        public = [match_category(text, column.categories) for text in labels.dropna()]
        labels[labels.notna()] = public
        labels = labels.where(labels.isin(column.categories))
    return labels.fillna("missing")


def interval(loss: np.ndarray) -> dict[str, Any]:
    """Return a group's score with its interval: accuracy of Booleans, root mean of squared errors.

    Accuracy by Clopper and Pearson (1934); a mean squared error by Student's t on its logarithm,
    which covers normal errors 92 times in 100 at 20 records, and 94 times at 40.
    """
    number, mean = len(loss), float(loss.mean())
    if loss.dtype == bool:
        low, high = clopper_pearson(number - loss.sum(), number, TAIL)
        return {"held_out": number, "value": 1 - mean, "low": float(low), "high": float(high)}
    result: dict[str, Any] = {"held_out": number, "value": mean**0.5, "low": None, "high": None}
    if number > 1:
        width = stats.t.ppf(1 - TAIL, number - 1) * loss.std(ddof=1) / number**0.5
        factor = float(np.exp(width / mean / 2)) if mean else 1.0
        result |= {"low": result["value"] / factor, "high": result["value"] * factor}
    return result
