"""Private regression: the fuzzy tree beside a constant, AdaSSP and RuleFit.

    PRIVFED_DATA=... python benchmarks/fuzzy_tree_private.py [--data california kin8nm] [--seeds 2]

RMSE over the target's deviation on held-out fifths, so that a constant which knows the truth has 1.
Five clients, delta 1e-5, the data's own smallest and largest values as public bounds, at most 8,000
rows of each set. The tree and RuleFit add five noises, one by each client; AdaSSP sees the pooled
records and adds one. Writes results/OUT.csv, whose column ``theirs`` is AdaSSP's.

The settings of the tree's private way (shares of rho in policies.py, thresholds in percentiles.py and
shrinkage.py) were chosen on seeds 0 to 3 of abalone, bodyfat, california, delta_elevators,
exam_london_schools, kin8nm, mortgage, space_ga, student_por, sulfur and weather_izmir, and on
abalone with a heavy-tailed target, at epsilon 1, 4 and 8; openfl_xai_5clients was looked at too, and no
set was held back. For a set
that is new, expect a little less; the seeds below are others.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import pandas as pd
from paper_rows import PaperRows
from private_learners import DELTA, adassp, load, rulefit, schema_of
from sklearn.model_selection import train_test_split

from privfed import LocalDisclosure, Schema
from privfed.learners import FuzzyTreeRegressor

SETS = (
    "abalone", "bodyfat", "california", "delta_elevators", "exam_london_schools", "kin8nm",
    "mortgage", "openfl_xai_5clients", "space_ga", "student_por", "sulfur", "weather_izmir",
    "heavy",
)  # fmt: skip
CLIENTS, ROWS = 5, 8_000


def table_of(name: str) -> pd.DataFrame:
    """A set, its rows cut down; ``heavy`` is a thousand of abalone's with a heavy-tailed target."""
    frame, number = load("abalone" if name == "heavy" else name)
    if not number:
        raise SystemExit(f"{name} is no regression set")
    if name == "heavy":
        frame = frame.sample(1000, random_state=1)
        tail = np.random.default_rng(0).standard_t(3, len(frame))
        return frame.assign(y=np.exp(0.15 * frame["y"] + 0.7 * tail))
    return frame.sample(ROWS, random_state=0) if len(frame) > ROWS else frame


def tree(
    train: pd.DataFrame, test: pd.DataFrame, schema: Schema, epsilon: str, seed: int, clients: int
) -> np.ndarray:
    """The fuzzy tree, private end to end."""
    model = FuzzyTreeRegressor()
    owner = np.random.default_rng(seed).integers(0, clients, len(train))
    gates = LocalDisclosure.from_frame(
        train.assign(owner=[f"c{number}" for number in owner]),
        "y",
        client="owner",
        schema=schema,
        policy=model.private(epsilon, DELTA),
        seed=seed,
    )
    model.fit(gates)
    assert (gates.budget()["spent"] <= float(epsilon)).all()
    return model.predict(test[list(schema.names)])


def constant(
    train: pd.DataFrame, test: pd.DataFrame, schema: Schema, epsilon: str, seed: int, clients: int
) -> np.ndarray:
    """The training mean, without noise."""
    return np.full(len(test), float(train["y"].mean()))


LEARNERS = {"constant": constant, "AdaSSP": adassp, "RuleFit": rulefit, "fuzzy tree": tree}


def one(frame: pd.DataFrame, epsilon: str, seed: int, learners: list[str]) -> dict[str, float]:
    """RMSE over the target's deviation, by learner."""
    schema = schema_of(frame, True, 1.0)
    train, test = train_test_split(frame, test_size=0.2, random_state=seed)
    y = test["y"].to_numpy(float)
    told = {name: LEARNERS[name](train, test, schema, epsilon, seed, CLIENTS) for name in learners}
    return {name: float(np.sqrt(np.mean((own - y) ** 2)) / y.std()) for name, own in told.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=list(SETS))
    parser.add_argument("--epsilons", nargs="+", default=["1", "4", "8"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=list(LEARNERS))
    parser.add_argument("--out", default="fuzzy_tree_private")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    learners = list(given.learners)
    last = given.first_seed + given.seeds - 1
    rows = PaperRows("private regression", f"{given.first_seed} to {last}")
    for name in given.data:
        frame = table_of(name)
        for epsilon in given.epsilons:
            found: list[dict[str, Any]] = [
                one(frame, epsilon, seed, learners) for seed in range(given.first_seed, last + 1)
            ]
            mean, spread = pd.DataFrame(found).mean(), pd.DataFrame(found).std()
            print(f"{name:22}{epsilon:>4}  {mean.round(3).to_dict()}", flush=True)
            for learner in learners:
                rows.add(f"epsilon {epsilon}", name, column=learner, theirs=float(mean["AdaSSP"]) if "AdaSSP" in mean else "",
                         ours=float(mean[learner]), spread=float(spread[learner]),
                         note="RMSE over the target's deviation; spread over splits")  # fmt: skip
        rows.write(given.out)
    print(rows.write(given.out))


if __name__ == "__main__":
    main()
