"""``privfed predict``: a study's model put to a table, and every slip told in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privfed.cli import BAD_INPUT, FINE, status
from privfed.learners import GeneticTreeClassifier, RuleFitClassifier, RuleSearch, load, save
from privfed.testing.hospitals import NAMES, QUICK, gates, patients

FRAME = patients(200)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A saved classifier of the hospitals' patients, and their table beside it."""
    learner = RuleFitClassifier(**QUICK | {"n_estimators": 10, "n_rounds": 10})
    save(learner.fit(gates(FRAME, learner.published())), tmp_path / "model.json")
    FRAME.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "model.json"


def test_predictions_are_the_model_s_own(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the console or to a file: classes and their probabilities, one row for each."""
    table, out = str(tmp_path / "table.csv"), tmp_path / "out.csv"
    assert status(["predict", str(model), table]) == FINE
    told = pd.read_csv(StringIO(capsys.readouterr().out))
    learnt, x = load(model), FRAME[list(NAMES)]
    assert list(told.columns) == ["died", "probability of 0", "probability of 1"]
    assert np.array_equal(told["died"], learnt.predict(x))
    assert status(["predict", str(model), table, "--out", str(out), "--client", "B"]) == FINE
    assert "wrote 200 predictions" in capsys.readouterr().out
    assert pd.read_csv(out).equals(told)


def test_a_table_of_another_form_is_read_as_it_is_written(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Semicolons, decimal commas and a Windows encoding, by the first lines: there is no [data] to say so."""
    told, frame = [], FRAME.assign(Größe=1.5)
    frame.to_csv(tmp_path / "plain.csv", index=False)
    frame.to_csv(tmp_path / "west.csv", index=False, sep=";", decimal=",", encoding="cp1252")
    for name in ("plain.csv", "west.csv"):
        assert status(["predict", str(model), str(tmp_path / name)]) == FINE
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]


def test_a_study_s_model_predicts(write_study: Callable[..., Path], tmp_path: Path) -> None:
    """The model.json of a run, under each policy."""
    path = write_study()
    assert status(["run", str(path), "--out", str(tmp_path / "out")]) == FINE
    table = next(path.parent.glob("*.csv"))
    for policy in ("published", "private"):
        found, out = tmp_path / "out" / policy / "model.json", tmp_path / f"{policy}.csv"
        assert status(["predict", str(found), str(table), "--out", str(out)]) == FINE
        assert len(pd.read_csv(out)) == len(pd.read_csv(table))


