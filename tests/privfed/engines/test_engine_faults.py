"""Owners and askers as real processes that die, lines that lose and repeat: never over budget."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from engine_trials import (
    BadLine,
    Deadly,
    Hospital,
    Study,
    Telling,
    batch_of,
    eight,
    federation,
    gate_of,
    question,
)
from ledger_trials import QUERY, SMALL

from privfed.engines import remote
from privfed.engines.batches import Carrier, Replies
from privfed.engines.journal import Journal
from privfed.engines.owner_side import OwnerSide
from privfed.engines.remote import RemoteDisclosure
from privfed.engines.sockets import SocketCarrier, SocketServer, call_socket
from privfed.errors import LedgerError, NobodyAnswered, SchemaError
from privfed.exchange.channel import HeadStore, RetryLimits
from privfed.exchange.disclosure import ReplayDisclosure
from privfed.exchange.messages import Absent, Envelope, Reason, Refusal, Release, Request
from privfed.exchange.signing import Identity, Signer
from privfed.ledger import Ledger
from privfed.questions import wire
from privfed.tables.schema import Column, Schema


@pytest.fixture
def hospitals(tmp_path: Path) -> Iterator[tuple[Hospital, ...]]:
    """Three owners' processes."""
    started = [Hospital(tmp_path, name, seed=n).start() for n, name in enumerate("abc")]
    yield tuple(started)
    for hospital in started:
        hospital.kill()


@pytest.fixture
def clinic(tmp_path: Path) -> Iterator[Hospital]:
    """One owner's process."""
    hospital = Hospital(tmp_path).start()
    yield hospital
    hospital.kill()


def outcomes(replies: bytes) -> list[str]:
    """How each message of a batch was answered."""
    decoded = wire.decode(replies, Replies)
    return [wire.decode(one, Envelope).status for one in decoded.envelopes]


def told(journal: Path) -> int:
    """How many replies a journal holds."""
    return len(Journal.read(journal)) if journal.exists() and journal.stat().st_size else 0


