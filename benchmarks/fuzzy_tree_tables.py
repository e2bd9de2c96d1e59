"""Tables 3 and 5 of the fuzzy tree's paper: RMSE and sizes, local, federated and centralized.

    python benchmarks/fuzzy_tree_tables.py FOLDER [--sets kin8nm,mortgage] [--seeds 10]

Five clients, 5-fold cross-validation at each client, mean over clients, folds and seeds; beside the
paper's figures. FOLDER holds mortgage.csv, weather_izmir.csv, kin8nm.csv, delta_elevators.csv and
california.csv, the target in the last column.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from privfed import LocalDisclosure, Schema
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import FuzzyTreeRegressor

#: Test RMSE (local, federated, centralized) and federated nodes, leaves, depth in the paper.
PAPER = {
    "mortgage": (0.691, 0.121, 0.122, 184.4, 128.4, 12.0),
    "weather_izmir": (1.89, 1.27, 1.28, 112.8, 88.0, 6.8),
    "kin8nm": (0.200, 0.196, 0.196, 30.0, 25.0, 2.0),
    "delta_elevators": (1.46e-3, 1.43e-3, 1.43e-3, 35.0, 29.0, 3.0),
    "california": (6.07e4, 5.87e4, 5.91e4, 121.6, 95.2, 8.0),
}
CLIENTS, FOLDS = 5, 5


def splits(frame: pd.DataFrame, seed: int) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Draw clients, then give each fold's training and test part, a fifth of every client."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(frame))
    shuffled = frame.iloc[order].assign(client=np.arange(len(frame)) % CLIENTS)
    fold = (np.arange(len(frame)) // CLIENTS) % FOLDS
    for number in range(FOLDS):
        yield shuffled[fold != number], shuffled[fold == number]


def rmse(model: FuzzyTreeRegressor, test: pd.DataFrame, target: str) -> list[float]:
    """Test error of one model at each client."""
    return [
        float(np.sqrt(np.mean((model.predict(part) - part[target]) ** 2)))
        for _, part in test.groupby("client")
    ]


def one_fold(train: pd.DataFrame, test: pd.DataFrame, schema: Schema, target: str) -> list[float]:
    """Local, federated and centralized error, then the federated tree's sizes."""
    policy = FuzzyTreeRegressor().published()
    federation = LocalDisclosure.from_frame(
        train, target, client="client", schema=schema, policy=policy
    )
    federated = FuzzyTreeRegressor().fit(federation)
    pooled = FuzzyTreeRegressor().fit(UngatedDisclosure.from_frame(train, schema))
    local = []
    for client, part in train.groupby("client"):
        own = FuzzyTreeRegressor().fit(UngatedDisclosure.from_frame(part, schema))
        local += rmse(own, test[test["client"] == client], target)
    errors = [
        float(np.mean(e))
        for e in (local, rmse(federated, test, target), rmse(pooled, test, target))
    ]
    return [*errors, federated.n_nodes_, federated.n_leaves_, federated.depth_]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", default=",".join(PAPER))
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    columns = ("local", "federated", "centralized", "nodes", "leaves", "depth")
    print(f"{'':16}" + "".join(f"{column:>13}" for column in columns))
    for name in given.sets.split(","):
        frame = pd.read_csv(given.folder / f"{name}.csv")
        target = str(frame.columns[-1])
        schema = Schema.infer(frame, target)
        rows = [
            one_fold(train, test, schema, target)
            for seed in tqdm(range(given.seeds), desc=name, leave=False)
            for train, test in splits(frame, seed)
        ]
        found = np.mean(rows, axis=0)
        print(f"{name:16}" + "".join(f"{value:13.5g}" for value in found))
        print(f"{'  paper':16}" + "".join(f"{value:13.5g}" for value in PAPER[name]))
        ratios = found / np.array(PAPER[name])
        print(f"{'  ratio':16}" + "".join(f"{ratio:13.3f}" for ratio in ratios), flush=True)


if __name__ == "__main__":
    main()
