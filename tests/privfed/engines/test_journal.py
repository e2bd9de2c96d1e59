"""What the asking side was told, in a file: whole lines count, one process at a time goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from engine_trials import Hospital, federation, gate_of, question
from ledger_trials import QUERY, small_gate

from privfed.accountants.pure import PureEpsilon
from privfed.engines.batches import Replies
from privfed.engines.journal import Journal, JournalLine
from privfed.engines.owner_side import OwnerSide
from privfed.errors import InputError, Note
from privfed.exchange.channel import RetryLimits
from privfed.exchange.messages import DryRun, Envelope, Release, Request
from privfed.ledger import Ledger
from privfed.questions import wire


def line(number: int) -> JournalLine:
    """One reply of a small gate."""
    message = wire.encode(Request.of(f"r{number}", QUERY))
    return JournalLine("north", f"r{number}", message, small_gate(Ledger()).serve(message))


def test_a_journal_that_was_cut_off_anywhere_keeps_its_whole_lines(tmp_path: Path) -> None:
    """At whatever byte a process died, the lines before it are there and the session is the same."""
    path = tmp_path / "journal"
    journal, sizes = Journal(path), []
    for number in range(3):
        sizes.append(path.stat().st_size)
        journal.keep([line(number)])
    journal.close()
    data = path.read_bytes()
    for end in range(sizes[0], len(data), 37):
        path.write_bytes(data[:end])
        again = Journal(path)
        assert again.session == journal.session
        assert len(again) == sum(size <= end for size in [*sizes[1:], len(data)])
        again.keep([line(7)])
        again.close()
        assert Journal.read(path).find("north", "r7") is not None


def test_a_journal_that_hardly_began_begins_anew(tmp_path: Path) -> None:
    """A process that died while it wrote the first line had asked nothing."""
    path = tmp_path / "journal"
    path.write_bytes(b"\x00\x00\x00")
    journal = Journal(path)
    assert len(journal) == 0 and Journal.read(path).session == journal.session


def test_an_answer_of_another_form_never_enters_it(tmp_path: Path) -> None:
    """The study goes on without its owner, and its replay reads the others' alone."""
    sides = {name: OwnerSide(gate_of(Hospital(tmp_path, name))) for name in ("north", "south")}

    def bent(envelope: bytes) -> bytes:
        sealed = wire.decode(envelope, Envelope)
        told = sealed.open()
        assert isinstance(told, Release)
        parts = {name: replace(part, grid=Fraction(7)) for name, part in told.parts.items()}
        return wire.encode(Envelope.seal(replace(told, parts=parts), sealed.head))

    def carry(batches: Mapping[str, bytes], _: float) -> Mapping[str, bytes]:
        found = {name: sides[name].answer(data, "server") for name, data in batches.items()}
        said = wire.decode(found["south"], Replies) if "south" in found else Replies("", "", "")
        changed = replace(said, envelopes=tuple(map(bent, said.envelopes)))
        return {**found, "south": wire.encode(changed)}

    patience = RetryLimits(0.2, 0.01, 0.05)
    hospitals = [Hospital(tmp_path, name) for name in sides]
    asking = federation(*hospitals, carry=carry, patience=patience)
    with pytest.warns(Note, match="'south' answers small.histogram in another form"):
        assert list(asking.ask(question(1)).only.releases) == ["north"]
    assert [line.client for line in asking.journal] == ["north"]
    assert asking.silent == {"south": 1} and sides["south"].gate.ledger.spent(PureEpsilon()).times


def test_its_transcript_is_what_was_released(tmp_path: Path) -> None:
    """Offers and refusals are remembered, and are no part of it."""
    journal, gate = Journal(), small_gate(Ledger(), budget="0.05")
    about = wire.encode(DryRun(Request.of("r1", QUERY)))
    refused = wire.encode(Request.of("r2", QUERY))
    journal.keep([line(0), JournalLine("north", "r1", about, gate.serve(about))])
    journal.keep([JournalLine("north", "r2", refused, gate.serve(refused))])
    assert len(journal) == 3
    (left,) = journal.transcript
    assert (left.client, left.kind) == ("north", QUERY.kind)


def test_a_second_process_may_look_and_not_go_on(tmp_path: Path) -> None:
    """Two askers of one study would use the same ids for different questions."""
    path = tmp_path / "journal"
    journal = Journal(path)
    with pytest.raises(InputError, match="another process"):
        Journal(path)
    assert len(Journal.read(path)) == 0
    journal.close()
    Journal(path).close()


@pytest.mark.parametrize("damage", ["middle", "text", "folder", "nowhere"])
def test_a_damaged_journal_is_one_error(tmp_path: Path, damage: str) -> None:
    """It is never begun anew over what was told."""
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.keep([line(0), line(1)])
    journal.close()
    data = bytearray(path.read_bytes())
    if damage == "middle":
        data[40] ^= 0xFF
        path.write_bytes(data)
    elif damage == "text":
        path.write_bytes((5).to_bytes(8, "big") + "é€".encode())
    elif damage == "folder":
        path = tmp_path
    else:
        path = tmp_path / "nowhere" / "journal"
    with pytest.raises(InputError, match=r"cannot be used.*restore it"):
        Journal(path)
