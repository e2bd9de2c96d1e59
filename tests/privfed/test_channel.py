"""Asking over channels: retries, garbled and missing replies, published heads, late clients."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from privfed import wire
from privfed.accountants.pure import PureEpsilon
from privfed.channel import ChannelDisclosure, ChannelError, Patience
from privfed.errors import LedgerError, NobodyAnswered
from privfed.ledger import Ledger
from privfed.release import Absent, Failure, Refusal, Release
from privfed.signing import Identity, Signer
from privfed.testing.ledger_trials import QUERY, SMALL, SPEND, small_gate
from privfed.testing.queries import Histogram

QUICK = Patience(deadline=0.3, first=0.001, longest=0.01)


def federation(channels: dict, **rest) -> ChannelDisclosure:
    """Some clients over channels, asked impatiently."""
    return ChannelDisclosure(SMALL, channels, patience=QUICK, **rest)


def test_a_lost_reply_is_sent_again_without_a_new_charge() -> None:
    """The gate answers, the reply is lost twice and garbled once: one charge, the same bytes."""
    gate, sent = small_gate(Ledger()), []

    def lossy(data: bytes) -> bytes:
        sent.append(gate.serve(data))
        if len(sent) < 3:
            raise ChannelError("lost")
        return b"\xff" + sent[-1] if len(sent) == 3 else sent[-1]

    answers = federation({"c": lossy}).ask(QUERY)
    assert isinstance(answers.only.replies["c"], Release)
    assert len(sent) == 4 and len(set(sent)) == 1
    assert gate.ledger.spent(PureEpsilon()).total[0] == SPEND


def test_dead_refusing_and_failing_clients_are_reported_and_the_rest_go_on(monkeypatch) -> None:
    """Each kind of silence is a value in the answers."""

    def dead(data: bytes) -> bytes:
        raise ConnectionRefusedError

    refusing = small_gate(Ledger(), budget="0.05")
    failing = small_gate(Ledger())
    monkeypatch.setattr(failing, "_view", None)
    good = small_gate(Ledger())
    channels = {"dead": dead, "refusing": refusing.serve, "failing": failing.serve}
    disclosure = federation({**channels, "good": good.serve})
    replies = disclosure.ask(QUERY).only.replies
    assert [type(reply) for reply in replies.values()] == [Absent, Refusal, Failure, Release]
    with pytest.raises(NobodyAnswered, match="budget"):
        disclosure.ask(QUERY, clients=["dead", "refusing"])


def test_a_slow_client_does_not_hold_up_the_others() -> None:
    """Asked at the same time, whoever is late counts as absent."""
    release, good = threading.Event(), small_gate(Ledger())

    def slow(data: bytes) -> bytes:
        release.wait(30)
        raise ChannelError("too late")

    disclosure = federation({"slow": slow, "good": good.serve}, parallel=True)
    replies = disclosure.ask(QUERY, QUERY)[1].replies
    release.set()
    assert isinstance(replies["slow"], Absent) and isinstance(replies["good"], Release)


def test_rounds_are_told_apart_in_the_ledger() -> None:
    """All questions of one ask are one round."""
    gate = small_gate(Ledger())
    disclosure = federation({"c": gate.serve})
    disclosure.ask(QUERY, QUERY)
    disclosure.ask(QUERY)
    lines = gate.ledger.budget("round")[1:]
    assert [line.releases for line in lines] == [2, 1]


def test_a_rolled_back_ledger_is_noticed_by_the_asking_side(tmp_path: Path) -> None:
    """An owner who puts an old file back publishes an older head than before."""
    path, old = tmp_path / "l.db", tmp_path / "old.db"
    ledger = Ledger(path, "d")
    gate = small_gate(ledger)
    disclosure = federation({"c": lambda data: gate.serve(data)})
    disclosure.ask(QUERY)
    ledger.close()
    shutil.copy(path, old)
    gate = small_gate(Ledger(path, "d"))
    for _ in range(3):
        disclosure.ask(QUERY)
    gate = small_gate(Ledger(old, "d"))
    with pytest.raises(LedgerError, match="its ledger was rewritten"):
        disclosure.ask(QUERY)


def test_a_fork_of_the_chain_is_noticed() -> None:
    """Two different heads under one number contradict each other."""
    first, second = small_gate(Ledger()), small_gate(Ledger())
    channels = [first.serve, second.serve]
    disclosure = federation({"c": lambda data: channels[0](data)})
    disclosure.ask(QUERY)
    channels.pop(0)
    with pytest.raises(LedgerError, match="rewritten"):
        disclosure.ask(QUERY)


def test_heads_must_be_signed_where_a_key_is_known() -> None:
    """Each reply's head bears the owner's signature; resent ones too."""
    key = b"k" * 32
    identity = Identity("d", Signer(key, "d").public)
    signed = small_gate(Ledger(None, "d", key=key))
    calls = []

    def lossy(data: bytes) -> bytes:
        calls.append(signed.serve(data))
        if len(calls) == 1:
            raise ChannelError("lost")
        return calls[-1]

    federation({"c": lossy}, keys={"c": identity}).ask(QUERY)
    assert len(set(calls)) == 1
    unsigned = small_gate(Ledger(None, "d"))
    with pytest.raises(LedgerError, match="not signed"):
        federation({"c": unsigned.serve}, keys={"c": identity}).ask(QUERY)


def test_a_hostile_client_is_silent() -> None:
    """Whatever bytes come back, they are a reply or no reply."""
    gate = small_gate(Ledger())
    sound = gate.serve(wire.encode({"id": "x"}))
    for bytes_ in (b"", b"\x00" * 100, sound[: len(sound) // 2], wire.encode({"status": "x"})):
        with pytest.raises(NobodyAnswered, match="no reply in time"):
            federation({"c": lambda data, reply=bytes_: reply}).ask(Histogram(0, (0.0, 1.0)))
