"""Conformance of an attack: it reads releases only, survives foreign ones, reports progress."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
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
from privfed.testing.conformance import Check, checks_of, run_checks
from privfed.testing.queries import Histogram, LevelSums

#: A raw value is told from a public figure where it takes at least so many digits to write.
DIGITS = 5
#: A bound on time that is up before anything is read.
NO_TIME = 1e-9
#: Changes one part into what another program may have written.
Damage = Callable[[ReleasedPart], ReleasedPart]


@dataclass(frozen=True)
class AttackCase:
    """An attack under test, a transcript in which it finds something, the truth, the schema."""

    attack: Attack
    transcript: Transcript
    truth: Truth
    schema: PublicSchema | None

    def run(self, transcript: Transcript | None = None, *, attack: Any = None) -> list[Finding]:
        """The findings under test's transcript or another, scored by the truth."""
        heard = self.transcript if transcript is None else transcript
        found: list[Finding] = (attack or self.attack).run(heard, self.truth, self.schema)
        return found


def check_attack(
    attack: Attack,
    transcript: Transcript | None = None,
    *,
    truth: Truth | None = None,
    schema: PublicSchema | None = None,
    skip: Mapping[str, str] | None = None,
) -> list[str]:
    """Run every check on an attack.

    Args:
        attack: what is checked.
        transcript: one in which the attack finds something to work on; counts and sums of three
            small clients, exact and noisy ones, unless given.
        truth: the raw records by client, with a transcript.
        schema: the public data dictionary, likewise.
        skip: checks that do not apply, each with the reason.

    Returns:
        The names of the checks that ran.

    Raises:
        AssertionError: a check failed; the message names it.
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
    heard: list[TranscriptEntry] = []
    for guard in (Guard.of("open"), Guard.of("laplace", spend=1)):
        policy = Policy({Histogram.kind: (guard,), LevelSums.kind: (guard,)})
        federation = LocalDisclosure.from_frame(
            owned,
            "y",
            client="owner",
            schema=schema,
            policy=policy,
            seed=0,
            queries=[*map(type, queries)],
        )
        for query in queries:
            federation.ask(query)
        heard += federation.transcript().entries
    truth = {
        str(owner): Records.from_frame(own.drop(columns="owner"), schema)
        for owner, own in owned.groupby("owner")
    }
    return Transcript(tuple(heard)), truth, schema


def check_says_what_it_asks(case: AttackCase) -> None:
    """It has a name, a question that ends in a question mark, and a bound on its time."""
    attack = case.attack
    assert isinstance(attack, Attack), "derive it from privfed.extend.Attack"
    assert attack.name and attack.question.endswith("?"), f"name it: {attack.name!r}"
    assert hasattr(attack, "time_limit"), "its __init__ must call super().__init__()"


def check_finds_something(case: AttackCase) -> None:
    """The other checks mean something: there is work for it in the transcript, and it finds some."""
    assert case.attack.attackable(case.transcript), "give a transcript that it can work on"
    assert case.run(), "give a transcript in which it finds something"


def check_empty(case: AttackCase) -> None:
    """Of an empty transcript, and of releases of nothing, it says nothing."""
    nothing = tuple(
        replace(entry, release=replace(entry.release, parts={})) for entry in case.transcript
    )
    for heard in (Transcript(), Transcript(nothing)):
        found = [each for each in case.run(heard) if each.value]
        assert not found, f"it tells {found[0].metric!r} of nothing"
    assert not case.attack.attackable(Transcript()), "nothing can be worked on in nothing"


def check_foreign(case: AttackCase) -> None:
    """It raises nothing over text, numbers that are not finite, other shapes, kinds and fields."""
    for what, heard in foreign(case.transcript):
        try:
            case.attack.attackable(heard)
            case.run(heard)
        except Exception as error:  # whatever it is, a transcript from elsewhere ends the audit
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


def check_repeatable(case: AttackCase) -> None:
    """The same transcript gives the same findings."""
    first, again = ([each.to_dict() for each in case.run()] for _ in range(2))
    assert json.dumps(first) == json.dumps(again), "seed what it draws"


def check_findings(case: AttackCase) -> None:
    """A finding has its attack's name and question, a metric, finite figures and kinds that left."""
    kinds = {entry.kind for entry in case.transcript}
    for found in case.run():
        where = f"finding {found.metric!r}"
        assert found.metric, "a finding needs a metric"
        assert (found.attack, found.question) == (case.attack.name, case.attack.question), where
        assert set(found.releases) <= kinds, f"{where} names kinds that did not leave"
        figures = (found.value, found.of, found.low, found.high, found.baseline)
        assert all(x is None or math.isfinite(x) for x in figures), f"{where} is not finite"
        told = json.loads(json.dumps(found.to_dict()))
        assert Finding.from_dict(told).metric == found.metric, f"{where} is no plain data"


