"""Private learners on tables that are too small for them: what they lose to a constant.

    PRIVFED_DATA=... python benchmarks/private_small.py [--tables line moons] [--rows 20 150] [--seeds 10]

Each table is drawn anew for every seed, with bounds that are its own and too wide. A number's score
is RMSE over that of the training mean, a class's log loss less that of the training share (a half
added to either class): so the best constant has 1 and 0. ``public`` is the constant that costs
nothing, the middle of the target's bounds or equal shares. Delta 1e-5; thousand rows or more are
held out. Writes benchmarks/results/NAME.csv with --results NAME.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from league import DATA, DELTA, load, schema_of
from result_rows import arguments, seeds_of, write_private
from sklearn.datasets import make_moons
from sklearn.metrics import log_loss

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import (
    FedForestClassifier,
    FedForestRegressor,
    FuzzyTreeRegressor,
    RuleFitClassifier,
    RuleFitRegressor,
)

#: Records that predictions are judged on.
HELD_OUT = 1_000
Drawn = tuple[pd.DataFrame, Schema]


def _uniform(rng: np.random.Generator, rows: int, columns: int) -> pd.DataFrame:
    return pd.DataFrame(
        rng.uniform(0, 1, (rows, columns)), columns=[f"x{k}" for k in range(columns)]
    )


def _bounds(columns: int, target: Column) -> Schema:
    return Schema(tuple(Column(f"x{k}", lower=0, upper=1) for k in range(columns)), target)


def line(rng: np.random.Generator, rows: int) -> Drawn:
    """A number that two of three columns decide, in the upper half of its bounds."""
    frame = _uniform(rng, rows, 3)
    y = 500 + 350 * frame["x0"] + 100 * frame["x1"]
    return frame.assign(y=y), _bounds(3, Column("y", lower=0, upper=1000))


def sites(rng: np.random.Generator, rows: int) -> Drawn:
    """A risk that age and weight decide, in bounds twice too wide."""
    age, weight = rng.uniform(20, 90, rows), rng.uniform(40, 120, rows)
    columns = Column("age", lower=0, upper=100), Column("weight", lower=20, upper=200)
    frame = pd.DataFrame({"age": age, "weight": weight, "y": 5 * age + weight})
    return frame, Schema(columns, Column("y", lower=0, upper=1000))


def aside(rng: np.random.Generator, rows: int) -> Drawn:
    """Noise close to one end of bounds that are far too wide."""
    frame = _uniform(rng, rows, 4)
    return frame.assign(y=rng.normal(60, 20, rows).clip(0, 1000)), _bounds(
        4, Column("y", lower=0, upper=1000)
    )


def still(rng: np.random.Generator, rows: int) -> Drawn:
    """A number that is the same for all, nearly, and columns of which one is constant."""
    frame = _uniform(rng, rows, 3).assign(x1=0.5)
    return frame.assign(y=rng.normal(30, 0.4, rows)), _bounds(3, Column("y", lower=0, upper=40))


def moons(rng: np.random.Generator, rows: int) -> Drawn:
    """Two moons, in bounds eleven times too wide."""
    x, y = make_moons(rows, noise=0.25, random_state=int(rng.integers(2**31)))
    columns = tuple(Column(f"x{k}", lower=-15, upper=16) for k in range(2))
    frame = pd.DataFrame(x, columns=["x0", "x1"])
    return frame.assign(y=y), Schema(columns, Column("y", "integer", 0, 1))


def noise(rng: np.random.Generator, rows: int) -> Drawn:
    """A fair coin."""
    frame = _uniform(rng, rows, 5)
    return frame.assign(y=rng.integers(0, 2, rows)), _bounds(5, Column("y", "integer", 0, 1))


def rare(rng: np.random.Generator, rows: int) -> Drawn:
    """A class of two in a hundred, which one of four columns tells."""
    frame = _uniform(rng, rows, 4)
    chance = np.where(frame["x0"] > 0.9, 0.15, 0.0056)
    y = (rng.uniform(size=rows) < chance).astype(int)
    return frame.assign(y=y), _bounds(4, Column("y", "integer", 0, 1))


MADE_UP: dict[str, Callable[[np.random.Generator, int], Drawn]] = {
    "line": line, "sites": sites, "aside": aside, "still": still, "moons": moons, "noise": noise, "rare": rare,
}  # fmt: skip


def drawn(name: str, rows: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame, Schema]:
    """Training and held-out rows of a table, and its public schema."""
    if name in MADE_UP:
        frame, schema = MADE_UP[name](np.random.default_rng([seed, rows]), rows + HELD_OUT)
        return frame[:rows], frame[rows:], schema
    frame, number = load(name)
    mixed = frame.sample(min(len(frame), rows + max(HELD_OUT, rows // 4)), random_state=seed)
    return mixed[:rows], mixed[rows:], schema_of(frame, number, 1.0)


def learners(schema: Schema, seed: int) -> dict[str, Any]:
    """Those that can learn the target."""
    assert schema.target is not None
    if schema.target.kind == "number":
        return {
            "fuzzy tree": FuzzyTreeRegressor(),
            "RuleFit": RuleFitRegressor(random_state=seed, max_terms=None),
            "forest": FedForestRegressor(random_state=seed),
        }
    return {
        "RuleFit": RuleFitClassifier(random_state=seed, max_terms=None),
        "forest": FedForestClassifier(random_state=seed),
    }


def told(
    model: Any,
    epsilon: str,
    seed: int,
    clients: int,
    tables: tuple[pd.DataFrame, pd.DataFrame, Schema],
) -> np.ndarray:
    """Predictions for held-out rows: numbers, or chances of class 1."""
    train, test, schema = tables
    owner = np.random.default_rng(seed).integers(0, clients, len(train))
    owner[: min(clients, len(train))] = np.arange(clients)[: len(train)]
    gates = LocalDisclosure.from_frame(
        train.assign(owner=[f"c{number}" for number in owner]),
        "y",
        client="owner",
        schema=schema,
        policy=model.private(epsilon, DELTA),
        seed=seed,
    )
    model.fit(gates)
    inputs = test[list(schema.names)]
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(inputs)[:, 1])
    return np.asarray(model.predict(inputs))


def score(wanted: np.ndarray, predicted: np.ndarray, train: np.ndarray, number: bool) -> float:
    """RMSE over the training mean's, or log loss less the training share's."""
    if number:
        best = np.sqrt(np.mean((wanted - train.mean()) ** 2))
        return float(np.sqrt(np.mean((wanted - predicted) ** 2)) / best)
    share = (train.sum() + 0.5) / (len(train) + 1)
    even = np.full(len(wanted), share)
    return float(log_loss(wanted, predicted, labels=[0, 1]) - log_loss(wanted, even, labels=[0, 1]))


def metric(name: str) -> str:
    """What :func:`score` is called in tables of results."""
    target = drawn(name, 1, 0)[2].target
    numeric = target is not None and target.kind == "number"
    return "small, rmse / constant's" if numeric else "small, log loss - constant's"


def one(
    name: str, rows: int, epsilon: str, seed: int, clients: int, only: list[str]
) -> dict[str, float]:
    """All learners' scores on one table, and the public constant's."""
    train, test, schema = tables = drawn(name, rows, seed)
    assert schema.target is not None
    number = schema.target.kind == "number"
    wanted, known = test["y"].to_numpy(float), train["y"].to_numpy(float)
    public = np.full(len(wanted), sum(schema.target.bounds) / 2 if number else 0.5)
    found = {"public": score(wanted, public, known, number)}
    for learner, model in learners(schema, seed).items():
        if learner in only:
            predicted = told(model, epsilon, seed, clients, tables)
            found[learner] = score(wanted, predicted, known, number)
    return found


def main() -> None:
    parser = arguments(
        __doc__,
        seeds=5,
        first_seed=200,
        tables=list(MADE_UP),
        rows=[5, 20, 60, 150, 400],
        epsilons=["0.1", "0.5", "1", "4"],
        learners=["fuzzy tree", "RuleFit", "forest"],
    )
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--results", help="name of a table in benchmarks/results")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = seeds_of(given)
    lines = []
    for name in given.tables:
        if name not in MADE_UP and not (DATA / f"{name}.csv").exists():
            raise SystemExit(f"{name} is neither {', '.join(MADE_UP)} nor a table in {DATA}")
        for rows in given.rows:
            for epsilon in given.epsilons:
                each = pd.DataFrame(
                    [
                        one(name, rows, epsilon, seed, given.clients, given.learners)
                        for seed in seeds
                    ]
                )
                mean, spread = each.mean().to_dict(), each.std().to_dict()
                cells = "  ".join(f"{n} {mean[n]:.3f} ({spread[n]:.3f})" for n in each)
                print(f"{name:18}{rows:6}{epsilon:>5}  {cells}", flush=True)
                lines += [
                    {"set": f"{name}, {rows} records", "epsilon": epsilon, "learner": learner,
                     "metric": metric(name), "value": round(float(mean[learner]), 4),
                     "spread": round(float(spread[learner]), 4)}
                    for learner in each
                ]  # fmt: skip
    note = (
        f"tables of benchmarks/private_small.py, drawn anew for each of {given.seeds} seeds; "
        f"{given.clients} clients, delta {DELTA}, {HELD_OUT} records held out; ± over seeds"
    )
    write_private(lines, given, note)


if __name__ == "__main__":
    main()
