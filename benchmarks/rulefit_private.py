"""`private` RuleFit over five clients beside DP-EBM on the pooled records, test AUC.

    pip install interpret-core        # the peer; a benchmark's dependency only
    PRIVFED_DATA=... python benchmarks/rulefit_private.py --seeds 5 --out private.csv

Both get the same bounds (the smallest and largest value of the whole data set, taken as public), the
same (epsilon, delta), the same splits. DP-EBM is centralized: one noise; RuleFit's five clients add
five.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import RuleFitClassifier

DATA = Path(os.environ.get("PRIVFED_DATA", Path(__file__).parents[2] / "shared" / "data"))
CLIENTS, DELTA = 5, 1e-5


def load(name: str) -> pd.DataFrame:
    """A table with the binary target in column y."""
    frame = pd.read_csv(DATA / f"{name}.csv")
    if name == "magic_telescope":
        return frame.assign(y=(frame.pop("class") == "h").astype(int))
    if name == "california":
        value = frame.pop("medianHouseValue")
        return frame.assign(y=(value > value.median()).astype(int))
    return frame.rename(columns={"malignant": "y"})


def schema_of(frame: pd.DataFrame) -> Schema:
    inputs = frame.drop(columns="y")
    columns = [Column(c, "number", float(inputs[c].min()), float(inputs[c].max())) for c in inputs]
    return Schema(tuple(columns), Column("y", "integer", 0, 1))


def ours(train: pd.DataFrame, test: pd.DataFrame, schema: Schema, epsilon: str, seed: int) -> float:
    model = RuleFitClassifier(random_state=seed)
    rng = np.random.default_rng(seed)
    split = train.assign(client=[f"c{k}" for k in rng.integers(0, CLIENTS, len(train))])
    gates = LocalDisclosure.from_frame(
        split, "y", "client", schema=schema, policy=model.private(epsilon, str(DELTA)), seed=seed
    )
    model.fit(gates)
    assert (gates.budget()["spent"] <= float(epsilon)).all()
    return float(roc_auc_score(test["y"], model.decision_function(test)))


def peer(train: pd.DataFrame, test: pd.DataFrame, schema: Schema, epsilon: str, seed: int) -> float:
    from interpret.privacy import DPExplainableBoostingClassifier

    bounds = {number: column.bounds for number, column in enumerate(schema.features)}
    model = DPExplainableBoostingClassifier(
        epsilon=float(epsilon), delta=DELTA, random_state=seed, privacy_bounds=bounds, n_jobs=1
    )
    names = list(schema.names)
    model.fit(train[names].to_numpy(), train["y"].to_numpy())
    chance = model.predict_proba(test[names].to_numpy())[:, 1]
    return float(roc_auc_score(test["y"], chance))


def run(name: str, epsilons: list[str], seeds: int) -> list[dict[str, Any]]:
    frame = load(name)
    schema = schema_of(frame)
    rows = []
    for epsilon in epsilons:
        for seed in range(seeds):
            train, test = train_test_split(
                frame, test_size=0.2, random_state=seed, stratify=frame["y"]
            )
            asked = (train, test, schema, epsilon, seed)
            found = {"rulefit": ours(*asked), "dp_ebm": peer(*asked)}
            rows.append({"data": name, "epsilon": epsilon, "seed": seed, **found})
        means = pd.DataFrame(rows).query("epsilon == @epsilon")[["rulefit", "dp_ebm"]].mean()
        print(name, epsilon, means.round(4).to_dict(), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", nargs="+", default=["breast_cancer_wdbc", "magic_telescope", "california"]
    )
    parser.add_argument("--epsilons", nargs="+", default=["1", "2", "4", "8"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("rulefit_private.csv"))
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = [row for name in chosen.data for row in run(name, chosen.epsilons, chosen.seeds)]
    table = pd.DataFrame(rows)
    table.to_csv(chosen.out, index=False)
    summary = table.groupby(["data", "epsilon"], sort=False)[["rulefit", "dp_ebm"]].agg(
        ["mean", "std"]
    )
    print(summary.round(4).to_string())


if __name__ == "__main__":
    main()
