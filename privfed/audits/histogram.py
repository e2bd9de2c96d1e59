"""Counts by bin: the query that the canaries of a gate's audit answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.errors import QueryError
from privfed.questions.cells import check_edges
from privfed.questions.part import Bound, Part, PartType, Sensitivity
from privfed.questions.query import Query, View
from privfed.tables.schema import Schema


@dataclass(frozen=True)
class Histogram(Query):
    """Counts of one feature's records by bin.

    Sensitivity: bins are disjoint, so a record moves one count by one: L1 = 1, L2 = 1; replacing a
    record moves two counts by one: L1 = 2, squared L2 = 2.
    """

    feature: int
    edges: tuple[float, ...]
    kind: ClassVar[str] = "small.histogram"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One part, ``counts`` by bin."""
        if not 0 <= self.feature < len(schema.features):
            raise QueryError("malformed", "unknown feature")
        check_edges(np.array(self.edges))
        sensitivity = Sensitivity(Bound(1, 1), replace_one=Bound(2, 2))
        return {"counts": Part(PartType.COUNTS, ("bin",), (len(self.edges) - 1,), sensitivity)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count; values beyond the outer edges fall into the outer bins."""
        return {"counts": np.bincount(self._bins(view), minlength=len(self.edges) - 1)}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """One in the bin of the record's value."""
        return {"counts": self._bins(view)[:, None] == np.arange(len(self.edges) - 1)}

    def _bins(self, view: View) -> np.ndarray:
        inner = np.array(self.edges[1:-1])
        return np.searchsorted(inner, view.table.x[:, self.feature], side="right")
