"""A fitted private model: its scores, trees and step functions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privfed.learners.private.basis import Basis
from privfed.learners.private.synthetic_records import SyntheticSource
from privfed.learners.private.target_link import Outcome
from privfed.tables.schema import Schema


@dataclass(frozen=True, eq=False)
class PrivateModel:
    """F(x) = intercept + the weighted functions of a record."""

    schema: Schema  #: the public data dictionary
    outcome: Outcome  #: the link, and a number's limits
    basis: Basis  #: the functions
    weights: np.ndarray  #: shape (functions, outputs)
    start: np.ndarray  #: intercept, shape (outputs,)
    means: np.ndarray  #: of each unscaled function over the synthetic records, shape (functions,)
    deviations: np.ndarray  #: their std
    shares: np.ndarray  #: of the records by column and code, shape (columns, codes)
    ranked: bool  #: whether linear terms are mid-ranks of the codes
    limits: np.ndarray  #: between which each column's linear term rises, shape (columns, 2)
    rounds: int  #: gradients that it was fitted to
    records: float  #: about how many there were
    source: SyntheticSource  #: of synthetic records
    covariance: np.ndarray | None  #: of the first output's weights of the source's directions

    @cached_property
    def effects(self) -> np.ndarray:
        """Weights of the unscaled functions, shape (functions, outputs)."""
        return np.asarray(self.weights * self.basis.multipliers[:, None])

    def scores(self, x: np.ndarray) -> np.ndarray:
        """F of encoded records, shape (rows, outputs), block by block."""
        basis = self.basis
        found = np.empty((len(x), len(self.start)))
        for chosen in basis.blocks(len(x)):
            found[chosen] = basis.scores(basis.cells(basis.grid.codes(x[chosen])), self.weights)
        return np.asarray(self.start + found)

    def predictions(self, x: np.ndarray) -> np.ndarray:
        """Probabilities by class, or numbers on the common scale; shape (rows, outputs)."""
        return self.outcome.predictions(self.scores(x))

    def trees(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The trees as a forest reads them.

        Yields:
            columns of the levels, shape (depth,); thresholds, right being ``x >= threshold``, shape (depth,),
            infinite where a level does not split; and leaves' scores, shape (2^depth, outputs), the first
            level being the lowest bit of a leaf's number.
        """
        basis, effects = self.basis, self.effects
        group = basis.columns
        for trees in basis.trees:
            for features, cuts in zip(trees.features, trees.cuts, strict=True):
                start = int(basis.starts[group])
                values = [
                    self._cut(int(f), int(cut)) for f, cut in zip(features, cuts, strict=True)
                ]
                yield features, np.array(values), effects[start : start + trees.leaves]
                group += 1

    def _cut(self, column: int, code: int) -> float:
        own = self.basis.grid.cuts[column]
        if code == 0:
            return -math.inf
        return own[code - 1] if code <= len(own) else math.inf

    def steps(self, column: int) -> tuple[np.ndarray, np.ndarray]:
        """What a column alone adds to the scores.

        Returns:
            rising thresholds, shape (cuts,), and what each interval between them adds (a linear term at
            the interval's middle), shape (cuts + 1, outputs).
        """
        basis, effects = self.basis, self.effects
        cuts = np.array(basis.grid.cuts[column])
        codes = np.arange(len(cuts) + 1)
        places = basis.starts[column] + basis.bins[column, codes].astype(np.intp)
        lines = np.multiply.outer(basis.values[column, codes], effects[column])
        return cuts, effects[places] + lines
