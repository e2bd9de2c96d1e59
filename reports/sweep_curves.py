"""A sweep's curves: utility, attacks, audits and communication against epsilon, over seeds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from privfed.questions.exact import shown_delta
from privfed.reports.charts import OPEN, PROTECTED, STYLE

SHADES = (PROTECTED, "#7a5195", "#00897b", "#ef8a17", "#8d6e63", "#d81b60", "#546e7a")
MARKS = "os^Dv<"  #: Series differ in them too, where colours are not seen; no divisor in common with the shades
#: A figure's panels: a column, the label of its axis, and the column that bounds it.
PANELS = {
    "value": ("", ""),
    "found": ("members found at 1 % false positives", "bound"),
    "worst record": ("worst record found at 1 % false positives", "bound"),
    "area": ("pairs of a member and another told apart", ""),
    "audited": ("epsilon: of one release, audited", "claimed"),
    "audited training": ("epsilon: of whole trainings, audited", "claimed"),
    "bytes": ("bytes sent by all owners", ""),
}
CHANCE = {
    "found": 0.01,
    "worst record": 0.01,
    "area": 0.5,
}  #: Of a guess without any release, by panel
GREY = "#9aa5b1"  #: Of baselines
DASHES = ((6, 2), (2, 2), (6, 2, 1, 2), (1, 2), (9, 2, 2, 2, 2, 2))  #: Of level lines of one color
OWN = "mean over clients"  #: Marks scores of each client's own model on its own records
LETTER = 6.5  #: Upper estimate of a letter's mean width in a legend, points
NEXT = " | "  #: Separator of a run's notes
FILES = ("figure.svg", "figure.pdf", "figure.png")


def plot(table: pd.DataFrame, y: str = "value", *, ax: Axes | None = None) -> Axes:
    """Plot a column of a sweep against epsilon: mean and one standard deviation over seeds.

    One curve for each series; runs without a guarantee, or that released nothing, are level lines. The
    column's bound, by :data:`PANELS`, is dotted, what chance alone finds dash-dotted; for ``value``, the constant
    baseline of each problem is drawn too.

    Args:
        table: one row per run, as in ``sweep.csv``.
        y: the column.
        ax: where to draw; by default a new figure.
    """
    axes = Figure(layout="constrained").subplots() if ax is None else ax
    table = with_series(table).astype({"epsilon": float})
    open_rows = table["epsilon"].isna()
    numbers = {  # level lines are all of one color, so that they take no curve's shade and mark
        name: number
        for rows in (open_rows, ~open_rows)
        for number, name in enumerate(table.loc[rows, "series"].unique())
    }
    table = table.dropna(subset=[y])
    label, bound = PANELS.get(y, (y, ""))
    for name, part in table.groupby("series", sort=False):
        number = numbers[name]
        shade, mark = SHADES[number % len(SHADES)], MARKS[number % len(MARKS)]
        groups = part[part["epsilon"] > 0].groupby("epsilon")
        mean, std = groups[y].mean(), groups[y].std().fillna(0.0)
        if len(mean):
            band = mean - std, mean + std
            axes.fill_between(mean.index, *band, color=shade, alpha=0.15, lw=0)
            axes.plot(mean.index, mean, f"{mark}-", color=shade, label=str(name))
        if len(mean) and bound in part:
            high = groups[bound].mean()
            axes.plot(mean.index, high, ":", color=shade, lw=1.2, label="at most, by the guarantee")
        levels = (
            (part["epsilon"].isna(), OPEN, "no guarantee"),
            (part["epsilon"] == 0, shade, "epsilon 0"),
        )
        for rows, color, why in levels:
            if rows.any():
                level = part.loc[rows, y].mean()
                axes.axhline(level, color=color, ls=_dashes(number), label=f"{name}: {why}")
    if y == "value":
        _draw_constants(axes, table)
        measures = " or ".join(table["measure"].dropna().unique()) or "utility"
        label = f"{measures}, {measured_on(table)}"
    if y in CHANCE:
        axes.axhline(CHANCE[y], color=GREY, lw=1, ls="-.", label="by chance")
    ticks = sorted(table.loc[table["epsilon"] > 0, "epsilon"].unique())
    if ticks:
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    low, high = table[y].min(), table[y].max()
    if y in ("audited", "audited training", "bytes") and 0 < 10 * low < high:
        axes.set_yscale("log")
    axes.set_xlabel("epsilon")
    axes.set_ylabel(label)
    return axes


def _draw_constants(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the constant baseline of each problem."""
    several = "data" in table and table["data"].nunique() > 1
    for number, (_, part) in enumerate(table.groupby(problems(table), sort=False)):
        suffix = f", {part['data'].iloc[0]}" if several else ""
        if "scored" in part and isinstance(part["scored"].iloc[0], str):
            suffix += f", {part['scored'].iloc[0]}"
        dashes, level = _dashes(number) if number else "-", part["baseline"].mean()
        axes.axhline(level, color=GREY, lw=1, ls=dashes, label=f"constant baseline{suffix}")


