"""How RuleFit finds coefficients: errors, gaps to the optimum and rules, by how the records lie.

    PRIVFED_DATA=... python benchmarks/rulefit_steps.py
    python benchmarks/results_page.py

At most 1,500 records of each set, five clients with records at random, or sorted by the target or by the
first covariate: local steps that go far lead clients that are unlike apart. The defaults were chosen
on the sets of CHOSEN_ON (rounds of gradients on four of them, the rest for averaging) with one split
and one seed; HELD_BACK had no part in it.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from paper_rows import PaperRows
from private_learners import load, schema_of
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from privfed import LocalDisclosure
from privfed.learners import RuleFitClassifier, RuleFitRegressor

CHOSEN_ON = (
    "california", "sulfur", "mortgage", "trauma", "bodyfat", "abalone", "magic_telescope", "diabetes_pima",
)  # fmt: skip
HELD_BACK = (
    "electricity", "breast_cancer_wdbc", "kin8nm", "weather_izmir", "student_por", "banknote",
    "default_credit_card", "delta_elevators",
)  # fmt: skip
#: What is changed of the defaults.
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "40 rounds": {"rounds": 40},
    "160 rounds": {"rounds": 160},
    "averaging, 100 rounds of 5": {"estimation": "averaging", "rounds": 100, "local_steps": 5},
    "averaging, 100 rounds of 20": {"estimation": "averaging", "rounds": 100, "local_steps": 20},
    "penalty 0.01": {"penalty": 0.01},
    "penalty 0.0025": {"penalty": 0.0025},
}
RECORDS, CLIENTS, REFERENCE = 1500, 5, 300


def layouts(train: pd.DataFrame, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Each record's client: at random, and in equal parts of the sorted records."""
    many = len(train)
    yield "at random", np.random.default_rng(seed).integers(0, CLIENTS, many)
    for how, column in (("by target", "y"), ("by first", train.columns[0])):
        order = np.argsort(train[column].to_numpy(), kind="stable")
        yield how, np.argsort(order) * CLIENTS // many


def one(name: str, seed: int) -> Iterator[dict[str, Any]]:
    """All settings on one split, however the records lie."""
    frame, number = load(name)
    frame = frame.sample(min(RECORDS, len(frame)), random_state=seed)
    train, test = train_test_split(frame, test_size=0.2, random_state=seed)
    schema = schema_of(frame, number, 1.0)
    kind = RuleFitRegressor if number else RuleFitClassifier
    for how, client in layouts(train, seed):
        held = train.assign(owner=[f"c{k}" for k in client])
        for setting, changed in SETTINGS.items():
            learner = kind(random_state=seed, trees=100, reference_rounds=REFERENCE, **changed)
            gates = LocalDisclosure.from_frame(
                held, "y", client="owner", schema=schema, policy=learner.published(), seed=seed
            )
            inputs = test[list(schema.names)]
            learner.fit(gates)
            if isinstance(learner, RuleFitRegressor):
                rest = learner.predict(inputs) - test["y"].to_numpy(float)
                error = float(np.sqrt(np.mean(rest**2)) / test["y"].std())
            else:
                error = float(log_loss(test["y"], learner.predict_proba(inputs)[:, 1]))
            found = {"error": error, "gap": learner.gap_, "rules": len(learner.rules_)}
            yield {"set": name, "how": how, "setting": setting, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=[*CHOSEN_ON, *HELD_BACK])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    rows = PaperRows("settings of RuleFit's estimation", f"{seeds[0]} to {seeds[-1]}")
    tables = {
        "error": "Log loss, or RMSE over the target's deviation, on the fifth held out",
        "gap": "Objective above the optimum's",
        "rules": "Rules with a coefficient",
    }
    note = f"at most {RECORDS} records, {CLIENTS} clients, 100 trees each; means of {given.seeds} splits"
    for name in given.data:
        found = pd.DataFrame([row for seed in seeds for row in one(name, seed)])
        means = found.groupby(["set", "how", "setting"], sort=False).mean()
        print(means.round(5).to_string(), flush=True)
        for row in means.reset_index().to_dict("records"):
            where, setting = f"{row['set']}, {row['how']}", str(row["setting"])
            for measure, table in tables.items():
                rows.add(table, where, column=setting, ours=float(row[measure]), note=note)
        rows.write("rulefit_steps")


if __name__ == "__main__":
    main()
