"""Carrying a study out: what is held out stays out, and strict is stricter."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privfed.attacks.base import HELD_OUT
from privfed.attacks.candidate_inference import CandidateInference
from privfed.attacks.finding import Finding
from privfed.attacks.small_groups import SmallGroups
from privfed.audits import trainings
from privfed.cli import BAD_INPUT, FAULT, FINE, status
from privfed.errors import InputError, PluginError, StudyError
from privfed.exchange.messages import Release
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.learners import FuzzyTreeRegressor
from privfed.questions import plugins
from privfed.study import Study, simulation
from privfed.study.output import Output
from privfed.study.simulation import divide, prepare
from privfed.tables.records import Records

pytestmark = pytest.mark.usefixtures("short_audits")


@pytest.fixture(scope="module")
def study() -> Study:
    """The built-in study with test noise."""
    return replace(Study.built_in(), noise="test")


@pytest.fixture(scope="module")
def published(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Transcript:
    """What its first policy released, carried out once."""
    output, choice = Output(tmp_path_factory.mktemp("published")), study.policies[0]
    simulation.run(prepare(study), choice, output)
    return output.transcript(choice.name)


def test_every_record_is_trained_on_or_held_out(study: Study) -> None:
    """Never both; about the asked share of each client, by the seed alone."""
    prepared, again = divide(study), divide(study)
    assert len(prepared.train) + len(prepared.test) == 442
    assert not set(prepared.train.index) & set(prepared.test.index)
    assert prepared.test.index.equals(again.test.index)
    whole = pd.concat([prepared.train, prepared.test])[prepared.owner].value_counts()
    held = prepared.test[prepared.owner].value_counts()
    assert np.allclose(held / whole, 0.25, atol=0.05)
    other = divide(replace(study, seed=1))
    assert not prepared.test.index.equals(other.test.index)


SCHEMA = """
name = "made up"
target = "y"

[[column]]
name = "x"
lower = 0
upper = 100

[[column]]
name = "y"
lower = 0
upper = 100
"""
LASTING = """
name = "lasting"
seed = 3

[data]
source = "table.csv"
schema = "schema.toml"
individual = "person"

[clients]
partition = "column"
column = "site"
ledgers = "ledgers"

[learner]
name = "RuleFitRegressor"

