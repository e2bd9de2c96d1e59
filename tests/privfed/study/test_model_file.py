"""A model's file is read without running what it says, and attacked by its holder's tables."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from joblib.numpy_pickle import NumpyUnpickler
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from privfed.attacks.fitted_trees import FittedTrees
from privfed.cli import BAD_INPUT, FINE, status
from privfed.errors import InputError
from privfed.study import confined_reader, model_file


@pytest.fixture(autouse=True)
def _fewer_shadows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privfed.attacks.fitted_tree_risks.SHADOWS", 4)


def table(folder: Path, name: str, seed: int) -> pd.DataFrame:
    """A table of three columns and an outcome by name, and its file."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(80, 3)), columns=["a", "b", "c"])
    frame["ill"] = np.where(frame["a"] + rng.normal(size=80) > 0, "yes", "no")
    frame.to_csv(folder / name, index=False)
    return frame


@pytest.fixture
def train(tmp_path: Path) -> pd.DataFrame:
    """Training records, held-out ones beside them."""
    table(tmp_path, "test.csv", 1)
    return table(tmp_path, "train.csv", 0)


def dumped(path: Path, model: Any, protocol: int | None = None) -> Path:
    """Write a model with joblib."""
    joblib.dump(model, path, protocol=protocol)
    return path


class Runs:
    """Pickles as a call that leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def unpickled(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], Any]:
    """What the confined process does with a pickle, in this one."""
    monkeypatch.setattr(pickle, "load", pickle.load)
    monkeypatch.setattr(NumpyUnpickler, "find_class", NumpyUnpickler.find_class)
    return lambda stored: confined_reader.read(stored, "pickle")


def test_a_pickle_that_calls_is_refused_and_calls_nothing(
    tmp_path: Path, unpickled: Callable[[bytes], Any]
) -> None:
    """Bare, inside an array, inside a tree; by any protocol."""
    trap = Runs(tmp_path / "called")
    tree = DecisionTreeRegressor()
    tree.hidden_ = np.array([trap, None], dtype=object)
    held = [trap, np.array([trap], dtype=object), tree]
    paths = [
        dumped(tmp_path / f"{place}.{protocol}.joblib", each, protocol)
        for place, each in enumerate(held)
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    ]
    for path in paths:
        with pytest.raises(confined_reader.FileRefused, match="it holds"):
            unpickled(path.read_bytes())
    with pytest.raises(InputError, match=r"it holds posix\.mkdir"):
        model_file.read_model(paths[-1])
    assert not (tmp_path / "called").exists()


def test_the_trap_is_one(tmp_path: Path) -> None:
    """Whoever loads it has run it."""
    joblib.load(dumped(tmp_path / "model.joblib", Runs(tmp_path / "called")))
    assert (tmp_path / "called").exists()


def test_a_confined_process_opens_neither_files_nor_connections_nor_processes() -> None:
    """What code in a file would do, if it ran after all."""
    code = f"""
import os, runpy, socket
runpy.run_path({confined_reader.__file__!r})["confine"]()
for attempt in (lambda: open("/etc/passwd"), socket.socket, os.pipe, lambda: os.listdir("/")):
    try:
        attempt()
    except OSError as error:
        assert error.errno == 24, error
    else:
        raise SystemExit("opened")
try:
    held = bytearray(8 << 30)
except MemoryError:
    print("confined")
