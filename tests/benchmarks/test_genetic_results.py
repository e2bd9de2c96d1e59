"""The genetic benchmarks' raw figures become tables that say how many splits they rest on."""

from __future__ import annotations

import csv
from pathlib import Path

import genetic_results
import pandas as pd
import pytest
import result_rows


def _raw(folder: Path) -> None:
    rows = [
        {"set": name, "split": split, "clients": clients, "active": 1.0, "run": 0, "commit": "abc",
         "learner": learner, "score": 0.5, "gain": gain + clients, "share": 50.0, "nodes": 3.0,
         "distance": 0.5}
        for name, split, gain, sizes in (
            ("one", 100, 1.0, (20, 5, 10, 15, 30)), ("one", 101, 3.0, (20, 5)), ("two", 100, 5.0, (20, 5, 10, 15, 30)),
        )
        for clients in sizes
        for learner in ("paper", "IBM, secure sum")
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(folder / "trees.csv", index=False)


def test_means_over_sets_are_of_the_splits_that_all_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Split 101 lacks a set: it counts for its own set's line, not for the mean over sets, nor beside other settings."""
    monkeypatch.setattr(result_rows, "RESULTS", tmp_path / "results")
    _raw(tmp_path)
    ((name, told),) = genetic_results.trees(tmp_path)
    with told.write(name).open(encoding="utf-8") as file:
        cells = {(row["table"], row["row"], row["column"]): row for row in csv.DictReader(file)}
    gain = f"Figure 3 (a), {genetic_results.GAIN}"
    assert cells[gain, "one", "paper's way"]["ours"] == "22"
    assert cells[gain, "mean of 2 sets", "paper's way"]["ours"] == "23"
    assert cells[gain, "mean of 2 sets", "paper's way"]["theirs"] == "5.58"
    assert cells[gain, "mean of 2 sets", "IBM tree, secure sum"]["theirs"] == "-2.58"
    one = cells[gain, "one", "paper's way"]
    assert one["theirs"] == "" and one["note"].startswith("1 to 2 of the paper's 10 splits")
    assert one["commit"] == "abc" and one["seed"] == "100 to 101"
    sizes = {key[1:]: row for key, row in cells.items() if key[0].startswith("Figure 6 (b)")}
    assert sizes["one", "5 clients"]["ours"] == "6" and sizes["two", "30 clients"]["ours"] == "35"
    assert sizes["mean of 2 sets", "10 clients"]["ours"] == "13"
    assert not any(key[0].startswith(("Figure 7", "Figure 8")) for key in cells)


def test_without_raw_figures_there_is_no_table(tmp_path: Path) -> None:
    """A folder that holds none of the files makes none."""
    made = [genetic_results.trees, genetic_results.private, genetic_results.membership]
    assert [list(each(tmp_path)) for each in made] == [[], [], []]
