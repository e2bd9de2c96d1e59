"""A paper's table rerun: figures beside ours, data known by their contents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privfed.cli import BAD_INPUT, FINE, status
from privfed.errors import InputError
from privfed.learners import RuleFitClassifier
from privfed.study.papers import QUICK, TABLES, data, reproduce, simulations, trauma
from privfed.study.papers.table import Measured, PaperTable, compared


def patients() -> pd.DataFrame:
    """Simulated patients of three hospitals, in the columns of the trauma set."""
    rng = np.random.default_rng(5)
    count = 150
    table = pd.DataFrame(
        {
            "sex": rng.integers(0, 2, count),
            "age": rng.uniform(16, 90, count).round(),
            "ISS": rng.integers(1, 76, count),
            "GCS": rng.integers(3, 16, count),
            "hospital": rng.integers(1, 4, count),
        }
    )
    return table.assign(mortality=(rng.random(count) < table["age"] / 120).astype(int))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five trees in place of the paper's 333, and ten rounds in place of 300."""
    build = RuleFitClassifier.paper
    few = {"n_estimators": 5, "n_rounds": 10, "reference_rounds": 0}
    monkeypatch.setattr(RuleFitClassifier, "paper", lambda **more: build(**more | few))


def test_ours_stands_beside_the_papers_with_its_standard_error() -> None:
    """Mean, deviation over the root of the count, difference; no figure, no difference."""
    told = compared([Measured("a", "x", 4.0, [1, 2, 3]), Measured("b", "y", None, [5])])
    assert told["ours"].tolist() == [2, 5]
    assert told["standard error"][0] == pytest.approx(3**-0.5)
    assert told["difference"][0] == -2
    assert told.isna().sum().sum() == 3


def test_a_data_set_is_known_by_its_contents() -> None:
    """Order of rows and columns and the writing of numbers aside."""
    table = patients()
    shuffled = table.sample(frac=1, random_state=1)[[*reversed(table.columns)]].astype(float)
    assert data.digest(shuffled) == data.digest(table)
    table["ISS"] += np.arange(len(table)) == 7
    assert data.digest(shuffled) != data.digest(table)


def test_a_table_of_ones_own_folder_is_rerun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], small: None
) -> None:
    """Another table than ours is said to be one; supports are those of the file's rows."""
    table = patients()
    table.to_csv(tmp_path / "trauma.csv", index=False)
    assert status(["reproduce", "rulefit/table-1", "--quick", "--data", str(tmp_path)]) == FINE
    printed = capsys.readouterr().out
    assert "trauma: 150 rows" in printed and "NOT the table" in printed
    told = compared(trauma.table_1({"trauma": table}, 1))
    support = told[told["column"] == "support"].set_index("row")
    rule = "age < 56.64 & ISS < 57.66"
    held = (table["age"] < 56.64) & (table["ISS"] < 57.66)
    assert support.loc[rule, "ours"] == pytest.approx(held.mean())
    assert support.loc[rule, "paper"] == trauma.TABLE_1[rule][2] == 0.68
    rules = told[told["row"] == "all patients"]
    assert rules["repetitions"].tolist() == [1, 1] and (rules["paper"] == 82).all()


def test_what_is_missing_is_said_with_where_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback for a stranger."""
    assert status(["reproduce", "rulefit/table-1", "--data", str(tmp_path)]) == BAD_INPUT
    told = capsys.readouterr().err
    assert f"there is no {tmp_path / 'trauma.csv'}; get the R package BFI" in told
    assert "save it as trauma.csv with the target mortality, and name its folder" in told
    with pytest.raises(InputError, match=r"did you mean 'rulefit/table-1'\?"):
        reproduce("rulefit/tabel-1")
    assert status(["reproduce", "--list"]) == FINE
    printed = capsys.readouterr().out
    assert all(name in printed for name in TABLES)


def test_another_table_is_told_before_its_figures_or_instead_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One without the target, and one that lacks what the paper's rules name; the target may stand anywhere."""
    command = ["reproduce", "rulefit/table-1", "--quick", "--data", str(tmp_path)]
    patients().drop(columns="mortality").to_csv(tmp_path / "trauma.csv", index=False)
    assert status(command) == BAD_INPUT
    assert "'mortality'" in capsys.readouterr().err
    patients()[["mortality", "age"]].to_csv(tmp_path / "trauma.csv", index=False)
    assert data.table("trauma", tmp_path).columns.tolist() == ["age", "mortality"]
    assert status(command) == BAD_INPUT
    told = capsys.readouterr().err
    assert (
        "trauma: is NOT the table that docs/results were measured on, and cannot be rerun" in told
    )


