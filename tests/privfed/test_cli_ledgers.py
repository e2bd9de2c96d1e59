"""The ledger commands, and breaches: what is shown, and what is noticed."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from privfed.attacks.finding import Finding
from privfed.cli import BAD_INPUT, BREACH, FINE, status
from privfed.owner.local_store import LocalStore
from privfed.owner.noise_monitor import ENDING, NAME
from privfed.study import simulation

pytestmark = pytest.mark.usefixtures("no_pictures", "short_audits")


def test_ledger_shows_exports_and_sums(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows on lines, as JSON lines and as CSV; what each client spent."""
    capsys.readouterr()
    assert (
        status(["ledger", "show", str(finished), "--policy", "private", "--client", "north"])
        == FINE
    )
    shown = capsys.readouterr().out.splitlines()
    assert any("reserved" in line and "rho" in line for line in shown)
    assert all("fuzzy_tree." in line for line in shown if " released " in line)
    assert status(["ledger", "export", str(finished)]) == FINE
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["event"] for row in rows} >= {"begun", "policy", "reserved", "released"}
    assert status(["ledger", "export", str(finished), "--format", "csv"]) == FINE
    assert len(capsys.readouterr().out.splitlines()) == len(rows) + 1
    assert status(["ledger", "budget", str(finished)]) == FINE
    printed = capsys.readouterr().out
    assert re.search(r"private +north +everything +\d+ +0 +100 % +4 +4 +1e-05", printed)
    assert re.search(r"published +north +everything.* - +no bound +- +- ", printed)
    assert printed.count("budget remaining under private, for ") == 1
    assert status(["ledger", "budget", str(finished), "--by", "kind"]) == FINE
    assert "fuzzy_tree.leaves" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["show", "budget", "export", "verify"])
def test_a_file_that_is_no_ledger(
    command: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says so, whichever command is given it, and nothing is printed besides."""
    capsys.readouterr()
    assert status(["ledger", command, str(finished / "report.html")]) == BAD_INPUT
    told = capsys.readouterr()
    assert told.out == "" and "report.html: is not a ledger; give a ledger's .db file" in told.err


def test_a_rewritten_ledger_is_a_breach(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Verification names the ledger, the report says so, and both exit with 1."""
    path = finished / "private" / "ledgers" / "south.db"
    with sqlite3.connect(path) as database:
        database.execute("UPDATE entries SET time = '2001-01-01' WHERE seq = 3")
    database.close()
    assert status(["ledger", "verify", str(finished)]) == BREACH
    assert "BROKEN private, south" in capsys.readouterr().err
    assert status(["report", str(finished)]) == BREACH
    assert "does not verify" in (finished / "report.html").read_text()


def test_a_ledger_that_is_gone_is_a_breach(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server saw its head, so its absence is noticed; so is one that is no ledger any more."""
    (finished / "private" / "ledgers" / "south.db").unlink()
    (finished / "published" / "ledgers" / "north.db").write_bytes(b"no database")
    assert status(["ledger", "verify", str(finished)]) == BREACH
    told = capsys.readouterr().err
    assert "BROKEN private, south" in told and "BROKEN published, north" in told
    assert "intact private, north" not in told


def test_a_finding_against_a_finite_guarantee_is_a_breach(
    write_study: Callable[..., Path],
    study_text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same finding against a policy that claims nothing is none."""
    convicting = Finding("planted", "a planted breach", "records", 9, severity="breach")
    monkeypatch.setattr(simulation, "attack", lambda *_, **__: ([convicting], {}))
    monkeypatch.setattr(simulation, "audit", lambda *_: [])
    secure = study_text.replace('noise = "test"\n', "")
    out = tmp_path / "out"
    assert status(["audit", str(write_study(secure)), "--out", str(out)]) == BREACH
    report = json.loads((out / "report.json").read_text())
    assert report["breaches"] == ["private: planted violates a finite guarantee (all releases)"]


def test_each_owner_tests_the_noise_of_all_her_releases(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Honest noise passes with its power told, none is not looked at, and what is altered convicts."""
    capsys.readouterr()
    assert status(["ledger", "noise", str(finished)]) == FINE
    printed, notes = capsys.readouterr()
    assert "no head" not in notes  # the output keeps them
    assert re.search(r"private, north: \d+ cells of noise; none of \d+ tests convicts", printed)
    assert "published, north: NOT LOOKED" in printed
    assert status(["ledger", "noise", str(finished), "--policy", "nobody's"]) == BAD_INPUT
    path = finished / "private" / "ledgers" / "north.db"
    copy = shutil.copy(path, finished.parent / "copied.db")  # as an owner gives it to the server
    assert status(["ledger", "noise", str(copy)]) == FINE
    assert "NOT LOOKED, copied.noise is not in its folder" in capsys.readouterr().out
    store = LocalStore(path.with_suffix(ENDING), "north")
    cells, total, squares = store[NAME]["score all"]
    store[NAME] = {"score all": (cells, total, squares / 4)}
    store.close()
    capsys.readouterr()
    assert status(["ledger", "noise", str(path)]) == BREACH
    assert "north: " in (told := capsys.readouterr().out) and "CONVICTED by variance of all" in told


def test_a_damaged_file_is_named_and_the_others_are_read(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cut short, overwritten, or with other sums of noise beside it: that one is broken, and no more."""
    owners = finished / "private" / "ledgers"
    plain = finished.parent / "plain"
    shutil.copytree(owners, plain)
    whole = (plain / "south.db").read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:30] + bytes(200) + whole[230:], b"hello\n"):
        (plain / "south.db").write_bytes(damaged)
        capsys.readouterr()
        for command in ("verify", "noise", "budget"):
            assert status(["ledger", command, str(plain)]) == BREACH
            printed, told = capsys.readouterr()
            assert "north" in printed, command
            assert told.count("BROKEN") == 1 and "restore" in told and "south" in told, command
    (plain / "south.db").write_bytes(whole)
    (plain / "north.noise").write_bytes(b"hello\n")
    assert status(["ledger", "noise", str(plain)]) == BREACH
    printed, told = capsys.readouterr()
    assert "south: " in printed and "sums of noise" in told and "is damaged" in told
