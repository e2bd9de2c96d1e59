"""Private classifiers and regressors side by side: one command, a row for each set, method, epsilon and split.

    PRIVFED_DATA=FOLDER python benchmarks/league.py [--data magic_telescope ...] [--epsilons 0.1 1 4 16]
        [--methods ours DP-EBM ...] [--seeds 3] [--most 15000] [--environment dp_ebm=PYTHON ...]

Every method gets the same splits, the same (epsilon, delta 1e-5) for a record added or removed, and the same
public schema: the categories, and the smallest and largest value of the whole set, or with --wide 11 bounds eleven times as
wide. Ours see five owners' records through gates (``ours, masked`` with masked sums); the peers, a file each in
``benchmarks/peers``, see all records together. A number is predicted as it is (RMSE over the target's
deviation, so that a constant has 1) and, cut at its median, as a class. A peer that needs libraries which do
not go beside privfed runs under the interpreter that ``--environment`` names.

Rows are kept as they come in benchmarks/results/league.csv (--out): an interrupted run goes on, and a
method, set, epsilon or split more adds its own rows alone; rows that code since changed has measured (ours: the
private engine's; a peer's: its file's) are measured anew where they are among the run's. docs/tuning.md names the sets that our settings were chosen on.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from peers import problem as peers
from peers.problem import Feature, Problem
from result_rows import RESULTS, arguments, code, commit, machine, seeds_of, today, write_rows
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score
from sklearn.model_selection import train_test_split

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import FedForestClassifier, FedForestRegressor
from privfed.privacy.policy import Policy

DATA = Path(os.environ.get("PRIVFED_DATA", Path(__file__).parents[2] / "shared" / "data"))
DELTA = "1e-5"
KEYS = ("set", "task", "method", "epsilon", "split")
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


# --- sets and schemas --------------------------------------------------------------------------


@cache
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


def gates_of(
    train: pd.DataFrame, schema: Schema, policy: Policy, seed: int, clients: int
) -> LocalDisclosure:
    """Records at random clients, each with gate and ledger."""
    owner = np.random.default_rng(seed).integers(0, clients, len(train))
    held = train.assign(owner=[f"c{k}" for k in owner])
    return LocalDisclosure.from_frame(
        held, "y", client="owner", schema=schema, policy=policy, seed=seed
    )


def predictions(model: Any, inputs: pd.DataFrame) -> np.ndarray:
    """Numbers, or chances of the second class."""
    chances = getattr(model, "predict_proba", None)
    return np.asarray(model.predict(inputs) if chances is None else chances(inputs)[:, 1])


def forest(
    train: pd.DataFrame, test: pd.DataFrame, schema: Schema, epsilon: str, seed: int, clients: int
) -> np.ndarray:
    """Predict by FedForest's private way, the engine that RuleFit's shares: federated, private end to end."""
    number = schema.target is not None and schema.target.kind == "number"
    model = (FedForestRegressor if number else FedForestClassifier)(random_state=seed)
    model.fit(gates_of(train, schema, model.private(epsilon, DELTA), seed, clients))
    return predictions(model, test[list(schema.names)])


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


# --- the league --------------------------------------------------------------------------------


#: What shortens a private model.
SHORTENED = tuple(f"learners/rulefit/{name}.py" for name in ("short", "refits", "selection"))


@cache
def entrants() -> Mapping[str, tuple[str, str]]:
    """Methods by name: the peer's file, and the one task that it knows if it knows one alone; ours first."""
    found = {}
    files = sorted(
        Path(peers.__file__).parent.glob("*.py"), key=lambda file: (file.stem != "ours", file.stem)
    )
    for stem in (file.stem for file in files if file.stem not in ("__init__", "problem")):
        module = sys.modules.get(f"peers.{stem}") or __import__(
            f"peers.{stem}", fromlist=["METHODS"]
        )
        alone = getattr(module, "ALONE", {})
        found.update({name: (stem, alone.get(name, "")) for name in module.METHODS})
    return found


def code_of(method: str) -> str:
    """What a method's rows hang on: the private engine, how it is shortened, the fuzzy tree, or the peer's own file."""
    stem, alone = entrants()[method]
    ours = "fuzzy_tree+learners/mass.py" if alone else "private"
    if method.endswith("terms"):
        ours = "+".join(("private", *SHORTENED))
    return ours if stem == "ours" else f"benchmarks/peers/{stem}.py"


