"""Matrix-free products with the terms, as sums by cell over blocks of records."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array

from privfed.learners.rulefit.averaging import residuals
from privfed.learners.rulefit.grids import grids_of
from privfed.learners.rulefit.rules import Terms

#: Maximum cells and numbers in memory for one block, and for cached earlier blocks; 12 bytes each.
BLOCK, KEPT = 2**21, 2**21


@dataclass(frozen=True, eq=False)
class RecordBlock:
    """Some records: their cells, shape (records, cells), and linear terms, shape (records, linear terms)."""

    rows: slice
    leaves: csr_array
    linear: np.ndarray
    by_leaf: csr_array = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_leaf", self.leaves.T)


@dataclass(frozen=True, eq=False)
class Predictor:
    """A linear predictor: a constant, a value per cell, and weights of the linear terms."""

    constant: float
    by_cell: np.ndarray
    linear: np.ndarray

    def scores(self, block: RecordBlock) -> np.ndarray:
        """Return scores of a block's records, shape (records,)."""
        return np.asarray(block.leaves @ self.by_cell + block.linear @ self.linear + self.constant)


class DesignOperator:
    """Intercept, rules and linear terms of all records, never formed as one matrix; double precision."""

    def __init__(self, terms: Terms, X: np.ndarray) -> None:
        self._terms, self._X = terms, X
        self._grids = grids_of(terms, len(X))
        self._width = max(1, len(self._grids.grids) + len(terms.linear))
        self._cached: list[RecordBlock] = []

    def blocks(self) -> Iterator[RecordBlock]:
        """Yield all records in order; the first blocks are cached."""
        yield from self._cached
        rows = max(1, BLOCK // self._width)
        start = self._cached[-1].rows.stop if self._cached else 0
        for begin in range(start, len(self._X), rows):
            block = self._block(slice(begin, min(begin + rows, len(self._X))))
            if block.rows.stop * self._width <= KEPT:
                self._cached.append(block)
            yield block

    def _block(self, rows: slice) -> RecordBlock:
        X, cutoffs = self._X[rows], self._terms.cutoffs
        cells = self._grids.cells(cutoffs.codes(X))
        ends = np.arange(len(X) + 1, dtype=np.int32) * cells.shape[1]
        shape = (len(X), self._grids.size)
        leaves = csr_array((np.ones(cells.size), cells.ravel(), ends), shape=shape)
        return RecordBlock(rows, leaves, cutoffs.linear(X)[:, list(self._terms.linear)])

    def predictor(self, weights: np.ndarray, shift: float = 0.0) -> Predictor:
        """Return the linear predictor of some weights, minus a shift."""
        rules = len(self._terms.boxes)
        by_cell = self._grids.by_cell(weights[1 : 1 + rules])
        return Predictor(float(weights[0]) - shift, by_cell, weights[1 + rules :])

    def slope(self, target: np.ndarray, predictor: Predictor, logistic: bool) -> np.ndarray:
        """Return the sum over records of residual times column, by block; shape (1 + terms,)."""
        total, by_cell = 0.0, np.zeros(self._grids.size)
        linear = np.zeros(len(self._terms.linear))
        for block in self.blocks():
            residual = residuals(target[block.rows], predictor.scores(block), logistic)
            total += residual.sum()
            by_cell += block.by_leaf @ residual
            linear += residual @ block.linear
        return np.concatenate([[total], self._grids.by_rule(by_cell), linear])


@dataclass(frozen=True, eq=False)
class CentredOperator:
    """A design with `means`, shape (1 + terms,), subtracted from its columns (zero for the intercept)."""

    design: DesignOperator
    means: np.ndarray

    def gradient(self, target: np.ndarray, weights: np.ndarray, logistic: bool) -> np.ndarray:
        """Return the sum over records of residual times centred column."""
        predictor = self.design.predictor(weights, float(self.means @ weights))
        total = self.design.slope(target, predictor, logistic)
        return np.asarray(total - self.means * total[0])
