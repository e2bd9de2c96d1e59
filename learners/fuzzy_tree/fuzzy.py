"""Strong triangular fuzzy partitions, and the records' activations of a tree's nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privfed.errors import InputError
from privfed.learners.parameters import Allowed, Integers
from privfed.questions.cells import Path
from privfed.questions.part import GRID
from privfed.tables.schema import Schema

Peaks = tuple[float, ...]  #: Peaks of one feature's sets, from 0 to 1, rising
LEAST = float(GRID)  #: Minimum activation: sums truncate smaller ones to zero
MOST_SETS = 99  #: Maximum sets of a feature
MIN_DISTANCE = 1e-4  #: Minimum distance of neighbouring peaks
CELLS = 2**17  #: Maximum values of an array processed at once, unless one record has more
ACTIVATIONS = 2**20  #: Maximum activations in memory, unless one record has more
#: Names of a partition's sets by number of sets, from low to high.
LABELS = {
    2: ("Low", "High"),
    3: ("Low", "Medium", "High"),
    4: ("VeryLow", "Low", "High", "VeryHigh"),
    5: ("VeryLow", "Low", "Medium", "High", "VeryHigh"),
}


def labels(sets: int) -> tuple[str, ...]:
    """Return linguistic names of the sets."""
    return LABELS.get(sets, tuple(f"Set{number + 1}" for number in range(sets)))


@dataclass(frozen=True, eq=False)
class Memberships:
    """Memberships of scaled values in their features' triangular sets.

    A value u in [0, 1] between the peaks j / (T - 1) and (j + 1) / (T - 1) has membership 1 - rest in set j, rest in
    set j + 1, and none in others. The two sum to 1 (strong partition).
    """

    #: index j of the lower set, uint8 (there are fewer than a hundred), shape (records, features)
    below: np.ndarray
    rest: np.ndarray  #: membership in the upper set, in [0, 1]

    @classmethod
    def from_unit(cls, unit: np.ndarray, sets: int | Sequence[int]) -> Memberships:
        """Compute memberships of (records, features) in [0, 1] in uniform triangular sets (paper, Section 3.1)."""
        counts = np.asarray(sets)
        stretched = unit * (counts - 1)
        below = np.minimum(stretched.astype(np.int64), counts - 2).astype(np.uint8)
        return cls(below, stretched - below)

    @classmethod
    def from_peaks(cls, unit: np.ndarray, peaks: Sequence[Peaks]) -> Memberships:
        """Compute the same in triangular sets with any peaks, by feature; values beyond the outermost peaks are in one set."""
        below, rest = np.empty(unit.shape, np.uint8), np.empty(unit.shape)
        for column, own in enumerate(peaks):
            values, at = unit[:, column], np.array(own)
            lower = np.clip(np.searchsorted(at, values, side="right") - 1, 0, len(at) - 2)
            degree = (values - at[lower]) / (at[lower + 1] - at[lower])
            below[:, column], rest[:, column] = lower, np.clip(degree, 0.0, 1.0)
        return cls(below, rest)

    def degree(self, rows: np.ndarray, feature: int, fuzzy_set: int) -> np.ndarray:
        """Return some records' membership in one set of one feature."""
        below, rest = self.below[rows, feature], self.rest[rows, feature]
        degree: np.ndarray = np.where(below == fuzzy_set, 1 - rest, 0.0)
        return np.where(below == fuzzy_set - 1, rest, degree)


class Sets(Allowed):
    """Numbers of fuzzy sets: an integer, one per feature, or some by name."""

    words = "a whole number from 2 to 99, a list of them, or a table of them by feature"
    example = "5"

    def holds(self, value: Any) -> bool:
        """See the base."""
        if isinstance(value, Mapping):
            return all(isinstance(name, str) and _TWO.holds(item) for name, item in value.items())
        if isinstance(value, list | tuple):
            return bool(value) and all(_TWO.holds(item) for item in value)
        return _TWO.holds(value)


_TWO = Integers(at_least=2, at_most=MOST_SETS)
_UNNAMED = 5  #: Number of sets of features that are not in the table


