"""The public geometry of a fuzzy regression tree.

Features are scaled to [0, 1] by bounds that the queries carry, and clipped; each has ``sets``
uniform triangular fuzzy sets, whose memberships sum to 1. A node's activation w is the product of
the memberships on its path, so nodes here are sets of steps. Normal equations use features and
target centred at 0, in [-1/2, 1/2].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privfed.attacks.base import PublicSchema, Table

Cell = frozenset[tuple[int, int]]  #: A node or cell, whatever the order of its (feature, set) steps

LEVEL, LEAVES, ACTIVATION = "fuzzy_tree.level", "fuzzy_tree.leaves", "fuzzy_tree.activation"


def cells(paths: Iterable[Iterable[Iterable[int]]]) -> list[Cell]:
    """The nodes of a query, as sets of steps."""
    return [frozenset((int(f), int(s)) for f, s in path) for path in paths]


@dataclass(frozen=True, eq=False)
class Geometry:
    """How a query scales features, and the number of fuzzy sets of each: ``partition``, or
    ``sets``; uniform ones, or with ``peaks`` by feature.
    """

    sets: int
    lower: np.ndarray
    upper: np.ndarray
    partition: tuple[int, ...] = ()
    peaks: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def of(cls, query: Mapping[str, Any]) -> Geometry:
        """Read it from a query's public values."""
        partition = tuple(int(sets) for sets in query.get("partition", ()))
        peaks = tuple(tuple(map(float, each)) for each in query.get("peaks", ()))
        return cls(int(query["sets"]), query["lower"], query["upper"], partition, peaks)

    @property
    def n_sets(self) -> np.ndarray:
        """Fuzzy sets of each feature, shape (features,)."""
        return np.array(self.partition or (self.sets,) * len(self.lower))

    def only(self, features: Sequence[int]) -> Geometry:
        """The geometry of some features, in their order."""
        chosen = list(features)
        partition = tuple(self.partition[feature] for feature in chosen) if self.partition else ()
        peaks = tuple(self.peaks[feature] for feature in chosen) if self.peaks else ()
        return Geometry(self.sets, self.lower[chosen], self.upper[chosen], partition, peaks)

    def unit(self, X: np.ndarray) -> np.ndarray:
        """Scale features to [0, 1] and clip, shape (records, features)."""
        width = self.upper - self.lower
        scaled = (X - self.lower) / np.where(width > 0, width, 1.0)
        return np.asarray(np.clip(np.where(width > 0, scaled, 0.0), 0.0, 1.0))

    def degrees(self, unit: np.ndarray) -> np.ndarray:
        """Memberships in every set, shape (records, features, sets)."""
        if self.peaks:
            degrees = np.zeros((*unit.shape, self.sets))
            for feature, peaks in enumerate(self.peaks):
                for number, row in enumerate(np.eye(len(peaks))):
                    degrees[:, feature, number] = np.interp(unit[:, feature], peaks, row)
            return degrees
        stretched = unit * (self.n_sets - 1)
        away = np.abs(stretched[..., None] - np.arange(self.sets))
        return np.asarray(np.maximum(0.0, 1 - away))


def weight(degrees: np.ndarray, cell: Cell) -> np.ndarray:
    """The activation of a node by every record, shape (records,)."""
    result = np.ones(len(degrees))
    for feature, fuzzy_set in cell:
        result = result * degrees[:, feature, fuzzy_set]
    return result


def centred_target(table: Table, schema: PublicSchema | None) -> np.ndarray | None:
    """A table's target scaled to [-1/2, 1/2] by the public bounds; None if unknown."""
    if schema is None or schema.target is None or table.y is None:
        return None
    low, high = schema.target.bounds
    return np.asarray((table.y - low) / (high - low) - 0.5)


def match(claims: np.ndarray, records: np.ndarray, tolerance: float) -> np.ndarray:
    """Which records some claim matches within ``tolerance`` in every coordinate, one record per claim."""
    hit = np.zeros(len(records), dtype=bool)
    order = np.argsort(records[:, -1])
    ranked, reach = records[order, -1], tolerance * (1 + 1e-9)
    for claim in claims:
        ends = np.searchsorted(ranked, [claim[-1] - reach, claim[-1] + reach])
        rows = np.sort(order[ends[0] : ends[1]])
        near = np.abs(records[rows] - claim).max(axis=1)
        free = np.flatnonzero((near <= tolerance) & ~hit[rows])
        if len(free):
            hit[rows[free[np.argmin(near[free])]]] = True
    return hit


def renamed(cell: Cell, features: Sequence[int]) -> Cell | None:
    """A node by its features' positions among some; None if it uses another."""
    position = {feature: number for number, feature in enumerate(features)}
    if any(feature not in position for feature, _ in cell):
        return None
    return frozenset((position[feature], fuzzy_set) for feature, fuzzy_set in cell)


def prefixes(paths: Sequence[Sequence[Sequence[int]]]) -> dict[Cell, list[int]]:
    """For each node on the way to the leaves, the positions of the leaves below it."""
    below: dict[Cell, list[int]] = {}
    for position, path in enumerate(paths):
        for depth in range(len(path) + 1):
            (node,) = cells([path[:depth]])
            below.setdefault(node, []).append(position)
    return below
