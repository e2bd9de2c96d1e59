"""A study reads its models alone where it asks for it: shadows are trained as the model was, for so long."""

from __future__ import annotations

import warnings
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

from privfed.errors import DataWarning, Note, StudyError
from privfed.learners import FuzzyTreeRegressor
from privfed.questions import plugins
from privfed.study import Study, assembly, model_reading
from privfed.study.output import Output
from privfed.tables.schema import Column, Schema


@pytest.fixture(autouse=True)
def _no_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the readers of models look; audits of mechanisms have tests of their own."""
    monkeypatch.setattr("privfed.study.simulation.audit", lambda *_: [])


PLAIN: dict[str, Any] = {
    "name": "read",
    "seed": 1,
    "attacks": [],
    "data": {"source": "diabetes"},
    "clients": {"count": 2},
    "learner": {
        "name": "CentralForestRegressor",
        "params": {"n_estimators": 10, "min_samples_leaf": 1},
    },
    "policy": [{"name": "published"}],
    "shadows": {"number": 12},
}


def findings(study: Study, folder: Path) -> list[dict[str, Any]]:
    """What the readers of the model find."""
    assembly.run(study, folder, overwrite=False, attacked=True)
    told = Output.opened(folder).read("published", "findings.json")
    return [each for each in told["findings"] if each["attack"].startswith("model reader")]


def test_whom_a_tree_learnt_from_is_read_off_it(tmp_path: Path) -> None:
    """In all ways, of the records that the clients own beside those that were held out."""
    found = findings(Study.from_dict(PLAIN), tmp_path / "out")
    ways = [f"model reader {way}" for way in ("quantile", "lira", "rmia")]
    assert [each["attack"] for each in found] == ways
    for each in found:
        assert each["low"] > 0.5 and each["severity"] == "some" and each["simulation"]
        assert each["detail"].get("shadows", 12) == 12 and not each["partial"]
        assert each["detail"]["members"] + each["detail"]["others"] == 442


def test_time_that_is_up_leaves_fewer_shadows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was trained by then is used, and the finding says how many there were to be."""

    class Hurried:
        """A deadline that strikes after two rounds."""

        def __init__(self, _: float) -> None: ...

        def range(self, _: int) -> range:
            return range(2)

    monkeypatch.setattr("privfed.attacks.shadow_models.Deadline", Hurried)
    for each in findings(Study.from_dict(PLAIN), tmp_path / "out")[1:]:
        assert each["partial"] == "8 of 12 shadows in 120 s"


