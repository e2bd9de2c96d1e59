"""Residuals by score: how far a model is off where it is certain and where it is not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.errors import QueryError
from privfed.learners.private.basis import BasisIndices
from privfed.learners.private.queries import UNIT, Gradient
from privfed.questions.part import Part, PartType, Sensitivity
from privfed.questions.query import View
from privfed.tables.schema import Schema

#: What a record counts beside its residual: a release tells both.
COUNT = Fraction(1, 2)
#: Most cut-offs of a score.
MOST_CUTS = 64


@dataclass(frozen=True, eq=False)
class CalibrationSums(Gradient):
    """Sums of residuals, and of records, by bin of each output's score.

    A record has one bin for each output o: there it adds its residual r_o and the constant
    c = :data:`COUNT`. Residuals are truncated towards zero to whole units, which makes none longer; c is a
    whole number of units.

    Sensitivity: |r| is at most D = :meth:`.ResidualBounds.norm`, so squared L2 is at most
    D^2 + outputs c^2, and L1 at most sqrt(outputs) D + outputs c. (A fraction of 2^-30 more covers rounding
    in D.) Replacing a record moves the sums by twice as much.
    """

    cuts: np.ndarray  #: rising cut-offs of each output's score, shape (outputs, bins - 1)
    kind: ClassVar[str] = "private.scores"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``sums`` of residuals and of :data:`COUNT`, by output and bin."""
        super().parts(schema)
        outputs, cuts = self.outcome.classes, self.cuts
        if cuts.ndim != 2 or len(cuts) != outputs or not 1 <= cuts.shape[1] <= MOST_CUTS:
            raise QueryError("malformed", f"1 to {MOST_CUTS} cut-offs of every output's score")
        if cuts.dtype.kind != "f" or not np.isfinite(cuts).all():
            raise QueryError("malformed", "cut-offs of scores must be finite")
        if not (np.diff(cuts, axis=1) > 0).all():
            raise QueryError("false-partition", "cut-offs must rise, or bins overlap")
        norm, count = Fraction(self.window.norm(self.outcome)) / UNIT, COUNT / UNIT
        slack = 1 + Fraction(1, 2**30)
        l2_squared = math.ceil(norm**2 * slack + outputs * count**2)
        root = Fraction(math.sqrt(outputs))
        l1 = math.ceil(root * norm * slack + outputs * count)
        sensitivity = Sensitivity.of(max(l1, math.isqrt(l2_squared) + 1), l2_squared)
        shape = (2, outputs, cuts.shape[1] + 1)
        return {"sums": Part(PartType.SUMS, ("kind", "output", "bin"), shape, sensitivity, UNIT)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Score, take residuals and add up, block by block."""
        basis, (outputs, cuts) = self.basis, self.cuts.shape
        total = np.zeros((2, outputs, cuts + 1))
        for chosen, codes in self._blocks(view, basis.grid, basis.blocks(len(view.table))):
            bins, units = self._placed(basis.cells(codes), view.table.target[chosen])
            for o in range(outputs):
                total[0, o] += np.bincount(bins[:, o], units[:, o], cuts + 1)
                total[1, o] += np.bincount(bins[:, o], minlength=cuts + 1) * int(COUNT / UNIT)
        return {"sums": total.astype(np.int64)}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """A record's residuals and its count, each in one bin."""
        cells = self.basis.cells(self.basis.grid.codes(view.table.x))
        bins, units = self._placed(cells, view.table.target)
        here = bins[..., None] == np.arange(self.cuts.shape[1] + 1)
        own = np.stack([here * units[..., None], here * float(COUNT / UNIT)], axis=1)
        return {"sums": own.astype(np.int64)}

    def _placed(self, cells: BasisIndices, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Each record's bin and residual in units, by output; both of shape (records, outputs)."""
        scores = self.start + self.basis.scores(cells, self.weights)
        rest = self.window.residuals(self.outcome.targets(y), self.outcome.predictions(scores))
        bins = [
            np.searchsorted(own, each, side="right")
            for own, each in zip(self.cuts, scores.T, strict=True)
        ]
        return np.stack(bins, axis=1), np.trunc(rest / float(UNIT))
