"""All faults of one file at once, names that were meant, and files that are written otherwise."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privfed.cli import BAD_INPUT, FAULT, FINE, status

Written = Callable[..., Path]


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The lines of a refusal, the first of which counts the others."""
    capsys.readouterr()
    assert status(list(arguments)) == BAD_INPUT
    return capsys.readouterr().err.splitlines()


def test_a_study_tells_all_its_faults(
    write_study: Written, study_text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys, types, numbers, bases, learners and attacks, each with what was meant."""
    slips = {
        "seed = 1": "sede = 1\nattacks = ['membershp']",
        'target = "risk"': 'traget = "risk"\ntest = "much"',
        "FuzzyTreeRegressor": "FuzzyTreeRegresor",
        'name = "published"': 'name = "published"\nbase = "pubished"',
        'epsilon = "4"': 'epsilon = "1e400"',
    }
    for old, new in slips.items():
        assert old in study_text
        study_text = study_text.replace(old, new, 1)
    lines = told(capsys, "price", str(write_study(study_text)))
    assert lines[0] == "privfed: 7 faults"
    for fault in (
        "unknown key 'sede'; did you mean 'seed'?",
        "unknown key 'traget'; did you mean 'target'?",
        "expected float, got str at test",
        "did you mean 'published'?",
        "epsilon must lie between 1e-300 and 1e300",
        "no learner called 'FuzzyTreeRegresor'",
        "did you mean 'membership'?",
    ):
        assert sum(fault in line for line in lines[1:]) == 1, fault


@pytest.mark.parametrize("epsilon", ["1e400", "1e-400", "inf", "nan", "1e50", "10e399"])
def test_an_epsilon_beyond_reason_is_bad_input(
    epsilon: str, write_study: Written, study_text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a study, and tried by hand; never a fault of privfed's own."""
    study = write_study(study_text.replace('"4"', f'"{epsilon}"'))
    for arguments in (["price", str(study)], ["run", str(study), "--out", str(study) + ".out"]):
        (line,) = told(capsys, *arguments)
        assert "epsilon must" in line
    (line,) = told(capsys, "price", str(write_study(study_text)), "--epsilon", epsilon)
    assert "epsilon must" in line


def test_a_policy_tells_all_its_faults(
    write_study: Written, study_text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys, numbers, units, mechanisms and queries."""
    (tmp_path / "own.toml").write_text(
        """
unit = "recrd"
accountnat = "zcdp"
[budget]
epsilon = "1e400"
[[guard]]
query = "fuzzy_tree.levle"
mechanism = "laplaec"
spend = "1"
[[guard]]
query = "fuzzy_tree.leaves"
mechanism = "laplace"
spned = "1"
"""
    )
    study = study_text.replace('name = "published"', 'name = "own"\nbase = "own.toml"')
    lines = told(capsys, "price", str(write_study(study)))
    assert lines[0] == "privfed: 6 faults"
    for fault in ("'record'", "'accountant'", "'laplace'", "'spend'", "'fuzzy_tree.level'"):
        assert sum(f"did you mean {fault}?" in line for line in lines[1:]) == 1, fault
    assert sum("budget epsilon must lie between" in line for line in lines) == 1


def test_a_schema_tells_all_its_faults(
    write_study: Written, schema_text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bounds that are missing or upside down, a misspelt key, a target that no column is."""
    bad = (
        schema_text.replace("lower = 20\n", "").replace('target = "risk"', 'target = "rsik"')
    ).replace("upper = 100\n", "upper = -1\n", 1)
    lines = told(capsys, "price", str(write_study(schema=bad.replace("1000", "1000\nfil = 3"))))
    assert lines[0] == "privfed: 4 faults"
    for fault in ("'weight': write lower", "'age': lower must be", "did you mean 'risk'", "'fill'"):
        assert sum(fault in line for line in lines[1:]) == 1, fault


def test_a_table_tells_all_its_faults_by_row(
    write_study: Written,
    small_table: pd.DataFrame,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Rows as a spreadsheet numbers them, and no value."""
    bad = small_table.astype(object)
    bad.loc[[3, 7], "age"] = None
    bad.loc[5, "weight"] = "about 987.654"
    bad.loc[9, "site"] = None
    lines = told(capsys, "run", str(write_study(table=bad)), "--out", str(tmp_path / "out"))
    assert lines[0] == "privfed: 3 faults"
    assert "column 'age' has no value in 2 of 60 records (rows 5, 9)" in lines[1]
    assert "text stands in 1 cell (row 7)" in lines[2]
    assert "without a client (row 11)" in lines[3]
    assert "987.654" not in "".join(lines)


def test_rows_that_are_too_long_are_told_by_number(
    write_study: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A comma too many."""
    study = write_study()
    cells = (tmp_path / "table.csv").read_text().splitlines()
    cells[4] += ",987.654"
    (tmp_path / "table.csv").write_text("\n".join(cells))
    (line,) = told(capsys, "run", str(study), "--out", str(tmp_path / "out"))
    assert "its rows do not fit its header (row 5)" in line and "987.654" not in line


@pytest.mark.parametrize(
    ("key", "column", "schema_target", "advice"),
    [
        ("", "note", "risk", None),
        ('target = "note"', "note", "risk", 'write target = "risk" under [data]'),
        ('target = "weight"', "note", "risk", "write one target in both"),
        ("", "risk", "", 'write target = "risk" at its top'),
        ("", "note", "", "names no target; write at its top which of its columns is predicted"),
    ],
)
def test_advice_on_the_target_names_one_that_is_possible(  # noqa: PLR0913 - four cases and fixtures
    key: str,
    column: str,
    schema_target: str,
    advice: str | None,
    write_study: Written,
    study_text: str,
    schema_text: str,
    small_table: pd.DataFrame,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A table that ends in a note: the schema's own target holds, and nobody is sent to the note."""
    if column == "note":
        small_table = small_table.assign(note="x")
    schema = schema_text if schema_target else schema_text.replace('target = "risk"\n', "")
    study = write_study(study_text.replace('target = "risk"', key, 1), schema, small_table)
    if advice is None:
        assert status(["price", str(study)]) == FINE
        return
    (line,) = told(capsys, "price", str(study))
    assert advice in line and 'write target = "note"' not in line


CLASSES = """
target = "ill"
[[column]]
name = "age"
lower = 0
upper = 100
[[column]]
name = "ill"
kind = "category"
categories = ["yes", "nö"]
"""


def test_a_table_may_be_split_and_encoded_otherwise_and_say_which_class_is_positive(
    write_study: Written, study_text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Semicolons, Latin-1, and the category that rules predict, which stands last in the model."""
    rng = np.random.default_rng(5)
    age = rng.uniform(0, 100, 80)
    ill = np.where(age > 50, "yes", "nö")
    table = pd.DataFrame({"site": ["north", "south"] * 40, "age": age.round(1), "ill": ill})
    text = study_text.replace("FuzzyTreeRegressor", "RuleFitClassifier")
    text = text.replace(
        "params = { max_depth = 1, n_fuzzy_sets = 2 }", "params = { n_estimators = 3 }"
    )
    text = text.replace('target = "risk"', 'sep = ";"\nencoding = "latin-1"\npositive = "yes"')
    study = write_study(text[: text.rindex("[[policy]]")], CLASSES)
    table.to_csv(tmp_path / "table.csv", index=False, sep=";", encoding="latin-1")
    out = tmp_path / "out"
    assert status(["run", str(study), "--out", str(out)]) == FINE
    model = json.loads((out / "published" / "model.json").read_text())
    assert '["n\\u00f6", "yes"]' in json.dumps(model)
    for old, new, advice in (
        ('sep = ";"', "", 'write sep = ";"'),
        ('encoding = "latin-1"', "", "is no utf-8 text; save it as UTF-8, or write its own"),
        ('"yes"', '"yse"', "did you mean 'yes'?"),
    ):
        study.write_text(study.read_text().replace(old, new, 1))
        (line,) = told(capsys, "run", str(study), "--out", str(out), "--overwrite")
        assert advice in line
        study.write_text(study.read_text().replace(new, old, 1) if new else text_of(text))


def text_of(text: str) -> str:
    """The study with one policy."""
    return text[: text.rindex("[[policy]]")]


def test_a_price_says_whether_anything_fits(
    write_study: Written, study_text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shares of the budget by kind; another epsilon; exit status 2 where nothing fits."""
    study = str(write_study(study_text))
    assert status(["price", study, "--epsilon", "2", "--delta", "1e-6"]) == FINE
    printed = capsys.readouterr().out
    assert "at most epsilon 2 at delta 1e-06, of a budget of epsilon 2" in printed
    kinds = ("scaling", "level", "moments", "residuals")
    assert all(f"fuzzy_tree.{kind}" in printed for kind in kinds)
    assert (
        "each client: epsilon 2 of 2 remains before, 0 after (100 % and 0 % of the budget"
        in printed
    )
    (tmp_path / "own.toml").write_text(
        '[budget]\nepsilon = "1"\n[[guard]]\nquery = "fuzzy_tree.level"\nmechanism = "laplace"\n'
        'spend = "3"\n'
    )
    dear = study_text.replace('name = "published"', 'name = "own"\nbase = "own.toml"')
    dear = dear[: dear.rindex("[[policy]]")]
    assert status(["price", str(write_study(dear))]) == BAD_INPUT
    printed, error = capsys.readouterr()
    assert "DOES NOT FIT: fuzzy_tree.level 300 % of epsilon 1, of which 1 remains" in printed
    assert "(it needs 300 % of the budget's epsilon, and 100 % remains)" in printed
    assert "no policy fits its budget" in error
    assert status(["price", str(tmp_path / "study.toml"), "--epsilon", "2"]) == FINE
    assert "own: at most epsilon 2, of a budget of epsilon 2" in capsys.readouterr().out
    text = (tmp_path / "own.toml").read_text()
    (tmp_path / "own.toml").write_text(text.replace('"3"', '"1e-30"'))
    (line,) = told(capsys, "price", str(tmp_path / "study.toml"))
    assert "has no noise for 'fuzzy_tree.level' at such a spend" in line


COMMANDS = {
    "run": "run {study} --out {folder}/out",
    "owner new": "owner new {folder}/B {study} --client B",
    "study new": "study new {folder}/new --table {study}/../table.csv --target risk --yes",
    "schema": "schema {study}/../table.csv --target risk --out {folder}/schema.toml",
}


@pytest.mark.parametrize(
    ("command", "at"), [(c, at) for c in COMMANDS for at in (0, 1) if (c, at) != ("schema", 1)]
)
def test_a_full_disk_is_the_users_and_leaves_nothing(
    write_study: Written,
    study_text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    at: int,
) -> None:
    """One line and status 2, whichever file did not fit; a fault of the program's own stays one."""
    names = study_text.replace('partition = "column"\ncolumn = "site"', 'names = ["A", "B"]')
    private = names.partition("[[policy]]")[0] + '[[policy]]\nname = "private"\nepsilon = "4"\n'
    study = write_study(private.replace('noise = "test"\n', ""))
    (folder := tmp_path / "empty").mkdir()
    written, honest = [], Path.write_text

    def full(path: Path, *args: object, **kwargs: object) -> int:
        written.append(path)
        if len(written) > at:
            raise OSError(code, os.strerror(code), str(path))
        return honest(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "write_text", full)
    arguments = (
        COMMANDS[command]
        .format(study=study, folder=folder)
        .replace(f"{study}/..", str(study.parent))
    )
    for code in (errno.ENOSPC, errno.EROFS):
        written.clear()
        assert status(arguments.split()) == BAD_INPUT
        told = capsys.readouterr().err.strip()
        assert os.strerror(code).lower() in told.lower() and "\n" not in told
        assert list(folder.iterdir()) == []
    code = errno.EBADF
    if command == "study new":
        assert status(arguments.split()) == FAULT
