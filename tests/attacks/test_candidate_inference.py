"""A list of candidates: who on it was there comes out of sums, and of noise only what it lets through."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.attacks.base import HELD_OUT
from privfed.attacks.bounded_least_squares import CandidateSystem
from privfed.attacks.candidate_inference import (
    NAMED,
    TARGET,
    CandidateInference,
    CandidateResult,
    CandidateSystems,
)
from privfed.attacks.candidate_records import CandidateRecords
from privfed.attacks.deadline import Deadline
from privfed.attacks.linear import linear_equations
from privfed.attacks.roc import RocCurve
from privfed.attacks.viewpoint import run_as
from privfed.engines.local import LocalDisclosure
from privfed.errors import InputError
from privfed.exchange.messages import Request
from privfed.exchange.transcript import Transcript
from privfed.learners import RuleFitClassifier
from privfed.learners.fuzzy_tree.queries import Level, Scaling
from privfed.privacy.policy import Guard, Policy
from privfed.questions import plugins
from privfed.questions.part import Part, PartType
from privfed.questions.query import Equations, Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Schema
from privfed.tables.sources import load
from tests.attacks.test_membership import SCHEMA

WIDE = Scaling(400)
TREE = Level(((),), 9, np.array([0.0, -1.0]), np.array([8.0, 1.0]), (0, 1))


def table(count: int, seed: int) -> Records:
    """Records anywhere in the schema."""
    rng = np.random.default_rng(seed)
    x = rng.uniform([0, -1], [8, 1], (count, 2))
    return Records(SCHEMA, x, rng.uniform(0, 10, count))


def released(
    queries: list[Query], owners: Mapping[str, Records], mechanism: str, spend: str | None
) -> Transcript:
    """Answers of several clients through one mechanism."""
    frames = [
        pd.DataFrame({"a": r.x[:, 0], "b": r.x[:, 1], "y": r.y, "owner": name})
        for name, r in owners.items()
    ]
    kinds = {query.kind: (Guard.of(mechanism, spend=spend),) for query in queries}
    federation = LocalDisclosure.from_frame(
        pd.concat(frames),
        "y",
        client="owner",
        schema=SCHEMA,
        policy=Policy(kinds, accountant="zcdp"),
        seed=3,
    )
    for name, gate in federation.gates.items():
        for number, query in enumerate(queries):
            gate.answer(Request.of(f"request {name} {number}", query))
    return federation.transcript()


OWNERS = {f"c{i}": table(20, i) for i in range(4)}


def test_exact_sums_tell_the_members() -> None:
    """Two histograms of 400 bins pick twenty members out of eighty, and the finding says how."""
    found, *_ = CandidateInference(unknown=[""]).run(
        released([WIDE], OWNERS, "open", None), OWNERS, SCHEMA
    )
    assert found.value > 0.9 and found.severity == "breach" and found.limit == ""
    assert found.low is not None and found.baseline == pytest.approx(0.01)
    assert found.detail["members"] == 80 and found.detail["outsiders"] == 240
    assert all(rank > 60 for rank in found.detail["rank of the equations"])
    assert found.detail["note"].startswith("60 outsiders")


def test_wide_noise_tells_nobody() -> None:
    """The power twin: at rho 0.001 the same equations say nothing."""
    found, *_ = CandidateInference(unknown=[""]).run(
        released([WIDE], OWNERS, "gaussian", "0.001"), OWNERS, SCHEMA
    )
    assert found.severity == "none" and found.detail["of these exact"] == 0
    assert found.detail["rank of the equations"] == [0] * 4


def test_exact_and_noisy_numbers_are_weighed_together() -> None:
    """A loud histogram beside an exact tree tells more than either alone."""
    exact = released([Scaling(6)], OWNERS, "open", None)
    noisy = released([TREE], OWNERS, "gaussian", "3")
    alone = [CandidateInference(unknown=[""]).run(t, OWNERS, SCHEMA)[0] for t in (exact, noisy)]
    both = Transcript(exact.entries + noisy.entries)
    found, *_ = CandidateInference(unknown=[""]).run(both, OWNERS, SCHEMA)
    area = "area under the curve"
    assert found.detail[area] > max(one.detail[area] for one in alone)
    assert found.releases == ("fuzzy_tree.level", "fuzzy_tree.scaling")


def test_an_unknown_target_is_told() -> None:
    """The level's sums of a target bring it out, and a feature alike; a guess gets a tenth."""
    small = {name: own.take(np.arange(6)) for name, own in OWNERS.items()}
    transcript = released([TREE, WIDE], small, "open", None)
    target, feature = CandidateInference(unknown=[TARGET, "b"], max_unknowns=200).run(
        transcript, small, SCHEMA
    )
    assert target.detail["median error as a share of the range"] < 0.05
    assert TARGET in target.metric
    assert feature.metric.endswith("whose b was inferred")
    with pytest.raises(InputError, match="no column 'c'"):
        CandidateInference(unknown=["c"]).run(transcript, small, SCHEMA)


