"""The command line: whole jobs end to end, exit status, and bad input told in one line."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privfed import assembly, plugins, simulation
from privfed.cli import BAD_INPUT, BREACH, FAULT, FINE, status
from privfed.finding import Finding

#: A number that stands in the bad tables and must stand in no message.
SECRET = "987.654321"

STUDY = """
name = "two sites"
seed = 1
noise = "test"
[data]
source = "table.csv"
target = "risk"
schema = "schema.toml"
[clients]
partition = "column"
column = "site"
[learner]
name = "FuzzyTreeRegressor"
params = { max_depth = 1, sets = 2 }
[[policy]]
name = "published"
[[policy]]
name = "private"
epsilon = "4"
"""
SCHEMA = """
target = "risk"
[[column]]
name = "age"
lower = 0
upper = 100
[[column]]
name = "weight"
lower = 20
upper = 200
[[column]]
name = "risk"
lower = 0
upper = 1000
"""


def _table(records: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(4)
    age, weight = rng.uniform(20, 90, records), rng.uniform(40, 120, records)
    site = np.where(np.arange(records) % 2 == 0, "north", "south")
    return pd.DataFrame(
        {"site": site, "age": age, "weight": weight, "risk": 5 * age + weight}
    ).round(3)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a study with its table and schema, changed by a test, and gives its path."""

    def written(
        study: str = STUDY, schema: str = SCHEMA, table: pd.DataFrame | None = None
    ) -> Path:
        (tmp_path / "study.toml").write_text(study)
        (tmp_path / "schema.toml").write_text(schema)
        (_table() if table is None else table).to_csv(tmp_path / "table.csv", index=False)
        return tmp_path / "study.toml"

    return written


@pytest.fixture
def done(write: Callable[..., Path], tmp_path: Path) -> Path:
    """A finished study's folder."""
    out = tmp_path / "out"
    assert status(["run", str(write()), "--out", str(out)]) == FINE
    return out


