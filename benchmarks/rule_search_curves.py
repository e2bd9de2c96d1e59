"""Coverage and precision of rule searches, like Figures 6 to 9 of DP-RuL: tables and pictures.

    python benchmarks/rule_search_curves.py all --out DIR            # everything below
    python benchmarks/rule_search_curves.py curves --out DIR         # the tables, as CSV
    python benchmarks/rule_search_curves.py plot --out DIR           # the pictures, from the tables
    python benchmarks/rule_search_curves.py least                    # by level: the least epsilon
    python benchmarks/rule_search_curves.py check                    # simulation beside real gates

What is searched and how: :mod:`privfed.study.papers.rule_search`, which `privfed reproduce` runs too.
``check`` runs cells through a gate, too. Settings were chosen on population 1 of the profiles icu and
sepsis; ``--population`` draws another one, number 11 unless given.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

from privfed.engines.cohort import CohortDisclosure
from privfed.learners import RuleSearch
from privfed.learners.rule_search.asking import CohortSession
from privfed.learners.rule_search.generator import PROFILES
from privfed.learners.rule_search.population_rules import coverage
from privfed.study.papers.rule_search import (
    EVERYBODY,
    FIXED,
    LABELS,
    LEVELS,
    TOTALS,
    cell,
    grid,
    population,
    search,
    valid,
)
from privfed.study.papers.simulated_asking import SimulatedAsking, Truths

mpl.use("Agg")
import matplotlib.pyplot as plt

CAPTION = "simulated populations with the published marginals; mean ± sd over {runs} runs"


def measure_curves(args: argparse.Namespace) -> None:
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    totals = [int(total) for total in args.totals.split(",")]
    methods = tuple(args.methods.split(","))
    for profile in args.profiles.split(","):
        truths = population(profile, args.population)
        for figure in args.figures.split(","):
            rows = []
            for method, epsilon, nu, theta in grid(figure, totals, methods):
                asked = (truths, profile, method, epsilon, nu, theta)
                rows += [cell(*asked, seed)[0] for seed in range(args.runs)]
                print(*list(rows[-1].values())[:5], "f1", round(rows[-1]["f1"], 3), flush=True)
                pd.DataFrame(rows).to_csv(folder / f"{figure}-{profile}.csv", index=False)
        if "epsilon" in args.figures and methods == EVERYBODY:
            measure_queries(folder, truths, profile)


def measure_queries(folder: Path, truths: Truths, profile: str) -> None:
    """Epsilon of each question of one run (Figure 7)."""
    rows = []
    for method in EVERYBODY:
        _, asked = cell(truths, profile, method, FIXED["adaptive1000"], 0.01, 0.05, 0)
        assert isinstance(asked, CohortSession)
        rows += [(profile, method, i, step.epsilon) for i, step in enumerate(asked.steps, 1)]
    frame = pd.DataFrame(rows, columns=["profile", "method", "query", "epsilon"])
    frame.to_csv(folder / f"queries-{profile}.csv", index=False)


# --- pictures ----------------------------------------------------------------------------------


def read(folder: Path, figure: str) -> pd.DataFrame:
    frames = [pd.read_csv(path) for path in sorted(folder.glob(f"{figure}-*.csv"))]
    if not frames:
        raise SystemExit(f"{folder} holds no {figure}-*.csv; run `curves` with that figure first")
    return pd.concat(frames)


def draw(table: pd.DataFrame, x: str, label: str, title: str, target: Path) -> None:
    """Coverage above precision, a column for each profile, the legend below."""
    profiles, scores = sorted(table["profile"].unique()), ("coverage", "precision")
    figure, axes = plt.subplots(
        2,
        len(profiles),
        figsize=(max(7, 4.2 * len(profiles)), 7),
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    for column, profile in enumerate(profiles):
        rows = table[table["profile"] == profile]
        for method in [name for name in LABELS if name in set(rows["method"])]:
            for row, score in enumerate(scores):
                spread = rows[rows["method"] == method].groupby(x)[score].agg(["mean", "std"])
                axes[row, column].errorbar(
                    spread.index, spread["mean"], spread["std"].fillna(0.0),
                    label=LABELS[method], marker="o", markersize=3.5, capsize=3, linewidth=1.3,
                )  # fmt: skip
        axes[0, column].set_title(f"{profile} (N = {PROFILES[profile].people:,})")
        axes[1, column].set(xscale="log", xlabel=label)
        values = sorted(table[x].unique())
        axes[1, column].set_xticks(values, [f"{value:g}" for value in values], rotation=45)
        axes[1, column].set_xticks([], minor=True)
    axes[0, 0].set(ylabel="coverage", ylim=(-0.01, None))
    axes[1, 0].set(ylabel="precision", ylim=(-0.03, 1.05))
    finish(figure, axes, f"{title}\n{CAPTION.format(runs=table['run'].nunique())}", target)


def draw_queries(table: pd.DataFrame, target: Path) -> None:
    """Epsilon of each question, in the order of asking (Figure 7)."""
    profiles = sorted(table["profile"].unique())
    figure, axes = plt.subplots(
        1, len(profiles), figsize=(4.6 * len(profiles), 4.6), sharey=True, squeeze=False
    )
    for axis, profile in zip(axes[0], profiles, strict=True):
        rows = table[table["profile"] == profile]
        for method in [name for name in LABELS if name in set(rows["method"])]:
            line = rows[rows["method"] == method]
            axis.plot(
                line["query"], line["epsilon"], ".", markersize=2.5, alpha=0.6, label=LABELS[method]
            )
        axis.set(yscale="log", xlabel="question, in order", title=profile)
    axes[0, 0].set(ylabel="epsilon of the question (nats)")
    total = FIXED["adaptive1000"]
    title = f"Budget per question of one search of {total} nats; simulated populations"
    finish(figure, axes, title, target)


def finish(figure: Any, axes: np.ndarray, title: str, target: Path) -> None:
    """Grid, title above and legend below the axes."""
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    handles, names = axes[0, 0].get_legend_handles_labels()
    beside = 4 if figure.get_figwidth() > 11 else 2
    legend = figure.legend(handles, names, loc="lower center", ncols=beside, frameon=False)
    for handle in legend.legend_handles:
        if hasattr(handle, "set_markersize"):
            handle.set_markersize(7)
    figure.suptitle(title)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(target, dpi=110)
    plt.close(figure)


def plot(args: argparse.Namespace) -> None:
    folder = Path(args.out)
    whole, once = read(folder, "epsilon"), read(folder, "once")
    everybody = whole[whole["method"] != "levels"]
    budget = "epsilon of an individual, whole search (nats)"
    title = "Everybody answers every question: coverage and precision, nu = 1 %, theta = 0.05"
    draw(everybody, "epsilon", budget, title, folder / "figure6-everybody.png")
    title = "By level, in parts, by sampled rules: coverage and precision, nu = 1 %"
    units = pd.concat([whole[whole["method"] == "levels"], once])
    draw(units, "epsilon", "epsilon of one unit (nats)", title, folder / "figure6-units.png")
    draw_queries(read(folder, "queries"), folder / "figure7-budget.png")
    fixed = ", ".join(f"{LABELS[m]}: {e} nats" for m, e in FIXED.items())
    nus = read(folder, "nu")
    draw(nus, "nu", "nu: share that makes a rule valid", fixed, folder / "figure8-nu.png")
    title = f"Adaptive search of {FIXED['adaptive1000']} nats"
    label = "theta: probability of wrongly ignoring"
    draw(read(folder, "theta"), "theta", label, title, folder / "figure9-theta.png")
    summary(pd.concat([whole, once]), folder / "summary.csv")


def summary(table: pd.DataFrame, target: Path) -> None:
    """Mean and standard deviation of each cell, printed and written."""
    scores = table.groupby(["profile", "method", "epsilon"])[["coverage", "precision", "f1"]]
    spread = scores.agg(["mean", "std"]).round(4)
    spread.columns = [" ".join(pair) for pair in spread.columns]
    spread.to_csv(target)
    print(spread.to_string())


# --- single figures ----------------------------------------------------------------------------


def measure_least(args: argparse.Namespace) -> None:
    """By level on the sepsis profile: the least epsilon for coverage 0.8 and precision 0.9."""
    totals = [Fraction(half, 4) for half in range(10, 26)]
    scores: dict[Fraction, list[tuple[float, float]]] = {total: [] for total in totals}
    for seed in range(args.population, args.population + args.populations):
        truths = population("sepsis", seed)
        for total in totals:
            for run in range(args.runs):
                asking = SimulatedAsking(truths, total, 100 * seed + run)
                found = search(asking, "levels", total, 0.01, 0.05, run, LEVELS["sepsis"])
                right = coverage([one.structure for one in found], valid(truths.book, 0.01))
                scores[total].append(right)
    least = None
    for total in reversed(totals):
        mean, sd = np.mean(scores[total], axis=0), np.std(scores[total], axis=0, ddof=1)
        print(f"epsilon {float(total):5.2f}: coverage {mean[0]:.3f} +- {sd[0]:.3f}, "
              f"precision {mean[1]:.3f} +- {sd[1]:.3f}")  # fmt: skip
        if mean[0] < 0.8 or mean[1] < 0.9:
            break
        least = total
    runs = args.populations * args.runs
    print(f"least epsilon of a rule over {runs} runs: {None if least is None else float(least)}")


def measure_check(args: argparse.Namespace) -> None:
    """The same cells through real gates and in simulation, on the ICU profile."""
    cells = (("equal1000", 1000), ("adaptive1000", 1000), ("adaptive1000", 300), ("levels", 8))
    truths = population("icu", args.population)
    for method, epsilon in cells:
        both = []
        for simulated in (True, False):
            rows = [one_run(truths, method, epsilon, seed, simulated) for seed in range(args.runs)]
            both.append((np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1)))
        for name, (mean, sd) in zip(("simulated", "through a gate"), both, strict=True):
            print(f"{method} at {epsilon}, {name}: coverage {mean[0]:.4f} +- {sd[0]:.4f}, "
                  f"precision {mean[1]:.3f} +- {sd[1]:.3f}", flush=True)  # fmt: skip


def one_run(
    truths: Truths, method: str, epsilon: int, seed: int, simulated: bool
) -> tuple[float, float]:
    """Coverage and precision of one search, in simulation or through a gate."""
    budget, book = Fraction(epsilon), truths.book
    unit = "levels" if method == "levels" else "adaptive"
    policy = RuleSearch(unit).private(epsilon)
    asking = (
        SimulatedAsking(truths, budget, seed)
        if simulated
        else CohortSession(CohortDisclosure.of(book, policy, seed=seed), book.grammar, book.people)
    )
    found = search(asking, method, budget, 0.01, 0.05, seed, LEVELS["icu"])
    return coverage([one.structure for one in found], valid(book, 0.01))


def everything(args: argparse.Namespace) -> None:
    measure_curves(args)
    plot(args)


WHAT: dict[str, Callable[[argparse.Namespace], None]] = {
    "all": everything,
    "curves": measure_curves,
    "plot": plot,
    "least": measure_least,
    "check": measure_check,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=sorted(WHAT))
    parser.add_argument("--profiles", default=",".join(PROFILES))
    parser.add_argument("--figures", default="epsilon,nu,theta,once")
    parser.add_argument("--methods", default=",".join(EVERYBODY), help="of `epsilon`")
    parser.add_argument("--totals", default=",".join(map(str, TOTALS)), help="of `epsilon`")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--population", type=int, default=11, help="seed of the population")
    parser.add_argument("--populations", type=int, default=3, help="how many, of `least`")
    parser.add_argument("--out", default="rule_search")
    args = parser.parse_args()
    WHAT[args.what](args)


if __name__ == "__main__":
    main()
