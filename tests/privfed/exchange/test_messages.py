"""Answers of many clients, and the transcript that an attack may read."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privfed.errors import WireError
from privfed.exchange.disclosure import Answer, Answers
from privfed.exchange.messages import (
    EXPLANATIONS,
    Absent,
    Envelope,
    Failure,
    Reason,
    Refusal,
    Release,
    ReleasedPart,
)
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.privacy.laws import DiscreteGaussian, Law
from privfed.questions import wire
from privfed.questions.part import PartType
from privfed.testing.queries import Histogram

QUERY = Histogram(0, (0.0, 0.5, 1.0))


def release(client: str, units: list[int], noise: Law | None = None) -> Release:
    """One client's counts, the last cell suppressed."""
    mask = np.array([False] * (len(units) - 1) + [True])
    array = np.where(mask, 0, np.array(units))
    part = ReleasedPart(PartType.COUNTS, ("bin",), array, mask, Fraction(1, 2), "laplace", noise)
    return Release(client, "1", QUERY.kind, QUERY.digest, {"counts": part})


def test_released_arrays_are_read_only() -> None:
    """Whoever reads a release leaves it as it is for the next reader, decoded or not."""
    sent = release("north", [4, 9])
    for each in (sent, Envelope.seal(sent).open()):
        assert isinstance(each, Release)
        part = each.parts["counts"]
        assert part.mask is not None
        for array in (part.units, part.mask):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0


def answer() -> Answer:
    """Two releases, a refusal, a failure and a silence."""
    return Answer(
        QUERY,
        {
            "north": release("north", [4, 9], DiscreteGaussian(3.0)),
            "south": release("south", [2, 9], DiscreteGaussian(4.0)),
            "east": Refusal("east", "1", Reason.BUDGET),
            "west": Failure("west", "1"),
            "gone": Absent("gone", "1"),
        },
    )


def test_totals() -> None:
    """Totals are exact on the grid; suppressed cells count as zero; noise adds in squares."""
    assert list(answer().releases) == ["north", "south"]
    assert answer().units("counts").tolist() == [6, 0]
    assert answer().total("counts").tolist() == [3.0, 0.0]
    assert answer().deviation("counts") == pytest.approx(5.0 / 2)
    assert answer().each("counts")["north"].tolist() == [2.0, None]
    assert "counts" in answer()
    assert "sums" not in answer()


def test_a_part_that_nobody_released() -> None:
    """Asking for it names it."""
    with pytest.raises(KeyError, match="sums"):
        answer().units("sums")


def test_answers_of_one_and_of_many() -> None:
    """One answer speaks for itself; of several one must be picked."""
    one = Answers((answer(),))
    assert one.total("counts").tolist() == [3.0, 0.0]
    assert len(one.releases()) == 2
    assert "counts" in one
    with pytest.raises(ValueError, match="2 queries were asked"):
        _ = Answers((answer(), answer())).only


@pytest.mark.parametrize(
    "reply", [release("north", [1, 2]), Refusal("c", "1", Reason.TIMES), Failure("c", "1")]
)
def test_envelopes_round_trip(reply: Release | Refusal | Failure) -> None:
    """A reply's bytes give the reply back, byte for byte."""
    envelope = wire.decode(wire.encode(Envelope.seal(reply)), Envelope)
    assert type(envelope.open()) is type(reply)
    assert wire.encode(envelope.open()) == wire.encode(reply)


@pytest.mark.parametrize("status", ["absent", "", "pickle"])
def test_unknown_status(status: str) -> None:
    """A reply of another kind is no reply."""
    with pytest.raises(WireError, match="unknown status"):
        Envelope(status, b"").open()


def test_every_reason_has_a_text() -> None:
    """Refusals explain themselves, each in its own words."""
    assert set(EXPLANATIONS) == set(Reason)
    assert len(set(EXPLANATIONS.values())) == len(Reason)
    assert Refusal("c", "1", Reason.LEDGER).text == EXPLANATIONS[Reason.LEDGER]


def test_transcripts_are_filtered() -> None:
    """By kind, by client, by both; the question comes back as plain values."""
    entries = [
        TranscriptEntry(client, kind, QUERY.fields, release(client, [1, 2]))
        for client in ("north", "south")
        for kind in ("a", "b")
    ]
    transcript = Transcript(tuple(entries))
    assert transcript.clients == ("north", "south")
    assert len(transcript.of(kind="a")) == len(transcript.of(client="north")) == 2
    assert [entry.client for entry in transcript.of("b", "south")] == ["south"]
    assert entries[0].query == {"feature": 0, "edges": [0.0, 0.5, 1.0]}
