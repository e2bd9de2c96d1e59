"""Public facts of one named array of an answer, including its derived sensitivity.

The sensitivity bounds its change by *records*, in grid units; the query derives it from public
values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from operator import index
from typing import Literal

import numpy as np

from privfed.errors import PolicyError, QueryError

Relation = Literal["add-or-remove", "replace-one"]
Unit = Literal["record", "rule", "individual", "client"]

GRID = Fraction(1, 2**30)  #: Of sums: each record's contributions are truncated to it


class PartType(StrEnum):
    """The type of an array of an answer."""

    COUNTS = "counts"  #: integer numbers of records
    SUMS = "sums"  #: sums of bounded contributions, on a grid
    BITS = "bits"  #: one bit or row of bits for each individual of a cohort
    SCORES = "scores"  #: sums that a selection compares
    VALUES = "values"  #: order statistics and the like: no finite sensitivity
    ARTIFACT = "artifact"  #: trees, rules: no finite sensitivity

    @property
    def adds_up(self) -> bool:
        """Whether such numbers are sums of the records' contributions."""
        return self in (PartType.COUNTS, PartType.SUMS, PartType.SCORES)


@dataclass(frozen=True)
class Bound:
    """Norms of a part's largest change, in integer grid units: L1 and squared L2."""

    l1: int
    l2_squared: int

    def __post_init__(self) -> None:
        for name in ("l1", "l2_squared"):  # numpy's integers overflow when they are squared
            object.__setattr__(self, name, _whole(getattr(self, name)))
        if self.l1 < 0 or self.l2_squared < 0 or self.l2_squared > self.l1**2:
            raise QueryError("malformed", "a bound needs 0 <= l2_squared <= l1 squared")

    def __add__(self, other: Bound) -> Bound:
        return Bound(self.l1 + other.l1, self.l2_squared + other.l2_squared)

    def times(self, steps: int) -> Bound:
        """Return the bound for ``steps`` changes of one record each (group privacy, triangle inequality)."""
        return Bound(self.l1 * steps, self.l2_squared * steps**2)


@dataclass(frozen=True)
class Sensitivity:
    """Bounds on a part's change when records change, by neighbouring relation and unit."""

    add_or_remove: Bound  #: one record added or removed
    replace_one: Bound | None = None  #: one record replaced; twice that unless derived tighter
    anything: Bound | None = None  #: all data of one individual replaced (local privacy)
    client: Bound | None = None  #: all data of one client added or removed, if the query bounds it

    @classmethod
    def of(cls, l1: int, l2_squared: int | None = None) -> Sensitivity:
        """Build from add-or-remove norms, in whole grid units; squared L2 is at most squared L1, and that unless given."""
        return cls(Bound(l1, l1**2 if l2_squared is None else l2_squared))

    def under(self, unit: Unit, relation: Relation, cap: int | None) -> Bound:
        """Return the bound for one unit of privacy, of at most ``cap`` records, under a relation.

        A bound for all data of an individual needs no cap. It is no bound for a client, which may
        hold many individuals. PolicyError: the unit needs a cap.
        """
        record = self.add_or_remove
        if relation == "replace-one":
            record = self.replace_one or self.add_or_remove.times(2)
        if unit in ("record", "rule"):
            return record
        if unit == "individual" and self.anything is not None:
            return self.anything
        if unit == "client" and self.client is not None:
            return self.client.times(1 if relation == "add-or-remove" else 2)
        if cap is None:
            raise PolicyError(
                f"unit {unit!r} needs cap = the most records of one {unit}; "
                "without it a person with many records is not covered"
            )
        return self._of(record, cap)

    def _of(self, record: Bound, cap: int) -> Bound:
        """Return the bound for ``cap`` records: replacing j by k replaces min(j, k), and adds or removes the rest."""
        single = self.add_or_remove
        larger = Bound(max(record.l1, single.l1), max(record.l2_squared, single.l2_squared))
        return larger.times(cap)


def _whole(units: int) -> int:
    try:
        return index(units)
    except TypeError:
        raise QueryError("malformed", "a bound needs whole numbers of grid units") from None


@dataclass(frozen=True)
class Part:
    """Public facts of one named array."""

    type: PartType  #: the type of its numbers
    axes: tuple[str, ...]  #: a name for each axis (``node``, ``feature``, ``set``, ``bin``, ...)
    shape: tuple[int, ...]  #: sizes; -1 depends on data (unprotected parts only)
    sensitivity: Sensitivity | None = None  #: None if no finite one exists
    grid: Fraction = Fraction(1)  #: value of one unit of the released integers

    def __post_init__(self) -> None:
        if len(self.axes) != len(self.shape):
            raise QueryError("malformed", "a part needs one axis name for each size")

    @property
    def exact(self) -> bool:
        """Whether the part's numbers are integers on a grid."""
        return self.type not in (PartType.VALUES, PartType.ARTIFACT)

    @property
    def size(self) -> int:
        """Number of cells; data-dependent sizes count as 1."""
        return math.prod(max(size, 1) if size < 0 else size for size in self.shape)

    def admits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of some shape is one of this part."""
        return len(shape) == len(self.shape) and all(
            size in (-1, actual) for size, actual in zip(self.shape, shape, strict=True)
        )


def as_declared(array: np.ndarray, part: Part) -> np.ndarray:
    """Check an exact array against its declared shape and type."""
    if not part.admits(array.shape):
        raise ValueError("an array does not have its declared shape")
    if not part.exact or array.dtype == bool:
        return array
    limit = 2**53  # an integer: as a float, 2^53 + 1 would pass, and a neighbour's cells be clipped
    if array.dtype == np.int64 and -limit <= array.min(initial=0) <= array.max(initial=0) <= limit:
        return array.copy()
    if array.dtype.kind == "f" and not np.array_equal(np.trunc(array), array):
        raise ValueError("an array on a grid must hold whole units")
    # clipping does not increase sensitivity, and avoids overflow
    whole: np.ndarray = np.clip(array, np.float64(-limit), np.float64(limit)).astype(np.int64)
    return whole


def on_grid(values: np.ndarray, grid: Fraction = GRID) -> np.ndarray:
    """Truncate each record's contributions to integer grid units, towards zero, in float64.

    Truncation, unlike rounding, has ``sum(floor(|v| / grid)) <= sum(|v|) / grid``, so an L1 bound
    on the values is one on the units. Sums are exact below 2^53.
    """
    scaled: np.ndarray = np.trunc(np.multiply(values, grid.denominator / grid.numerator))
    return scaled
