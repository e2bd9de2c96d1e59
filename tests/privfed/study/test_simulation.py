"""Carrying a study out: what is held out stays out, and strict is stricter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed.audits import trainings
from privfed.errors import StudyError
from privfed.exchange.transcript import Transcript
from privfed.learners import FuzzyTreeRegressor
from privfed.questions import plugins
from privfed.study import Study, simulation
from privfed.study.output import Output
from privfed.study.simulation import divide, prepare


@pytest.fixture(scope="module")
def study() -> Study:
    """The built-in study with test noise."""
    return replace(Study.built_in(), noise="test")


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


@pytest.mark.parametrize("person", [True, False])
def test_under_lasting_ledgers_no_record_moves_another(tmp_path: Path, person: bool) -> None:
    """Without any one record all others are trained on or held out as before; a person's are together."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.uniform(0, 100, 60), "y": rng.uniform(0, 100, 60)})
    table = table.round(1).assign(site=np.repeat(["A", "B"], 30), person=np.arange(60) // 3)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "study.toml").write_text(
        LASTING if person else LASTING.replace('individual = "person"\n', "")
    )

    def held_out(rows: pd.DataFrame) -> set[int]:
        rows.to_csv(tmp_path / "table.csv", index=False)
        prepared = divide(Study.from_toml(tmp_path / "study.toml"))
        return set(rows.index[prepared.test.index])

    held = held_out(table)
    assert 5 < len(held) < 30
    for out in (0, 17, 59):
        assert held_out(table.drop(index=out)) == held - {out}
    assert not person or all(own <= held or not own & held for own in map(set, THREES))


THREES = [range(start, start + 3) for start in range(0, 60, 3)]


def test_truth_is_what_the_clients_hold(study: Study) -> None:
    """Attacks are scored against the training records of each client."""
    prepared = divide(study)
    assert {name: len(records) for name, records in prepared.truth().items()} == dict(
        prepared.train[prepared.owner].value_counts()
    )


def test_a_clients_column_never_hides_a_feature() -> None:
    """A table with a column called client gets another name for its owners."""
    frame = pd.DataFrame({"client": [1.0]})
    assert simulation._free("client", frame) == "client_"


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
    assert sum(moved) == metrics["questions"] > 0
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
    assert set(inapplicable) == set(plugins.available("attacks"))
    assert all(question.endswith("?") for question in inapplicable.values())


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
        assert tried | set(inapplicable) == set(plugins.available("attacks"))
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
