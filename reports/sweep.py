"""The sweep report: utility against epsilon, as a tidy table and charts."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path

import jinja2
import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from privfed.errors import Note
from privfed.reports.charts import STYLE, svg
from privfed.reports.sweep_curves import (
    PANELS,
    figure,
    frontier,
    guarantees,
    labelled,
    legend,
    noted,
    plot,
    save,
)

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ name }}: utility against epsilon</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{{ css | safe }}</style></head><body><main>
<p class="kicker">Sweep report</p><h1>{{ name }}</h1>
<p class="together"><b>An uncharged simulation.</b> {{ runs }} runs, each priced as if it were the only one and recorded
in no ledger; no epsilon on this page covers several. On real data, each run would be charged, and their
losses would add up.{% if not secure %} <b>Test noise:</b> it was seeded and protects nobody.{% endif %}</p>
{% if failed %}<p class="bad">{{ failed }} further run{{ "s" if failed > 1 }} failed: means are over the others.</p>{% endif %}
{% if stopped %}<p class="bad">{{ stopped }} of the runs learned nothing, as nobody answered: means are over the others.</p>{% endif %}
<p><span class="mark">sim</span> Utility was measured on held-out records with access to all
data; choosing an epsilon by it on real data is a release of its own.</p>
{% if notes %}<ul class="small">{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>{% endif %}
{% if overview %}
<figure>{{ overview | safe }}</figure>
<p class="small">Means over runs, with one standard deviation.{% if guarantee %} Epsilon: of {{ guarantee }}.{% endif %}
{% if dotted %} Dotted: the bound on what any attack finds, and the claimed epsilon.{% endif %}
{% if level %} No guarantee: a level line.{% endif %}</p>
{% if frontier %}
<h3>Utility at each epsilon</h3>
<p class="small">best: the best mean at this epsilon; front: no series is as good at a smaller one, or better at this one; both
by the mean that stands beside, among series on the same data with a guarantee of the same kind. Chosen on held-out
records, the best of several is flattered. spent: what was spent of the epsilon.</p>
<div class="wide">{{ frontier | safe }}</div>
{% endif %}
{% endif %}
<div class="curves">{% for picture in pictures %}<figure>{{ picture | safe }}</figure>{% endfor %}</div>
{% for measure, table in tables.items() %}
<h3>{{ measure | capitalize_first }}: mean and standard deviation over runs</h3>
<div class="wide">{{ table | safe }}</div>
{% endfor %}
</main></body></html>
"""
CONSTANT = "constant "  #: Prefix of the columns of the constant baseline's scores
WIDTH = 5.8  #: Of a further score's chart, inches


def write_sweep(table: pd.DataFrame, folder: Path, name: str, failed: int = 0) -> None:
    """Write ``sweep.csv``, ``sweep.html``, the figure and, where pyarrow is installed, ``sweep.parquet``; pass notes on.

    Args:
        table: one row a run, as :func:`privfed.study.sweep.table` gives it.
        folder: where to write.
        name: the study's name.
        failed: number of runs that the table lacks, as they failed.
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
    scored = table["value"].notna().any()
    if scored:
        save(figure(table), folder)
    of = guarantees(table)[table["epsilon"].notna()].unique()
    page = environment.from_string(_PAGE).render(
        name=name,
        runs=len(table),
        failed=failed,
        notes=(notes := noted(table)),
        stopped=int(table["stopped"].notna().sum()) if "stopped" in table else 0,
        secure="secure" not in table or bool(table["secure"].all()),
        css=environment.get_template("budget.css").render(),
        overview=svg(figure(table), "utility against epsilon") if scored else "",
        guarantee=of[0] if len(of) == 1 else "",
        dotted=any(
            y in table and table[y].notna().any() for y, (_, bound) in PANELS.items() if bound
        ),
        level=table["epsilon"].isna().any(),
        frontier=_html(front) if scored and len(front := frontier(table)) else "",
        pictures=[
            _curve(each, measure)
            for measure, each in measured.items()
            if f"{CONSTANT}{measure}" in table
        ],
        tables={
            measure: _html(summarised(each).rename(columns={"baseline": "constant baseline"}))
            for measure, each in measured.items()
        },
    )
    (folder / "sweep.html").write_text(page, encoding="utf-8")
    for note in notes:
        warnings.warn(note, Note, stacklevel=2)


def _html(table: pd.DataFrame) -> str:
    told: str = table.to_html(
        index=False,
        float_format=lambda value: f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}",
        formatters={str(name): _yes for name in table.select_dtypes(bool)},
        border=0,
        na_rep="none",
        justify="left",
    )
    return told


def _yes(value: object) -> str:
    return "yes" if value else ""


def _curve(table: pd.DataFrame, measure: str) -> str:
    with matplotlib.rc_context(STYLE):
        drawn = Figure(figsize=(WIDTH, 3.4), layout="constrained")
        legend(drawn, [plot(table, ax=drawn.subplots())])
    return svg(drawn, f"{measure} against epsilon")


def by_measure(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the runs by measure, in columns ``value`` and ``baseline``: headlines first.

    A run of which nothing was measured stands in each. A score without a constant baseline has no curve.
    """
    none = table["measure"].isna()
    found = {
        str(one): table[none | (table["measure"] == one)]
        for one in table["measure"].dropna().unique()
    }
    found = found or {"utility": table}
    for column in table.columns:
        if str(column).startswith(CONSTANT) and table[column].notna().any():
            measure = str(column).removeprefix(CONSTANT)
            found[measure] = table[none | table[column].notna()].assign(
                value=table[measure], baseline=table[column], measure=measure
            )
    return found


def summarised(table: pd.DataFrame) -> pd.DataFrame:
    """Return mean and deviation over runs, by series and epsilon."""
    grouped = labelled(table).groupby(["series", "epsilon"], sort=False, dropna=False)
    return grouped.agg(
        runs=("value", "count"),
        mean=("value", "mean"),
        deviation=("value", "std"),
        baseline=("baseline", "mean"),
        unprotected=("unprotected", "mean"),
    ).reset_index()
