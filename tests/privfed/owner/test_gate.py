"""The one exit: what is released, resent and charged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed import Budget, Gate, Guard, Ledger, Policy, Records, Schema
from privfed.accountants.pure import PureEpsilon
from privfed.errors import SchemaError
from privfed.exchange.messages import Reason, Release
from privfed.owner.gate import assign
from privfed.privacy.noise import TestNoise
from privfed.questions.part import Part
from privfed.questions.wire import encode
from privfed.testing.queries import Histogram
from tests.asked_gate import HALVES, LEVEL, MakeGate, events, reason, reply, request


def test_a_release(make_gate: MakeGate) -> None:
    """It names client, request, kind, question, law of the noise, and that this was test noise."""
    released = reply(make_gate(), request())
    assert isinstance(released, Release)
    assert (released.client, released.request, released.kind) == ("clinic", "1", HALVES.kind)
    assert released.query == HALVES.digest
    assert not released.secure
    noise = released.parts["counts"].noise
    assert noise is not None
    assert (noise.name, noise.parameter) == ("laplace", 10.0)
    assert released.parts["counts"].units.dtype == np.int64


def test_secure_noise_unless_injected(records: Records) -> None:
    """Without a source of its own a gate draws secure noise, and two gates differ."""
    policy = Policy({HALVES.kind: (Guard.of("laplace", spend="0.001"),)})
    gates = [Gate("clinic", records, policy, Ledger(None)) for _ in range(2)]
    released = [reply(gate, request()) for gate in gates]
    assert all(isinstance(r, Release) and r.secure for r in released)
    assert len({str(r.parts["counts"].units) for r in released}) == 2  # type: ignore[union-attr]


def test_the_same_request_gets_the_same_bytes(make_gate: MakeGate) -> None:
    """A retry is no second release and no second charge, whatever it proposes to spend."""
    gate = make_gate(budget="0.1")
    first = gate.serve(encode(request()))
    assert gate.serve(encode(request())) == first
    assert gate.serve(encode(request(spend=Fraction(1, 100)))) == first
    assert events(gate) == ["reserved", "released"]


def test_the_same_question_anew_is_charged_anew(make_gate: MakeGate) -> None:
    """Another id asks again: new noise, new charge."""
    gate = make_gate()
    one, other = reply(gate, request("1")), reply(gate, request("2"))
    assert str(one["counts"]) != str(other["counts"])  # type: ignore[index]
    assert gate.ledger.spent(gate.accountant).total[0] == Fraction(2, 10)


def test_another_question_under_a_used_id(make_gate: MakeGate) -> None:
    """An id belongs to one question; another principal has ids of its own."""
    gate = make_gate()
    other = Histogram(1, (0.0, 0.5, 1.0))
    assert reason(gate, request("1")) is None
    assert reason(gate, request("1", other)) == Reason.MISMATCH
    assert reason(gate, request("1", other, principal="auditor")) is None


def test_withheld_parts(make_gate: MakeGate) -> None:
    """A part that no guard names is evaluated for nobody."""
    gate = make_gate({LEVEL.kind: (Guard.of("laplace", "counts", spend="0.1"),)})
    released = reply(gate, request(query=LEVEL))
    assert isinstance(released, Release)
    assert set(released.parts) == {"counts"}


def test_what_a_question_declares_is_worked_out_once_for_all_gates(
    make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is public; but each owner's policy holds it to its own size, and another schema says anew."""
    asked: list[Schema] = []
    plain = Histogram.parts

    def parts(query: Histogram, schema: Schema) -> Mapping[str, Part]:
        asked.append(schema)
        return plain(query, schema)

    monkeypatch.setattr(Histogram, "parts", parts)
    query = Histogram(0, (0.0, 0.25, 0.5, 1.0))  # no other test asks it
    gates = [make_gate() for _ in range(3)]
    gates[1].policy = replace(gates[1].policy, cells=2)
    assert [reason(gate, request(query=query)) for gate in gates] == [None, Reason.OVERSIZED, None]
    assert len(asked) == 1
    gates[2].schema = replace(gates[2].schema, name="another")
    assert reason(gates[2], request("2", query)) is None
    assert [schema.name == "another" for schema in asked] == [False, True]


def test_what_a_question_declares_cannot_be_changed(make_gate: MakeGate) -> None:
    """All gates of a process rely on it."""
    gate = make_gate()
    query = gate._decode(request())
    with pytest.raises(TypeError):
        gate._parts(query)["counts"] = None  # type: ignore[index]


