"""Check&Nullify: which cells and nodes of one client would give a record away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privfed.learners.fuzzy_tree.fuzzy import Activation, Memberships, activations
from privfed.questions.cells import Path
from privfed.questions.part import GRID, on_grid

_UNIT = int(1 / GRID)


#: Fewest records of a cell that the strict form lets out: of three, records follow without any list.
MIN_SHOWN = 5


def few(counts: np.ndarray) -> np.ndarray:
    """Cells that the strict form withholds for their size."""
    return np.asarray((counts > 0) & (counts < MIN_SHOWN))


def revealing(
    weights: np.ndarray, counts: np.ndarray, root: Sequence[bool], strict: bool
) -> np.ndarray:
    """The paper's Check&Nullify (Algorithm 1) on cells of shape (node, feature, set).

    (i) two records or fewer; (ii) a set whose neighbours are both empty: all its records share one
    value (at a border, the one neighbour); (iii) at the root, weights equal to the count: each
    membership is 1. Strictly, an empty cell reveals no record and need not be hidden.
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
    """Cells, nodes and equations by which a revealing cell could be subtracted."""

    nodes: np.ndarray  #: nodes that say nothing at all, shape (nodes,)
    features: np.ndarray  #: features whose cells a node withholds, shape (nodes, features)
    leaves: np.ndarray  #: nodes whose normal equations are withheld, shape (nodes,)


def silence(memberships: Memberships, nodes: Sequence[Path], sets: int) -> ComplementarySuppression:
    """Close the revealing cells under subtraction, for a client's records.

    A node's cells of one feature sum to the node's total, and those of the branches of a split sum to
    the split node's own cells. So where a feature reveals at one branch, its cells are withheld at
    all branches of that split and everywhere below them (what is left is a table with known margins
    and at least two unknown rows). If a node then splits on a feature whose cells it withholds, its
    branches and all below them are suppressed.

    A leaf's equations hold the feature's mean: with the leaf's total it gives two cells away where
    all others are empty. So a leaf that withholds a feature with no more than two filled sets
    withholds its equations.
    """
    fates = Fates(memberships, sets)
    found = [fates.of(path) for path in nodes]
    silent = np.array([fate.silent for fate in found])
    features = np.array([fate.withheld for fate in found])
    flat = np.array([(fate.withheld & (fate.filled <= 2)).any() for fate in found])
    return ComplementarySuppression(silent, features | silent[:, None], silent | flat)


@dataclass(frozen=True, eq=False)
class NodeSuppression:
    """One node: whether it is suppressed, its withheld features, and how many sets each fills."""

    silent: bool
    withheld: np.ndarray
    filled: np.ndarray


class Fates:
    """The suppression of a tree's nodes at one client, each computed once, from the root down."""

    def __init__(self, memberships: Memberships, sets: int) -> None:
        self._memberships, self._sets = memberships, sets
        self._reached: dict[Path, Activation] = {}
        revealed, filled = self._look(())
        self._known: dict[Path, NodeSuppression] = {
            (): NodeSuppression(silent=False, withheld=revealed, filled=filled)
        }

    def of(self, path: Path) -> NodeSuppression:
        """A node's, through its ancestors'."""
        if path not in self._known:
            self._split(path[:-1], path[-1][0])
        return self._known[path]

    def _split(self, parent: Path, feature: int) -> None:
        above = self.of(parent)
        branches: list[Path] = [(*parent, (feature, branch)) for branch in range(self._sets)]
        looks = [self._look(branch) for branch in branches]
        withheld = above.withheld | np.any([revealed for revealed, _ in looks], axis=0)
        silent = above.silent or bool(above.withheld[feature])
        for branch, (_, filled) in zip(branches, looks, strict=True):
            self._known[branch] = NodeSuppression(silent, withheld, filled)

    def _look(self, path: Path) -> tuple[np.ndarray, np.ndarray]:
        """Which unused features reveal at a node, and how many of their sets hold records."""
        (node,) = activations(self._memberships, [path], self._reached)
        weights, counts = feature_cells(self._memberships, node, self._sets)
        revealed = revealing(weights[None], counts[None], [not path], strict=True)[0].any(axis=1)
        revealed[[feature for feature, _ in path]] = False
        return revealed, (counts > 0).sum(axis=1)


def feature_cells(
    memberships: Memberships, node: Activation, sets: int
) -> tuple[np.ndarray, np.ndarray]:
    """Summed weights (grid units) and counts of a node's cells, shape (features, sets) each."""
    below, rest = memberships.below[node.rows], memberships.rest[node.rows]
    features = below.shape[1]
    weights, counts = np.zeros((2, features * sets))
    for key, degree in ((below, 1 - rest), (below + 1, rest)):
        flat = (np.arange(features) * sets + key).ravel()
        inside = node.weight[:, None] * degree
        weights += np.bincount(flat, on_grid(inside).ravel(), features * sets)
        counts += np.bincount(flat, (inside > 0).ravel(), features * sets)
    return weights.reshape(features, sets), counts.reshape(features, sets)
