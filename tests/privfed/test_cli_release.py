"""``privfed release``: from a finished study to a file that a bare interpreter checks."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from privfed.cli import BAD_INPUT, BREACH, FINE, status
from privfed.errors import Note
from privfed.reports import check_certificate
from privfed.study.assembly import gather
from privfed.study.output import Output

pytestmark = pytest.mark.usefixtures("no_pictures", "short_audits")

pytest.importorskip("cryptography")


def test_a_study_is_certified_and_checked_without_privfed(
    write_study: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the command line to a file that a bare interpreter checks; the published model is refused."""
    text = write_study().read_text().replace('noise = "test"', 'noise = "secure"')
    (tmp_path / "study.toml").write_text(text)
    out, thresholds = tmp_path / "out", tmp_path / "thresholds.toml"
    assert status(["run", str(tmp_path / "study.toml"), "--out", str(out)]) == FINE
    thresholds.write_text(
        "max_epsilon = 4.0\nattacks = []\nmax_tpr_at_1_percent = 1.0\nmin_audit_power = 0.0\n"
    )
    wanted = ["release", str(out), "--thresholds", str(thresholds)]
    assert status([*wanted, "--policy", "published"]) == BREACH
    assert status(wanted) == BAD_INPUT  # two models
    assert status([*wanted, "--policy", "private"]) == BREACH  # never attacked: not examined
    assert "not every criterion" in capsys.readouterr().out
    thresholds.write_text("max_epsilon = 4.0\nattacks = ['membership']\nmin_audit_power = 0.01\n")
    assert status(["attack", str(out)]) == FINE
    assert status(["key", "new", str(tmp_path / "key")]) == FINE
    certificate, model = tmp_path / "certificate.json", out / "private" / "model.json"
    signing = [
        "--approver",
        "D. Officer",
        "--key",
        str(tmp_path / "key"),
        "--out",
        str(certificate),
    ]
    code = status([*wanted, "--policy", "private", *signing])
    told = capsys.readouterr().out
    assert code == FINE or "members" in told  # the attack's own figure may be too uncertain
    assert status([*wanted, "--policy", "private", *signing]) == BAD_INPUT
    out_again, error = capsys.readouterr()
    assert not out_again and f"--out {certificate}: exists already" in error
    alone = [sys.executable, "-I", check_certificate.__file__, str(certificate), str(model)]
    done = subprocess.run(
        [*alone, "--key", f"{tmp_path / 'key'}.pub"], check=False, capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout + done.stderr
    check = ["release", "--check", str(certificate), str(model), "--key", f"{tmp_path / 'key'}.pub"]
    assert status(check) == code
    model.write_bytes(model.read_bytes() + b" ")
    assert status(check) == BREACH


def test_an_edited_output_is_noticed_and_not_certified(
    write_study: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An edit, a removal and an addition each; attacking again lists the new findings, and no earlier edit."""
    study, out, thresholds = write_study(), tmp_path / "out", tmp_path / "thresholds.toml"
    thresholds.write_text("max_epsilon = 4.0\nattacks = []\n")
    assert status(["run", str(study), "--out", str(out)]) == FINE
    verify = ["ledger", "verify", str(out)]
    certify = ["release", str(out), "--policy", "private", "--thresholds", str(thresholds)]
    certificate = tmp_path / "certificate.json"
    assert status([*certify, "--out", str(certificate)]) == BREACH  # never attacked
    document = json.loads(certificate.read_text())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", document["made"])
    files = document["files"]
    named = ("study.toml", "private/metrics.json", "private/model.json", "private/findings.json")
    for name in named:
        before = (out / name).read_bytes() if name in files else b""
        assert not before or files[name] == hashlib.sha256(before).hexdigest()
        capsys.readouterr()
        (out / name).write_bytes(before + b"\n" if before else b"{}")
        assert status(verify) == BREACH
        assert f"EDITED {name}: not as the study wrote it" in capsys.readouterr().err
        assert status(certify) == BAD_INPUT
        assert f"{name} in {out}: not as the study wrote it" in capsys.readouterr().err
        with pytest.warns(Note, match="not as the study wrote it"):
            gather(Output(out))
        (out / name).unlink()
        if before and name != "study.toml":
            assert status(verify) == BREACH and f"EDITED {name}" in capsys.readouterr().err
        if before:
            (out / name).write_bytes(before)
    assert status(verify) == FINE and "unedited" in capsys.readouterr().out
    assert status(["attack", str(out)]) == FINE and status(verify) == FINE
    metrics = out / "private" / "metrics.json"
    metrics.write_text(metrics.read_text() + "\n")
    assert status(["attack", str(out)]) == FINE and status(verify) == BREACH
    assert "EDITED private/metrics.json" in capsys.readouterr().err
    (out / "files.sha256").write_bytes(b"\xff\n")
    assert status(verify) == BREACH and "EDITED files.sha256" in capsys.readouterr().err
    (out / "files.sha256").unlink()
    assert status(verify) == BREACH and "EDITED files.sha256" in capsys.readouterr().err
    assert status(certify) == BAD_INPUT
    assert f"files.sha256 in {out}: not as the study wrote it" in capsys.readouterr().err
    (out / ".privfed").write_text(".privfed\nprivate\n")  # as before outputs listed their files
    assert status(verify) == FINE
    assert "an edit of its other files is not noticed" in capsys.readouterr().out
    assert status(certify) == BAD_INPUT
    assert f"{out}: has no files.sha256" in capsys.readouterr().err


def test_a_sweeps_run_is_certified_and_its_edits_are_noticed(
    write_study: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its folder is a study's output, with a list of its own."""
    out, thresholds = tmp_path / "sweep", tmp_path / "thresholds.toml"
    thresholds.write_text("max_epsilon = 4.0\nattacks = []\n")
    sweep = ["sweep", str(write_study()), "--epsilon", "4", "--runs", "1", "--out", str(out)]
    assert status(sweep) == FINE
    (model,) = out.glob("cells/*/private/model.json")
    cell = model.parents[1]
    assert status(["ledger", "verify", str(cell)]) == FINE
    assert "unedited" in capsys.readouterr().out
    assert status(["release", str(cell), "--thresholds", str(thresholds)]) == BREACH
    model.write_text(model.read_text() + "\n")
    assert status(["release", str(cell), "--thresholds", str(thresholds)]) == BAD_INPUT
    assert "private/model.json in" in capsys.readouterr().err
