"""Conformance of an attack: it reads releases only, accepts those of other programs, respects its deadline."""

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

NO_TIME = 1e-9  #: A time limit that expires before anything is read, in seconds
#: Changes an entry into one that another program may have written.
Change = Callable[[TranscriptEntry], TranscriptEntry]


@dataclass(frozen=True)
class AttackCase:
    """An attack under test, a transcript in which it finds something, the truth, the schema."""

    attack: Attack
    transcript: Transcript
    truth: Truth
    schema: PublicSchema | None

    def run(self, transcript: Transcript | None = None, *, attack: Any = None) -> list[Finding]:
        """Return the findings in its transcript or another one, scored against the truth."""
        chosen = self.transcript if transcript is None else transcript
        findings: list[Finding] = (attack or self.attack).findings(chosen, self.truth, self.schema)
        return findings

    @cached_property
    def findings(self) -> list[Finding]:
        """Findings of one run on its transcript."""
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
    data dictionary; by default :func:`small_transcript`.
    """
    if transcript is None:
        transcript, truth, schema = small_transcript()
    return run_checks(CHECKS, AttackCase(attack, transcript, truth or {}, schema), skip)


def small_transcript() -> tuple[Transcript, Truth, Schema]:
    """Exact, then noisy counts and sums of three clients, with their records (all distinctive) and schema."""
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
        str(owner): Records.from_frame(group.drop(columns="owner"), schema)
        for owner, group in owned.groupby("owner")
    }
    return Transcript(tuple(entries)), truth, schema


def check_says_what_it_asks(case: AttackCase) -> None:
    """It has a name, and a question that ends in a question mark."""
    attack = case.attack
    assert isinstance(attack, Attack), "derive it from privfed.extend.Attack"
    assert attack.name and attack.question.endswith("?"), f"name it: {attack.name!r}"


def check_finds_something(case: AttackCase) -> None:
    """The other checks mean something: there is work for it in the transcript, and it finds some."""
    assert case.attack.attackable(case.transcript), (
        f"it reads none of the transcript's releases, {', '.join(sorted({e.kind for e in case.transcript}))}; "
        "give a transcript that it can work on"
    )
    truth = "" if case.truth else ", and truth={client: records}, if it reads them"
    assert case.findings, f"give a transcript in which it finds something{truth}"


def check_empty(case: AttackCase) -> None:
    """Of an empty transcript, and of releases of nothing, it says nothing."""
    nothing = tuple(
        replace(entry, release=replace(entry.release, parts={})) for entry in case.transcript
    )
    for empty in (Transcript(), Transcript(nothing)):
        findings = [finding for finding in case.run(empty) if finding.value]
        assert not findings, f"it tells {findings[0].metric!r} of nothing"
    assert not case.attack.attackable(Transcript()), "nothing can be worked on in nothing"


def check_foreign(case: AttackCase) -> None:
    """It raises nothing over text, numbers that are not finite, other shapes, kinds and fields."""
    for name, transcript in foreign_transcripts(case.transcript):
        try:
            case.attack.attackable(transcript)
            case.run(transcript)
        except Exception as error:  # any exception would end an audit of such a transcript
            raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error


def check_repeatable(case: AttackCase) -> None:
    """The same transcript gives the same findings."""
    first, again = ([f.to_dict() for f in findings] for findings in (case.findings, case.run()))
    assert json.dumps(first) == json.dumps(again), "seed what it draws"


def check_findings(case: AttackCase) -> None:
    """A finding has its attack's name and question, a metric, finite figures and kinds that left."""
    kinds = {entry.kind for entry in case.transcript}
    for finding in case.findings:
        label = f"finding {finding.metric!r}"
        assert finding.metric, "a finding needs a metric"
        assert (finding.attack, finding.question) == (case.attack.name, case.attack.question), (
            f"{label} is not the attack's; build it by self.finding(...)"
        )
        assert finding.of is None or finding.value <= finding.of, (
            f"{label}: its value exceeds what it is of, {finding.of:g}"
        )
        assert finding.severity == "none" or finding.above > 0, (
            f"{label}: severity {finding.severity!r}, but the value is not above the baseline"
        )
        assert set(finding.releases) <= kinds, f"{label} names kinds that did not leave"
        figures = (finding.value, finding.of, finding.low, finding.high, finding.baseline)
        assert all(v is None or math.isfinite(v) for v in figures), f"{label} is not finite"
        data = json.loads(json.dumps(finding.to_dict()))
        assert Finding.from_dict(data).metric == finding.metric, f"{label} is not plain data"


def check_no_raw_values(case: AttackCase) -> None:
    """No raw value stands in a finding."""
    raw = {value for table in case.truth.values() for value in distinctive(table)}
    assert raw, (
        f"no raw value of {DIGITS} digits to look for; give truth={{client: records}} that have some, or "
        "skip this, with the reason"
    )
    for finding in case.findings:
        assert not raw & set(numbers(finding.to_dict())), (
            f"finding {finding.metric!r} contains a raw value"
        )


def check_without_truth(case: AttackCase) -> None:
    """Without the raw records it raises nothing, and marks no finding as simulated."""
    for finding in case.attack.run(case.transcript, None, case.schema):
        assert not finding.simulation, f"finding {finding.metric!r} says that it needed the truth"


def check_time(case: AttackCase) -> None:
    """Without time it begins nothing, and every finding says that it is partial."""
    hurried = copy(case.attack)
    hurried.time_limit = NO_TIME
    for finding in case.run(attack=hurried):
        assert finding.partial, (
            f"finding {finding.metric!r} does not say so; see privfed.extend.Attack.deadline"
        )


def foreign_transcripts(transcript: Transcript) -> Iterator[tuple[str, Transcript]]:
    """Yield the transcript as other programs may write it, each with a name of the change."""
    for name, change in _CHANGES.items():
        yield name, Transcript(tuple(change(entry) for entry in transcript))


def _apply(
    damage: Callable[[ReleasedPart], ReleasedPart], entry: TranscriptEntry, prefix: str = ""
) -> TranscriptEntry:
    parts = {prefix + name: damage(part) for name, part in entry.release.parts.items()}
    return replace(entry, release=replace(entry.release, parts=parts))


def _filled(value: Any) -> Change:
    return partial(_apply, lambda part: replace(part, units=np.full(part.units.shape, value)))


def _flat(part: ReleasedPart) -> ReleasedPart:
    mask = None if part.mask is None else part.mask.ravel()[1:]
    return replace(part, units=part.units.ravel()[1:], mask=mask)


_CHANGES: Mapping[str, Change] = {
    "text": _filled("a"),
    "not a number": _filled(np.nan),
    "infinite": _filled(np.inf),
    "negative": _filled(-1),
    "another shape": partial(_apply, _flat),
    "all hidden": partial(_apply, lambda part: replace(part, mask=np.ones(part.units.shape, bool))),
    "an unknown kind": lambda entry: replace(entry, kind="strange.kind"),
    "fields that are none": lambda entry: replace(entry, fields=b"\xc1"),
    "no fields": lambda entry: replace(entry, fields=b"\x80"),
    "parts of other names": partial(_apply, lambda part: part, prefix="odd "),
}


CHECKS: tuple[Check[AttackCase], ...] = checks_of(__name__)
