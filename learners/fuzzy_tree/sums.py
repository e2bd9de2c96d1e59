"""A client's records in the tree's coordinates, and their sums."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from privfed.learners.fuzzy_tree.fuzzy import (
    LEAST,
    Activation,
    Memberships,
    activations,
    keep_only,
    to_unit,
)
from privfed.questions.cells import Path
from privfed.questions.part import on_grid
from privfed.questions.query import View

#: Most records, or pairs of record and node, that are worked on in one piece.
_PIECE = 16_384


@dataclass(frozen=True, eq=False)
class Fuzzified:
    """A client's records in the tree's coordinates.

    Only each value's place among the sets is kept; its unit scale is computed again where needed, so
    that a large table is not held three times.
    """

    x: np.ndarray  #: encoded features, shape (records, features)
    scale: tuple[np.ndarray, np.ndarray]  #: where each feature's [0, 1] begins and ends
    target: np.ndarray  #: in [-1/2, 1/2], shape (records,)
    memberships: Memberships  #: places of the features' values among the sets
    #: activations of the nodes that were asked about last
    known: MutableMapping[Path, Activation] = field(default_factory=dict)

    @classmethod
    def from_view(
        cls,
        view: View,
        sets: int | Sequence[int],
        scale: tuple[np.ndarray, np.ndarray],
        target: tuple[float, ...] = (),
    ) -> Fuzzified:
        """Scale features to [0, 1] and the target to [-1/2, 1/2], and place them among the sets."""
        assert view.schema.target is not None
        low, high = target or view.schema.target.bounds
        centred = np.clip((view.table.target - low) / (high - low), 0.0, 1.0) - 0.5
        x = view.table.x
        below, rest = np.empty(x.shape, np.uint8), np.empty(x.shape)
        for start in range(0, len(x), _PIECE):
            piece = slice(start, start + _PIECE)
            placed = Memberships.from_unit(to_unit(x[piece], *scale), sets)
            below[piece], rest[piece] = placed.below, placed.rest
        return cls(x, scale, centred, Memberships(below, rest))

    def unit(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Features of some records scaled to [0, 1]."""
        return to_unit(self.x[rows], *self.scale)

    def design(self, features: Sequence[int], rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """A leading 1 and some features scaled to [-1/2, 1/2], shape (records, 1 + features)."""
        chosen = self.unit(rows)[:, list(features)]
        return np.column_stack([np.ones(len(chosen)), chosen - 0.5])

    def reach(self, nodes: Sequence[Path]) -> list[Activation]:
        """Activations of the nodes; only these are kept, for their children."""
        reached = activations(self.memberships, nodes, self.known)
        keep_only(self.known, nodes)
        return reached

    def weights(self, nodes: Sequence[Path]) -> np.ndarray:
        """Every record's activation of every node, shape (records, nodes)."""
        weights = np.zeros((len(self.target), len(nodes)))
        for number, node in enumerate(self.reach(nodes)):
            weights[node.rows, number] = node.weight
        return weights


@dataclass(frozen=True, eq=False)
class Pairs:
    """All pairs of a node and a record that activates it, node after node."""

    node: np.ndarray  #: the node's number
    row: np.ndarray  #: the record's position
    weight: np.ndarray  #: how strongly it activates the node

    @classmethod
    def from_activations(cls, reached: Sequence[Activation]) -> Pairs:
        """Concatenate the nodes' activations."""
        return cls(
            np.repeat(np.arange(len(reached)), [len(one.rows) for one in reached]),
            np.concatenate([one.rows for one in reached]),
            np.concatenate([one.weight for one in reached]),
        )


def cell_sums(
    prepared: Fuzzified, nodes: Sequence[Path], features: Sequence[int], sets: int
) -> dict[str, np.ndarray]:
    """Sums by (node, feature, set), a piece of the pairs at a time; used features hold zeros."""
    pairs, wide = Pairs.from_activations(prepared.reach(nodes)), len(features)
    columns = np.array(features, dtype=np.int64)
    totals = np.zeros((4, len(nodes) * wide * sets))
    for start in range(0, len(pairs.row), _PIECE):
        piece = slice(start, start + _PIECE)
        row, weight = pairs.row[piece], pairs.weight[piece, None]
        below = prepared.memberships.below[np.ix_(row, columns)]
        rest = prepared.memberships.rest[np.ix_(row, columns)]
        key = (pairs.node[piece, None] * wide + np.arange(wide)) * sets + below
        target = prepared.target[row, None]
        _add_cells(totals, key, weight * (1 - rest), target)
        _add_cells(totals, key + 1, weight * rest, target)
    shaped = totals.reshape(4, len(nodes), wide, sets)
    for number, path in enumerate(nodes):
        used = {feature for feature, _ in path}
        shaped[:, number, [place for place, f in enumerate(features) if f in used]] = 0
    return dict(zip(("weights", "linear", "squares", "counts"), shaped, strict=True))


def _add_cells(totals: np.ndarray, key: np.ndarray, degree: np.ndarray, target: np.ndarray) -> None:
    flat = key.ravel()
    size = totals.shape[1]
    for row, values in enumerate((degree, degree * target, degree * target**2)):
        totals[row] += np.bincount(flat, on_grid(values).ravel(), size)
    totals[3] += np.bincount(flat, (degree >= LEAST).ravel(), size)


def node_sums(prepared: Fuzzified, nodes: Sequence[Path]) -> dict[str, np.ndarray]:
    """Sums by node, its records and its strongly activating ones (w >= 0.5^depth)."""
    sums = np.zeros((5, len(nodes)))
    for number, (path, node) in enumerate(zip(nodes, prepared.reach(nodes), strict=True)):
        target = prepared.target[node.rows]
        sums[0, number] = on_grid(node.weight).sum()
        sums[1, number] = on_grid(node.weight * target).sum()
        sums[2, number] = on_grid(node.weight * target**2).sum()
        sums[3, number] = len(node.rows)
        sums[4, number] = (node.weight >= 0.5 ** len(path)).sum()
    names = ("node_weights", "node_linear", "node_squares", "node_counts", "node_strong")
    return dict(zip(names, sums, strict=True))


def equations(
    prepared: Fuzzified, features: Sequence[int], leaf: Activation
) -> tuple[np.ndarray, np.ndarray]:
    """One leaf's normal equations in grid units, a piece of its records at a time."""
    width = len(features) + 1
    rows, columns = np.triu_indices(width)
    upper, moment = np.zeros(len(rows)), np.zeros(width)
    for start in range(0, len(leaf.rows), _PIECE):
        piece = slice(start, start + _PIECE)
        x = prepared.design(features, leaf.rows[piece])
        weighted = leaf.weight[piece, None] * x
        upper += on_grid(weighted[:, rows] * x[:, columns]).sum(axis=0)
        moment += on_grid(weighted * prepared.target[leaf.rows[piece], None]).sum(axis=0)
    gram = np.zeros((width, width))
    gram[rows, columns] = gram[columns, rows] = upper
    return gram, moment


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
