"""Processor time of a whole published fit, gates and ledgers on, as a share of scikit-learn's forest.

    OMP_NUM_THREADS=1 python benchmarks/forest_speed.py [--records 20000] [--features 8] [--repeats 3]

100 trees of depth at most 10, leaves of at least 5 records, five clients against the pooled records
with one job, by turns in one process. Nodes look at sqrt(p) features for classes; for numbers at sqrt(p)
and at all. Both learn the same table: uniform features, steps, waves and an interaction.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable

import numpy as np
import pandas as pd
from paper_rows import PaperRows
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import FedForestClassifier, FedForestRegressor

CLIENTS = 5
FIXED = {"max_depth": 10, "random_state": 0}
TASKS = (
    ("classes, sqrt(p) features", True, "sqrt"),
    ("numbers, sqrt(p) features", False, "sqrt"),
    ("numbers, all features", False, None),
)


def drawn(records: int, features: int, classes: bool) -> tuple[pd.DataFrame, Schema]:
    """Records of five clients alike, and public bounds."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-4, 4, (records, features))
    y = 2.0 * (x[:, 0] > 0) + np.sin(2 * x[:, 1]) + 1.5 * (x[:, 2] > 1) * (x[:, 3] < 0)
    y += rng.normal(0, 0.5, records)
    names = [f"x{number}" for number in range(features)]
    target = Column("y", "number", -10, 10)
    if classes:
        y, target = (y > np.median(y)).astype(float), Column("y", "integer", 0, 1)
    columns = tuple(Column(name, "number", -4, 4) for name in names)
    frame = pd.DataFrame(x, columns=names).assign(y=y)
    frame["client"] = rng.integers(0, CLIENTS, records).astype(str)
    return frame, Schema(columns, target)


def turn(
    frame: pd.DataFrame, schema: Schema, classes: bool, few: str | None
) -> tuple[float, float]:
    """Seconds of the federated fit, and of the pooled one right after."""
    own = spent(lambda: federated(frame, schema, classes, few))
    return own, spent(lambda: pooled(frame, classes, few))


def spent(work: Callable[[], object]) -> float:
    """Processor seconds."""
    before = time.process_time()
    work()
    return time.process_time() - before


def federated(frame: pd.DataFrame, schema: Schema, classes: bool, few: str | None) -> None:
    """Gates and ledgers made, and a forest fitted through them."""
    made = FedForestClassifier if classes else FedForestRegressor
    learner = made(trees=100, max_features=few, max_depth=10, random_state=0)
    fed = LocalDisclosure.from_frame(
        frame, "y", client="client", schema=schema, policy=learner.published()
    )
    learner.fit(fed)


def pooled(frame: pd.DataFrame, classes: bool, few: str | None) -> None:
    """scikit-learn's forest of the same size, one job."""
    made = RandomForestClassifier if classes else RandomForestRegressor
    model = made(100, max_features=few or 1.0, min_samples_leaf=5, n_jobs=1, **FIXED)
    model.fit(frame.drop(columns=["y", "client"]).to_numpy(np.float32), frame["y"].to_numpy())


def profile(frame: pd.DataFrame, schema: Schema, classes: bool, few: str | None) -> None:
    """Where the federated fit spends its time."""
    watch = cProfile.Profile(time.process_time)
    watch.runcall(federated, frame, schema, classes, few)
    pstats.Stats(watch).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tasks", type=int, nargs="*", default=list(range(len(TASKS))))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--out", help="write results/forest_OUT.csv")
    given = parser.parse_args()
    cells = PaperRows("FedForest", "0")
    for name, classes, few in (TASKS[number] for number in given.tasks):
        frame, schema = drawn(given.records, given.features, classes)
        if given.profile:
            profile(frame, schema, classes, few)
            continue
        both = [turn(frame, schema, classes, few) for _ in range(given.repeats)]
        ratios = [own / other for own, other in both]
        own, other = np.median(both, axis=0)
        print(f"{name}: {own:.2f} s, scikit-learn {other:.2f} s, ratios "
              + " ".join(f"{ratio:.2f}" for ratio in ratios), flush=True)  # fmt: skip
        told = {"ours, seconds": own, "scikit-learn, seconds": other, "ratio": np.median(ratios)}
        size = f"{given.records} x {given.features}, {name}"
        note = (
            f"processor time of one thread, medians of {given.repeats} turns; gates and ledgers on"
        )
        for column, value in told.items():
            spread = float(np.std(ratios, ddof=1)) if column == "ratio" and len(both) > 1 else ""
            cells.add("Time beside scikit-learn", size, column=column, ours=float(value),
                      spread=spread, note=note)  # fmt: skip
    if given.out:
        print(cells.write(f"forest_{given.out}"))


if __name__ == "__main__":
    main()
