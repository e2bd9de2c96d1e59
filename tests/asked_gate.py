"""Asking a gate in a test as a network would: by bytes, and reading its ledger afterwards."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privfed.exchange.messages import Reason, Refusal, Reply, Request
from privfed.owner.gate import Gate, open_reply
from privfed.questions import wire
from privfed.questions.part import Bound, Part, PartType, Sensitivity
from privfed.questions.query import Query, View
from privfed.tables.schema import Schema
from privfed.testing.queries import Histogram, LevelSums

MakeGate = Callable[..., Gate]
HALVES = Histogram(0, (0.0, 0.5, 1.0))
LEVEL = LevelSums((((0, 0),), ((0, 1),)))


def request(id: str = "1", query: Query = HALVES, **fields: Any) -> Request:
    """Ask a question under an id."""
    return Request.of(id, query, **fields)


def reply(gate: Gate, request: Request) -> Reply:
    """Pass a request's bytes through a gate and read the reply's."""
    return open_reply(gate.serve(wire.encode(request)))


def reason(gate: Gate, request: Request) -> Reason | None:
    """Why a gate refuses a request; none if it does not."""
    answered = reply(gate, request)
    return answered.reason if isinstance(answered, Refusal) else None


def events(gate: Gate) -> list[str]:
    """What happened at a gate, in order: the ledger's events without its notes."""
    notes = ("begun", "policy")
    return [entry.event for entry in gate.ledger.entries() if entry.event not in notes]


@dataclass(frozen=True)
class Watched(Query):
    """A count that tells a test when it is evaluated, and misbehaves as the test sets it.

    Sensitivity: a record moves the count by one. ``behave`` and ``declare`` are for a test to replace.
    """

    number: int = 0
    kind: ClassVar[str] = "test.watched"
    evaluated: ClassVar[list[int]] = []
    behave: ClassVar[Callable[[View], Any]] = lambda view: np.array([len(view.table)])
    declare: ClassVar[Callable[[], Any]] = lambda: None

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One count."""
        type(self).declare()
        return {"counts": Part(PartType.COUNTS, ("all",), (1,), Sensitivity(Bound(1, 1)))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count, and remember having been asked."""
        self.evaluated.append(self.number)
        return {"counts": type(self).behave(view)}
