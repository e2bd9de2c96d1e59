"""Strong triangular fuzzy partitions, and the records' activations of a tree's nodes."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privfed.errors import InputError
from privfed.learners.parameters import Allowed, Integers
from privfed.questions.cells import Path
from privfed.questions.part import GRID
from privfed.tables.schema import Schema

#: Weaker activations are none: sums floor them to zero.
LEAST = float(GRID)
#: Names of the sets of a partition with as many sets, from low to high.
LABELS = {
    2: ("Low", "High"),
    3: ("Low", "Medium", "High"),
    4: ("VeryLow", "Low", "High", "VeryHigh"),
    5: ("VeryLow", "Low", "Medium", "High", "VeryHigh"),
}


def labels(sets: int) -> tuple[str, ...]:
    """Linguistic names of the sets."""
    return LABELS.get(sets, tuple(f"Set{number + 1}" for number in range(sets)))


@dataclass(frozen=True, eq=False)
class Memberships:
    """Where each value of a scaled matrix lies between the peaks of its feature's sets.

    A value u in [0, 1] lies between the peaks j / (T - 1) and (j + 1) / (T - 1): it belongs to set j
    by 1 - rest and to set j + 1 by rest, and to no other. The two sum to 1 (strong partition).
    """

    #: index j of the set below, uint8 (sets are fewer than a hundred), shape (records, features)
    below: np.ndarray
    rest: np.ndarray  #: membership in the set above, in [0, 1]

    @classmethod
    def from_unit(cls, unit: np.ndarray, sets: int | Sequence[int]) -> Memberships:
        """Place values of [0, 1] among uniform triangular sets (paper, Section 3.1).

        Args:
            unit: shape (records, features).
            sets: how many, of every feature or by feature.
        """
        each = np.asarray(sets)
        stretched = unit * (each - 1)
        below = np.minimum(stretched.astype(np.int64), each - 2).astype(np.uint8)
        return cls(below, stretched - below)

    def degree(self, rows: np.ndarray, feature: int, fuzzy_set: int) -> np.ndarray:
        """Membership of some records in one set of one feature."""
        below, rest = self.below[rows, feature], self.rest[rows, feature]
        degree: np.ndarray = np.where(below == fuzzy_set, 1 - rest, 0.0)
        return np.where(below == fuzzy_set - 1, rest, degree)


class Sets(Allowed):
    """How many fuzzy sets each feature has: an integer, one for each, or some by name."""

    words = "a whole number from 2 to 99, a list of them, or a table of them by feature"
    example = "5"

    def holds(self, value: Any) -> bool:
        """See the base."""
        if isinstance(value, Mapping):
            return all(isinstance(name, str) and _TWO.holds(own) for name, own in value.items())
        if isinstance(value, list | tuple):
            return bool(value) and all(_TWO.holds(own) for own in value)
        return _TWO.holds(value)


_TWO = Integers(at_least=2, at_most=99)
#: Sets of the features that a table does not name.
_UNNAMED = 5


def sets_of(sets: int | Sequence[int] | Mapping[str, int], schema: Schema) -> tuple[int, ...]:
    """How many fuzzy sets each feature of a schema has.

    Raises:
        InputError: a list of another length than there are features.
        SchemaError: a name that the schema does not have.
    """
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
        return tuple(int(own) for own in sets)
    return (int(sets),) * len(names)


def to_unit(x: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Scale features to [0, 1] and clip; a feature without width is 0."""
    width = upper - lower
    scaled = (x - lower) / np.where(width > 0, width, 1.0)
    return np.asarray(np.clip(np.where(width > 0, scaled, 0.0), 0.0, 1.0))


@dataclass(frozen=True, eq=False)
class Activation:
    """The records that activate one node, and how strongly (paper, Eq. 3: a product)."""

    #: positions of the records with w > 0 (at least a grid unit, below which sums are blind)
    rows: np.ndarray
    weight: np.ndarray  #: their w, in (0, 1]

    def into(self, memberships: Memberships, feature: int, fuzzy_set: int) -> Activation:
        """The activation of the child by one set of one feature."""
        weight = self.weight * memberships.degree(self.rows, feature, fuzzy_set)
        reached = weight >= LEAST
        return Activation(self.rows[reached], weight[reached])


def activations(
    memberships: Memberships,
    paths: Sequence[Path],
    known: MutableMapping[Path, Activation] | None = None,
) -> list[Activation]:
    """The activation of each node, through its ancestors, each computed once.

    Args:
        memberships: of all records.
        paths: nodes, by their paths from the root.
        known: activations computed before; results are added to it.
    """
    known = {} if known is None else known
    records = len(memberships.below)
    known.setdefault((), Activation(np.arange(records), np.ones(records)))

    def reach(path: Path) -> Activation:
        if path not in known:
            known[path] = reach(path[:-1]).into(memberships, *path[-1])
        return known[path]

    return [reach(path) for path in paths]


def keep_only(known: MutableMapping[Path, Any], paths: Sequence[Path]) -> None:
    """Forget all activations but those of some nodes."""
    wanted = set(paths) | {()}
    for path in [path for path in known if path not in wanted]:
        del known[path]
