"""Messages about candidates: their structures, and how to score them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from privfed.errors import QueryError
from privfed.learners.genetic_tree.structures import (
    DEEPEST,
    MOST_FEATURES,
    length,
    pack,
    positions,
    unpack,
)
from privfed.tables.schema import Schema

MOST_GENES = 2**22  #: Maximum genes of one population, to bound a client's work

MOST_FOLDS = 20  #: Maximum folds of cross-validation, for the same reason

Held = Literal["share", "folds", "none"]


@dataclass(frozen=True, eq=False)
class Population:
    """Candidates of one depth, packed by :func:`structures.pack` as their connected nodes only."""

    codes: np.ndarray
    depth: int
    count: int

    @classmethod
    def of(cls, genes: np.ndarray, depth: int) -> Population:
        """Pack strings, shape (candidates, 2^depth - 1)."""
        return cls(pack(genes, depth), depth, len(genes))

    def check(self, schema: Schema) -> None:
        """Raise QueryError for an excessive depth or number, unknown features, or codes that are not trees."""
        check_depth(self.depth)
        if not 1 <= self.count <= MOST_GENES // length(self.depth):
            limit = MOST_GENES // length(self.depth)
            raise QueryError("malformed", f"candidates of this depth must number 1 to {limit}")
        codes, features = self.codes, len(schema.features)
        if codes.ndim != 1 or codes.dtype not in (np.uint8, np.int64):
            raise QueryError("malformed", "candidates are one row of bytes or whole numbers")
        if not self.count <= len(codes) <= self.count * length(self.depth):
            raise QueryError("malformed", "candidates have the wrong length")
        if codes.min() < 0 or codes.max() > features or features > MOST_FEATURES:
            raise QueryError("malformed", "candidates name unknown features")
        if self._positions[-1] != self.count * length(self.depth):
            raise QueryError("malformed", "candidates have the wrong length")

    @cached_property
    def _positions(self) -> np.ndarray:
        return positions(self.codes, self.depth)

    @cached_property
    def genes(self) -> np.ndarray:
        """The strings, shape (candidates, 2^depth - 1)."""
        return unpack(self.codes, self._positions, self.depth)


@dataclass(frozen=True)
class Scoring:
    """How a client scores a candidate on its own records."""

    classify: bool  #: whether the target is a class (macro F1) or a number
    #: held-out records: the ``share`` that trees are not fitted to (as in the paper), each of the
    #: ``folds`` in turn, or ``none``
    held: Held = "share"
    train_share: float = 0.8  #: r, the fraction of the records that trees are fitted to
    folds: int = 5  #: K
    bounded: bool = False  #: for numbers, R^2 clipped to [-1, 1] instead of the mean squared error

    def check(self, schema: Schema) -> None:
        """Raise QueryError if a value is out of its range, or the target does not fit."""
        if self.held not in ("share", "folds", "none"):
            raise QueryError("malformed", "held must be share, folds or none")
        if not 0 < self.train_share < 1 or not 2 <= self.folds <= MOST_FOLDS:
            raise QueryError("malformed", "train_share lies between 0 and 1, folds 2 to 20")
        if schema.target is None or (self.classify and not classes(schema)):
            raise QueryError("malformed", "the target does not fit: classes or numbers")


def classes(schema: Schema) -> int:
    """Return the target's number of classes: its categories, or two for numbers 0 and 1; else 0."""
    target = schema.target
    if target is None:
        return 0
    if not target.numeric:
        return len(target.categories)
    return 2 if target.kind == "integer" and target.bounds == (0.0, 1.0) else 0


def check_depth(depth: int) -> None:
    """Raise QueryError unless strings can have the depth."""
    if not 1 <= depth <= DEEPEST:
        raise QueryError("malformed", f"trees have a depth from 1 to {DEEPEST}")
