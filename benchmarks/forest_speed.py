"""Processor time of a whole published fit, gates and ledgers on, as a share of scikit-learn's forest.

    OMP_NUM_THREADS=1 python benchmarks/forest_speed.py [--records 20000] [--features 8] [--repeats 3]
    OMP_NUM_THREADS=1 python benchmarks/forest_speed.py --sets bank_marketing california   # PRIVFED_DATA
    OMP_NUM_THREADS=1 python benchmarks/forest_speed.py --table    # results/forest_speed.csv; or --table large, real

Trees of depth at most 10, leaves of at least 5 records, five clients against the pooled records with one
job, by turns in one process (a new one for each line, whose peak memory after the first fit is told).
Nodes look at sqrt(p) features for classes; for numbers at sqrt(p) and at all. Both learn the same table:
uniform features, steps, waves and an interaction, or a real one, whose categories scikit-learn takes as codes.
"""

from __future__ import annotations

import cProfile
import pstats
import resource
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np
import pandas as pd
from league import load, schema_of
from result_rows import PaperRows, arguments
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


class Line(NamedTuple):
    """One line of the table: a size, one of :data:`TASKS`, how many turns, and which real table."""

    records: int
    features: int
    trees: int
    task: int
    repeats: int
    real: str = ""

    def table(self) -> tuple[pd.DataFrame, Schema]:
        """Records of five clients, and public bounds."""
        if not self.real:
            return drawn(self.records, self.features, TASKS[self.task][1])
        frame, number = load(self.real)
        owners = np.random.default_rng(0).integers(0, CLIENTS, len(frame)).astype(str)
        return frame.assign(client=owners), schema_of(frame, number, 1.0)


def real_line(name: str, repeats: int) -> Line:
    """A real table, sqrt(p) features a node."""
    frame, number = load(name)
    return Line(len(frame), frame.shape[1] - 1, 100, int(number), repeats, name)


#: Real tables: categories and ties, numbers and classes.
REAL = ("bank_marketing", "california", "default_credit_card", "electricity", "magic_telescope")


#: The lines of each table: the tasks and how time grows with records, and a large one.
TABLES = {
    "forest_speed": (
        Line(20_000, 8, 100, 0, 2),
        Line(20_000, 8, 100, 1, 2),
        Line(20_000, 8, 100, 2, 2),
        Line(5_000, 8, 100, 0, 1),
        Line(40_000, 8, 100, 0, 1),
    ),
    "forest_speed_large": (Line(200_000, 20, 100, 0, 1),),
}


def drawn(records: int, features: int, classes: bool) -> tuple[pd.DataFrame, Schema]:
    """Records of five clients alike, and public bounds."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-4, 4, (records, features))
    y = 2.0 * (x[:, 0] > 0) + np.sin(2 * x[:, 1]) + 1.5 * (x[:, 2] > 1) * (x[:, 3] < 0)
    y += rng.normal(0, 0.5, records)
    names = [f"x{number}" for number in range(features)]
    target = Column("y", "number", -10, 10)
    if classes:
        y, target = (y > np.mean(y)).astype(float), Column("y", "integer", 0, 1)
    columns = tuple(Column(name, "number", -4, 4) for name in names)
    frame = pd.DataFrame(x, columns=names).assign(y=y)
    frame["client"] = rng.integers(0, CLIENTS, records).astype(str)
    return frame, Schema(columns, target)


class Turns(NamedTuple):
    """Seconds of each turn, federated and pooled, and the peak of the first federated one."""

    own: list[float]
    other: list[float]
    megabytes: float


def turns(line: Line) -> Turns:
    """Fit by turns."""
    _, classes, few = TASKS[line.task]
    frame, schema = line.table()
    own, other, megabytes = [], [], 0.0
    for _ in range(line.repeats):
        own.append(spent(lambda: federated(frame, schema, classes, few, line.trees)))
        megabytes = megabytes or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        other.append(spent(lambda: pooled(frame, classes, few, line.trees)))
    return Turns(own, other, megabytes)


def spent(work: Callable[[], object]) -> float:
    """Processor seconds."""
    before = time.process_time()
    work()
    return time.process_time() - before


def federated(
    frame: pd.DataFrame, schema: Schema, classes: bool, few: str | None, trees: int = 100
) -> None:
    """Gates and ledgers made, and a forest fitted through them."""
    made = FedForestClassifier if classes else FedForestRegressor
    learner = made(n_estimators=trees, max_features=few, max_depth=10, random_state=0)
    fed = LocalDisclosure.from_frame(
        frame, "y", client="client", schema=schema, policy=learner.published()
    )
    learner.fit(fed)


def pooled(frame: pd.DataFrame, classes: bool, few: str | None, trees: int = 100) -> None:
    """scikit-learn's forest of the same size, one job."""
    made = RandomForestClassifier if classes else RandomForestRegressor
    model = made(trees, max_features=few or 1.0, min_samples_leaf=5, n_jobs=1, **FIXED)
    x = frame.drop(columns=["y", "client"])
    for name in x.columns[[not pd.api.types.is_numeric_dtype(kind) for kind in x.dtypes]]:
        x[name] = pd.factorize(x[name], sort=True)[0]
    model.fit(x.to_numpy(np.float32), frame["y"].to_numpy())


