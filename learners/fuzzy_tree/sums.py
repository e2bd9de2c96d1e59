"""A client's side of the fuzzy tree: its records in the tree's coordinates, and their sums."""

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

#: Most pairs of record and node that are summed in one piece.
_PIECE = 16_384


@dataclass(frozen=True, eq=False)
class Fuzzified:
    """A client's records in the tree's own coordinates."""

    unit: np.ndarray
    target: np.ndarray
    memberships: Memberships
    known: MutableMapping[Path, Activation] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        view: View,
        sets: int | Sequence[int],
        scale: tuple[np.ndarray, np.ndarray],
        target: tuple[float, ...] = (),
    ) -> Fuzzified:
        """Scale features to [0, 1] and the target to [-1/2, 1/2], and place them among the sets."""
        assert view.schema.target is not None
        low, high = target or view.schema.target.bounds
        unit = to_unit(view.table.x, *scale)
        centred = np.clip((view.table.target - low) / (high - low), 0.0, 1.0) - 0.5
        return cls(unit, centred, Memberships.of(unit, sets))

    def reach(self, nodes: Sequence[Path]) -> list[Activation]:
        """Activations of the nodes; only these are remembered, for their children."""
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
    """All pairs of a node and a record that activates it, node after node.

    Args:
        node: the node's number.
        row: the record's position.
        weight: how strongly it activates the node.
    """

    node: np.ndarray
    row: np.ndarray
    weight: np.ndarray

    @classmethod
    def of(cls, reached: Sequence[Activation]) -> Pairs:
        """Lay the nodes' activations end to end."""
        return cls(
            np.repeat(np.arange(len(reached)), [len(one.rows) for one in reached]),
            np.concatenate([one.rows for one in reached]),
            np.concatenate([one.weight for one in reached]),
        )


def cell_sums(
    prepared: Fuzzified, nodes: Sequence[Path], features: Sequence[int], sets: int
) -> dict[str, np.ndarray]:
    """Sums by (node, feature, set), a piece of the pairs at a time; used features hold zeros."""
    pairs, wide = Pairs.of(prepared.reach(nodes)), len(features)
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
    design: np.ndarray, target: np.ndarray, leaf: Activation
) -> tuple[np.ndarray, np.ndarray]:
    """One leaf's normal equations in whole grid units."""
    x, weight = design[leaf.rows], leaf.weight[:, None]
    weighted = weight * x
    width = x.shape[1]
    rows, columns = np.triu_indices(width)
    gram = np.zeros((width, width))
    gram[rows, columns] = on_grid(weighted[:, rows] * x[:, columns]).sum(axis=0)
    gram[columns, rows] = gram[rows, columns]
    return gram, on_grid(weighted * target[leaf.rows, None]).sum(axis=0)
