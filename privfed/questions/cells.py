"""Cells that are declared disjoint, checked from their public description.

Parallel composition exists inside one query's vector sensitivity only: a record moves one cell.
"""

from collections.abc import Sequence

import numpy as np

from privfed.errors import QueryError

DEPTH = 256  #: Deepest path that a stranger's query may cost a client

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
    # by a node's number and a branch the node behind it; each node's feature; where paths end
    below, split, ends = dict[tuple[int, int], int](), [-1], set[int]()
    for path in paths:
        node = 0
        for feature, branch in path:
            if not (0 <= feature < features and 0 <= branch < branches):
                raise QueryError("malformed", "a path names an unknown feature or branch")
            if node in ends or split[node] not in (-1, feature):
                raise QueryError("false-partition", "two nodes do not belong to one tree")
            split[node] = feature
            node = below.setdefault((node, branch), len(split))
            split += [-1] * (node == len(split))
        if node in ends or split[node] >= 0:
            raise QueryError("false-partition", "a node is listed twice, or lies above another")
        ends.add(node)


def check_edges(edges: np.ndarray) -> None:
    """Check that bin edges are finite and rising: a value falls into exactly one bin (QueryError)."""
    if edges.ndim != 1 or len(edges) < 2 or not np.isfinite(edges).all():
        raise QueryError("malformed", "bin edges must be finite numbers, two or more")
    if not (np.diff(edges) > 0).all():
        raise QueryError("false-partition", "bin edges must rise, or bins overlap")
