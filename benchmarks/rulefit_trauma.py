"""Trauma (three hospitals, 371 patients): the paper's Section 4 beside Bayesian Federated Inference.

    PRIVFED_DATA=... python benchmarks/rulefit_trauma.py --splits 50

Each hospital's patients are split 70/30; both learners go through gates under their `published`
policies. Then one model of all patients: variable importances and the top rules as in Table 1.
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
        Column("sex", "category", categories=("0", "1")),
        Column("age", "number", 0, 100),
        Column("ISS", "integer", 1, 75),
        Column("GCS", "integer", 3, 15),
    ),
    Column("mortality", "integer", 0, 1),
)


def fitted(learner: Any, train: pd.DataFrame, seed: int) -> Any:
    gates = LocalDisclosure.from_frame(
        train, "mortality", "hospital", schema=SCHEMA, policy=learner.published(), seed=seed
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
        ("bfi", BayesianInference()),
    ):
        model = fitted(learner, train, seed)
        row[name] = float(roc_auc_score(test["mortality"], model.predict_proba(test)[:, 1]))
        for covariate, importance in zip(SCHEMA.names, model.feature_importances_, strict=True):
            row[f"{name} {covariate}"] = float(importance)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=50)
    chosen = parser.parse_args()
    frame = pd.read_csv(DATA / "trauma.csv")
    table = pd.DataFrame([one_split(frame, seed) for seed in range(chosen.splits)])
    print(table.agg(["mean", "median", "std"]).T.round(4).to_string())
    gain = table["rulefit"] - table["bfi"]
    print(f"AUC ratio {table['rulefit'].mean() / table['bfi'].mean():.4f}, ", end="")
    print(f"mean difference {gain.mean():.4f}, standard error {gain.sem():.4f}")
    model = fitted(RuleFitClassifier(random_state=0), frame, 0)
    print(dict(zip(SCHEMA.names, np.round(model.feature_importances_, 3).tolist(), strict=True)))
    print(model.table(8, least_support=0.1).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
