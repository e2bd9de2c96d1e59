"""A disclosure without gates, for baselines and for measuring the cost of gates.

It has exact answers and no policy, accountant or ledger, and protects no record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd

from privfed.exchange.disclosure import DirectDisclosure, unprotected
from privfed.exchange.messages import Reply
from privfed.questions.query import LocalEffect, LocalView, Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Schema


class UngatedDisclosure(DirectDisclosure):
    """Evaluates queries on each client's records directly."""

    def __init__(self, records: Mapping[str, Records]) -> None:
        self.clients = tuple(records)
        self.schema = next(iter(records.values())).schema
        #: Local effects' storage at each client.
        self.shelves: dict[str, dict[str, Any]] = {name: {} for name in records}
        self._views = {
            name: View(client_records, self.schema, name.encode())
            for name, client_records in records.items()
        }

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, schema: Schema, client: str | None = None
    ) -> UngatedDisclosure:
        """Split a table by its client column; None pools all records in one client."""
        if client is None:
            return cls({"pooled": Records.from_frame(frame, schema)})
        groups = frame.groupby(frame[client].astype(str), sort=False)
        return cls({str(name): Records.from_frame(part, schema) for name, part in groups})

    def _offers(
        self, query: Query, clients: Sequence[str], spend: Fraction | None
    ) -> Sequence[str]:
        return clients

    def _reply(self, client: str, query: Query) -> Reply:
        if isinstance(query, LocalEffect):
            view = self._views[client]
            query.take_effect(
                LocalView(view.records, view.schema, view.secret, shelf=self.shelves[client])
            )
        exact = query.evaluate(self._views[client])
        parts = {
            name: exact[name].astype(np.int64)
            if part.exact and exact[name].dtype.kind == "f"
            else exact[name]
            for name, part in query.parts(self.schema).items()
        }
        return unprotected(client, "ungated", query, self.schema, parts)
