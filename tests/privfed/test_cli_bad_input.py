"""Bad input to the command line: one line, exit status 2, nothing written, no raw value."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from privfed.cli import BAD_INPUT, FAULT, FINE, status
from privfed.cli.common import INTERRUPTED
from privfed.study import assembly, simulation

#: A number that stands in the bad tables and must stand in no message.
SECRET = "987.654321"


def _refused(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    """Exit 2, one line on standard error that tells ``told``, and no raw value."""
    capsys.readouterr()
    assert status(arguments) == BAD_INPUT
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert re.search(told, printed.err), printed.err
    assert SECRET not in printed.err


Change = Callable[[pd.DataFrame], pd.DataFrame]


def _cell(column: str, value: object) -> Change:
    def changed(table: pd.DataFrame) -> pd.DataFrame:
        table = table.astype({column: object})
        table.loc[7, column] = value  # type: ignore[call-overload]
        return table

    return changed


TABLES: dict[str, tuple[Change, str]] = {
    "an unknown column": (lambda t: t.drop(columns="weight"), "no column 'weight' in the table"),
    "missing values": (
        _cell("age", None),
        r"column 'age' has no value in 1 of \d+ records \(row 9\); write fill",
    ),
    "text among numbers": (
        _cell("age", f"x{SECRET}"),
        "'age' is numeric but text stands in 1 cell",
    ),
    "a constant target": (lambda t: t.assign(risk=float(SECRET)), "target 'risk' is constant"),
    "a client with one record": (_cell("site", "west"), "client 'west' has 1 record,"),
    "two clients with one name": (_cell("site", "north "), "two clients are called 'north'"),
    "a record without a client": (_cell("site", None), r"leaves 1 of \d+ records without a client"),
    "no client column": (lambda t: t.drop(columns="site"), "no column 'site' in the table"),
    "measurements for names": (
        lambda t: t.assign(site=float(SECRET)),
        "column 'site' holds measurements",
    ),
    "no target": (lambda t: t.drop(columns="risk"), "no column 'risk' for the target"),
}


@pytest.mark.parametrize("fault", TABLES)
def test_a_bad_table_is_one_line(
    fault: str,
    write_study: Callable[..., Path],
    small_table: pd.DataFrame,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit 2, what and where and what to write instead, nothing written, no raw value."""
    change, told = TABLES[fault]
    noted = change(small_table).assign(note=float(SECRET))
    arguments = ["audit", str(write_study(table=noted)), "--out", str(tmp_path / "out")]
    _refused(capsys, arguments, told)
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


POLICY = """
name = "own"
[budget]
epsilon = "1"
[[guard]]
query = "fuzzy_tree.level"
mechanism = "laplace"
spend = "1"
"""
POLICIES = {
    "an unknown query": (('"fuzzy_tree.level"', '"fuzzy_tree.levle"'), "not installed"),
    "an unknown mechanism": (
        ('"laplace"', '"laplaec"'),
        "no mechanism called 'laplaec'; did you mean 'laplace'",
    ),
    "epsilon 0": (('epsilon = "1"', 'epsilon = "0"'), "epsilon must be greater than 0"),
    "a negative epsilon": (('epsilon = "1"', 'epsilon = "-1"'), "epsilon must be greater than 0"),
    "NaN": (('epsilon = "1"', "epsilon = nan"), "epsilon must be finite"),
    "a decimal comma": (('epsilon = "1"', 'epsilon = "1,0"'), "must be a number, not '1,0'; write"),
    "a misspelt key": (("spend =", "spned ="), "unknown key 'spned'; did you mean 'spend'"),
    "an unknown part": (
        ("spend =", 'parts = ["mass"]\nspend ='),
        "names the part 'mass'; its parts",
    ),
}


@pytest.fixture
def refused_study(
    write_study: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, str], None]:
    """Audits a study's text, which is refused in one line before anything is in the output folder."""

    def refuse(text: str, told: str) -> None:
        arguments = ["audit", str(write_study(text)), "--out", str(tmp_path / "out")]
        _refused(capsys, arguments, told)
        assert not [path for path in tmp_path.iterdir() if "out" in path.name]

    return refuse


@pytest.mark.parametrize("fault", POLICIES)
def test_a_bad_policy_is_one_line(
    fault: str, study_text: str, tmp_path: Path, refused_study: Callable[[str, str], None]
) -> None:
    """Policies are read before anything is written or asked."""
    (old, new), told = POLICIES[fault]
    (tmp_path / "own.toml").write_text(POLICY.replace(old, new))
    study = study_text.replace('name = "published"', 'name = "own"\nbase = "own.toml"')
    refused_study(study, told)


