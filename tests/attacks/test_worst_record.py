"""The schema's worst record comes near the charge, and beyond it only where a bound is too small."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from privfed.accountants.zcdp import ZeroConcentrated
from privfed.attacks.deadline import Deadline
from privfed.attacks.worst_record import WorstRecord, search
from privfed.engines.local import LocalDisclosure
from privfed.exchange.messages import Request
from privfed.exchange.transcript import Transcript
from privfed.privacy.policy import Guard, Policy
from privfed.questions import plugins
from privfed.questions.part import Part, PartType, Sensitivity
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing.queries import Histogram

SCHEMA = Schema((Column("a", lower=0, upper=8), Column("b", "integer", lower=0, upper=3)))
COUNTS = Histogram(0, (0.0, 1.0, 3.0, 8.0))


def ask(query: Query, mechanism: str, spend: str) -> LocalDisclosure:
    """One question to two clients."""
    frame = pd.DataFrame({"a": np.linspace(0, 8, 20), "b": [1] * 20, "owner": ["x", "y"] * 10})
    policy = Policy({query.kind: (Guard.of(mechanism, spend=spend),)}, accountant="zcdp")
    federation = LocalDisclosure.from_frame(
        frame, None, client="owner", schema=SCHEMA, policy=policy, seed=3
    )
    for name, gate in federation.gates.items():
        gate.answer(Request.of(f"request {name}", query))
    return federation


def test_gaussian_counts_come_to_the_whole_charge() -> None:
    """Any record moves one count by one: mu is the square root of twice the ledger's rho."""
    federation = ask(COUNTS, "gaussian", "1/2")
    worst, rate = WorstRecord().run(federation.transcript(), None, SCHEMA)
    (total, *_) = federation.gates["x"].ledger.spent(ZeroConcentrated()).total
    assert worst.value == pytest.approx(worst.of) == pytest.approx(np.sqrt(2 * float(total)))
    assert worst.severity == "none" and not worst.simulation
    assert rate.value == pytest.approx(norm.cdf(norm.ppf(0.01) + worst.value))
    assert rate.limit == "found at 1 %"


def test_laplace_counts_too() -> None:
    """Their distance is an epsilon, of which rates are only bounds."""
    (worst,) = WorstRecord().run(ask(COUNTS, "laplace", "0.7").transcript(), None, SCHEMA)
    assert worst.value == pytest.approx(0.7) == pytest.approx(worst.of)
    told = worst.detail["the schema's worst"]
    assert told["found at 1 % at most"] == pytest.approx(0.01 * np.exp(0.7))
    assert told["area at most"] == pytest.approx(np.exp(0.7) / (1 + np.exp(0.7)))


@dataclass(frozen=True)
class Sum(Query):
    """A sum of a feature up to 8, with a bound that is right, far too large, or too small."""

    bound: int
    kind: ClassVar[str] = "planted.sum"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One sum."""
        return {"sum": Part(PartType.SUMS, ("cell",), (1,), Sensitivity.of(self.bound))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Whole units."""
        return {"sum": np.array([np.floor(view.table.x[:, 0]).sum()])}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum is installed."""
    known = plugins.available

    class Point:
        def load(self) -> type[Query]:
            return Sum

    points = {**known("queries"), Sum.kind: Point()}
    monkeypatch.setattr(plugins, "available", lambda g: points if g == "queries" else known(g))


@pytest.mark.parametrize(("bound", "severity"), [(8, "none"), (100, "none"), (4, "breach")])
def test_a_bound_too_small_is_a_broken_claim(planted: None, bound: int, severity: str) -> None:
    """And one far too large means more noise than need be."""
    transcript = ask(Sum(bound), "gaussian", "1/2").transcript()
    worst, _ = WorstRecord().run(transcript, None, SCHEMA)
    assert worst.severity == severity
    assert worst.value == pytest.approx(8 / bound)
    assert ("note" in worst.detail) == (bound == 100)


@dataclass(frozen=True)
class Needle(Sum):
    """A sum that few records move by all that is paid for, and all others by 8."""

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Whole units."""
        x = view.table.x[:, 0]
        return {"sum": np.array([np.where((x > 5) & (x < 5.00001), 100, np.floor(x)).sum()])}