def test_equations_hold_for_the_members() -> None:
    """What is told of each cell is what the members add to it."""
    for query in (WIDE, TREE):
        for entry in released([query], OWNERS, "open", None):
            view = View(OWNERS[entry.client], SCHEMA)
            for told in linear_equations(entry, view):
                assert told.exact and np.allclose(told.added.sum(axis=0), told.released)


def test_rulefit_increments_are_linear_in_records() -> None:
    """Eight rounds of local steps give every member and every outcome away (breast cancer)."""
    data = load("breast_cancer")
    assert data.schema is not None
    frame = data.frame.iloc[:100]
    owned = frame.assign(owner=[f"clinic {i % 2}" for i in range(len(frame))])
    learner = RuleFitClassifier(n_estimators=60, n_rounds=8, random_state=0)
    federation = LocalDisclosure.from_frame(
        owned, data.target, client="owner", schema=data.schema, policy=learner.published(1), seed=0
    )
    learner.fit(federation)
    truth = {
        str(name): Records.from_frame(part.drop(columns="owner"), data.schema)
        for name, part in owned.groupby("owner")
    }
    supports = federation.transcript().of("rulefit.supports")
    increments = federation.transcript().of("rulefit.increment")
    heard = Transcript(supports.entries + increments.entries)
    known, _, unknown = CandidateInference().run(heard, truth, data.schema)
    assert known.value > 0.99 and unknown.value > 0.98
    assert known.releases == ("rulefit.increment", "rulefit.supports")


def test_the_equations_of_one_local_step_hold_for_the_members() -> None:
    """No path to guess: what the members add is nothing, to single precision."""
    data = load("breast_cancer")
    assert data.schema is not None
    owned = data.frame.iloc[:120].assign(owner="one")
    learner = RuleFitClassifier(n_estimators=5, n_rounds=4, local_steps=1, random_state=0)
    federation = LocalDisclosure.from_frame(
        owned, data.target, client="owner", schema=data.schema, policy=learner.published(1), seed=0
    )
    learner.fit(federation)
    view = View(Records.from_frame(owned.drop(columns="owner"), data.schema), data.schema)
    for entry in federation.transcript().of("rulefit.increment"):
        asked = plugins.load("queries", entry.kind).from_fields(entry.fields)
        answer = {"increment": entry.release.parts["increment"].units}
        (equations,) = asked.equations(answer, view).values()
        off = np.abs(equations.added.sum(axis=0) - equations.told)
        assert (off <= 1e-4 * np.abs(equations.added).sum(axis=0)).all()


@dataclass(frozen=True)
class Mean(Query):
    """A plugin's question that nobody here has heard of: the mean of a feature's squares."""

    kind: ClassVar[str] = "strange.mean"
    linear: ClassVar[bool] = False

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """One number for each power."""
        return {"means": Part(PartType.VALUES, ("power",), (60,))}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """The means."""
        return {"means": self._powers(view).mean(axis=0)}

    def equations(self, answer: Mapping[str, np.ndarray], view: View) -> Mapping[str, Equations]:
        """Deviations from a mean sum to zero."""
        means = np.asarray(answer["means"])
        return {"means": Equations(self._powers(view) - means, np.zeros(60))}

    def _powers(self, view: View) -> np.ndarray:
        phases = np.outer(view.table.x[:, 0], np.arange(1, 61)) * np.pi / 8
        return np.asarray(np.cos(phases))


