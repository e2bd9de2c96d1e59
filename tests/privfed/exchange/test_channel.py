"""Asking over channels: retries, garbled and missing replies, published heads, late clients."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ledger_trials import QUERY, SMALL, SPEND, small_gate

from privfed import Budget, Gate, Guard, Policy, Records
from privfed.accountants.pure import PureEpsilon
from privfed.errors import (
    ChannelError,
    InputError,
    LedgerError,
    NobodyAnswered,
    Note,
    WireError,
)
from privfed.exchange.channel import ChannelDisclosure, HeadStore, RetryLimits
from privfed.exchange.messages import (
    Absent,
    DryRun,
    Envelope,
    Failure,
    Head,
    Reason,
    Refusal,
    Release,
    ReleasedPart,
    Request,
)
from privfed.exchange.signing import Identity, Signer
from privfed.ledger import Ledger
from privfed.questions import wire
from privfed.questions.part import PartType
from privfed.testing.queries import Histogram

QUICK = RetryLimits(deadline=0.3, first=0.001, longest=0.01)


def federation(channels: dict[str, Any], **rest: Any) -> ChannelDisclosure:
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


def test_dead_refusing_and_failing_clients_are_reported_and_the_rest_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each kind of silence is a value in the answers."""

    def dead(data: bytes) -> bytes:
        raise ConnectionRefusedError

    refusing = small_gate(Ledger(), budget="0.05")
    failing = small_gate(Ledger())
    for method in ("_protected", "_around_nothing"):
        monkeypatch.setattr(failing, method, None)
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


@pytest.mark.parametrize("parallel", [False, True])
def test_clients_are_asked_their_own_questions_over_channels(parallel: bool) -> None:
    """One message for each question of each client; an equal question has one id for all."""
    sent: dict[str, list[bytes]] = {"a": [], "b": []}
    gates = {name: small_gate(Ledger()) for name in sent}

    def to(name: str) -> Callable[[bytes], bytes]:
        return lambda data: sent[name].append(data) or gates[name].serve(data)

    disclosure = federation({name: to(name) for name in sent}, parallel=parallel)
    other = Histogram(0, (0.0, 0.5))
    answers = disclosure.ask({"a": [QUERY, QUERY], "b": [other, QUERY]})
    assert [list(answer.replies) for answer in answers] == [["a", "b"], ["a"], ["b"]]
    assert [len(messages) for messages in sent.values()] == [2, 2]
    assert sent["a"][0] == sent["b"][1] != sent["a"][1]


@pytest.mark.parametrize("parallel", [False, True])
def test_whoever_would_answer_says_so_and_nothing_happens(parallel: bool) -> None:
    """By a message of its own, over any channel; neither charge nor row; the unreachable offer nothing."""

    def dead(data: bytes) -> bytes:
        raise ConnectionRefusedError

    gates = {"rich": small_gate(Ledger()), "poor": small_gate(Ledger(), budget="0.05")}
    channels = {name: gate.serve for name, gate in gates.items()}
    disclosure = federation({**channels, "dead": dead}, parallel=parallel)
    before = {name: gate.ledger.head for name, gate in gates.items()}
    assert disclosure.offers(QUERY) == ("rich",)
    assert disclosure.offers(QUERY, ["poor"]) == ()
    assert {name: gate.ledger.head for name, gate in gates.items()} == before
    assert disclosure.released == 0


def test_what_is_proposed_decides_what_is_offered() -> None:
    """A cheaper question may still fit where the usual one does not."""
    policy = Policy(
        {QUERY.kind: (Guard.of("laplace", spend="0.2", cap="1"),)}, budget=Budget.of("0.1")
    )
    gate = Gate("c", Records(SMALL, np.zeros((3, 1))), policy, Ledger())
    disclosure = federation({"c": gate.serve})
    assert disclosure.offers(QUERY) == ()
    assert disclosure.offers(QUERY, spend=Fraction(1, 20)) == ("c",)