def problem_of(
    name: str, task: str, epsilon: str, split: int, most: int, wide: float
) -> tuple[Problem, np.ndarray]:
    """What every method gets, and the held-out targets."""
    frame, number = load(name)
    if len(frame) > most:
        frame = frame.sample(most, random_state=0)
    if task == "classes" and number:
        frame, number = frame.assign(y=(frame["y"] > frame["y"].median()).astype(int)), False
    schema = schema_of(frame, number, wide)
    train, test = train_test_split(frame, test_size=0.2, random_state=split)
    given = as_problem(train, test, schema, epsilon, split)
    return given, test["y"].to_numpy(float)


def as_problem(
    train: pd.DataFrame, test: pd.DataFrame, schema: Schema, epsilon: str, seed: int
) -> Problem:
    """What every method gets, of tables with the target in column y."""
    features = tuple(
        Feature(one.name, one.bounds) if one.numeric else Feature(one.name, None, one.categories)
        for one in schema.features
    )
    assert schema.target is not None
    target = schema.target.bounds if schema.target.kind == "number" else None
    return Problem(train, test.drop(columns="y"), features, target, float(epsilon), seed)


def predicted(problem: Problem, method: str, python: str | None = None) -> tuple[np.ndarray, float]:
    """Predictions and processor seconds, of this process or of another interpreter's."""
    stem, _ = entrants()[method]
    if python is None:
        return peers.timed(peers.methods(stem)[method], problem)
    with tempfile.TemporaryDirectory() as folder:
        problem.write(Path(folder))
        command = [python, peers.__file__, stem, method, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{method} by {python}: {done.stderr.strip().splitlines()[-1:]}")
        told = np.load(Path(folder) / "told.npy")
    return told[:-1], float(told[-1])


def cells(given: argparse.Namespace) -> Iterator[tuple[str, str, str, str, int]]:
    """Set, task, method, epsilon and split of each row, the splits outermost, so that early rows compare all."""
    for split in seeds_of(given):
        for name in given.data:
            for task in ("classes", "numbers") if load(name)[1] else ("classes",):
                for epsilon in given.epsilons if task in given.tasks else ():
                    for method in given.methods:
                        if entrants()[method][1] in ("", task):
                            yield name, task, method, epsilon, split


def main() -> None:
    parser = arguments(
        __doc__,
        seeds=3,
        first_seed=100,
        data=sorted(TARGETS),
        epsilons=["0.1", "0.5", "1", "4", "16"],
        methods=list(entrants()),
        tasks=["classes", "numbers"],
        environment=[""],
    )
    parser.add_argument("--most", type=int, default=1_000_000, help="records of a set at most")
    parser.add_argument("--wide", type=float, default=1.0, help="how much wider bounds are")
    parser.add_argument("--out", type=Path, default=RESULTS / "league.csv")
    given = parser.parse_args()
    if unknown := sorted({*given.methods} - {*entrants()}):
        parser.error(f"no method {unknown[0]!r}; there are {', '.join(entrants())}")
    pythons = dict(each.split("=", 1) for each in given.environment if each)
    warnings.simplefilter("ignore")
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    if given.out.exists():
        known = pd.read_csv(given.out, dtype={"epsilon": str, "seed": str}).to_dict("records")
        rows = {tuple(str(row[key]) for key in KEYS): {**row} for row in known}  # type: ignore[dict-item]
    for cell in cells(given):
        name, task, method, epsilon, split = cell
        digest = code(code_of(method))
        if rows.get(key := tuple(map(str, cell)), {}).get("code") == digest:
            continue
        problem, wanted = problem_of(name, task, epsilon, split, given.most, given.wide)
        records = len(problem.train) + len(wanted)
        if others := {int(row["records"]) for row in rows.values() if row["set"] == name} - {
            records
        }:
            parser.error(
                f"{given.out} has {name} cut down to {max(others)} records: --most {max(others)}"
            )
        told, seconds = predicted(problem, method, pythons.get(entrants()[method][0]))
        found = scores(wanted, told, task == "numbers", float(problem.train["y"].mean()))
        row = dict(zip(KEYS, cell, strict=True)) | {"records": records}
        row |= {score: round(value, 5) for score, value in found.items()}
        row |= {"seconds": round(seconds, 2), "code": digest, "seed": str(split)}
        print(*row.values(), flush=True)
        rows[key] = row | {"commit": commit(), "date": today(), "machine": machine()}
        write_rows(list(rows.values()), given.out, KEYS, seed=str(split))


if __name__ == "__main__":
    main()
