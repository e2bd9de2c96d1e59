"""FedGA-Tree by the paper's protocol (its Section IV), beside local, centralized and IBM trees.

    python benchmarks/genetic_tree.py [base] [sizes] [shares] --data FOLDER --out trees.csv
        [--sets magic_telescope,nursery] [--splits 10] [--ways all] [--alpha 1] [--rows 8000]

20 clients (``sizes``: 5, 10, 15 and 30), all of them active in each generation (``shares``: 50, 25 and 10 %),
90/10 splits, P = 20 (40 for numbers), G = 100, five quantile bins for classification and
classes made equally common, as in the paper's sets. Each row of the table: the mean over clients of
the gain in macro F1 over the client's own tree (for numbers, the change of the mean squared error)
in %, the share of clients that gain, decision nodes, and edit distance to the client's own structure.
The search runs without gates (the sizes,
which alone are noisy in the paper, are equal here); the IBM tree runs through gates, with secure
noise. ``--ways all``: the clients' other choices too, and searches with other scores. Learners that differ
in their final choice alone share one search. Split 0 of all sets comes
first, then split 1, ...; what is done is written at once, and not done again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import pandas as pd
from result_rows import arguments, commit, write_rows

from privfed.study.papers.genetic import (
    CLASSES,
    CLIENTS,
    FIRST,
    NUMBERS,
    PAPERS_WAY,
    SHARES,
    SIZES,
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

#: Numbers of clients, and the share of them that is active in a generation.
SETTINGS = {"base": ((CLIENTS, 1.0),), "sizes": SIZES, "shares": SHARES}


class Cell(NamedTuple):
    """What is run once."""

    set: str
    split: int
    clients: int
    active: float
    run: int = 0


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean gain with its standard deviation over splits, share of clients and nodes, by set and setting."""
    own = [name for name in Cell._fields if name not in ("split", "run")]
    found = rows.groupby([*own, "learner"], sort=False)
    told = found.agg(
        score=("score", "mean"),
        gain=("gain", "mean"),
        spread=("gain", "std"),
        share=("share", "mean"),
        nodes=("nodes", "mean"),
        distance=("distance", "mean"),
        splits=("split", "nunique"),
    )
    return told.round(2)


def read(data: Path, name: str) -> pd.DataFrame:
    """A set of the folder, its target last."""
    return pd.read_csv(data / f"{NUMBERS.get(name, name)}.csv")


def remaining(given: argparse.Namespace) -> tuple[list[dict[str, Any]], list[Cell]]:
    """Rows that are there, and what is still to be done: split by split, all sets each."""
    splits = range(given.first, given.first + given.splits)
    settings = [one for part in given.parts for one in SETTINGS[part]]
    wanted = [
        Cell(name, split, *one, run)
        for run in range(given.runs)
        for split in splits
        for one in settings
        for name in given.sets.split(",")
    ]
    if not given.out.exists():
        return [], wanted
    done = pd.read_csv(given.out)
    known = set(done[list(Cell._fields)].itertuples(index=False, name=None))
    rows = [dict(zip(done.columns, row, strict=True)) for row in done.itertuples(index=False)]
    return rows, [each for each in wanted if each not in known]


def main() -> None:
    parser = arguments(__doc__, parts=SETTINGS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default=",".join(CLASSES))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--runs", type=int, default=1, help="of each split")
    parser.add_argument("--first", type=int, default=FIRST, help="seed of the first split")
    parser.add_argument("--ways", choices=("paper", "all"), default="paper")
    parser.add_argument("--alpha", type=float)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    at = commit()
    rows, wanted = remaining(given)
    for cell in wanted:
        started = process_time()
        frame = read(given.data, cell.set)
        data = prepared(frame, cell.set, cell.split, cell.clients, given.alpha, rows=given.rows)
        ways = PAPERS_WAY if given.ways == "paper" else SEARCHES + BOUNDED * (not data.classify)
        found = measured(data, cell.active, cell.split + 1000 * cell.run, ways)
        rows += [cell._asdict() | {"commit": at, **row} for row in found]
        write_rows(rows, given.out, (*Cell._fields, "learner"), seed="split")
        told = {row["learner"]: round(row.get("gain", 0.0), 2) for row in found}
        print(*cell, f"{process_time() - started:.0f} s", told, flush=True)
    print(table(pd.DataFrame(rows)).to_string())
    if set(given.sets.split(",")) <= set(NUMBERS):
        print("negative gains are better")


if __name__ == "__main__":
    main()