def sets_of(sets: int | Sequence[int] | Mapping[str, int], schema: Schema) -> tuple[int, ...]:
    """Return fuzzy sets by feature (InputError: a list of wrong length; SchemaError: an unknown name)."""
    names = schema.names
    if isinstance(sets, Mapping):
        for name in sets:
            schema.column(name)
        return tuple(int(sets.get(name, _UNNAMED)) for name in names)
    if isinstance(sets, Sequence):
        if len(sets) != len(names):
            raise InputError(
                f"sets lists {len(sets)} numbers for {len(names)} features ({', '.join(names)}); "
                "write one for each, in this order, or a table by name"
            )
        return tuple(int(count) for count in sets)
    return (int(sets),) * len(names)


def to_unit(X: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Scale features to [0, 1] and clip; a feature of zero width is 0."""
    width = upper - lower
    scaled = (X - lower) / np.where(width > 0, width, 1.0)
    return np.asarray(np.clip(np.where(width > 0, scaled, 0.0), 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class Activation:
    """The records that activate one node, with their activations (paper, Eq. 3: a product)."""

    #: positions of the records with w > 0 (at least a grid unit)
    rows: np.ndarray
    weight: np.ndarray  #: their activations w, in (0, 1]

    def into(self, memberships: Memberships, feature: int, fuzzy_set: int) -> Activation:
        """Return the child's activation by one set of one feature."""
        weight = self.weight * memberships.degree(self.rows, feature, fuzzy_set)
        active = weight >= LEAST
        return Activation(self.rows[active], weight[active])


def activations(
    memberships: Memberships, paths: Sequence[Path], records: range | None = None
) -> list[Activation]:
    """Return each node's activation, given its path from the root; ancestors are computed once."""
    rows = np.arange(len(memberships.below)) if records is None else np.array(records, np.int64)
    known: dict[Path, Activation] = {(): Activation(rows, np.ones(len(rows)))}
    for path in paths:
        for step in range(1, len(path) + 1):
            if path[:step] not in known:
                known[path[:step]] = known[path[: step - 1]].into(memberships, *path[step - 1])
    return [known[path] for path in paths]


def pieces(rows: int, width: int, limit: int | None = None) -> Iterator[slice]:
    """Yield slices of rows such that an array with ``width`` values per row has at most :data:`CELLS` values."""
    step = max(1, (CELLS if limit is None else limit) // max(width, 1))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def reached_nodes(paths: Sequence[Path]) -> tuple[int, int]:
    """Return the maximum number of nodes and ancestors that one record reaches, and their total number."""
    steps = Counter(
        len(path) for path in {path[:k] for path in paths for k in range(len(path) + 1)}
    )
    return sum(min(2**k, nodes) for k, nodes in steps.items()), sum(steps.values())


def blocks(
    memberships: Memberships, paths: Sequence[Path], width: int = 1
) -> Iterator[tuple[range, list[Activation]]]:
    """Yield activations of nodes of one tree, in blocks of records with bounded memory.

    A record reaches at most 2^k of the nodes k steps below the root, so that a block's activations, including
    ancestors', are at most :data:`ACTIVATIONS` unless one record has more.

    Args:
        memberships: of all records.
        paths: nodes, by their paths from the root.
        width: values per record that the caller has in memory.

    Yields:
        the records of a block, and every node's activation by them, rows counted in the whole table.
    """
    max_nodes, _ = reached_nodes(paths)
    for part in pieces(len(memberships.below), max(max_nodes, 8 * width), ACTIVATIONS):
        records = range(part.start, part.stop)
        yield records, activations(memberships, paths, records)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of a node and a record that activates it, grouped by node."""

    node: np.ndarray  #: the node's number
    row: np.ndarray  #: the record's position
    weight: np.ndarray  #: its activation of the node

    @classmethod
    def of(cls, memberships: Memberships, paths: Sequence[Path], width: int) -> Iterator[Pairs]:
        """Yield all pairs in pieces, for a caller with ``width`` values per pair in memory."""
        for _, active in blocks(memberships, paths):
            node = np.repeat(np.arange(len(active)), [len(a.rows) for a in active])
            row = np.concatenate([a.rows for a in active])
            weight = np.concatenate([a.weight for a in active])
            for part in pieces(len(row), width):
                yield cls(node[part], row[part], weight[part])

    def cells(
        self, memberships: Memberships, features: np.ndarray, sets: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield both cells of each pair by feature: flat (node, feature, set) index and membership."""
        below = memberships.below[np.ix_(self.row, features)]
        rest = memberships.rest[np.ix_(self.row, features)]
        key = (self.node[:, None] * len(features) + np.arange(len(features))) * sets + below
        yield key, self.weight[:, None] * (1 - rest)
        yield key + 1, self.weight[:, None] * rest
