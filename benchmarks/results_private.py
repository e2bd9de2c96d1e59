"""Tables of private learners side by side, as docs/results.md shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd
from result_rows import SOURCE
from results_numbers import number, with_spread

PRIVATE = ["set", "epsilon", "learner", "metric", "value", "spread"]
LEFT_OUT = ["set", "chosen by the others", "over the default"]
#: Of these scores less is better.
LOWER = ("rmse", "time", "loss", "brier", "mse", "error", "seconds")
#: What a metric's table is called; others go by their own names.
TITLES: Mapping[str, str] = {
    "auc": "How well chances rank the records: area under the ROC curve (higher is better)",
    "log loss - constant's": "How good the chances are: log loss less that of the training share, in nats "
    "(lower is better, below 0 better than a constant)",
    "brier - constant's": "How good the chances are: Brier score less that of the training share "
    "(lower is better, below 0 better than a constant)",
    "below 5,000 records, auc": "The same of small sets: area under the ROC curve (higher is better)",
    "below 5,000 records, log loss - constant's": "The same of small sets: log loss less that of the training "
    "share, in nats (lower is better, below 0 better than a constant)",
    "below 5,000 records, brier - constant's": "The same of small sets: Brier score less that of the training "
    "share (lower is better, below 0 better than a constant)",
    "wide, auc": "What loose public bounds cost: area under the ROC curve by bounds (higher is better)",
    "time": "Processor time of learning and predicting, in seconds (lower is better)",
    "small, log loss - constant's": "Classes of tables that are too small: log loss less that of the training "
    "share, in nats (lower is better, below 0 better than a constant)",
    "small, rmse / constant's": "Numbers of tables that are too small: RMSE over that of the training mean "
    "(lower is better, below 1 better than a constant)",
}
#: What learners are called.
NAMES = {
    "dp_ebm": "DP-EBM",
    "forest": "FedForest",
    "rulefit": "RuleFit",
    "logistic": "logistic regression",
    "public": "public constant",
}
LEFT_OUT_TITLE = (
    "What the settings owe to the sets they were chosen on: for each set, the change that the other "
    "sets would have chosen (scores; higher is better)"
)


def lower(metric: str) -> bool:
    """Whether less of it is better."""
    return any(word in metric.lower() for word in LOWER)


def title(metric: str) -> str:
    """A table's heading."""
    return TITLES.get(metric, f"{metric}, {'lower' if lower(metric) else 'higher'} is better")


def side_by_side(data: pd.DataFrame) -> tuple[list[str], list[list[str]], str]:
    """Heading, lines and a sentence: a line for each set and epsilon, the best in bold.

    Args:
        data: one metric's lines of the layout :data:`PRIVATE`.
    """
    less = lower(str(data["metric"].iloc[0]))
    learners = [str(name) for name in dict.fromkeys(data["learner"])]
    wins = dict.fromkeys(learners, 0)
    lines = []
    for (name, epsilon), own in data.groupby(["set", "epsilon"], sort=False):
        means = own.groupby("learner")["value"].mean()
        best = str(means.idxmin() if less else means.idxmax())
        wins[best] += 1
        spreads = own.groupby("learner")["spread"].first()
        cells = [_cell(means, spreads, learner, best) for learner in learners]
        lines.append([str(name), number(epsilon), *cells])
    counted = ", ".join(f"{NAMES.get(learner, learner)} {wins[learner]}" for learner in learners)
    heading = ["set", "epsilon", *(NAMES.get(learner, learner) for learner in learners)]
    return heading, lines, f"In bold the best mean. Best of {len(lines)} lines: {counted}."


def _cell(means: pd.Series, spreads: pd.Series, learner: str, best: str) -> str:
    if learner not in means:
        return "not run"
    shown, *spread = with_spread(means[learner], spreads[learner]).split(" ")
    return " ".join([f"**{shown}**" if learner == best else shown, *spread])


def left_out(data: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Heading and lines of the settings that other sets would have chosen."""
    choices = [str(name) for name in data if name not in {*LEFT_OUT, *_SOURCES}]
    heading = ["set", "the others would have chosen", "which here gains", *choices]
    lines = [
        [str(row["set"]), str(row["chosen by the others"]), *_numbers(row, choices)]
        for _, row in data.iterrows()
    ]
    return heading, lines


_SOURCES = (*SOURCE, "note")


def _numbers(row: pd.Series, choices: Iterable[str]) -> list[str]:
    return [number(row["over the default"]), *(number(row[choice]) for choice in choices)]
