"""FedGA-Tree by the paper's protocol (its Section IV), beside local, centralized and IBM trees.

    python benchmarks/genetic_tree.py DATA --out iid.csv [--sets magic_telescope,nursery] [--splits 10]
        [--alpha 1] [--participation 0.1] [--clients 20] [--rows 8000]

20 clients, 90/10 splits, P = 20 (40 for numbers), G = 100, five quantile bins for classification and
classes made equally common, as in the paper's sets. Each row of the table: the mean over clients of
the gain in macro F1 over the client's own tree (for numbers, the change of the mean squared error)
in %, the share of clients that gain, and decision nodes. The search runs without gates (the sizes,
which alone are noisy in the paper, are equal here); the IBM tree runs through gates, with secure
noise. Learners that differ in their final choice alone share one search. Split 0 of all sets comes
first, then split 1, ...; what is done is written at once, and not done again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
from genetic_tables import NUMBERS, Prepared, federation, prepared
from result_rows import arguments, commit, write_rows
from sklearn.metrics import f1_score

from privfed import LocalDisclosure
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import GeneticTreeClassifier, GeneticTreeRegressor
from privfed.learners.base import FederatedLearner, PersonalLearner
from privfed.learners.baselines import (
    CentralTreeClassifier,
    CentralTreeRegressor,
    LocalTreeClassifier,
    LocalTreeRegressor,
    TruexTreeClassifier,
)
from privfed.learners.genetic_tree.personal import Choice
from privfed.learners.genetic_tree.population import Scoring
from privfed.learners.genetic_tree.queries import KeepBest

PAPER_SETS = "nursery,california,magic_telescope,electricity,bank_marketing,default_credit_card"
#: Searches, by the parameters in which they differ from the paper's, and what the clients then choose
#: by: (own tree, refit), by name.
SEARCHES: list[tuple[dict[str, Any], dict[str, tuple[bool, bool]]]] = [
    ({}, {"paper": (False, False), "refit": (False, True), "own+refit": (True, True)}),
    ({"fitness": "folds"}, {"folds": (False, True), "folds+own": (True, True)}),
]
BOUNDED: list[tuple[dict[str, Any], dict[str, tuple[bool, bool]]]] = [
    ({"bounded": True}, {"bounded": (False, False)}),
]


def fitted(learner: FederatedLearner, data: Prepared) -> FederatedLearner:
    """Learn without gates; every client takes its own model home."""
    clients = federation(data, UngatedDisclosure)
    learner.fit(clients)
    return at_home(learner, clients) if isinstance(learner, PersonalLearner) else learner


def score(learner: FederatedLearner, data: Prepared) -> np.ndarray:
    """Each client's macro F1, or mean squared error, on the common test set."""
    found = []
    for name in data.clients:
        said = learner.predict(data.test_x, client=name)
        if data.classify:
            true = [f"c{c}" for c in data.test_y]
            found.append(f1_score(true, said, average="macro", zero_division=0))
        else:
            found.append(float(np.mean((said - data.test_y) ** 2)))
    return np.array(found)


def nodes(learner: FederatedLearner, data: Prepared) -> float:
    """Mean number of decision nodes."""
    if isinstance(learner, PersonalLearner):
        return float(np.mean([learner.at_home(name).decisions for name in data.clients]))
    if isinstance(learner, TruexTreeClassifier):
        return float((learner.shared_.tree.feature >= 0).sum())
    return float("nan")


def truex(data: Prepared, parties: int) -> FederatedLearner:
    """The IBM tree through gates, epsilon 1, with or without the noise of a secure sum."""
    frames = []
    for name, (x, y) in data.clients.items():
        frame = pd.DataFrame(x, columns=list(data.schema.names))
        frames.append(frame.assign(y=[f"c{int(c)}" for c in y], client=name))
    learner = TruexTreeClassifier()
    gates = LocalDisclosure.from_frame(
        pd.concat(frames),
        target="y",
        client="client",
        schema=data.schema,
        policy=learner.published(1, parties),
    )
    return learner.fit(gates)