def test_an_offer_is_no_reply_and_a_reply_no_offer() -> None:
    """A client that mixes them up has said nothing."""
    gate = small_gate(Ledger())
    other = Request.of("x", QUERY)

    def swapped(data: bytes) -> bytes:
        try:
            about = wire.decode(data, DryRun).about
        except WireError:
            return gate.serve(wire.encode(DryRun(other)))
        return gate.serve(wire.encode(about))

    disclosure = federation({"c": swapped})
    assert disclosure.offers(QUERY) == ()
    with pytest.raises(NobodyAnswered, match="no reply in time"):
        disclosure.ask(QUERY)


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
    assert len(set(calls[-1:])) == 1 and signed.ledger.spent(PureEpsilon()).total[0] == SPEND
    unsigned = small_gate(Ledger(None, "d"))
    with pytest.raises(LedgerError, match="not signed"):
        federation({"c": unsigned.serve}, keys={"c": identity}).ask(QUERY)


def test_a_signed_head_beside_another_body_is_refused() -> None:
    """The signature covers the reply's own bytes: neither another reply nor another status fits."""
    key = b"k" * 32
    identity = Identity("d", Signer(key, "d").public)
    signed = small_gate(Ledger(None, "d", key=key))

    def swapping(data: bytes) -> bytes:
        envelope = wire.decode(signed.serve(data), Envelope)
        reply = envelope.open()
        if not isinstance(reply, Release):  # the dry run, before anything is charged
            return wire.encode(envelope)
        part = reply.parts["counts"]
        forged = replace(reply, parts={"counts": replace(part, units=part.units + 1)})
        return wire.encode(replace(envelope, body=wire.encode(forged)))

    with pytest.raises(LedgerError, match="not signed by the owner's key together"):
        federation({"c": swapping}, keys={"c": identity}).ask(QUERY)


@pytest.mark.parametrize("known", [True, False])
def test_a_forged_refusal_is_neither_believed_nor_kept(tmp_path: Path, known: bool) -> None:
    """One unsigned refusal with a head far ahead ends no later study, whether the key is known or not."""
    key, book = b"k" * 32, tmp_path / "heads.json"
    keys = {"c": Identity("d", Signer(key, "d").public)}
    honest = small_gate(Ledger(None, "d", key=key))

    def forging(data: bytes) -> bytes:
        message = wire.decode_plain(data)
        if "about" in message:
            return honest.serve(data)
        refusal = Refusal("c", message["id"], Reason.BUDGET)
        return wire.encode(Envelope.seal(refusal, Head(10**12, "ab" * 32)))

    federation({"c": honest.serve}, heads=HeadStore(book, keys), keys=keys).ask(QUERY)
    kept = HeadStore(book, keys)["c"]
    forged = federation(
        {"c": forging}, heads=HeadStore(book, keys if known else None), keys=keys if known else None
    )
    with pytest.raises(LedgerError, match="not signed") if known else pytest.raises(NobodyAnswered):
        forged.ask(Histogram(0, (0.0, 7.0)))
    assert HeadStore(book, keys)["c"] == kept and kept.signature
    later = federation({"c": honest.serve}, heads=HeadStore(book, keys), keys=keys)
    assert later.ask(Histogram(0, (0.0, 8.0))).only.releases


def test_a_wrong_key_is_noticed_before_anything_is_charged() -> None:
    """The dry run that opens an exchange is signed too: the ledger holds no charge afterwards."""
    gate = small_gate(Ledger(None, "d", key=b"k" * 32))
    for wrong in (Signer(b"w" * 32, "d").public, Signer(b"k" * 32, "e").public):
        own = Identity("d" if wrong != Signer(b"k" * 32, "d").public else "e", wrong)
        with pytest.raises(LedgerError, match="not signed by the owner's key"):
            federation({"c": gate.serve}, keys={"c": own}).ask(QUERY)
    assert gate.ledger.spent(PureEpsilon()).total[0] == 0


