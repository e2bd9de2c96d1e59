"""The sweep report: utility against epsilon, as a tidy table and charts."""

from __future__ import annotations

import os
import shutil
import warnings
from importlib.util import find_spec
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from privfed.errors import Note
from privfed.reports.charts import STYLE, svg
from privfed.reports.metrics import measured, measured_alike
from privfed.reports.page import render
from privfed.reports.sweep_curves import (
    CHANCE,
    FILES,
    PANELS,
    collect_notes,
    figure,
    frontier,
    guarantees,
    legend,
    measured_on,
    plot,
    save,
    with_series,
)

CONSTANT = "constant "  #: Prefix of the columns of the constant baseline's scores
#: Headers of columns that say more than their names.
HEADERS = {"baseline": "constant baseline", "unprotected": "unprotected releases"}
#: Columns of a table whose figures are compared within a row.
COMPARED = ("mean", "deviation", "constant baseline")
WIDTH = 5.8  #: Width of a further score's chart, inches


#: The files of a sweep's results.
RESULTS = ("sweep.csv", "sweep.parquet", "sweep.html", *FILES)


def write_sweep(table: pd.DataFrame, folder: Path, name: str, failed: int = 0) -> None:
    """Write ``sweep.csv``, ``sweep.html``, the figure and, with pyarrow, ``sweep.parquet``; emit notes as warnings.

    All replace those of before once the last of them is written.

    Args:
        table: one row per run, from :func:`privfed.study.sweep.table`.
        folder: where to write.
        name: the study's name.
        failed: number of failed runs, which the table lacks.
    """
    partial = folder / ".results"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        notes = _write(table.assign(simulation=True), partial, name, failed)
        for file in RESULTS:
            if (partial / file).exists():
                os.replace(partial / file, folder / file)
            else:
                (folder / file).unlink(missing_ok=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    for note in notes:
        warnings.warn(note, Note, stacklevel=2)


def _write(table: pd.DataFrame, folder: Path, name: str, failed: int) -> list[str]:
    """Write the files, and return the runs' notes."""
    table.to_csv(folder / "sweep.csv", index=False)
    if find_spec("pyarrow"):
        table.to_parquet(folder / "sweep.parquet", index=False)
    measured = by_measure(table)
    scored = table["value"].notna().any()
    if scored:
        save(figure(table), folder)
    names = guarantees(table)[table["epsilon"].notna()].unique()
    page = render(
        "sweep.html",
        name=name,
        runs=len(table),
        failed=failed,
        several=bool((summarise(table)["runs"] > 1).any()),
        notes=(notes := collect_notes(table)),
        stopped=int(table["stopped"].notna().sum()) if "stopped" in table else 0,
        measured=measured_on(table),
        secure="secure" not in table or bool(table["secure"].all()),
        overview=svg(figure(table), "utility against epsilon") if scored else "",
        guarantee=names[0] if len(names) == 1 else "",
        dotted=any(
            y in table and table[y].notna().any() for y, (_, bound) in PANELS.items() if bound
        ),
        attacked=any(y in table and table[y].notna().any() for y in CHANCE),
        level=table["epsilon"].isna().any(),
        frontier=_html(front) if scored and len(front := frontier(table)) else "",
        pictures=[
            _curve(part, measure)
            for measure, part in measured.items()
            if f"{CONSTANT}{measure}" in table
        ],
        tables={measure: _html(summarise(part)) for measure, part in measured.items()},
    )
    (folder / "sweep.html").write_text(page, encoding="utf-8")
    return notes


def _html(table: pd.DataFrame) -> str:
    """Return a table as HTML, with equally many decimals for a row's mean, deviation and constant."""
    table = table.rename(columns=HEADERS)
    shown, alike = table.astype(object), [name for name in COMPARED if name in table]
    for row, values in table[alike].astype(float).iterrows():
        known = values.dropna()
        if len(known):
            shown.loc[row, known.index] = measured_alike(*known)
    html: str = shown.to_html(
        index=False,
        float_format=measured,
        formatters={str(n): lambda flag: "yes" if flag else "" for n in table.select_dtypes(bool)},
        border=0,
        na_rep="none",
        justify="left",
    )
    return html


def _curve(table: pd.DataFrame, measure: str) -> str:
    with matplotlib.rc_context(STYLE):
        chart = Figure(figsize=(WIDTH, 3.4), layout="constrained")
        legend(chart, [plot(table, ax=chart.subplots())])
    return svg(chart, f"{measure} against epsilon")


def by_measure(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the runs by measure, in columns ``value`` and ``baseline``: headlines first.

    A run without a measure is in each. A score without a constant baseline has no curve.
    """
    none = table["measure"].isna()
    tables = {
        str(name): table[none | (table["measure"] == name)]
        for name in table["measure"].dropna().unique()
    }
    tables = tables or {"utility": table}
    for column in table.columns:
        if str(column).startswith(CONSTANT) and table[column].notna().any():
            measure = str(column).removeprefix(CONSTANT)
            tables[measure] = table[none | table[column].notna()].assign(
                value=table[measure], baseline=table[column], measure=measure
            )
    return tables


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Return mean and standard deviation over runs, by series, its learner and epsilon."""
    keys = ["series", *(["learner"] if "learner" in table else []), "epsilon"]
    grouped = with_series(table).groupby(keys, sort=False, dropna=False)
    return grouped.agg(
        runs=("value", "count"),
        mean=("value", "mean"),
        deviation=("value", "std"),
        baseline=("baseline", "mean"),
        unprotected=("unprotected", "mean"),
    ).reset_index()
