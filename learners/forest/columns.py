"""A client's records as sortable integers: one key per value, of 32 bits if that leaves room for nodes.

A key has, from the highest bits down: the node (within a block of trees), the value's rank among the client's, and the
class, if any. One sort of a block sorts every node's values.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from privfed.errors import Note
from privfed.questions.part import on_grid
from privfed.tables.records import Records, nearest_class
from privfed.tables.schema import Schema

#: One unit of a sum of targets, which lie in [-1/2, 1/2], and of their squares.
TARGET_GRID = Fraction(1, 2**20)
#: Maximum bits of a 32-bit key below the node: with more, too few nodes can be sorted at once.
WIDEST = 22
LARGEST = float(np.finfo(np.float32).max)  #: Maximum 32-bit float of values and cuts
COARSE = (
    1e-3  #: Spacing of such floats, in widths of a column's bounds, from which users are warned
)
_SIGN = np.int32(-(2**31))


def ordered(values: np.ndarray) -> np.ndarray:
    """Map 32-bit floats to unsigned integers in the same order (-0.0 as 0.0)."""
    bits = (np.asarray(values, np.float32) + np.float32(0)).view(np.int32)
    return np.asarray(bits ^ _flip_mask(bits)).view(np.uint32)


def unordered(bits: np.ndarray) -> np.ndarray:
    """Invert :func:`ordered`."""
    signed = bits.astype(np.uint32).view(np.int32)
    return np.asarray(signed ^ _flip_mask(~signed)).view(np.float32)


def _flip_mask(bits: np.ndarray) -> np.ndarray:
    """Return the bits to flip: all of a negative number's, else the sign."""
    return np.asarray((bits >> np.int32(31)) | _SIGN)


@dataclass(frozen=True, eq=False)
class Columns:
    """A client's records, prepared once."""

    values: np.ndarray  #: 32-bit floats, shape (features, records)
    ascending: np.ndarray  #: the values by :func:`ordered`, each row sorted
    keys: np.ndarray  #: ranks above the payload, shape (features, records), unsigned
    payload: int  #: number of bits of the class
    target: np.ndarray  #: class codes, or targets in integer units, shape (records,)
    sums: np.ndarray  #: for a regression the targets by rank, shape (features, records)
    classes: int  #: number of classes; 1: only record counts, 0: a regression

    @classmethod
    def of(cls, records: Records, classes: int) -> Columns:
        """Build from records; see :func:`encoded_target`."""
        values = single(records.x.T)
        features, size = values.shape
        target = encoded_target(records, classes)
        payload = max(classes - 1, 0).bit_length()
        pairs = ordered(values).astype(np.uint64) << np.uint64(32)
        pairs |= np.arange(size, dtype=np.uint64)
        pairs.sort(axis=1)
        order = (pairs & np.uint64(2**32 - 1)).astype(np.intp)
        narrow = size.bit_length() + payload <= WIDEST
        keys = np.empty((features, size), np.uint32 if narrow else np.uint64)
        ranks = np.broadcast_to(np.arange(size, dtype=keys.dtype), keys.shape)
        np.put_along_axis(keys, order, ranks, axis=1)
        if payload:
            keys <<= keys.dtype.type(payload)
            keys |= target.astype(keys.dtype)
        ascending = (pairs >> np.uint64(32)).astype(np.uint32)
        sums = target[:0] if classes else target[order]
        return cls(values, ascending, keys, payload, target, sums, classes)

    @property
    def records(self) -> int:
        """Number of records."""
        return int(self.values.shape[1])

    @cached_property
    def cells(self) -> np.ndarray:
        """Category and, in lower bits, class as one number, shape (features, records)."""
        codes = self.values.astype(np.int64)
        codes = codes * self.classes + self.target if self.classes else codes
        return codes.astype(np.int32)

    @property
    def bits(self) -> int:
        """Number of bits of a key below the node; ranks go up to the number of records."""
        return self.records.bit_length() + self.payload

    @property
    def room(self) -> int:
        """Maximum number of nodes in a block of keys."""
        return 1 << (8 * self.keys.itemsize - self.bits)

    def bases(self, features: np.ndarray) -> np.ndarray:
        """Return offsets from keys of consecutive nodes, shifted by the payload, to a (features, records) table."""
        nodes = np.arange(len(features)) << (self.bits - self.payload)
        return np.asarray(features.astype(np.intp) * self.records - nodes)

    @cached_property
    def steps(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Each feature's distinct values by :func:`ordered`, and the smallest keys from each on, and above all."""
        steps = []
        for row in self.ascending:
            first = np.flatnonzero(np.diff(row, prepend=~row[:1]))
            ranks = np.append(first, len(row)).astype(self.keys.dtype)
            steps.append((row[first], ranks << self.keys.dtype.type(self.payload)))
        return steps

    def above(self, cuts: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Return the smallest keys above cuts, shape (pairs, cuts), with one feature per pair."""
        keys, bits = np.empty(cuts.shape, self.keys.dtype), ordered(cuts)
        for feature in np.unique(features):
            pairs = np.flatnonzero(features == feature)
            values, min_keys = self.steps[feature]
            keys[pairs] = min_keys.take(values.searchsorted(bits[pairs], "right"))
        return keys


def single(values: np.ndarray) -> np.ndarray:
    """Return values as finite 32-bit floats, row-major."""
    return np.ascontiguousarray(np.clip(values, -LARGEST, LARGEST), dtype=np.float32)


def note_far_from_zero(schema: Schema) -> None:
    """Warn of columns so far from zero that 32-bit floats, by which trees split, hardly resolve their values."""
    for column in schema.features:
        low, high = column.bounds
        gap = float(np.spacing(single(np.array([max(abs(low), abs(high))])))[0])
        if gap > COARSE * (high - low):
            warnings.warn(
                f"trees split by 32-bit floats, which lie {gap:.3g} apart where {column.name!r} is, and its bounds "
                f"{high - low:.3g}: subtract a public number first, {low:.15g} say, from values and bounds",
                Note,
                stacklevel=5,
            )


def encoded_target(records: Records, classes: int) -> np.ndarray:
    """Return class codes from 0, or the target in integer units of the scaled interval [-1/2, 1/2]."""
    if classes == 1:
        return np.zeros(len(records), dtype=np.int64)
    assert records.schema.target is not None
    low, high = records.schema.target.bounds
    if classes:
        return nearest_class(records.target, low, classes)
    unit = np.clip((records.target - low) / (high - low) - 0.5, -0.5, 0.5)
    return on_grid(unit, TARGET_GRID).astype(np.int64)


def class_count(schema: Schema) -> int:
    """Return the number of classes of the schema's target: categories, or at most 100 integers; else 0."""
    target = schema.target
    if target is None:
        return 0
    low, high = map(float, target.bounds)
    return int(high - low) + 1 if low.is_integer() and high.is_integer() and high - low < 100 else 0
