"""What loose public bounds cost a private learner: AUC where they are many times too wide.

    PRIVFED_DATA=... python benchmarks/private_wide.py --results private_wide

RuleFit's and the forest's one engine over five clients, delta 1e-5; numbers are cut at the median. Bounds are the
data's own, 3 and 11 times as wide about their middle, ten widths more above, or one column's (the
first's) 1,000 times as wide. All bounds of a set share their splits, four times as many for sets below 1,500
records, whose AUC varies most, and twice as many below 5,000.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from league import DELTA, TARGETS, forest, load, schema_of, scores
from result_rows import arguments, seeds_of, write_private
from sklearn.model_selection import train_test_split

from privfed import Column, Schema

#: Widths added below and above, and whether to the first column alone.
BOUNDS: Mapping[str, tuple[float, float, bool]] = {
    "as they are": (0.0, 0.0, False),
    "3 times": (1.0, 1.0, False),
    "11 times": (5.0, 5.0, False),
    "11 times, above": (0.0, 10.0, False),
    "one column 1,000 times": (499.5, 499.5, True),
}


def loosened(schema: Schema, below: float, above: float, first: bool) -> Schema:
    """The same columns in wider bounds; categories and the target stay."""
    columns = [
        column if first and j else _loosened(column, below, above)
        for j, column in enumerate(schema.features)
    ]
    return Schema(tuple(columns), schema.target)


def _loosened(column: Column, below: float, above: float) -> Column:
    if not column.numeric:
        return column
    low, high = column.bounds
    low, high = low - below * (high - low), high + above * (high - low)
    if column.kind == "integer":
        low, high = math.floor(low), math.ceil(high)
    return Column(column.name, column.kind, low, high)


def repeats(records: int) -> int:
    """How many times the seeds: small sets' scores vary more."""
    return 4 if records < 1_500 else 2 if records < 5_000 else 1


def lines(name: str, epsilon: str, chosen: list[str], seeds: range) -> list[dict[str, Any]]:
    """One for each of the bounds: mean and deviation of AUC over splits."""
    frame, number = load(name)
    if number:
        frame = frame.assign(y=(frame["y"] > frame["y"].median()).astype(int))
    tight, found = schema_of(frame, False, 1.0), []
    splits = range(seeds.start, seeds.start + len(seeds) * repeats(len(frame)))
    for bounds in chosen:
        schema, each = loosened(tight, *BOUNDS[bounds]), []
        for seed in splits:
            train, test = train_test_split(frame, test_size=0.2, random_state=seed)
            told = forest(train, test, schema, epsilon, seed, 5)
            wanted, mean = test["y"].to_numpy(float), float(train["y"].mean())
            each.append(scores(wanted, told, False, mean)["auc"])
        found.append(
            {"set": f"{name}, {len(frame)} records", "epsilon": epsilon, "learner": bounds,
             "metric": "wide, auc", "value": round(float(np.mean(each)), 4),
             "spread": round(float(np.std(each, ddof=1)), 4)}
        )  # fmt: skip
    return found


def main() -> None:
    epsilons = ["0.5", "1", "4"]
    parser = arguments(__doc__, seeds=2, first_seed=100, data=sorted(TARGETS), epsilons=epsilons)
    parser.add_argument("--bounds", nargs="+", default=list(BOUNDS), choices=list(BOUNDS))
    parser.add_argument("--results", help="name of a table in benchmarks/results")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds = seeds_of(given)
    rows: list[dict[str, Any]] = []
    for name in given.data:
        for epsilon in given.epsilons:
            rows += lines(name, epsilon, given.bounds, seeds)
            print(pd.DataFrame(rows[-len(given.bounds) :]).to_string(index=False), flush=True)
    note = (
        f"{len(seeds)} splits, {4 * len(seeds)} of sets below 1,500 records and {2 * len(seeds)} below 5,000; "
        f"five clients, delta {DELTA}, 20 % held out; numbers are cut at the median; ± over splits"
    )
    write_private(rows, given, note, f"from {seeds[0]} on")


if __name__ == "__main__":
    main()
