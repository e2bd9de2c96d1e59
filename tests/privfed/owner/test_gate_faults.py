"""Faults and crashes inside: charged before read, one constant failure, never an exception."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from privfed import Gate, Guard, Ledger, LocalDisclosure, Records
from privfed.accountants.pure import PureEpsilon
from privfed.errors import QueryError
from privfed.exchange.messages import Failure, Reason, Release, Request
from privfed.owner.gate import open_reply
from privfed.privacy.noise import SecureNoise, TestNoise
from privfed.questions.query import View
from privfed.questions.wire import encode
from privfed.study import ledger_commands
from privfed.study.ledger_server import LedgerServer
from tests.asked_gate import LEVEL, MakeGate, Watched, events, reason, reply, request


def test_charged_before_read(watched: Callable[..., Gate]) -> None:
    """When the data are read the reservation is already in the ledger."""
    seen: list[list[str]] = []
    gate: Gate = watched(behave=lambda view: seen.append(events(gate)) or np.array([1]))
    assert reason(gate, request(query=Watched())) is None
    assert seen == [["reserved"]]
    assert events(gate) == ["reserved", "released"]


def boom(view: View) -> np.ndarray:
    """Fail with a raw value in the text."""
    raise ValueError(f"record {view.table.x[0]} is odd: 7318.25")


def test_a_sum_beyond_all_numbers_is_cut_and_answered(watched: Callable[..., Gate]) -> None:
    """It cannot tell by a failure that it was so large."""
    gate = watched(behave=lambda view: np.array([np.inf]))
    reply = open_reply(gate.serve(encode(request(query=Watched()))))
    assert isinstance(reply, Release)


OPEN = {Watched.kind: (Guard.of("open"),)}


def test_an_unprotected_kind_that_failed_three_times_is_refused(
    watched: Callable[..., Gate],
) -> None:
    """Each failure may tell more than the answers do, so that they are counted."""
    gate = watched(behave=boom, guards=OPEN)
    for number in range(3):
        assert isinstance(reply(gate, request(str(number), Watched())), Failure)
    assert reason(gate, request("3", Watched())) == Reason.FAULTY
    assert len(Watched.evaluated) == 3
    assert gate.faults == {Watched.kind: 3}
    gate.ledger.verify()


def test_restarts_give_no_further_failures(watched: Callable[..., Gate]) -> None:
    """Twelve gates on one ledger fail three times in all."""
    gate = watched(behave=boom, guards=OPEN)
    failed = 0
    for number in range(12):
        again = watched(behave=boom, guards=OPEN, ledger=gate.ledger)
        failed += isinstance(reply(again, request(str(number), Watched())), Failure)
    assert failed == gate.ledger.failures(Watched.kind) == 3
    gate.ledger.verify()


@pytest.mark.parametrize(
    "behave",
    [
        boom,
        lambda view: np.zeros(2, int),
        lambda view: np.zeros((1, 1), int),
        lambda view: np.array([0.5]),
        lambda view: np.array([np.nan]),
        lambda view: np.array(["7318.25"]),
        lambda view: None,
        lambda view: 1 / 0,
    ],
)
def test_whatever_goes_wrong_is_answered_by_noise_around_nothing(
    watched: Callable[..., Gate], behave: Any, capfd: Any
) -> None:
    """The bytes are those of a question whose exact answer is zero: nothing tells that it failed."""
    gate = watched(behave=behave)
    data = encode(request(query=Watched()))
    first = gate.serve(data)
    assert isinstance(open_reply(first), Release)
    assert gate.serve(data) == first
    assert Watched.evaluated == [0]
    assert events(gate) == ["reserved", "released"]
    assert gate.faults == {Watched.kind: 1}
    assert gate.ledger.spent(gate.accountant).total[0] == Fraction("0.1")
    printed = capfd.readouterr()
    assert b"7318.25" not in first + b"".join(e.payload for e in gate.ledger.entries())
    assert "7318" not in printed.out + printed.err
    sound = watched(behave=lambda view: np.array([0]))
    assert encode(open_reply(first)) == encode(reply(sound, request(query=Watched())))


def test_a_failing_query_tells_once_and_then_nothing(watched: Callable[..., Gate]) -> None:
    """The exploit: a count that raises for a rare record tells whether it is there, at one query.

    Its answer is far from the noise around zeros that is sent instead, so that no epsilon covers it:
    every later request is refused, whatever its kind, and the owner's figures say so.
    """
    usual = watched(behave=lambda view: np.array([1000]))
    told = [reply(usual, request(query=Watched()))]
    assert reason(usual, request("later", Watched(1))) is None
    assert not usual.breaches
    rare = watched(behave=boom)
    told.append(reply(rare, request(query=Watched())))
    counts = [int(one.parts["counts"].units[0]) for one in told if isinstance(one, Release)]
    assert counts[0] > 800
    assert counts[1] < 200
    for number in range(3):
        assert reason(rare, request(f"later {number}", Watched(number))) == Reason.CLOSED
    assert rare.breaches == {Watched.kind: 1}
    assert rare.dry_run(request("dry", Watched(9))) == Reason.CLOSED
    assert isinstance(reply(rare, request(query=Watched())), Release)  # resent as it was
    rare = watched(behave=lambda view: np.array([0]), ledger=rare.ledger)
    rare.reopen()
    assert reason(rare, request("mended", Watched(5))) is None


def test_a_gate_stays_closed_over_restarts(watched: Callable[..., Gate], tmp_path: Path) -> None:
    """The owner's shelf remembers, and the command that opens it again says what happened."""
    path = tmp_path / "clinic.db"
    gate = watched(behave=boom, ledger=Ledger(path, "clinic"))
    assert isinstance(reply(gate, request(query=Watched())), Release)
    gate.ledger.close()
    again = watched(behave=lambda view: np.array([0]), ledger=Ledger(path, "clinic"))
    assert reason(again, request("2", Watched(2))) == Reason.CLOSED
    again.ledger.close()
    assert "the gate is closed" in _budget(path)
    assert "open again" in ledger_commands.reopen(path)
    assert "NO FINITE GUARANTEE" in _budget(path)  # what was told stays told
    assert "closed" not in _budget(path)
    assert "is open" in ledger_commands.reopen(path)
    mended = watched(behave=lambda view: np.array([0]), ledger=Ledger(path, "clinic"))
    assert reason(mended, request("3", Watched(3))) is None
    assert not mended.breaches and mended.uncovered == {Watched.kind: 1}
    (line,) = LocalDisclosure({"clinic": mended}).budget().to_dict("records")
    assert (line["spent"], line["ceiling"], line["unprotected"]) == (np.inf, None, 1)
    mended.ledger.close()
    with closing(LedgerServer([path])) as server:
        Thread(target=server.serve, daemon=True).start()
        page = server.page(f"/{server.token}/") or ""
    assert "no finite guarantee" in page and "at most" not in page