def bad(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What the command says of bad input, in one line."""
    capsys.readouterr()
    assert status(["predict", *map(str, arguments)]) == BAD_INPUT
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1
    return told.err


def test_a_private_study_s_model_makes_up_records(
    write_study: Callable[..., Path],
    study_text: str,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From the study's model.json alone, by seed; what keeps nothing to draw from is refused."""
    forest = study_text.replace('"FuzzyTreeRegressor"', '"FedForestRegressor"')
    path = write_study(forest.replace("max_depth = 1, n_fuzzy_sets = 2", "n_estimators = 2"))
    assert status(["run", str(path), "--out", str(tmp_path / "out")]) == FINE
    out = tmp_path / "out"
    learnt = out / "private" / "model.json"
    command = ["synthesize", str(learnt), "--rows", "30", "--random-state", "1"]
    for name in ("one.csv", "same.csv"):
        assert status([*command, "--out", str(out / name)]) == FINE
        assert f"wrote 30 synthetic records to {out / name}" in capsys.readouterr().out
    made = pd.read_csv(out / "one.csv")
    columns = [column.name for column in load(learnt).schema_.columns]
    assert list(made) == columns and len(made) == 30
    assert (out / "one.csv").read_bytes() == (out / "same.csv").read_bytes()
    assert status([*command, "--out", str(out / "one.csv")]) == BAD_INPUT
    assert status([*command, "--rows", "9" * 20]) == BAD_INPUT, "no memory holds so many"
    for other, why in (
        (out / "published" / "model.json", "fit with a private(epsilon)"),
        (model, "RuleFitClassifier keeps no releases"),
    ):
        capsys.readouterr()
        assert status(["synthesize", str(other), "--rows", "3"]) == BAD_INPUT
        assert why in capsys.readouterr().err


def test_slips(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files that are not there, other columns, text among numbers, strangers, an own file."""
    table = tmp_path / "table.csv"
    assert "no.json: cannot be read (no such file or directory); give a model.json" in bad(
        capsys, tmp_path / "no.json", table
    )
    assert "is a directory" in bad(capsys, tmp_path, table)
    assert "no.csv: cannot be read" in bad(capsys, model, tmp_path / "no.csv")
    assert "is not JSON; give a model.json" in bad(capsys, table, table)
    FRAME.drop(columns="GCS").to_csv(tmp_path / "less.csv", index=False)
    assert "less.csv: no column 'GCS' in the table" in bad(capsys, model, tmp_path / "less.csv")
    FRAME.assign(age="old").to_csv(tmp_path / "text.csv", index=False)
    assert "'age' is numeric but text stands in 200 cells (rows 2, 3, 4, 5, 6 and 195 more)" in bad(
        capsys, model, tmp_path / "text.csv"
    )
    FRAME[:0].to_csv(tmp_path / "empty.csv", index=False)
    assert "holds no records" in bad(capsys, model, tmp_path / "empty.csv")
    assert "no client 'D' took part" in bad(capsys, model, table, "--client", "D")
    assert "exists already" in bad(capsys, model, table, "--out", table)
    assert pd.read_csv(table).shape == FRAME.shape
    assert status(["predict", str(model), str(table), "--out", str(table), "--overwrite"]) == FINE


def test_a_model_of_a_client_s_own_needs_its_shelf(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What to write on the command line is said, with and without a client."""
    learner = GeneticTreeClassifier(population_size=4, generations=1, max_depth=2)
    model, table = tmp_path / "model.json", tmp_path / "table.csv"
    save(learner.fit(gates(FRAME, learner.published())), model)
    FRAME.to_csv(table, index=False)
    told = bad(capsys, model, table)
    assert "write --client NAME --shelf PATH" in told and "clients are C, A, B" in told
    assert "write --client B --shelf PATH" in bad(capsys, model, table, "--client", "B")


def test_all_that_a_table_lacks_is_told_at_once(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each missing column, one for the gap with its row, and no prediction."""
    FRAME.assign(noise=FRAME["noise"].where(FRAME.index != 3)).drop(columns=["GCS", "age"]).to_csv(
        tmp_path / "less.csv", index=False
    )
    capsys.readouterr()
    assert status(["predict", str(model), str(tmp_path / "less.csv")]) == BAD_INPUT
    told = capsys.readouterr()
    assert told.out == "" and told.err.startswith("privfed: 3 faults")
    assert "no column 'GCS'" in told.err and "no column 'age'" in told.err
    assert told.err.count("its columns are") == 1
    assert f"'noise' has no value in 1 of {len(FRAME)} records (row 5)" in told.err


def test_a_model_of_trajectories_reads_no_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what it reads instead."""
    model = {
        "format": "privfed model 1",
        "learner": "RuleSearch",
        "parameters": RuleSearch().saved_parameters(),
        "schema": {"column": [{"name": "hr", "lower": 20, "upper": 220}]},
        "clients": ["cohort"],
        "state": {"rules": [], "found": [], "steps": []},
    }
    (tmp_path / "model.json").write_text(json.dumps(model))
    pd.DataFrame({"hr": [80.0]}).to_csv(tmp_path / "one.csv", index=False)
    told = bad(capsys, tmp_path / "model.json", tmp_path / "one.csv")
    assert "X must hold trajectories, shape (samples, steps, variables)" in told
