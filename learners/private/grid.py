"""Shared thresholds, by which a record gets a small integer code per column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privfed.errors import QueryError
from privfed.tables.schema import Column, Schema

MOST_CUTS = 250  #: Maximum thresholds of one column: codes must fit a byte
WHOLE = 32  #: Maximum number of integer values with a bin each
APART = 2.0**-40  #: Minimum distance of thresholds, as a fraction of the bounds' distance


def one_bin_each(column: Column, whole: int = WHOLE) -> bool:
    """Whether every value of the column has its own bin from the start: at most ``whole`` integers, or a category."""
    low, high = column.bounds
    limit = MOST_CUTS if column.kind == "category" else whole
    return column.kind != "number" and np.floor(high) - np.ceil(low) + 1 <= limit


def first_cuts(column: Column, bins: int, whole: int = WHOLE) -> np.ndarray:
    """Return the first thresholds: one per value, or equal-width bins over the public bounds."""
    low, high = column.bounds
    if one_bin_each(column, whole):
        return np.arange(np.ceil(low) + 1, np.floor(high) + 1)
    return settled(np.linspace(low, high, bins + 1), column)


def settled(knots: np.ndarray, column: Column) -> np.ndarray:
    """Return distinct thresholds strictly inside the bounds; integers for integer columns."""
    low, high = column.bounds
    if column.kind != "number":
        knots = np.ceil(knots)
    knots = np.unique(knots)
    # as fractions of the bounds: far from zero, a bound minus 2^-40 of their distance rounds to the bound
    fractions = (knots - low) / (high - low)
    inside = (fractions > APART) & (fractions <= 1 - APART)
    knots, fractions = knots[inside], fractions[inside]
    kept = np.diff(fractions, prepend=-1.0) > APART
    return np.asarray(knots[kept])


@dataclass(frozen=True, eq=False)
class BinEdges:
    """The shared thresholds."""

    cuts: tuple[tuple[float, ...], ...]  #: increasing thresholds of each column; possibly none

    @classmethod
    def from_arrays(cls, inner: list[np.ndarray]) -> BinEdges:
        """Build from one array per column."""
        return cls(tuple(tuple(float(cut) for cut in column) for column in inner))

    def check(self, schema: Schema, columns: int) -> None:
        """Raise QueryError for a wrong number of columns, too many thresholds, or ones that do not increase."""
        if len(self.cuts) != columns:
            raise QueryError("malformed", f"cut-offs are needed for {columns} columns")
        for cuts in self.cuts:
            if len(cuts) > MOST_CUTS or not np.isfinite(cuts).all():
                raise QueryError("malformed", f"at most {MOST_CUTS} finite cut-offs a column")
            if not (np.diff(cuts) > 0).all():
                raise QueryError("false-partition", "cut-offs must rise, or bins overlap")

    @property
    def sizes(self) -> np.ndarray:
        """Number of bins of each column, shape (columns,)."""
        return np.array([len(cuts) + 1 for cuts in self.cuts])

    def codes(self, X: np.ndarray) -> np.ndarray:
        """Return codes, with ``x >= cuts[k]`` exactly if ``code > k``; uint8, shape (columns, records)."""
        codes = np.empty((len(self.cuts), len(X)), np.uint8)
        for j, cuts in enumerate(self.cuts):
            codes[j] = np.searchsorted(np.array(cuts), X[:, j], side="right")
        return codes
