"""Private learners over five clients beside centralized peers: AUC, log loss, Brier score or RMSE.

    pip install interpret-core        # the peer; a benchmark's dependency only
    PRIVFED_DATA=... python benchmarks/private_learners.py --out private_learners

Every learner gets the same splits, the same (epsilon, delta 1e-5) and the same public bounds: the
smallest and largest value of the whole data set, or with --wide 11 bounds eleven times as wide. RuleFit's
and the forest's five clients add five noises under zCDP; DP-EBM, AdaSSP and logistic regression by noisy
gradients see the pooled records and add one. Numbers are cut at the median for the classifiers, and
predicted as they are for the regressors (RMSE over the target's deviation, so that a constant has 1).
Columns "minus" are paired differences; "time" is the ratio of processor time to DP-EBM's, in the same
process. With --results NAME the means go to benchmarks/results/NAME.csv, with the commit and first seed.

docs/tuning.md names the sets that the table of settings was chosen on and those
that were held back. For a set that is new, expect a little less.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from result_rows import PRIVATE_KEYS, arguments, write_rows
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score
from sklearn.model_selection import train_test_split

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import (
    FedForestClassifier,
    FedForestRegressor,
    RuleFitClassifier,
    RuleFitRegressor,
)
from privfed.privacy.conversion import largest_rho
from privfed.privacy.policy import Policy
from privfed.questions.exact import exact

DATA = Path(os.environ.get("PRIVFED_DATA", Path(__file__).parents[2] / "shared" / "data"))
DELTA = "1e-5"
#: More records than any set has.
MOST = 1_000_000
#: Targets, and columns that are none of the inputs.
TARGETS = {
    "abalone": "Rings",
    "bank_marketing": "subscribed",
    "banknote": "class",
    "bodyfat": "bodyfat",
    "breast_cancer_wdbc": "malignant",
    "california": "medianHouseValue",
    "default_credit_card": "default",
    "delta_elevators": "Se",
    "diabetes_pima": "diabetes",
    "electricity": "class",
    "exam_london_schools": "normexam",
    "kin8nm": "y",
    "magic_telescope": "class",
    "mortgage": "30Y_CMortgageRate",
    "openfl_xai_5clients": "y",
    "space_ga": "ln_votes_pop",
    "student_por": "G3",
    "sulfur": "y1",
    "trauma": "mortality",
    "weather_izmir": "Mean_temperature",
    "wisconsin": "class",
}
IGNORED = ["client", "split", "density", "school", "student"]


def load(name: str) -> tuple[pd.DataFrame, bool]:
    """A table with the target in column y, and whether that is a number."""
    frame = pd.read_csv(DATA / f"{name}.csv").dropna()
    y = frame.pop(TARGETS[name])
    kept = IGNORED if name != "student_por" else []
    frame = frame.drop(columns=[column for column in kept if column in frame])
    number = y.nunique() > 2
    return frame.assign(y=y if number else (y == max(y.unique())).astype(int)), number


def schema_of(frame: pd.DataFrame, number: bool, wide: float) -> Schema:
    """Public bounds: the data's own, widened about their middle."""
    columns = [_column(frame[name], wide) for name in frame.columns]
    target = columns[-1] if number else Column("y", "integer", 0, 1)
    return Schema(tuple(columns[:-1]), target)


def _column(values: pd.Series[Any], wide: float) -> Column:
    name = str(values.name)
    if not pd.api.types.is_numeric_dtype(values):
        return Column(name, "category", categories=tuple(sorted(map(str, values.unique()))))
    low, high = float(values.min()), float(values.max())
    more = (wide - 1) * (high - low) / 2
    if name != "y" and pd.api.types.is_integer_dtype(values):
        low, high = math.floor(low - more), math.ceil(high + more)
        return Column(name, "integer", low, max(high, low + 1))
    return Column(name, "number", low - more, high + more)


#: Gives predictions (chances or numbers) for a test table.
Fit = Callable[[pd.DataFrame, pd.DataFrame, Schema, str, int, int], np.ndarray]


