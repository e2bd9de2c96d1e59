"""Conformance of an attack: it reads releases only, survives foreign ones, reports progress."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from privfed.attacks.base import Attack, PublicSchema, Truth
from privfed.attacks.finding import Finding
from privfed.engines.local import LocalDisclosure
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.privacy.policy import Guard, Policy
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing.conformance import DIGITS, Check, checks_of, distinctive, numbers, run_checks
from privfed.testing.queries import Histogram, LevelSums

NO_TIME = 1e-9  #: A bound on time that is up before anything is read
#: Changes an entry into what another program may have written.
Change = Callable[[TranscriptEntry], TranscriptEntry]


@dataclass(frozen=True)
class AttackCase:
    """An attack under test, a transcript in which it finds something, the truth, the schema."""

    attack: Attack
    transcript: Transcript
    truth: Truth
    schema: PublicSchema | None

    def run(self, transcript: Transcript | None = None, *, attack: Any = None) -> list[Finding]:
        """The findings in its transcript or another one, scored by the truth."""
        read = self.transcript if transcript is None else transcript
        findings: list[Finding] = (attack or self.attack).findings(read, self.truth, self.schema)
        return findings

    @cached_property
    def found(self) -> list[Finding]:
        """The findings in its transcript, of one run."""
        return self.run()


def check_attack(
    attack: Attack,
    transcript: Transcript | None = None,
    *,
    truth: Truth | None = None,
    schema: PublicSchema | None = None,
    skip: Mapping[str, str] | None = None,
) -> list[str]:
    """Run every check on an attack; as :func:`.run_checks`.

    ``transcript`` is one in which it finds something, with the raw records by client (``truth``) and the public
    data dictionary; :func:`small_transcript` unless given.
    """
    if transcript is None:
        transcript, truth, schema = small_transcript()
    return run_checks(CHECKS, AttackCase(attack, transcript, truth or {}, schema), skip)


def small_transcript() -> tuple[Transcript, Truth, Schema]:
    """Counts and sums of three clients, exact, then noisy; every raw value is distinctive."""
    import pandas as pd

    schema = Schema((Column("x", lower=0, upper=1),), Column("y", lower=0, upper=1))
    rng, edges = np.random.default_rng(0), tuple(np.linspace(0, 1, 9))
    frame = pd.DataFrame(rng.uniform(size=(60, 2)), columns=["x", "y"])
    owned = frame.assign(owner=np.repeat(["one", "two", "three"], 20))
    queries = (Histogram(0, edges), LevelSums((((0, 0),), ((0, 1),))))
    entries: list[TranscriptEntry] = []
    setting: dict[str, Any] = {"client": "owner", "schema": schema, "seed": 0}
    for guard in (Guard.of("open"), Guard.of("laplace", spend=1)):
        policy = Policy({Histogram.kind: (guard,), LevelSums.kind: (guard,)})
        federation = LocalDisclosure.from_frame(
            owned, "y", policy=policy, queries=[*map(type, queries)], **setting
        )
        for query in queries:
            federation.ask(query)
        entries += federation.transcript().entries
    truth = {
        str(owner): Records.from_frame(own.drop(columns="owner"), schema)
        for owner, own in owned.groupby("owner")
    }
    return Transcript(tuple(entries)), truth, schema


def check_says_what_it_asks(case: AttackCase) -> None:
    """It has a name, and a question that ends in a question mark."""
    attack = case.attack
    assert isinstance(attack, Attack), "derive it from privfed.extend.Attack"
    assert attack.name and attack.question.endswith("?"), f"name it: {attack.name!r}"


def check_finds_something(case: AttackCase) -> None:
    """The other checks mean something: there is work for it in the transcript, and it finds some."""
    assert case.attack.attackable(case.transcript), "give a transcript that it can work on"
    assert case.found, "give a transcript in which it finds something"


def check_empty(case: AttackCase) -> None:
    """Of an empty transcript, and of releases of nothing, it says nothing."""
    nothing = tuple(
        replace(entry, release=replace(entry.release, parts={})) for entry in case.transcript
    )
    for empty in (Transcript(), Transcript(nothing)):
        findings = [each for each in case.run(empty) if each.value]
        assert not findings, f"it tells {findings[0].metric!r} of nothing"
    assert not case.attack.attackable(Transcript()), "nothing can be worked on in nothing"


def check_foreign(case: AttackCase) -> None:
    """It raises nothing over text, numbers that are not finite, other shapes, kinds and fields."""
    for what, transcript in foreign(case.transcript):
        try:
            case.attack.attackable(transcript)
            case.run(transcript)
        except Exception as error:  # whatever it is, a transcript from elsewhere ends the audit
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


def check_repeatable(case: AttackCase) -> None:
    """The same transcript gives the same findings."""
    first, again = ([each.to_dict() for each in found] for found in (case.found, case.run()))
    assert json.dumps(first) == json.dumps(again), "seed what it draws"


def check_findings(case: AttackCase) -> None:
    """A finding has its attack's name and question, a metric, finite figures and kinds that left."""
    kinds = {entry.kind for entry in case.transcript}
    for found in case.found:
        where = f"finding {found.metric!r}"
        assert found.metric, "a finding needs a metric"
        assert (found.attack, found.question) == (case.attack.name, case.attack.question), where
        assert set(found.releases) <= kinds, f"{where} names kinds that did not leave"
        figures = (found.value, found.of, found.low, found.high, found.baseline)
        assert all(x is None or math.isfinite(x) for x in figures), f"{where} is not finite"
        plain = json.loads(json.dumps(found.to_dict()))
        assert Finding.from_dict(plain).metric == found.metric, f"{where} is no plain data"


