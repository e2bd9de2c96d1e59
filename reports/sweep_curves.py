"""A sweep's curves: utility, attacks, audits and communication against epsilon, over seeds."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from privfed.reports.charts import OPEN, PROTECTED, STYLE

SHADES = (PROTECTED, "#7a5195", "#00897b", "#ef8a17", "#8d6e63", "#d81b60", "#546e7a")
#: A figure's panels: a column, its axis, and what bounds it.
PANELS = {
    "value": ("", ""),
    "found": ("members found at 1 % false positives", "bound"),
    "audited": ("epsilon: of one release, audited", "claimed"),
    "bytes": ("bytes sent by all owners", ""),
}
FILES = ("figure.svg", "figure.pdf", "figure.png")


def plot(table: pd.DataFrame, y: str = "value", *, ax: Axes | None = None) -> Axes:
    """Plot a column of a sweep against epsilon: mean and one standard deviation over seeds.

    One curve for each series; runs without a guarantee are level lines. What bounds the column, by
    :data:`PANELS`, is dotted; beside ``value`` stands the constant baseline.

    Args:
        table: one row a run, as ``sweep.csv`` has it.
        y: the column.
        ax: where to draw; a figure of its own unless given.
    """
    axes = Figure(layout="constrained").subplots() if ax is None else ax
    table = labelled(table).dropna(subset=[y]).astype({"epsilon": float})
    label, bound = PANELS.get(y, (y, ""))
    for shade, (name, part) in zip(cycle(SHADES), table.groupby("series", sort=False)):
        each = part.groupby("epsilon")
        mean, spread = each[y].mean(), each[y].std().fillna(0.0)
        if len(mean):
            band = mean - spread, mean + spread
            axes.fill_between(mean.index, *band, color=shade, alpha=0.15, lw=0)
            axes.plot(mean.index, mean, "o-", color=shade, label=str(name))
        if len(mean) and bound in part:
            most = each[bound].mean()
            axes.plot(mean.index, most, ":", color=shade, lw=1.2, label="at most, by the guarantee")
        open_ended = part.loc[part["epsilon"].isna(), y]
        if len(open_ended):
            told = f"{name}: no guarantee"
            axes.axhline(open_ended.mean(), color=OPEN, ls=_dashes(len(axes.lines)), label=told)
    if y == "value":
        axes.axhline(table["baseline"].mean(), color="#9aa5b1", lw=1, label="constant baseline")
        label = f"{next(iter(table['measure'].dropna()), 'utility')}, held-out records"
    ticks = sorted(table["epsilon"].dropna().unique())
    if ticks:
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
    if y in ("audited", "bytes") and (table[y] > 0).all():
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


def figure(table: pd.DataFrame) -> Figure:
    """Draw one figure: a panel for each of :data:`PANELS` that was measured, one legend."""
    shown = [y for y in PANELS if y in table and table[y].notna().any()]
    with matplotlib.rc_context(STYLE):
        columns = min(2, len(shown))
        rows = -(-len(shown) // columns)
        drawn = Figure(figsize=(5.2 * columns, 3.6 * rows + 0.6), layout="constrained")
        grid = drawn.subplots(rows, columns, squeeze=False).ravel()
        for axes, y in zip(grid, shown, strict=False):
            plot(table, y, ax=axes)
        for axes in grid[len(shown) :]:
            axes.set_axis_off()
        drawings = [one.get_legend_handles_labels() for one in reversed(grid)]
        told = {
            name: line for lines, names in drawings for line, name in zip(lines, names, strict=True)
        }
        drawn.legend(told.values(), told.keys(), frameon=False, loc="outside upper center", ncols=3)
    return drawn


def save(drawn: Figure, folder: Path) -> None:
    """Write ``figure.svg``, ``figure.pdf`` and ``figure.png``."""
    with matplotlib.rc_context(STYLE):
        for file in FILES:
            drawn.savefig(folder / file, dpi=200)


def frontier(table: pd.DataFrame) -> pd.DataFrame:
    """Return each series at each epsilon, by mean utility over seeds, and whether it is on the Pareto front.

    ``best`` is the highest utility at its epsilon; ``front`` says that no series is as good or better at
    a smaller epsilon, or better at the same one. Runs without a guarantee are left out. The choice is
    made on held-out records, so that the best of several is flattered.
    """
    scored = labelled(table).dropna(subset=["epsilon", "value"])
    sign = -1.0 if "better" in scored and "lower" in set(scored["better"]) else 1.0
    each = scored.groupby(["epsilon", "series"], sort=False)
    told = each.agg(
        runs=("value", "size"),
        mean=("value", "mean"),
        deviation=("value", "std"),
        **({"bytes": ("bytes", "mean")} if "bytes" in scored else {}),
    ).reset_index()
    worth, epsilon = sign * told["mean"].to_numpy(), told["epsilon"].to_numpy()
    told["best"] = worth == told.assign(w=worth).groupby("epsilon")["w"].transform("max")
    ahead = (epsilon[:, None] <= epsilon) & (worth[:, None] > worth)
    ahead |= (epsilon[:, None] < epsilon) & (worth[:, None] >= worth)
    told["front"] = ~np.any(ahead, axis=0)
    return told.sort_values(["epsilon", "mean"], ascending=[True, sign < 0], ignore_index=True)
