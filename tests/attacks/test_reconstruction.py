"""What follows from a ledger as a whole: cells, small groups, values, outcomes, of several studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from privfed import Budget, Column, Guard, LocalDisclosure, Policy, Schema
from privfed.attacks import base, ledger_rows, reconstruction
from privfed.attacks.deadline import Deadline
from privfed.attacks.finding import Finding
from privfed.attacks.ledger_rows import LinearSystem, rows_of, several_studies
from privfed.attacks.reconstruction import (
    EQUATIONS,
    GROUPS,
    LIKELIEST,
    MOMENTS,
    NO_CONTROL,
    OUTCOMES,
    SINGLE,
    TABLE,
    Reconstruction,
    SuccessCounts,
    cells,
    differences,
    guess_outcomes,
    power_sums,
)
from privfed.attacks.roc import interval
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.questions.part import GRID, Bound, Part, PartType, Sensitivity, on_grid
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.testing.queries import Histogram, LevelSums

OPEN = Policy(
    {
        kind: (Guard.of("open"),)
        for kind in ("small.histogram", "small.level", "own.group", "own.pair", "own.products")
    },
    name="open",
)
AGES = Schema((Column("age", "number", 0, 100),), Column("days", "number", 0, 10))


@dataclass(frozen=True)
class Group(Query):
    """Count, sum and sum of squares of the ages in an interval; sensitivity 1 each."""

    low: float
    high: float
    kind: ClassVar[str] = "own.group"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One cell each."""
        one, unit = Sensitivity.of(1), Sensitivity.of(int(1 / GRID))
        sums = Part(PartType.SUMS, ("group",), (1,), unit, GRID)
        return {"n": Part(PartType.COUNTS, ("group",), (1,), one), "sum": sums, "squares": sums}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Ages as shares of 100."""
        age = view.table.x[:, 0] / 100
        inside = (self.low <= view.table.x[:, 0]) & (view.table.x[:, 0] < self.high)
        told = {"n": inside, "sum": on_grid(age * inside), "squares": on_grid(age**2 * inside)}
        return {name: np.array([each.sum()]) for name, each in told.items()}


@dataclass(frozen=True)
class PairOfColumns(Query):
    """A two-way table of whole columns; sensitivity 1."""

    one: int
    other: int
    kind: ClassVar[str] = "own.pair"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """Counts by both columns' values."""
        shape = tuple(int(schema.features[at].bounds[1]) + 1 for at in (self.one, self.other))
        return {"counts": Part(PartType.COUNTS, ("one", "other"), shape, Sensitivity(Bound(1, 1)))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Count."""
        shape = self.parts(view.schema)["counts"].shape
        counts = np.zeros(shape, dtype=int)
        np.add.at(counts, tuple(view.table.x[:, [self.one, self.other]].astype(int).T), 1)
        return {"counts": counts}


@dataclass(frozen=True)
class Subset(Query):
    """Sum of the outcome over a public half of all ages; sensitivity 1."""

    seed: int
    kind: ClassVar[str] = "own.subset"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One cell."""
        unit = Sensitivity.of(int(1 / GRID))
        return {"sum": Part(PartType.SUMS, ("all",), (1,), unit, GRID)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Add up."""
        return {name: each.sum(axis=0) for name, each in self.contribution(view).items()}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """The outcome of those inside."""
        inside = np.sin(view.table.x[:, 0] * (1000 + 37 * self.seed)) > 0
        return {"sum": on_grid(view.table.target * inside)[:, None]}


@dataclass(frozen=True)
class Products(Query):
    """Products of 1, age and days, summed over ages in an interval; sensitivity 9 at most."""

    low: float
    high: float
    kind: ClassVar[str] = "own.products"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One matrix."""
        unit = Sensitivity.of(9 * int(1 / GRID))
        return {"products": Part(PartType.SUMS, ("cell", "one", "other"), (1, 3, 3), unit, GRID)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Add up."""
        return {name: each.sum(axis=0) for name, each in self.contribution(view).items()}

    def contribution(self, view: View) -> Mapping[str, np.ndarray]:
        """What each record adds."""
        age, days = view.table.x[:, 0], view.table.target
        inside = (self.low <= age) & (age < self.high)
        row = np.column_stack([np.ones(len(age)), age / 100, days / 10]) * inside[:, None]
        return {"products": on_grid(np.einsum("ri,rj->rij", row, row))[:, None]}


OWN: dict[str, type[Query]] = {each.kind: each for each in (Group, PairOfColumns, Products, Subset)}


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two questions above are known to attacks."""
    known = base.question_of

    def asked(entry: TranscriptEntry) -> Query | None:
        own = OWN.get(entry.kind)
        return known(entry) if own is None else own.from_fields(entry.fields)

    monkeypatch.setattr(ledger_rows, "question_of", asked)


def released(
    frame: pd.DataFrame, schema: Schema, *questions: Query, policy: Policy = OPEN
) -> Transcript:
    """What one clinic says to some questions."""
    target = None if schema.target is None else schema.target.name
    table = frame.assign(clinic="A")
    fed = LocalDisclosure.from_frame(
        table, target, client="clinic", schema=schema, policy=policy, seed=1,
        queries=list(OWN.values()),
    )  # fmt: skip
    for question in questions:
        fed.ask(question)
    return fed.transcript()


def attack(transcript: Transcript, frame: pd.DataFrame, schema: Schema) -> dict[str, Finding]:
    """What the attack finds, by metric."""
    truth = {"A": Records.from_frame(frame, schema)}
    return {each.metric: each for each in Reconstruction().run(transcript, truth, schema)}


def people(number: int = 40) -> pd.DataFrame:
    """Ages and days, continuous."""
    rng = np.random.default_rng(3)
    return pd.DataFrame({"age": rng.uniform(0, 100, number), "days": rng.uniform(0, 10, number)})


def test_two_studies_isolate_who_neither_does() -> None:
    """Younger than 50 in one study, than a little less in another: the one between is alone."""
    frame = people()
    ages = np.sort(frame["age"])
    edge = float((ages[20] + ages[21]) / 2), float((ages[21] + ages[22]) / 2)
    studies = [released(frame, AGES, Histogram(0, (0.0, end, 100.0))) for end in edge]
    for alone in studies:
        assert attack(alone, frame, AGES)[GROUPS].value == 0
    found = attack(several_studies(studies), frame, AGES)[GROUPS]
    assert found.value == found.of == 1 and found.severity == "some"


def test_a_parent_less_its_child_gives_a_single_record_s_outcome() -> None:
    """Nested tree nodes with one record between them: its target follows from the sums."""
    frame = pd.DataFrame({"age": [10.0, 20, 30, 40, 45, 90], "days": [1.0, 2, 3, 4, 5, 9.5]})
    told = released(frame, AGES, LevelSums(((),)), LevelSums((((0, 0),),)))
    found = attack(told, frame, AGES)
    assert found[GROUPS].value == 1 and found[SINGLE].value == found[SINGLE].of == 1


def test_sums_that_weigh_the_others_differently_claim_no_value() -> None:
    """The same two counts, beside sums whose weights inside are not alike."""
    design = np.array([[1, 1, 1], [1, 1, 0], [2, 3, 5], [2, 4, 0.0]])
    names = ((0, "n", 0), (0, "n", 1), (0, "sum", 0), (0, "sum", 1))
    counts = np.array([True, True, False, False])
    rows = LinearSystem(design, design.sum(axis=1), np.zeros(4), counts, ~counts, names)
    groups, single = differences(rows, slice(0, 3), deadline=Deadline(9))
    assert (groups.correct, groups.claimed, single.claimed) == (1, 1, 0)
    design[3] = [2, 3, 0]
    alike = LinearSystem(design, design.sum(axis=1), np.zeros(4), counts, ~counts, names)
    assert differences(alike, slice(0, 3), deadline=Deadline(9))[1].correct == 1


def counted(design: np.ndarray, answers: np.ndarray, deviation: float = 0.0) -> LinearSystem:
    """Rows that count records."""
    rows, yes = len(design), np.ones(len(design), bool)
    names = tuple((0, "n", cell) for cell in range(rows))
    return LinearSystem(design, answers, np.full(rows, deviation), yes, ~yes, names)


def test_groups_of_five_and_of_nobody_are_not_small() -> None:
    """Between two counts: four are, five are not, and where only others lie there is no group."""
    whole = np.ones(7)
    for inside, claimed in (
        ([0, 0, 0, 0, 1, 1, 1], 1),
        ([0, 0, 0, 0, 0, 1, 1], 0),
        ([1, 1, 1, 1, 1, 1, 0], 0),
    ):
        design = np.array([whole, inside])
        rows = counted(design, design[:, :6].sum(axis=1))
        groups, _ = differences(rows, slice(0, 6), deadline=Deadline(9))
        assert (groups.correct, groups.claimed) == (claimed, claimed)


def test_a_count_is_claimed_where_rounding_is_hardly_ever_wrong() -> None:
    """At a deviation of a quarter; at two fifths the same right answers are luck."""
    held, design = np.array([3.0, 7.0]), np.eye(2)
    for deviation, found in ((0.25, 10), (0.4, 0)):
        told = cells(counted(design, held + 0.1, deviation), held, deadline=Deadline(9))
        assert told is not None and told.correct == found and told.claimed == 10


def test_values_that_power_sums_give_wrongly_are_not_found() -> None:
    """Two of four candidates; the sum was moved, so that other values follow."""
    x = np.array([1.0, 4.0, 2.0, 7.0])
    design, none = np.array([np.ones(4), x, x**2]), np.zeros(3)
    names, counts = (
        tuple((0, part, 0) for part in ("n", "sum", "squares")),
        np.array([True, False, False]),
    )
    for moved, right in ((0.0, 2), (0.5, 0)):
        answers = design[:, :2].sum(axis=1) + np.array([0, moved, 0])
        rows = LinearSystem(design, answers, none, counts, ~counts, names)
        told = power_sums(rows, slice(0, 2))
        assert (told.correct, told.claimed) == (right, 2)


def test_power_sums_of_two_give_both_values() -> None:
    """A count, a sum and a sum of squares of two people; not of a dozen."""
    frame = people(14)
    ages = np.sort(frame["age"])
    two, rest = float(ages[1:3].mean()), 100.0
    found = attack(released(frame, AGES, Group(0, two)), frame, AGES)
    assert found[MOMENTS].value == found[MOMENTS].of == 2
    assert MOMENTS not in attack(released(frame, AGES, Group(two, rest)), frame, AGES)


def test_a_single_record_s_equations_give_it_away() -> None:
    """Its age and days, from products over an interval with nobody else in it; not those of many."""
    frame = people()
    ages = np.sort(frame["age"])
    alone = Products(0, float(ages[:2].mean()))
    found = attack(released(frame, AGES, alone, Products(0, 100)), frame, AGES)[EQUATIONS]
    assert (found.value, found.of, found.severity) == (1, 40, "some")
    found = attack(released(frame, AGES, Products(0, 100)), frame, AGES)[EQUATIONS]
    assert (found.value, found.severity) == (0, "none")


def test_cells_that_were_not_paired_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two cells with a record each one is looked at, and the finding says so."""
    frame = people()
    ages = np.sort(frame["age"])
    ends = Products(0, float(ages[:2].mean())), Products(float(ages[-2:].mean()), 100)
    transcript = released(frame, AGES, *ends)
    found = attack(transcript, frame, AGES)[EQUATIONS]
    assert found.value == 2 and not found.partial
    monkeypatch.setattr(reconstruction, "CELLS", 1)
    found = attack(transcript, frame, AGES)[EQUATIONS]
    assert found.value == 1 and found.partial == "1 of 2 cells of few records are paired"


WHOLE = Schema(tuple(Column(n, "integer", 0, top) for n, top in (("a", 1), ("b", 2), ("c", 3))))


def few(number: int) -> pd.DataFrame:
    """Three whole columns."""
    rng = np.random.default_rng(2)
    tops = {column.name: int(column.bounds[1]) for column in WHOLE.features}
    return pd.DataFrame({name: rng.integers(0, top + 1, number) for name, top in tops.items()})


MARGINS = (PairOfColumns(0, 1), PairOfColumns(0, 2), PairOfColumns(1, 2))


def test_few_people_follow_from_two_way_tables() -> None:
    """Six people in 24 cells from three two-way tables; no cell was told outright."""
    frame = few(6)
    found = attack(released(frame, WHOLE, *MARGINS), frame, WHOLE)[TABLE]
    assert found.value == found.of == 6 and found.baseline == 0


def test_one_table_alone_says_what_it_says() -> None:
    """Its own cells are told outright: nothing beyond them."""
    frame = few(30)
    found = attack(released(frame, WHOLE, PairOfColumns(0, 1)), frame, WHOLE)[TABLE]
    assert found.value == found.baseline == 30 and found.severity == "none"


@pytest.mark.parametrize(("spend", "severity"), [("8", "some"), ("0.01", "none")])
def test_the_likeliest_table_holds_who_was_there_not_who_is_like_them(
    spend: str, severity: str
) -> None:
    """Held-out records of the same clinic are the control: that clinics differ is no finding."""
    rng, schema = (
        np.random.default_rng(4),
        Schema(tuple(Column(name, "integer", 0, 9) for name in "ab")),
    )

    def drawn(low: int, size: int) -> pd.DataFrame:
        return pd.DataFrame(rng.integers(low, low + 6, (size, 2)), columns=list("ab"))

    frame, held, elsewhere = drawn(0, 12), drawn(0, 60), drawn(4, 60)
    guard = Guard.of("laplace", spend=spend)
    policy = Policy({"own.pair": (guard,)}, budget=Budget.of(spend))
    transcript = released(frame, schema, PairOfColumns(0, 1), policy=policy)
    tables = {"A": frame, "A, held out": held, "B": elsewhere, "B, held out": elsewhere}
    truth = {name: Records.from_frame(each, schema) for name, each in tables.items()}
    found = {each.metric: each for each in Reconstruction().run(transcript, truth, schema)}[
        LIKELIEST
    ]
    assert (found.severity, found.of) == (severity, 12)
    assert found.low is not None and found.low <= found.value <= (found.high or 0)
    if severity == "some":
        inside = len(held.merge(frame.drop_duplicates())) / len(held)
        assert found.value == 12 and found.baseline == pytest.approx(12 * inside)


def test_a_program_too_large_is_told_with_what_it_would_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not looked, which is no pass."""
    monkeypatch.setattr(reconstruction, "PROGRAM", 100)
    frame = few(6)
    truth = {name: Records.from_frame(frame, WHOLE) for name in ("A", "A, held out")}
    told = Reconstruction().run(released(frame, WHOLE, *MARGINS), truth, WHOLE)
    (found,) = [each for each in told if each.metric == LIKELIEST]
    assert found.state == "not looked"
    assert found.partial == "26 numbers of 24 cells would take 6e+07 operations"


def test_numbers_beyond_those_that_are_read_are_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group that two studies isolate stands in numbers that nobody read: not looked, and of how many."""
    frame = people()
    ages = np.sort(frame["age"])
    edges = float(ages[19:21].mean()), float(ages[20:22].mean())
    studies = [Histogram(0, (0.0, edge, 100.0)) for edge in (20.0, *edges)]
    transcript = released(frame, AGES, *studies)
    assert attack(transcript, frame, AGES)[GROUPS].state == "found"
    monkeypatch.setattr(reconstruction, "ROWS", 4)
    found = attack(transcript, frame, AGES)[GROUPS]
    assert found.state == "not looked" and found.partial == "4 of 6 numbers are looked at"
    monkeypatch.setattr(reconstruction, "ROWS", 6)
    monkeypatch.setattr(reconstruction, "PAIRED", 4)
    found = attack(transcript, frame, AGES)[GROUPS]
    assert found.state == "not looked" and found.partial == "4 of 6 counts are compared in pairs"


def test_releases_too_wide_to_be_read_are_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three cells are too many, two are read."""
    frame = people()
    transcript = released(
        frame, AGES, Histogram(0, (0.0, 50.0, 100.0)), Histogram(0, (0.0, 20.0, 50.0, 100.0))
    )
    monkeypatch.setattr(ledger_rows, "CELLS", 2)
    found = attack(transcript, frame, AGES)[GROUPS]
    assert found.state == "not looked" and found.partial == "2 of 5 numbers are looked at"
    monkeypatch.setattr(ledger_rows, "CELLS", 1)
    found = attack(transcript, frame, AGES)[GROUPS]
    assert found.state == "not looked" and found.partial == "0 of 5 numbers are looked at"


def test_outcomes_of_too_many_records_are_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said, with how many are looked at."""
    monkeypatch.setattr(reconstruction, "SOLVED", 29)
    frame = pd.DataFrame({"age": np.linspace(1, 99, 30), "ill": np.arange(30) % 2})
    policy = Policy({Subset.kind: (Guard.of("open"),)}, name="open")
    found = attack(released(frame, BINARY, Subset(0), policy=policy), frame, BINARY)[OUTCOMES]
    assert found.state == "not looked"
    assert found.partial == "30 records: of at most 29 outcomes are solved for"


def noisy(times: int) -> Policy:
    """So many answers of epsilon 1/2 each."""
    guard = Guard.of("laplace", spend="0.5", times=times)
    return Policy({"own.pair": (guard,)}, budget=Budget.of(times), name="noisy")


def test_repeats_of_noisy_tables_are_combined() -> None:
    """Two hundred answers average to whole counts; three do not, and nobody is accused."""
    frame = few(30)
    many = released(frame, WHOLE, *[MARGINS[0]] * 200, policy=noisy(200))
    found = attack(many, frame, WHOLE)[TABLE]
    assert found.value == 30 and found.baseline == 0 and found.severity == "some"
    found = attack(Transcript(many.entries[:3]), frame, WHOLE)[TABLE]
    assert found.value == 0 and found.severity == "none"


BINARY = Schema((Column("age", "number", 0, 100),), Column("ill", "integer", 0, 1))


@pytest.mark.parametrize(("questions", "severity"), [(160, "some"), (3, "none")])
def test_outcomes_follow_from_many_noisy_sums(questions: int, severity: str) -> None:
    """Of 30 people from 160 sums over halves of them, each of epsilon 1; not from three."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"age": rng.uniform(0, 100, 30), "ill": rng.integers(0, 2, 30)})
    guard = Guard.of("laplace", spend=1, times=questions)
    policy = Policy({Subset.kind: (guard,)}, budget=Budget.of(questions), name="noisy")
    asked = [Subset(seed) for seed in range(questions)]
    found = attack(released(frame, BINARY, *asked, policy=policy), frame, BINARY)[OUTCOMES]
    assert found.severity == severity
    assert found.share is not None and (found.share > 0.9) == (severity == "some")


def test_the_interval_is_as_wide_as_both_shares_are_uncertain() -> None:
    """Of 40 found of 50, beside a guesser's share read off 30 others: it may be larger, or what is found smaller."""
    (low, high), (least, most) = interval(40, 50), interval(6, 30)
    alone = SuccessCounts(40, 50, 10).interval
    assert alone == pytest.approx((50 * low, 50 * high))
    both = SuccessCounts(40, 50, 10, 30).interval
    below, above = np.hypot(0.8 - low, most - 0.2), np.hypot(high - 0.8, 0.2 - least)
    assert both == pytest.approx((40 - 50 * below, 40 + 50 * above))


@pytest.mark.parametrize(("people", "others"), [(60, 15), (30, 1), (20, 5), (100, 100)])
def test_what_is_as_true_of_others_is_rarely_found(people: int, others: int) -> None:
    """Summed over all outcomes: two shares that are one differ by more than the interval once in forty, at most."""
    guesses = people * np.arange(others + 1) / others
    above = np.array(
        [
            [SuccessCounts(k, people, guess, others).interval[0] > guess for guess in guesses]
            for k in range(people + 1)
        ]
    )
    for share in (0.02, 0.1, 0.3, 0.5, 0.9):
        by_people = binom.pmf(np.arange(people + 1), people, share)
        by_others = binom.pmf(np.arange(others + 1), others, share)
        assert by_people @ above @ by_others <= 0.025, share


def test_no_table_is_held_against_other_clinics() -> None:
    """Without held-out records of its own a clinic is not looked at: that others differ would be taken for a find."""
    frame, elsewhere = few(12), few(12)
    spend = Policy({"own.pair": (Guard.of("laplace", spend="0.01"),)}, budget=Budget.of("0.01"))
    transcript = released(frame, WHOLE, PairOfColumns(0, 1), policy=spend)
    truth = {"A": Records.from_frame(frame, WHOLE), "B": Records.from_frame(elsewhere, WHOLE)}
    told = {each.metric: each for each in Reconstruction().run(transcript, truth, WHOLE)}
    assert told[LIKELIEST].state == "not looked" and told[LIKELIEST].partial == NO_CONTROL


def test_what_features_say_anywhere_is_no_leak() -> None:
    """A guesser who has other clients' records knows outcomes that follow from the features."""
    rng = np.random.default_rng(0)
    ages = rng.uniform(0, 100, 200)
    frame = pd.DataFrame({"age": ages, "ill": (ages > 50).astype(int)})
    own, other = (Records.from_frame(part, BINARY) for part in (frame[:60], frame[60:]))
    assert guess_outcomes(own, [], upper=1.0) < 45
    assert guess_outcomes(own, [other], upper=1.0) > 55


@pytest.mark.parametrize("band", [(50, 100), (30, 70)])
def test_outcomes_that_held_out_records_tell_are_no_leak(band: tuple[int, int]) -> None:
    """Of a single client, whose outcomes follow from the features, by a line or not; the sums say no more."""
    ages = np.random.default_rng(0).uniform(0, 100, 200)
    frame = pd.DataFrame({"age": ages, "ill": ((ages > band[0]) & (ages < band[1])).astype(int)})
    asked = [Subset(seed) for seed in range(80)]
    transcript = released(
        frame[:60], BINARY, *asked, policy=Policy({Subset.kind: (Guard.of("open"),)}, name="open")
    )
    truth = {"A": Records.from_frame(frame[:60], BINARY)}
    (found,) = [f for f in Reconstruction().run(transcript, truth, BINARY) if f.metric == OUTCOMES]
    assert found.value == 60 and found.severity == "some"
    truth["A, held out"] = Records.from_frame(frame[60:], BINARY)
    (found,) = [f for f in Reconstruction().run(transcript, truth, BINARY) if f.metric == OUTCOMES]
    assert found.value == 60 and found.severity == "none"


def test_private_releases_are_not_accused() -> None:
    """One noisy table of epsilon 1/2: no cell, no group."""
    frame = few(30)
    found = attack(released(frame, WHOLE, MARGINS[0], policy=noisy(1)), frame, WHOLE)
    assert all(finding.severity == "none" for finding in found.values())


def test_foreign_parts_are_left_out() -> None:
    """Text, numbers that are not finite, wrong shapes and unreadable questions give no rows."""
    frame = people()
    told = released(frame, AGES, Histogram(0, (0.0, 50.0, 100.0)))
    (entry,) = told
    part, points = entry.release.parts["counts"], Records.from_frame(frame, AGES)
    for units in (np.array(["a", "b"]), np.array([np.nan, 1.0]), np.zeros(3), np.zeros((1, 2))):
        release = replace(entry.release, parts={"counts": replace(part, units=units)})
        foreign = Transcript((replace(entry, release=release),))
        assert len(rows_of(foreign, points, max_rows=10, deadline=Deadline(9))) == 0
        assert attack(foreign, frame, AGES) == {}
    unknown = Transcript((replace(entry, fields=b"nonsense"),))
    assert attack(unknown, frame, AGES) == {}


def test_nothing_to_read() -> None:
    """Empty transcripts, no truth, clients without records, and no time."""
    frame = people()
    told = released(frame, AGES, Histogram(0, (0.0, 50.0, 100.0)))
    assert Reconstruction().run(Transcript()) == [] and Reconstruction().run(told) == []
    nobody = {"A": Records.from_frame(frame.iloc[:0], AGES)}
    assert Reconstruction().run(told, nobody, AGES) == []
    known = {"A": Records.from_frame(frame, AGES)}
    assert Reconstruction(time_limit=1e-9).run(told, known, AGES) == []
