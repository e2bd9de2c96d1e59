"""What single records add to the fuzzy tree's sums, one row for each, in whole grid units.

The sums of :mod:`privfed.learners.fuzzy_tree.sums` take these terms together without writing them
down; here they stand one by one, for whoever asks what one record would change.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privfed.learners.fuzzy_tree.fuzzy import LEAST
from privfed.learners.fuzzy_tree.sums import Fuzzified
from privfed.questions.cells import Path
from privfed.questions.part import on_grid


def cell_terms(
    prepared: Fuzzified, nodes: Sequence[Path], features: Sequence[int], sets: int
) -> dict[str, np.ndarray]:
    """By (record, node, feature, set); used features hold zeros."""
    below = prepared.memberships.below[:, list(features), None]
    rest = prepared.memberships.rest[:, list(features), None]
    each = np.arange(sets)
    degrees = np.where(below == each, 1 - rest, np.where(below + 1 == each, rest, 0.0))
    used = [{feature for feature, _ in path} for path in nodes]
    open_ = np.array([[feature not in own for feature in features] for own in used])
    inside = prepared.weights(nodes)[:, :, None, None] * degrees[:, None] * open_[..., None]
    target = prepared.target[:, None, None, None]
    return {**_moments("", inside, target), "counts": inside >= LEAST}


def node_terms(prepared: Fuzzified, nodes: Sequence[Path]) -> dict[str, np.ndarray]:
    """By (record, node)."""
    weights = prepared.weights(nodes)
    strong = weights >= [0.5 ** len(path) for path in nodes]
    return {
        **_moments("node_", weights, prepared.target[:, None]),
        "node_counts": weights > 0,
        "node_strong": strong & (weights > 0),
    }


def equation_terms(
    design: np.ndarray, target: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Normal equations by (record, leaf, row, column), and their right sides by (record, leaf, row)."""
    weighted = weights[..., None] * design[:, None]
    rows, columns = np.triu_indices(design.shape[1])
    gram = np.zeros((*weighted.shape, design.shape[1]))
    gram[..., rows, columns] = on_grid(weighted[..., rows] * design[:, None, columns])
    gram[..., columns, rows] = gram[..., rows, columns]
    return gram, on_grid(weighted * target[:, None, None])


def _moments(prefix: str, weights: np.ndarray, target: np.ndarray) -> dict[str, np.ndarray]:
    """w, y w and y^2 w, floored to the grid."""
    return {
        f"{prefix}weights": on_grid(weights),
        f"{prefix}linear": on_grid(weights * target),
        f"{prefix}squares": on_grid(weights * target**2),
    }
