"""Local trees on mortgage by how exactly nearly singular leaves are solved: why the paper's err more.

    python benchmarks/fuzzy_tree_leaves.py mortgage.csv

Clients and folds as in ``fuzzy_tree_tables.py``, the first seed. A leaf's equations are solved by a
pseudo-inverse that leaves out directions whose eigenvalue is below a share of the greatest; the paper
does not say how it solves them. Writes results/fuzzy_tree_leaves.csv.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
from result_rows import PaperRows, arguments

from privfed import Schema
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import FuzzyTreeRegressor
from privfed.learners.fuzzy_tree.settings import SETTINGS
from privfed.study.papers.fuzzy_trees import CLIENTS, PAPER, rmse, splits

SOLVER = "privfed.learners.fuzzy_tree.leaves"
TABLE = "Mortgage, local trees by the cut-off of nearly singular leaves"
CUTOFFS = {
    "1e-5 and the grid's resolution (ours)": None,
    "1e-7": 1e-7,
    "1e-9": 1e-9,
    "1e-12": 1e-12,
}


def errors(frame: pd.DataFrame) -> np.ndarray:
    """Training and test RMSE, shape (folds, clients, 2)."""
    target = str(frame.columns[-1])
    schema = Schema.infer(frame, target)
    found = []
    for train, test in splits(frame, 0):
        for client in range(CLIENTS):
            own, other = (part[part["client"] == client] for part in (train, test))
            model = FuzzyTreeRegressor().fit(UngatedDisclosure.from_frame(own, schema))
            found.append((rmse(model, own, target), rmse(model, other, target)))
    return np.array(found).reshape(-1, CLIENTS, 2)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("table", type=Path)
    frame = pd.read_csv(parser.parse_args().table)
    paper = PAPER["mortgage"]
    train, test = (paper.unit * figure for figure in paper.clients[-1][:2])
    note = f"the paper has {train:.3f} and {test:.3f}; spread over clients, of means over folds"
    rows = PaperRows("federated fuzzy regression trees", "0")
    for name, least in CUTOFFS.items():
        if least is None:
            found = errors(frame)
        else:
            other = replace(SETTINGS, min_eigenvalue=least)
            with patch(f"{SOLVER}.SETTINGS", other), patch(f"{SOLVER}._RESOLUTION", 0.0):
                found = errors(frame)
        for place, column in enumerate(("training RMSE", "test RMSE")):
            each = found[..., place].mean(axis=0)
            rows.add(TABLE, name, column=column, ours=float(each.mean()),
                     spread=float(each.std()), note=note)  # fmt: skip
        rows.add(TABLE, name, column="largest test RMSE of a client and fold",
                 ours=float(found[..., 1].max()), note=note)  # fmt: skip
    print(pd.DataFrame(rows.rows)[["row", "column", "ours", "spread"]].to_string(index=False))
    print(rows.write("fuzzy_tree_leaves"))


if __name__ == "__main__":
    main()