def test_killed_between_charge_and_release_an_owner_answers_under_the_same_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The charge stands, the request is sent again and answered once, and nothing is charged twice."""
    monkeypatch.setattr(Deadly, "mark", tmp_path / "mark")
    Deadly.mark.touch()
    hospital = Hospital(tmp_path).start()
    asking = federation(hospital)
    carried = asking._carry

    def carry(batches: dict[str, bytes], seconds: float) -> dict[str, bytes]:
        told = dict(carried(batches, seconds))
        if not told:
            hospital.process.join()
            assert hospital.process.exitcode == -9
            hospital.start()
        return told

    monkeypatch.setattr(asking, "_carry", carry)
    first = asking.offers(QUERY)
    assert first == ("north",)
    replies = asking.ask(Deadly(0, (0.0, 50.0, 100.0))).only.replies
    assert isinstance(replies["north"], Release) and not Deadly.mark.exists()
    assert isinstance(asking.ask(QUERY).only.replies["north"], Release)
    hospital.kill()
    assert hospital.charges() == 2


def test_a_killed_server_goes_on_where_it_was_to_the_same_model(
    tmp_path: Path, hospitals: tuple[Hospital, ...]
) -> None:
    """Killed in the middle of a round three times: each question is charged once, to the bit."""
    (tmp_path / "other").mkdir()
    calm = [Hospital(tmp_path / "other", h.name, seed=h.seed).start() for h in hospitals]
    Study(tuple(calm), tmp_path / "other").run()
    study = Study(hospitals, tmp_path)
    for lines in (5, 25, 50):
        process = study.start()
        while told(tmp_path / "journal") < lines:
            assert process.is_alive()
            sleep(0.002)
        process.kill()
        process.join()
        assert not study.model.exists()
    study.run()
    for hospital in (*calm, *hospitals):
        hospital.kill()
        assert hospital.charges() == study.asked
    assert study.model.read_bytes() == (tmp_path / "other" / "model").read_bytes()
    transcript = Journal.read(tmp_path / "journal").transcript
    again = ReplayDisclosure(SMALL, transcript)
    totals = [again.ask(question(number)).total("counts") for number in range(study.asked)]
    assert wire.encode(totals) == study.model.read_bytes()


def test_over_a_bad_line_each_question_is_charged_once_and_answered_once(
    hospitals: tuple[Hospital, ...],
) -> None:
    """Lost, late, doubled, swapped and garbled: what is believed is what the ledgers hold."""
    line = BadLine(SocketCarrier({each.name: each.socket for each in hospitals}), seed=3)
    asking = federation(*hospitals, carry=line)
    for number in range(40):
        answers = asking.ask(question(number), question(400 + number))
        assert all(len(answer.releases) == 3 for answer in answers)
    assert min(line.counts.values()) >= 3
    for hospital in hospitals:
        ledger = Ledger.read(hospital.ledger)
        left = [one.release for _, one in ledger.disclosed()]
        ledger.close()
        told = [one.release for one in asking.journal.transcript.of(client=hospital.name)]
        assert hospital.charges() == len(left) == 80
        assert [wire.encode(one) for one in left] == [wire.encode(one) for one in told]


def test_eight_at_once_at_the_edge_of_the_budget_get_what_is_left_and_no_more(
    tmp_path: Path,
) -> None:
    """Room for two: two releases, six refusals for the budget."""
    hospital = Hospital(tmp_path, budget="0.2").start()

    def ask(number: int) -> bytes:
        request = Request.of(f"r{number}", question(number))
        return call_socket(hospital.socket, batch_of(wire.encode(request)))

    found = sorted(outcome for reply in eight(ask) for outcome in outcomes(reply))
    hospital.kill()
    assert found == ["refusal"] * 6 + ["release"] * 2
    assert hospital.charges() == 2


def test_eight_copies_of_one_request_at_once_get_the_same_bytes(clinic: Hospital) -> None:
    """A request that an engine delivers again and again is charged once."""
    data = batch_of(wire.encode(Request.of("r", QUERY)))
    assert len(set(eight(lambda _: call_socket(clinic.socket, data)))) == 1
    assert clinic.charges() == 1


def test_an_owner_put_back_from_a_copy_answers_nothing(tmp_path: Path) -> None:
    """The asking side kept a later head from another run; the copy's budget looks unspent."""
    key = bytes(range(32))
    north = {"north": Identity("north", Signer(key, "north").public)}
    clinic, book = Hospital(tmp_path, key=key).start(), tmp_path / "heads.json"
    federation(clinic, heads=HeadStore(book, north), keys=north).ask(QUERY)
    clinic.kill()
    files = [path for path in tmp_path.iterdir() if path.name.startswith(clinic.ledger.name)]
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in files:
        shutil.copy(path, copy)
    clinic.start()
    federation(clinic, heads=HeadStore(book, north), keys=north).ask(question(1))
    clinic.kill()
    for path in files:
        shutil.copy(copy / path.name, path)
    clinic.start()
    with pytest.raises(LedgerError, match="its ledger was rewritten"):
        federation(clinic, heads=HeadStore(book, north), keys=north).ask(question(2))
    clinic.kill()
    assert clinic.charges() == 1  # what the copy held


def test_a_strangers_client_is_not_believed(tmp_path: Path) -> None:
    """Whoever answers under an owner's name without its key ends the study; another name is absent."""
    key = bytes(range(32))
    north = {"north": Identity("north", Signer(key, "north").public)}
    for number, (name, own) in enumerate((("north", key), ("north", None), ("north", bytes(32)))):
        folder = tmp_path / str(number)
        folder.mkdir()
        hospital = Hospital(folder, name, key=own).start()
        asking = federation(hospital, keys=north)
        if own == key:
            assert asking.ask(QUERY).only.releases
        else:
            with pytest.raises(LedgerError, match="not signed by the owner's key"):
                asking.ask(QUERY)
        hospital.kill()
    other = Hospital(tmp_path, "stranger").start()
    asking = federation(Hospital(tmp_path, "north"), carry=patient({"north": other.socket}))
    asking._patience = type(asking._patience)(deadline=0.2, first=0.01)
    with pytest.raises(NobodyAnswered, match="no reply in time"):
        asking.ask(QUERY)
    other.kill()
    assert other.charges() == 1  # it was asked, and its word counts for nothing


