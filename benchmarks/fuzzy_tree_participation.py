"""Figure 5 of the fuzzy tree's paper: test error against the number of clients in each round.

    python benchmarks/fuzzy_tree_participation.py TABLE.csv [--clients 15] [--repeats 10]

The paper's fifteen vehicles are not public, so a table is divided among as many clients at random.
Prints mean and standard deviation over repeated draws; at full participation nothing is drawn.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from privfed import Schema
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import FuzzyTreeRegressor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--clients", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=10)
    given = parser.parse_args()
    frame = pd.read_csv(given.table)
    target = str(frame.columns[-1])
    schema = Schema.infer(frame, target)
    order = np.random.default_rng(0).permutation(len(frame))
    frame = frame.iloc[order].assign(client=np.arange(len(frame)) % given.clients)
    train, test = frame.iloc[: len(frame) * 4 // 5], frame.iloc[len(frame) * 4 // 5 :]
    federation = UngatedDisclosure.from_frame(train, schema, "client")
    print(f"{'clients':>8}{'RMSE':>12}{'sd':>12}")
    for taking_part in tqdm(range(3, given.clients + 1), leave=False):
        errors = []
        for seed in range(given.repeats):
            tree = FuzzyTreeRegressor(clients_per_round=taking_part, random_state=seed)
            predicted = tree.fit(federation).predict(test)
            errors.append(float(np.sqrt(np.mean((predicted - test[target]) ** 2))))
        print(f"{taking_part:8}{np.mean(errors):12.5g}{np.std(errors):12.3g}", flush=True)


if __name__ == "__main__":
    main()