def _refused(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    """Exit 2, one line on standard error that tells ``told``, and no raw value."""
    capsys.readouterr()
    assert status(arguments) == BAD_INPUT
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert re.search(told, printed.err), printed.err
    assert SECRET not in printed.err


# --- whole jobs ---------------------------------------------------------------------------------


def test_audit_writes_everything_that_it_promises(
    write: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Study, ledgers, heads, metrics, findings, model, policy, report as page and as data."""
    out = tmp_path / "out"
    assert status(["audit", str(write()), "--out", str(out)]) == FINE
    for name in ("published", "private"):
        for file in ("metrics.json", "findings.json", "model.json", "heads.json"):
            json.loads((out / name / file).read_text())
        ledgers = sorted(path.name for path in (out / name / "ledgers").iterdir())
        assert [name for name in ledgers if name.endswith(".db")] == ["north.db", "south.db"]
        assert (out / name / "policy.toml").is_file()
    assert json.loads((out / "published" / "metrics.json").read_text())["simulation"] is True
    report = json.loads((out / "report.json").read_text())
    assert [policy["guarantee"] for policy in report["policies"]] == ["none", "none"]
    assert report["breaches"] == []
    assert "NO FINITE GUARANTEE" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "out",
        "schema.toml",
        "study.toml",
        "table.csv",
    ]


def test_the_built_in_study_runs(tmp_path: Path) -> None:
    """No argument: diabetes in five clinics, private at epsilon 8 with a finite guarantee."""
    assert status(["run", "--out", str(tmp_path / "out")]) == FINE
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    published, _, private = report["policies"]
    assert published["guarantee"] == "none" and published["unprotected"] > 0
    assert private["guarantee"] == "finite" and private["unprotected"] == 0
    assert 7.99 < private["epsilon"] < 8.0001
    assert 0.01 < private["membership_detection_at_1_percent"] < 1
    assert len(private["clients"]) == 5


def test_the_report_page_stands_alone(done: Path) -> None:
    """No element loads anything, every tag is closed, and the red words are there."""
    page = (done / "report.html").read_text()

    class Reader(HTMLParser):
        open_: list[str] = []  # noqa: RUF012
        void = ("meta", "br", "path", "use", "image", "rect", "line", "circle", "link", "hr")

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            for key, value in attrs:
                if key in ("src", "href", "xlink:href", "data") and tag != "a":
                    assert (value or "#").startswith(("#", "data:")), (tag, value)
            if tag not in self.void:
                self.open_.append(tag)

        def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag in ("script", "iframe"):
                raise AssertionError(tag)

        def handle_endtag(self, tag: str) -> None:
            if tag not in self.void:
                assert self.open_.pop() == tag

    reader = Reader()
    reader.feed(page)
    assert reader.open_ == []
    assert "<script" not in page and "@import" not in page and "url(http" not in page
    assert "Unprotected" in page and "Test noise" in page and "simulation" in page


def test_the_output_of_one_seed_of_test_noise_repeats(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    """Models are equal to the byte; test noise is seeded and marked."""
    study = str(write())
    for out in ("one", "two"):
        assert status(["run", study, "--out", str(tmp_path / out)]) == FINE
    for name in ("published", "private"):
        one, two = ((tmp_path / out / name / "model.json").read_bytes() for out in ("one", "two"))
        assert one == two


def test_attack_and_report_work_on_a_finished_folder(done: Path) -> None:
    """Both rewrite the report in place; the ledgers stay byte for byte."""
    before = (done / "private" / "heads.json").read_bytes()
    (done / "report.html").unlink()
    assert status(["report", str(done)]) == FINE
    assert (done / "report.html").is_file()
    assert not (done / "private" / "findings.json").exists()
    assert status(["attack", str(done)]) == FINE
    assert isinstance(json.loads((done / "private" / "findings.json").read_text()), list)
    assert (done / "private" / "heads.json").read_bytes() == before
    assert status(["ledger", "verify", str(done)]) == FINE


def test_price_reads_no_records(
    write: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Costs come from plan, schema and policy: nothing is divided, encoded or asked."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("records were touched")

    for name in ("prepare", "run"):
        monkeypatch.setattr(simulation, name, never)
    assert status(["price", str(write())]) == FINE
    printed = capsys.readouterr().out
    assert "published: NO FINITE GUARANTEE" in printed
    assert re.search(r"private: at most epsilon 4\.0000 at delta 1e-05", printed)


def test_sweep_writes_a_tidy_table_and_a_picture(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    """One row a run: published under each seed, private at each epsilon and seed."""
    out = tmp_path / "sweep"
    arguments = ["sweep", str(write()), "--epsilon", "1,8", "--seeds", "2", "--out", str(out)]
    assert status(arguments) == FINE
    table = pd.read_csv(out / "sweep.csv")
    counted = table.groupby("policy").size().to_dict()
    assert counted == {"private": 4, "published": 2}
    assert set(table.loc[table["policy"] == "private", "epsilon"]) == {1.0, 8.0}
    assert "<svg" in (out / "sweep.html").read_text()


def test_plugins_lists_every_group(capsys: pytest.CaptureFixture[str]) -> None:
    """Names with the distribution that they come from."""
    assert status(["plugins"]) == FINE
    printed = capsys.readouterr().out
    assert all(group in printed for group in plugins.GROUPS)
    assert re.search(r"laplace +privfed", printed)


# --- ledgers ------------------------------------------------------------------------------------


def test_ledger_shows_exports_and_sums(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows on lines, as JSON lines and as CSV; what each client spent."""
    capsys.readouterr()
    assert status(["ledger", "show", str(done), "--policy", "private", "--client", "north"]) == FINE
    shown = capsys.readouterr().out.splitlines()
    assert any("reserved" in line and "rho" in line for line in shown)
    assert status(["ledger", "export", str(done)]) == FINE
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["event"] for row in rows} >= {"begun", "policy", "reserved", "released", "refused"}
    assert status(["ledger", "export", str(done), "--format", "csv"]) == FINE
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 1
    assert status(["ledger", "budget", str(done)]) == FINE
    assert re.search(r"private +north +everything +\d+ +0 +4\.0000 +4", capsys.readouterr().out)
    assert status(["ledger", "budget", str(done), "--by", "kind"]) == FINE
    assert "fuzzy_tree.leaves" in capsys.readouterr().out


def test_a_rewritten_ledger_is_a_breach(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Verification names the ledger, the report says so, and both exit with 1."""
    path = done / "private" / "ledgers" / "south.db"
    with sqlite3.connect(path) as database:
        database.execute("UPDATE entries SET time = '2001-01-01' WHERE seq = 3")
    database.close()
    assert status(["ledger", "verify", str(done)]) == BREACH
    assert "BROKEN private, south" in capsys.readouterr().err
    assert status(["report", str(done)]) == BREACH
    assert "does not verify" in (done / "report.html").read_text()


def test_a_ledger_that_is_gone_is_a_breach(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The server saw its head, so its absence is noticed; so is one that is no ledger any more."""
    (done / "private" / "ledgers" / "south.db").unlink()
    (done / "published" / "ledgers" / "north.db").write_bytes(b"no database")
    assert status(["ledger", "verify", str(done)]) == BREACH
    told = capsys.readouterr().err
    assert "BROKEN private, south" in told and "BROKEN published, north" in told
    assert "intact private, north" not in told


def test_a_finding_against_a_finite_guarantee_is_a_breach(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same finding against a policy that claims nothing is none."""
    convicting = Finding("planted", "a planted breach", "records", 9, severity="breach")
    monkeypatch.setattr(simulation, "attack", lambda *_: [convicting])
    secure = STUDY.replace('noise = "test"\n', "")
    out = tmp_path / "out"
    assert status(["audit", str(write(secure)), "--out", str(out)]) == BREACH
    report = json.loads((out / "report.json").read_text())
    assert report["breaches"] == ["private: planted broke a finite guarantee"]


# --- bad input ----------------------------------------------------------------------------------


def _cell(column: str, value: object) -> pd.DataFrame:
    table = _table().astype({column: object})
    table.loc[7, column] = value
    return table


def _sites(*names: str) -> pd.DataFrame:
    table = _table()
    table.loc[range(len(names)), "site"] = names
    return table


TABLES = {
    "an unknown column": (_table().drop(columns="weight"), "no column 'weight' in the table"),
    "missing values": (_cell("age", None), "column 'age' has 1 missing values; write fill"),
    "text among numbers": (_cell("age", f"x{SECRET}"), "'age' is numeric but 1 of its cells hold"),
    "a constant target": (_table().assign(risk=float(SECRET)), "target 'risk' is constant"),
    "a client with one record": (_sites("west"), "client 'west' has 1 record,"),
    "two clients with one name": (_sites("north "), "two clients are called 'north'"),
    "a record without a client": (_cell("site", None), "leaves 1 records without a client"),
    "no client column": (_table().drop(columns="site"), "no column 'site' in the table"),
    "no target": (_table().drop(columns="risk"), "no column 'risk' for the target"),
}


@pytest.mark.parametrize("fault", TABLES)
def test_a_bad_table_is_one_line(
    fault: str,
    write: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit 2, what and where and what to write instead, nothing written, no raw value."""
    table, told = TABLES[fault]
    table = table.assign(note=float(SECRET))
    arguments = ["audit", str(write(table=table)), "--out", str(tmp_path / "out")]
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
        "no mechanism called 'laplaec'; installed",
    ),
    "epsilon 0": (('epsilon = "1"', 'epsilon = "0"'), "epsilon must be greater than 0"),
    "a negative epsilon": (('epsilon = "1"', 'epsilon = "-1"'), "epsilon must be greater than 0"),
    "NaN": (('epsilon = "1"', "epsilon = nan"), "epsilon must be finite"),
    "a decimal comma": (('epsilon = "1"', 'epsilon = "1,0"'), "must be a number, not '1,0'; write"),
    "a misspelt key": (("spend =", "spned ="), "unknown key 'spned'; known are"),
}


@pytest.mark.parametrize("fault", POLICIES)
def test_a_bad_policy_is_one_line(
    fault: str, write: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Policies are read before anything is written or asked."""
    (old, new), told = POLICIES[fault]
    (tmp_path / "own.toml").write_text(POLICY.replace(old, new))
    study = STUDY.replace('name = "published"', 'name = "own"\nbase = "own.toml"')
    _refused(capsys, ["audit", str(write(study)), "--out", str(tmp_path / "out")], told)
    assert not (tmp_path / "out").exists()


STUDIES = {
    "a misspelt key": (("[learner]", "[laerner]"), "unknown key 'laerner'; write 'learner'"),
    "a misspelt learner": (
        ('"FuzzyTreeRegressor"', '"FuzzyTree"'),
        "no learner called 'FuzzyTree'",
    ),
    "a misspelt parameter": (("max_depth", "max_detph"), "it takes .*max_depth"),
    "a wrong parameter": (("sets = 2", "sets = 1"), "sets must be at least 2"),
    "a decimal comma": (('"4"', '"1,0"'), "epsilon must be a number, not '1,0'"),
    "NaN": (('"4"', "nan"), "epsilon must be finite"),
    "epsilon 0": (('"4"', "0"), "epsilon must be greater than 0"),
    "private without a public schema": (('schema = "schema.toml"', ""), "needs a public schema"),
    "a missing schema": (('"schema.toml"', '"shcema.toml"'), "schema file .*shcema.toml"),
    "a missing table": (('"table.csv"', '"tabel.csv"'), "tabel.csv: cannot be read"),
    "an unknown attack": (
        ("seed = 1", 'seed = 1\nattacks = ["siege"]'),
        "no attack called 'siege'",
    ),
}


@pytest.mark.parametrize("fault", STUDIES)
def test_a_bad_study_is_one_line(
    fault: str, write: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every slip in a study file ends before anything is in the output folder."""
    (old, new), told = STUDIES[fault]
    assert old in STUDY
    study = write(STUDY.replace(old, new))
    _refused(capsys, ["audit", str(study), "--out", str(tmp_path / "out")], told)
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_a_column_that_stands_twice_is_one_line(
    write: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the table, and in the schema."""
    study = write()
    text = (tmp_path / "table.csv").read_text().replace("weight", "age", 1)
    (tmp_path / "table.csv").write_text(text)
    _refused(capsys, ["run", str(study), "--out", str(tmp_path / "out")], "'age' stands twice")
    study = write(schema=SCHEMA.replace('"weight"', '"age"'))
    _refused(capsys, ["run", str(study), "--out", str(tmp_path / "out")], "'age' .*twice")


def test_values_outside_the_bounds_are_clipped_counted_and_not_told(
    write: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run goes on; the report tells how many cells, never which value."""
    table = _table()
    table.loc[range(20), "age"] = float(SECRET)
    out = tmp_path / "out"
    assert status(["run", str(write(table=table)), "--out", str(out)]) == FINE
    clipped = json.loads((out / "private" / "metrics.json").read_text())["clipped"]
    assert 0 < sum(clipped.values()) <= 20
    printed = capsys.readouterr()
    for text in (printed.out, printed.err, *(p.read_text() for p in out.glob("report.*"))):
        assert SECRET not in text
    assert "were clipped" in (out / "report.html").read_text()


def test_an_earlier_output_is_not_overwritten_unasked(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ledgers are the record of what was spent; other folders are never touched."""
    study = str(tmp_path / "study.toml")
    before = (done / "private" / "heads.json").read_bytes()
    _refused(capsys, ["run", study, "--out", str(done)], "add --overwrite")
    assert (done / "private" / "heads.json").read_bytes() == before
    assert status(["run", study, "--out", str(done), "--overwrite"]) == FINE
    assert (done / "private" / "heads.json").read_bytes() != before
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter.txt").write_text("keep me")
    _refused(capsys, ["run", study, "--out", str(mine), "--overwrite"], "something else than")
    assert (mine / "letter.txt").read_text() == "keep me"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["report", "nowhere"], "holds no study's output"),
        (["ledger", "verify", "nowhere"], "holds no study's output"),
        (["audit", "nowhere.toml"], "study file nowhere.toml: cannot be read"),
        (["sweep", "--epsilon", "1;2"], "--epsilon must be a number, not '1;2'"),
        (["sweep", "--epsilon", "1,nan"], "--epsilon must be finite"),
        (["sweep", "--seeds", "0"], "0 is not in the range"),
        (["audti"], "No such command 'audti'"),
        (["audit", "--ouf", "x"], "No such option"),
        (["ledger", "export", "x", "--format", "xml"], "'xml' is not one of"),
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
    write: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unforeseen exception's text may hold a record, so only its type is shown."""

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError(f"the age was {SECRET}")

    monkeypatch.setattr(simulation, "attack", fails)
    monkeypatch.delenv("PRIVFED_TRACEBACK", raising=False)
    assert status(["audit", str(write()), "--out", str(tmp_path / "out")]) == FAULT
    printed = capsys.readouterr().err
    assert "RuntimeError" in printed and SECRET not in printed
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_an_interrupted_run_leaves_nothing(
    write: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Control-C in the middle removes the unfinished folder."""

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(assembly, "write_report", stop)
    assert status(["run", str(write()), "--out", str(tmp_path / "out")]) == BAD_INPUT
    assert "interrupted" in capsys.readouterr().err
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]