class Installed:
    """An entry point."""

    def load(self) -> type[Query]:
        """The class."""
        return Mean


def test_a_plugins_question_is_attacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own equations are all that the attack needs."""
    known = plugins.available
    points = {**known("queries"), Mean.kind: Installed()}
    monkeypatch.setattr(plugins, "available", lambda g: points if g == "queries" else known(g))
    found, *_ = CandidateInference(unknown=[""]).run(
        released([Mean()], OWNERS, "open", None), OWNERS, SCHEMA
    )
    assert found.value > 0.6 and found.releases == (Mean.kind,)


def test_lists_without_members_or_others_are_left_out() -> None:
    """Nobody to find, or nobody to take for a member: there is no finding and no error."""
    transcript = released([WIDE], OWNERS, "open", None)
    nobody = {**OWNERS, "c0": OWNERS["c0"].take(np.arange(0))}
    found, *_ = CandidateInference(unknown=[""]).run(transcript, nobody, SCHEMA)
    assert found.detail["lists"] == 3
    assert CandidateInference().run(transcript, {"c0": OWNERS["c0"]}, SCHEMA) == []
    assert (
        CandidateInference().run(transcript, {}, SCHEMA)
        == CandidateInference().run(Transcript(), OWNERS, SCHEMA)
        == []
    )


def test_one_client_is_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a client whose list is solved the matrices are let go, so that sixty owners need no more than one."""
    alive: list[weakref.ref[CandidateSystem]] = []
    most = [0]
    begin = CandidateSystem.__post_init__

    def counted(system: CandidateSystem) -> None:
        begin(system)
        alive.append(weakref.ref(system))
        most[0] = max(most[0], sum(one() is not None for one in alive))

    monkeypatch.setattr(CandidateSystem, "__post_init__", counted)
    CandidateInference(unknown=[""]).run(released([WIDE], OWNERS, "open", None), OWNERS, SCHEMA)
    assert len(alive) == len(OWNERS) and most[0] <= 2


def test_nobody_is_named_of_those_who_are_alike() -> None:
    """Sums that tell that one of two twins was there do not tell which; of the third owner they name all."""
    twins = {"c0": OWNERS["c0"], "c1": OWNERS["c0"], "c2": OWNERS["c2"]}
    listed = CandidateRecords.of(twins, "c0", 100, np.random.default_rng(0))
    assert len(listed) == 40 and listed.copies.sum() == 60
    assert listed.members.sum() == 20 and listed.outsiders.sum() == 40
    doubled = released([WIDE], twins, "open", None)
    found, *_ = CandidateInference(unknown=[""]).run(doubled, twins, SCHEMA)
    assert found.value == pytest.approx((1 + 0.02 + 0.02) / 3, abs=0.01)


def _answers(people: int, seed: int) -> Records:
    """Yes-or-no answers: of four records everybody has one."""
    rng = np.random.default_rng([seed, 1])
    return Records(SCHEMA, rng.choice([1.0, 7.0], (people, 2)) / [1, 8], np.full(people, 5.0))


@pytest.mark.parametrize("attack", ["pool", "pool by an owner"])
def test_exact_counts_of_many_who_are_alike_name_nobody(attack: str) -> None:
    """All counts of a table of four records are known; which of those alike answered, here or elsewhere, is not."""
    owners = {f"c{i}": _answers(30, i) for i in range(3)}
    held = {name + HELD_OUT: _answers(20, 9 + i) for i, name in enumerate(owners)}
    transcript, tried = released([TREE, WIDE], owners, "open", None), CandidateInference()
    known = {**held, **owners}
    told = tried.run(transcript, known, SCHEMA)
    if attack == "pool by an owner":
        told = run_as("c0", tried, transcript, known, SCHEMA)
    named = next(each for each in told if each.metric == NAMED)
    assert named.value == 0 and named.severity == "none"
    assert all(each.severity == "none" for each in told)
    assert told[0].detail["members"] == (90 if attack == "pool" else 60)