def test_guards_share_the_parts() -> None:
    """``*`` takes what no other guard names."""
    guards = [Guard.of("open", "a"), Guard.of("open")]
    assert assign(guards, ["a", "b", "c"]) == [["a"], ["b", "c"]]
    assert assign(guards[:1], ["a", "b"]) == [["a"]]


def test_every_guard_is_paid(make_gate: MakeGate) -> None:
    """Two guards of one query cost the sum of both, jointly in one row."""
    guards = (Guard.of("laplace", "counts", spend="0.1"), Guard.of("laplace", spend="0.2"))
    gate = make_gate({LEVEL.kind: guards})
    assert reason(gate, request(query=LEVEL)) is None
    assert gate.ledger.spent(gate.accountant).total[0] == Fraction(3, 10)
    assert events(gate) == ["reserved", "released"]


def test_suppressed_cells_hold_nothing(make_gate: MakeGate, schema: Schema) -> None:
    """Under a mask there is zero, in the bytes as well."""
    held = Records(
        schema, np.array([[0.9, 0.5], [0.8, 0.5], [0.1, 0.5]]), np.array([0.7, 0.6, 0.9])
    )
    gate = make_gate({LEVEL.kind: (Guard.of("nullify"),)}, held=held)
    released = reply(gate, request(query=LEVEL))
    assert isinstance(released, Release)
    for part in released.parts.values():
        assert part.mask is not None
        assert part.mask.all()
        assert not part.units.any()


def test_unprotected_releases_are_counted_apart(make_gate: MakeGate) -> None:
    """An open release adds nothing finite, and is never averaged away."""
    gate = make_gate({HALVES.kind: (Guard.of("open"),)}, budget="1")
    assert reason(gate, request()) is None
    spent = gate.ledger.spent(gate.accountant)
    assert (spent.unprotected, spent.total[0]) == (1, 0)


def test_an_open_part_beside_a_protected_one_leaves_the_budget_on(make_gate: MakeGate) -> None:
    """What the protected part costs still counts: the second answer at epsilon 1 is over 1."""
    guards = (Guard.of("laplace", "sums", spend="1"), Guard.of("open", "counts"))
    gate = make_gate({LEVEL.kind: guards}, budget="1")
    asked = [reason(gate, request(str(number), LEVEL)) for number in range(4)]
    assert asked == [None, Reason.BUDGET, Reason.BUDGET, Reason.BUDGET]
    spent = gate.ledger.spent(gate.accountant)
    assert (spent.unprotected, spent.total[0]) == (1, 1)
    gate.ledger.verify()


COUNTED = Policy({HALVES.kind: (Guard.of("laplace", spend="0.1"),)})


def test_a_gate_s_schema_is_what_its_records_were_clipped_to(records: Records) -> None:
    """Under other bounds than the records' own a value could move a sum beyond its bound."""
    narrow = Schema(
        tuple(replace(c, upper=c.upper / 2) for c in records.schema.features if c.upper)
    )
    with pytest.raises(SchemaError, match="clipped to"):
        Gate("c", records, COUNTED, Ledger(), schema=narrow)
    assert Gate("c", records, COUNTED, Ledger(), schema=records.schema).schema == records.schema


def test_an_inferred_schema_is_recorded_whoever_inferred_it(tmp_path: Path) -> None:
    """By hand, or out of a file that says so: bounds read off the data are an open release."""
    frame = pd.DataFrame({"income": [1.0, 2.0, 913_442.0]})
    Schema.infer(frame, None).to_toml(tmp_path / "schema.toml")
    for schema in (Schema.infer(frame, None), Schema.from_toml(tmp_path / "schema.toml")):
        assert schema.inferred
        ledger = Ledger()
        for _ in range(2):
            Gate("c", Records.from_frame(frame, schema), COUNTED, ledger)
        assert [e.body["kind"] for e in ledger.entries() if e.event == "reserved"] == [
            "schema.infer"
        ]
        assert ledger.spent(PureEpsilon()).unprotected == 1


def test_three_tenths_fit_and_a_fourth_does_not(make_gate: MakeGate) -> None:
    """Budgets are exact, and a refusal latches nothing: a smaller charge still fits."""
    gate = make_gate({HALVES.kind: (Guard.of("laplace", spend="0.1", cap="0.2"),)}, budget="0.35")
    assert [reason(gate, request(str(i))) for i in range(4)] == [None, None, None, Reason.BUDGET]
    assert reason(gate, request("5", spend=Fraction("0.05"))) is None
    assert gate.ledger.spent(gate.accountant).total[0] == Fraction("0.35")
    exactly = make_gate(budget="0.3")
    assert [reason(exactly, request(str(i))) for i in range(4)] == [None] * 3 + [Reason.BUDGET]


