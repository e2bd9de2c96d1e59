"""Check&Nullify: which cells and nodes of one client would give a record away."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privfed.learners.fuzzy_tree.fuzzy import Memberships, Pairs
from privfed.questions.cells import Path
from privfed.questions.part import GRID, on_grid

_UNIT = int(1 / GRID)
MIN_SHOWN = 5  #: Fewest records of a cell that the strict form lets out: of three, records follow


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

    A node's cells of one feature sum to the node's total, and those of the branches of a split to the split
    node's own cells. So if a feature reveals at one branch, its cells are withheld at all branches of that split
    and below them (a table with known margins and two unknown rows or more). If a node then splits on a
    feature whose cells it withholds, its branches and all below them are suppressed.

    A leaf's equations hold the feature's mean: with the leaf's total it gives two cells away if all others
    are empty. So a leaf that withholds a feature with at most two filled sets withholds its equations.
    """
    revealed, filled = _looks(memberships, nodes, sets)
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
    """One node: whether it is suppressed, its withheld features, and how many sets each fills."""

    silent: bool
    withheld: np.ndarray
    filled: np.ndarray


def _looks(
    memberships: Memberships, nodes: Sequence[Path], sets: int
) -> tuple[dict[Path, np.ndarray], dict[Path, np.ndarray]]:
    """By node, its ancestors and all their branches: unused features that reveal, and how many sets hold records."""
    splits = {(path[:k], path[k][0]) for path in nodes for k in range(len(path))}
    below: list[Path] = [(*node, (feature, own)) for node, feature in splits for own in range(sets)]
    paths: list[Path] = [(), *sorted(below)]
    wide = memberships.below.shape[1]
    weights, counts = np.zeros((2, len(paths) * wide * sets))
    for pairs in Pairs.of(memberships, paths, wide):
        for key, degree in pairs.cells(memberships, np.arange(wide), sets):
            weights += np.bincount(key.ravel(), on_grid(degree).ravel(), len(weights))
            counts += np.bincount(key.ravel(), (degree > 0).ravel(), len(counts))
    weights, counts = (each.reshape(len(paths), wide, sets) for each in (weights, counts))
    root = [not path for path in paths]
    revealed = np.asarray(revealing(weights, counts, root, strict=True).any(axis=2))
    for path, features in zip(paths, revealed, strict=True):
        features[[feature for feature, _ in path]] = False
    filled = (counts > 0).sum(axis=2)
    return dict(zip(paths, revealed, strict=True)), dict(zip(paths, filled, strict=True))