def test_what_is_not_believed_is_not_written_down_either(tmp_path: Path) -> None:
    """Once the stranger, or the copy, is gone, the same study goes on: nothing of theirs is recalled."""
    key = bytes(range(32))
    north = {"north": Identity("north", Signer(key, "north").public)}
    journal, heads = Journal(), HeadStore()
    folders = [tmp_path / "owner", tmp_path / "stranger", tmp_path / "anew"]
    for folder in folders:
        folder.mkdir()
    owner, stranger, anew = (
        Hospital(folder, key=own) for folder, own in zip(folders, (key, None, key), strict=True)
    )
    for number, hospital in enumerate((owner, stranger, anew, owner)):
        hospital.start()
        asking = federation(hospital, keys=north, journal=journal, heads=heads)
        told = [asking.ask, asking.ask][: 1 + (number > 0)]
        if hospital is owner:
            for one, ask in enumerate(told):
                assert ask(question(one)).only.releases
        else:
            assert asking.ask(question(0)).only.releases  # recalled
            with pytest.raises(LedgerError):
                asking.ask(question(1))
        assert len(journal) == 2 + (number == 3)  # the dry run, and the releases
        hospital.kill()
    assert owner.charges() == 2


def test_an_exception_inside_a_question_leaves_as_noise_and_no_text(
    clinic: Hospital, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not in the reply, the journal or what the owner's process prints."""
    asking = federation(clinic)
    told = asking.ask(Telling(0, (0.0, 50.0, 100.0))).only.replies["north"]
    assert isinstance(told, Release)
    sent = b"".join(line.envelope for line in asking.journal)
    printed = capfd.readouterr()
    for text in (sent.decode("latin-1"), printed.out, printed.err):
        assert "SECRET" not in text and "RuntimeError" not in text


def test_sides_that_go_by_different_schemas_stop_before_anything_is_charged(
    clinic: Hospital,
) -> None:
    """One error says so; the ledger holds no charge."""
    other = Schema((Column("age", lower=0.0, upper=120.0),))
    asking = federation(clinic)
    asking.schema = other
    asking._digest = "0" * 64
    with pytest.raises(SchemaError, match="another schema"):
        asking.ask(QUERY)
    assert clinic.charges() == 0


def patient(sockets: Mapping[str, Path]) -> Callable[..., Mapping[str, bytes]]:
    """A carrier that waits for whoever has an open socket, however busy the machine is."""
    carry = SocketCarrier(sockets)
    return lambda batches, seconds: carry(batches, 60.0)


def test_a_client_that_is_gone_is_absent_and_the_others_go_on(
    hospitals: tuple[Hospital, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for until one deadline, then tried once a round, until it is back."""
    sockets, tries, slept = patient({each.name: each.socket for each in hospitals}), [0], [0.0]
    monkeypatch.setattr(remote, "monotonic", lambda: sum(slept))
    monkeypatch.setattr(remote, "sleep", slept.append)

    def carry(batches: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        tries[-1] += "b" in batches
        return sockets(batches, seconds)

    hospitals[1].kill()
    asking = federation(*hospitals, carry=carry, patience=RetryLimits(0.3, 0.01, 0.02))
    for number in range(3):
        replies = asking.ask(question(number)).only.replies
        assert [type(reply) for reply in replies.values()] == [Release, Absent, Release]
        tries.append(0)
    hospitals[1].start()
    for number in (3, 4):
        assert len(asking.ask(question(number)).only.releases) == 3
        tries.append(0)
    assert tries[0] > 3 and tries[1:5] == [1, 1, 1, 1]
    assert sum(slept) == pytest.approx(0.3)


def test_an_owner_who_cannot_write_her_ledger_is_asked_again_once_she_can(tmp_path: Path) -> None:
    """A full disk is no answer: it is told once a round, and a later run asks again for what no query rests on."""
    sides = {name: OwnerSide(gate_of(Hospital(tmp_path, name))) for name in ("a", "b")}
    disk = sides["a"].gate.ledger._store._db  # type: ignore[attr-defined]
    tries, room, lines = [0], [4], list[str]()

    class Full(Carrier):
        """Carries to both owners, of whom one has no room until some tries later."""

        def __call__(self, batches: Mapping[str, bytes], seconds: float) -> dict[str, bytes]:
            tries[0] += 1
            disk.execute(f"PRAGMA query_only = {int(tries[0] < room[0])}")
            for client in batches:
                self.heard(client)
            return {
                client: sides[client].answer(data, "server") for client, data in batches.items()
            }

    def asking(deadline: float = 60.0) -> RemoteDisclosure:
        patience = RetryLimits(deadline, 0.01, 0.02)
        return RemoteDisclosure(
            SMALL, list(sides), Full(), patience=patience, journal=journal, tell=lines.append
        )

    journal = Journal(tmp_path / "journal")
    first, second, third = (question(number) for number in range(3))
    assert len(asking().ask(first).only.releases) == 2 and tries[0] == 4
    assert re.sub(r"\d+\.\d", "N", "\n".join(lines)) == (
        "a: cannot write its ledger, and answers nothing until it can\nround 1: a N s, b N s"
    )
    tries[0], room[0], asked = 0, 10**6, asking(0.1)
    assert len(asked.ask(first).only.releases) == 2
    for query in (second, third):
        replies = asked.ask(query).only.replies
        assert [type(reply) for reply in replies.values()] == [Absent, Release]
    assert [line.split(" s, ")[-1] for line in lines[2:]] == [
        "a: cannot write its ledger, and answers nothing until it can",
        *["a cannot write its ledger"] * 2,
    ]
    assert asked.silent == {"a": 2}
    journal.close()
    journal, tries[0], room[0] = Journal(tmp_path / "journal"), 0, 0
    again = asking()
    for query, answered in (
        (first, 2),
        (second, 1),
        (third, 2),
    ):  # the third went out without a's second
        assert len(again.ask(query).only.releases) == answered
    times = [side.gate.ledger.times("")[QUERY.kind] for side in sides.values()]
    assert times == [2, 3] and again.silent == {"a": 1}
    journal.close()
    journal, tries[0], room[0] = Journal(), 0, 10**6
    sides["b"] = sides["a"]  # who cannot write either, and answers in another's name
    cause = r"no reply in time \(b\); the ledger cannot be written \(a\)"
    with pytest.raises(NobodyAnswered, match=cause):
        asking(0.1).ask(question(3))


def test_the_asker_is_whom_the_socket_knows(tmp_path: Path) -> None:
    """What a request says of itself does not count, in its charge nor in its refusals."""
    from engine_trials import gate_of

    from privfed.engines.owner_side import OwnerSide

    hospital = Hospital(tmp_path)
    gate = gate_of(hospital)
    side = OwnerSide(gate, rounds="hour")
    with SocketServer(hospital.socket, lambda data: side.answer(data, "university")):
        for number in range(2):
            request = Request.of("r", question(number), "somebody else", None, f"round {number}")
            call_socket(hospital.socket, batch_of(wire.encode(request)))
    rows = [entry for entry in gate.ledger.entries() if entry.request == "r"]
    assert {entry.principal for entry in rows} == {"university"}
    charged = next(entry for entry in rows if entry.event == "reserved")
    assert len(charged.body["round"]) == len("2026-01-01T00") and charged.body["round"][10] == "T"
    assert rows[-1].body["reason"] == Reason.MISMATCH


def test_bytes_that_are_no_batch_are_answered_by_nothing(clinic: Hospital) -> None:
    """Neither garbage, nor an empty batch, nor garbage in a batch leaves a charge."""
    assert outcomes(call_socket(clinic.socket, b"\xff\x00")) == []
    assert outcomes(call_socket(clinic.socket, batch_of())) == []
    (envelope,) = wire.decode(call_socket(clinic.socket, batch_of(b"no")), Replies).envelopes
    reply = wire.decode(envelope, Envelope).open()
    assert isinstance(reply, Refusal) and reply.reason == Reason.UNREADABLE
    assert clinic.charges() == 0


def test_more_than_goes_together_is_split_both_ways(tmp_path: Path) -> None:
    """Small limits on either side: every question is answered and charged once, in order."""
    from engine_trials import gate_of

    from privfed.engines.owner_side import OwnerSide

    hospital = Hospital(tmp_path)
    gate = gate_of(hospital)
    batches: list[int] = []
    side = OwnerSide(gate, together=900)
    with SocketServer(hospital.socket, lambda data: side.answer(data, "server")):
        sockets = SocketCarrier({"north": hospital.socket})

        def carry(sent: dict[str, bytes], seconds: float) -> dict[str, bytes]:
            batches.append(len(sent["north"]))
            return dict(sockets(sent, seconds))

        asking = federation(hospital, carry=carry, together=700)
        answers = asking.ask(*[question(number) for number in range(20)])
    assert len(batches) > 5 and all(len(answer.releases) == 1 for answer in answers)
    assert hospital.charges() == 20
    again = ReplayDisclosure(SMALL, asking.journal.transcript)
    replayed = again.ask(*[question(number) for number in range(20)])
    for told, same in zip(answers, replayed, strict=True):
        assert np.array_equal(told.total("counts"), same.total("counts"))