@settings(max_examples=40)
@given(spends=st.lists(st.fractions(Fraction(1, 50), Fraction(2), max_denominator=50), max_size=9))
def test_the_budget_is_never_exceeded(records: Records, spends: list[Fraction]) -> None:
    """Whatever is proposed in whatever order: exactly what fits is charged."""
    policy = Policy(
        {HALVES.kind: (Guard.of("laplace", spend="0.5", cap="1"),)}, budget=Budget.of("1.5")
    )
    gate = Gate("clinic", records, policy, Ledger(None), noise=TestNoise(1))
    expected = Fraction(0)
    for number, spend in enumerate(spends):
        charge = min(spend, Fraction(1))
        fits = expected + charge <= Fraction(3, 2)
        assert (reason(gate, request(str(number), spend=spend)) is None) == fits
        expected += charge if fits else 0
    assert gate.ledger.spent(gate.accountant).total[0] == expected


def test_times(make_gate: MakeGate) -> None:
    """A kind is answered as often as its strictest guard allows; resent replies do not count."""
    gate = make_gate({HALVES.kind: (Guard.of("laplace", spend="0.1", times=2),)})
    asked = ["1", "1", "2", "3", "2"]
    assert [reason(gate, request(id)) for id in asked] == [None] * 3 + [Reason.TIMES, None]


def test_proposals_are_capped(make_gate: MakeGate) -> None:
    """The asking side cannot spend more than the owner's cap at once."""
    gate = make_gate({HALVES.kind: (Guard.of("laplace", spend="0.1", cap="0.4"),)})
    released = reply(gate, request(spend=Fraction(50)))
    assert released.parts["counts"].noise.parameter == 2.5  # type: ignore[union-attr]
    assert gate.ledger.spent(gate.accountant).total[0] == Fraction("0.4")


def test_the_least_times_of_a_kinds_guards_holds(make_gate: MakeGate) -> None:
    """An answer holds all parts, whichever guard is the stricter."""
    once, twice = (
        Guard.of("laplace", "counts", spend="0.1", times=1),
        Guard.of("laplace", spend="0.1", times=2),
    )
    for guards in ((once, twice), (twice, replace(once, parts=("sums",)))):
        gate = make_gate({LEVEL.kind: guards})
        assert reason(gate, request("1", LEVEL)) is None
        assert reason(gate, request("2", LEVEL)) == Reason.TIMES


@pytest.mark.parametrize("spend", ["1e-190", "1e-30", "1e-16"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_tiny_proposal_buys_nothing(make_gate: MakeGate, mechanism: str, spend: str) -> None:
    """Noise that 64-bit integers cannot hold is refused: saturated, it gave the exact value away."""
    gate = make_gate({LEVEL.kind: (Guard.of(mechanism, spend="0.1"),)}, accountant="zcdp")
    if mechanism == "gaussian":
        spend = str(Fraction(spend) ** 2)
    assert reason(gate, request(query=LEVEL, spend=Fraction(spend))) == Reason.UNSUPPORTED
    assert events(gate) == ["refused"]


@pytest.mark.parametrize("spend", ["1e-40", "1e-300"])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_a_policys_own_spend_may_be_too_small(
    make_gate: MakeGate, mechanism: str, spend: str
) -> None:
    """Its mechanism was said to state a cost that cannot be right; the owner is told what to change."""
    gate = make_gate({LEVEL.kind: (Guard.of(mechanism, spend=spend),)}, accountant="zcdp")
    assert reason(gate, request(query=LEVEL)) == Reason.UNSUPPORTED
    (refused,) = gate.ledger.entries(events=("refused",))
    assert refused.body["why"] == (
        f"mechanism '{mechanism}': the spend is too small: 64-bit integers cannot hold its noise"
    )


def test_a_charge_outlives_the_gate(records: Records, tmp_path: Any) -> None:
    """A gate opened again on the same ledger goes on where the last one stopped."""
    policy = Policy({HALVES.kind: (Guard.of("laplace", spend="0.2"),)}, budget=Budget.of("0.3"))
    for expected in (None, Reason.BUDGET):
        ledger = Ledger(tmp_path / "clinic.db")
        gate = Gate("clinic", records, policy, ledger, noise=TestNoise(1))
        assert reason(gate, request(str(expected))) == expected
        ledger.close()