def measured_on(table: pd.DataFrame) -> str:
    """Return what scores were measured on: held-out records, unless no run has any, as searches for rules."""
    held_out = "held out" not in table or table["held out"].notna().any()
    return "held-out records" if held_out else "against the truth"


def _dashes(number: int) -> tuple[int, tuple[int, ...]]:
    return (0, DASHES[number % len(DASHES)])


def with_series(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a column ``series``: the policy, all varied settings, and whether scores are of clients' own models."""
    varied = [str(column) for column in table if "." in str(column)]
    series = table["policy"].astype(str)
    for column in varied:
        name = column.rpartition(".")[2]
        name = column if name == "epsilon" else name  # the guarantee's is another
        setting = f", {name} " + table[column].astype(str)
        series = series + setting.where(table[column].notna(), "")
    if "scored" in table:
        series = series + table["scored"].map(", {}".format, na_action="ignore").fillna("")
    return table.assign(series=series)


def problems(table: pd.DataFrame, *more: str) -> pd.Series:
    """Return each run's problem: its data, its measure and whose models were scored.

    Only runs of the same problem can be compared: the mean of the clients' errors is not the error of all records.
    """
    keys = pd.Series("", index=table.index)
    for column in map(str, table):
        if column in ("measure", "data digest", "scored", *more) or column.startswith("data."):
            keys = keys + " " + table[column].astype(str).fillna("")
    return keys


def guarantees(table: pd.DataFrame) -> pd.Series:
    """Return each run's unit, relation and delta, as far as the table has them; empty without a guarantee."""
    text = pd.Series("", index=table.index)
    if "unit" in table:
        text = text + "one " + table["unit"].astype(str)
    if "relation" in table:
        words = {"add-or-remove": " added or removed", "replace-one": " replaced"}
        text = text + table["relation"].map(words).fillna("")
    if "delta" in table:
        text = text + table["delta"].map(
            lambda delta: f", delta {shown_delta(delta)}", na_action="ignore"
        ).fillna("")
    return text.where(table["epsilon"].notna(), "")


def collect_notes(table: pd.DataFrame) -> list[str]:
    """Return the notes on each series, learner and epsilon; notes that differ only in digits share a line."""
    lines: dict[tuple[str, str], list[str]] = {}
    rows = with_series(table.drop(columns="scored", errors="ignore"))
    rows = rows.assign(notes=table.get("notes")).dropna(subset=["notes"])
    for _, run in rows.iterrows():
        epsilon = "" if pd.isna(run["epsilon"]) else f", epsilon {run['epsilon']:g}"
        cell = f"policy {run['series']}, {run['learner']}{epsilon}"
        for note in run["notes"].split(NEXT):
            same = lines.setdefault((cell, re.sub(r"\d", "", note)), [])
            same.append(f"seed {run['seed']}: {note}")
    return [
        f"{cell}, {f'{len(same)} runs, one of them ' * (len(same) > 1)}{same[0]}"
        for (cell, _), same in lines.items()
    ]


def figure(table: pd.DataFrame) -> Figure:
    """Draw one figure: a panel for each measure of utility and each of :data:`PANELS` that was measured."""
    measures = table.get("measure", pd.Series(dtype=str)).where(table["value"].notna())
    panels = [
        ("value", table.assign(value=table["value"].where(measures == measure)))
        for measure in measures.dropna().unique()
    ]
    panels += [(y, table) for y in [*PANELS][1:] if y in table and table[y].notna().any()]
    with matplotlib.rc_context(STYLE):
        columns = min(2, len(panels))
        rows = -(-len(panels) // columns)
        chart = Figure(figsize=(5.2 * columns, 3.6 * rows), layout="constrained")
        grid = chart.subplots(rows, columns, squeeze=False).ravel()
        for axes, (y, part) in zip(grid, panels, strict=False):
            plot(part, y, ax=axes)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        legend(chart, grid)
    return chart


def legend(chart: Figure, grid: Iterable[Axes]) -> None:
    """Place one legend of all panels above them, in as many columns as fit, and enlarge the figure for it."""
    entries: dict[str, Any] = {}
    for axes in grid:
        for line, name in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(name, line)
    width, height = chart.get_size_inches()
    entry = (LETTER * max(map(len, entries)) + 50) / 72  # inches
    columns = max(1, min(3, int(width / entry)))
    chart.set_size_inches(max(width, entry), height + 0.25 * -(-len(entries) // columns))
    lines, names = [*entries.values()], [*entries]
    chart.legend(lines, names, frameon=False, loc="outside upper center", ncols=columns)


def save(chart: Figure, folder: Path) -> None:
    """Write ``figure.svg``, ``figure.pdf`` and ``figure.png``."""
    with matplotlib.rc_context(STYLE):
        for file in FILES:
            chart.savefig(folder / file, dpi=200)


def frontier(table: pd.DataFrame) -> pd.DataFrame:
    """Return each series at each epsilon, by mean utility over seeds, and whether it is on the Pareto front.

    ``best`` marks the best mean at its epsilon; ``front`` that no series is at least as good at a smaller
    epsilon, or better at the same one. Series are only compared on the same data, with the same measure, unit
    and relation. Runs without a guarantee are dropped. The best series is selected on held-out records, so
    its utility is biased upwards.
    """
    scored = with_series(table).dropna(subset=["epsilon", "value"])
    sign = np.where(scored["better"] == "lower", -1.0, 1.0) if "better" in scored else 1.0
    scored = scored.assign(among=problems(scored, "unit", "relation"), worth=sign * scored["value"])
    if (guarantee := guarantees(scored)).nunique() > 1:
        scored = scored.assign(guarantee=guarantee)
    columns = ("measure", "epsilon", "series", "learner", "guarantee")
    keys = ["among", *(column for column in columns if column in scored)]
    front = scored.groupby(keys, sort=False).agg(
        runs=("value", "size"),
        mean=("value", "mean"),
        deviation=("value", "std"),
        **{name: (name, "mean") for name in ("baseline", "spent", "bytes") if name in scored},
        worth=("worth", "mean"),
    )
    front = front.reset_index()
    utility, epsilon, among = (front[k].to_numpy() for k in ("worth", "epsilon", "among"))
    front["best"] = utility == front.groupby(["among", "epsilon"])["worth"].transform("max")
    ahead = (epsilon[:, None] <= epsilon) & (utility[:, None] > utility)
    ahead |= (epsilon[:, None] < epsilon) & (utility[:, None] >= utility)
    front["front"] = ~np.any(ahead & (among[:, None] == among), axis=0)
    front = front.sort_values(["among", "epsilon", "worth"], ascending=[True, True, False])
    return front.drop(columns=["among", "worth"]).reset_index(drop=True)