def searched(data: Prepared, participation: float, seed: int) -> Iterator[tuple[str, Any]]:
    """Each search once, and what the clients choose of it in each of several ways."""
    kind = GeneticTreeClassifier if data.classify else GeneticTreeRegressor
    for changes, choices in SEARCHES if data.classify else [*SEARCHES, *BOUNDED]:
        clients = federation(data, UngatedDisclosure)
        learner = kind(client_fraction=participation, random_state=seed, **changes)
        learner.fit(clients)
        bounded = bool(changes.get("bounded"))
        scoring = Scoring(data.classify, changes.get("fitness", "share"), bounded=bounded)
        scoring = replace(scoring, held=learner.scored_on_)
        assert learner.candidates_ is not None
        for name, (own, refit) in choices.items():
            clients.ask(KeepBest(learner.candidates_, scoring, Choice(own, refit)))
            yield name, at_home(learner, clients)


def at_home(learner: PersonalLearner, clients: UngatedDisclosure) -> PersonalLearner:
    """Every client takes its own model home."""
    for name in clients.clients:
        learner.take_home(name, clients.shelves[name])
    return learner


def fitted_all(data: Prepared, participation: float, seed: int) -> Iterator[tuple[str, Any]]:
    """Names, and what has learned."""
    yield from searched(data, participation, seed)
    yield (
        "central",
        fitted(CentralTreeClassifier() if data.classify else CentralTreeRegressor(), data),
    )
    if data.classify:
        yield "IBM", truex(data, 1)
        yield "IBM, secure sum", truex(data, len(data.clients))


def measured(data: Prepared, participation: float, seed: int) -> list[dict[str, Any]]:
    """All learners on one split."""
    local = LocalTreeClassifier() if data.classify else LocalTreeRegressor()
    own = fitted(local, data)
    base = score(own, data)
    rows = [{"learner": "local", "score": base.mean(), "nodes": nodes(own, data)}]
    for name, learner in fitted_all(data, participation, seed):
        each = score(learner, data)
        better = each > base if data.classify else each < base
        rows.append(
            {
                "learner": name,
                "score": each.mean(),
                "nodes": nodes(learner, data),
                "gain": 100 * float(np.mean(each / base - 1)),
                "share": 100 * better.mean(),
            }
        )
    return rows


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean gain with its standard deviation over splits, share of clients and nodes, by set."""
    found = rows.groupby(["set", "learner"], sort=False)
    told = found.agg(
        score=("score", "mean"),
        gain=("gain", "mean"),
        spread=("gain", "std"),
        share=("share", "mean"),
        nodes=("nodes", "mean"),
        splits=("split", "nunique"),
    )
    every = rows.groupby("learner", sort=False)[["gain", "share", "nodes"]].mean()
    every.index = pd.MultiIndex.from_product([["all sets"], every.index])
    return pd.concat([told, every]).round(2)


def remaining(given: argparse.Namespace) -> tuple[list[dict[str, Any]], list[tuple[str, int]]]:
    """Rows that are there, and what is still to be done: split by split, all sets each."""
    splits = range(given.first, given.first + given.splits)
    wanted = [(name, split) for split in splits for name in given.sets.split(",")]
    if not given.out.exists():
        return [], wanted
    done = pd.read_csv(given.out)
    pairs = set(zip(done["set"], done["split"], strict=True))
    rows = [dict(zip(done.columns, row, strict=True)) for row in done.itertuples(index=False)]
    return rows, [each for each in wanted if each not in pairs]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", default=PAPER_SETS)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--first", type=int, default=100, help="seed of the first split")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--alpha", type=float)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--participation", type=float, default=1.0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    at = commit()
    rows, wanted = remaining(given)
    for name, split in wanted:
        started = process_time()
        data = prepared(given.data, name, split, given.clients, given.alpha, rows=given.rows)
        found = measured(data, given.participation, split)
        rows += [{"set": name, "split": split, "commit": at, **row} for row in found]
        write_rows(rows, given.out, ("set", "split", "learner"), seed="split")
        told = {row["learner"]: round(row.get("gain", 0.0), 2) for row in found}
        print(name, split, f"{process_time() - started:.0f} s", told, flush=True)
    print(table(pd.DataFrame(rows)).to_string())
    if set(given.sets.split(",")) <= set(NUMBERS):
        print("negative gains are better")


if __name__ == "__main__":
    main()
