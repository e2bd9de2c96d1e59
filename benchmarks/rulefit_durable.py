"""What durable ledgers cost a fit: RuleFit with 300 rounds, five clients of 4,000 records.

    OMP_NUM_THREADS=1 python benchmarks/rulefit_durable.py --repetitions 3

The same fit with ledgers in memory and on disk, one after the other, several times; the median wall
time of each way, its ratio to memory, and the share of the time that clients wait for COMMIT (added up
over clients; asked in parallel they wait together, so that the sum can exceed the clock).
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import numpy as np
import pandas as pd
from rulefit_simulations import SCHEMA, draw, split

from privfed import LocalDisclosure
from privfed.learners import RuleFitClassifier
from privfed.ledger.storage import ChainFile

CLIENTS, RECORDS = 5, 4_000
WAYS: dict[str, dict[str, Any]] = {
    "memory": {"disk": False, "block": 1, "parallel": False},
    "disk": {"disk": True, "block": 1, "parallel": False},
    "disk, block 16": {"disk": True, "block": 16, "parallel": False},
    "disk, block 16, parallel": {"disk": True, "block": 16, "parallel": True},
    "memory, parallel": {"disk": False, "block": 1, "parallel": True},
}


class Commits:
    """Counts and times all commits while it is entered."""

    def __init__(self) -> None:
        self.seconds, self.number = 0.0, 0
        self._lock = threading.Lock()

    def timed(self, file: ChainFile) -> None:
        start = time.perf_counter()
        self._plain(file)
        took = time.perf_counter() - start
        with self._lock:
            self.seconds, self.number = self.seconds + took, self.number + 1

    def __enter__(self) -> Self:
        self._plain = ChainFile._commit
        self._patch = patch.object(ChainFile, "_commit", lambda file: self.timed(file))
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


def fit(train: pd.DataFrame, rounds: int, disk: bool, block: int, parallel: bool) -> dict[str, Any]:
    """Fit once; the making of gates is not counted."""
    learner = RuleFitClassifier(rounds=rounds, random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        made = LocalDisclosure.from_frame(
            train,
            "y",
            "client",
            schema=SCHEMA,
            policy=learner.published(),
            ledgers=Path(folder) / "ledgers" if disk else None,
            block=block,
        )
        gates = LocalDisclosure(made.gates, parallel=parallel)
        with Commits() as commits:
            start, own = time.perf_counter(), time.process_time()
            learner.fit(gates)
            wall, own = time.perf_counter() - start, time.process_time() - own
    return {"wall": wall, "cpu": own, "commit": commits.seconds, "commits": commits.number}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=300)
    chosen = parser.parse_args()
    train = split(draw(2, CLIENTS * RECORDS, np.random.default_rng(0)), (1 / CLIENTS,) * CLIENTS)
    rows = [
        {"way": name, **fit(train, chosen.rounds, **way)}
        for _ in range(chosen.repetitions)
        for name, way in WAYS.items()
    ]
    found = pd.DataFrame(rows).groupby("way", sort=False).median()
    found["ratio to memory"] = found["wall"] / found.loc["memory", "wall"]
    found["commit share"] = found["commit"] / found["wall"]
    print(found.round(3).to_string())


if __name__ == "__main__":
    main()
