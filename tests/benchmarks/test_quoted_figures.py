"""Figures that pages outside the results quote are those of the tables in benchmarks/results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
BY_CELL = ["set", "task", "epsilon", "split"]


def results(name: str) -> pd.DataFrame:
    """A table of results."""
    return pd.read_csv(ROOT / "benchmarks/results" / f"{name}.csv")


def figures(page: str, row: str) -> list[list[float]]:
    """The figures of each row of a page that begins so, by cell."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    text = re.sub(r"(\d),(\d)", r"\1\2", text)
    rows = re.findall(rf"^\| {re.escape(row)} \|(.*)\|$", text, re.MULTILINE)
    assert rows, row
    return [[float(one) for one in re.findall(r"[-+]?\d*\.?\d+", cells)] for cells in rows]


@pytest.fixture(scope="module")
def league() -> pd.DataFrame:
    """The league's rows."""
    return results("league").rename(columns={"log loss - constant's": "loss"})


@pytest.mark.parametrize("form", ["20 terms", "10 terms", "10 stable terms"])
def test_short_forms_differ_from_the_engine_as_told(form: str, league: pd.DataFrame) -> None:
    """Differences of AUC and log loss, and mean ratios of errors, of all sets and of the large ones."""
    some = league[league["epsilon"].isin([1, 4])]
    engine = some[some["method"] == "ours"]
    rows = some[some["method"] == f"ours, {form}"].merge(engine, on=BY_CELL, suffixes=("", "_"))
    found = []
    for part in (rows, rows[rows["records"] >= 6000]):
        found += [(part[name] - part[f"{name}_"]).mean() for name in ("auc", "loss")]
        found.append(100 * ((part["rmse"] / part["rmse_"]).mean() - 1))
    (told,) = figures("rulefit", form)
    assert told == pytest.approx([round(f, 1 if k % 3 == 2 else 4) for k, f in enumerate(found)])


def test_a_small_budget_costs_as_much_as_the_page_on_epsilon_says(league: pd.DataFrame) -> None:
    """AUC at epsilon 1 against 16, of the sets by name, of the large ones and of the others."""
    ours = league[(league["method"] == "ours") & (league["task"] == "classes")]
    means = ours.pivot_table(index="set", columns="epsilon", values="auc")
    lower, records = means[16.0] - means[1.0], ours.groupby("set")["records"].max()
    named = ["student_por", "diabetes_pima", "trauma", "bodyfat"]
    for name in named:
        assert figures("epsilon", name) == [[records[name], round(lower[name], 2)]]
    large = records >= 3000
    assert large.sum() == 12 and lower[large].max() <= 0.054
    others = ~large & ~records.index.isin(named)
    assert figures("epsilon", "five other sets") == [[550, 1_500, round(lower[others].max(), 2)]]
    assert others.sum() == 5 and records[others].between(550, 1500).all()


def test_the_page_on_forests_has_the_league_s_figures(league: pd.DataFrame) -> None:
    """AUC at epsilon 1 and 4, of each set and method."""
    methods = ["ours", "ours, masked", "DP-EBM", "S-BDT", "logistic"]
    means = (
        league[league["task"] == "classes"]
        .groupby(["set", "method", "epsilon"])["auc"]
        .mean()
        .round(3)
    )
    for name in ("bank_marketing", "electricity", "kin8nm", "magic_telescope", "sulfur"):
        told = max(figures("forest", name), key=len)
        assert told == [means[name, method, e] for method in methods for e in (1.0, 4.0)]


def test_the_page_on_forests_has_the_share_of_raw_cells() -> None:
    """Read verbatim out of ten trees, and by chance."""
    shares = results("forest_values").pivot_table(
        index="row", columns="column", values="ours", aggfunc="first"
    )
    rows = {"breast cancer": "breast_cancer_wdbc", "diabetes": "diabetes_pima"}
    text = (ROOT / "docs/forest.md").read_text(encoding="utf-8")
    told = re.findall(
        r"^\| ([\w ]+) \| `(\w+)`(, interpolated)? \| (\S+) \((\S+)\)", text, re.MULTILINE
    )
    assert len(told) == 6
    for name, policy, kind, share, chance in told:
        cells = shares.loc[f"{rows[name]}, {policy}{kind}"]
        verbatim = "cells that stand in the sketches"
        assert [float(share), float(chance)] == [
            round(float(str(cells[column])), 2) for column in (verbatim, f"{verbatim}, by chance")
        ]


def test_the_page_on_rulefit_has_the_coverage_of_intervals() -> None:
    """Mean, least and most of the settings, and how many lie within .87 to .93, below and above."""
    rows = results("private_intervals")
    kinds = {
        "coefficients, same": "coefficients, same",
        "predictions, truth": "predictions, truth",
        "risks of score cards, truth": "score cards, truth",
        "a forest's shapes, same": "forest's shapes, same",
        "a forest's importances, truth": "forest's importances, truth",
    }
    for told, kind in kinds.items():
        found = rows[(rows["learner"] == kind) & (rows["metric"].astype(float) == 1)]["value"]
        counts = [found.between(0.87, 0.93).sum(), (found < 0.87).sum(), (found > 0.93).sum()]
        ends = [round(f, 3) for f in (found.mean(), found.min(), found.max())]
        assert figures("rulefit", told) == [[*ends, *counts]]


def test_the_page_on_rulefit_has_the_losses_of_several_classes() -> None:
    """By set and epsilon, whole, of 20 and of 10 terms; and how often score cards agree."""
    rows = results("private_classes")
    forms = ["whole", "20 terms", "10 terms"]
    losses = rows.pivot_table(
        index=["set", "classes"], columns=["epsilon", "form"], values="log loss"
    )
    for (name, count), own in zip(losses.index.tolist(), losses.to_numpy(), strict=True):
        by_form: dict[Any, float] = dict(zip(losses.columns, own, strict=True))
        wanted = [by_form[e, f] for e in (0.5, 1.0, 4.0, 16.0) for f in forms]
        (told,) = figures("rulefit", f"{name}, {count} classes")
        assert told == pytest.approx(wanted, abs=6e-4)
    cards = rows[rows["form"] == "card"].sort_values("agreement")
    agreement, least = cards["agreement"], cards.iloc[0]
    text = (ROOT / "docs/rulefit.md").read_text(encoding="utf-8")
    ends = f"{agreement.mean():.3f} on average", f"{agreement.min():.3f} at"
    assert all(one.lstrip("0") in " ".join(text.split()) for one in ends)
    assert f"({least['set']} at epsilon {least['epsilon']:g})".replace("0.", ".") in text


def test_the_page_on_personal_trees_has_the_gains_of_all_ways() -> None:
    """Means of six sets, divided at random and by a Dirichlet law."""
    ways, divided = results("genetic_ways"), results("genetic_dirichlet")

    def gain(table: pd.DataFrame, way: str) -> float:
        rows = table[table["table"].str.startswith("Gain in macro F1")]
        rows = rows[(rows["row"] == "mean of 6 sets") & (rows["column"] == way)]
        return round(float(rows["ours"].iloc[0]), 1)

    for told, way in (
        ('`fitness="folds"`', "scored by folds"),
        ("the same, with `include_local_tree=True`", "folds and own tree"),
    ):
        assert figures("genetic-tree", told)[-1] == [gain(ways, way), gain(divided, way)]
