"""The sweep report: utility against epsilon, as a tidy table and charts."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import jinja2
import pandas as pd

from privfed.reports.charts import sweep

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ name }}: utility against epsilon</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{{ css | safe }}</style></head><body><main>
<p class="kicker">Sweep report</p><h1>{{ name }}</h1>
<p class="together"><b>An uncharged simulation.</b> {{ runs }} independent runs over the same data, recorded in no
ledger; no epsilon on this page covers all of them. On real data, each run would be charged, and their
losses would add up.{% if not secure %} <b>Test noise:</b> it was seeded and protects nobody.{% endif %}</p>
<p><span class="mark">sim</span> Utility was measured on held-out records with access to all
data; choosing an epsilon by it on real data is a release of its own.</p>
<div class="curves">{% for picture in pictures %}<figure>{{ picture | safe }}</figure>{% endfor %}</div>
{% for measure, table in tables.items() %}
<h3>{{ measure | capitalize_first }}: mean and standard deviation over runs</h3>
<div class="wide">{{ table | safe }}</div>
{% endfor %}
</main></body></html>
"""
CONSTANT = "constant "  #: Prefix of the columns of the constant baseline's scores
ALONE, BESIDE = 8.4, 5.8  #: Width of a single chart, and of one of several, inches


def write_sweep(table: pd.DataFrame, folder: Path, name: str) -> None:
    """Write ``sweep.csv``, ``sweep.html`` and, where pyarrow is installed, ``sweep.parquet``.

    Args:
        table: one row a run, as :func:`privfed.study.sweep.table` gives it.
        folder: where to write.
        name: the study's name.
    """
    table = table.assign(simulation=True)
    table.to_csv(folder / "sweep.csv", index=False)
    if find_spec("pyarrow"):
        table.to_parquet(folder / "sweep.parquet", index=False)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("privfed.reports"), autoescape=True
    )
    environment.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    measured = by_measure(table)
    width = ALONE if len(measured) == 1 else BESIDE
    page = environment.from_string(_PAGE).render(
        name=name,
        runs=len(table),
        secure="secure" not in table or bool(table["secure"].all()),
        css=environment.get_template("budget.css").render(),
        pictures=[
            sweep(scored, measure, width=width)
            for measure, each in measured.items()
            if len(scored := each[each["value"].notna()])
        ],
        tables={
            measure: summarised(each)
            .rename(columns={"baseline": "constant baseline"})
            .to_html(
                index=False, float_format="{:.4g}".format, border=0, na_rep="none", justify="left"
            )
            for measure, each in measured.items()
        },
    )
    (folder / "sweep.html").write_text(page, encoding="utf-8")


def by_measure(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the runs by measure, in columns ``value`` and ``baseline``: the headline first.

    A score without a constant baseline has no curve.
    """
    named = table["measure"].dropna()
    found = {str(named.iloc[0]) if len(named) else "utility": table}
    for column in table.columns:
        if str(column).startswith(CONSTANT) and table[column].notna().any():
            measure = str(column).removeprefix(CONSTANT)
            found[measure] = table.assign(value=table[measure], baseline=table[column])
    return found


def summarised(table: pd.DataFrame) -> pd.DataFrame:
    """Return mean and deviation over runs, by policy and epsilon."""
    grouped = table.groupby(["policy", "epsilon"], sort=False, dropna=False)
    return grouped.agg(
        runs=("value", "size"),
        mean=("value", "mean"),
        deviation=("value", "std"),
        baseline=("baseline", "mean"),
        unprotected=("unprotected", "mean"),
    ).reset_index()
