"""Sweep reports: means over seeds, a picture for what was scored, nothing for what was not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from privfed.reports.sweep import by_measure, summarised, write_sweep


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


def test_the_page_says_that_nobody_was_charged(tmp_path: Path) -> None:
    """A sweep is a simulation, and test noise is named."""
    for secure, told in ((True, False), (False, True)):
        write_sweep(_table().assign(secure=secure), tmp_path, "a")
        page = (tmp_path / "sweep.html").read_text()
        assert "An uncharged simulation." in page and "each run would be charged" in page
        assert ("Test noise" in page) is told
    assert pd.read_csv(tmp_path / "sweep.csv")["simulation"].all()


def test_every_score_has_its_curve_and_its_table(tmp_path: Path) -> None:
    """Beside a constant answer's; what has none beside it is in the file alone."""
    table = _table().assign(**{"log loss": 0.5, "constant log loss": 0.6, "found rules": 3})
    measured = by_measure(table)
    assert list(measured) == ["error", "log loss"]
    assert (measured["log loss"]["value"] == 0.5).all()
    assert (measured["log loss"]["baseline"] == 0.6).all()
    write_sweep(table, tmp_path, "a")
    page = (tmp_path / "sweep.html").read_text()
    assert page.count("<svg") == 2
    assert "Log loss: mean and standard deviation over runs" in page
    assert set(pd.read_csv(tmp_path / "sweep.csv")) >= {"log loss", "found rules"}