STUDIES = {
    "a misspelt key": (("[learner]", "[laerner]"), "unknown key 'laerner'; did you mean 'learner'"),
    "a misspelt learner": (
        ('"FuzzyTreeRegressor"', '"FuzzyTree"'),
        "no learner called 'FuzzyTree'",
    ),
    "a misspelt parameter": (
        ("max_depth", "max_detph"),
        "has no parameter 'max_detph'; did you mean 'max_depth'",
    ),
    "a parameter of another learner": (
        ("max_depth", "gamma"),
        "no parameter 'gamma'; it takes .*sets",
    ),
    "a preset that is none": (
        ("max_depth = 1", 'preset = "papers"'),
        "'FuzzyTreeRegressor' has no preset 'papers'; it has \"paper\"",
    ),
    "text for a seed": (("seed = 1", 'seed = "one"'), "at seed; write a whole number, without"),
    "a wrong parameter": (
        ("sets = 2", "sets = 1"),
        "n_fuzzy_sets must be a whole number from 2 to 99",
    ),
    "text for a number": (
        ("sets = 2", 'sets = "two"'),
        r"params: n_fuzzy_sets expected int \| table \| list, got str; write a whole number, without",
    ),
    "zCDP without a delta": (('epsilon = "4"', 'epsilon = "4"\ndelta = 0'), "write delta = "),
    "a budget beside published": (
        ('name = "published"', 'name = "published"\nepsilon = "2"'),
        "epsilon and delta have no effect",
    ),
    "a misspelt policy parameter": (
        ('epsilon = "4"', 'epsilon = "4"\nparams = { detph = 1 }'),
        "'private': FuzzyTreeRegressor does not take the params detph",
    ),
    "a decimal comma": (('"4"', '"1,0"'), "epsilon must be a number, not '1,0'"),
    "NaN": (('"4"', "nan"), "epsilon must be finite"),
    "epsilon 0": (('"4"', "0"), "epsilon must be greater than 0"),
    "private without a public schema": (('schema = "schema.toml"', ""), "needs a public schema"),
    "a missing schema": (('"schema.toml"', '"shcema.toml"'), "schema file .*shcema.toml"),
    "a missing table": (('"table.csv"', '"tabel.csv"'), "tabel.csv: cannot be read"),
    "a negative seed": (("seed = 1", "seed = -1"), "seed must be at least 0"),
    "text for a depth": (
        ('epsilon = "4"', 'epsilon = "4"\nparams = { depth = "x" }'),
        "policy 'private', params: depth expected int",
    ),
    "a depth that leaves nothing": (
        ('epsilon = "4"', 'epsilon = "4"\nparams = { depth = 7 }'),
        "depth must lie between 0 and 4",
    ),
    "a feature for the owners": (
        ('column = "site"', 'column = "age"'),
        "column 'age' is a feature of the schema; take it out",
    ),
    "the target for the owners": (
        ('column = "site"', 'column = "risk"'),
        "column 'risk' is the target, and everybody knows who owns a record; name another",
    ),
    "a cap on records of a record": (
        ('epsilon = "4"', 'epsilon = "4"\ncap = 2'),
        "policy 'private': cap is the most records of one individual or client",
    ),
    "a person's unit without a cap": (
        ('epsilon = "4"', 'epsilon = "4"\nunit = "individual"'),
        "needs cap = the most records of one individual",
    ),
    "groups by a number, whose values are the records' own": (
        ("[clients]", 'groups = ["age"]\n[clients]'),
        "groups: no column of categories 'age'; there is site",
    ),
    "no runs": (("seed = 1", "seed = 1\nruns = 0"), "runs must be at least 1"),
    "an unknown attack": (
        ("seed = 1", 'seed = 1\nattacks = ["siege"]'),
        "no attack called 'siege'",
    ),
}


@pytest.mark.parametrize("fault", STUDIES)
def test_a_bad_study_is_one_line(
    fault: str, study_text: str, refused_study: Callable[[str, str], None]
) -> None:
    """Every slip in a study file ends before anything is in the output folder."""
    (old, new), told = STUDIES[fault]
    assert old in study_text
    refused_study(study_text.replace(old, new), told)


