"""Cells of a paper's tables beside ours are written with what they were made by."""

from __future__ import annotations

import csv
from pathlib import Path

import paper_rows
import pytest
from paper_rows import FIELDS, PaperRows


def test_cells_are_written_with_commit_seed_and_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers in five digits, what is not there empty, and the origin in every row."""
    monkeypatch.setattr(paper_rows, "RESULTS", tmp_path / "results")
    rows = PaperRows("a paper", "7")
    rows.add("Table 1", "one", column="RMSE", theirs=0.1234567, ours=1 / 3, spread=0.5)
    rows.add("Table 1", "two", column="p", theirs="equal", ours=1.0, note="exactly")
    with rows.write("some").open(encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    assert tuple(first) == FIELDS
    assert (first["theirs"], first["ours"], first["spread"]) == ("0.12346", "0.33333", "0.5")
    assert (second["theirs"], second["spread"], second["note"]) == ("equal", "", "exactly")
    assert all(row["seed"] == "7" and row["commit"] and "processor" in row["machine"]
               for row in (first, second))  # fmt: skip
