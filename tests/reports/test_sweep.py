"""Sweep reports: means over seeds, a picture for what was scored, nothing for what was not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from privfed.reports.sweep import summarised, write_sweep


def _table() -> pd.DataFrame:
    rows = [("private", epsilon, 10 / epsilon + seed) for epsilon in (1.0, 4.0) for seed in (0, 2)]
    rows += [("published", np.nan, 2.0), ("published", np.nan, 4.0)]
    table = pd.DataFrame(rows, columns=["policy", "epsilon", "value"])
    return table.assign(measure="error", baseline=12.0, unprotected=0, seed=0)


def test_means_are_taken_over_seeds() -> None:
    """One row for each policy and epsilon; policies without one keep their row."""
    found = summarised(_table())
    assert found["mean"].tolist() == [11.0, 3.5, 3.0]
    assert found["runs"].tolist() == [2, 2, 2]
    assert found["epsilon"].isna().tolist() == [False, False, True]


def test_the_page_holds_table_and_picture(tmp_path: Path) -> None:
    """The table is tidy; the page shows both and marks the simulation."""
    write_sweep(_table(), tmp_path, "a <name>")
    assert len(pd.read_csv(tmp_path / "sweep.csv")) == 6
    page = (tmp_path / "sweep.html").read_text()
    assert "<svg" in page and "a &lt;name&gt;" in page and "sim" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_runs_without_a_score_make_no_picture(tmp_path: Path) -> None:
    """A learner that never got an answer leaves a table of none."""
    write_sweep(_table().assign(value=np.nan, measure=None), tmp_path, "silent")
    assert "<svg" not in (tmp_path / "sweep.html").read_text()