def rulefit(
    train: pd.DataFrame, test: pd.DataFrame, schema: Schema, epsilon: str, seed: int, clients: int
) -> np.ndarray:
    """RuleFit's private way, all terms: federated, private end to end."""
    number = schema.target is not None and schema.target.kind == "number"
    model = (RuleFitRegressor if number else RuleFitClassifier)(random_state=seed, max_terms=None)
    model.fit(gates_of(train, schema, model.private(epsilon, DELTA), seed, clients))
    return predictions(model, test[list(schema.names)])


def forest(
    train: pd.DataFrame, test: pd.DataFrame, schema: Schema, epsilon: str, seed: int, clients: int
) -> np.ndarray:
    """FedForest's private way: federated, private end to end."""
    number = schema.target is not None and schema.target.kind == "number"
    model = (FedForestRegressor if number else FedForestClassifier)(random_state=seed)
    model.fit(gates_of(train, schema, model.private(epsilon, DELTA), seed, clients))
    return predictions(model, test[list(schema.names)])


def predictions(model: Any, inputs: pd.DataFrame) -> np.ndarray:
    """Numbers, or chances of the second class."""
    chances = getattr(model, "predict_proba", None)
    return np.asarray(model.predict(inputs) if chances is None else chances(inputs)[:, 1])


def gates_of(
    train: pd.DataFrame, schema: Schema, policy: Policy, seed: int, clients: int
) -> LocalDisclosure:
    """Records at random clients, each with gate and ledger."""
    owner = np.random.default_rng(seed).integers(0, clients, len(train))
    held = train.assign(owner=[f"c{k}" for k in owner])
    return LocalDisclosure.from_frame(
        held, "y", client="owner", schema=schema, policy=policy, seed=seed
    )


def dp_ebm(
    train: pd.DataFrame, test: pd.DataFrame, schema: Schema, epsilon: str, seed: int, clients: int
) -> np.ndarray:
    """interpret's boosting machine, centralized, with its defaults."""
    from interpret.privacy import (
        DPExplainableBoostingClassifier,
        DPExplainableBoostingRegressor,
    )

    features = schema.features
    known: dict[str, Any] = {
        "epsilon": float(epsilon),
        "delta": float(DELTA),
        "random_state": seed,
        "n_jobs": 1,
        "privacy_bounds": {j: c.bounds for j, c in enumerate(features) if c.numeric},
        "feature_types": ["continuous" if c.numeric else "nominal" for c in features],
    }
    names = list(schema.names)
    assert schema.target is not None
    if schema.target.kind == "number":
        low, high = schema.target.bounds
        model = DPExplainableBoostingRegressor(
            privacy_target_min=low, privacy_target_max=high, **known
        )
        return np.asarray(model.fit(train[names], train["y"]).predict(test[names]))
    model = DPExplainableBoostingClassifier(**known)
    return np.asarray(model.fit(train[names], train["y"]).predict_proba(test[names])[:, 1])


def adassp(
    train: pd.DataFrame, test: pd.DataFrame, schema: Schema, epsilon: str, seed: int, clients: int
) -> np.ndarray:
    """Linear regression by adaptive sufficient statistics (Wang 2018), centralized, under zCDP."""
    assert schema.target is not None
    rng, (low, high) = np.random.default_rng(seed), schema.target.bounds
    x, y = _scaled(train, schema), 2 * (train["y"].to_numpy(float) - low) / (high - low) - 1
    square, size = 1.0 + len(schema.features), x.shape[1]
    noise = 1 / math.sqrt(2 * float(largest_rho(exact(epsilon), exact(DELTA))) / 3)
    gram = x.T @ x
    least = np.linalg.eigvalsh(gram)[0] + square * noise * (rng.normal() - 1.7)
    ridge = max(0.0, math.sqrt(size * math.log(6 / float(DELTA))) * square * noise - max(least, 0))
    drawn = np.triu(rng.normal(0, square * noise, gram.shape))
    gram = gram + drawn + np.triu(drawn, 1).T + ridge * np.eye(size)
    moment = x.T @ y + rng.normal(0, math.sqrt(square) * noise, size)
    found = np.clip(_scaled(test, schema) @ np.linalg.solve(gram, moment), -1, 1)
    return np.asarray(low + (found + 1) / 2 * (high - low))