def check_no_raw_values(case: AttackCase) -> None:
    """No raw value stands in a finding."""
    raw = {value for table in case.truth.values() for value in _distinctive(table)}
    assert raw, f"no raw value of {DIGITS} digits to look for; skip this, with the reason"
    for found in case.run():
        assert not raw & set(_told(found.to_dict())), f"finding {found.metric!r} tells a raw value"


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
    for what, damage in _DAMAGES.items():
        yield what, Transcript(tuple(_damaged(entry, damage) for entry in transcript))
    for what, change in _CHANGES.items():
        yield what, Transcript(tuple(change(entry) for entry in transcript))


def _damaged(entry: TranscriptEntry, damage: Damage) -> TranscriptEntry:
    parts = {name: damage(part) for name, part in entry.release.parts.items()}
    return replace(entry, release=replace(entry.release, parts=parts))


def _filled(value: Any) -> Damage:
    return lambda part: replace(part, units=np.full(part.units.shape, value))


def _flat(part: ReleasedPart) -> ReleasedPart:
    mask = None if part.mask is None else part.mask.ravel()
    return replace(part, units=part.units.ravel()[1:], mask=None if mask is None else mask[1:])


def _hidden(part: ReleasedPart) -> ReleasedPart:
    return replace(part, mask=np.ones(part.units.shape, bool))


_DAMAGES: Mapping[str, Damage] = {
    "text": _filled("a"),
    "not a number": _filled(np.nan),
    "infinite": _filled(np.inf),
    "negative": _filled(-1),
    "another shape": _flat,
    "all hidden": _hidden,
}
_CHANGES: Mapping[str, Callable[[TranscriptEntry], TranscriptEntry]] = {
    "an unknown kind": lambda entry: replace(entry, kind="strange.kind"),
    "fields that are none": lambda entry: replace(entry, fields=b"\xc1"),
    "no fields": lambda entry: replace(entry, fields=b"\x80"),
    "parts of other names": lambda entry: replace(
        entry,
        release=replace(
            entry.release, parts={f"odd {name}": part for name, part in entry.release.parts.items()}
        ),
    ),
}


def _distinctive(table: Any) -> Iterator[float]:
    """The cells of a table that take many digits to write."""
    columns = [column for name in "xy" if (column := getattr(table, name, None)) is not None]
    for value in np.concatenate([np.empty(0), *(column.ravel() for column in columns)]).tolist():
        if sum(digit.isdigit() for digit in f"{value:.12g}".strip("0.")) >= DIGITS:
            yield float(value)


def _told(plain: Any) -> Iterator[float]:
    """Every number in plain data, and those that its texts hold."""
    if isinstance(plain, Mapping):
        for key, value in plain.items():
            yield from (*_told(key), *_told(value))
    elif isinstance(plain, list | tuple):
        for value in plain:
            yield from _told(value)
    elif isinstance(plain, str):
        for word in plain.replace(",", " ").split():
            try:
                yield float(word)
            except ValueError:
                continue
    elif isinstance(plain, int | float):
        yield float(plain)


CHECKS: tuple[Check[AttackCase], ...] = checks_of(__name__)
