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
from pathlib import Path
from time import process_time
from typing import Any

import pandas as pd
from result_rows import arguments, commit, write_rows

from privfed.study.papers.genetic import (
    CLASSES,
    NUMBERS,
    PAPERS_WAY,
    Searches,
    measured,
    prepared,
)

#: Searches, by the parameters in which they differ from the paper's, and what the clients then choose
#: by: (own tree, refit), by name.
SEARCHES: Searches = [
    (PAPERS_WAY[0][0], PAPERS_WAY[0][1] | {"refit": (False, True), "own+refit": (True, True)}),
    ({"fitness": "folds"}, {"folds": (False, True), "folds+own": (True, True)}),
]
BOUNDED: Searches = [
    ({"bounded": True}, {"bounded": (False, False)}),
]


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


def read(data: Path, name: str) -> pd.DataFrame:
    """A set of the folder, its target last."""
    return pd.read_csv(data / f"{NUMBERS.get(name, name)}.csv")


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
    parser.add_argument("--sets", default=",".join(CLASSES))
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
        data = prepared(
            read(given.data, name), name, split, given.clients, given.alpha, rows=given.rows
        )
        found = measured(
            data, given.participation, split, SEARCHES if data.classify else SEARCHES + BOUNDED
        )
        rows += [{"set": name, "split": split, "commit": at, **row} for row in found]
        write_rows(rows, given.out, ("set", "split", "learner"), seed="split")
        told = {row["learner"]: round(row.get("gain", 0.0), 2) for row in found}
        print(name, split, f"{process_time() - started:.0f} s", told, flush=True)
    print(table(pd.DataFrame(rows)).to_string())
    if set(given.sets.split(",")) <= set(NUMBERS):
        print("negative gains are better")


if __name__ == "__main__":
    main()