def test_a_column_that_stands_twice_is_one_line(
    write_study: Callable[..., Path],
    schema_text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the table, and in the schema."""
    study = write_study()
    text = (tmp_path / "table.csv").read_text().replace("weight", "age", 1)
    (tmp_path / "table.csv").write_text(text)
    _refused(capsys, ["run", str(study), "--out", str(tmp_path / "out")], "'age' stands twice")
    study = write_study(schema=schema_text.replace('"weight"', '"age"'))
    _refused(capsys, ["run", str(study), "--out", str(tmp_path / "out")], "'age' .*twice")


def test_values_outside_the_bounds_are_clipped_counted_and_not_told(
    write_study: Callable[..., Path],
    small_table: pd.DataFrame,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The run goes on; the report tells how many cells, never which value."""
    small_table.loc[range(20), "age"] = float(SECRET)
    out = tmp_path / "out"
    assert status(["run", str(write_study(table=small_table)), "--out", str(out)]) == FINE
    clipped = json.loads((out / "private" / "metrics.json").read_text())["clipped"]
    assert 0 < sum(clipped.values()) <= 20
    printed = capsys.readouterr()
    for text in (printed.out, printed.err, *(p.read_text() for p in out.glob("report.*"))):
        assert SECRET not in text
    assert "were clipped" in (out / "report.html").read_text()


def test_an_earlier_output_is_not_overwritten_unasked(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ledgers are the record of what was spent; other folders are never touched."""
    study = str(tmp_path / "study.toml")
    before = (finished / "private" / "heads.json").read_bytes()
    _refused(capsys, ["run", study, "--out", str(finished)], "add --overwrite")
    assert (finished / "private" / "heads.json").read_bytes() == before
    assert status(["run", study, "--out", str(finished), "--overwrite"]) == FINE
    assert (finished / "private" / "heads.json").read_bytes() != before
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("keep me")
    _refused(capsys, ["run", study, "--out", str(mine), "--overwrite"], "something else than")
    assert (mine / "letter.txt").read_text() == "keep me"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["report", "nowhere"], "there is no such folder or file"),
        (["ledger", "verify", "nowhere"], "there is no such folder or file"),
        (["audit", "nowhere.toml"], "study file nowhere.toml: cannot be read"),
        (["sweep", "--epsilon", "1;2"], "--epsilon must be a number, not '1;2'"),
        (["sweep", "--epsilon", "1,nan"], "--epsilon must be finite"),
        (["sweep", "--runs", "0"], "0 is not in the range"),
        (["audti"], r"No such command 'audti'\..* See privfed --help"),
        (["audit", "--ouf", "x"], r"No such option '--ouf'\..* See privfed audit --help"),
        (["ledger", "export", "x", "--format", "xml"], "'xml' is not one of"),
        (["ledger", "export"], r"Missing argument '\w+'\. See privfed ledger export --help"),
        (["run", "a.toml", "b.toml"], r"extra argument \(b\.toml\)\. See privfed run --help"),
        (["study", "new", "x", "--yes"], r"--yes needs --table\. See privfed study new --help"),
    ],
)
def test_a_bad_argument_is_one_line(
    arguments: list[str],
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Commands, options and folders that do not exist; nothing is written where it ran."""
    monkeypatch.chdir(tmp_path)
    _refused(capsys, arguments, told)
    assert not list(tmp_path.iterdir())


def test_a_fault_of_its_own_shows_no_data_and_leaves_nothing(
    write_study: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unforeseen exception's text may hold a record, so only its type is shown."""

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError(f"the age was {SECRET}")

    monkeypatch.setattr(simulation, "attack", fails)
    monkeypatch.delenv("PRIVFED_TRACEBACK", raising=False)
    assert status(["audit", str(write_study()), "--out", str(tmp_path / "out")]) == FAULT
    printed = capsys.readouterr().err
    assert "RuntimeError" in printed and SECRET not in printed
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_input_that_ends_at_a_question_is_no_interruption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that answers too few questions is told so, and how to ask none."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("progression\n"))
    asked = ["study", "new", str(tmp_path / "new"), "--table", "diabetes"]
    assert status(asked) == BAD_INPUT
    assert "the input ended at a question; answer it, or write --yes" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_an_interrupted_run_leaves_nothing(
    write_study: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Control-C in the middle removes the unfinished folder."""

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(assembly, "write_report", stop)
    assert status(["run", str(write_study()), "--out", str(tmp_path / "out")]) == INTERRUPTED
    assert "interrupted" in capsys.readouterr().err
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_attacks_are_not_scored_against_other_data(
    write_study: Callable[..., Path],
    small_table: pd.DataFrame,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A table that changed since the run is told, and the findings stay as they are."""
    out = tmp_path / "out"
    study = write_study(table=small_table)
    assert status(["run", str(study), "--out", str(out)]) == FINE
    write_study(table=small_table.iloc[::-1])
    _refused(capsys, ["attack", str(out)], "have changed since it ran")
    assert not list(out.rglob("findings.json"))


def test_a_file_that_is_no_ledger_is_bad_input_and_no_broken_ledger(
    write_study: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong path accuses nobody."""
    _refused(capsys, ["ledger", "verify", str(write_study())], "is not a ledger; give")
