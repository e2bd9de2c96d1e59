"""What pages and sweeps say of the code that made them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from privfed.reports import provenance


def test_a_commit_has_a_plus_where_files_differ_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of one commit may differ by what was edited between; an installed package has none."""
    code = tmp_path / "reports" / "provenance.py"
    code.parent.mkdir()
    code.write_text("first")
    monkeypatch.setattr(provenance, "__file__", str(code))
    assert provenance.commit.__wrapped__() == ""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    clean = provenance.commit.__wrapped__()
    assert clean and not clean.endswith("+")
    code.write_text("second")
    assert provenance.commit.__wrapped__() == f"{clean}+"