[[policy]]
name = "private"
epsilon = "1"
delta = "1e-5"
"""


DIVISIONS = {
    "column": 'partition = "column"\ncolumn = "site"',
    "iid": "count = 3",
    "dirichlet": 'partition = "dirichlet"\ncount = 3\nalpha = 2.0',
    "quantity": 'partition = "quantity"\ncount = 3\nalpha = 2.0',
}


def parts(folder: Path, rows: pd.DataFrame, text: str) -> Counter[tuple[Any, ...]]:
    """How many records of each content each owner trains on and holds out."""
    rows.to_csv(folder / "table.csv", index=False)
    (folder / "study.toml").write_text(text)
    prepared = divide(Study.from_toml(folder / "study.toml"))
    found: Counter[tuple[Any, ...]] = Counter()
    for part in (prepared.train, prepared.test):
        contents = rows[["x", "y", "person"]].to_numpy()[part.index].tolist()
        for owner, content in zip(part[prepared.owner], contents, strict=True):
            found[str(owner), tuple(content), part is prepared.test] += 1
    return found


@pytest.mark.parametrize("person", [True, False])
@pytest.mark.parametrize("division", DIVISIONS)
def test_where_ledgers_last_no_record_moves_another(
    tmp_path: Path, division: str, person: bool
) -> None:
    """A record less, or one with a fraction among whole numbers more, and the others are where they were."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.integers(0, 4, 90), "y": rng.integers(0, 100, 90)})
    table = table.assign(site=np.resize(["A", "B", "C"], 90), person=np.arange(90) // 3, free=7)
    table.loc[80:, "x"], table.loc[80:, "y"], table.loc[80:, "site"] = 1, 50, "A"
    (tmp_path / "schema.toml").write_text(SCHEMA)
    text = LASTING.replace(DIVISIONS["column"], DIVISIONS[division])
    text = text if person else text.replace('individual = "person"\n', "")
    whole = parts(tmp_path, table, text)
    assert 5 < sum(count for (_, _, held), count in whole.items() if held) < 60
    for out in (0, 17, 80, 85, 89):
        less = parts(tmp_path, table.drop(index=out).reset_index(drop=True), text)
        assert less <= whole and (whole - less).total() == 1
    row = {"x": 1.5, "y": 49.5, "site": "A", "person": 99, "free": "none"}
    more = parts(tmp_path, pd.concat([table, pd.DataFrame([row])], ignore_index=True), text)
    assert whole <= more and (more - whole).total() == 1
    if division != "column":
        other = parts(tmp_path, table, text.replace("seed = 3", "seed = 4"))
        assert other != whole and Counter(key[:2] for key in whole.elements()) == Counter(
            key[:2] for key in other.elements()
        )
        dealt = text.replace('ledgers = "ledgers"\n', "")
        less = parts(tmp_path, table.drop(index=0).reset_index(drop=True), dealt)
        assert not less <= parts(tmp_path, table, dealt)


CELLS = (
    "01",
    "1",
    "1.0",
    "1.50",
    "1e0",
    "TRUE",
    "true",
    "x",
    "",
    "NA",
    "1_0",
    "0.30000000000000004",
    "-0",
)
CELL, NAME = st.sampled_from(CELLS), st.sampled_from([c for c in CELLS if c not in ("", "NA")])
TEXTS = """
name = "made up"
target = "y"

[[column]]
name = "x"
kind = "category"
categories = ["01", "1", "1.5", "True", "x"]
fill = "x"

[[column]]
name = "y"
kind = "integer"
lower = 0
upper = 2
"""


@given(
    st.lists(st.tuples(CELL, NAME, NAME, CELL), min_size=1, max_size=5),
    st.sampled_from(sorted(DIVISIONS)),
    st.booleans(),
)
@example([("01", "01", "01", "1.50"), ("01", "01", "1", "1.50")], "column", False)
@settings(max_examples=20, deadline=None)
def test_no_record_changes_how_another_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    cells: list[tuple[str, ...]],
    division: str,
    person: bool,
) -> None:
    """Whatever stands in its cells: text among numbers, numbers among text, nothing."""
    folder = tmp_path_factory.mktemp("table")
    (folder / "schema.toml").write_text(TEXTS)
    text = LASTING.replace(DIVISIONS["column"], DIVISIONS[division])
    text = text if person else text.replace('individual = "person"\n', "")
    (folder / "study.toml").write_text(text)

    def read(rows: list[tuple[str, ...]]) -> Counter[tuple[Any, ...]]:
        targets = [("x", "0", "p", "A", ""), ("x", "1", "q", "A", "")]
        lines = [("x", "y", "person", "site", "free"), *targets, *rows]
        (folder / "table.csv").write_text("".join(",".join(line) + "\n" for line in lines))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("privfed.tables.partition.check_sizes", lambda *_: None)
            prepared = divide(Study.from_toml(folder / "study.toml"))
        found: Counter[tuple[Any, ...]] = Counter()
        for part in (prepared.train, prepared.test):
            records = Records.from_frame(part, prepared.schema, "person" if person else None)
            values = records.x[:, 0], part[prepared.owner], part["free"].fillna("")
            found.update((*one, part is prepared.test) for one in zip(*values, strict=True))
        return found

    rows = [(x, "1", *others) for x, *others in cells]
    whole = read(rows)
    for out in range(len(rows)):
        less = read(rows[:out] + rows[out + 1 :])
        assert less <= whole and (whole - less).total() == 1