def test_what_bounds_clip_is_said_of_the_study_and_of_no_shadow(tmp_path: Path) -> None:
    """Once for each client, however many models are trained on parts of its records."""
    table = pd.DataFrame({"x": np.r_[np.arange(40) / 40, 2.0], "y": np.arange(41) / 41})
    table.to_csv(tmp_path / "table.csv", index=False)
    schema = Schema((Column("x", lower=0, upper=1),), Column("y", lower=0, upper=1), name="t")
    schema.to_toml(tmp_path / "schema.toml")
    data = {"source": "table.csv", "schema": "schema.toml"}
    study = Study.from_dict(PLAIN | {"data": data}, folder=tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        findings(study, tmp_path / "out")
    said = [str(one.message) for one in caught if one.category is DataWarning]
    assert len(said) == 1 and "clip 1 cell" in said[0]


def test_what_a_model_notes_is_said_of_the_study_s_own(tmp_path: Path) -> None:
    """Once for each policy, which is named; shadows of it say nothing."""
    table = pd.DataFrame({"x": np.arange(600) / 600, "y": np.arange(600) % 7 / 7})
    table.to_csv(tmp_path / "table.csv", index=False)
    schema = Schema((Column("x", lower=0, upper=1),), Column("y", lower=0, upper=100), name="t")
    schema.to_toml(tmp_path / "schema.toml")
    study = Study.from_dict(
        PLAIN
        | {"data": {"source": "table.csv", "schema": "schema.toml"}, "shadows": {"number": 4}}
        | {
            "learner": {"name": "FuzzyTreeRegressor"},
            "policy": [{"name": "private", "epsilon": "8"}],
        },
        folder=tmp_path,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", Note)
        assembly.run(study, tmp_path / "out", overwrite=False, attacked=True)
    said = [str(one.message) for one in caught if issubclass(one.category, Note)]
    assert [text.startswith("policy 'private': predictions lie between") for text in said] == [True]


USUAL: dict[str, Any] = {key: value for key, value in PLAIN.items() if key != "shadows"}


def test_each_clients_own_model_is_read_against_its_held_out_records(tmp_path: Path) -> None:
    """A deep tree that never left tells whom it learnt from, and the finding says that it would have to be shown."""
    plain = PLAIN | {"learner": {"name": "LocalTreeRegressor", "params": {"min_depth": 12}}}
    found = findings(Study.from_dict(plain), tmp_path / "out")
    assert all(each["question"].startswith("If a client's own model were shown") for each in found)
    *scored, structure = found
    assert all(each["at_home"] and not each["measure"] for each in found)
    assert all(each["value"] > 0.6 and each["severity"] == "some" for each in scored)
    assert len(scored) == 3
    assert structure["baseline"] > 0.1  # secrets alone change splits, too


def test_models_are_read_without_being_asked_where_all_attacks_are_tried(tmp_path: Path) -> None:
    """By eight shadows; a study of chosen attacks reads none."""
    found = findings(Study.from_dict(USUAL | {"attacks": ["*"]}), tmp_path / "out")
    assert [each["detail"].get("shadows") for each in found] == [None, 8, 8]
    assert not findings(Study.from_dict(USUAL), tmp_path / "none")


def test_shadows_of_too_much_work_are_told_as_not_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By work that is counted before any is trained, while quantiles of held-out records are looked at."""
    monkeypatch.setattr("privfed.study.model_reading.MAX_WORK", 1e6)
    plain = USUAL | {"attacks": ["*"], "clients": {"count": 5}}
    quantile, *ways = findings(Study.from_dict(plain), tmp_path / "out")
    assert not quantile["partial"] and quantile["severity"] == "some"
    for each in ways:
        assert "8 shadow models take 1e+10 operations, more than 1e+06" in each["partial"]


def test_a_shadow_that_fails_ends_no_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner's own error is told by its name, for its text may hold data; the quantiles are read."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError("age 41.7")

    monkeypatch.setattr("privfed.study.model_reading.StudyRecords.train", fail)
    quantile, *ways = findings(Study.from_dict(USUAL | {"attacks": ["*"]}), tmp_path / "out")
    assert not quantile["partial"] and len(ways) == 2
    assert {each["partial"] for each in ways} == {"a shadow failed with ZeroDivisionError"}


@pytest.mark.parametrize(
    ("shadows", "says"),
    [
        ({"number": 0}, "number must lie between 2 and 1000"),
        ({"seconds": 0.0}, "seconds must be above 0"),
        ({"ways": []}, "ways is empty"),
        ({"ways": ["magic"]}, "write one of"),
        ({"nummer": 8}, "did you mean 'number'"),
    ],
)
def test_what_makes_no_sense_is_told_before_any_record_is_read(
    shadows: dict[str, Any], says: str
) -> None:
    """By the file alone."""
    with pytest.raises(StudyError, match=says):
        Study.from_dict({**PLAIN, "shadows": shadows})


def test_it_is_written_as_it_was_read() -> None:
    """A study's file keeps its table, and one without it has none."""
    study = Study.from_dict(PLAIN)
    again = Study.from_dict(study.to_dict())
    assert again.shadows == study.shadows and study.shadows is not None
    assert "shadows" not in replace(study, shadows=None).to_dict()


def local_trees(**params: int) -> Study:
    """A tree at each of two clients, of a depth that is set or chosen by secret folds."""
    learner = {"name": "LocalTreeClassifier", "params": params}
    data = {"source": "iris"}
    return Study.from_dict({**PLAIN, "data": data, "learner": learner, "shadows": {"number": 2}})


@pytest.fixture
def few_doubts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer trainings than a study takes."""
    monkeypatch.setattr(model_reading, "DOUBTED", 12)
    monkeypatch.setattr(model_reading, "CONTROLS", 4)


@pytest.mark.usefixtures("few_doubts")
def test_splits_of_personal_trees_prove_who_was_there(tmp_path: Path) -> None:
    """A deep tree's splits follow from the records, and some change without one; no outsider is accused."""
    found = findings(local_trees(min_depth=6, max_depth=6), tmp_path / "out")[-1]
    assert found["attack"] == "model reader structure" and found["risk"] == "singling out"
    assert found["detail"]["records in doubt"] == 24 and found["detail"]["clients"] == 2
    assert found["value"] > 0 and found["baseline"] == 0.0 and found["low"] <= found["value"]
    assert 0 < found["detectable"] < 1


@pytest.mark.usefixtures("few_doubts")
def test_where_secrets_decide_the_splits_their_share_is_the_baseline(tmp_path: Path) -> None:
    """Depths are chosen by folds that are drawn in secret: nothing is proven, or nobody looked."""
    found = findings(local_trees(min_depth=1, max_depth=6, cv=2), tmp_path / "out")[-1]
    assert found["attack"] == "model reader structure" and found["severity"] == "none"
    assert found["partial"] or found["detail"]["changed by secrets alone, at most"] > 0


class RawKeeper(FuzzyTreeRegressor):
    """Asks the gates for a private tree, and keeps the file that it read beside them in its model."""

    table: ClassVar[Path]

    def state(self) -> dict[str, Any]:
        """The tree, and the file."""
        return {**super().state(), "kept": pd.read_csv(self.table).to_numpy().tolist()}


def test_a_learner_that_keeps_the_file_beside_its_questions_is_found_by_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its releases keep to epsilon 4; epsilon 60 may tell as much, and the same tree without the file is not accused."""
    known, rng = plugins.available, np.random.default_rng(0)
    named = EntryPoint("RawKeeper", f"{__name__}:RawKeeper", "privfed.learners")
    monkeypatch.setattr(
        plugins,
        "available",
        lambda group: {**known(group), **({"RawKeeper": named} if group == "learners" else {})},
    )
    RawKeeper.table = tmp_path / "table.csv"
    table = pd.DataFrame({"age": rng.integers(18, 90, 80), "dose": rng.normal(5, 1, 80).round(2)})
    table[["pulse", "weight"]] = rng.normal(70, 9, (80, 2)).round(1)
    table.assign(y=rng.normal(50, 9, 80).round(1)).to_csv(RawKeeper.table, index=False)
    bounds = {
        "age": (0, 120),
        "dose": (0, 10),
        "pulse": (0, 200),
        "weight": (0, 200),
        "y": (0, 100),
    }
    *features, target = (Column(name, lower=a, upper=b) for name, (a, b) in bounds.items())
    Schema(tuple(features), target, name="t").to_toml(tmp_path / "schema.toml")
    plain = {key: value for key, value in PLAIN.items() if key != "shadows"} | {
        "attacks": ["verbatim"],
        "data": {"source": "table.csv", "schema": "schema.toml"},
    }
    graded = {}
    for name, epsilon in (("RawKeeper", "4"), ("RawKeeper", "60"), ("FuzzyTreeRegressor", "4")):
        plain["policy"] = [{"name": "private", "epsilon": epsilon}]
        learner = {"name": name, "params": {"max_depth": 1}}
        study = Study.from_dict(plain | {"learner": learner}, folder=tmp_path)
        assembly.run(study, out := tmp_path / (name + epsilon), overwrite=False, attacked=True)
        told = Output.opened(out).read("private", "findings.json")["findings"]
        graded[out] = [each for each in told if each["attack"] == "model reader verbatim"]
    ((found,), (allowed,), (honest,)) = graded.values()
    assert found["severity"] == "breach" and found["value"] > 50
    assert allowed["severity"] == "some" and allowed["value"] > 50
    assert (honest["severity"], honest["partial"]) == ("none", "")
