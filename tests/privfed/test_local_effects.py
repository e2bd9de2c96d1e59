"""Local effects: a client may be told to keep something, and says nothing by doing so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from privfed import Gate, Guard, Schema
from privfed.part import Part
from privfed.query import Query, View
from privfed.release import Release, Request
from privfed.testing.gates import events, reply
from privfed.testing.queries import Histogram
from privfed.wire import encode

MakeGate = Callable[..., Gate]
COUNTS = Histogram(0, (0.0, 0.5, 1.0))


@dataclass(frozen=True)
class KeepMean(Query):
    """Keep the mean of a column; nothing leaves."""

    column: int
    kind: ClassVar[str] = "test.keep"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Nothing."""
        return {}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Put the mean on the shelf; an unknown column is an error."""
        view.shelf["mean"] = float(view.table.x[:, self.column].mean())
        return {}


@dataclass(frozen=True)
class Peek(Histogram):
    """A question with an answer that tries to read the shelf."""

    kind: ClassVar[str] = "test.peek"

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count as many in each bin as things are on the shelf."""
        return {"counts": np.full(2, len(view.shelf))}


GUARDS = {"test.keep": (Guard.of("open"),), "test.peek": (Guard.of("open"),)}


def _gate(make_gate: MakeGate, **settings: Any) -> Gate:
    return make_gate(GUARDS, queries=(KeepMean, Peek), **settings)


def test_what_is_kept_stays_with_the_owner_and_costs_nothing(make_gate: MakeGate) -> None:
    """The shelf is the owner's; the release has no parts, and the ledger counts it as free."""
    gate = _gate(make_gate, budget="0.1")
    said = reply(gate, Request.of("1", KeepMean(0)))
    assert isinstance(said, Release) and not said.parts
    assert 0 < gate.shelf["mean"] < 1
    assert events(gate) == ["reserved", "released"]
    spent = gate.ledger.spent(gate.accountant)
    assert not spent.unprotected and not any(spent.total)


def test_the_acknowledgement_is_the_same_whether_it_worked_or_not(make_gate: MakeGate) -> None:
    """An exception depends on data, and so it must not be heard; the owner finds it on the shelf."""
    gate = _gate(make_gate)
    good, bad = (reply(gate, Request.of(str(n), KeepMean(n))) for n in (0, 9))
    assert isinstance(good, Release) and isinstance(bad, Release)
    assert encode(replace(bad, request=good.request, query=good.query)) == encode(good)
    assert gate.shelf["failed"] == "test.keep"


def test_no_question_with_an_answer_reads_the_shelf(make_gate: MakeGate) -> None:
    """What was kept cannot be fetched by asking for it."""
    gate = _gate(make_gate)
    reply(gate, Request.of("1", KeepMean(0)))
    said = reply(gate, Request.of("2", Peek(0, COUNTS.edges)))
    assert isinstance(said, Release)
    assert said.parts["counts"].units.tolist() == [0, 0]
