"""The pictures of docs/results.md: legible without colour, each series with a marker of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

mpl.use("Agg")
import matplotlib.pyplot as plt
from results_private import SCORES, everywhere

#: Colours that people with any kind of colour blindness tell apart (Okabe and Ito 2008).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
MARKERS, STROKES = "osD^vPX", ("-", "--", "-.", ":", "-", "--", "-.")
BY_EPSILON = r"epsilon ([\d,.]+)"


def curves(data: pd.DataFrame) -> Figure:
    """Figure 6: coverage above precision, a column for each simulated population."""
    return _grid(data, r"Figure 6, (\w+), (coverage|precision)", by_row=1)


def learned(data: pd.DataFrame) -> Figure:
    """Figure 10 over learned rules: a column of axes for each score."""
    parts = data["row"].str.extract(r"^(.*), (epsilon .*)$")
    kept = parts[0].notna() & ~data["row"].str.contains("by level") & (data["column"] != "F1")
    table = "Figure 10, learned rules (BasicMotions), " + data["column"]
    shown = data.assign(table=table, row=parts[0], column=parts[1])[kept]
    return _grid(shown, r"Figure 10, (learned rules.*\)), (.*)", by_row=0)


def _grid(data: pd.DataFrame, pattern: str, by_row: int) -> Figure:
    """An axis for each table that the pattern knows, its first group a place, its second a score."""
    found = data["table"].str.extract(f"^{pattern}$")
    places, scores = (list(found[k].dropna().unique()) for k in (0, 1))
    shape = (len(scores), len(places)) if by_row else (len(places), len(scores))
    figure, axes = _figure(shape)
    names = list(data.loc[found[0].notna(), "row"].unique())
    for (place, score), part in data.groupby([found[0], found[1]], sort=False):
        at = (scores.index(score), places.index(place))
        axis = axes[at if by_row else at[::-1]]
        _curves(axis, part, names)
        axis.set(xscale="log", xlabel="epsilon of an individual (nats)", ylabel=score, title=place)
        axis.set_ylim(0, None if score == "coverage" else 1.05)
    _finish(figure, axes)
    return figure


def rounds(data: pd.DataFrame) -> Figure:
    """The fuzzy tree's Figure 5: RMSE by how many clients take part."""
    part = data[data["table"].str.startswith("Figure 5")]
    figure, axes = _figure((1, 1))
    names = list(part["row"].unique())
    _curves(axes[0, 0], part, names, r"(\d+) of \d+ clients")
    axes[0, 0].set(xlabel="clients that take part, of 15", ylabel="RMSE (units of the target)")
    _finish(figure, axes)
    return figure


