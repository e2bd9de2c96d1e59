"""The owner's side, whatever the engine: whom it answers as whom, and what it writes down and says."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from engine_trials import batch_of, question
from ledger_trials import SMALL, SPEND

from privfed import Budget, Gate, Guard, Ledger, Policy, Records
from privfed.engines.batches import Replies
from privfed.engines.owner_log import JsonLines
from privfed.engines.owner_side import OwnerSide, Rounds
from privfed.exchange.messages import DryRun, DryRunReply, Envelope, Reason, Request
from privfed.privacy.limit import Limit
from privfed.questions import wire
from privfed.testing.queries import Histogram

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Clock:
    """A time that a test moves."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        """The time that it is."""
        return self.now


def side(
    rounds: Rounds = "asker",
    clock: Clock | None = None,
    ledger: Ledger | None = None,
    **limits: str,
) -> OwnerSide:
    """A small gate with a limit for each of some aspects."""
    held = tuple(Limit((aspect,), Budget.of(epsilon)) for aspect, epsilon in limits.items())
    policy = Policy({"small.histogram": (Guard.of("laplace", spend=SPEND),)}, limits=held)
    records = Records(SMALL, np.arange(0.0, 100.0, 10.0)[:, None])
    gate = Gate("north", records, policy, ledger or Ledger(), queries=(Histogram,))
    return OwnerSide(gate, rounds=rounds, clock=clock or Clock())


def ask(owner: OwnerSide, number: int, socket: str, principal: str = "", round: str = "") -> str:
    """How a question ends that came through a socket and says of itself what it likes."""
    request = Request.of(f"r{number}", question(number), principal, None, round)
    told = wire.decode(owner.answer(batch_of(wire.encode(request)), socket), Replies)
    return wire.decode(told.envelopes[0], Envelope).status


def test_a_limit_per_principal_holds_against_an_asker_that_renames_itself() -> None:
    """Whatever it calls itself, its socket's budget is spent; another socket has its own."""
    owner = side(principal="0.2")
    outcomes = [ask(owner, n, "university", principal=f"somebody {n}") for n in range(4)]
    assert outcomes == ["release", "release", "refusal", "refusal"]
    assert ask(owner, 9, "ministry", principal="university") == "release"
    charged = {e.principal for e in owner.gate.ledger.entries() if e.event == "reserved"}
    assert charged == {"university", "ministry"}


