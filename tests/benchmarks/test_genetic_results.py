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
        {"set": name, "split": split, "commit": "abc", "learner": learner, "score": 0.5,
         "gain": gain, "share": 50.0, "nodes": 3.0}
        for name, split, gain in (("one", 100, 1.0), ("one", 101, 3.0), ("two", 100, 5.0))
        for learner in ("paper", "IBM, secure sum")
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(folder / "iid.csv", index=False)


def test_means_over_sets_are_of_the_splits_that_all_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Split 101 lacks a set: it counts for its own set's line, not for the mean over sets."""
    monkeypatch.setattr(result_rows, "RESULTS", tmp_path / "results")
    _raw(tmp_path)
    ((name, told),) = genetic_results.trees(tmp_path)
    with told.write(name).open(encoding="utf-8") as file:
        cells = {(row["table"], row["row"], row["column"]): row for row in csv.DictReader(file)}
    gain = "Figure 3 (a), gain in macro F1 over each client's own tree, in %"
    assert cells[gain, "one", "paper's way"]["ours"] == "2"
    assert cells[gain, "mean of 2 sets", "paper's way"]["ours"] == "3"
    assert cells[gain, "mean of 2 sets", "paper's way"]["theirs"] == "5.58"
    assert cells[gain, "mean of 2 sets", "IBM tree, secure sum"]["theirs"] == "-2.58"
    assert cells[gain, "one", "paper's way"]["theirs"] == ""
    one = cells[gain, "one", "paper's way"]
    assert one["note"].startswith("1 to 2 of the paper's 10 splits")
    assert one["commit"] == "abc" and one["seed"] == "100 to 101"


def test_without_raw_figures_there_is_no_table(tmp_path: Path) -> None:
    """A folder that holds none of the files makes none."""
    made = [genetic_results.trees, genetic_results.private, genetic_results.membership]
    assert [list(each(tmp_path)) for each in made] == [[], [], []]
