"""What several draws of noise came to, in mean and spread."""

from __future__ import annotations

from typing import Any

from privfed.study.metrics import summarise_runs


def test_runs_without_a_figure_are_counted_and_left_out() -> None:
    """A run in which nobody answered has no value; the others have mean, deviation and scores."""
    runs: list[dict[str, Any]] = [
        {"value": 1.0, "scores": {"log loss": 0.5, "precision": None}},
        {"stopped": "no client answered"},
        {"value": 3.0, "scores": {"log loss": 0.7}},
    ]
    found = summarise_runs(runs)
    assert (found["count"], found["without"], found["values"]) == (3, 1, [1.0, 3.0])
    assert (found["mean"], found["deviation"]) == (2.0, 2**0.5)
    assert set(found["scores"]) == {"log loss"}
    assert round(found["scores"]["log loss"]["mean"], 9) == 0.6


def test_one_figure_has_no_spread() -> None:
    """Nor has none at all a mean."""
    one = summarise_runs([{"value": 1.0, "scores": {}}, {}])
    assert (one["mean"], one["deviation"]) == (1.0, None)
    assert summarise_runs([{}, {}])["mean"] is None
