"""Cells that are declared disjoint, checked from their public description.

Parallel composition exists inside one query's vector sensitivity only: a record moves one cell.
"""

from collections.abc import Sequence

import numpy as np

from privfed.errors import QueryError

DEPTH = 256  #: Deepest path and longest search that a stranger's query may cost a client
SEARCH = 200_000

Path = tuple[tuple[int, int], ...]  #: To a node from the root: (feature, branch) at each step


def check_paths(paths: Sequence[Path], features: int, branches: int) -> None:
    """Check that tree nodes form one tree: no node twice, none above another, one split per node.

    Two different nodes of one multi-way tree separate at a node that both pass: there they follow
    different branches of the *same* feature. Then crisp nodes are disjoint, and fuzzy memberships
    (which sum to 1 over the branches of a feature) sum to at most 1 over all nodes, by induction.
    QueryError: ``malformed`` (unknown features or branches, too deep), else ``false-partition``.
    """
    if max(map(len, paths), default=0) > DEPTH:
        raise QueryError("malformed", f"a path has more than {DEPTH} steps")
    split: dict[Path, int] = {}
    ends = set(paths)
    if len(ends) != len(paths):
        raise QueryError("false-partition", "a node is listed twice")
    for path in paths:
        for depth, (feature, branch) in enumerate(path):
            if not (0 <= feature < features and 0 <= branch < branches):
                raise QueryError("malformed", "a path names an unknown feature or branch")
            above = path[:depth]
            if above in ends or split.setdefault(above, feature) != feature:
                raise QueryError("false-partition", "two nodes do not belong to one tree")


def check_edges(edges: np.ndarray) -> None:
    """Check that bin edges are finite and rising: a value falls into exactly one bin (QueryError)."""
    if edges.ndim != 1 or len(edges) < 2 or not np.isfinite(edges).all():
        raise QueryError("malformed", "bin edges must be finite numbers, two or more")
    if not (np.diff(edges) > 0).all():
        raise QueryError("false-partition", "bin edges must rise, or bins overlap")


def overlap(lower: np.ndarray, upper: np.ndarray) -> int:
    """The most boxes that one point can lie in: half-open boxes, shape (boxes, features).

    A largest set of boxes with a common point contains the corner made of their greatest lower
    bounds; for each lower bound on the first feature, the boxes alive there are searched in the
    others. Beyond :data:`SEARCH` steps the overlap on the least crowded feature is given: never too
    small.
    """
    features = lower.shape[1]
    if len(lower) == 0:
        return 0
    if features == 0:
        return len(lower)
    if features > 1 and float(len(lower)) ** features > SEARCH:
        return min(overlap(lower[:, [f]], upper[:, [f]]) for f in range(features))
    deepest = 0
    for start in np.unique(lower[:, 0]):
        alive = (lower[:, 0] <= start) & (start < upper[:, 0])
        if alive.sum() > deepest:
            deepest = max(deepest, overlap(lower[alive, 1:], upper[alive, 1:]))
    return deepest
