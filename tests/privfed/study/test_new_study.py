"""A new study's files: from an interview, or from options alone."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from privfed import Policy, Schema
from privfed.cli import BAD_INPUT, FINE, commands, status
from privfed.study import Study
from privfed.testing.hospitals import patients

ANSWERS = {
    "table": "TABLE",
    "target": "days",
    "owner": "",  # the column that is called hospital
    "individual": "",
    "age": "0 110",
    "GCS": "15 3\n3 15",  # asked again
    "noise": "-",
    "sex": "0 1\nfemale, male",  # categories are asked for again
    "died": "0, 1",
    "days": "-\n0 inf\n0 60",  # neither left out nor without a bound
    "learner": "RuleFit\nRuleFitRegressor",
    "epsilon": "-3\n3",
    "lasting": "n",
    "purpose": "Length of stay",
    "others": "\n" * 6,
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Patients of three hospitals."""
    patients(90).to_csv(tmp_path / "patients.csv", index=False)
    return tmp_path / "patients.csv"


def interview(folder: Path, table: Path, **changed: str) -> str:
    """Answer every question; what was printed."""
    said = "\n".join((ANSWERS | changed).values()).replace("TABLE", str(table))
    ran = CliRunner().invoke(commands, ["study", "new", str(folder)], input=said)
    assert ran.exception is None, ran.output
    return ran.output


def test_an_interview_writes_a_study_that_can_be_priced(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All three files, and no record's value in them; wrong answers are asked for again."""
    printed = interview(tmp_path / "stay", table)
    study = Study.from_toml(tmp_path / "stay/study.toml")
    assert (study.clients.column, study.learner.name) == ("hospital", "RuleFitRegressor")
    assert study.about.purpose == "Length of stay"
    schema = Schema.from_toml(tmp_path / "stay/schema.toml")
    assert (
        schema.names == ("age", "GCS", "sex", "died") and schema.column("died").kind == "category"
    )
    assert Policy.from_toml(tmp_path / "stay/policy.toml").budget is not None
    assert status(["price", str(tmp_path / "stay/study.toml")]) == FINE
    assert "at most epsilon 3 " in capsys.readouterr().out
    record = [str(value) for value in patients(90)["days"] if value % 1]
    written = "".join(path.read_text() for path in (tmp_path / "stay").iterdir())
    assert not [value for value in record if value in printed + written]


def test_bounds_that_nobody_knows_yet_are_left_to_fill_in(table: Path, tmp_path: Path) -> None:
    """The schema says where; there is no policy before."""
    printed = interview(tmp_path / "stay", table, age="", sex="")
    assert (
        "fill in the bounds and categories" in printed
        and not (tmp_path / "stay/policy.toml").exists()
    )
    text = (tmp_path / "stay/schema.toml").read_text()
    assert text.count("# lower = ...") == 1 and text.count("# categories = ") == 1


def test_columns_of_names_are_left_out_unless_one_insists(table: Path, tmp_path: Path) -> None:
    """Said why, and proposed so; an individual's column is none of the features."""
    frame = patients(90)
    frame["name"] = [f"Jane {number}" for number in range(90)]
    frame["person"] = range(90)
    frame.to_csv(table, index=False)
    answers = ANSWERS | {"individual": "person"}
    answers = {key: answers[key] for key in ("table", "target", "owner", "individual")}
    answers |= {key: ANSWERS[key] for key in ("age", "GCS", "noise", "sex", "died", "days")}
    answers |= {"name": ""} | {key: ANSWERS[key] for key in list(ANSWERS)[10:]}
    said = "\n".join(answers.values()).replace("TABLE", str(table))
    ran = CliRunner().invoke(commands, ["study", "new", str(tmp_path / "stay")], input=said)
    assert ran.exception is None and "name: holds a text of its own" in ran.output
    assert "Jane" not in ran.output
    policy = Study.from_toml(tmp_path / "stay/study.toml").policies[0]
    assert (policy.unit, policy.cap) == ("individual", 1)
    assert not {"name", "person"} & set(Schema.from_toml(tmp_path / "stay/schema.toml").names)


def test_options_alone_suffice(tmp_path: Path) -> None:
    """A bundled set brings its schema; classes use a classifier."""
    folder = tmp_path / "new"
    assert (
        status(["study", "new", str(folder), "--table", "diabetes", "--yes", "--lasting"]) == FINE
    )
    study = Study.from_toml(folder / "study.toml")
    assert study.ledgers == (folder / "ledgers").resolve() and study.data.target is None
    assert status(["study", "new", str(tmp_path / "iris"), "--table", "iris", "--yes"]) == FINE
    assert Study.from_toml(tmp_path / "iris/study.toml").learner.name == "RuleFitClassifier"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "--table"),
        (["--table", "none.csv"], "none.csv"),
        (["--table", "nothing"], "no data set 'nothing'"),
        (["--table", "diabetes", "--target", "bmj"], "did you mean 'bmi'"),
        (["--table", "diabetes", "--owner", "site"], "no column 'site'"),
        (["--table", "diabetes", "--learner", "RuleFit"], "did you mean 'RuleFitRegressor'"),
        (["--table", "diabetes", "--epsilon", "many"], "epsilon"),
        (
            ["--table", "diabetes", "--target", "sex", "--owner", "sex"],
            "name another one for the owners",
        ),
        (
            ["--table", "diabetes", "--learner", "RuleFitClassifier"],
            "does not predict a column such as 'progression'; write one of RuleFitRegressor",
        ),
    ],
)
def test_a_wrong_option_writes_nothing(
    options: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that says what to write instead."""
    assert status(["study", "new", str(tmp_path / "new"), "--yes", *options]) == BAD_INPUT
    assert says in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_not_empty_is_told_before_any_question(
    table: Path, tmp_path: Path
) -> None:
    """Nobody answers twenty questions for nothing."""
    ran = CliRunner().invoke(commands, ["study", "new", str(tmp_path), "--table", str(table)])
    assert "its columns" not in ran.output and "not empty" in str(ran.exception)


def test_a_target_of_two_whole_numbers_is_one_of_classes(table: Path, tmp_path: Path) -> None:
    """0 and 1, or 1 and 2: a category whose values are left to fill in, and a classifier; a feature stays a number."""
    frame = pd.read_csv(table).assign(died=lambda held: held["died"] + 1)
    frame.to_csv(table, index=False)
    words = ["study", "new", str(tmp_path / "st"), "--table", str(table), "--yes", "--target"]
    assert CliRunner().invoke(commands, [*words, "died"]).exit_code == FINE
    assert Study.from_toml(tmp_path / "st/study.toml").learner.name == "RuleFitClassifier"
    text = (tmp_path / "st/schema.toml").read_text()
    assert 'name = "died"\nkind = "category"\n# categories' in text
    words[2] = str(tmp_path / "other")
    assert CliRunner().invoke(commands, [*words, "days"]).exit_code == FINE
    assert Study.from_toml(tmp_path / "other/study.toml").learner.name == "RuleFitRegressor"
    assert 'name = "died"\nkind = "integer"' in (tmp_path / "other/schema.toml").read_text()
