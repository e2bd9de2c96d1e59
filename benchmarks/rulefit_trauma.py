"""Trauma (three hospitals, 371 patients): the paper's Section 4 beside Bayesian Federated Inference.

    PRIVFED_DATA=... python benchmarks/rulefit_trauma.py --splits 50

Each hospital's patients are split 70/30; both learners go through gates under their `published`
policies. Then models of all patients: variable importances and the top rules as in Table 1
(`--splits 0` prints these alone). "paper" has the settings that the paper prints.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import RuleFitClassifier
from privfed.learners.baselines import BayesianInference

DATA = Path(os.environ.get("PRIVFED_DATA", Path(__file__).parents[2] / "shared" / "data"))
SCHEMA = Schema(
    (
        Column("sex", "category", categories=("0", "1"), description="0 male, 1 female"),
        Column("age", "number", 0, 100),
        Column("ISS", "integer", 1, 75),
        Column("GCS", "integer", 3, 15),
    ),
    Column("mortality", "integer", 0, 1),
)


def fitted(learner: Any, train: pd.DataFrame, seed: int) -> Any:
    gates = LocalDisclosure.from_frame(
        train, "mortality", client="hospital", schema=SCHEMA, policy=learner.published(), seed=seed
    )
    return learner.fit(gates)


def one_split(frame: pd.DataFrame, seed: int) -> dict[str, float]:
    parts = [
        train_test_split(own, test_size=0.3, random_state=seed)
        for _, own in frame.groupby("hospital")
    ]
    train, test = (pd.concat(side) for side in zip(*parts, strict=True))
    row = {}
    for name, learner in (
        ("rulefit", RuleFitClassifier(random_state=seed)),
        ("paper", RuleFitClassifier.paper(random_state=seed)),
        ("bfi", BayesianInference()),
    ):
        model = fitted(learner, train, seed)
        row[name] = float(roc_auc_score(test["mortality"], model.predict_proba(test)[:, 1]))
        row[f"{name} rules"] = len(getattr(model, "rules_", []))
        for covariate, importance in zip(SCHEMA.names, model.feature_importances_, strict=True):
            row[f"{name} {covariate}"] = float(importance)
    return row


def paired(table: pd.DataFrame, name: str) -> str:
    gain = table[name] - table["bfi"]
    ratio = table[name].mean() / table["bfi"].mean()
    return (
        f"{name:<8} AUC {table[name].mean():.4f}, ratio to BFI {ratio:.4f}, "
        f"mean difference {gain.mean():+.4f}, standard error {np.std(gain, ddof=1) / len(gain) ** 0.5:.4f}"
    )


def top_rules(model: RuleFitClassifier, rows: int) -> str:
    """The paper's Table 1: the most important rules with support of at least a tenth."""
    table = model.table(least_support=0.1)
    rules = table[~table["term"].str.startswith("linear: ")].head(rows)
    named = rules.rename(columns={"term": "rule", "exp_coefficient": "exp(coef.)"})
    named["importance"] = (named["importance"] * 100 / named["importance"].max()).round()
    chosen = named[["rule", "exp(coef.)", "importance", "support"]]
    return chosen.round(2).to_string(index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=50)
    parser.add_argument("--rules", type=int, default=8, help="rows of the table of rules")
    chosen = parser.parse_args()
    frame = pd.read_csv(DATA / "trauma.csv")
    if chosen.splits:
        table = pd.DataFrame([one_split(frame, seed) for seed in range(chosen.splits)])
        print(table.agg(["mean", "median", "std"]).T.round(4).to_string())
        print(paired(table, "rulefit"), paired(table, "paper"), sep="\n")
    for name, learner in (
        ("defaults", RuleFitClassifier(random_state=0)),
        ("the paper's settings", RuleFitClassifier.paper(random_state=0)),
    ):
        model = fitted(learner, frame, 0)
        importances = zip(SCHEMA.names, np.round(model.feature_importances_, 2), strict=True)
        print(
            f"\nAll patients, {name}: {len(model.rules_)} rules; importance of variables ", end=""
        )
        print(", ".join(f"{covariate} {value:g}" for covariate, value in importances))
        print(top_rules(model, chosen.rules))


if __name__ == "__main__":
    main()
