"""Masked sums beside noise of every owner: AUC or RMSE by owners and epsilon.

    PRIVFED_DATA=... python benchmarks/masked_sums.py [--data california magic_telescope] [--owners 1 5 20]

The private engine of RuleFit over records dealt at random to so many owners, in bounds of the whole data
set; at most 20,000 records, a fifth held out. Masked: nobody colludes. Numbers are predicted (RMSE over
the target's deviation, constant 1) and, with --cut, cut at the median and classified. Delta 1e-5. Writes
benchmarks/results/private_masked.csv with --results private_masked; cells measured by today's code stay.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
from league import DELTA, TARGETS, load, predictions, schema_of
from result_rows import RESULTS, arguments, progress, read_rows, seeds_of, up_to_date, write_rows
from sklearn.metrics import roc_auc_score

from privfed import LocalDisclosure, Schema
from privfed.learners import RuleFitClassifier, RuleFitRegressor

KEYS = ("set", "owners", "masked", "epsilon", "metric")
MOST = 20_000


def divided(name: str, seed: int, cut: bool) -> tuple[pd.DataFrame, pd.DataFrame, Schema, bool]:
    """Training and held-out rows, the public schema, and whether the target is a number."""
    frame, number = load(name)
    if number and cut:
        frame, number = frame.assign(y=(frame["y"] > frame["y"].median()).astype(int)), False
    mixed = frame.sample(min(len(frame), MOST), random_state=seed)
    held = len(mixed) // 5
    return mixed[held:], mixed[:held], schema_of(frame, number, 1.0), number


def score(name: str, owners: int, masked: bool, epsilon: str, seed: int, cut: bool) -> float:
    """One model's error or AUC on held-out records."""
    train, test, schema, number = divided(name, seed, cut)
    model: Any = (RuleFitRegressor if number else RuleFitClassifier)(random_state=seed)
    policy = model.private(epsilon, DELTA)
    names = [f"c{k}" for k in range(owners)]
    if masked:
        policy = policy.masked_among(names)
    owner = np.random.default_rng(seed).integers(0, owners, len(train))
    owner[:owners] = np.arange(owners)
    dealt = train.assign(owner=[names[k] for k in owner])
    gates = LocalDisclosure.from_frame(
        dealt, "y", client="owner", schema=schema, policy=policy, seed=seed
    )
    told = predictions(model.fit(gates), test[list(schema.names)])
    if number:
        return float(np.sqrt(np.mean((test["y"] - told) ** 2)) / test["y"].std())
    return float(roc_auc_score(test["y"], told))


def table(rows: pd.DataFrame) -> list[str]:
    """Means over all sets as lines of a table, with the masked ones in bold."""
    columns = [(1, False), *((k, m) for k in (5, 20, 100) for m in (False, True))]
    told = ["one owner"] + [f"{k} owners{', masked' if m else ''}" for k, m in columns[1:]]
    lines = [f"| epsilon | metric | {' | '.join(told)} |", "|---" * (len(told) + 2) + "|"]
    means = rows.groupby(["metric", "epsilon", "owners", "masked"])["value"].mean()
    for metric, name in (("auc", "AUC"), ("rmse / deviation", "RMSE")):
        for epsilon in sorted(rows["epsilon"].unique()):
            cells = [f"{means[metric, epsilon, k, m]:.3f}".lstrip("0") for k, m in columns]
            shown = [f"**{c}**" if m else c for c, (_, m) in zip(cells, columns, strict=True)]
            lines.append(f"| {epsilon:g} | {name} | {' | '.join(shown)} |")
    return lines


def main() -> None:
    parser = arguments(
        __doc__,
        seeds=3,
        first_seed=0,
        data=sorted(TARGETS),
        owners=[1, 5, 20, 100],
        epsilons=["0.5", "1", "4"],
    )
    parser.add_argument("--cut", action="store_true")
    parser.add_argument("--results")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.table:
        print(*table(pd.read_csv(RESULTS / "private_masked.csv")), sep="\n")
        return
    warnings.simplefilter("ignore")
    cells = [(d, e, k, m) for d in given.data for e in given.epsilons for k in given.owners
             for m in (False, True) if k > 1 or not m]  # fmt: skip
    seeds = seeds_of(given)
    held = read_rows(RESULTS / f"{given.results}.csv") if given.results else []
    rows: dict[tuple[str, ...], dict[str, object]] = {
        tuple(row[key] for key in KEYS[:4]): {"code": "", **row} for row in held
    }
    for name, epsilon, owners, masked in progress(cells, "masked sums"):
        cell = (name, str(owners), str(masked), epsilon)
        if cell in rows and up_to_date(str(rows[cell]["code"])):
            continue
        found = [score(name, owners, masked, epsilon, seed, given.cut) for seed in seeds]
        number = load(name)[1] and not given.cut
        rows[cell] = {
            "set": name,
            "owners": owners,
            "masked": masked,
            "epsilon": epsilon,
            "metric": "rmse / deviation" if number else "auc",
            "value": round(float(np.mean(found)), 4),
            "spread": round(float(np.std(found, ddof=1)), 4) if len(found) > 1 else 0.0,
            "seed": f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0]),
        }
        print(*rows[cell].values(), flush=True)
        if given.results:
            write_rows(list(rows.values()), given.results, KEYS, seed="")


if __name__ == "__main__":
    main()
