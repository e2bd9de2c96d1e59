"""A client's records in the tree's coordinates, and sums over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privfed.learners.fuzzy_tree.fuzzy import (
    LEAST,
    Memberships,
    Pairs,
    Peaks,
    activations,
    blocks,
    pieces,
    to_unit,
)
from privfed.questions.cells import Path
from privfed.questions.part import GRID, on_grid
from privfed.questions.query import View


@dataclass(frozen=True, eq=False)
class Fuzzified:
    """A client's records in the tree's coordinates; scaled features are recomputed to save memory."""

    x: np.ndarray  #: encoded features, shape (records, features)
    scale: tuple[np.ndarray, np.ndarray]  #: lower and upper ends of each feature's [0, 1]
    target: np.ndarray  #: in [-1/2, 1/2], shape (records,)
    memberships: Memberships  #: memberships of the features' values in the sets

    @classmethod
    def from_view(
        cls,
        view: View,
        sets: int | Sequence[int],
        scale: tuple[np.ndarray, np.ndarray],
        target: tuple[float, ...] = (),
        peaks: Sequence[Peaks] = (),
    ) -> Fuzzified:
        """Scale features to [0, 1] and the target to [-1/2, 1/2], and compute memberships in uniform sets or in those with given peaks."""
        assert view.schema.target is not None
        low, high = target or view.schema.target.bounds
        centred = np.clip((view.table.target - low) / (high - low), 0.0, 1.0) - 0.5
        X = view.table.x
        below, rest = np.empty(X.shape, np.uint8), np.empty(X.shape)
        for piece in pieces(*X.shape):
            unit = to_unit(X[piece], *scale)
            block = (
                Memberships.from_peaks(unit, peaks) if peaks else Memberships.from_unit(unit, sets)
            )
            below[piece], rest[piece] = block.below, block.rest
        return cls(X, scale, centred, Memberships(below, rest))

    def unit(self, rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return features of some records scaled to [0, 1]."""
        return to_unit(self.x[rows], *self.scale)

    def design(self, features: Sequence[int], rows: np.ndarray | slice = slice(None)) -> np.ndarray:
        """Return a leading 1 and some features scaled to [-1/2, 1/2], shape (records, 1 + features)."""
        chosen = self.unit(rows)[:, list(features)]
        return np.column_stack([np.ones(len(chosen)), chosen - 0.5])

    def weights(self, nodes: Sequence[Path]) -> np.ndarray:
        """Return every record's activation of every node, shape (records, nodes)."""
        weights = np.zeros((len(self.target), len(nodes)))
        for number, node in enumerate(activations(self.memberships, nodes)):
            weights[node.rows, number] = node.weight
        return weights


def level_sums(
    prepared: Fuzzified, nodes: Sequence[Path], features: Sequence[int] = (), sets: int = 1
) -> dict[str, np.ndarray]:
    """Return sums by (node, feature, set), zero for used features, and by node, computed in pieces.

    By node also the records, and the strongly activating ones (w >= 0.5^depth). A piece's sums are below 2^53, so that
    floats are exact; those of all records may not be.
    """
    width, columns = len(features), np.array(features, dtype=np.int64)
    size = len(nodes) * width * sets
    cells, sums = np.zeros((4, size), np.int64), np.zeros((5, len(nodes)), np.int64)
    strong = np.array([0.5 ** len(path) for path in nodes])
    for pairs in Pairs.of(prepared.memberships, nodes, width):
        target, weight = prepared.target[pairs.row], pairs.weight
        active = weight > 0, weight >= strong[pairs.node]
        for total, values in zip(sums, (*_moments(weight, target), *active), strict=True):
            total += np.bincount(pairs.node, values, len(nodes)).astype(np.int64)
        for key, degree in pairs.cells(prepared.memberships, columns, sets):
            values = (*_moments(degree, target[:, None]), degree >= LEAST)
            for total, terms in zip(cells, values, strict=True):
                total += np.bincount(key.ravel(), terms.ravel(), size).astype(np.int64)
    shaped = cells.reshape(4, len(nodes), width, sets)
    for number, path in enumerate(nodes):
        used = {feature for feature, _ in path}
        shaped[:, number, [index for index, f in enumerate(features) if f in used]] = 0
    by_node = dict(zip(("weights", "linear", "squares", "counts", "strong"), sums, strict=True))
    return {
        **dict(zip(("weights", "linear", "squares", "counts"), shaped, strict=True)),
        **{f"node_{name}": total for name, total in by_node.items()},
    }


