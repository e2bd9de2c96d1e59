"""Tables of private learners side by side, as docs/results.md shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pandas as pd
from result_rows import SOURCE
from results_numbers import number, with_spread

PRIVATE = ["set", "epsilon", "learner", "metric", "value", "spread"]
LEAGUE = ["set", "task", "method", "epsilon", "split", "auc", "seconds"]
LEFT_OUT = ["set", "chosen by the others", "over the default"]
#: Our whole private engine in the league, and what else it is made into; the last have a learner of their own.
FORMS = (
    "ours",
    "ours, 20 terms",
    "ours, 10 terms",
    "ours, 10 stable terms",
    "ours, synthetic table",
    "ours, fuzzy tree",
    "ours, line",
)
DIFFERENCES = {"AUC": "auc", "log loss": "log loss - constant's", "RMSE": "rmse"}
SCORES = {"classes": ("auc", "AUC"), "numbers": ("rmse", "RMSE over deviation")}
SHOWN = 1.0  #: The epsilon at which the league's scores are shown set by set
#: Of these scores less is better.
LOWER = ("rmse", "time", "loss", "brier", "mse", "error", "seconds")
#: What a metric's table is called; others go by their own names.
TITLES: Mapping[str, str] = {
    "wide, auc": "What loose public bounds cost: area under the ROC curve by bounds (higher is better)",
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


def everywhere(data: pd.DataFrame) -> pd.DataFrame:
    """The league's lines of methods that ran on all sets of a task at all epsilons; our other forms are not among them."""
    cells = data.drop_duplicates(["task", "method", "set", "epsilon"])
    counts = cells.groupby(["task", "method"]).size()
    most = counts.groupby("task").transform("max")
    whole = counts.index[counts.eq(most)]
    ran = pd.MultiIndex.from_frame(data[["task", "method"]]).isin(whole)
    return data[ran & ~data["method"].isin(FORMS[2:])]


def ranks(data: pd.DataFrame) -> pd.DataFrame:
    """Mean rank of each method at each epsilon over all sets of a task.

    Args:
        data: lines of :func:`everywhere`, of the layout :data:`LEAGUE` and perhaps with ``rmse``.
    """
    better = data["rmse"].fillna(-data["auc"]) if "rmse" in data else -data["auc"]
    scores = data.assign(better=better).groupby(["epsilon", "task", "set", "method"], sort=False)
    each = scores["better"].mean().reset_index()
    each["rank"] = each.groupby(["epsilon", "task", "set"])["better"].rank()
    table = each.pivot_table("rank", "method", ["task", "epsilon"], sort=False)
    return table.loc[table.mean(axis=1).sort_values().index]


def league(data: pd.DataFrame) -> Iterable[tuple[str, list[str], list[list[str]], str]]:
    """Title, heading, lines and a sentence: mean ranks, the scores of each task at one epsilon, what our forms cost."""
    whole = everywhere(data)
    table, epsilons = ranks(whole), sorted(data["epsilon"].unique(), key=float)
    columns = [(t, e) for t in dict.fromkeys(data["task"]) for e in epsilons if (t, e) in table]
    lines = [
        [str(method), *(number(row.get(column), 2) for column in columns)]
        for method, row in table.iterrows()
    ]
    others = sorted({*data["method"]} - {*whole["method"], *FORMS})
    few = "; on fewer sets, in the file alone: " + ", ".join(others) if others else ""
    told = (
        f"{len(data)} rows: {data['set'].nunique()} sets, {data['method'].nunique()} methods, epsilon "
        f"{', '.join(map(number, epsilons))}, {_counted(data)}{few}."
    )
    heading = ["method", *(f"{task}, {number(epsilon)}" for task, epsilon in columns)]
    yield "Mean ranks by task and epsilon (1 is best)", heading, lines, told
    shown = whole[whole["epsilon"].astype(float) == SHOWN]
    for task, own in shown.groupby("task", sort=False):
        yield _by_set(str(task), own)
    if forms := _forms(data, epsilons):
        heading = ["form", *(f"{what}, {number(e)}" for e in epsilons for what in DIFFERENCES)]
        told = "Means over the sets and splits that both ran on, less those of `ours`, the whole engine."
        yield "What a form changes, by epsilon", heading, forms, told


def _by_set(task: str, own: pd.DataFrame) -> tuple[str, list[str], list[list[str]], str]:
    """A line for each set, a column for each method; the spreads are summed up below."""
    score = SCORES[task][0]
    cells = own.groupby(["set", "method"], sort=False)[score].agg(["mean", "std"])
    means = cells["mean"].unstack()[list(dict.fromkeys(own["method"]))]
    best = means.idxmin(axis=1) if lower(score) else means.idxmax(axis=1)
    lines = [
        [
            str(name),
            *(f"**{x:.3f}**" if method == first else f"{x:.3f}" for method, x in row.items()),
        ]
        for (name, row), first in zip(means.iterrows(), best, strict=True)
    ]
    lines.append(["mean", *(f"{x:.3f}" for x in means.mean())])
    wins = best.value_counts()
    said = (
        f"In bold the best mean: {', '.join(f'{m} {n}' for m, n in wins.items())}. Deviations over splits are "
        f"{cells['std'].median():.3f} at the median, {cells['std'].quantile(0.9):.3f} at most in nine of ten cells."
    )
    words = "area under the ROC curve" if score == "auc" else "RMSE over the target's deviation"
    heading = ["set", *(NAMES.get(str(method), str(method)) for method in means)]
    return f"At epsilon {number(SHOWN)}, {task}: {words}", heading, lines, said


def _forms(data: pd.DataFrame, epsilons: Sequence[float]) -> list[list[str]]:
    """A line for each of our forms: mean differences to the whole engine in AUC, log loss and RMSE, by epsilon."""
    changes = {}
    for label, score in DIFFERENCES.items():
        if score in data:
            wide = data.pivot_table(score, ["set", "task", "split", "epsilon"], "method")
            if FORMS[0] in wide:
                ours = wide.pop(FORMS[0])
                ratio = wide.div(ours, axis=0).sub(1).mul(100) if score == "rmse" else None
                changed = wide.sub(ours, axis=0) if ratio is None else ratio
                changes[label] = changed.groupby("epsilon").mean()
    lines = []
    for form in FORMS[1:]:
        cells = [
            _change(changed[form].get(epsilon), label) if form in changed else ""
            for epsilon in epsilons
            for label, changed in changes.items()
        ]
        lines += [[form, *cells]] if any(cells) else []
    return lines


def _change(value: float | None, label: str) -> str:
    if value is None or pd.isna(value):
        return ""
    return f"{value:+.1f} %" if label == "RMSE" else f"{value:+.4f}"


def _counted(data: pd.DataFrame) -> str:
    """How many splits the cells have."""
    counts = data.groupby(["set", "task", "method", "epsilon"])["split"].nunique().tolist()
    each = {splits: counts.count(splits) for splits in sorted(set(counts))}
    return ", ".join(
        f"{each[n]} cell{'s' * (each[n] > 1)} of {n} split{'s' * (n > 1)}" for n in each
    )


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
