"""What one record adds to federated RuleFit's sums, in grid units: bins, rules, clipped gradients.

All from the public values that a question carries and the public schema. Written apart from the
learner on purpose, so that tests can hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import expit

from privfed.attacks.base import PublicColumn, PublicSchema, Table

#: Grid units of a gradient of one.
GRADIENT_UNIT = 2.0**20


def histogram(
    query: Mapping[str, Any], table: Table, schema: PublicSchema | None
) -> dict[str, np.ndarray]:
    """One count in a bin of each covariate (``rulefit.histogram``, ``rulefit.marginals``)."""
    if schema is None:
        return {}
    edges = [inner_edges(schema.features[f], query["bins"]) for f in query["features"]]
    columns = zip(edges, query["features"], strict=True)
    bins = [np.searchsorted(inner, table.x[:, f], side="right") for inner, f in columns]
    widest = max(map(len, edges)) + 1
    return {"counts": np.stack(bins, axis=1)[..., None] == np.arange(widest)}


def supports(
    query: Mapping[str, Any], table: Table, schema: PublicSchema | None
) -> dict[str, np.ndarray]:
    """One count for each rule that the record satisfies, and one in the size."""
    return {
        "counts": satisfied(query["terms"], table.x),
        "size": np.ones((len(table.x), 1)),
    }


def gradient(
    query: Mapping[str, Any], table: Table, schema: PublicSchema | None
) -> dict[str, np.ndarray]:
    """The residual, clipped to [-1, 1], times the scaled columns, clipped to the public norm."""
    if schema is None or schema.target is None or table.y is None:
        return {}
    low, high = schema.target.bounds
    unit = (table.y - low) / (high - low)
    columns = design(query["terms"], table.x) * query["scales"]
    scores = columns @ query["weights"]
    residual = unit - expit(scores) if query["logistic"] else 2 * unit - 1 - scores
    norms = np.sqrt((columns**2).sum(axis=1))
    factor = np.clip(residual, -1, 1) * query["clip"] / np.maximum(norms, query["clip"])
    return {"gradient": np.trunc(columns * factor[:, None] * GRADIENT_UNIT)}


def inner_edges(column: PublicColumn, bins: int) -> np.ndarray:
    """Where one bin of a column ends and the next begins, rising, inside the public bounds."""
    low, high = column.bounds
    if column.kind == "number":
        return np.linspace(low, high, bins + 1)[1:-1]
    whole = np.arange(np.ceil(low), np.floor(high) + 1)
    if column.kind == "category" or len(whole) <= bins:
        return whole[1:]
    return np.unique(np.round(np.linspace(low, high, bins + 1)[1:-1]))


def satisfied(terms: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    """Which records satisfy which rules, booleans, shape (records, rules).

    A rule is an interval of codes for each covariate; a value's code is the number of cut-offs that
    it has reached.
    """
    boxes = terms["boxes"]
    held = np.ones((len(x), len(boxes)), dtype=bool)
    for feature, cuts in enumerate(terms["cutoffs"]["cuts"]):
        codes = np.searchsorted(np.array(cuts), x[:, feature], side="right")[:, None]
        held &= (codes >= boxes[:, feature, 0]) & (codes < boxes[:, feature, 1])
    return held


def design(terms: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    """Intercept, rules and winsorised linear terms, shape (records, 1 + terms)."""
    cutoffs = terms["cutoffs"]
    lower, upper = cutoffs["lower"], cutoffs["upper"]
    linear = 0.4 * (np.clip(x, lower, upper) - (lower + upper) / 2) / cutoffs["scale"]
    return np.column_stack([np.ones(len(x)), satisfied(terms, x), linear[:, list(terms["linear"])]])
