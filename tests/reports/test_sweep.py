"""Sweep reports: means over seeds, a picture for what was scored, nothing for what was not."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

from privfed.errors import Note
from privfed.reports.sweep import by_measure, summarise, write_sweep
from privfed.reports.sweep_curves import NEXT, collect_notes, figure, frontier, plot


def _table() -> pd.DataFrame:
    rows = [("private", epsilon, 10 / epsilon + seed) for epsilon in (1.0, 4.0) for seed in (0, 2)]
    rows += [("published", np.nan, 2.0), ("published", np.nan, 4.0)]
    table = pd.DataFrame(rows, columns=["policy", "epsilon", "value"])
    return table.assign(measure="error", baseline=12.0, unprotected=0, seed=0, learner="Tree")


def test_means_are_taken_over_seeds() -> None:
    """One row for each policy and epsilon; policies without one keep their row."""
    found = summarise(_table())
    assert found["mean"].tolist() == [11.0, 3.5, 3.0]
    assert found["runs"].tolist() == [2, 2, 2]
    assert found["epsilon"].isna().tolist() == [False, False, True]


def test_the_page_holds_table_and_picture(tmp_path: Path) -> None:
    """The table is tidy; the page shows both and marks the simulation."""
    write_sweep(_table().assign(scored=None), tmp_path, "a <name>")
    again = pd.read_csv(tmp_path / "sweep.csv")
    assert len(again) == 6 and plot(again).get_ylabel() == "error, held-out records"
    page = (tmp_path / "sweep.html").read_text()
    assert "<svg" in page and "a &lt;name&gt;" in page and "sim" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_policies_without_any_guarantee_make_a_picture_too(tmp_path: Path) -> None:
    """No epsilon at all: level lines alone."""
    open_alone = _table().query("policy == 'published'").assign(epsilon=None)
    write_sweep(open_alone, tmp_path, "open")
    assert "<svg" in (tmp_path / "sweep.html").read_text()
    assert len(plot(open_alone).lines) == 2


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
    write_sweep(_table().head(1), tmp_path, "a")
    assert "1 run, each priced" in " ".join((tmp_path / "sweep.html").read_text().split())


def test_a_write_that_fails_leaves_the_results_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Table, page and figure belong together; a picture of what is no longer scored is removed."""
    write_sweep(_table(), tmp_path, "a")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with monkeypatch.context() as patched:
        patched.setattr("privfed.reports.sweep.render", Mock(side_effect=OSError))
        with pytest.raises(OSError):
            write_sweep(_table().assign(value=1.0), tmp_path, "b")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    write_sweep(_table().assign(value=np.nan, measure=None), tmp_path, "silent")
    assert not (tmp_path / "figure.png").exists() and (tmp_path / "sweep.html").exists()


def test_a_mean_its_deviation_and_its_constant_have_as_many_decimals(tmp_path: Path) -> None:
    """Within a row of either table, with the learner's name beside the policy's."""
    write_sweep(
        _table().assign(better="lower", value=[117.03, 117.01, 3.0, 4.0, 2.0, 3.0]), tmp_path, "a"
    )
    page = re.sub(r"\s*</t[dh]>\s*<t[dh]>\s*", " | ", (tmp_path / "sweep.html").read_text())
    assert "<td>error | 1 | private | Tree | 2 | 117.020 | 0.014 | 12.000 | yes | yes</td>" in page
    assert "<td>private | Tree | 1 | 2 | 117.020 | 0.014 | 12.000 | 0</td>" in page
    assert "series | learner | epsilon | runs | mean | deviation | constant baseline" in page
    assert "with one standard deviation" in page
    write_sweep(_table().query("seed == 0").drop_duplicates("epsilon"), tmp_path, "a")
    assert "One run each." in (tmp_path / "sweep.html").read_text()


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


def test_one_figure_has_a_panel_for_each_thing_that_was_measured(tmp_path: Path) -> None:
    """Utility alone; with attacks, audits and bytes; as SVG, PDF and PNG."""
    assert len(figure(_table()).axes) == 1
    table = _table().assign(found=0.02, bound=0.1, audited=0.5, claimed=1.0, bytes=900)
    drawn = figure(table)
    assert [axes.get_ylabel() for axes in drawn.axes] == [
        "error, held-out records",
        "members found at 1 % false positives",
        "epsilon: of one release, audited",
        "bytes sent by all owners",
    ]
    told = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert told.count("at most, by the guarantee") == 1 and "constant baseline" in told
    write_sweep(table, tmp_path, "a")
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "figure.svg").read_text()


