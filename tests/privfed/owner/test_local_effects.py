"""Local effects: a client may be told to keep something, and says nothing by doing so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from privfed import Gate, Guard, Ledger, Policy, Schema
from privfed.engines.local import LocalDisclosure
from privfed.errors import PolicyError, QueryError
from privfed.exchange.messages import Reason, Refusal, Release, Request
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners.base import Planned
from privfed.owner import gate as gate_module
from privfed.owner import local_store
from privfed.owner.local_store import LocalStore
from privfed.questions.query import LocalEffect, LocalView, View
from privfed.questions.wire import encode
from privfed.study.price import price, priced
from privfed.tables.records import Records
from privfed.testing.queries import Histogram
from tests.asked_gate import MakeGate, events, reason, reply

COUNTS = Histogram(0, (0.0, 0.5, 1.0))


@dataclass(frozen=True)
class KeepMean(LocalEffect):
    """Keep the mean of a column, and how often it was kept."""

    column: int
    kind: ClassVar[str] = "test.keep"

    def check(self, schema: Schema) -> None:
        """Hold the column to what a schema could have; one too many goes wrong at the client."""
        if not 0 <= self.column <= len(schema.features):
            raise QueryError("malformed", "unknown column")

    def take_effect(self, view: LocalView) -> None:
        """Put both on the shelf, and something into the cache."""
        view.shelf["times"] = view.shelf.get("times", 0) + 1
        view.shelf["mean"] = float(view.table.x[:, self.column].mean())
        view.cache["seen"] = view.shelf["mean"]


@dataclass(frozen=True)
class Peek(Histogram):
    """A question with an answer that tries to read what was kept."""

    kind: ClassVar[str] = "test.peek"

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count as many in each bin as it could find."""
        found = len(getattr(view, "shelf", ())) + len(view.cache)
        return {"counts": np.full(2, found)}


GUARDS: dict[str, tuple[Guard, ...]] = {"test.keep": (), "test.peek": (Guard.of("open"),)}


def _gate(make_gate: MakeGate, **settings: Any) -> Gate:
    return make_gate(GUARDS, queries=(KeepMean, Peek), **settings)


def test_what_is_kept_stays_with_the_owner_and_costs_nothing(make_gate: MakeGate) -> None:
    """The shelf is the owner's; the release has no parts, and the ledger counts it as free."""
    gate = _gate(make_gate, budget="0.1")
    said = reply(gate, Request.of("1", KeepMean(0)))
    assert isinstance(said, Release) and not said.parts
    assert 0 < gate.shelf["mean"] < 1
    assert not dict(gate.faults)  # not even a count of 0, of which a page would tell
    assert events(gate) == ["reserved", "released"]
    spent = gate.ledger.spent(gate.accountant)
    assert not spent.unprotected and not any(spent.total)


def test_the_acknowledgement_is_the_same_whether_it_worked_or_not(make_gate: MakeGate) -> None:
    """An exception depends on data, and so it must not be heard; only the owner learns of it.

    Of what failed nothing is kept, not even the half that worked.
    """
    gate = _gate(make_gate)
    good, bad = (reply(gate, Request.of(str(n), KeepMean(n))) for n in (0, 2))
    assert isinstance(good, Release) and isinstance(bad, Release)
    assert encode(replace(bad, request=good.request, query=good.query)) == encode(good)
    assert gate.shelf.failed == gate.faults == {"test.keep": 1}
    assert gate.shelf["times"] == 1


