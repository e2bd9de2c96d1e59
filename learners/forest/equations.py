"""What bins say of who was there: in each tree they add up over its secret sample of the records."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from privfed.learners.forest.columns import Columns
from privfed.learners.forest.level import OpenNodes
from privfed.questions.query import Drawn, View


def bins_by_tree(level: OpenNodes, cuts: np.ndarray, width: int, view: View) -> Iterator[Drawn]:
    """What each record would add to the bins of each tree, were it there once.

    Args:
        cuts: candidates of each numeric pair, ascending, shape (pairs, cuts).
        width: most categories of a feature that is asked about.
        view: the candidate records.
    """
    columns = Columns.of(view.table, level.classes)
    numeric, grouped = level.numeric, level.grouped
    rows = np.arange(columns.records, dtype=np.int32)
    for tree in range(level.trees.roots):
        start = np.full(columns.records, tree, np.int32)
        at = level.numbers[level.trees.descend(start, rows, columns.values)]
        for place, pairs in (("bin", numeric), ("group", grouped)):
            own = np.flatnonzero((level.trees.tree_of[level.nodes] == tree)[pairs.nodes])
            if not len(own):
                continue
            features = columns.values[pairs.features[own]]
            if place == "bin":
                found = [
                    np.searchsorted(c, x)
                    for c, x in zip(cuts[own].astype(np.float32), features, strict=True)
                ]
                size = cuts.shape[1] + 1
            else:
                found, size = list(features.astype(np.int64)), width
            inside = at == pairs.nodes[own][:, None]
            held = inside[:, None] & (np.array(found)[:, None] == np.arange(size)[:, None])
            yield from _parts(level, columns.target, held, own, size, f"{tree}", place)


def _parts(
    level: OpenNodes,
    target: np.ndarray,
    held: np.ndarray,
    pairs: np.ndarray,
    size: int,
    tree: str,
    place: str,
) -> Iterator[Drawn]:
    """Counts of each class, or of all and sums, by `held`: shape (pairs, cells of a pair, records)."""
    cells = (pairs[:, None] * size + np.arange(size)).ravel()
    flat = held.reshape(-1, held.shape[-1]).T
    classes = level.classes or 1
    code = target if level.classes else np.zeros(len(flat), np.int64)
    counts = flat[:, :, None] & (code[:, None, None] == np.arange(classes))
    places = cells[:, None] * classes + np.arange(classes)
    draw = f"forest {level.sampling.label}, tree {int(level.sampling.trees[int(tree)])}"
    yield Drawn(draw, f"{place}s", places.ravel(), counts.reshape(len(flat), -1))
    if not level.classes:
        yield Drawn(draw, f"{place}_sums", cells, flat * target[:, None])