def test_every_series_has_its_curve_through_its_means() -> None:
    """However many there are; a varied setting is a series of its own; what bounds it is dotted."""
    axes = plot(_table())
    (curve, level, constant) = axes.lines
    assert np.allclose(curve.get_xdata(), [1, 4]) and np.allclose(curve.get_ydata(), [11, 3.5])
    assert np.allclose(level.get_ydata(), 3.0) and np.allclose(constant.get_ydata(), 12.0)
    many = pd.concat([_table().assign(policy=f"policy {number}") for number in range(9)])
    assert len(plot(many).get_legend_handles_labels()[1]) == 19
    varied = pd.concat([_table().assign(**{"clients.count": count}) for count in (3, 5)])
    assert "private, count 5" in plot(varied).get_legend_handles_labels()[1]
    bounded = plot(_table().assign(found=0.02, bound=0.1), "found").lines
    assert [line.get_linestyle() for line in bounded[:2]] == ["-", ":"]


def test_a_panel_of_an_attack_shows_what_chance_alone_finds() -> None:
    """One in a hundred at that rate of false positives, half of the pairs."""
    for column, chance in (("found", 0.01), ("worst record", 0.01), ("area", 0.5)):
        axes = plot(_table().assign(**{column: 0.7}), column)
        lines = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        assert set(lines["by chance"].get_ydata()) == {chance}


def test_the_legend_fits_however_long_and_many_its_entries_are() -> None:
    """Inside of the figure, which grows by it: no panel loses its room."""
    long = [_table().assign(policy=f"{'a long name ' * 4}{number}") for number in range(12)]
    for table in (_table(), pd.concat(long)):
        drawn = figure(table.assign(bytes=9.0))
        drawn.canvas.draw()
        box = drawn.legends[0].get_window_extent()
        assert box.x0 >= 0 and box.x1 <= drawn.bbox.width and box.y1 <= drawn.bbox.height + 1
        assert drawn.axes[0].get_window_extent().height > 250


def test_the_front_holds_what_no_smaller_epsilon_matches() -> None:
    """For errors lower is better; equal utility at a larger epsilon is dominated."""
    rows = [
        ("a", 1, 5.0),
        ("b", 1, 6.0),
        ("a", 2, 5.0),
        ("b", 2, 4.0),
        ("a", 4, 4.5),
        ("b", 4, 3.0),
    ]
    table = pd.DataFrame(rows, columns=["policy", "epsilon", "value"])
    for better, sign in (("lower", 1), ("higher", -1)):
        told = frontier(table.assign(value=sign * table["value"], better=better))
        front = told[told["front"]]
        assert list(zip(front["series"], front["epsilon"], strict=True)) == [
            ("a", 1),
            ("b", 2),
            ("b", 4),
        ]
        best = told[told["best"]]
        assert best["series"].tolist() == ["a", "b", "b"]


def test_what_was_scored_without_held_out_records_is_said_to_be(tmp_path: Path) -> None:
    """A search for rules is compared with the truth; its own epsilon is not the guarantee's."""
    searched = _table().assign(**{"held out": np.nan, "learner.params.epsilon": 2})
    axes = plot(searched)
    assert axes.get_ylabel() == "error, against the truth"
    assert "private, learner.params.epsilon 2" in axes.get_legend_handles_labels()[1]
    write_sweep(searched, tmp_path, "a")
    assert "measured against the truth" in (tmp_path / "sweep.html").read_text()
    write_sweep(searched.assign(**{"held out": 9}), tmp_path, "a")
    assert "measured on held-out records" in (tmp_path / "sweep.html").read_text()


def test_utility_is_compared_on_the_same_data_by_the_same_measure_alone() -> None:
    """Errors and accuracies, two sets, two units: each has a best of its own, and a panel a measure."""
    table = pd.DataFrame(
        [
            ("a", "error", "lower", 0.3, "wine", "record"),
            ("b", "accuracy", "higher", 0.8, "wine", "record"),
            ("c", "accuracy", "higher", 0.9, "iris", "record"),
            ("d", "accuracy", "higher", 0.7, "wine", "client"),
            ("e", "accuracy", "higher", 0.6, "wine", "record"),
        ],
        columns=["policy", "measure", "better", "value", "data digest", "unit"],
    ).assign(epsilon=1.0, baseline=0.5, unprotected=0, data="set")
    told = frontier(table).set_index("series")
    assert told["best"].to_dict() == told["front"].to_dict()
    assert told["best"].to_dict() == {"a": True, "b": True, "c": True, "d": True, "e": False}
    assert set(told["guarantee"]) == {"one record", "one client"}
    labels = [axes.get_ylabel() for axes in figure(table).axes]
    assert labels == ["error, held-out records", "accuracy, held-out records"]
    assert {name: len(each) for name, each in by_measure(table).items()} == {
        "error": 1,
        "accuracy": 4,
    }
    assert len(plot(table[table["measure"] == "accuracy"]).lines) == 6, "a constant for each set"


