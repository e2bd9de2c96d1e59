"""What a model was worth: headline and other scores, of one run or several, beside a constant's."""

from __future__ import annotations

import math
from typing import Any

import pytest

from privfed.reports.metrics import MetricValue, measured_alike, scores

METRICS: dict[str, Any] = {
    "measure": "accuracy",
    "better": "higher",
    "value": 0.8,
    "baseline": 0.6,
    "scores": {"log loss": 0.7, "found rules": 3},
    "constants": {"log loss": 0.65},
    "score_better": {"log loss": "lower"},
}
RUNS = {
    "count": 3,
    "without": 1,
    "values": [0.8, 0.5],
    "mean": 0.65,
    "deviation": 0.2,
    "scores": {"log loss": {"mean": 0.6, "deviation": 0.1}},
}


def test_of_one_run_its_own_figures() -> None:
    """Each beside the constant's, where there is one, and worse than it where it is."""
    accuracy, loss, rules = scores(METRICS)
    assert accuracy == MetricValue("accuracy", 0.8, 0.6, "higher")
    assert (loss.value, loss.useless, accuracy.useless) == (0.7, True, False)
    assert (rules.constant, rules.better, rules.useless) == (None, "", False)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((59.3, 75.61), ["59.30", "75.61"]),
        ((0.4611, -0.001944), ["0.4611", "-0.0019"]),
        ((0.0123, 45.2), ["0.012", "45.200"]),
        ((1e-9, 45.25), ["0.00", "45.25"]),
        ((0.8, 0.8), ["0.8", "0.8"]),
        ((12345.6, 9876.5), ["12,346", "9,876"]),
        ((-0.00001, 1.0), ["0", "1"]),
        ((math.inf, 1.0), ["∞", "1"]),
        ((math.nan, 1.0), ["∞", "1"]),
        ((0.0, 0.0), ["0", "0"]),
    ],
)
def test_a_score_and_the_constant_s_have_as_many_decimals(
    values: tuple[float, float], texts: list[str]
) -> None:
    """But if one is not finite, or needs none."""
    assert measured_alike(*values) == texts
    score = MetricValue("error", values[0], values[1])
    assert [score.text, score.constant_text] == texts
    assert score.with_constant == f"{texts[0]} (constant {texts[1]})"


def test_of_several_runs_mean_and_spread() -> None:
    """Over those that came to a figure."""
    accuracy, loss, rules = scores({**METRICS, "runs": RUNS})
    assert (accuracy.value, accuracy.deviation, accuracy.runs) == (0.65, 0.2, 2)
    assert (loss.value, loss.deviation, loss.useless) == (0.6, 0.1, False)
    assert (rules.value, rules.deviation, rules.runs) == (3, None, 1)


@pytest.mark.parametrize("metrics", [{}, {"stopped": "nobody"}, {**METRICS, "value": None}])
def test_what_was_not_scored_has_no_scores(metrics: dict[str, Any]) -> None:
    """No model, no figures."""
    assert scores(metrics) == ()


@pytest.mark.parametrize(
    ("value", "deviation", "told"),
    [
        (0.92714, 0.0123, "0.927\u00a0±\u00a00.012"),
        (55.4321, 3.21, "55.4\u00a0±\u00a03.2"),
        (1234.5, 321.0, "1,234\u00a0±\u00a0321"),
        (0.5, 1e-9, "0.500000\u00a0±\u00a00.000000"),
        (0.92714, 0.0, "0.9271"),
        (0.92714, None, "0.9271"),
    ],
)
def test_figures_have_as_many_digits_as_their_spread(
    value: float, deviation: float | None, told: str
) -> None:
    """Two of the spread; no more of the mean than that."""
    assert MetricValue("accuracy", value, deviation=deviation).text == told
