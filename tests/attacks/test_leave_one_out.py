"""Answers that are no sums, asked again with and without a record: who changes them is found, chance accuses nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from privfed.attacks import leave_one_out
from privfed.attacks.base import question_of
from privfed.attacks.finding import Finding
from privfed.attacks.leave_one_out import LeaveOneOut
from privfed.exchange.messages import Release, ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.questions.part import Part, PartType
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing.check_attack import check_attack

SCHEMA = Schema((Column("a", lower=0, upper=1), Column("b", lower=0, upper=1)))


@dataclass(frozen=True)
class Median(Query):
    """The lower median of each column: fixed once the records are."""

    kind: ClassVar[str] = "tried.median"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``median`` by feature."""
        return {"median": Part(PartType.VALUES, ("feature",), (len(schema.features),))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Sort."""
        x = np.sort(view.table.x, axis=0)
        return {"median": x[(len(x) - 1) // 2] if len(x) else np.zeros(2)}


@dataclass(frozen=True)
class Listed(Median):
    """All records, the odd ones first: a list of any length."""

    kind: ClassVar[str] = "tried.listed"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``rows``."""
        return {"rows": Part(PartType.ARTIFACT, ("record", "feature"), (-1, 2))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Order them by a secret."""
        return {"rows": view.table.x[np.argsort(view.coins("tried"))]}


@dataclass(frozen=True)
class Chance(Median):
    """Numbers of the client's own secret alone, drawn anew where a record is away."""

    cells: int = 6
    kind: ClassVar[str] = "tried.chance"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``told`` by cell."""
        return {"told": Part(PartType.VALUES, ("cell",), (self.cells,))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Draw as many as there are records, and use the first few."""
        return {"told": view.rng("tried").normal(size=(self.cells, len(view.table)))[:, 0]}


@dataclass(frozen=True)
class Halves(Chance):
    """Means of features and their products over a half of the records, which secret coins choose."""

    kind: ClassVar[str] = "tried.halves"

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Average."""
        x = view.table.x[view.coins("tried") < np.uint64(2**63)]
        bent = np.cos(np.outer(x[:, 0] * 37 + x[:, 1] * 91, np.arange(1, self.cells + 1)))
        return {"told": bent.mean(axis=0) if len(bent) else np.zeros(self.cells)}


def asked(query: Query, clients: int, records: int) -> tuple[Transcript, dict[str, Records]]:
    """What a query releases of clients that share nothing, as it is."""
    rng = np.random.default_rng(5)
    truth = {f"c{n}": Records(SCHEMA, rng.uniform(size=(records, 2)), None) for n in range(clients)}
    declared = query.parts(SCHEMA)
    entries = []
    for name, table in truth.items():
        answer = query.evaluate(View(table, SCHEMA, secret=f"really {name}".encode()))
        parts = {
            part: ReleasedPart(declared[part].type, declared[part].axes, np.asarray(units))
            for part, units in answer.items()
        }
        entries.append(
            TranscriptEntry(
                name, query.kind, query.fields, Release(name, name, query.kind, query.digest, parts)
            )
        )
    return Transcript(tuple(entries)), truth


@pytest.fixture
def attack(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Attack a query that no plugin names."""

    def run(query: Query, clients: int = 4, records: int = 9) -> Finding:
        transcript, truth = asked(query, clients, records)
        monkeypatch.setattr(leave_one_out, "question_of", lambda entry: query)
        (found,) = LeaveOneOut().run(transcript, truth, SCHEMA)
        return found

    return run


def test_whose_absence_changes_a_fixed_answer_is_found(attack) -> None:  # type: ignore[no-untyped-def]
    """Of nine records some two or three, and those next to them, decide a median."""
    found = attack(Median())
    certain = found.detail["records without which the answers differ, for any possible secret"]
    assert found.value > 0.8 and found.severity == "some"
    assert 4 <= certain <= found.detail["members in doubt"]


def test_rows_of_a_list_are_found_in_any_order(attack) -> None:  # type: ignore[no-untyped-def]
    """A list in secret order holds whoever is in it."""
    assert attack(Listed()).value == 1.0


def test_chance_accuses_nobody(attack) -> None:  # type: ignore[no-untyped-def]
    """Without a record other numbers are drawn, but that says nothing of who was there."""
    found = attack(Chance(cells=20), 10, 8)
    assert found.low < 0.5 < found.high and found.severity == "none"
    assert found.high - found.low < 0.3


def test_scores_of_an_unknown_half_tell_on_whom_they_are(attack) -> None:  # type: ignore[no-untyped-def]
    """Sixty averages over some five records, which secret coins choose."""
    found = attack(Halves(cells=60), 8, 8)
    assert found.low > 0.6 and found.severity == "some"


@pytest.mark.parametrize(("query", "why"), [(Median(), "held out"), (Chance(), "drawn only once")])
def test_a_single_owner_with_nobody_beside_it_is_not_looked_at(attack, query, why) -> None:  # type: ignore[no-untyped-def]
    """Nothing to compare with is no pass."""
    found = attack(query, 1)
    assert found.state == "not looked" and why in found.why_not


def test_it_keeps_to_what_an_attack_must(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit for attacks, over medians."""
    transcript, truth = asked(Median(), 3, 20)
    query = Median()
    monkeypatch.setattr(
        leave_one_out,
        "question_of",
        lambda entry: (
            query
            if entry.kind == query.kind and entry.fields == query.fields
            else question_of(entry)
        ),
    )
    assert len(check_attack(LeaveOneOut(), transcript, truth=truth, schema=SCHEMA)) > 5


def test_sums_are_left_to_equations(diabetes) -> None:  # type: ignore[no-untyped-def]
    """Nothing of a fuzzy tree's sums is put again."""
    heard = diabetes("private").transcript
    assert not LeaveOneOut().attackable(heard)
