"""The simulations of Wan, Tanioka and Shimokawa 2026, Section 3.1: one command, table and plot.

    python benchmarks/rulefit_simulations.py --repetitions 20 --out simulations

Ten covariates N(0, 1), 1,000 records to learn from and 1,000 to test on, two models, three scenarios
(number of clients, unequal sizes, unequal prevalence). "independent" is centralized RuleFit made of
scikit-learn's trees and liblinear alone, so that the comparison is not circular. Federated RuleFit runs through gates and
ledgers under its `published` policy, epsilon 1 for each histogram. Scores are differences to
centralized RuleFit on the same records; local RuleFit's are means over clients. Cells that the folder
already holds are not run again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.lines import Line2D
from result_rows import arguments, write_rows
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import RuleFitClassifier
from privfed.learners.baselines import BayesianInference, LocalForests
from privfed.study.papers.simulations import (
    NAMES,
    RECORDS,
    SCHEMA,
    cells,
    draw,
    federated,
    scored,
    scores,
)

METHODS = ("federated", "independent", "local", "bfi", "forest")
METRICS = ("auc", "accuracy", "f1")


def local_scores(train: pd.DataFrame, test: pd.DataFrame, seed: int) -> dict[str, float]:
    each = []
    for _, part in train.groupby("client"):
        bare = UngatedDisclosure.from_frame(part.drop(columns="client"), SCHEMA)
        each.append(scores(RuleFitClassifier(random_state=seed).fit(bare), test))
    return {metric: float(np.mean([one[metric] for one in each])) for metric in METRICS}


def central_scores(train: pd.DataFrame, test: pd.DataFrame, seed: int) -> dict[str, float]:
    bare = UngatedDisclosure.from_frame(train.drop(columns="client"), SCHEMA)
    return scores(RuleFitClassifier(random_state=seed).fit(bare), test)


def independent_scores(train: pd.DataFrame, test: pd.DataFrame, seed: int) -> dict[str, float]:
    """Centralized RuleFit without any of this project's code: scikit-learn's trees and liblinear.

    333 boosted trees of four leaves, learning rate 0.01, every node but the roots a rule, winsorised
    linear terms, the L1 logistic regression with the same penalty of the mean loss.
    """
    x, y = train[NAMES].to_numpy(), train["y"].to_numpy()
    boosted = GradientBoostingClassifier(
        n_estimators=333, learning_rate=0.01, max_leaf_nodes=4, subsample=0.3,
        min_samples_leaf=5, random_state=seed,
    ).fit(x, y)  # fmt: skip
    lower, upper = np.quantile(x, [0.025, 0.975], axis=0)
    deviation = np.clip(x, lower, upper).std(axis=0)

    def terms(values: np.ndarray) -> np.ndarray:
        nodes = [
            tree.decision_path(values.astype(np.float32)).toarray()[:, 1:]
            for tree in boosted.estimators_[:, 0]
        ]
        linear = 0.4 * np.clip(values, lower, upper) / deviation
        return np.column_stack([*nodes, linear]).astype(float)

    trained = terms(x)
    kept = np.unique(trained, axis=1, return_index=True)[1]
    model = LogisticRegression(
        C=1 / (0.005 * len(x)), l1_ratio=1, solver="liblinear", intercept_scaling=100,
        random_state=seed,
    ).fit(trained[:, kept], y)  # fmt: skip
    chance = model.predict_proba(terms(test[NAMES].to_numpy())[:, kept])[:, 1]
    return scored(test["y"], chance)


def repetition(
    model: int, number: int, known: set[tuple[int, str, str, int]]
) -> Iterator[list[dict[str, Any]]]:
    """The rows of each cell that is not known yet."""
    rng = np.random.default_rng([model, number])
    test = draw(model, RECORDS, rng)
    shared, peer = None, None
    for scenario, setting, train in cells(model, rng):
        if (model, scenario, setting, number) in known:
            continue
        if scenario == "prevalence" or shared is None:
            shared = central_scores(train, test, number)
            peer = independent_scores(train, test, number)
        assert peer is not None
        learner = RuleFitClassifier(random_state=number)
        found = {
            "independent": peer,
            "federated": scores(federated(train, learner, number), test),
            "local": local_scores(train, test, number),
            "bfi": scores(federated(train, BayesianInference(), number), test),
            "forest": scores(federated(train, LocalForests(), number), test),
        }
        cell = {"model": model, "scenario": scenario, "setting": setting, "repetition": number}
        central = {f"central_{metric}": shared[metric] for metric in METRICS}
        yield [
            {
                **cell,
                "method": method,
                **{metric: found[method][metric] - shared[metric] for metric in METRICS},
                **central,
            }
            for method in METHODS
        ]


def summary(table: pd.DataFrame, metric: str = "auc") -> pd.DataFrame:
    """Median difference to centralized RuleFit by cell and method."""
    keys = ["model", "scenario", "setting"]
    medians = table.pivot_table(
        index=keys, columns="method", values=metric, aggfunc="median", sort=False
    )
    medians["central"] = table.groupby(keys, sort=False)[f"central_{metric}"].median()
    return medians[["central", *METHODS]]


def plot(table: pd.DataFrame, path: Path, metric: str) -> None:
    figure, axes = plt.subplots(2, 3, figsize=(15, 8), sharey="row")
    for row, model in enumerate((1, 2)):
        for axis, scenario in zip(axes[row], ("clients", "sizes", "prevalence"), strict=True):
            part = table[(table["model"] == model) & (table["scenario"] == scenario)]
            if scenario == "sizes":
                same = (table["model"] == model) & (table["setting"] == "M=5")
                part = pd.concat([table[same].assign(setting="balanced"), part])
            boxes(axis, part, metric)
            axis.set_title(f"Model {model}, {scenario}")
        axes[row, 0].set_ylabel(f"{metric} minus centralized RuleFit's")
    axes[0, 0].legend(
        handles=[Line2D([], [], color=f"C{k}", label=m) for k, m in enumerate(METHODS)]
    )
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)


def boxes(axis: Any, part: pd.DataFrame, metric: str) -> None:
    settings = list(dict.fromkeys(part["setting"]))
    for k, method in enumerate(METHODS):
        own = part[part["method"] == method]
        values = [own.loc[own["setting"] == setting, metric] for setting in settings]
        at = np.arange(len(settings)) + 0.17 * (k - 2)
        drawn = axis.boxplot(
            values, positions=at, widths=0.14, patch_artist=True, manage_ticks=False
        )
        for box in drawn["boxes"]:
            box.set_facecolor(f"C{k}")
    axis.axhline(0, color="grey", linestyle="--", linewidth=1)
    axis.set_xticks(range(len(settings)), settings)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--models", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path, default=Path("simulations"))
    chosen = parser.parse_args()
    matplotlib.use("Agg")
    chosen.out.mkdir(parents=True, exist_ok=True)
    earlier = chosen.out / "scores.csv"
    keys = ["model", "scenario", "setting", "repetition"]
    table = pd.read_csv(earlier) if earlier.exists() else pd.DataFrame(columns=keys)
    known = set(table[keys].itertuples(index=False, name=None))
    start = time.perf_counter()
    for number, model in product(range(chosen.repetitions), chosen.models):
        for rows in repetition(model, number, known):
            table = pd.concat([table, pd.DataFrame(rows)], ignore_index=True)
            write_rows(table, earlier, [*keys, "method"], seed="repetition")
            cell = " ".join(str(rows[0][key]) for key in keys)
            print(f"{cell}, {time.perf_counter() - start:.0f} s", flush=True)
    for metric in METRICS:
        print(f"{metric}:\n{summary(table, metric).round(4).to_string()}")
        summary(table, metric).to_csv(chosen.out / f"table-{metric}.csv")
        plot(table, chosen.out / f"figure2-{metric}.png", metric)


if __name__ == "__main__":
    main()
