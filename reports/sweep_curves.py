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
MARKS = "os^Dv"  #: One for each round of the shades
#: A figure's panels: a column, its axis, and what bounds it.
PANELS = {
    "value": ("", ""),
    "found": ("members found at 1 % false positives", "bound"),
    "area": ("share of pairs of a member and another told apart", ""),
    "audited": ("epsilon: of one release, audited", "claimed"),
    "audited training": ("epsilon: of whole trainings, audited", "claimed"),
    "bytes": ("bytes sent by all owners", ""),
}
LETTER = 6.5  #: Width of one in a legend, points, at most on average
NEXT = " | "  #: Between a run's notes
FILES = ("figure.svg", "figure.pdf", "figure.png")


def plot(table: pd.DataFrame, y: str = "value", *, ax: Axes | None = None) -> Axes:
    """Plot a column of a sweep against epsilon: mean and one standard deviation over seeds.

    One curve for each series; runs without a guarantee, or that released nothing, are level lines. What
    bounds the column, by :data:`PANELS`, is dotted; beside ``value`` stands the constant baseline of each
    data set.

    Args:
        table: one row a run, as ``sweep.csv`` has it.
        y: the column.
        ax: where to draw; a figure of its own unless given.
    """
    axes = Figure(layout="constrained").subplots() if ax is None else ax
    table = labelled(table).astype({"epsilon": float})
    numbers = {name: number for number, name in enumerate(table["series"].unique())}
    table = table.dropna(subset=[y])
    label, bound = PANELS.get(y, (y, ""))
    for name, part in table.groupby("series", sort=False):
        number = numbers[name]
        shade, mark = SHADES[number % len(SHADES)], MARKS[number // len(SHADES) % len(MARKS)]
        each = part[part["epsilon"] > 0].groupby("epsilon")
        mean, spread = each[y].mean(), each[y].std().fillna(0.0)
        if len(mean):
            band = mean - spread, mean + spread
            axes.fill_between(mean.index, *band, color=shade, alpha=0.15, lw=0)
            axes.plot(mean.index, mean, f"{mark}-", color=shade, label=str(name))
        if len(mean) and bound in part:
            most = each[bound].mean()
            axes.plot(mean.index, most, ":", color=shade, lw=1.2, label="at most, by the guarantee")
        levels = (
            (part["epsilon"].isna(), OPEN, "no guarantee"),
            (part["epsilon"] == 0, shade, "epsilon 0"),
        )
        for rows, color, why in levels:
            if rows.any():
                level = part.loc[rows, y].mean()
                axes.axhline(level, color=color, ls=_dashes(number), label=f"{name}: {why}")
    if y == "value":
        each = table.groupby(problems(table), sort=False)
        for number, (_, part) in enumerate(each):
            told = f", {part['data'].iloc[0]}" if len(each) > 1 and "data" in part else ""
            dashes, level = _dashes(number) if number else "-", part["baseline"].mean()
            label = f"constant baseline{told}"
            axes.axhline(level, color="#9aa5b1", lw=1, ls=dashes, label=label)
        measures = " or ".join(table["measure"].dropna().unique()) or "utility"
        label = f"{measures}, held-out records"
    ticks = sorted(table.loc[table["epsilon"] > 0, "epsilon"].unique())
    if ticks:
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    if y in ("audited", "audited training", "bytes") and (table[y] > 0).all():
        axes.set_yscale("log")
    axes.set_xlabel("epsilon")
    axes.set_ylabel(label)
    return axes


def _dashes(number: int) -> tuple[int, tuple[int, ...]]:
    return (0, (4, 1 + number % 5))


def labelled(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a column ``series``: the policy, and every setting that was varied."""
    varied = [str(column) for column in table if "." in str(column)]
    series = table["policy"].astype(str)
    for column in varied:
        told = f", {column.rpartition('.')[2]} " + table[column].astype(str)
        series = series + told.where(table[column].notna(), "")
    return table.assign(series=series)


def problems(table: pd.DataFrame, *more: str) -> pd.Series:
    """Name what each run's utility is of: its data and its measure. Only runs of one can be compared."""
    told = pd.Series("", index=table.index)
    for column in map(str, table):
        if column in ("measure", "data digest", *more) or column.startswith("data."):
            told = told + " " + table[column].astype(str)
    return told


def guarantees(table: pd.DataFrame) -> pd.Series:
    """Say what each run's epsilon is of, as far as its columns do; empty without a guarantee."""
    told = pd.Series("", index=table.index)
    if "unit" in table:
        told = told + "one " + table["unit"].astype(str)
    if "relation" in table:
        words = {"add-or-remove": " added or removed", "replace-one": " replaced"}
        told = told + table["relation"].map(words).fillna("")
    if "delta" in table:
        told = told + table["delta"].map(
            lambda delta: f", delta {shown_delta(delta)}", na_action="ignore"
        ).fillna("")
    return told.where(table["epsilon"].notna(), "")


def noted(table: pd.DataFrame) -> list[str]:
    """Return the notes on each series, learner and epsilon, a line for those that differ in figures alone."""
    found: dict[tuple[str, str], list[str]] = {}
    told = labelled(table).assign(notes=table.get("notes")).dropna(subset=["notes"])
    for _, run in told.iterrows():
        epsilon = "" if pd.isna(run["epsilon"]) else f", epsilon {run['epsilon']:g}"
        cell = f"policy {run['series']}, {run['learner']}{epsilon}"
        for note in run["notes"].split(NEXT):
            same = found.setdefault((cell, re.sub(r"\d", "", note)), [])
            same.append(f"seed {run['seed']}: {note}")
    return [
        f"{cell}, {f'{len(same)} runs, one of them ' * (len(same) > 1)}{same[0]}"
        for (cell, _), same in found.items()
    ]


def figure(table: pd.DataFrame) -> Figure:
    """Draw one figure: a panel for each measure of utility and each of :data:`PANELS` that was measured."""
    named = table.get("measure", pd.Series(dtype=str)).where(table["value"].notna())
    shown = [
        ("value", table.assign(value=table["value"].where(named == measure)))
        for measure in named.dropna().unique()
    ]
    shown += [(y, table) for y in [*PANELS][1:] if y in table and table[y].notna().any()]
    with matplotlib.rc_context(STYLE):
        columns = min(2, len(shown))
        rows = -(-len(shown) // columns)
        drawn = Figure(figsize=(5.2 * columns, 3.6 * rows), layout="constrained")
        grid = drawn.subplots(rows, columns, squeeze=False).ravel()
        for axes, (y, part) in zip(grid, shown, strict=False):
            plot(part, y, ax=axes)
        for axes in grid[len(shown) :]:
            axes.set_axis_off()
        legend(drawn, grid)
    return drawn


def legend(drawn: Figure, grid: Iterable[Axes]) -> None:
    """Put one legend of all panels above them, in as many columns as its entries leave, on room of its own."""
    told: dict[str, Any] = {}
    for axes in grid:
        for line, name in zip(*axes.get_legend_handles_labels(), strict=True):
            told.setdefault(name, line)
    width, height = drawn.get_size_inches()
    entry = (LETTER * max(map(len, told)) + 50) / 72  # inches
    columns = max(1, min(3, int(width / entry)))
    drawn.set_size_inches(max(width, entry), height + 0.25 * -(-len(told) // columns))
    lines, names = [*told.values()], [*told]
    drawn.legend(lines, names, frameon=False, loc="outside upper center", ncols=columns)


def save(drawn: Figure, folder: Path) -> None:
    """Write ``figure.svg``, ``figure.pdf`` and ``figure.png``."""
    with matplotlib.rc_context(STYLE):
        for file in FILES:
            drawn.savefig(folder / file, dpi=200)


def frontier(table: pd.DataFrame) -> pd.DataFrame:
    """Return each series at each epsilon, by mean utility over seeds, and whether it is on the Pareto front.

    ``best`` is the best mean at its epsilon; ``front`` says that no series is as good or better at a
    smaller epsilon, or better at the same one. Series are compared with those on the same data, by the same
    measure, unit and relation alone. Runs without a guarantee are left out. The choice is made on held-out
    records, so that the best of several is flattered.
    """
    scored = labelled(table).dropna(subset=["epsilon", "value"])
    sign = np.where(scored["better"] == "lower", -1.0, 1.0) if "better" in scored else 1.0
    scored = scored.assign(among=problems(scored, "unit", "relation"), worth=sign * scored["value"])
    if (of := guarantees(scored)).nunique() > 1:
        scored = scored.assign(guarantee=of)
    keys = ["among", *(k for k in ("measure", "epsilon", "series", "guarantee") if k in scored)]
    told = scored.groupby(keys, sort=False).agg(
        runs=("value", "size"),
        mean=("value", "mean"),
        deviation=("value", "std"),
        **{name: (name, "mean") for name in ("spent", "bytes") if name in scored},
        worth=("worth", "mean"),
    )
    told = told.reset_index()
    worth, epsilon, among = (told[k].to_numpy() for k in ("worth", "epsilon", "among"))
    told["best"] = worth == told.groupby(["among", "epsilon"])["worth"].transform("max")
    ahead = (epsilon[:, None] <= epsilon) & (worth[:, None] > worth)
    ahead |= (epsilon[:, None] < epsilon) & (worth[:, None] >= worth)
    told["front"] = ~np.any(ahead & (among[:, None] == among), axis=0)
    told = told.sort_values(["among", "epsilon", "worth"], ascending=[True, True, False])
    return told.drop(columns=["among", "worth"]).reset_index(drop=True)
