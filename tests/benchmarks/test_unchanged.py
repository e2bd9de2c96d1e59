"""Notes that changed code gives the same figures, and what they count for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import result_rows
import unchanged
from result_rows import code, up_to_date

OLD = "genetic_tree 123"


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of notes, empty."""
    for module in (result_rows, unchanged):
        monkeypatch.setattr(module, "UNCHANGED", tmp_path / "unchanged.csv")
    return tmp_path / "unchanged.csv"


def compare(folder: Path, monkeypatch: pytest.MonkeyPatch, rerun: str) -> None:
    """Run the command on two rows of earlier code and a rerun's one."""
    heading = "set,score,seconds,commit,code\n"
    (folder / "old.csv").write_text(f"{heading}a,0.25,9,x,{OLD}\nb,0.5,9,x,{OLD}\n")
    (folder / "new.csv").write_text(f"{heading}{rerun},4,y,\n")
    files = [str(folder / name) for name in ("old.csv", "new.csv")]
    monkeypatch.setattr(sys, "argv", ["unchanged.py", *files, "--code", "genetic_tree"])
    unchanged.main()


def test_equal_rows_make_earlier_figures_those_of_today(
    noted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their seconds, source and last digits do not count; codes before that one follow."""
    assert up_to_date(code("genetic_tree")) and not up_to_date(OLD)
    noted.write_text(f"before,after,rows,of,date\ngenetic_tree 0,{OLD},3,old,2026-01-01\n")
    assert not up_to_date("genetic_tree 0")
    compare(tmp_path, monkeypatch, "b,0.50000000000000001")
    assert up_to_date(OLD) and up_to_date("genetic_tree 0")
    assert not up_to_date("genetic_tree 9") and not up_to_date("forest 123")
    assert noted.read_text().splitlines()[-1].startswith(f"{OLD},{code('genetic_tree')},1,old,")


@pytest.mark.parametrize("rerun", ["b,0.25", "c,0.5", "b,0.500000001"])
def test_a_row_that_differs_notes_nothing(
    noted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rerun: str
) -> None:
    """The command fails and says which."""
    with pytest.raises(SystemExit, match="1 of 1 rows differ"):
        compare(tmp_path, monkeypatch, rerun)
    assert not noted.exists() and not up_to_date(OLD)