def test_rows_have_the_time_at_which_their_batch_came() -> None:
    """A time of its own would tell how long the question before took, in this batch or another; heads let it be guessed."""
    clock, late = Clock(), Clock()
    owner = side(clock=clock, ledger=Ledger(clock=late))
    for first in (0, 2):
        late.now = clock.now + timedelta(seconds=30)  # when the gate is free
        asked = [wire.encode(Request.of(f"r{n}", question(n))) for n in (first, first + 1)]
        owner.answer(batch_of(*asked), "server")
        clock.now += timedelta(seconds=60)
    rows = [e for e in owner.gate.ledger.entries() if e.event in ("reserved", "released")]
    came = [NOON + timedelta(seconds=60 * (n // 4)) for n in range(8)]
    assert [datetime.fromisoformat(row.time) for row in rows[4:]] == came[4:]
    assert len({row.time for row in rows[:4]}) == 1


def test_a_full_disk_is_named_in_the_owners_log_and_answers_nothing(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """When it happens, not when the gate is closed; with room again it answers."""
    owner = side(ledger=Ledger(tmp_path / "north.db", "north"))
    assert ask(owner, 0, "server") == "release"
    database = owner.gate.ledger._store._db  # type: ignore[attr-defined]
    ((pages,),) = database.execute("PRAGMA page_count").fetchall()
    database.execute(f"PRAGMA max_page_count = {pages}")
    number = next(n for n in range(1, 500) if ask(owner, n, "server") == "refusal")
    assert number > 1
    assert "north.db: database or disk is full" in caplog.text
    database.execute("PRAGMA max_page_count = 1000000")
    assert ask(owner, number, "server") == "release"
    assert caplog.text.count("cannot be recorded") == 1


@pytest.mark.parametrize(
    ("rounds", "longest"), [("minute", timedelta(minutes=1)), ("day", timedelta(days=1))]
)
def test_a_limit_per_round_holds_where_rounds_are_the_owners_time(
    rounds: Rounds, longest: timedelta
) -> None:
    """New names for rounds win nothing; the next stretch of time has a budget of its own."""
    clock = Clock()
    owner = side(rounds, clock, round="0.2")
    names = [ask(owner, n, "server", round=f"round {n}") for n in range(4)]
    assert names == ["release", "release", "refusal", "refusal"]
    clock.now += longest
    assert ask(owner, 9, "server", round="round 0") == "release"


def test_the_asker_s_own_rounds_stop_mistakes_alone() -> None:
    """By default a round is what the asker calls one."""
    owner = side(round="0.1")
    assert [ask(owner, n, "server", round="one") for n in range(2)] == ["release", "refusal"]
    assert ask(owner, 9, "server", round="two") == "release"


def test_what_would_be_refused_is_told_for_the_socket_s_asker() -> None:
    """An inquiry counts as the socket's asker's too, and charges nothing."""
    owner = side(principal="0.1")
    assert ask(owner, 0, "university") == "release"
    inquiry = wire.encode(DryRun(Request.of("r1", question(1), "somebody else")))
    for socket, refused in (("university", Reason.BUDGET), ("ministry", None)):
        told = wire.decode(owner.answer(batch_of(inquiry), socket), Replies)
        offer = wire.decode(told.envelopes[0], Envelope).open()
        assert isinstance(offer, DryRunReply) and offer.refused == refused


def test_the_log_tells_counts_and_closed_words_only(caplog: pytest.LogCaptureFixture) -> None:
    """Not even the asker's own words get into it: a kind could hold a line of its own."""
    owner = side()
    with caplog.at_level(logging.INFO, logger="privfed.owner"):
        ask(owner, 0, "server", principal="forged\nline")
        hostile = Request("x\ny", "forged\nkind", b"fields", "forged\nline", None, "forged\nround")
        owner.answer(batch_of(wire.encode(hostile)), "server")
        owner.answer(b"\xff", "server")
    texts = [record.getMessage() for record in caplog.records]
    assert [text for text in texts if not text.startswith("row ")] == [
        "server: 1 of 1 answered: 1 release",
        "server: 1 of 1 answered: 1 refused (unknown-kind)",
        "server: sent an invalid batch",
    ]
    lines = [JsonLines().format(record) for record in caplog.records]
    assert not [line for line in lines if "forged" in line or "\n" in line]
    told = [
        {k: v for k, v in json.loads(line).items() if k not in ("time", "row")} for line in lines
    ]
    who, cost = {"level": "info", "principal": "server"}, told[0]["cost"]
    assert cost["epsilon"] == "0.1"
    assert told[:4] == [
        {**who, "event": "reserved", "kind": question(0).kind, "cost": cost},
        {**who, "event": "batch", "messages": 1, "answered": {"release": 1}},
        {**who, "event": "refused", "reason": "unknown-kind"},
        {**who, "event": "batch", "messages": 1, "answered": {"refused (unknown-kind)": 1}},
    ]


def test_a_failed_answer_is_logged_and_the_next_question_answered(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of a failure names its request and no kind; what the log makes of a row stops no reply."""

    def fails(query: Histogram, view: object) -> None:
        raise ValueError("SECRET=42")

    policy = Policy({"small.histogram": (Guard.of("open"),)})
    records = Records(SMALL, np.arange(0.0, 100.0, 10.0)[:, None])
    owner = OwnerSide(Gate("north", records, policy, Ledger(), queries=(Histogram,)))
    with monkeypatch.context() as broken, caplog.at_level(logging.INFO):
        broken.setattr(Histogram, "evaluate", fails)
        assert ask(owner, 1, "server") == "failure"
    assert ask(owner, 2, "server") == "release"
    rows = [json.loads(JsonLines().format(one)) for one in caplog.records]
    assert [row["event"] for row in rows] == ["reserved", "failed", "batch"]
    assert "SECRET" not in caplog.text