def league(data: pd.DataFrame) -> Figure:
    """Mean AUC, and mean RMSE of numbers, over all sets by epsilon: an axis for each task, a line for each method."""
    figure, axes = _figure((1, 2))
    whole = everywhere(data)
    methods = list(dict.fromkeys(whole["method"]))
    for axis, (task, own) in zip(axes.flat, whole.groupby("task", sort=False), strict=False):
        score, label = SCORES[str(task)]
        for number, method in enumerate(methods):
            line = own[own["method"] == method].groupby("epsilon")[score].mean()
            style = _style(number % len(COLOURS)) | {"linestyle": STROKES[number // len(COLOURS)]}
            axis.plot(line.index, line, label=method, **style)
        axis.set(xscale="log", xlabel="epsilon", ylabel=label)
        axis.set_title(f"{task}, mean of {own['set'].nunique()} sets")
        axis.set_xticks(tried := sorted(set(own["epsilon"])), [f"{one:g}" for one in tried])
        axis.set_xticks([], minor=True)
    axes.flat[-1].set_ylim(top=min(axes.flat[-1].get_ylim()[1], 1.3))
    _finish(figure, axes)
    return figure


def differences(data: pd.DataFrame) -> Figure:
    """RuleFit's Figure 2: a row of axes for each score, a column for each model."""
    own = data[data["table"].str.startswith("Figure 2") & (data["column"] != "centralized")]
    tables = list(dict.fromkeys(own["table"]))
    models = len({table.split(", ")[1] for table in tables})
    figure, axes = _figure((len(tables) // models, models), sharex=True)
    for axis, table in zip(axes.T.flat, tables, strict=True):
        _dots(axis, own[own["table"] == table])
        axis.set_title(table.removeprefix("Figure 2, ").partition(":")[0])
    for axis in axes[:, 0]:
        axis.set_ylabel("minus centralized RuleFit's")
    _finish(figure, axes)
    return figure


# --- one axis ----------------------------------------------------------------------------------


def _curves(axis: Axes, data: pd.DataFrame, names: Sequence[str], along: str = BY_EPSILON) -> None:
    """A line for each row of a table, along the number in its columns."""
    for row, line in data.groupby("row", sort=False):
        number = names.index(str(row))
        at = line["column"].str.extract(f"^{along}$")[0].str.replace(",", "").astype(float)
        axis.errorbar(at, *_values(line), label=row, capsize=3, linestyle=STROKES[number], **_style(number))  # fmt: skip


def _dots(axis: Axes, data: pd.DataFrame) -> None:
    """A dot for each column of a table, beside each other over its rows."""
    rows = list(dict.fromkeys(data["row"]))
    for number, (column, line) in enumerate(data.groupby("column", sort=False)):
        at = np.array([rows.index(row) for row in line["row"]]) + 0.14 * (number - 2)
        axis.errorbar(at, *_values(line), label=column, capsize=2, linestyle="", **_style(number))
    axis.axhline(0, color="grey", linewidth=1, linestyle="--")
    axis.set_xticks(range(len(rows)), rows, rotation=40, ha="right")


def _values(data: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    return data["ours"].astype(float), data["spread"].astype(float).fillna(0)


def _style(number: int) -> dict[str, Any]:
    return {"color": COLOURS[number], "marker": MARKERS[number], "markersize": 5.0}


def _figure(shape: tuple[int, int], sharex: bool = False) -> tuple[Figure, np.ndarray]:
    rows, columns = shape
    return plt.subplots(
        rows,
        columns,
        figsize=(max(7, 1 + 4.2 * columns), 1 + 3.2 * rows),
        squeeze=False,
        sharex=sharex,
    )


def _finish(figure: Figure, axes: np.ndarray) -> None:
    """A grid, and one legend below all axes."""
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    drawn, names = axes.flat[0].get_legend_handles_labels()
    beside = 3 if figure.get_figwidth() > 8 else 2
    lines = -(-len(names) // beside)
    figure.tight_layout(rect=(0, 0.28 * lines / figure.get_figheight(), 1, 1))
    figure.legend(drawn, names, loc="lower center", ncols=beside, frameon=False)


# --- all of them -------------------------------------------------------------------------------

#: Section, file, what draws it, and what it shows.
PICTURES: dict[str, tuple[str, str, Callable[[pd.DataFrame], Figure], str]] = {
    "rulefit-figure-2": (
        "rulefit",
        "rulefit_simulations.csv",
        differences,
        "AUC, accuracy and F1 of each learner minus centralized RuleFit's, in each scenario",
    ),
    "fuzzy-tree-figure-5": (
        "fuzzy_tree",
        "fuzzy_tree_quality.csv",
        rounds,
        "RMSE of three federated learners by how many of the clients take part",
    ),
    "league": (
        "league",
        "league.csv",
        league,
        "area under the ROC curve, or RMSE over the target's deviation, of each method by epsilon, means over all sets",
    ),
    "dp-rul-simulated": (
        "rule_search",
        "rule_search_curves.csv",
        curves,
        "coverage and precision of each protocol by epsilon, over simulated populations",
    ),
    "dp-rul-learned": (
        "rule_search",
        "rule_search_figure_10.csv",
        learned,
        "coverage, precision and balanced accuracy of each protocol by epsilon, over learned rules",
    ),
}


def pictures(folder: Path, section: str) -> Iterable[tuple[str, str]]:
    """The names of a section's pictures, and what they show."""
    for name, (own, file, _, shown) in PICTURES.items():
        if own == section and (folder / file).exists():
            yield name, shown


def draw(folder: Path, target: Path) -> None:
    """All pictures that there are tables for."""
    target.mkdir(parents=True, exist_ok=True)
    for name, (_, file, drawn, _) in PICTURES.items():
        if (folder / file).exists():
            figure = drawn(pd.read_csv(folder / file))
            figure.savefig(target / f"{name}.png", dpi=90, metadata={"Software": None})
            plt.close(figure)
