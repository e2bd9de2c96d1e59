"""Tables 3, 4 and 5 and Figure 4 of the fuzzy tree's paper.

    python benchmarks/fuzzy_tree_tables.py FOLDER [--sets kin8nm,mortgage] [--seeds 1]

RMSE (training and test, client by client), the Wilcoxon test between federated and local or
centralized learning over five clients times five folds, the differences that it tests, and the sizes
of the three trees; beside the paper's figures. Five clients are drawn, 5-fold cross-validation at each.
Clients and folds are drawn, so a client's row is nobody of the paper's in particular. FOLDER holds
mortgage.csv, weather_izmir.csv, kin8nm.csv, delta_elevators.csv and california.csv, the target in the
last column. Writes results/fuzzy_tree_tables.csv and results/fuzzy_tree_figure4.csv; Figure 4 and
Table 4 are of the first seed, as the paper has 25 values of each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from result_rows import PaperRows, arguments
from scipy.stats import wilcoxon
from tqdm import tqdm

from privfed import Schema
from privfed.study.papers.fuzzy_trees import (
    CLIENTS,
    COLUMNS,
    FOLDS,
    PAPER,
    SETTINGS,
    SIZES,
    one_fold,
    splits,
)


def table_3(rows: PaperRows, name: str, errors: np.ndarray) -> None:
    """RMSE by client and column; errors of shape (folds, clients, columns)."""
    paper = PAPER[name]
    named = [*((str(client + 1), errors[:, client]) for client in range(CLIENTS))]
    named.append(("mean", errors.mean(axis=1)))
    for theirs, (client, own) in zip(paper.clients, named, strict=True):
        for place, column in enumerate(COLUMNS):
            rows.add(
                "Table 3, RMSE in the target's unit",
                f"{name}, client {client}" if client != "mean" else f"{name}, mean",
                column=column,
                theirs=theirs[place] * paper.unit,
                ours=float(own[:, place].mean()),
                spread=float(own[:, place].std()),
                note="spread over folds",
            )


def table_4(rows: PaperRows, figure: PaperRows, name: str, errors: np.ndarray) -> None:
    """Wilcoxon signed ranks over clients and folds, and the differences in rising order."""
    test = errors[..., 1::2]
    for number, other in enumerate(("local", "centralized")):
        away = (test[..., 1] - test[..., 2 * number]).ravel()
        label = f"federated and {other}"
        for place, one in enumerate(np.sort(away), start=1):
            figure.add(
                "Figure 4, differences in test RMSE",
                name,
                column=f"{label}, {place} of {len(away)}",
                ours=float(one),
            )
        theirs = PAPER[name].ranks[number]
        equal = "exactly equivalent"
        if not away.any():
            rows.add("Table 4, Wilcoxon signed ranks of test RMSE", name, column=f"{label}, p", theirs=theirs[1] if theirs else equal,
                     ours=1.0, note="exactly equivalent here")  # fmt: skip
            continue
        found = wilcoxon(away)
        for place, (column, value) in enumerate((("R", found.statistic), ("p", found.pvalue))):
            rows.add("Table 4, Wilcoxon signed ranks of test RMSE", name, column=f"{label}, {column}",
                     theirs=theirs[place] if theirs else equal, ours=float(value))  # fmt: skip


def table_5(rows: PaperRows, name: str, sizes: np.ndarray) -> None:
    """Nodes, leaves, depth and parameters; sizes of shape (folds, settings, figures)."""
    for number, setting in enumerate(SETTINGS):
        for place, size in enumerate(SIZES):
            own = sizes[:, number, place]
            rows.add(
                "Table 5, sizes of the trees",
                name,
                column=f"{setting} {size}",
                theirs=PAPER[name].sizes[number][place],
                ours=float(own.mean()),
                spread=float(own.std()),
                note="spread over folds",
            )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", default=",".join(PAPER))
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    seeds = f"0 to {given.seeds - 1}" if given.seeds > 1 else "0"
    rows, figure = (PaperRows("federated fuzzy regression trees", s) for s in (seeds, "0"))
    for name in given.sets.split(","):
        frame = pd.read_csv(given.folder / f"{name}.csv")
        target = str(frame.columns[-1])
        schema = Schema.infer(frame, target)
        folds = [
            one_fold(train, test, schema, target)
            for seed in tqdm(range(given.seeds), desc=name, leave=False)
            for train, test in splits(frame, seed)
        ]
        errors, sizes = (np.array(each) for each in zip(*folds, strict=True))
        table_3(rows, name, errors)
        table_4(rows, figure, name, errors[:FOLDS])
        table_5(rows, name, sizes)
    table = pd.DataFrame(rows.rows).drop(columns=["paper", "note"])
    print(table.to_string(index=False))
    print(rows.write("fuzzy_tree_tables"), figure.write("fuzzy_tree_figure4"))


if __name__ == "__main__":
    main()