"""
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "confined", done.stderr


def test_all_forms_of_a_file_are_read_alike(
    tmp_path: Path, train: pd.DataFrame, unpickled: Callable[[bytes], Any]
) -> None:
    """joblib, compressed, pickle, and by skops in a confined process: the same arrays and names."""
    io = pytest.importorskip("skops.io")
    model = RandomForestClassifier(3, random_state=0).fit(train[["a", "b", "c"]], train["ill"])
    joblib.dump(model, tmp_path / "plain.joblib")
    joblib.dump(model, tmp_path / "small.joblib", compress=3)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    io.dump(model, tmp_path / "model.skops")
    read = model_file.read_model(tmp_path / "model.skops")
    assert read.features == ("a", "b", "c") and read.labels == ("no", "yes")
    assert (
        read.mean(train[["a", "b", "c"]].to_numpy()) == model.predict_proba(train[["a", "b", "c"]])
    ).all()
    for name in ("plain.joblib", "small.joblib", "model.pkl"):
        arrays = confined_reader.model_arrays(unpickled((tmp_path / name).read_bytes()))
        assert (arrays["value"] == read.value).all() and (
            arrays["n_node_samples"] == read.counts
        ).all()


def test_what_is_no_tree_is_refused_by_its_name(
    tmp_path: Path, train: pd.DataFrame, unpickled: Callable[[bytes], Any]
) -> None:
    """A pipeline, a boosted model, one that was never fitted, one of two outcomes, text, another suffix, no file."""
    x, y = train[["a", "b", "c"]], train["ill"]
    cases = {
        "Pipeline.*last step": make_pipeline(StandardScaler(), DecisionTreeClassifier()).fit(x, y),
        "GradientBoosting": GradientBoostingClassifier(n_estimators=2).fit(x, y),
        "never fitted": DecisionTreeClassifier(),
        "several outcomes": DecisionTreeRegressor().fit(x, x),
        "holds a list": [],
    }
    for text, model in cases.items():
        with pytest.raises(confined_reader.FileRefused, match=text):
            confined_reader.model_arrays(unpickled(pickle.dumps(model)))
    (tmp_path / "text.joblib").write_text("a,b\n1,2\n")
    faults = {
        "text.joblib": "no model that could be read",
        "train.csv": "is not one of",
        "absent.pkl": "its path",
    }
    for name, text in faults.items():
        with pytest.raises(InputError, match=text):
            model_file.read_model(tmp_path / name)


def test_tables_that_do_not_fit_are_told_in_one_sentence(
    tmp_path: Path, train: pd.DataFrame
) -> None:
    """Columns, cells, outcomes, by name and row; no value is shown."""
    model = DecisionTreeClassifier().fit(train[["a", "b", "c"]], train["ill"])
    arrays = confined_reader.model_arrays(model)
    read = FittedTrees.of(arrays, json.loads(arrays["about"].tobytes()))
    cases = {
        "no column 'a'": train.drop(columns="a"),
        "--target COLUMN, one of": train.assign(d=1.0),
        "no column besides the model's features": train.drop(columns="ill"),
        "not numbers .row 3": train.assign(b=train["b"].where(train.index != 1)),
        "not among the model's 2 classes": train.assign(ill="perhaps"),
        "no records": train.head(0),
    }
    for text, frame in cases.items():
        frame.to_csv(tmp_path / "other.csv", index=False)
        with pytest.raises(InputError, match=text) as caught:
            model_file.read_records(read, tmp_path / "other.csv", None)
        assert "perhaps" not in str(caught.value)
    train.assign(d=1.0).to_csv(tmp_path / "other.csv", index=False)
    assert len(model_file.read_records(read, tmp_path / "other.csv", "ill")) == 80


def test_a_model_is_attacked_from_the_command_line(
    tmp_path: Path,
    train: pd.DataFrame,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page and findings; records' scores only where asked for; another table is told."""
    monkeypatch.setattr(model_file, "_read_confined", cache(model_file._read_confined))
    model = DecisionTreeClassifier(random_state=0).fit(train[["a", "b", "c"]], train["ill"])
    path, out = dumped(tmp_path / "model.joblib", model), tmp_path / "out"
    given = ["attack", str(path), "--data", str(tmp_path / "train.csv"), "--out", str(out)]
    held_out = ["--outsiders", str(tmp_path / "test.csv")]
    assert status([*given, *held_out]) == FINE
    plain = json.loads((out / "findings.json").read_text())
    assert {each["risk"] for each in plain["findings"]} == {"singling out", "inference"}
    assert "records" not in plain and not plain["another table"]
    assert plain["findings"][-1]["detail"]["found at false positives of"].keys() >= {"0.1 %"}
    assert "whoever knows all other records" in (out / "report.html").read_text()
    assert "found      class disclosure" in capsys.readouterr().out
    assert status([*given, *held_out]) == BAD_INPUT
    assert (
        "holds an earlier output; name a new folder, or add --overwrite\n"
        in capsys.readouterr().err
    )
    assert status([*given, *held_out, "--overwrite", "--scores"]) == FINE
    ranked = json.loads((out / "findings.json").read_text())["records"]
    assert sorted(ranked["row"]) == list(range(2, 82))  # lines of the table, its header the first
    assert ranked["least"] == sorted(ranked["least"]) and ranked["least"][0] >= 1 / 81
    wrong = [
        "attack",
        str(path),
        "--data",
        str(tmp_path / "test.csv"),
        "--out",
        str(out),
        "--overwrite",
    ]
    assert status(wrong) == FINE
    assert "another table" in capsys.readouterr().out
    assert "do not hold these records" in (out / "report.html").read_text()


def test_a_models_page_says_the_worst_that_was_found_and_who_did_not_look(
    tmp_path: Path,
    train: pd.DataFrame,
    unpickled: Callable[[bytes], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Free parameters alone are a finding, too; without held-out records two attacks have no control."""

    def read_here(stored: bytes, _: str) -> dict[str, np.ndarray]:
        return confined_reader.model_arrays(unpickled(stored))

    monkeypatch.setattr(model_file, "_read_confined", read_here)
    x, y = train[["a", "b", "c"]], train["ill"]
    many = RandomForestClassifier(60, min_samples_leaf=20, random_state=0).fit(x, y)
    for name, model, says in (
        ("many", many, "a free parameter for each training record, and more: free parameters"),
        (
            "one",
            DecisionTreeClassifier(min_samples_leaf=36).fit(x, y),
            "anything</b>, and 2 of 5 could not be tried",
        ),
    ):
        path, out = dumped(tmp_path / f"{name}.joblib", model), tmp_path / name
        given = ["--data", str(tmp_path / "train.csv"), "--out", str(out)]
        assert status(["attack", str(path), *given]) == FINE
        assert says in (out / "report.html").read_text()


def test_a_model_needs_its_table_and_a_folder_takes_none(
    tmp_path: Path, train: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence each."""
    model = DecisionTreeClassifier().fit(train[["a", "b", "c"]], train["ill"])
    path = dumped(tmp_path / "model.joblib", model)
    assert status(["attack", str(path)]) == BAD_INPUT
    assert "--data TABLE.csv" in capsys.readouterr().err
    assert status(["attack", str(tmp_path), "--outsiders", "x.csv"]) == BAD_INPUT
    assert "go with a model's file" in capsys.readouterr().err
