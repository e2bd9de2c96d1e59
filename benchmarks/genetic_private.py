"""Private FedGA-Tree over epsilon, rows and depth, beside the search itself under the same noise.

    python benchmarks/genetic_private.py DATA --out private.csv [--sets bank_marketing,abalone]
        [--rows 2000,9000,27000] [--epsilons 0.5,1,2,4,8] [--depths 4] [--splits 3] [--alpha 1]

Real gates, secure noise, 20 clients, delta 1e-5. Gains are in macro F1 (for numbers, changes of the
mean squared error) over each client's own tree, in %, mean and share of clients. `labels alone` is
what a client's own tree gains by labels weighed as in `private`, without anything shared but the
classes' shares. `excess` is the log loss of the clients' trees above the constant's, the classes'
shares in training (for numbers, the mean squared error over that of the training mean, in %, less
100); `shared excess` that of the tree that all share. Bins are found privately, so features are not
binned before, and classes stay as uncommon as they are. Split 0 of all sets comes first; what is
done is written at once, and not done again.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from genetic_tree import read
from result_rows import arguments, commit, write_rows
from sklearn.metrics import f1_score

from privfed import LocalDisclosure
from privfed.errors import Note
from privfed.learners import GeneticTreeClassifier, GeneticTreeRegressor
from privfed.learners.base import PersonalLearner
from privfed.learners.baselines import LocalTreeClassifier, LocalTreeRegressor
from privfed.learners.genetic_tree.client import Client
from privfed.learners.genetic_tree.local_subtrees import Shared, choose_below
from privfed.learners.genetic_tree.top import full_tree
from privfed.questions.query import View
from privfed.study.papers.genetic import Prepared, fitted, prepared, score
from privfed.tables.records import Records

#: Probabilities are taken for at least this in a log loss.
LEAST = 1e-12


def private(learner: PersonalLearner, data: Prepared, epsilon: str) -> PersonalLearner:
    """Learn through gates; every client takes its own model home."""
    frames = [
        pd.DataFrame(x, columns=list(data.schema.names)).assign(
            y=[f"c{int(c)}" for c in y] if data.classify else y, client=name
        )
        for name, (x, y) in data.clients.items()
    ]
    gates = LocalDisclosure.from_frame(
        pd.concat(frames),
        target="y",
        client="client",
        schema=data.schema,
        policy=learner.private(epsilon, "1e-5"),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)
        learner.fit(gates)
    assert (gates.budget()["spent"] <= float(epsilon)).all()
    for name, shelf in gates.shelves.items():
        learner.take_home(name, shelf)
    return learner


def gains(learner: PersonalLearner, data: Prepared, base: np.ndarray) -> dict[str, float]:
    """Over the clients' own trees, in %, and beside a constant answer."""
    change = 100 * (score(learner, data) / base - 1)
    better = change > 0 if data.classify else change < 0
    trees = [learner.at_home(name) for name in data.clients]
    values = [tree.predict(data.test_x) for tree in trees]
    shared = learner.shared_.values[learner.shared_.tree.reach(data.test_x)]
    found = {
        "gain": float(change.mean()),
        "share": 100 * float(better.mean()),
        "own": 100 * float(np.mean([tree.source == "own" for tree in trees])),
        "shared nodes": float((learner.shared_.tree.feature >= 0).sum()),
        "excess": float(np.mean([excess(each, data) for each in values])),
        "shared excess": excess(shared, data),
    }
    if data.classify:
        found["labels alone"] = 100 * float(np.mean(labels_alone(learner, data) / base - 1))
    return found


def excess(values: np.ndarray, data: Prepared) -> float:
    """How much worse than a constant values are: log loss above it, or squared error in % less 100."""
    known = np.concatenate([y for _, y in data.clients.values()])
    if not data.classify:
        constant = np.mean((data.test_y - known.mean()) ** 2)
        return 100 * float(np.mean((data.test_y - values[:, 0]) ** 2) / constant - 1)
    shares = np.bincount(known.astype(int), minlength=values.shape[1]) / len(known)
    rows, true = np.arange(len(data.test_y)), data.test_y.astype(int)
    losses = [-np.log(np.maximum(each, LEAST)) for each in (values[rows, true], shares[true])]
    return float(np.mean(losses[0] - losses[1]))


def labels_alone(learner: PersonalLearner, data: Prepared) -> np.ndarray:
    """Each client's own tree with labels weighed as in `private`, and nothing else of it."""
    root = Shared(full_tree(0), learner.shared_.values[:1])
    found = []
    for name, (x, y) in data.clients.items():
        view = View(Records(data.schema, x, y), data.schema, name.encode())
        tree = choose_below(Client(view, classify=True), root, 5, 2, 15)
        said = tree.weighed(tree.predict(data.test_x)).argmax(axis=1)
        found.append(f1_score(data.test_y, said, average="macro", zero_division=0))
    return np.array(found)


def learners(data: Prepared, depths: str) -> Iterator[tuple[str, Any]]:
    """Names and what is to learn."""
    kind = GeneticTreeClassifier if data.classify else GeneticTreeRegressor
    for depth in depths.split(","):
        yield f"shared, depth {depth}", kind(shared_depth=int(depth))


def measured(data: Prepared, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All learners at each epsilon on one split."""
    base = score(
        fitted(LocalTreeClassifier() if data.classify else LocalTreeRegressor(), data), data
    )
    for epsilon in given.epsilons.split(","):
        for called, learner in learners(data, given.depths):
            found = gains(private(learner, data, epsilon), data, base)
            yield {"epsilon": float(epsilon), "learner": called, **found}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", default="electricity,bank_marketing,default_credit_card")
    parser.add_argument("--rows", default="27000")
    parser.add_argument("--epsilons", default="0.5,1,2,4,8")
    parser.add_argument("--depths", default="4")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--alpha", type=float)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    at = commit()
    rows: list[Any] = pd.read_csv(given.out).to_dict("records") if given.out.exists() else []
    done = {(row["set"], row["rows"], row["split"]) for row in rows}
    splits = range(given.first, given.first + given.splits)
    sizes = map(int, given.rows.split(","))
    for split, size, name in product(splits, sizes, given.sets.split(",")):
        if (name, size, split) in done:
            continue
        data = prepared(
            read(given.data, name),
            name,
            split,
            20,
            given.alpha,
            balanced=False,
            bins=False,
            rows=size,
        )
        held = len(data.test_y) + sum(len(y) for _, y in data.clients.values())
        told = {"set": name, "rows": size, "records": held, "split": split, "commit": at}
        for found in measured(data, given):
            rows.append({**told, **found})
            print(rows[-1], flush=True)
        write_rows(rows, given.out, ("set", "rows", "split", "epsilon", "learner"), seed="split")
    table = pd.DataFrame(rows).groupby(["set", "rows", "epsilon", "learner"], sort=False)
    shown = ["gain", "share", "own", "shared nodes", "labels alone", "excess", "shared excess"]
    means = table[[name for name in shown if name in rows[0]]].mean()
    print(means.assign(spread=table["gain"].std()).round(2).to_string())


if __name__ == "__main__":
    main()
