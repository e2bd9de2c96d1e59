"""The attacks' kit: planted faults do not pass it. That ours do is tested beside the attacks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from privfed.attacks.base import Attack, PublicSchema, Truth, exact_parts
from privfed.attacks.finding import Finding
from privfed.attacks.reading import finite_numbers
from privfed.exchange.transcript import Transcript
from privfed.testing.check_attack import CHECKS, check_attack


class Total(Attack):
    """Adds up exact counts, as it should."""

    name: ClassVar[str] = "total"
    question: ClassVar[str] = "How much was counted?"

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """One finding, where anything was counted."""
        entries, deadline, total, read = transcript.entries, self.deadline(), 0.0, 0
        for place in deadline.range(len(entries)):
            read += 1
            for part in exact_parts(entries[place]).values():
                values = finite_numbers(part) if part.type == "counts" else None
                total += 0.0 if values is None else float(np.nansum(values))
        partial = deadline.partial(read, len(entries), "releases")
        return [self.told(total, partial, truth)] if total else []

    def told(self, total: float, partial: str, truth: Truth | None) -> Finding:
        """What it says."""
        return self.finding("records counted", total, simulation=False, partial=partial)


def test_a_sound_attack_passes() -> None:
    """All nine checks run."""
    assert len(check_attack(Total())) == len(CHECKS) == 9


class Unasked(Total):
    """A planted fault: no question."""

    question: ClassVar[str] = "Counts."


class Blind(Total):
    """A planted fault: finds nothing anywhere."""

    def run(self, *_: Any, **__: Any) -> list[Finding]:
        """Nothing."""
        return []


class Inventing(Total):
    """A planted fault: tells something of nothing."""

    def run(self, *given: Any, **__: Any) -> list[Finding]:
        """A finding, whatever left."""
        return [self.told(1.0, "", None)]


class Trusting(Total):
    """A planted fault: takes every part for numbers."""

    def run(self, transcript: Transcript, *rest: Any, **named: Any) -> list[Finding]:
        """Adds up before it looks."""
        for entry in transcript:
            for part in entry.release.parts.values():
                float(part.values.sum() * 1.0)
        return super().run(transcript, *rest, **named)


class Moody(Total):
    """A planted fault: another figure each time."""

    draws: ClassVar[Iterator[int]] = iter(range(10**6))

    def told(self, total: float, partial: str, truth: Truth | None) -> Finding:
        """Whatever comes next."""
        return super().told(total + next(self.draws), partial, truth)


class Misnamed(Total):
    """A planted fault: speaks in another attack's name."""

    def told(self, total: float, partial: str, truth: Truth | None) -> Finding:
        """Another's."""
        return Finding("other", "Who?", "records", total, simulation=False, partial=partial)


class Overfull(Total):
    """A planted fault: a count, out of a share."""

    def told(self, total: float, partial: str, truth: Truth | None) -> Finding:
        """More than all of it."""
        return self.finding("records", total, of=1.0, simulation=False, partial=partial)


class Alarming(Total):
    """A planted fault: success at what is guessed anyway."""

    def told(self, total: float, partial: str, truth: Truth | None) -> Finding:
        """No better than its baseline."""
        figures: dict[str, Any] = {"baseline": total, "severity": "some", "partial": partial}
        return self.finding("records", total, simulation=False, **figures)


class Talkative(Total):
    """A planted fault: quotes a record."""

    def told(self, total: float, partial: str, truth: Truth | None) -> Finding:
        """With a value of the first record that is known."""
        quoted = {"a record": [float(table.x[0, 0]) for table in (truth or {}).values()]}
        return self.finding("records", total, simulation=False, partial=partial, detail=quoted)


class Pretending(Total):
    """A planted fault: calls simulated what needed no truth."""

    def told(self, total: float, partial: str, truth: Truth | None) -> Finding:
        """Simulated, it says."""
        return self.finding("records", total, simulation=True, partial=partial)


class Endless(Total):
    """A planted fault: does not look at the time."""

    def run(self, *given: Any, **named: Any) -> list[Finding]:
        """In its own time."""
        self.time_limit = 60.0
        return super().run(*given, **named)


@pytest.mark.parametrize(
    ("attack", "check"),
    [
        (Unasked, "says_what_it_asks"),
        (Blind, "finds_something"),
        (Inventing, "empty"),
        (Trusting, "foreign"),
        (Moody, "repeatable"),
        (Misnamed, "findings"),
        (Overfull, "findings"),
        (Alarming, "findings"),
        (Talkative, "no_raw_values"),
        (Pretending, "without_truth"),
        (Endless, "time"),
    ],
)
def test_planted_faults_fail(attack: type[Attack], check: str) -> None:
    """Each is found by the check that is meant for it, which says its rule."""
    with pytest.raises(AssertionError, match=f"^{check}: "):
        check_attack(attack())


def test_an_attack_on_other_kinds_is_told_what_the_transcript_has() -> None:
    """Otherwise its author does not know why there is nothing to work on."""

    class Elsewhere(Total):
        kinds: ClassVar[tuple[str, ...]] = ("their.table",)

    with pytest.raises(AssertionError, match=r"small\.histogram, small\.level; give a transcript"):
        check_attack(Elsewhere())


def test_a_check_is_skipped_for_a_reason_only() -> None:
    """And by its name."""
    assert len(check_attack(Pretending(), skip={"without_truth": "a figure of speech"})) == 8
    with pytest.raises(ValueError, match="reason"):
        check_attack(Total(), skip={"time": " "})
