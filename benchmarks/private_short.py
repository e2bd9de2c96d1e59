"""Short private RuleFit beside the whole engine: what twenty, ten, or ten stable terms lose.

    PRIVFED_DATA=... python benchmarks/private_short.py --data magic_telescope california --seeds 3

One engine is fitted for each split over five clients (numbers are cut at the median, but for
``--numbers``), and every form is written from that one model, so that differences are of the form alone.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from private_learners import DELTA, gates_of, load, schema_of
from result_rows import PRIVATE_KEYS, arguments, write_rows
from scipy.special import expit
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split

from privfed.learners import RuleFitClassifier, private
from privfed.learners.rulefit.model import RuleEnsemble
from privfed.learners.rulefit.private_way import as_rules
from privfed.learners.rulefit.short import shortened
from privfed.tables.records import Records

#: Most terms of each form, and whether it is stable.
FORMS = {"20 terms": (20, False), "10 terms": (10, False), "10 stable terms": (10, True)}


def scores(ensemble: RuleEnsemble, x: np.ndarray, y: np.ndarray, number: bool) -> dict[str, float]:
    """AUC and log loss; of a number the RMSE in deviations of the target."""
    told = ensemble.scores(x)
    terms = float(np.count_nonzero(ensemble.weights[1:]))
    if number:
        return {"rmse": float(np.sqrt(np.mean((y - told) ** 2)) / np.std(y)), "terms": terms}
    return {
        "auc": float(roc_auc_score(y, told)),
        "log loss": float(log_loss(y, expit(told))),
        "terms": terms,
    }


def one(frame: pd.DataFrame, number: bool, epsilon: str, seed: int) -> list[dict[str, Any]]:
    """The whole engine's scores on one split, and what each form adds to them."""
    schema = schema_of(frame, number, 1.0)
    train, test = train_test_split(frame, test_size=0.2, random_state=seed)
    policy = RuleFitClassifier().private(epsilon, DELTA)
    gates = gates_of(train, schema, policy, seed, 5)
    rng = np.random.default_rng(seed)
    fitted = private.learn(gates, private.Outcome.of(schema, number), rng)
    held = Records.from_frame(test, schema)
    y = held.target
    if number:  # as the rules' scores are, by the limits that the engine found
        low, high = fitted.outcome.lower, fitted.outcome.upper
        y = 2 * (y - low) / (high - low) - 1
    whole = scores(as_rules(fitted), held.x, y, number)
    rows = [{"learner": "whole engine", **whole}]
    for name, (most, stable) in FORMS.items():
        short = shortened(fitted, most, np.random.default_rng(seed), stable=stable)
        found = scores(short, held.x, y, number)
        lost = {f"{m}, added": found[m] - whole[m] for m in found if m != "terms"}
        rows.append({"learner": name, **lost, "terms": found["terms"]})
    return [{"epsilon": epsilon, "seed": seed, **row} for row in rows]


def main() -> None:
    sets = ["magic_telescope", "california", "electricity", "default_credit_card", "bank_marketing"]
    parser = arguments(__doc__, seeds=3, first_seed=0, data=sets, epsilons=["1", "4"])
    parser.add_argument("--numbers", action="store_true", help="predict numbers as they are")
    parser.add_argument("--results", help="name of a table in benchmarks/results")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    for name in chosen.data:
        frame, number = load(name)
        if number and not chosen.numbers:
            frame = frame.assign(y=(frame["y"] > frame["y"].median()).astype(int))
        for epsilon in chosen.epsilons:
            for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds):
                found = one(frame, number and chosen.numbers, epsilon, seed)
                rows += [{"set": name, **row} for row in found]
        table = pd.DataFrame(rows).drop(columns="seed")
        groups = table[table["set"] == name].groupby(["set", "epsilon", "learner"], sort=False)
        print(groups.mean().round(4).to_string(), flush=True)
    if chosen.results:
        long = pd.DataFrame(rows).drop(columns="seed")
        long = long.melt(["set", "epsilon", "learner"], var_name="metric").dropna()
        long = long.assign(metric="short, " + long["metric"])  # beside other splits' scores
        groups = long.groupby(["set", "epsilon", "learner", "metric"], sort=False)["value"]
        means = groups.agg(value="mean", spread="std").round(4).reset_index()
        note = f"means of {chosen.seeds} splits, 20 % held out, five clients, delta {DELTA}"
        seeds = f"{chosen.first_seed} to {chosen.first_seed + chosen.seeds - 1}"
        write_rows(means, chosen.results, PRIVATE_KEYS, seed=seeds, note=note)


if __name__ == "__main__":
    main()
