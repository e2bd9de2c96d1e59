"""``privfed export``: a finished study's policy in each form, by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from privfed.cli import BAD_INPUT, FINE, commands, status
from privfed.reports.exports import FORMS


def test_a_finished_study_is_written_in_a_form(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To standard output or into a file; what a form lacks is said in one line."""
    capsys.readouterr()
    assert status(["export", str(finished), "--as", "croissant"]) == FINE
    said = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in said["recordSet"][0]["field"]] == ["age", "weight", "risk"]
    card = tmp_path / "README.md"
    assert status(["export", str(finished), "--as", "model-card", "--out", str(card)]) == FINE
    assert card.read_text().startswith("---\nlibrary_name: privfed\n")
    assert status(["export", str(finished), "--as", "registry"]) == BAD_INPUT
    assert "has no guarantee that holds" in capsys.readouterr().err  # of test noise


def test_each_form_has_its_word() -> None:
    """The command offers what there is."""
    (option,) = (one for one in commands.commands["export"].params if one.name == "form")
    assert list(option.type.choices) == list(FORMS)  # type: ignore[attr-defined]
