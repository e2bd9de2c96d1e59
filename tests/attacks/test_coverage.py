"""What nobody looked at is said."""

from __future__ import annotations

from dataclasses import replace

from privfed.attacks.coverage import coverage
from privfed.exchange.transcript import Transcript
from privfed.questions import plugins


def everybody() -> list:  # type: ignore[type-arg]
    """All installed attacks."""
    return [plugins.load("attacks", name)() for name in plugins.available("attacks")]


def test_kinds_that_only_the_scan_reads_are_named(diabetes) -> None:  # type: ignore[no-untyped-def]
    """A kind that nobody knows is left to the verbatim scan; those that add up are not."""
    heard = diabetes("published").transcript
    (found,) = coverage(heard, everybody())
    assert (found.value, found.severity, found.releases) == (0, "none", ())
    assert all("pool" in names for names in found.detail["read by"].values())
    strange = Transcript(tuple(replace(entry, kind="strange.kind") for entry in heard.entries[-3:]))
    (found,) = coverage(Transcript(heard.entries + strange.entries), everybody())
    assert (found.value, found.severity, found.releases) == (1, "some", ("strange.kind",))
    assert not found.simulation


def test_without_attacks_nothing_is_read(diabetes) -> None:  # type: ignore[no-untyped-def]
    """The scan alone knows no kind; of an empty transcript there is nothing to say."""
    heard = diabetes("published").transcript
    (found,) = coverage(heard, [plugins.load("attacks", "verbatim")()])
    kinds = {entry.kind for entry in heard if entry.release.parts}
    assert set(found.releases) == kinds and found.value == len(kinds)
    assert coverage(Transcript(), everybody()) == []


def test_noise_that_nobody_reads_is_told_apart(diabetes) -> None:  # type: ignore[no-untyped-def]
    """What left with noise is no exact release."""
    (found,) = coverage(diabetes("private").transcript, [])
    assert found.value == 0 and found.detail["left with noise and unread"]