def test_a_persons_records_stay_together_where_ledgers_last(tmp_path: Path) -> None:
    """At one owner, and all trained on or all held out."""
    table = pd.DataFrame({"x": np.arange(90), "y": np.arange(90), "person": np.arange(90) // 3})
    (tmp_path / "schema.toml").write_text(SCHEMA)
    whole = parts(tmp_path, table, LASTING.replace(DIVISIONS["column"], "count = 3"))
    places = {(owner, held, content[2]) for owner, content, held in whole}
    assert len(places) == 30 and len({(owner, held) for owner, held, _ in places}) > 3


def test_a_table_is_divided_in_one_way_only_where_ledgers_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later study that would deal a record to another owner is refused before anything is asked."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.uniform(0, 100, 90), "y": rng.uniform(0, 100, 90)})
    table.assign(person=np.arange(90)).to_csv(tmp_path / "table.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    text = LASTING.replace(DIVISIONS["column"], "count = 3").replace(
        'ledgers = "ledgers"', 'ledgers = "ledgers"\nbudget = { epsilon = "8" }'
    )
    text = text.replace("RuleFitRegressor", "FuzzyTreeRegressor").replace("seed = 3", "seed = 4")

    def run(name: str, changed: str) -> int:
        path = tmp_path / f"{name}.toml"
        path.write_text(changed.replace('"lasting"', f'"{name}"'))
        return status(["run", str(path), "--out", str(tmp_path / name)])

    assert run("first", text) == FINE
    assert run("second", text.replace("seed = 4", "seed = 5")) == FINE
    for other in ("count = 4", 'partition = "quantity"\nalpha = 50.0\ncount = 3'):
        assert run("third", text.replace("count = 3", other)) == BAD_INPUT
        told = capsys.readouterr().err
        assert "'first' divided its table by partition = 'iid'" in told
    assert run("third", text.replace('individual = "person"\n', "")) == BAD_INPUT


def test_truth_is_what_the_clients_hold(study: Study) -> None:
    """Attacks are scored against the training records of each client."""
    prepared = divide(study)
    assert {name: len(records) for name, records in prepared.truth().items()} == dict(
        prepared.train[prepared.owner].value_counts()
    )


def test_a_clients_column_never_hides_a_feature() -> None:
    """A table with a column called client gets another name for its owners."""
    frame = pd.DataFrame({"client": [1.0]})
    assert simulation._free_name("client", frame) == "client_"


def test_a_silent_federation_leaves_a_report_without_a_model(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answering is an outcome: it is written down, and the run goes on."""
    from privfed.errors import NobodyAnswered

    def silent(self: FuzzyTreeRegressor, federation: Any) -> None:
        raise NobodyAnswered("no client answered")

    monkeypatch.setattr(FuzzyTreeRegressor, "fit", silent)
    output = Output(tmp_path)
    simulation.run(prepare(study), study.policies[0], output)
    assert output.read("published", "metrics.json")["stopped"] == "no client answered"
    assert output.read("published", "model.json") is None


def test_progress_counts_questions(study: Study, tmp_path: Path) -> None:
    """The bar moves by as many questions as were asked."""
    moved: list[int] = []
    output = Output(tmp_path)
    simulation.run(prepare(study), study.policies[0], output, moved.append)
    metrics = output.read("published", "metrics.json")
    assert sum(moved) == metrics["queries"] > 0
    assert len(moved) == metrics["rounds"]


def test_a_policy_may_reserve_its_charges_in_blocks(study: Study, tmp_path: Path) -> None:
    """The study's block reaches every ledger, and the model is the same as without."""
    models = []
    for block in (1, 4):
        output = Output(tmp_path / f"by {block}")
        output.folder.mkdir()
        choice = replace(study.policies[0], block=block)
        simulation.run(prepare(study), choice, output)
        with output.ledgers(choice.name) as ledgers:
            for ledger in ledgers.values():
                reserved = [e.event for e in ledger.entries() if e.event in ("block", "reserved")]
                assert ("block" in reserved) == (block > 1)
        models.append(output.read(choice.name, "model.json"))
    assert models[0] == models[1]


def test_an_attack_that_reads_nothing_is_written_down(study: Study) -> None:
    """Of an empty transcript every attack says that it does not apply, by name and question."""
    found, inapplicable = simulation.attack(prepare(study), Transcript())
    assert found == []
    assert set(inapplicable) == {*plugins.available("attacks"), "pool (by an owner)"}
    assert all(question.endswith("?") for question in inapplicable.values())


def test_a_masked_total_has_everybody_s_held_out_records_beside_it(study: Study) -> None:
    """An owner's own stand beside her; of a total, all owners' together, each of them once."""
    prepared, (one, *_) = prepare(study), prepare(study).owners
    release = Release("total", "r", "k", "q", {}, owners=tuple(prepared.owners))
    heard = Transcript((TranscriptEntry("total", "k", b"", release),))
    assert isinstance(prepared, simulation.Prepared)
    together, each = prepared.controlled(heard), prepared.controlled()
    assert set(together) == {"total", "total" + HELD_OUT}
    assert len(together["total" + HELD_OUT]) == len(prepared.test)
    assert (
        len(together["total"])
        == len(prepared.train)
        == sum(len(each[owner]) for owner in prepared.owners)
    )
    assert 0 < len(each[one + HELD_OUT]) < len(prepared.test)


def test_a_single_owner_s_records_are_compared_with_those_held_out(
    study: Study, tmp_path: Path
) -> None:
    """Nobody else is there to compare them with, and what left exactly tells each of them."""
    clients = replace(study.clients, count=1, names=None)
    alone = replace(study, clients=clients, attacks=("membership",))
    output, choice = Output(tmp_path), alone.policies[0]
    simulation.run(prepare(alone), choice, output)
    found, idle = simulation.attack(prepare(alone), output.transcript(choice.name))
    (told,) = (each for each in found if each.attack == "membership")
    assert (told.value, told.state, idle) == (1.0, "found", {})


@pytest.mark.parametrize("kind", [ValueError, InputError, PluginError])
@pytest.mark.parametrize("method", ["run", "attackable"])
def test_an_attack_that_fails_ends_no_study(
    study: Study,
    published: Transcript,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    kind: type[Exception],
) -> None:
    """Budgets are spent by then: it has not looked, it says why without its text, and all others go on."""

    def fail(*_: object) -> None:
        raise kind("age 41.70913")

    few = replace(study, attacks=("small_groups", "membership"))
    monkeypatch.setattr(SmallGroups, method, fail)
    told, idle = simulation.attack(prepare(few), published)
    failed, *others = told
    assert (failed.attack, failed.state) == ("small_groups", "not looked")
    assert failed.why_not == f"it failed with {kind.__name__}" and "41.70913" not in str(told)
    assert {each.attack for each in others} == {"membership", "coverage"} and not idle


NO_LIST = "it failed: run gives no list of findings; write return [...]"
NO_NUMBER = "it failed: finding of 'small_groups': value is not a number"
NO_SEVERITY = "it failed: finding of 'small_groups': severity must be one of none, some, breach"


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (lambda attack: None, NO_LIST),
        (
            lambda attack: attack.finding("counts", 1),
            NO_LIST,
        ),
        (
            lambda attack: [{"value": 1}],
            NO_LIST,
        ),
        (lambda attack: [attack.finding("counts", float("nan"))], NO_NUMBER),
        (lambda attack: [attack.finding("counts", None)], NO_NUMBER),
        (lambda attack: [attack.finding("counts", 1, severity="bad")], NO_SEVERITY),
        (
            lambda attack: [attack.finding("counts", 1, detail={"of": object()})],
            "it failed with AttributeError",
        ),
    ],
)
def test_an_attack_that_gives_no_findings_ends_no_study(
    study: Study, published: Transcript, monkeypatch: pytest.MonkeyPatch, told: Any, why: str
) -> None:
    """A return that was forgotten, a dictionary, no number, what cannot be written: it failed, and others go on."""
    few = replace(study, attacks=("small_groups", "membership"))
    monkeypatch.setattr(SmallGroups, "run", lambda attack, *_: told(attack))
    failed, *others = simulation.attack(prepare(few), published)[0]
    assert failed.why_not == why
    assert {each.attack for each in others} == {"membership", "coverage"}


def test_an_attack_that_fails_did_not_look_and_loses_nothing(
    study: Study,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What others found, and what was charged for, stays; its error is named by kind, for its text may hold data."""

    def failing(*_: object) -> list[Finding]:
        raise ZeroDivisionError("a raw value")

    monkeypatch.setattr(CandidateInference, "run", failing)
    path = tmp_path / "study.toml"
    replace(study, attacks=("pool", "membership"), policies=study.policies[:1]).to_toml(path)
    assert status(["audit", str(path), "--out", str(tmp_path / "out")]) == FAULT
    said = "attack 'pool' failed (ZeroDivisionError), and did not look"
    told = capsys.readouterr().err
    assert said in told and "raw value" not in told
    output = Output.opened(tmp_path / "out")
    name = study.policies[0].name
    assert output.read(name, "model.json") is not None
    found = {each["attack"]: each for each in output.read(name, "findings.json")["findings"]}
    assert found["pool"]["partial"] == "it failed with ZeroDivisionError"
    assert not found["membership"]["partial"]
    swept = ["sweep", str(path), "--epsilon", "4", "--runs", "1", "--attacks"]
    assert status([*swept, "--out", str(tmp_path / "sweep")]) == BAD_INPUT
    assert said in capsys.readouterr().err


def test_attacks_that_ran_out_of_time_say_so(study: Study, tmp_path: Path) -> None:
    """Without time no attack passes in silence: whatever applies has a partial finding."""
    output = Output(tmp_path)
    choice = study.policies[0]
    simulation.run(prepare(study), choice, output)
    heard = output.transcript(choice.name)
    for told in (
        simulation.attack(prepare(replace(study, attack_seconds=1e-9)), heard),
        simulation.attack(prepare(study), heard, seconds=1e-9),
    ):
        found, inapplicable = told
        tried = {each.attack for each in found} - {"coverage"}
        assert {"pool", "recovery", "subtraction", "small_groups", "verbatim"} <= tried
        known = {*plugins.available("attacks"), "pool (by an owner)"}
        assert tried | set(inapplicable) == known
        assert all(each.partial for each in found if each.attack != "coverage")


def test_a_study_s_bound_on_time_is_above_nothing(study: Study) -> None:
    """It goes into the study's file and comes back; nought is refused with what to write."""
    bounded = replace(study, attack_seconds=30.0).to_dict()
    assert Study.from_dict(bounded).attack_seconds == 30
    assert "attack_seconds" not in study.to_dict()
    with pytest.raises(StudyError, match="write attack_seconds = 60"):
        Study.from_dict({**bounded, "attack_seconds": 0})


def test_whole_trainings_are_audited_where_records_are_promised_a_budget(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key comes back from the study's file; published policies promise nothing to be audited."""
    chosen = replace(study, audit_training=True)
    assert Study.from_dict(chosen.to_dict()).audit_training
    assert "audit_training" not in study.to_dict()
    monkeypatch.setattr(simulation, "CANARIES", 1)
    monkeypatch.setattr(trainings, "COINS", 40)
    monkeypatch.setattr(trainings, "MOST_COINS", 40)
    prepared = prepare(chosen)
    found = [simulation.audit_training(prepared, choice) for choice in study.policies]
    assert [len(each) for each in found] == [choice.base == "private" for choice in study.policies]
    (audited,) = found[-1]
    assert audited.detail["runs"] == 40 and audited.severity == "none"
    assert "is convicted with probability" in audited.detail["note"]


def test_a_policy_is_run_again_with_fresh_noise(study: Study, tmp_path: Path) -> None:
    """Three runs of a noisy policy give three figures, the ledgers' own first; they are one run's."""
    few = replace(study, runs=3)
    choice = study.policies[2]
    found = {}
    for name, varied in {"once": study, "thrice": few}.items():
        output = Output(tmp_path / name)
        output.folder.mkdir()
        simulation.run(prepare(varied), choice, output)
        found[name] = output.read(choice.name, "metrics.json")
        with output.ledgers(choice.name) as ledgers:
            found[name]["rows"] = [len(list(ledger.entries())) for ledger in ledgers.values()]
    runs = found["thrice"]["runs"]
    assert "runs" not in found["once"]
    assert (runs["count"], runs["without"]) == (3, 0)
    assert runs["values"][0] == found["thrice"]["value"] == found["once"]["value"]
    assert len(set(runs["values"])) == 3
    assert np.isclose(runs["mean"], np.mean(runs["values"]))
    assert np.isclose(runs["deviation"], np.std(runs["values"], ddof=1))
    assert set(runs["scores"]) == {"mean absolute error", "R squared"}
    assert found["once"]["rows"] == found["thrice"]["rows"]


def test_answers_that_came_to_nothing_are_counted_in_a_simulation(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply does not tell of it; the gate's owner, and so a simulation, does."""
    from privfed.learners.fuzzy_tree.queries import Level

    def fails(self: Level, view: Any) -> Any:
        raise ValueError

    output = Output(tmp_path)
    simulation.run(prepare(study), study.policies[2], output)
    assert output.read("private", "metrics.json")["faults"] == {}
    monkeypatch.setattr(Level, "evaluate", fails)
    again = Output(tmp_path / "again")
    again.folder.mkdir()
    simulation.run(prepare(study), study.policies[2], again)
    faults = again.read("private", "metrics.json")["faults"]
    assert set(faults) == set(study.clients.names or ())
    assert all(set(kinds) == {Level.kind} for kinds in faults.values())
