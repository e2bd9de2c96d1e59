"""The out-of-bag score of a forest, from sums over records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.errors import QueryError
from privfed.learners.forest.columns import TARGET_GRID, encoded_target, single
from privfed.learners.forest.samples import Sampling
from privfed.learners.forest.settings import SETTINGS
from privfed.learners.forest.trees import BinaryTrees
from privfed.questions.part import Part, PartType, Sensitivity, on_grid
from privfed.questions.query import Query, View
from privfed.tables.schema import Schema

BLOCK = 1_000_000  #: Maximum instances predicted at once


@dataclass(frozen=True, eq=False)
class OutOfBag(Query):
    """The out-of-bag score's sums.

    A record's prediction is the mean leaf value over trees whose sample lacks it; records in all samples are left out.

    Sensitivity: given the forest, if a record's instances depend on its own coins only, it changes each count and each
    sum by at most 1 (errors and squares are in [0, 1], targets in [-1/2, 1/2]): L1 1 and squared L2 1 per part. After a
    bootstrap none is finite, as adding or removing a record changes all other records' draws.
    """

    trees: BinaryTrees  #: the grown forest
    sampling: Sampling  #: its trees' samples
    #: class fractions or the scaled mean target of each node, shape (nodes, values)
    values: np.ndarray
    kind: ClassVar[str] = "forest.out_of_bag"
    linear: ClassVar[bool] = False

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``records`` counted; ``correct`` of them, or ``errors``, ``sums`` and ``squares``."""
        self.trees.check(schema)
        self.sampling.check(self.trees.roots)
        values = self.values
        if values.ndim != 2 or values.dtype.kind != "f" or len(values) != len(self.trees):
            raise QueryError("malformed", "every node needs a value")
        if not np.isfinite(values).all() or schema.target is None:
            raise QueryError("malformed", "values must be finite numbers, of a target")
        if (self.trees.feature >= len(schema.features)).any() or not 1 <= values.shape[1] <= 100:
            raise QueryError("malformed", "from 1 to 100 classes can be scored")
        finite = self.sampling.repeats(1) is not None
        one = Sensitivity.of(1) if finite else None
        unit = Sensitivity.of(TARGET_GRID.denominator) if finite else None
        count = Part(PartType.COUNTS, ("all",), (1,), one)
        total = Part(PartType.SUMS, ("all",), (1,), unit, TARGET_GRID)
        if values.shape[1] > 1:
            return {"records": count, "correct": count}
        return {"records": count, "errors": total, "sums": total, "squares": total}

    def memory(self, cells: int) -> int:
        """Return the maximum memory in bytes without the records: blocks of instances, and the trees."""
        return 2**26 + 96 * BLOCK + 128 * len(self.trees) + 48 * cells

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Predict tree by tree, a block of records and trees at a time.

        A record's leaf values are added in the order of trees for any blocks, whose sizes depend on the number of
        records: else adding a record could change the rounding of other records' predictions.
        """
        step, sums = max(1, 2 * BLOCK // self.values.shape[1]), []
        for first in range(0, max(len(view.table), 1), step):
            sums.append(self._block_sums(view, slice(first, min(first + step, len(view.table)))))
        return {name: np.asarray(sum(block[name] for block in sums)) for name in sums[0]}

    def _block_sums(self, view: View, part: slice) -> Mapping[str, np.ndarray]:
        records, classes = part.stop - part.start, self.values.shape[1]
        votes, total = np.zeros(records), np.zeros((records, classes))
        columns = single(view.table.x[part].T)
        step = max(1, BLOCK // max(records, 1))
        for first in range(0, self.trees.roots, step):
            trees = np.arange(first, min(first + step, self.trees.roots), dtype=np.int32)
            left_out = np.ones((len(trees), records), bool)
            for out, tree in zip(left_out, trees.tolist(), strict=True):
                drawn = self.sampling.rows(view, tree)
                out[drawn[(drawn >= part.start) & (drawn < part.stop)] - part.start] = False
            index, rows = np.nonzero(left_out)
            leaf = self.trees.descend(trees[index], rows, columns)
            votes += np.bincount(rows, minlength=records)
            ends = np.cumsum(np.count_nonzero(left_out, axis=1))[:-1]
            for tree_rows, leaves in zip(np.split(rows, ends), np.split(leaf, ends), strict=True):
                total[tree_rows] += self.values[leaves]
        scored = np.flatnonzero(votes > 0)
        return self._totals(view, part.start + scored, total[scored] / votes[scored, None])

    def reveals(
        self, exact: Mapping[str, np.ndarray], view: View, strict: bool = False
    ) -> Mapping[str, np.ndarray]:
        """Mask everything if there are few records."""
        return dict.fromkeys(exact, exact["records"] < SETTINGS.min_shown)

    def _totals(self, view: View, rows: np.ndarray, mean: np.ndarray) -> Mapping[str, np.ndarray]:
        records = np.array([len(rows)])
        if mean.shape[1] > 1:
            target = encoded_target(view.table, mean.shape[1])[rows]
            correct = (mean.argmax(axis=1) == target).sum()
            return {"records": records, "correct": np.array([correct])}
        y = encoded_target(view.table, 0)[rows] * float(TARGET_GRID)
        error = np.clip(mean[:, 0], -0.5, 0.5) - y
        sums = {"errors": error**2, "sums": y, "squares": y**2}
        totals = {name: np.array([on_grid(term, TARGET_GRID).sum()]) for name, term in sums.items()}
        return {"records": records, **totals}


def score(totals: Mapping[str, float]) -> float:
    """Return accuracy from counts, or R^2 from sums; NaN if withheld or without records."""
    records = totals.get("records", 0.0)
    if not records:
        return float("nan")
    if "correct" in totals:
        return totals["correct"] / records
    variance = totals["squares"] - totals["sums"] ** 2 / records
    return 1 - totals["errors"] / variance if variance > 0 else float("nan")