def _budget(path: Path) -> str:
    with ledger_commands.opened(path) as ledger:
        return ledger_commands.budget(ledger, None)


def test_a_fault_closes_every_gate_of_the_ledger(
    watched: Callable[..., Gate], tmp_path: Path
) -> None:
    """Two processes serve one data set: what failed in one is not asked of the other."""
    path = tmp_path / "clinic.db"
    gates = [watched(behave=boom, ledger=Ledger(path, "clinic")) for _ in range(2)]
    assert isinstance(reply(gates[0], request(query=Watched())), Release)
    assert reason(gates[1], request("2", Watched(2))) == Reason.CLOSED


def test_the_row_of_a_failed_query_is_that_of_any_other(
    watched: Callable[..., Gate], tmp_path: Path
) -> None:
    """Ledgers are handed over: what failed stands on the owner's shelf alone."""
    rows = []
    for behave in (boom, lambda view: np.array([0])):
        gate = watched(behave=behave, noise=TestNoise(3))
        reply(gate, request(query=Watched()))
        rows.append([(e.event, e.body, e.payload) for e in gate.ledger.entries()][1:])
    assert rows[0] == rows[1]


def test_a_query_that_takes_too_much_memory_is_refused_before_it_is_charged(
    watched: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own word, from public values; nothing is read."""
    monkeypatch.setattr(Watched, "memory", lambda self, cells: 2**32 + cells)
    gate = watched(behave=boom)
    assert reason(gate, request(query=Watched())) == Reason.OVERSIZED
    assert Watched.evaluated == []
    assert gate.ledger.spent(gate.accountant).total == gate.accountant.nothing


def test_an_unprotected_failure_is_one_constant(watched: Callable[..., Gate]) -> None:
    """Charged, constant in its text, and resent as it was."""
    gate = watched(behave=boom, guards=OPEN)
    data = encode(request(query=Watched()))
    first = gate.serve(data)
    assert open_reply(first) == Failure("clinic", "1")
    assert gate.serve(data) == first
    assert events(gate) == ["reserved", "failed"]


@pytest.mark.parametrize("mechanism", ["open", "nullify"])
def test_values_that_have_no_wire_form(watched: Callable[..., Gate], mechanism: str) -> None:
    """An array that cannot be written is a failure like any other, not an exception."""
    gate = watched(
        behave=lambda view: np.array([object()]), guards={Watched.kind: (Guard.of(mechanism),)}
    )
    assert isinstance(reply(gate, request(query=Watched())), Failure)


class Crash(BaseException):
    """The process ends: nothing catches this."""


def crashed(watched: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch, **set: Any) -> Gate:
    """A gate whose process ends after the charge of request 1, which then works."""

    def crash(view: View) -> np.ndarray:
        raise Crash

    gate = watched(behave=crash, **set)
    with pytest.raises(Crash):
        gate.serve(encode(request(query=Watched())))
    assert events(gate)[-1] == "reserved"
    monkeypatch.setattr(Watched, "behave", lambda view: np.array([len(view.table)]))
    return gate


def test_a_crash_between_charge_and_release(
    watched: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charge stays, nothing was sent; the same request is answered under it once, another is not."""
    gate = crashed(watched, monkeypatch, budget="0.1")
    spent = gate.ledger.spent(gate.accountant).total
    assert reason(gate, request(query=Watched(1))) == Reason.MISMATCH
    assert gate.dry_run(request(query=Watched())) is None
    told = gate.serve(encode(request(query=Watched())))
    assert isinstance(open_reply(told), Release)
    assert gate.serve(encode(request(query=Watched()))) == told
    assert gate.ledger.spent(gate.accountant).total == spent
    assert reason(gate, request("2", Watched())) == Reason.BUDGET
    assert Watched.evaluated == [0, 0]
    assert events(gate).count("released") == 1
    gate.ledger.verify()


def test_a_crash_and_then_a_failure_is_recorded_as_one(
    watched: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer to an interrupted request that fails is a failure in the ledger, too."""
    gate = crashed(watched, monkeypatch, guards=OPEN)
    monkeypatch.setattr(Watched, "behave", boom)
    assert isinstance(reply(gate, request(query=Watched())), Failure)
    assert events(gate) == ["reserved", "failed"]
    gate.ledger.verify()


@pytest.mark.parametrize(
    "changed",
    [
        {"settings": {"study": "another"}},
        {"settings": {"data": "a later version"}},
        {
            "guards": {Watched.kind: (Guard.of("laplace", spend="0.2"),)},
            "settings": {"amend": True},
        },
        {"noise": SecureNoise()},
    ],
    ids=["study", "data", "spend", "noise"],
)
def test_an_interrupted_charge_is_for_the_same_answer_only(
    watched: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    """Of another study, other data, a dearer or another noise, the same request gets nothing for it."""
    gate = crashed(watched, monkeypatch)
    again = watched(behave=Watched.behave, ledger=gate.ledger, **changed)
    assert reason(again, request(query=Watched())) == Reason.INTERRUPTED
    assert Watched.evaluated == [0]


def test_under_a_policy_that_another_gate_replaced_an_interrupted_request_is_refused(
    watched: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charge was allowed by what is no longer in force; the new gate, at the same price, answers."""
    gate = crashed(watched, monkeypatch, budget="1")
    amended = watched(
        behave=Watched.behave, budget="2", ledger=gate.ledger, settings={"amend": True}
    )
    assert reason(gate, request(query=Watched())) == Reason.INTERRUPTED
    assert reason(amended, request(query=Watched())) is None


def test_an_interrupted_request_of_a_sealed_study_is_refused(
    watched: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study that has ended asks nothing more, also nothing that it was charged for."""
    ledger = Ledger(None)
    ledger.reserve_share("pilot", (Fraction(1, 2), Fraction(0)), PureEpsilon())
    gate = crashed(watched, monkeypatch, ledger=ledger, settings={"study": "pilot"})
    ledger.seal_study("pilot")
    assert reason(gate, request(query=Watched())) == Reason.INTERRUPTED


def test_two_gates_that_complete_one_request_send_one_answer(
    watched: Callable[..., Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is durable first is the answer; the other's draw never leaves."""
    gate = crashed(watched, monkeypatch)
    other = watched(behave=Watched.behave, ledger=gate.ledger)
    told: list[bytes] = []

    def slow(view: View) -> np.ndarray:
        monkeypatch.setattr(Watched, "behave", lambda view: np.array([len(view.table)]))
        told.append(other.serve(encode(request(query=Watched()))))
        return np.array([len(view.table)])

    monkeypatch.setattr(Watched, "behave", slow)
    assert reason(gate, request(query=Watched())) == Reason.LEDGER
    assert isinstance(open_reply(told[0]), Release)
    assert gate.serve(encode(request(query=Watched()))) == told[0]
    assert events(gate).count("released") == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (QueryError("false-partition", "x"), Reason.FALSE_PARTITION),
        (QueryError("no such reason", "x"), Reason.MALFORMED),
        (ZeroDivisionError(), Reason.MALFORMED),
    ],
)
def test_parts_that_raise(watched: Callable[..., Gate], error: Exception, expected: Reason) -> None:
    """A query that rejects its own values is refused by a reason of the closed set."""

    def declare() -> None:
        raise error

    gate = watched(declare=declare)
    asked = Watched(-1)  # by this test alone: what a question declares is remembered in a process
    assert reason(gate, request(query=asked)) == expected
    assert Watched.evaluated == []
    refused = next(row.body for row in gate.ledger.entries() if row.event == "refused")
    known = isinstance(error, QueryError)
    assert refused.get("why") == (None if known else "the plugin raises ZeroDivisionError")


@pytest.mark.parametrize(
    ("method", "why"), [("supports", Reason.UNSUPPORTED), ("price", Reason.UNSOUND)]
)
def test_a_mechanism_that_raises(
    make_gate: MakeGate, monkeypatch: pytest.MonkeyPatch, method: str, why: Reason
) -> None:
    """A plugin's fault while pricing is a refusal; nothing is charged."""

    def fail(*arguments: object) -> None:
        raise KeyError("fault")

    gate = make_gate()
    monkeypatch.setattr("privfed.mechanisms.laplace.Laplace." + method, fail)
    assert reason(gate, request()) == why
    assert gate.dry_run(request("2")) == why
    assert events(gate) == ["refused"]
    told = [row.body["why"] for row in gate.ledger.entries() if row.event == "refused"]
    assert ["raises KeyError" in one for one in told] == [True]  # for the owner; never the text


def test_a_ledger_that_cannot_be_written(make_gate: MakeGate) -> None:
    """No ledger, no answer."""
    gate = make_gate()
    gate.ledger.close()
    assert reason(gate, request()) == Reason.LEDGER
    assert reason(gate, Request("", "", b"")) == Reason.LEDGER


def test_nothing_exact_is_ever_stored(make_gate: MakeGate, records: Records) -> None:
    """Neither records nor exact sums are anywhere in the ledger of a noisy release."""
    gate = make_gate({LEVEL.kind: (Guard.of("laplace", spend="0.1"),)})
    assert reason(gate, request(query=LEVEL)) is None
    exact = LEVEL.evaluate(View(records, records.schema))
    stored = b"".join(entry.payload + str(entry.body).encode() for entry in gate.ledger.entries())
    raw = [float(value) for value in (*records.x.ravel(), *records.target)]
    numbers = [int(unit) for unit in exact["sums"]]
    assert not [number for number in numbers if number.to_bytes(8, "little") in stored]
    assert not [number for number in (*numbers, *raw) if str(number).encode() in stored]
    assert not [value for value in raw if np.float64(value).tobytes() in stored]
    opened = make_gate({LEVEL.kind: (Guard.of("open"),)})  # where they leave, they are found
    assert reason(opened, request(query=LEVEL)) is None
    left = b"".join(entry.payload for entry in opened.ledger.entries())
    assert all(number.to_bytes(8, "little") in left for number in numbers)


def test_one_request_from_many_threads(make_gate: MakeGate) -> None:
    """Sent sixteen times at once, it is charged once and answered with one reply."""
    gate = make_gate(budget="0.1")
    data = encode(request())
    with ThreadPoolExecutor(8) as pool:
        replies = set(pool.map(lambda _: gate.serve(data), range(16)))
    assert len(replies) == 1
    assert events(gate) == ["reserved", "released"]
