"""Three small queries of three styles: counts by bin, sums by tree level, one bit per individual.

They test the core without a learner, and are examples for authors of plugins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.audits.histogram import Histogram
from privfed.errors import QueryError
from privfed.questions.cells import check_paths
from privfed.questions.part import GRID, Bound, Part, PartType, Sensitivity, on_grid
from privfed.questions.query import Query, View
from privfed.tables.schema import Schema

__all__ = ["AboveMiddle", "Histogram", "LevelSums"]


@dataclass(frozen=True)
class LevelSums(Query):
    """Sums of the target over the nodes of one level of a binary tree, split at middles.

    Sensitivity: a record reaches at most one node, and contributes its target scaled into [0, 1] on
    the grid: L1 = 1 / grid units. The false-partition check holds the nodes to one tree.
    """

    nodes: tuple[tuple[tuple[int, int], ...], ...]
    kind: ClassVar[str] = "small.level"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``counts`` and ``sums`` by node."""
        check_paths(self.nodes, len(schema.features), 2)
        if schema.target is None:
            raise QueryError("malformed", "the schema has no target")
        nodes, shape = ("node",), (len(self.nodes),)
        counts, sums = Sensitivity(Bound(1, 1), Bound(2, 2)), Sensitivity.of(int(1 / GRID))
        return {
            "counts": Part(PartType.COUNTS, nodes, shape, counts),
            "sums": Part(PartType.SUMS, nodes, shape, sums, GRID),
        }

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Sum by node."""
        inside, target = self._node_records(view)
        return {
            "counts": inside.sum(axis=1),
            "sums": np.array([target[mask].sum() for mask in inside]),
        }

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """Return one, and the target, in the node that each record reaches."""
        inside, target = self._node_records(view)
        return {"counts": inside.T, "sums": np.where(inside, target, 0.0).T}

    def _node_records(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        """Whether each record is in each node, shape (nodes, records), and the targets on the grid."""
        table, schema = view.table, view.schema
        assert schema.target is not None
        low, high = schema.target.bounds
        target = on_grid((table.target - low) / (high - low))
        right = table.x >= (schema.lower + schema.upper) / 2
        inside = np.ones((len(self.nodes), len(table)), dtype=bool)
        for node, path in enumerate(self.nodes):
            for feature, side in path:
                inside[node] &= right[:, feature] == bool(side)
        return inside, target

    def reveals(
        self, exact: Mapping[str, np.ndarray], view: View, strict: bool = False
    ) -> Mapping[str, np.ndarray]:
        """Mark nodes of one or two records."""
        few = (exact["counts"] > 0) & (exact["counts"] <= 2)
        return {"counts": few, "sums": few}


@dataclass(frozen=True)
class AboveMiddle(Query):
    """One bit from each individual of a cohort: whether the value is in the upper half.

    Each individual has a slot: its code, an integer from 0, or its row if the table has no individuals;
    individuals with other codes are not queried. Several records of one individual are combined by "or".
    Empty slots answer no, so that the number of individuals is not disclosed.

    Sensitivity: replacing the records of one slot changes one bit: L1 = 1. Adding or removing a
    record, or moving it to another individual, can shift all later slots: all bits.
    """

    feature: int
    people: int
    kind: ClassVar[str] = "small.bit"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Declare ``bits``, one for each individual."""
        if not 0 <= self.feature < len(schema.features) or self.people < 1:
            raise QueryError("malformed", "unknown feature, or nobody asked")
        all_bits = Bound(self.people, self.people)
        sensitivity = Sensitivity(all_bits, all_bits, anything=Bound(1, 1))
        return {"bits": Part(PartType.BITS, ("individual",), (self.people,), sensitivity)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Compare each individual's value with the midpoint of the public bounds."""
        low, high = view.schema.features[self.feature].bounds
        table = view.table
        slots = np.arange(len(table)) if table.individual is None else table.individual
        above = table.x[:, self.feature] >= (low + high) / 2
        bits = np.zeros(self.people, dtype=bool)
        bits[slots[above & (slots >= 0) & (slots < self.people)]] = True
        return {"bits": bits}