def test_an_effect_waits_for_another_study_s_and_one_that_waits_in_vain_is_told_to_its_owner(
    make_gate: MakeGate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two gates of one ledger share a shelf; what trains on one for minutes does not undo what is kept by the other."""
    assert local_store.PATIENCE >= 1800
    monkeypatch.setattr(local_store, "PATIENCE", 0.05)
    gate = _gate(make_gate, ledger=Ledger(tmp_path / "ledger.db"))
    assert gate.shelf.path is not None
    other = LocalStore(gate.shelf.path, gate.shelf.dataset)
    with other._transaction():
        assert isinstance(reply(gate, Request.of("1", KeepMean(0))), Release)
        assert not LocalStore(gate.shelf.path, gate.shelf.dataset).faults  # read meanwhile
    assert gate.faults == {"test.keep": 1} and "mean" not in gate.shelf
    reply(gate, Request.of("2", KeepMean(0)))
    assert gate.faults == {"test.keep": 1} and gate.shelf["times"] == 1


def test_no_question_with_an_answer_reads_the_shelf(make_gate: MakeGate) -> None:
    """What was kept cannot be fetched by asking for it: neither by the shelf nor by the cache."""
    gate = _gate(make_gate)
    reply(gate, Request.of("1", KeepMean(0)))
    said = reply(gate, Request.of("2", Peek(0, COUNTS.edges)))
    assert isinstance(said, Release)
    assert said.parts["counts"].units.tolist() == [0, 0]
    assert not hasattr(View(None, gate.schema), "shelf")


def test_values_that_make_no_sense_are_refused_before_data_are_read(make_gate: MakeGate) -> None:
    """As for any other question."""
    gate = _gate(make_gate)
    said = reply(gate, Request.of("1", KeepMean(3)))
    assert isinstance(said, Refusal) and said.reason == Reason.MALFORMED
    assert not gate.shelf.failed and not len(gate.shelf)


def test_an_effect_is_done_once_however_often_it_is_sent(
    make_gate: MakeGate, tmp_path: Path
) -> None:
    """Sent again, it is acknowledged by the same bytes and not done again; a restart keeps it."""
    request = encode(Request.of("1", KeepMean(0)))
    first = _gate(make_gate, ledger=Ledger(tmp_path / "clinic.db", "clinic"))
    said = first.serve(request)
    assert first.serve(request) == said
    assert first.shelf["times"] == 1
    again = _gate(make_gate, ledger=Ledger(tmp_path / "clinic.db", "clinic"))
    assert again.serve(request) == said
    assert again.shelf["times"] == 1 and again.shelf["mean"] == first.shelf["mean"]
    assert (tmp_path / "clinic.shelf").stat().st_mode & 0o077 == 0  # nobody else's to read


def test_what_is_kept_for_nothing_has_an_end(
    make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server cannot fill the owner's disk by free queries; each kind is counted by itself, by study."""
    monkeypatch.setattr(gate_module, "MOST_EFFECTS", 2)
    gate = _gate(make_gate)
    for number in range(2):
        assert reason(gate, Request.of(f"{number}", KeepMean(0))) is None
    assert reason(gate, Request.of("2", KeepMean(0))) == Reason.TIMES
    assert reason(gate, Request.of("1", KeepMean(0))) is None  # sent again
    assert gate.shelf["times"] == 2
    assert reason(gate, Request.of("3", Peek(0, (0.0, 0.5, 1.0)))) is None


@pytest.mark.parametrize("lost", ["before", "after"])
def test_an_interrupted_effect_is_brought_to_its_end(
    lost: str, make_gate: MakeGate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before its effect or before its last row, the same request finishes it, once."""
    gate = _gate(make_gate, ledger=Ledger(tmp_path / "clinic.db", "clinic"))

    def killed(*_: Any) -> Any:
        raise KeyboardInterrupt

    if lost == "before":
        monkeypatch.setattr(gate, "_take_effect", killed)
    else:
        monkeypatch.setattr(gate.ledger, "release", killed)
    request = Request.of("1", KeepMean(0))
    with pytest.raises(KeyboardInterrupt):
        gate.answer(request)
    assert events(gate) == ["reserved"]
    assert len(gate.shelf) == (0 if lost == "before" else 2)
    gate.ledger.close()
    again = _gate(make_gate, ledger=Ledger(tmp_path / "clinic.db", "clinic"))
    assert again.dry_run(request) is None and len(again.shelf) == len(gate.shelf)
    said = reply(again, request)
    assert isinstance(said, Release) and not said.parts
    assert events(again) == ["reserved", "released"]
    assert again.shelf["times"] == 1
    again.ledger.verify()


def test_another_owner_s_shelf_is_refused(make_gate: MakeGate, tmp_path: Path) -> None:
    """A gate that may keep things opens its shelf at once, and says whose it is not."""
    from privfed.errors import LedgerError

    gate = _gate(make_gate, ledger=Ledger(tmp_path / "one.db", "one"))
    reply(gate, Request.of("1", KeepMean(0)))
    gate.shelf.close()
    (tmp_path / "one.shelf").rename(tmp_path / "two.shelf")
    with pytest.raises(LedgerError, match="belongs to data set 'one', not 'two'"):
        _gate(make_gate, ledger=Ledger(tmp_path / "two.db", "two"))


def test_a_gate_that_keeps_nothing_leaves_no_file(make_gate: MakeGate, tmp_path: Path) -> None:
    """A shelf is made where a policy allows one."""
    gate = make_gate(ledger=Ledger(tmp_path / "clinic.db", "clinic"))
    reply(gate, Request.of("1", COUNTS))
    assert not (tmp_path / "clinic.shelf").exists()


def test_guards_are_for_what_leaves_and_local_for_what_stays(make_gate: MakeGate) -> None:
    """Either mistake is told when the gate is opened, with what to write instead."""
    with pytest.raises(PolicyError, match=r"'test\.keep' releases nothing.*under local"):
        make_gate({"test.keep": (Guard.of("open"),)}, queries=(KeepMean,))
    with pytest.raises(PolicyError, match=r"'small\.histogram' releases something.*\[\[guard\]\]"):
        make_gate({"small.histogram": ()})
    policy = Policy(GUARDS)
    assert policy.to_dict()["local"] == ["test.keep"]
    assert Policy.from_dict(policy.to_dict()).guards == GUARDS


def test_a_local_effect_is_listed_in_the_price_and_costs_nothing(schema: Schema) -> None:
    """A line of its own, at no loss, that an unprotected total would not hide."""
    told = price([Planned(KeepMean(0), 3)], schema, Policy({"test.keep": ()}, name="p"))
    (line,) = told.lines
    assert (line.kind, line.parts, line.times, told.unprotected) == ("test.keep", (), 3, 0)
    assert line.loss is not None and line.loss.nothing
    assert "test.keep" in priced(told) and "stays" in priced(told)


def test_who_would_keep_something_is_offered_and_acknowledged_in_one_federation(
    records: Records, schema: Schema
) -> None:
    """Through channels as through no gate at all; each client's shelf is its own."""
    halves = {"a": records.take(np.arange(10)), "b": records.take(np.arange(10, 50))}
    gates = {
        name: Gate(name, own, Policy(GUARDS), Ledger(None, name), queries=(KeepMean, Peek))
        for name, own in halves.items()
    }
    gated, bare = LocalDisclosure(gates), UngatedDisclosure(halves)
    for federation in (gated, bare):
        assert federation.offers(KeepMean(1)) == ("a", "b")
        assert not any(release.parts for release in federation.ask(KeepMean(1)).releases())
    for name, own in halves.items():
        wanted = float(own.x[:, 1].mean())
        assert gates[name].shelf["mean"] == bare.shelves[name]["mean"] == wanted
