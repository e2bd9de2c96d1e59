"""What small clients keep in private FedGA-Tree: their gains over the trees that they grow alone.

    python benchmarks/genetic_small.py DATA --out small.csv [--sets wine,abalone] [--records 27]
        [--epsilons 1,4] [--seeds 3]

Clients of so many records each, at most 20, through real gates with secure noise, delta 1e-5; a
third of a small table, at least 300 rows of a large one, are held out. Both trees of a client
cut its records into the same folds, so that they differ by the choice alone. Gains are in macro F1
(for numbers, changes of the mean squared error), in %, means over clients; `own` is the share of the
clients that keep their own tree, `excess` the log loss of the trees above that of the classes' shares
in training. What is done is written at once, and not done again.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from genetic_private import excess
from genetic_tree import read
from result_rows import arguments, commit, write_rows
from sklearn import datasets
from sklearn.metrics import f1_score

from privfed import LocalDisclosure
from privfed.errors import Note
from privfed.learners import GeneticTreeClassifier, GeneticTreeRegressor
from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.client import Client
from privfed.learners.genetic_tree.local_subtrees import Shared, choose_below
from privfed.learners.genetic_tree.queries import KeepBelow
from privfed.questions.query import View
from privfed.study.papers.genetic import CLASSES, NUMBERS, Prepared, encoded, x_bounds
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

#: Tables of scikit-learn's, and further ones of the folder by whether they have classes.
PLAIN = ("banknote", "breast_cancer_wdbc", "diabetes_pima")
BUNDLED = {"wine": datasets.load_wine, "iris": datasets.load_iris}
FURTHER = {"trauma": True, "wisconsin": True, "bodyfat": False, "mortgage": False}
SETS = "wine,iris,breast_cancer_wdbc,diabetes_pima,trauma,wisconsin,banknote,nursery"
FOLDS, LOWEST, DEEPEST = 5, 2, 15


def table(data: Path, name: str) -> tuple[np.ndarray, np.ndarray, bool]:
    """Features, target, and whether it has classes."""
    if name in BUNDLED:
        bunch = BUNDLED[name]()
        return bunch.data, bunch.target, True
    if name in (*CLASSES, *NUMBERS, *PLAIN):
        x, y, _ = encoded(name, read(data, name))
        return x, y, name not in NUMBERS
    frame = pd.read_csv(data / f"{name}.csv").dropna().drop(columns="hospital", errors="ignore")
    target = frame.pop(frame.columns[-1])
    y = pd.factorize(target, sort=True)[0] if FURTHER[name] else target.to_numpy(float)
    return frame.to_numpy(float), y, FURTHER[name]


def divided(data: Path, name: str, records: int, seed: int) -> Prepared:
    """Clients of so many records, and those held out."""
    x, y, classify = table(data, name)
    order = np.random.default_rng([seed, records]).permutation(len(y))
    held = max(len(y) // 10, min(len(y) // 3, 300))
    clients = max(min(20, (len(y) - held) // records), 2)
    train, test = order[held : held + clients * records], order[:held]
    lower, upper = x_bounds(x[train])
    columns = tuple(Column(f"x{n}", "number", lower[n], upper[n]) for n in range(x.shape[1]))
    named = tuple(f"c{code}" for code in range(int(y.max()) + 1))
    target = (
        Column("y", "category", categories=named)
        if classify
        else Column("y", "number", float(y.min()), float(y.max()))
    )
    parts = np.array_split(train, clients)
    own = {f"{n:02d}": (x[part], y[part].astype(float)) for n, part in enumerate(parts)}
    return Prepared(own, x[test], y[test], Schema(columns, target))


def shared(data: Prepared, epsilon: str) -> Shared:
    """The tree that all share, through gates."""
    learner = (GeneticTreeClassifier if data.classify else GeneticTreeRegressor)()
    frames = []
    for name, (x, y) in data.clients.items():
        named = [f"c{int(code)}" for code in y] if data.classify else y
        frame = pd.DataFrame(x, columns=list(data.schema.names))
        frames.append(frame.assign(y=named, client=name))
    policy = learner.private(epsilon, "1e-5")
    guards = {kind: own for kind, own in policy.guards.items() if kind != KeepBelow.kind}
    gates = LocalDisclosure.from_frame(
        pd.concat(frames),
        target="y",
        client="client",
        schema=data.schema,
        policy=replace(policy, guards=guards),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)
        learner.fit(gates)
    assert learner.shared_ is not None
    return learner.shared_


def measured(data: Prepared, epsilon: str) -> dict[str, float]:
    """Means over clients."""
    tree, rows = shared(data, epsilon), []
    for name, (x, y) in data.clients.items():
        client = Client(View(Records(data.schema, x, y), data.schema, name.encode()), data.classify)
        depth = client.local_depth(FOLDS, range(LOWEST, DEEPEST + 1))
        alone = local.predictions(local.cart(x, y, client.classes, depth), data.test_x)
        kept = choose_below(client, tree, FOLDS, LOWEST, DEEPEST)
        values = kept.predict(data.test_x)
        said = local.labels(kept.weighed(values))
        scores = [_score(data, each) for each in (alone, said)]
        rows.append((100 * (scores[1] / scores[0] - 1), kept.source == "own", excess(values, data)))
    gain, own, above = np.mean(rows, axis=0)
    splits = float((tree.tree.feature >= 0).sum())
    return {"gain": gain, "own": 100 * own, "excess": above, "splits": splits}


def _score(data: Prepared, said: np.ndarray) -> float:
    if data.classify:
        return float(f1_score(data.test_y, said, average="macro", zero_division=0))
    return float(np.mean((data.test_y - said) ** 2))


def remaining(given: argparse.Namespace, done: pd.DataFrame) -> Iterator[tuple[int, str, int]]:
    """Seeds, sets and records a client that are still to be done."""
    known = set() if done.empty else set(zip(done["seed"], done["set"], done["each"], strict=True))
    sizes = [int(each) for each in given.records.split(",")]
    for wanted in product(range(given.seeds), given.sets.split(","), sizes):
        if wanted not in known:
            yield wanted


def main() -> None:
    parser = arguments(__doc__, seeds=3)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--records", default="27")
    parser.add_argument("--epsilons", default="1,4")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    at = commit()
    found = pd.read_csv(given.out) if given.out.exists() else pd.DataFrame()
    for seed, name, records in remaining(given, found):
        data = divided(given.data, name, records, seed)
        rows: list[dict[str, Any]] = []
        for epsilon in given.epsilons.split(","):
            told = {"set": name, "each": records, "clients": len(data.clients), "seed": seed}
            rows.append({**told, "commit": at, "epsilon": epsilon, **measured(data, epsilon)})
        found = pd.concat([found, pd.DataFrame(rows)], ignore_index=True)
        write_rows(found, given.out, ("set", "each", "seed", "epsilon"), seed="")
    found["epsilon"] = found["epsilon"].astype(float)
    table_ = found.groupby(["set", "each", "epsilon"], sort=False)
    means = table_[["gain", "own", "excess", "splits"]].mean()
    print(means.assign(error=table_["gain"].sem(), seeds=table_.size()).round(2).to_string())


if __name__ == "__main__":
    main()
