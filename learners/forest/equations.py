"""What bins say of who was there: in each tree they add up over its secret sample of the records."""

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
    columns, classes = Columns.of(view.table, level.classes), level.classes or 1
    rows = np.arange(columns.records, dtype=np.int32)
    code = columns.target if level.classes else np.zeros(columns.records, np.int64)
    for tree in range(level.trees.roots):
        draw = f"forest {level.sampling.label}, tree {int(level.sampling.trees[tree])}"
        start = np.full(columns.records, tree, np.int32)
        at = level.numbers[level.trees.descend(start, rows, columns.values)]
        for part, features in (("bin", level.numeric), ("group", level.grouped)):
            pairs = np.flatnonzero((level.trees.tree_of[level.nodes] == tree)[features.nodes])
            if not len(pairs):
                continue
            values = columns.values[features.features[pairs]]
            if part == "bin":
                thresholds, size = cuts[pairs].astype(np.float32), cuts.shape[1] + 1
                cell = np.array(
                    [np.searchsorted(c, x) for c, x in zip(thresholds, values, strict=True)]
                )
            else:
                cell, size = values.astype(np.int64), width
            inside = at == features.nodes[pairs][:, None]
            held = inside[:, None] & (cell[:, None] == np.arange(size)[:, None])
            flat = held.reshape(-1, columns.records).T
            cells = (pairs[:, None] * size + np.arange(size)).ravel()
            counts = flat[:, :, None] & (code[:, None, None] == np.arange(classes))
            indices = cells[:, None] * classes + np.arange(classes)
            yield Drawn(draw, f"{part}s", indices.ravel(), counts.reshape(len(flat), -1))
            if not level.classes:
                yield Drawn(draw, f"{part}_sums", cells, flat * columns.target[:, None])