def check_no_raw_values(case: AttackCase) -> None:
    """No raw value stands in a finding."""
    raw = {value for table in case.truth.values() for value in distinctive(table)}
    assert raw, (
        f"no raw value of {DIGITS} digits to look for; give truth={{client: records}} that have some, or "
        "skip this, with the reason"
    )
    for found in case.found:
        assert not raw & set(numbers(found.to_dict())), (
            f"finding {found.metric!r} tells a raw value"
        )


def check_without_truth(case: AttackCase) -> None:
    """Without the raw records it raises nothing, and marks no finding as simulated."""
    for found in case.attack.run(case.transcript, None, case.schema):
        assert not found.simulation, f"finding {found.metric!r} says that it needed the truth"


def check_time(case: AttackCase) -> None:
    """Without time it begins nothing, and every finding says that it is partial."""
    hurried = copy(case.attack)
    hurried.time_limit = NO_TIME
    for found in case.run(attack=hurried):
        assert found.partial, (
            f"finding {found.metric!r} does not say so; see privfed.extend.Attack.deadline"
        )


def foreign(transcript: Transcript) -> Iterator[tuple[str, Transcript]]:
    """The same transcript as other programs may write it, each with what is odd about it."""
    for what, change in _CHANGES.items():
        yield what, Transcript(tuple(change(entry) for entry in transcript))


def _parts(
    damage: Callable[[ReleasedPart], ReleasedPart], entry: TranscriptEntry, prefix: str = ""
) -> TranscriptEntry:
    parts = {prefix + name: damage(part) for name, part in entry.release.parts.items()}
    return replace(entry, release=replace(entry.release, parts=parts))


def _filled(value: Any) -> Change:
    return partial(_parts, lambda part: replace(part, units=np.full(part.units.shape, value)))


def _flat(part: ReleasedPart) -> ReleasedPart:
    mask = None if part.mask is None else part.mask.ravel()[1:]
    return replace(part, units=part.units.ravel()[1:], mask=mask)


_CHANGES: Mapping[str, Change] = {
    "text": _filled("a"),
    "not a number": _filled(np.nan),
    "infinite": _filled(np.inf),
    "negative": _filled(-1),
    "another shape": partial(_parts, _flat),
    "all hidden": partial(_parts, lambda part: replace(part, mask=np.ones(part.units.shape, bool))),
    "an unknown kind": lambda entry: replace(entry, kind="strange.kind"),
    "fields that are none": lambda entry: replace(entry, fields=b"\xc1"),
    "no fields": lambda entry: replace(entry, fields=b"\x80"),
    "parts of other names": partial(_parts, lambda part: part, prefix="odd "),
}


CHECKS: tuple[Check[AttackCase], ...] = checks_of(__name__)