def test_those_alike_are_named_where_all_of_them_were_there() -> None:
    """The power twin: a record that one owner alone has, three times over, is named three times."""
    owners = {f"c{i}": _answers(30, i) for i in range(3)}
    x = np.vstack([owners["c0"].x, np.full((3, 2), [4.0, 0.0])])
    owners["c0"] = Records(SCHEMA, x, np.full(33, 5.0))
    told = CandidateInference(unknown=[""]).run(
        released([TREE, WIDE], owners, "open", None), owners, SCHEMA
    )
    named = next(each for each in told if each.metric == NAMED)
    assert named.value == pytest.approx(3 / 93) and named.severity == "breach"


@given(st.lists(st.integers(0, 3), min_size=2, max_size=12), st.integers(1, 11))
def test_a_list_counts_everybody(places: list[int], cut: int) -> None:
    """Members, controls and all others of each record, counted one by one."""
    x = np.array(places, float)[:, None] * [2, 0.5] + [0, -1]
    own, held, other = np.split(x, [1 + cut % len(x), 1 + cut % len(x) + len(x) // 4])
    truth = {"a": own, "a" + HELD_OUT: held, "b": other}
    told = {name: Records(SCHEMA, rows, np.zeros(len(rows))) for name, rows in truth.items()}
    listed = CandidateRecords.of(told, "a", 100, np.random.default_rng(0))
    for at, record in enumerate(listed.x):
        counted = [int((rows == record).all(axis=1).sum()) for rows in (x, own, held)]
        assert counted == [listed.copies[at], listed.members[at], listed.controls[at]]
    assert (listed.outsiders == listed.copies - listed.members).all()
    assert (listed.x[listed.own_index] == own).all()


def test_a_loop_ends_when_the_work_is_spent() -> None:
    """The item that exceeds the work is the last; the type of the items is free."""
    deadline, done = Deadline(max_work=2), []
    for item in deadline.each("abcde"):
        done.append(item)
        deadline.spend(1)
    assert done == ["a", "b", "c"]


def test_time_that_is_up_keeps_what_was_found() -> None:
    """A partial finding says so; no time at all is bad input."""
    transcript = released([WIDE], OWNERS, "open", None)
    assert CandidateInference(time_limit=1e-9).run(transcript, OWNERS, SCHEMA) == []
    assert Deadline(1e-9).partial(2, 5, "clients") == "2 of 5 clients in 1e-09 s"
    assert Deadline(60).partial(5, 5, "clients") == ""
    with pytest.raises(InputError, match="time_limit must be above 0"):
        CandidateInference(time_limit=0)
    with pytest.raises(InputError, match="2 or more"):
        CandidateInference(max_candidates=1)


def test_sums_that_were_not_read_for_want_of_work_are_told() -> None:
    """Some of them, or all, unless those that were read decide everything; what was found stays."""
    heard = released([WIDE, TREE], OWNERS, "open", None)
    bounded = CandidateInference(unknown=[""])
    for work, found, unread in ((1e8, True, 0), (2e6, True, 4), (1e5, False, 4)):
        bounded.max_work = work
        one, *_ = bounded.run(heard, OWNERS, SCHEMA)
        assert (one.value > 0) == found
        assert (f"at {unread} of 4 clients, not all sums were read within" in one.partial) == bool(
            unread
        )


def test_clients_of_too_many_records_are_told() -> None:
    """Whoever holds more records than a list takes is left out, and the finding says so."""
    owners = {"c0": table(60, 0), "c1": table(20, 1), "c2": table(20, 2)}
    transcript = released([WIDE], owners, "open", None)
    found, *_ = CandidateInference(unknown=[""], max_candidates=50).run(transcript, owners, SCHEMA)
    assert found.partial.startswith("1 of 3 clients has more records than fit a list; max_can")
    assert found.detail["lists"] == 2
    nobody, *_ = CandidateInference(unknown=[""], max_candidates=10).run(transcript, owners, SCHEMA)
    assert nobody.value == 0 and nobody.partial.startswith("3 of 3 clients")


@pytest.mark.parametrize("bad", ["text", "infinite", "shape", "fields"])
def test_foreign_transcripts_may_hold_anything(bad: str) -> None:
    """Text, numbers without end, arrays of another shape and fields of no question are passed over."""
    foreign = []
    for entry in released([WIDE], OWNERS, "open", None):
        part = entry.release.parts["counts"]
        units = {
            "text": part.units.astype(str),
            "infinite": np.where(part.units > 0, np.inf, 0.0),
            "shape": part.units[:, :7],
        }.get(bad, part.units)
        parts = {"counts": replace(part, units=units)}
        fields = b"nonsense" if bad == "fields" else entry.fields
        foreign.append(replace(entry, fields=fields, release=replace(entry.release, parts=parts)))
    for name in ("pool", "membership", "worst_record", "verbatim"):
        attack = plugins.load("attacks", name)()
        found = attack.run(Transcript(tuple(foreign)), OWNERS, SCHEMA)
        if name == "pool":
            assert found == []


def test_the_solver_stays_within_its_bounds() -> None:
    """Nobody was there less than never, or more often than the list names him."""
    rng = np.random.default_rng(0)
    system = CandidateSystem(np.array([1.0, 1.0, 2.0]))
    rows = rng.normal(size=(30, 3)) * 100
    system.gram, system.right = rows.T @ rows, rows.T @ rows @ np.array([1.5, -0.5, 2.0])
    found = system.solve(Deadline(60))
    assert (found >= 0).all() and (found <= system.copies).all() and system.rank == 3
    assert found[0] == 1.0


def test_what_holds_of_held_out_records_too_is_not_found() -> None:
    """Noise that hides a member and not where its client lies: a control says so, and exact sums still name."""
    rng = np.random.default_rng(0)

    def around(centre: float, count: int) -> Records:
        x = np.column_stack([rng.normal(centre, 0.6, count), rng.uniform(-1, 1, count)])
        return Records(SCHEMA, np.clip(x, [0, -1], [8, 1]), rng.uniform(0, 10, count))

    owners = {f"c{i}": around(1 + 2 * i, 40) for i in range(4)}
    controls = {f"c{i}{HELD_OUT}": around(1 + 2 * i, 40) for i in range(4)}
    attack, coarse = CandidateInference(unknown=[""]), Scaling(8)
    noisy = released([coarse], owners, "laplace", "1")
    (alone,) = attack.run(noisy, owners, SCHEMA)
    (beside,) = attack.run(noisy, {**owners, **controls}, SCHEMA)
    assert alone.severity == "some" and beside.severity == "none"
    assert beside.baseline is not None and beside.baseline > 0.02
    assert sum(name.endswith("the control") for name in beside.detail) == 1
    assert alone.detectable is None and beside.detectable is not None
    assert beside.detectable > max(beside.detail["found of the control, at most"], beside.value)
    exact = released([WIDE], owners, "open", None)
    named, *_ = attack.run(exact, {**owners, **controls}, SCHEMA)
    assert named.severity == "breach" and named.value > 0.9


def test_a_rank_is_not_worked_out_once_the_work_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It only says how much was known; among many owners it took most of the time."""

    def never(matrix: np.ndarray) -> np.ndarray:
        raise AssertionError

    systems = CandidateSystems(np.ones(3))
    systems._systems[""] = CandidateSystem(np.ones(3))
    monkeypatch.setattr(np.linalg, "eigvalsh", never)
    systems.keep_rank(Deadline(0.0))
    assert systems.rank is None and not systems._systems


@given(st.integers(1, 6), st.integers(0, 8))
def test_a_system_is_full_where_its_rank_is(unknowns: int, equations: int) -> None:
    """A Cholesky factor says what the eigenvalues say."""
    rng = np.random.default_rng([unknowns, equations])
    system, added = CandidateSystem(np.ones(unknowns)), 3 * rng.normal(size=(unknowns, equations))
    system.gram = added @ added.T
    assert system.full == (system.rank == unknowns)


def test_a_threshold_that_few_outsiders_set_may_let_through_many_others() -> None:
    """None of thirty lies above it: a ninth of all others may, and a twelfth of the members is sure. That proves nothing."""
    curve = RocCurve.of(np.arange(100.0), np.arange(10.0))

    def told(outsiders: int) -> str:
        system = CandidateSystems(np.ones(1), equations=1, kinds={"sums"})
        one = CandidateResult(
            100, outsiders, curve, np.ones(100), 12.0, 1.0, None, 0.0, 0, system, named=None
        )
        return str(CandidateInference()._finding("", [one] * 3, "").severity)

    assert told(10) == "none" and told(2000) == "some"