def test_a_quick_run_takes_the_first_data_set_and_few_repetitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says so; the whole one takes all."""
    for name in ("trauma", "mortgage"):
        frame = patients().rename(columns={"mortality": data.SETS[name].target})
        frame.to_csv(tmp_path / f"{name}.csv", index=False)

    def run(
        frames: Mapping[str, pd.DataFrame], repetitions: int, rows: int = 3
    ) -> Iterator[Measured]:
        yield Measured("all", "sets", None, [len(frames)])
        yield Measured("all", "repetitions", None, [repetitions])
        yield Measured("all", "rows", None, [rows])

    chosen = PaperTable("two sets", ("trauma", "mortgage"), 7, run, {"rows": 1})
    monkeypatch.setattr("privfed.study.papers.TABLES", {"x/table-1": chosen})
    found, told = reproduce("x/table-1", tmp_path, quick=True)
    assert found["ours"].tolist() == [1, QUICK, 1]
    assert told[-1] == "quick: 2 of 7 repetitions, and a few rows of the table"
    assert reproduce("x/table-1", tmp_path)[0]["ours"].tolist() == [2, 7, 3]


@pytest.mark.parametrize("figure", [None, 2.0])
def test_a_dash_for_a_paper_s_figure_is_explained(
    figure: float | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some of its cells are ours alone; a table without any is not explained."""

    def run(frames: Mapping[str, pd.DataFrame], repetitions: int) -> Iterator[Measured]:
        yield Measured("all", "error", figure, [1.0])

    monkeypatch.setattr("privfed.study.papers.TABLES", {"x/y": PaperTable("title", (), 1, run)})
    assert status(["reproduce", "x/y"]) == FINE
    assert ("paper -: not printed" in capsys.readouterr().out) == (figure is None)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("name", "rows"),
    [("rulefit/figure-2", "model 1, clients M=2"), ("forest/table-3", "K = 1")],
)
def test_few_settings_are_settings_of_the_table(name: str, rows: str) -> None:
    """A quick run's rows are among the table's."""
    frame = patients().rename(columns={"mortality": "class"})
    chosen = TABLES[name]
    assert next(chosen.run({"banknote": frame}, 1, **chosen.few)).row == rows


def test_every_table_names_sets_that_have_an_origin() -> None:
    """And a digest of the table that our figures were measured on."""
    for chosen in TABLES.values():
        assert chosen.repetitions >= 1 and chosen.title
        for name in chosen.data:
            assert len(data.SETS[name].digest) == 64 and data.SETS[name].origin


def test_the_simulations_scenarios_are_the_papers(
    monkeypatch: pytest.MonkeyPatch, small: None
) -> None:
    """Nine for each model, a thousand records each; federated and centralized are paired."""
    rng = np.random.default_rng(0)
    tables = list(simulations.cells(1, rng))
    assert len(tables) == 9
    assert all(len(train) == simulations.RECORDS for _, _, train in tables)
    severe = tables[-1][2].groupby("client")["y"].mean().tolist()
    assert severe == [0.125, 0.25, 0.375, 0.875, 0.875]
    monkeypatch.setattr(simulations, "cells", lambda *_: iter(tables[:1]))
    told = list(simulations.figure_2({}, 1))
    assert [(one.row, len(one.ours)) for one in told] == [
        (f"model {model}, clients M=2", 1) for model in (1, 1, 2, 2)
    ]