def test_unreadable_requests_and_dry_runs_are_answered_under_the_key() -> None:
    """Every kind of envelope is signed, so that every kind can be checked."""
    key = b"k" * 32
    identity, gate = Identity("d", Signer(key, "d").public), small_gate(Ledger(None, "d", key=key))
    request = Request.of("r", QUERY)
    for data in (b"\xff", wire.encode(DryRun(request)), wire.encode(request)):
        identity.check(wire.decode(gate.serve(data), Envelope))


def test_a_release_without_any_head_is_refused_where_a_key_is_known() -> None:
    """A head that was taken off is no way round the signature."""
    key = b"k" * 32
    signed = small_gate(Ledger(None, "d", key=key))

    def beheading(data: bytes) -> bytes:
        return wire.encode(replace(wire.decode(signed.serve(data), Envelope), head=None))

    identity = Identity("d", Signer(key, "d").public)
    with pytest.raises(LedgerError, match="not signed"):
        federation({"c": beheading}, keys={"c": identity}).ask(QUERY)


def test_a_reply_to_another_request_is_no_reply() -> None:
    """Replies that were swapped or kept back answer nothing."""
    gate, kept = small_gate(Ledger()), []

    def late(data: bytes) -> bytes:
        kept.append(gate.serve(data))
        return kept[-2] if len(kept) > 1 else kept[-1]

    disclosure = federation({"c": late, "good": small_gate(Ledger()).serve})
    assert isinstance(disclosure.ask(QUERY).only.replies["c"], Release)
    assert isinstance(disclosure.ask(QUERY).only.replies["c"], Absent)


BENT: dict[str, Callable[[ReleasedPart], ReleasedPart]] = {
    "one cell for all": lambda part: replace(part, units=part.units[:1]),
    "another grid": lambda part: replace(part, grid=Fraction(7)),
    "another type": lambda part: replace(part, type=PartType.VALUES),
    "fractions": lambda part: replace(part, units=part.units + 0.5),
    "a mask of another shape": lambda part: replace(part, mask=np.ones(3, bool)),
    "another axis": lambda part: replace(part, units=part.units[None]),
}


def bent(gate: Gate, change: Callable[[Release], Release]) -> Callable[[bytes], bytes]:
    """A gate whose releases arrive otherwise, as those of another version do."""

    def answer(data: bytes) -> bytes:
        envelope = wire.decode(gate.serve(data), Envelope)
        release = envelope.open()
        assert isinstance(release, Release)
        return wire.encode(Envelope.seal(change(release), envelope.head))

    return answer


@pytest.mark.parametrize("how", BENT)
def test_an_answer_of_another_form_is_not_added_up(how: str) -> None:
    """Its client is named once and counts as absent; the others' total is theirs."""
    gates = {name: small_gate(Ledger()) for name in ("a", "b")}
    channel = bent(
        gates["b"],
        lambda told: replace(told, parts={n: BENT[how](p) for n, p in told.parts.items()}),
    )
    asking = federation({"a": gates["a"].serve, "b": channel})
    with pytest.warns(Note, match="'b' answers small.histogram in another form") as told:
        answers = [asking.ask(QUERY).only for _ in range(2)]
    assert len(told) == 1
    for answer in answers:
        assert list(answer.releases) == ["a"] and isinstance(answer.replies["b"], Absent)
        np.testing.assert_array_equal(answer.total("counts"), answer.each("counts")["a"])


@pytest.mark.parametrize("field", ["query", "parts"])
def test_an_answer_to_another_question_is_none(field: str) -> None:
    """By its digest, or by a part that the question does not declare."""
    gate, other = small_gate(Ledger()), Histogram(0, (0.0, 100.0))

    def change(told: Release) -> Release:
        (part,) = told.parts.values()
        if field == "query":
            return replace(told, query=other.digest)
        return replace(told, parts={"other": part})

    with pytest.warns(Note, match="another form"), pytest.raises(NobodyAnswered):
        federation({"b": bent(gate, change)}).ask(QUERY)


