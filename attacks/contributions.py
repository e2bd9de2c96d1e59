"""What one record adds to each released sum, by kind of release: public arithmetic, in grid units.

Written apart from the learners on purpose, so that tests can hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from privfed.attacks import rulefit
from privfed.attacks.base import PublicSchema, Table
from privfed.attacks.fuzzy import (
    ACTIVATION,
    LEAVES,
    LEVEL,
    Geometry,
    cells,
    centred_target,
    weight,
)

#: Grid units of one.
UNIT = 2.0**30

#: Gives each record's contribution to each part, shape (records, *part).
Contribution = Callable[[Mapping[str, Any], Table, PublicSchema | None], dict[str, np.ndarray]]


def histogram(
    query: Mapping[str, Any], table: Table, schema: PublicSchema | None
) -> dict[str, np.ndarray]:
    """One count in the bin of the record's value (``small.histogram``)."""
    inner = np.array(query["edges"][1:-1])
    bins = np.searchsorted(inner, table.x[:, query["feature"]], side="right")
    return {"counts": _one_hot(bins, len(inner) + 1)}


def scaling(
    query: Mapping[str, Any], table: Table, schema: PublicSchema | None
) -> dict[str, np.ndarray]:
    """One count in a bin of each feature (``fuzzy_tree.scaling``)."""
    if schema is None:
        return {}
    low, high = (np.array([c.bounds[i] for c in schema.features]) for i in range(2))
    bins = np.minimum(
        ((table.x - low) / (high - low) * query["bins"]).astype(int), query["bins"] - 1
    )
    return {"counts": _one_hot(bins, query["bins"])}


def level(
    query: Mapping[str, Any], table: Table, schema: PublicSchema | None
) -> dict[str, np.ndarray]:
    """w mu, y w mu and y^2 w mu in every cell (``fuzzy_tree.level``)."""
    target = centred_target(table, schema)
    if target is None:
        return {}
    geometry, nodes = Geometry.of(query), cells(query["nodes"])
    degrees = geometry.degrees(geometry.unit(table.x))
    w = np.stack([weight(degrees, node) for node in nodes], axis=1)
    open_ = np.array([[all(f != g for g, _ in node) for f in query["features"]] for node in nodes])
    inside = np.einsum("rn,nf,rfs->rnfs", w, open_, degrees[:, list(query["features"])])
    parts = {}
    for name, power in (("weights", 0), ("linear", 1), ("squares", 2)):
        factor = target**power
        parts[name] = np.trunc(inside * factor[:, None, None, None] * UNIT)
        parts[f"node_{name}"] = np.trunc(w * factor[:, None] * UNIT)
    return {**parts, "counts": (inside > 0).astype(float), "node_counts": (w > 0).astype(float)}


def leaves(
    query: Mapping[str, Any], table: Table, schema: PublicSchema | None
) -> dict[str, np.ndarray]:
    """w x x' and w y x in every leaf (``fuzzy_tree.leaves``)."""
    target = centred_target(table, schema)
    if target is None:
        return {}
    geometry = Geometry.of(query)
    unit = geometry.unit(table.x)
    degrees = geometry.degrees(unit)
    w = np.stack([weight(degrees, leaf) for leaf in cells(query["nodes"])], axis=1)
    row = np.column_stack([np.ones(len(unit)), unit[:, list(query["features"])] - 0.5])
    return {
        "gram": np.trunc(np.einsum("rl,ri,rj->rlij", w, row, row) * UNIT),
        "moment": np.trunc(np.einsum("rl,ri,r->rli", w, row, target) * UNIT),
    }


def activation(
    query: Mapping[str, Any], table: Table, schema: PublicSchema | None
) -> dict[str, np.ndarray]:
    """w in every leaf (``fuzzy_tree.activation``)."""
    geometry = Geometry.of(query)
    degrees = geometry.degrees(geometry.unit(table.x))
    w = np.stack([weight(degrees, leaf) for leaf in cells(query["nodes"])], axis=1)
    return {"weights": np.trunc(w * UNIT), "counts": (w > 0).astype(float)}


#: By kind of release; a plugin's own kinds may be added.
CONTRIBUTIONS: dict[str, Contribution] = {
    "small.histogram": histogram,
    "fuzzy_tree.scaling": scaling,
    LEVEL: level,
    LEAVES: leaves,
    ACTIVATION: activation,
    "rulefit.histogram": rulefit.histogram,
    "rulefit.marginals": rulefit.histogram,
    "rulefit.supports": rulefit.supports,
    "rulefit.gradient": rulefit.gradient,
}


def _one_hot(bins: np.ndarray, size: int) -> np.ndarray:
    return np.asarray(bins[..., None] == np.arange(size), dtype=float)
