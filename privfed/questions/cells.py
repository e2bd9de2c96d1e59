"""Checks that cells declared disjoint are disjoint, from their public description.

Parallel composition is used only within one query's vector sensitivity: a record changes one cell.
"""

from collections.abc import Sequence

import numpy as np

from privfed.errors import QueryError

DEPTH = 256  #: Maximum path length in a query

Path = tuple[tuple[int, int], ...]  #: From the root to a node: (feature, branch) at each step


def check_paths(paths: Sequence[Path], features: int, branches: int) -> None:
    """Check that paths lead to nodes of one tree: none twice, none above another, one split per node.

    Two different nodes of one multi-way tree separate at a node that both pass: there they follow
    different branches of the *same* feature. Then crisp nodes are disjoint, and fuzzy memberships
    (which sum to 1 over the branches of a feature) sum to at most 1 over all nodes, by induction.
    QueryError: ``malformed`` (unknown features or branches, too deep), else ``false-partition``.
    """
    if max(map(len, paths), default=0) > DEPTH:
        raise QueryError("malformed", f"a path has more than {DEPTH} steps")
    # child by (node, branch); each node's split feature; end nodes of paths
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
    """Check that bin edges are finite and increasing, so that each value has one bin (else QueryError)."""
    if edges.ndim != 1 or len(edges) < 2 or not np.isfinite(edges).all():
        raise QueryError("malformed", "bin edges must be finite numbers, two or more")
    if not (np.diff(edges) > 0).all():
        raise QueryError("false-partition", "bin edges must rise, or bins overlap")
