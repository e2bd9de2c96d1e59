"""Check&Nullify: which cells and nodes of one client would give a record away."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privfed.learners.fuzzy_tree.fuzzy import Activation, Memberships, activations
from privfed.part import GRID, on_grid
from privfed.partition import Path

_UNIT = int(1 / GRID)


def few(counts: np.ndarray) -> np.ndarray:
    """Cells of one or two records."""
    small: np.ndarray = (counts > 0) & (counts <= 2)
    return small


def revealing(
    weights: np.ndarray, counts: np.ndarray, root: Sequence[bool], strict: bool
) -> np.ndarray:
    """The paper's Check&Nullify (Algorithm 1) on cells of shape (node, feature, set).

    (i) two records or fewer; (ii) a set whose neighbours are both empty: all its records share one
    value (at a border, the one neighbour); (iii) at the root, weights equal to the count: each
    membership is 1. Strictly, an empty cell reveals nobody and need not be hidden.
    """
    filled = weights > 0
    padded = np.pad(filled, ((0, 0), (0, 0), (1, 1)))
    alone = filled & ~padded[:, :, :-2] & ~padded[:, :, 2:]
    whole = (weights == counts * _UNIT) & np.asarray(root, dtype=bool)[:, None, None]
    if strict:
        strictly: np.ndarray = few(counts) | alone | (whole & filled)
        return strictly
    cells: np.ndarray = (counts <= 2) | alone | whole
    return cells


def silent_nodes(memberships: Memberships, nodes: Sequence[Path], sets: int) -> np.ndarray:
    """Nodes whose totals could be subtracted: a branch of a split on their way reveals.

    If one branch of a split reveals at this client, all branches are silent, and all that grows
    from them, for parent minus released siblings is the silent one.

    Returns:
        shape (nodes,).
    """
    fate: dict[Path, bool] = {(): False}
    known: dict[Path, Activation] = {}

    def silent(path: Path) -> bool:
        if path not in fate:
            parent, feature = path[:-1], path[-1][0]
            hidden = silent(parent)
            if not hidden:
                (node,) = activations(memberships, [parent], known)
                hidden = _split_reveals(memberships, node, feature, sets, root=not parent)
            fate.update({(*parent, (feature, branch)): hidden for branch in range(sets)})
        return fate[path]

    return np.array([silent(path) for path in nodes])


def _split_reveals(
    memberships: Memberships, parent: Activation, feature: int, sets: int, root: bool
) -> bool:
    """Whether one of the branches of a node's split on a feature reveals."""
    branches = [parent.into(memberships, feature, branch) for branch in range(sets)]
    weights = np.array([on_grid(branch.weight).sum() for branch in branches])
    counts = np.array([len(branch.rows) for branch in branches])
    return bool(revealing(weights[None, None], counts[None, None], [root], strict=True).any())