def test_means_over_clients_have_a_constant_of_their_own_and_are_compared_with_their_like() -> None:
    """Their constant is each client's own; the front compares no mean of errors with an error of all records."""
    own = _table().assign(policy="own", scored="mean over clients", baseline=10.0)
    table = pd.concat([_table().assign(scored=None), own]).assign(better="lower")
    axes = plot(table)
    lines = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    constants = {name: line for name, line in lines.items() if name.startswith("constant")}
    assert {name: float(line.get_ydata()[0]) for name, line in constants.items()} == {
        "constant baseline": 12.0,
        "constant baseline, mean over clients": 10.0,
    }
    assert "own, mean over clients" in lines
    shared = frontier(table.assign(value=table["value"] - (table["policy"] == "own")))
    assert shared["best"].all()


def test_curves_differ_in_print_without_colors() -> None:
    """No two of forty series share color and mark, and the first six have a mark each."""
    table = pd.concat([_table().assign(policy=f"policy {number}") for number in range(40)])
    curves = [line for line in plot(table.dropna()).lines if line.get_marker() != "None"]
    assert len({(line.get_color(), line.get_marker()) for line in curves}) == 40
    assert len({line.get_marker() for line in curves[:6]}) == 6
    open_ones = [_table().assign(policy=f"open {number}", epsilon=np.nan) for number in range(5)]
    levels = plot(pd.concat(open_ones)).lines[:5]
    assert len({str(line._dash_pattern) for line in levels}) == 5  # type: ignore[attr-defined]


def test_level_lines_take_no_mark_or_shade_from_curves() -> None:
    """Published runs beside six private ones: no two private curves share a mark."""
    tables = [_table().assign(policy=_table()["policy"] + f" {number}") for number in range(6)]
    curves = [line for line in plot(pd.concat(tables)).lines if line.get_marker() != "None"]
    assert len({line.get_marker() for line in curves}) == len(curves) == 6


def test_a_series_has_one_color_in_every_panel() -> None:
    """Also where a panel lacks another series; what released nothing is a level line, off the axis."""
    table = pd.concat([_table(), _table().assign(policy="local", epsilon=0.0)])
    table = table.assign(found=np.where(table["policy"] == "private", 0.02, np.nan))
    table = pd.concat([table[table["policy"] != "private"], table[table["policy"] == "private"]])
    value, found = (
        {line.get_label(): line for line in axes.lines} for axes in figure(table).axes[:2]
    )
    assert value["private"].get_color() == found["private"].get_color()
    assert len(np.unique(value["local: epsilon 0"].get_ydata())) == 1


def test_the_page_says_what_epsilon_is_of_and_what_is_missing(tmp_path: Path) -> None:
    """Unit, relation, delta; runs that failed; dotted lines where there are some."""
    table = _table().assign(unit="record", relation="replace-one", delta=1e-5, spent=0.5)
    write_sweep(table, tmp_path, "a", failed=2)
    page = (tmp_path / "sweep.html").read_text()
    assert "Epsilon: of one record replaced, delta 1e-05." in page
    assert "An attack near chance" not in page
    assert "2 further runs failed" in page and "Dotted" not in page and "<th>spent" in page
    stopped: list[Any] = ["budget", None, None, None, None, None]
    table.loc[0, "value"] = np.nan
    assert summarise(table)["runs"].tolist() == [1, 2, 2]
    write_sweep(table.assign(found=0.02, stopped=stopped), tmp_path, "a")
    page = (tmp_path / "sweep.html").read_text()
    assert "failed" not in page and "Dotted" in page and "An attack near chance" in page
    assert "1 of the runs learned nothing" in page


def test_equal_notes_of_one_series_are_one_line(tmp_path: Path) -> None:
    """Notes that differ in figures alone, with how many runs gave them, and of which the figures are; by epsilon."""
    notes = [
        "noise of 1 record",
        f"noise of 2 record{NEXT}no split",
        None,
        "noise of 3 record",
        "open",
    ]
    table = _table().assign(notes=pd.Series([*notes, None], dtype=object), scored="of each client")
    assert collect_notes(table) == [
        "policy private, Tree, epsilon 1, 2 runs, one of them seed 0: noise of 1 record",
        "policy private, Tree, epsilon 1, seed 0: no split",
        "policy private, Tree, epsilon 4, seed 0: noise of 3 record",
        "policy published, Tree, seed 0: open",
    ]
    with pytest.warns(Note):
        write_sweep(table, tmp_path, "a")
    assert (
        "<li>policy private, Tree, epsilon 1, seed 0: no split</li>"
        in (tmp_path / "sweep.html").read_text()
    )
    assert collect_notes(_table()) == []
