"""How well a forest predicts the records that its trees did not learn from, told as sums."""

from __future__ import annotations

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

BLOCK = 1_000_000  #: Instances that are predicted at once


@dataclass(frozen=True, eq=False)
class OutOfBag(Query):
    """The out-of-bag score's sums.

    A record's prediction is the mean of the leaf values of the trees whose sample lacks it; records that
    every tree drew are left out.

    Sensitivity: given the forest, where a record's instances hang on its own coins alone, it moves
    each count by at most 1 and each sum by at most 1 (errors and squares lie in [0, 1], targets in
    [-1/2, 1/2]): L1 1 and squared L2 1 a part. After a bootstrap none is finite, for one record more
    or less changes what all others were drawn for.
    """

    trees: BinaryTrees  #: the grown forest
    sampling: Sampling  #: what its trees learned from
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
        finite = None if self.sampling.repeats(1) is None else Sensitivity.of(1)
        names = ["records", "correct"] if values.shape[1] > 1 else ["records"]
        parts = {name: Part(PartType.COUNTS, ("all",), (1,), finite) for name in names}
        sums = [] if values.shape[1] > 1 else ["errors", "sums", "squares"]
        for name in sums:
            bound = None if finite is None else Sensitivity.of(TARGET_GRID.denominator)
            parts[name] = Part(PartType.SUMS, ("all",), (1,), bound, TARGET_GRID)
        return parts

    def memory(self, cells: int) -> int:
        """Most bytes that evaluating takes beside the records: blocks of instances, and the trees."""
        return 2**26 + 96 * BLOCK + 128 * len(self.trees) + 48 * cells

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Predict tree by tree, a block of records and trees at a time."""
        step, sums = max(1, 2 * BLOCK // self.values.shape[1]), []
        for first in range(0, max(len(view.table), 1), step):
            sums.append(self._of_records(view, slice(first, min(first + step, len(view.table)))))
        return {name: np.asarray(sum(each[name] for each in sums)) for name in sums[0]}

    def _of_records(self, view: View, part: slice) -> Mapping[str, np.ndarray]:
        records, classes = part.stop - part.start, self.values.shape[1]
        votes, total = np.zeros(records), np.zeros((records, classes))
        columns = single(view.table.x[part].T)
        step = max(1, BLOCK // max(records, 1))
        for first in range(0, self.trees.roots, step):
            trees = np.arange(first, min(first + step, self.trees.roots), dtype=np.int32)
            left_out = np.ones((len(trees), records), bool)
            for own, tree in zip(left_out, trees.tolist(), strict=True):
                drawn = self.sampling.rows(view, tree)
                own[drawn[(drawn >= part.start) & (drawn < part.stop)] - part.start] = False
            place, rows = np.nonzero(left_out)
            leaf = self.trees.descend(trees[place], rows, columns)
            votes += np.bincount(rows, minlength=records)
            for column in range(classes):
                total[:, column] += np.bincount(rows, self.values[leaf, column], minlength=records)
        told = np.flatnonzero(votes > 0)
        return self._scored(view, part.start + told, total[told] / votes[told, None])

    def reveals(
        self, exact: Mapping[str, np.ndarray], view: View, strict: bool = False
    ) -> Mapping[str, np.ndarray]:
        """All of it, where it is of few records."""
        few = exact["records"] < SETTINGS.min_shown
        return dict.fromkeys(exact, few)

    def _scored(self, view: View, told: np.ndarray, mean: np.ndarray) -> Mapping[str, np.ndarray]:
        records = np.array([len(told)])
        if mean.shape[1] > 1:
            target = encoded_target(view.table, mean.shape[1])[told]
            return {
                "records": records,
                "correct": np.array([(mean.argmax(axis=1) == target).sum()]),
            }
        y = encoded_target(view.table, 0)[told] * float(TARGET_GRID)
        error = np.clip(mean[:, 0], -0.5, 0.5) - y
        sums = {"errors": error**2, "sums": y, "squares": y**2}
        return {
            "records": records,
            **{name: np.array([on_grid(each, TARGET_GRID).sum()]) for name, each in sums.items()},
        }


def score(told: Mapping[str, float]) -> float:
    """Accuracy from counts, or R^2 from sums; NaN where nothing was told or left out."""
    records = told.get("records", 0.0)
    if not records:
        return float("nan")
    if "correct" in told:
        return told["correct"] / records
    spread = told["squares"] - told["sums"] ** 2 / records
    return 1 - told["errors"] / spread if spread > 0 else float("nan")
