"""The sweep report: utility against epsilon, as a tidy table and a picture."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pandas as pd

from privfed.reports.pictures import sweep

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ name }}: utility against epsilon</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{{ css | safe }}</style></head><body><main>
<p class="kicker">Sweep report</p><h1>{{ name }}</h1>
<p>{{ runs }} runs. <span class="mark">sim</span> Utility was measured on held-out records by someone
who held all the data; choosing an epsilon by it on real data would be a release of its own.</p>
{% if picture %}<figure>{{ picture | safe }}</figure>{% endif %}
<h3>Mean over seeds</h3><div class="wide">{{ table | safe }}</div>
</main></body></html>
"""


def write_sweep(table: pd.DataFrame, folder: Path, name: str) -> None:
    """Write ``sweep.csv`` and ``sweep.html``.

    Args:
        table: one row a run, as :func:`privfed.study.assembly.sweep` gives it.
        folder: where to write.
        name: the study's name.
    """
    table.to_csv(folder / "sweep.csv", index=False)
    scored = table[table["value"].notna()]
    measure = str(scored["measure"].iloc[0]) if len(scored) else ""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("privfed.reports"), autoescape=True
    )
    page = environment.from_string(_PAGE).render(
        name=name,
        runs=len(table),
        css=environment.get_template("budget.css").render(),
        picture=sweep(scored, measure) if len(scored) else "",
        table=summarised(table).to_html(
            index=False, float_format="{:.4g}".format, border=0, na_rep="none", justify="left"
        ),
    )
    (folder / "sweep.html").write_text(page, encoding="utf-8")


def summarised(table: pd.DataFrame) -> pd.DataFrame:
    """Mean and deviation over seeds, by policy and epsilon."""
    grouped = table.groupby(["policy", "epsilon"], sort=False, dropna=False)
    return grouped.agg(
        runs=("value", "size"),
        mean=("value", "mean"),
        deviation=("value", "std"),
        baseline=("baseline", "mean"),
        unprotected=("unprotected", "mean"),
    ).reset_index()
