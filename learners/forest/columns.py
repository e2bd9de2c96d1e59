"""A client's records as sortable integers: one 64-bit key for each value.

A key holds, from the highest bits down: the node (within a block of trees), the value's 32 bits in an
order-preserving form, and a payload: the class, or for a regression the record's number. One sort of
a block sorts every node's values.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from privfed.questions.part import on_grid
from privfed.tables.records import Records, nearest_class
from privfed.tables.schema import Schema

#: One unit of a sum of targets, which lie in [-1/2, 1/2], and of their squares.
TARGET_GRID = Fraction(1, 2**20)
LARGEST = float(np.finfo(np.float32).max)  #: Largest 32-bit float that values and cuts may have
_SIGN = np.int32(-(2**31))


def ordered(values: np.ndarray) -> np.ndarray:
    """32-bit floats as unsigned integers in the same order (and minus zero as zero)."""
    bits = (np.asarray(values, np.float32) + np.float32(0)).view(np.int32)
    return np.asarray(bits ^ _flipped(bits)).view(np.uint32)


def unordered(bits: np.ndarray) -> np.ndarray:
    """The inverse of :func:`ordered`."""
    signed = bits.astype(np.uint32).view(np.int32)
    return np.asarray(signed ^ _flipped(~signed)).view(np.float32)


def _flipped(bits: np.ndarray) -> np.ndarray:
    """The bits to flip: all of a negative number's, else the sign."""
    return np.asarray((bits >> np.int32(31)) | _SIGN)


@dataclass(frozen=True, eq=False)
class Columns:
    """A client's records, prepared once."""

    values: np.ndarray  #: 32-bit floats, shape (features, records)
    keys: np.ndarray  #: value bits above the payload, shape (features, records), unsigned 64-bit
    payload: int  #: how many bits it has
    target: np.ndarray  #: class codes, or targets in whole units, shape (records,)
    classes: int  #: number of classes; 1 counts records alone, 0 for a regression

    @classmethod
    def of(cls, records: Records, classes: int) -> Columns:
        """From records; see :func:`encoded_target`."""
        values = single(records.x.T)
        target = encoded_target(records, classes)
        below = target if classes else np.arange(len(records))
        payload = max(int(classes or len(records)) - 1, 1).bit_length()
        keys = (ordered(values).astype(np.uint64) << np.uint64(payload)) | below.astype(np.uint64)
        return cls(values, keys, payload, target, classes)

    @property
    def records(self) -> int:
        """How many records there are."""
        return int(self.values.shape[1])

    @cached_property
    def cells(self) -> np.ndarray:
        """Each category and below it the class, as one number, shape (features, records)."""
        whole = self.values.astype(np.int64)
        whole = whole * self.classes + self.target if self.classes else whole
        return whole.astype(np.int32)

    @property
    def room(self) -> int:
        """How many nodes a block of keys can tell apart."""
        return 1 << (32 - self.payload)


def single(values: np.ndarray) -> np.ndarray:
    """Values as finite 32-bit floats, row after row."""
    return np.ascontiguousarray(np.clip(values, -LARGEST, LARGEST), dtype=np.float32)


def encoded_target(records: Records, classes: int) -> np.ndarray:
    """Class codes from 0, or the target in whole units of the scaled interval [-1/2, 1/2]."""
    if classes == 1:
        return np.zeros(len(records), dtype=np.int64)
    assert records.schema.target is not None
    low, high = records.schema.target.bounds
    if classes:
        return nearest_class(records.target, low, classes)
    unit = np.clip((records.target - low) / (high - low) - 0.5, -0.5, 0.5)
    return on_grid(unit, TARGET_GRID).astype(np.int64)


def class_count(schema: Schema) -> int:
    """Number of classes of the schema's target: categories, or at most 100 integers; else 0."""
    target = schema.target
    if target is None:
        return 0
    low, high = map(float, target.bounds)
    return int(high - low) + 1 if low.is_integer() and high.is_integer() and high - low < 100 else 0