#: Steps of noisy gradient descent, and how far each goes.
STEPS, LENGTH = 60, 12.0


def logistic(
    train: pd.DataFrame, test: pd.DataFrame, schema: Schema, epsilon: str, seed: int, clients: int
) -> np.ndarray:
    """Logistic regression by noisy gradients of all records (Bassily, Smith and Thakurta 2014), centralized.

    Inputs lie in the unit ball by the public bounds, so a record moves a gradient by 1 at most.
    """
    rng, cost = np.random.default_rng(seed), float(largest_rho(exact(epsilon), exact(DELTA)))
    x, size = _scaled(train, schema), math.sqrt(1.0 + len(schema.features))
    x, y = x / size, train["y"].to_numpy(float)
    noise = 1 / math.sqrt(2 * cost / STEPS)
    weights, kept, speed = np.zeros(x.shape[1]), np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for step in range(STEPS):
        slope = x.T @ (1 / (1 + np.exp(-x @ weights)) - y) + rng.normal(0, noise, len(weights))
        speed = 0.8 * speed - LENGTH * slope / len(x)
        weights = weights + speed
        kept += weights * (step >= STEPS // 2) / (STEPS - STEPS // 2)
    return np.asarray(1 / (1 + np.exp(-_scaled(test, schema) / size @ kept)))


def _scaled(table: pd.DataFrame, schema: Schema) -> np.ndarray:
    columns: list[np.ndarray] = [np.ones(len(table))]
    for column in schema.features:
        values = table[column.name]
        if column.numeric:
            low, high = column.bounds
            columns.append(2 * (values.to_numpy(float) - low) / (high - low) - 1)
        else:
            columns += [np.asarray(values.astype(str) == name, float) for name in column.categories]
    return np.column_stack(columns)


def scores(wanted: np.ndarray, told: np.ndarray, number: bool, mean: float) -> dict[str, float]:
    """What is reported; losses beside a constant's, which knows the training mean."""
    if number:
        return {"rmse": float(np.sqrt(np.mean((wanted - told) ** 2)) / np.std(wanted))}
    chance = np.clip(told, 1e-6, 1 - 1e-6)
    even = np.full(len(wanted), mean)
    return {
        "auc": float(roc_auc_score(wanted, chance)),
        "log loss - constant's": float(log_loss(wanted, chance) - log_loss(wanted, even)),
        "brier - constant's": float(
            brier_score_loss(wanted, chance) - brier_score_loss(wanted, even)
        ),
    }


#: The learners, and which of them learn classes or numbers alone.
LEARNERS: dict[str, Fit] = {
    "dp_ebm": dp_ebm,
    "rulefit": rulefit,
    "forest": forest,
    "adassp": adassp,
    "logistic": logistic,
}
ONLY = {"adassp": True, "logistic": False}


def one(
    frame: pd.DataFrame,
    number: bool,
    epsilon: str,
    seed: int,
    wide: float,
    clients: int,
    learners: list[str],
) -> list[dict[str, Any]]:
    """The named learners on one split."""
    schema = schema_of(frame, number, wide)
    train, test = train_test_split(frame, test_size=0.2, random_state=seed)
    rows = []
    for name in (name for name in learners if ONLY.get(name, number) == number):
        begun = time.process_time()
        told = LEARNERS[name](train, test, schema, epsilon, seed, clients)
        spent = time.process_time() - begun
        found = scores(test["y"].to_numpy(float), told, number, float(train["y"].mean()))
        rows.append({"learner": name, "epsilon": epsilon, "seed": seed, "time": spent, **found})
    return rows


def table_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Means by task, set, budget and learner, with the paired difference to DP-EBM."""
    table = pd.DataFrame(rows)
    keys = ["task", "data", "epsilon", "seed"]
    if not (table["learner"] == "dp_ebm").any():
        return _means(table)
    peer = table[table["learner"] == "dp_ebm"].set_index(keys)
    own = table.set_index(keys)
    table["time"] = (own["time"] / peer["time"].reindex(own.index)).to_numpy()
    for score in ("auc", "rmse"):
        if score in table:
            minus = own[score] - peer[score].reindex(own.index)
            table[f"{score} minus"] = minus.to_numpy()
    return _means(table)


def _means(table: pd.DataFrame) -> pd.DataFrame:
    groups = table.drop(columns="seed").groupby(["task", "data", "epsilon", "learner"], sort=False)
    return groups.mean().round(4)


def tidy(rows: list[dict[str, Any]], clients: int, most: int) -> pd.DataFrame:
    """One line for each set, budget, learner and metric: the mean over seeds, and their deviation.

    Args:
        rows: one for each fit.
        clients: how many there were.
        most: records of a set at most.
    """
    table = pd.DataFrame(rows)
    keys = ["data", "epsilon", "learner"]
    metrics = [m for m in table.columns if m not in {*keys, "task", "seed"}]
    table["data"] = table["data"] + np.where(table["task"] == "numbers", ", number", "")
    long = table.rename(columns={"data": "set"}).melt(
        ["set", *keys[1:]], metrics, var_name="metric"
    )
    groups = long.dropna().groupby(["set", *keys[1:], "metric"], sort=False)["value"]
    found = groups.agg(value="mean", spread="std").round(4).reset_index()
    few = "" if most >= MOST else f" of at most {most}"
    note = (
        f"means of {table['seed'].nunique()} splits of all records{few}, 20 % held out; numbers are cut at the median; "
        f"private learners over {clients} clients, the peers centralized; delta {DELTA}"
    )
    seeds = f"{table['seed'].min()} to {table['seed'].max()}"
    return found.assign(note=note, seed=seeds)


def main() -> None:
    epsilons = ["0.5", "1", "2", "4", "8"]
    parser = arguments(__doc__, seeds=5, first_seed=100, data=sorted(TARGETS), epsilons=epsilons)
    parser.add_argument("--wide", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--tasks", nargs="+", default=["classes", "numbers"])
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=list(LEARNERS))
    parser.add_argument("--most", type=int, default=MOST, help="records of a set at most")
    parser.add_argument("--results", help="name of a table in benchmarks/results")
    parser.add_argument("--called", default="", help="what metrics' names begin with there")
    parser.add_argument("--out", type=Path, default=Path("private_learners"))
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    for name in chosen.data:
        frame, number = load(name)
        if len(frame) > chosen.most:
            frame = frame.sample(chosen.most, random_state=0)
        cut = frame.assign(y=(frame["y"] > frame["y"].median()).astype(int)) if number else frame
        tasks = {"classes": (cut, False), **({"numbers": (frame, True)} if number else {})}
        for task in (task for task in tasks if task in chosen.tasks):
            for epsilon in chosen.epsilons:
                for seed in range(chosen.first_seed, chosen.first_seed + chosen.seeds):
                    found = one(
                        *tasks[task], epsilon, seed, chosen.wide, chosen.clients, chosen.learners
                    )
                    rows += [{"task": task, "data": name, **row} for row in found]
        print(table_of([row for row in rows if row["data"] == name]).to_string(), flush=True)
    if chosen.results:
        table = tidy(rows, chosen.clients, chosen.most)
        table = table.assign(metric=chosen.called + table["metric"])
        write_rows(table, chosen.results, PRIVATE_KEYS, seed="")
    keys = ("task", "data", "epsilon", "learner", "seed")
    write_rows(rows, chosen.out.with_suffix(".csv"), keys, seed="")
    chosen.out.with_suffix(".txt").write_text(table_of(rows).to_string() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