def test_what_no_search_finds_is_not_said_not_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever took the noise for too much would have narrowed it below what a record moves."""
    known = plugins.load
    monkeypatch.setattr(plugins, "load", lambda g, n: Needle if n == Needle.kind else known(g, n))
    monkeypatch.setattr(
        plugins, "available", lambda g, own=plugins.available: {**own(g), Needle.kind: None}
    )
    worst, _ = WorstRecord().run(ask(Needle(100), "gaussian", "1/2").transcript(), None, SCHEMA)
    assert worst.value == pytest.approx(0.08) and "records found reach" in worst.detail["note"]


@pytest.mark.parametrize(("bound", "severity"), [(8, "none"), (6, "breach")])
def test_records_that_change_places_are_held_to_their_own_bound(
    planted: None, bound: int, severity: str
) -> None:
    """Replacing 0 by 8 moves the sum by 8; twice the bound for one record was charged."""
    transcript = ask(Sum(bound // 2), "gaussian", "1/2").transcript()
    attack = WorstRecord()
    attack.relation = "replace-one"
    worst, _ = attack.run(transcript, None, SCHEMA)
    assert worst.severity == severity and "in another's place" in worst.metric
    assert worst.of and worst.value / worst.of == pytest.approx(8 / bound)


def test_replacing_moves_two_bins() -> None:
    """By declared bound and by search: the square root of two times what one record does."""
    attack = WorstRecord()
    attack.relation = "replace-one"
    worst, _ = attack.run(ask(COUNTS, "gaussian", "1/2").transcript(), None, SCHEMA)
    assert worst.value == pytest.approx(worst.of) == pytest.approx(np.sqrt(2))


@pytest.mark.parametrize("times", [{"x": 1, "y": 4}, {"x": 4, "y": 1}])
def test_each_client_is_held_to_its_own_charge(times: dict[str, int]) -> None:
    """Who answered four times told twice as much, and paid for it: no claim is broken."""
    federation = ask(COUNTS, "gaussian", "1/2")
    truth = {}
    for name, gate in federation.gates.items():
        for number in range(1, times[name]):
            gate.answer(Request.of(f"request {name} {number}", COUNTS))
        truth[name] = Records(SCHEMA, np.array([[1.0, 1.0]]))
    worst, _ = WorstRecord().run(federation.transcript(), truth, SCHEMA)
    assert worst.value == pytest.approx(worst.of)
    assert worst.severity == "none"
    assert worst.detail["largest record"]["mu"] == pytest.approx(2)


def test_what_one_client_paid_does_not_excuse_another(planted: None, monkeypatch: Any) -> None:
    """Where the search misses what a record does, the record itself convicts, by its own charge."""
    monkeypatch.setattr("privfed.attacks.worst_record.search", lambda *_: 0.0)
    federation = ask(Sum(4), "gaussian", "1/2")
    for number in range(3):
        federation.gates["x"].answer(Request.of(f"request x {number}", Sum(4)))
    held = {"x": 4.0, "y": 8.0}
    truth = {name: Records(SCHEMA, np.array([[value, 1.0]])) for name, value in held.items()}
    worst, _ = WorstRecord().run(federation.transcript(), truth, SCHEMA)
    assert worst.severity == "breach"
    assert (worst.value, worst.of) == (pytest.approx(2), pytest.approx(1))


def test_a_part_that_the_question_does_not_declare_is_left_aside() -> None:
    """A foreign release may hold anything; it neither moves nor is charged."""
    transcript = ask(COUNTS, "gaussian", "1/2").transcript()
    entries = []
    for entry in transcript:
        parts = {**entry.release.parts, "more": entry.release.parts["counts"]}
        entries.append(replace(entry, release=replace(entry.release, parts=parts)))
    plain, _ = WorstRecord().run(transcript, None, SCHEMA)
    worst, _ = WorstRecord().run(Transcript(tuple(entries)), None, SCHEMA)
    assert (worst.value, worst.of) == (plain.value, plain.of)


def test_real_records_and_policies_at_epsilon_8(diabetes) -> None:  # type: ignore[no-untyped-def]
    """A fuzzy tree: the schema's worst reaches nine tenths of the charge, the median half."""
    trained = diabetes("private")
    worst, _ = WorstRecord().run(trained.transcript, trained.truth, trained.schema)
    assert worst.of is not None and 0.9 * worst.of < worst.value <= worst.of
    told = worst.detail
    assert told["median record"]["mu"] < told["largest record"]["mu"] <= worst.value
    assert worst.simulation


def test_the_search_climbs() -> None:
    """The corner of a box of ten columns, of which integers stay whole."""
    columns = tuple(Column(f"c{i}", "integer", lower=-1, upper=5) for i in range(10))
    seen = []

    def distances(records: tuple[np.ndarray, np.ndarray | None]) -> np.ndarray:
        x, _ = records
        seen.append(x)
        return np.asarray(x.sum(axis=1))

    assert search(distances, Schema(columns), Deadline(60)) == 50
    assert all(np.array_equal(x, np.rint(x)) for x in seen) and len(seen) > 20


def test_nothing_to_work_on() -> None:
    """Without a schema there is no box, and of nothing there is nothing to say."""
    assert WorstRecord().run(Transcript(), None, SCHEMA) == []
    assert not WorstRecord().attackable(Transcript())
    transcript = ask(COUNTS, "gaussian", "1/2").transcript()
    assert WorstRecord().run(transcript) == []
    assert WorstRecord().attackable(transcript)