def test_a_restored_copy_is_noticed_in_the_next_run(tmp_path: Path) -> None:
    """The asking side keeps its heads: four runs over one copied ledger spend its budget once."""
    path, copy, book = tmp_path / "l.db", tmp_path / "copy.db", tmp_path / "heads.json"
    key = b"k" * 32
    keys = {"c": Identity("d", Signer(key, "d").public)}
    ledger = Ledger(path, "d", key=key)
    small_gate(ledger, budget="1")
    ledger.close()
    shutil.copy(path, copy)
    released: list[Any] = []
    for _ in range(4):
        path.unlink()
        for beside in path.parent.glob("l.db-*"):
            beside.unlink()
        shutil.copy(copy, path)
        ledger = Ledger(path, "d", key=key)
        gate = small_gate(ledger, budget="1")
        disclosure = federation({"c": gate.serve}, heads=HeadStore(book, keys), keys=keys)
        try:
            released += disclosure.ask(
                *[Histogram(0, (0.0, float(n), 100.0)) for n in range(1, 11)]
            )
        except LedgerError as noticed:
            assert "its ledger was rewritten" in str(noticed)
        ledger.close()
    assert len(released) == 10
    assert HeadStore(book, keys)["c"].seq > 10


def test_the_next_run_goes_on_where_the_ledger_did(tmp_path: Path) -> None:
    """A ledger that grew since, by other studies too, passes through the head that was kept."""
    book, gate = tmp_path / "heads.json", small_gate(Ledger())
    for _ in range(3):
        disclosure = federation({"c": gate.serve}, heads=HeadStore(book))
        assert disclosure.ask(QUERY).only.releases
        assert disclosure.ask(QUERY).only.releases
        gate.answer(Request.of(f"other {len(list(gate.ledger.entries()))}", QUERY, "other"))


def test_two_runs_never_take_back_what_the_other_has_seen(tmp_path: Path) -> None:
    """One file of heads, two books open on it: the later head of each ledger is kept."""
    path, digest = tmp_path / "heads.json", "ab" * 32
    first, second = HeadStore(path), HeadStore(path)
    first["north"], second["south"] = Head(7, digest, "ab"), Head(3, digest, "ab")
    second["north"] = Head(5, digest, "ab")
    assert dict(HeadStore(path)) == {"north": Head(7, digest), "south": Head(3, digest)}
    assert dict(first) == {"north": Head(7, digest)}  # what this run itself has seen
    del first["north"]
    assert set(HeadStore(path)) == {"south"}


def test_two_runs_that_write_at_once_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the other run would write between this one's reading and writing waits until it has written."""
    path, digest = tmp_path / "heads.json", "ab" * 32
    first, second = HeadStore(path), HeadStore(path)
    other = threading.Thread(target=second.__setitem__, args=("south", Head(3, digest, "ab")))
    write = HeadStore._write

    def late(file: Path, heads: Any) -> None:
        if other.ident is None:
            other.start()
            other.join(0.3)
        write(file, heads)

    monkeypatch.setattr(HeadStore, "_write", staticmethod(late))
    first["north"] = Head(7, digest, "ab")
    other.join()
    assert set(HeadStore(path)) == {"north", "south"}


@pytest.mark.parametrize("text", ["", "{", '{"c": ["7:x", ""]}', '{"c": 7}'])
def test_a_damaged_book_of_heads_is_one_clear_error(tmp_path: Path, text: str) -> None:
    """It is never taken for an empty one."""
    (tmp_path / "heads.json").write_text(text)
    with pytest.raises(InputError, match="restore it from a copy"):
        HeadStore(tmp_path / "heads.json")


def test_a_hostile_client_is_silent() -> None:
    """Whatever bytes come back, they are a reply or no reply."""
    gate = small_gate(Ledger())
    sound = gate.serve(wire.encode({"id": "x"}))
    for bytes_ in (b"", b"\x00" * 100, sound[: len(sound) // 2], wire.encode({"status": "x"})):
        with pytest.raises(NobodyAnswered, match="no reply in time"):
            federation({"c": lambda data, reply=bytes_: reply}).ask(Histogram(0, (0.0, 1.0)))