def equations(
    prepared: Fuzzified, features: Sequence[int], leaves: Sequence[Path]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the leaves' normal equations in grid units, shapes (leaves, width, width) and (leaves, width)."""
    width = len(features) + 1
    rows, columns = np.triu_indices(width)
    upper = np.zeros((len(leaves), len(rows)), np.int64)  # as in level_sums
    moment = np.zeros((len(leaves), width), np.int64)
    for _, active in blocks(prepared.memberships, leaves):
        for number, leaf in enumerate(active):
            for piece in pieces(len(leaf.rows), len(rows)):
                X, target = prepared.design(features, leaf.rows[piece]), prepared.target
                weighted = leaf.weight[piece, None] * X
                squares = on_grid(weighted[:, rows] * X[:, columns]).sum(axis=0)
                along = on_grid(weighted * target[leaf.rows[piece], None]).sum(axis=0)
                upper[number] += squares.astype(np.int64)
                moment[number] += along.astype(np.int64)
    gram = np.zeros((len(leaves), width, width), np.int64)
    gram[:, rows, columns] = gram[:, columns, rows] = upper
    return gram, moment


def cell_terms(
    prepared: Fuzzified, nodes: Sequence[Path], features: Sequence[int], sets: int
) -> dict[str, np.ndarray]:
    """Return contributions by (record, node, feature, set), zero for used features."""
    below = prepared.memberships.below[:, list(features), None]
    rest = prepared.memberships.rest[:, list(features), None]
    index = np.arange(sets)
    degrees = np.where(below == index, 1 - rest, np.where(below + 1 == index, rest, 0.0))
    used = [{feature for feature, _ in path} for path in nodes]
    open_ = np.array([[feature not in taken for feature in features] for taken in used])
    inside = prepared.weights(nodes)[:, :, None, None] * degrees[:, None] * open_[..., None]
    target = prepared.target[:, None, None, None]
    names = ("weights", "linear", "squares")
    return {**dict(zip(names, _moments(inside, target), strict=True)), "counts": inside >= LEAST}


def node_terms(prepared: Fuzzified, nodes: Sequence[Path]) -> dict[str, np.ndarray]:
    """Return contributions by (record, node)."""
    weights = prepared.weights(nodes)
    strong = weights >= [0.5 ** len(path) for path in nodes]
    names = ("node_weights", "node_linear", "node_squares")
    return {
        **dict(zip(names, _moments(weights, prepared.target[:, None]), strict=True)),
        "node_counts": weights > 0,
        "node_strong": strong & (weights > 0),
    }


def equation_terms(
    design: np.ndarray, target: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return normal equations by (record, leaf, row, column), and right sides by (record, leaf, row)."""
    weighted = weights[..., None] * design[:, None]
    rows, columns = np.triu_indices(design.shape[1])
    gram = np.zeros((*weighted.shape, design.shape[1]))
    gram[..., rows, columns] = on_grid(weighted[..., rows] * design[:, None, columns])
    gram[..., columns, rows] = gram[..., rows, columns]
    return gram, on_grid(weighted * target[:, None, None])


def _moments(weights: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return w, y w and y^2 w, truncated to the grid."""
    return on_grid(weights), on_grid(weights * target), on_grid(weights * target**2)


# --- Check&Nullify: which cells and nodes of one client would reveal a record

_UNIT = int(1 / GRID)
MIN_SHOWN = 5  #: Minimum records of a cell released by the strict form: from three, records follow


def few(counts: np.ndarray) -> np.ndarray:
    """Return which cells are too small for the strict form."""
    return np.asarray((counts > 0) & (counts < MIN_SHOWN))


def revealing(
    weights: np.ndarray, counts: np.ndarray, root: Sequence[bool], strict: bool
) -> np.ndarray:
    """Apply the paper's Check&Nullify (Algorithm 1) to cells of shape (node, feature, set).

    (i) two records or fewer; (ii) a set whose neighbours are both empty: all its records have one
    value (at a border, the one neighbour); (iii) at the root, weights equal to the count: each
    membership is 1. The strict form does not hide empty cells, which reveal no record.
    """
    filled = weights > 0
    padded = np.pad(filled, ((0, 0), (0, 0), (1, 1)))
    alone = filled & ~padded[:, :, :-2] & ~padded[:, :, 2:]
    whole = (weights == counts * _UNIT) & np.asarray(root, dtype=bool)[:, None, None]
    if strict:
        return np.asarray(few(counts) | alone | (whole & filled))
    return np.asarray((counts <= 2) | alone | whole)


@dataclass(frozen=True, eq=False)
class ComplementarySuppression:
    """Cells, nodes and equations from which a revealing cell could be computed by subtraction."""

    nodes: np.ndarray  #: fully suppressed nodes, shape (nodes,)
    features: np.ndarray  #: features whose cells a node withholds, shape (nodes, features)
    leaves: np.ndarray  #: nodes whose normal equations are withheld, shape (nodes,)


def suppression(
    memberships: Memberships, nodes: Sequence[Path], sets: int
) -> ComplementarySuppression:
    """Return the complementary suppression of the revealing cells of a client's records.

    A node's cells of one feature sum to the node's total, and those of a split's branches to the split node's own
    cells. So if a feature reveals at one branch, its cells are withheld at all branches of that split and below them (a
    table with known margins and two unknown rows or more). If a node then splits on a feature whose cells it withholds,
    its branches and all below them are suppressed.

    A leaf's equations include the feature's mean: with the leaf's total it reveals two cells if all others are empty.
    So a leaf that withholds a feature with at most two nonempty sets withholds its equations.
    """
    revealed, filled = _reveals(memberships, nodes, sets)
    root = NodeSuppression(silent=False, withheld=revealed[()], filled=filled[()])
    known: dict[Path, NodeSuppression] = {(): root}
    for path in nodes:
        for step, (feature, _) in enumerate(path):
            above = known[path[:step]]
            branches: list[Path] = [(*path[:step], (feature, branch)) for branch in range(sets)]
            if branches[0] in known:
                continue
            withheld = above.withheld | np.any([revealed[branch] for branch in branches], axis=0)
            suppressed = above.silent or bool(above.withheld[feature])
            for branch in branches:
                known[branch] = NodeSuppression(suppressed, withheld, filled[branch])
    chosen = [known[path] for path in nodes]
    silent = np.array([node.silent for node in chosen])
    features = np.array([node.withheld for node in chosen])
    flat = np.array([(node.withheld & (node.filled <= 2)).any() for node in chosen])
    return ComplementarySuppression(silent, features | silent[:, None], silent | flat)


@dataclass(frozen=True, eq=False)
class NodeSuppression:
    """One node: whether it is suppressed, its withheld features, and their numbers of nonempty sets."""

    silent: bool
    withheld: np.ndarray
    filled: np.ndarray


def _reveals(
    memberships: Memberships, nodes: Sequence[Path], sets: int
) -> tuple[dict[Path, np.ndarray], dict[Path, np.ndarray]]:
    """Return revealing unused features, and numbers of nonempty sets, by node, ancestor and their branches."""
    splits = {(path[:k], path[k][0]) for path in nodes for k in range(len(path))}
    branches: list[Path] = [(*node, (feature, s)) for node, feature in splits for s in range(sets)]
    paths: list[Path] = [(), *sorted(branches)]
    width = memberships.below.shape[1]
    weights, counts = np.zeros((2, len(paths) * width * sets))
    for pairs in Pairs.of(memberships, paths, width):
        for key, degree in pairs.cells(memberships, np.arange(width), sets):
            weights += np.bincount(key.ravel(), on_grid(degree).ravel(), len(weights))
            counts += np.bincount(key.ravel(), (degree > 0).ravel(), len(counts))
    weights, counts = (array.reshape(len(paths), width, sets) for array in (weights, counts))
    root = [not path for path in paths]
    revealed = np.asarray(revealing(weights, counts, root, strict=True).any(axis=2))
    for path, features in zip(paths, revealed, strict=True):
        features[[feature for feature, _ in path]] = False
    filled = (counts > 0).sum(axis=2)
    return dict(zip(paths, revealed, strict=True)), dict(zip(paths, filled, strict=True))
