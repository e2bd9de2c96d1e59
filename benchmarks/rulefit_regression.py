"""Squared loss: federated RuleFit beside the centralized one and others on pooled records, test R2.

    PRIVFED_DATA=... python benchmarks/rulefit_regression.py --seeds 2

California house values over five clients that hold different regions (longitude, so that local models
differ), 80/20 splits. `published` and `private` at epsilon 4; scikit-learn's gradient boosting with as
many trees (333 of 8 leaves, shrinkage 0.1) and ridge regression stand for what is in reach.
"""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
from result_rows import arguments
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from privfed import Column, LocalDisclosure, Policy, Schema
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import RuleFitRegressor

DATA = Path(os.environ.get("PRIVFED_DATA", Path(__file__).parents[2] / "shared" / "data"))
TARGET, CLIENTS = "medianHouseValue", 5


def schema_of(frame: pd.DataFrame) -> Schema:
    columns = {
        str(c): Column(str(c), "number", float(frame[c].min()), float(frame[c].max()))
        for c in frame
    }
    target = columns.pop(TARGET)
    return Schema(tuple(columns.values()), target)


def regions(frame: pd.DataFrame) -> pd.DataFrame:
    codes = pd.qcut(frame["longitude"], CLIENTS, labels=False)
    return frame.assign(client=[f"c{code}" for code in codes])


def gated(train: pd.DataFrame, schema: Schema, policy: Policy, seed: int) -> RuleFitRegressor:
    gates = LocalDisclosure.from_frame(
        regions(train), TARGET, client="client", schema=schema, policy=policy, seed=seed
    )
    return RuleFitRegressor(random_state=seed, max_terms=None).fit(gates)


def one_split(frame: pd.DataFrame, schema: Schema, seed: int) -> dict[str, float]:
    train, test = train_test_split(frame, test_size=0.2, random_state=seed)
    inputs = train.drop(columns=TARGET)
    pooled = UngatedDisclosure.from_frame(train.assign(client="all"), schema, "client")
    learner = RuleFitRegressor(random_state=seed)
    local = UngatedDisclosure.from_frame(regions(train).query("client == 'c0'"), schema, "client")
    models = {
        "federated": gated(train, schema, learner.published(), seed),
        "federated, penalty 0.0005": RuleFitRegressor(alpha=0.0005, random_state=seed).fit(
            UngatedDisclosure.from_frame(regions(train), schema, "client")
        ),
        "centralized": RuleFitRegressor(random_state=seed).fit(pooled),
        "private, epsilon 4": gated(train, schema, learner.private(4), seed),
        "one client alone": RuleFitRegressor(random_state=seed).fit(local),
        "boosting": GradientBoostingRegressor(
            n_estimators=333, max_leaf_nodes=8, random_state=seed
        ).fit(inputs, train[TARGET]),
        "ridge": make_pipeline(StandardScaler(), RidgeCV()).fit(inputs, train[TARGET]),
    }
    wanted, asked = test[TARGET], test.drop(columns=TARGET)
    return {name: float(r2_score(wanted, model.predict(asked))) for name, model in models.items()}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    chosen = parser.parse_args()
    frame = pd.read_csv(DATA / "california.csv").astype(float)
    schema = schema_of(frame)
    rows = [one_split(frame, schema, seed) for seed in range(chosen.seeds)]
    print(pd.DataFrame(rows).agg(["mean", "std"]).T.round(4).to_string())
    print(f"{len(frame)} records, {CLIENTS} clients, {chosen.seeds} splits; test R2")


if __name__ == "__main__":
    main()
