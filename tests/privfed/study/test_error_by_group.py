"""Error by group: each group's own score, with intervals that cover, from the study file to the pages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privfed.cli import FINE, status
from privfed.learners import FuzzyTreeRegressor
from privfed.study.groups import by_group, interval
from privfed.tables.schema import Column, Schema
from privfed.testing.hospitals import NUMERIC, gates, patients


def test_a_study_tells_the_error_of_each_group(
    write_study: Callable[..., Path], study_text: str, tmp_path: Path
) -> None:
    """In the metrics, on the engineer's page and the regulator's; weighted together it is the whole score."""
    text = study_text.replace("[clients]", 'groups = ["site"]\n[clients]')
    assert status(["run", str(write_study(text)), "--out", str(tmp_path / "out")]) == FINE
    metrics = json.loads((tmp_path / "out/published/metrics.json").read_text())
    groups = metrics["groups"]["site"]
    assert [one["group"] for one in groups] == ["north", "south"]
    assert sum(one["held_out"] for one in groups) == metrics["held_out"]
    whole = sum(one["held_out"] * one["value"] ** 2 for one in groups) / metrics["held_out"]
    assert whole**0.5 == pytest.approx(metrics["value"])
    assert all(one["low"] < one["value"] < one["high"] for one in groups)
    assert "Error by site" in (tmp_path / "out/report.html").read_text()
    assert status(["report", str(tmp_path / "out"), "--for", "regulator"]) == FINE
    page = (tmp_path / "out/regulator.html").read_text()
    assert re.search(r"by site, with 95 % intervals: north \S+ \(\S+ to \S+\), south", page)


def test_records_without_a_value_are_a_group_called_missing() -> None:
    """The schema fills them for the model; the page does not show them as NaN."""
    learner, schema, frame = filled()
    for absent in (np.nan, None):
        test = frame.assign(sex=frame["sex"].where(np.arange(90) % 3 > 0, absent))
        found = by_group(learner, test, schema, ["sex"], "hospital")["sex"]
        assert [one["group"] for one in found] == ["female", "male", "missing"]
        assert found[-1]["held_out"] == 30


def test_groups_are_the_categories_of_the_schema() -> None:
    """A value that the schema does not list is with the missing ones: a page names no raw value."""
    learner, schema, frame = filled()
    test = frame.assign(sex=frame["sex"].where(np.arange(90) % 3 > 0, "secret"))
    found = by_group(learner, test, schema, ["sex"], "hospital")["sex"]
    assert [one["group"] for one in found] == ["female", "male", "missing"]


def filled() -> tuple[FuzzyTreeRegressor, Schema, pd.DataFrame]:
    """A fitted learner whose schema replaces what is not a category."""
    learner = FuzzyTreeRegressor(max_depth=1)
    sex = Column("sex", "category", categories=("female", "male"), fill="male")
    features = tuple(sex if one.name == "sex" else one for one in NUMERIC.features)
    schema, frame = Schema(features, NUMERIC.target), patients(90)
    learner.fit(gates(frame, learner.published(), schema))
    return learner, schema, frame


@pytest.mark.parametrize("classes", [False, True])
def test_intervals_cover_as_often_as_they_say(classes: bool) -> None:
    """Of 2,000 groups of 40 records, about 95 in 100, and no fewer than 92."""
    rng = np.random.default_rng(11)
    draws = rng.random((2000, 40)) < 0.3 if classes else rng.normal(0, 2, (2000, 40)) ** 2
    truth = 0.7 if classes else 2.0
    told = [interval(draw) for draw in draws]
    assert np.mean([one["low"] <= truth <= one["high"] for one in told]) > 0.92


def test_a_group_s_score_stands_within_its_interval() -> None:
    """Of one record, of equal ones, of none missed; accuracy is what is not lost."""
    one = interval(np.array([4.0]))
    assert (one["value"], one["low"]) == (2.0, None)
    assert interval(np.array([4.0, 4.0]))["high"] == 2.0
    none = interval(np.array([False] * 10))
    assert (none["value"], none["high"]) == (1.0, 1.0) and 0.68 < none["low"] < 0.7
    assert interval(np.array([True, False, False, False]))["value"] == 0.75
