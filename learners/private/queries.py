"""The queries of a private learner."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.errors import QueryError
from privfed.learners.private.basis import BLOCK, Basis, BasisIndices
from privfed.learners.private.grid import BinEdges
from privfed.learners.private.target_link import Outcome, ResidualBounds
from privfed.questions import wire
from privfed.questions.part import Bound, Part, PartType, Sensitivity
from privfed.questions.query import Query, View
from privfed.tables.schema import Schema

UNIT = Fraction(1, 2**20)  #: One unit of a released sum
RANK_UNIT = 2.0**-12  #: Mid-ranks are truncated to multiples of this before multiplication
LARGEST = 2.0**20  #: Maximum weight or score of a query, so that predictions do not overflow
KEPT = 2**25  #: Maximum bytes of codes cached for the next query


@dataclass(frozen=True, eq=False)
class FeatureHistogram(Query):
    """Counts of every column, the target among them, by bin.

    Sensitivity: a record is in exactly one bin of each of the P columns, so L1 = P and squared L2 =
    P; replacing a record changes two bins of each by one: 2P and 2P.
    """

    grid: BinEdges  #: thresholds of every column of the schema, the target's last
    kind: ClassVar[str] = "private.histogram"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``counts`` by column and bin; shorter rows end in empty bins."""
        columns = len(schema.columns)
        shape = (columns, self._width(schema, columns))
        return {"counts": _bins(("column", "bin"), shape, columns)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count by bin; a value on a threshold belongs to the upper bin."""
        width = int(self.grid.sizes.max())
        return {
            "counts": np.array([np.bincount(codes, minlength=width) for codes in self._codes(view)])
        }

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return one count in one bin of each column."""
        codes = np.stack(list(self._codes(view)), axis=1)
        bins = np.arange(int(self.grid.sizes.max()))
        return {"counts": (codes[..., None] == bins).astype(np.int64)}

    def _width(self, schema: Schema, columns: int) -> int:
        if schema.target is None:
            raise QueryError("malformed", "the schema has no target")
        self.grid.check(schema, columns)
        return int(self.grid.sizes.max())

    def _codes(self, view: View) -> Iterator[np.ndarray]:
        columns = [*view.table.x.T, view.table.target][-len(self.grid.cuts) :]
        for cuts, values in zip(self.grid.cuts, columns, strict=True):
            yield np.searchsorted(np.array(cuts), values, side="right")


@dataclass(frozen=True, eq=False)
class TargetHistogram(FeatureHistogram):
    """Counts of the target alone by bin: what every prediction starts from.

    Sensitivity: a record is in exactly one bin, so L1 = 1 and squared L2 = 1; replacing a record changes two bins by
    one: 2 and 2. Its grid has one column.
    """

    kind: ClassVar[str] = "private.target"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``counts`` by bin."""
        return {"counts": _bins(("bin",), (self._width(schema, 1),), 1)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count by bin; a value on a threshold belongs to the upper bin."""
        return {"counts": super().evaluate(view)["counts"][0]}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return one count in one bin."""
        return {"counts": super().contribution(view)["counts"][:, 0]}


def _bins(axes: tuple[str, ...], shape: tuple[int, ...], count: int) -> Part:
    sensitivity = Sensitivity(Bound(count, count), Bound(2 * count, 2 * count))
    return Part(PartType.COUNTS, axes, shape, sensitivity)


def _sums(
    axes: tuple[str, ...], shape: tuple[int, ...], l1: int, l2_squared: int, unit: Fraction
) -> Part:
    sensitivity = Sensitivity.of(max(l1, math.isqrt(l2_squared) + 1), l2_squared)
    return Part(PartType.SUMS, axes, shape, sensitivity, unit)


@dataclass(frozen=True, eq=False)
class _Coded(Query):
    """Base class of queries on codes of the features."""

    def _codes(self, view: View, grid: BinEdges) -> np.ndarray | None:
        """Return all records' codes, cached for the next query; None if they are too many."""
        X = view.table.x
        if X.size > KEPT:
            return None
        key = wire.digest(wire.encode(grid))
        if view.cache.get("private.grid") != key:
            view.cache["private.grid"] = key
            view.cache["private.codes"] = grid.codes(X)
        codes: np.ndarray = view.cache["private.codes"]
        return codes

    def _blocks(
        self, view: View, grid: BinEdges, slices: Iterator[slice]
    ) -> Iterator[tuple[slice, np.ndarray]]:
        cached = self._codes(view, grid)
        for chosen in slices:
            yield chosen, grid.codes(view.table.x[chosen]) if cached is None else cached[:, chosen]


@dataclass(frozen=True, eq=False)
class Correlations(_Coded):
    """Sums of products of every two columns' mid-ranks.

    A record's ranks u, in [-1, 1], are clipped to |u|^2 <= c = ``clip`` and truncated towards zero to multiples of
    2^-12, so that all products and their sums are integer multiples of 2^-24, exact in any order.

    Sensitivity: sum over i < j of (u_i u_j)^2 = (|u|^4 - sum of u_i^4) / 2 <= |u|^4 (1 - 1/p) / 2, for
    sum u_i^4 >= |u|^4 / p by Cauchy and Schwarz. So squared L2 is at most c^2 (1 - 1/p) / 2, and L1 at
    most (|u|_1^2 - |u|^2) / 2 <= c (p - 1) / 2.
    """

    grid: BinEdges  #: cut-offs of the features
    ranks: np.ndarray  #: mid-rank of each code, in [-1, 1], shape (columns, codes)
    clip: float  #: c
    kind: ClassVar[str] = "private.correlations"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``products`` by pair of columns i < j, row by row."""
        p = len(schema.features)
        self.grid.check(schema, p)
        if p < 2 or self.ranks.shape != (p, int(self.grid.sizes.max())):
            raise QueryError("malformed", "two columns or more, and a rank for every code")
        if self.ranks.dtype.kind != "f" or not (np.abs(self.ranks) <= 1).all():
            raise QueryError("malformed", "ranks must lie between -1 and 1")
        if not 2.0**-10 <= self.clip <= p:
            raise QueryError("malformed", "clip must lie between 2^-10 and the number of columns")
        clip = Fraction(self.clip) * (1 + Fraction(1, 2**30))
        l2_squared = math.ceil((clip * 2**24) ** 2 * (p - 1) / (2 * p))
        l1 = math.ceil(clip * 2**24 * (p - 1) / 2)
        shape = (p * (p - 1) // 2,)
        return {"products": _sums(("pair",), shape, l1, l2_squared, Fraction(1, 2**24))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Add up by block; the factors are integers, so that matrix products are exact."""
        p, records = view.table.x.shape[1], len(view.table)
        total = np.zeros((p, p))
        rows = max(1, BLOCK // p)
        slices = (slice(k, min(k + rows, records)) for k in range(0, records, rows))
        for _, codes in self._blocks(view, self.grid, slices):
            units = self._units(codes)
            total += units @ units.T
        return {"products": total[np.triu_indices(p, 1)].astype(np.int64)}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return the products of each record's ranks."""
        units = self._units(self.grid.codes(view.table.x)).T
        first, second = np.triu_indices(units.shape[1], 1)
        return {"products": (units[:, first] * units[:, second]).astype(np.int64)}

    def _units(self, codes: np.ndarray) -> np.ndarray:
        """Return clipped ranks in multiples of :data:`RANK_UNIT`, shape (columns, records)."""
        ranks = np.take_along_axis(self.ranks, codes.astype(np.intp), axis=1)
        norms = np.zeros(codes.shape[1])
        for row in ranks:
            norms += row**2
        factors = np.minimum(1, np.sqrt(self.clip / np.maximum(norms, self.clip / 2)))
        return np.asarray(np.trunc(ranks * (factors / RANK_UNIT)))


@dataclass(frozen=True, eq=False)
class BasisLeafCounts(_Coded):
    """How many records reach each leaf of each tree.

    Sensitivity: a record reaches exactly one leaf of each of the T trees: L1 = T and squared L2 = T; replacing a record
    changes two leaves of each by one: 2T and 2T.
    """

    basis: Basis
    kind: ClassVar[str] = "private.masses"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``counts`` by leaf, tree after tree."""
        self.basis.check(schema)
        trees = sum(t.count for t in self.basis.trees)
        if not trees:
            raise QueryError("malformed", "there is no tree to count the leaves of")
        leaves = int(self.basis.widths[self.basis.columns :].sum())
        return {"counts": _bins(("leaf",), (leaves,), trees)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count block by block."""
        basis = self.basis
        counts = np.zeros(basis.size, np.int64)
        for _, codes in self._blocks(view, basis.grid, basis.blocks(len(view.table))):
            indices = basis.cells(codes).index[basis.columns :]
            counts += np.bincount(indices.ravel(), minlength=basis.size)
        return {"counts": counts[int(basis.starts[basis.columns]) :]}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return one count in one leaf of each tree."""
        basis, first = self.basis, int(self.basis.starts[self.basis.columns])
        indices = basis.cells(basis.grid.codes(view.table.x)).index[basis.columns :] - first
        counts = np.zeros((len(view.table), basis.size - first), np.int64)
        counts[np.arange(len(counts)), indices] = 1
        return {"counts": counts}


@dataclass(frozen=True, eq=False)
class Gradient(_Coded):
    """Sums by bin and leaf (and for linear terms) of the records' residuals under a public model.

    A record adds c phi_l r_o to the sum of function l and output o: phi are the basis functions, c clips them to norm
    one, r are its residuals; each product is truncated towards zero to integer units, which does not increase norms.

    Sensitivity: c^2 times the sum over l of phi_l^2 is at most S = :attr:`.Basis.squares` and |r| at most D =
    :meth:`.ResidualBounds.norm`, so squared L2 is at most S D^2. In L1, sum |c phi_l| <= A = :attr:`.Basis.absolutes`
    and |r|_1 <= sqrt(outputs) D. (A fraction of 2^-30 more covers rounding in these figures.) Replacing a record
    changes the sums by twice as much.
    """

    basis: Basis  #: the functions
    outcome: Outcome  #: how the target is read
    window: ResidualBounds  #: bounds of the residuals
    weights: np.ndarray  #: of the functions, shape (functions, outputs)
    start: np.ndarray  #: score of a record without any function, shape (outputs,)
    kind: ClassVar[str] = "private.gradient"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``sums`` by function and output."""
        self.outcome.check(schema)
        self.basis.check(schema)
        self.window.check(self.outcome)
        shape = (self.basis.size, self.outcome.classes)
        for values, expected in ((self.weights, shape), (self.start, shape[1:])):
            if values.shape != expected or values.dtype.kind != "f":
                raise QueryError("malformed", "every function and output needs a weight")
            if not (np.abs(values) <= LARGEST).all():
                raise QueryError("malformed", "weights must be finite and at most 2^20")
        norm, slack = Fraction(self.window.norm(self.outcome)) / UNIT, 1 + Fraction(1, 2**30)
        l2_squared = math.ceil(Fraction(self.basis.squares) * norm**2 * slack)
        outputs = Fraction(math.sqrt(self.outcome.classes))
        l1 = math.ceil(Fraction(self.basis.absolutes) * outputs * norm * slack)
        return {"sums": _sums(("function", "output"), shape, l1, l2_squared, UNIT)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Compute scores and residuals, and add up block by block."""
        basis, total = self.basis, np.zeros((self.basis.size, self.outcome.classes))
        for chosen, codes in self._blocks(view, basis.grid, basis.blocks(len(view.table))):
            cells = basis.cells(codes)
            _, residuals = self._residuals(cells, view.table.target[chosen])
            total += basis.sums(cells, residuals, float(UNIT))
        return {"sums": total.astype(np.int64)}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return each record's functions times its residuals."""
        cells = self.basis.cells(self.basis.grid.codes(view.table.x))
        _, residuals = self._residuals(cells, view.table.target)
        return {"sums": self.basis.each(cells, residuals, float(UNIT)).astype(np.int64)}

    def _residuals(self, cells: BasisIndices, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return scores and residuals."""
        scores = self.start + self.basis.scores(cells, self.weights)
        targets = self.outcome.targets(y)
        return scores, self.window.residuals(targets, self.outcome.predictions(scores))


COUNT = Fraction(1, 2)  #: Value of a record's count, which is released with its residual
MOST_CUTS = 64  #: Maximum thresholds of a score


@dataclass(frozen=True, eq=False)
class CalibrationSums(Gradient):
    """Sums of residuals, and of records, by bin of each output's score.

    A record has one bin for each output o, to which it adds its residual r_o and the constant c = :data:`COUNT`.
    Residuals are truncated towards zero to integer units, which does not increase them; c is an integer number of
    units.

    Sensitivity: |r| is at most D = :meth:`.ResidualBounds.norm`, so squared L2 is at most D^2 + outputs c^2, and L1 at
    most sqrt(outputs) D + outputs c. (A fraction of 2^-30 more covers rounding in D.) Replacing a record changes the
    sums by twice as much.
    """

    cuts: np.ndarray  #: increasing thresholds of each output's score, shape (outputs, bins - 1)
    kind: ClassVar[str] = "private.scores"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Return ``sums`` of residuals and of :data:`COUNT`, by output and bin."""
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
        l1 = math.ceil(Fraction(math.sqrt(outputs)) * norm * slack + outputs * count)
        shape = (2, outputs, cuts.shape[1] + 1)
        return {"sums": _sums(("kind", "output", "bin"), shape, l1, l2_squared, UNIT)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Compute scores and residuals, and add up block by block."""
        basis, (outputs, cuts) = self.basis, self.cuts.shape
        total = np.zeros((2, outputs, cuts + 1))
        for chosen, codes in self._blocks(view, basis.grid, basis.blocks(len(view.table))):
            bins, units = self._binned(basis.cells(codes), view.table.target[chosen])
            for o in range(outputs):
                total[0, o] += np.bincount(bins[:, o], units[:, o], cuts + 1)
                total[1, o] += np.bincount(bins[:, o], minlength=cuts + 1) * int(COUNT / UNIT)
        return {"sums": total.astype(np.int64)}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return each record's residuals and count, each in one bin."""
        cells = self.basis.cells(self.basis.grid.codes(view.table.x))
        bins, units = self._binned(cells, view.table.target)
        in_bin = bins[..., None] == np.arange(self.cuts.shape[1] + 1)
        terms = np.stack([in_bin * units[..., None], in_bin * float(COUNT / UNIT)], axis=1)
        return {"sums": terms.astype(np.int64)}

    def _binned(self, cells: BasisIndices, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores, residuals = self._residuals(cells, y)
        bins = [
            np.searchsorted(cuts, column, side="right")
            for cuts, column in zip(self.cuts, scores.T, strict=True)
        ]
        return np.stack(bins, axis=1), np.trunc(residuals / float(UNIT))