def profile(line: Line) -> None:
    """Where the federated fit spends its time."""
    _, classes, few = TASKS[line.task]
    frame, schema = line.table()
    watch = cProfile.Profile(time.process_time)
    watch.runcall(federated, frame, schema, classes, few, line.trees)
    pstats.Stats(watch).sort_stats("tottime").print_stats(25)


def told(cells: PaperRows, line: Line, found: Turns) -> None:
    """Print a line, and add it to the table."""
    ratios = [own / other for own, other in zip(found.own, found.other, strict=True)]
    own, other = float(np.mean(found.own)), float(np.mean(found.other))
    name = f"{line.real and line.real + ', '}{line.records} x {line.features}, {line.trees} trees, {TASKS[line.task][0]}"
    shown = " ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"{name}: {own:.2f} s, scikit-learn {other:.2f} s, ratios {shown}, peak "
          f"{found.megabytes:.0f} MB", flush=True)  # fmt: skip
    note = (
        "processor time of one thread in one process, means of two or three turns where a spread is told and "
        "one turn elsewhere; five clients, gates and ledgers on; the peak is that of the whole "
        "process with all five clients and their ledgers in memory"
    )
    for column, value in {
        "ours, seconds": own,
        "scikit-learn, seconds": other,
        "ratio": float(np.mean(ratios)),
        "peak, megabytes": found.megabytes,
    }.items():
        several = column == "ratio" and len(ratios) > 1
        spread = float(np.std(ratios, ddof=1)) if several else ""
        cells.add("Time beside scikit-learn's forest", name, column=column, ours=value,
                  spread=spread, note=note)  # fmt: skip


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=8)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tasks", type=int, nargs="*", default=list(range(len(TASKS))))
    parser.add_argument("--sets", nargs="*", default=[], help="real tables")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument(
        "--table", nargs="?", const="", choices=["", "large", "real"], help="write a table"
    )
    given = parser.parse_args()
    size = given.records, given.features, given.trees
    sets = REAL if given.table == "real" else given.sets
    lines = [real_line(name, given.repeats) for name in sets]
    lines = lines or [Line(*size, task, given.repeats) for task in given.tasks]
    if given.profile:
        for line in lines:
            profile(line)
        return
    cells = PaperRows("FedForest", "0")
    name = f"forest_speed_{given.table}" if given.table else "forest_speed"
    for line in TABLES[name] if given.table is not None and not sets else lines:
        with get_context("spawn").Pool(1) as process:
            told(cells, line, process.apply(turns, (line,)))
    if given.table is not None:
        print(cells.write(name))


if __name__ == "__main__":
    main()
