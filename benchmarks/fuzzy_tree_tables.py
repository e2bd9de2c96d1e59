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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from result_rows import PaperRows, arguments
from scipy.stats import wilcoxon
from tqdm import tqdm

from privfed import LocalDisclosure, Schema
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import FuzzyTreeRegressor

CLIENTS, FOLDS = 5, 5
SETTINGS = ("local", "federated", "centralized")
COLUMNS = tuple(f"{setting} {part}" for setting in SETTINGS for part in ("train", "test"))
SIZES = ("nodes", "leaves", "depth", "parameters")


@dataclass(frozen=True)
class Published:
    """What the paper has for one set.

    Args:
        unit: of its RMSE.
        clients: RMSE by client, then their mean, in the order of ``COLUMNS``.
        ranks: R and p of Table 4, federated with local and with centralized; nothing where equal.
        sizes: of the local, federated and centralized trees (Table 5).
    """

    unit: float
    clients: tuple[tuple[float, ...], ...]
    ranks: tuple[tuple[float, ...], tuple[float, ...]]
    sizes: tuple[tuple[float, ...], ...]


PAPER = {
    "mortgage": Published(
        0.1,
        (
            (0.30, 11.45, 1.01, 0.94, 1.01, 0.97),
            (0.52, 3.08, 1.00, 1.31, 1.00, 1.31),
            (0.44, 3.45, 0.95, 1.46, 0.95, 1.46),
            (0.27, 14.28, 0.85, 0.96, 0.85, 0.96),
            (0.71, 2.26, 0.89, 1.38, 0.88, 1.38),
            (0.45, 6.91, 0.94, 1.21, 0.94, 1.22),
        ),
        ((6.0, 0.0), (100.0, 0.0957)),
        (
            (156.28, 93.68, 11.52, 1561.48),
            (184.40, 128.40, 12.00, 2110.40),
            (185.00, 129.20, 12.20, 2123.00),
        ),
    ),
    "weather_izmir": Published(
        1.0,
        (
            (0.61, 2.04, 0.96, 1.13, 0.95, 1.13),
            (0.64, 1.89, 0.98, 1.28, 0.98, 1.27),
            (0.58, 2.02, 0.93, 1.34, 0.93, 1.38),
            (0.63, 1.87, 1.04, 1.36, 1.04, 1.39),
            (0.63, 1.63, 1.02, 1.24, 1.03, 1.23),
            (0.62, 1.89, 0.99, 1.27, 0.99, 1.28),
        ),
        ((0.0, 0.0), (133.0, 0.4418)),
        (
            (109.16, 77.48, 7.36, 806.48),
            (112.80, 88.00, 6.80, 904.80),
            (119.60, 93.60, 7.40, 962.00),
        ),
    ),
    "kin8nm": Published(
        0.1,
        (
            (1.79, 2.06, 1.94, 2.04, 1.94, 2.04),
            (1.80, 2.02, 1.92, 1.96, 1.92, 1.96),
            (1.78, 1.95, 1.93, 1.92, 1.93, 1.92),
            (1.78, 1.93, 1.94, 1.93, 1.94, 1.93),
            (1.81, 2.04, 1.91, 1.97, 1.91, 1.97),
            (1.79, 2.00, 1.93, 1.96, 1.93, 1.96),
        ),
        ((54.0, 0.0025), ()),
        (
            (36.60, 30.28, 2.76, 278.84),
            (30.00, 25.00, 2.00, 230.00),
            (30.00, 25.00, 2.00, 230.00),
        ),
    ),
    "delta_elevators": Published(
        1e-3,
        (
            (1.36, 1.51, 1.40, 1.49, 1.40, 1.49),
            (1.35, 1.48, 1.41, 1.44, 1.41, 1.44),
            (1.35, 1.38, 1.40, 1.36, 1.40, 1.36),
            (1.38, 1.48, 1.43, 1.44, 1.43, 1.44),
            (1.36, 1.47, 1.41, 1.42, 1.41, 1.42),
            (1.36, 1.46, 1.41, 1.43, 1.41, 1.43),
        ),
        ((0.0, 0.0), ()),
        (
            (40.12, 33.08, 3.12, 238.60),
            (35.00, 29.00, 3.00, 209.00),
            (35.00, 29.00, 3.00, 209.00),
        ),
    ),
    "california": Published(
        1e4,
        (
            (5.44, 6.27, 5.71, 6.11, 5.71, 6.11),
            (5.45, 6.03, 5.72, 5.85, 5.72, 5.85),
            (5.56, 5.99, 5.82, 5.82, 5.82, 5.82),
            (5.53, 5.88, 5.75, 5.71, 5.75, 5.71),
            (5.52, 6.18, 5.72, 5.86, 5.72, 6.06),
            (5.50, 6.07, 5.74, 5.87, 5.74, 5.91),
        ),
        ((4.0, 0.0), (126.0, 0.3388)),
        (
            (118.08, 91.76, 8.00, 852.16),
            (121.60, 95.20, 8.00, 883.20),
            (123.60, 97.20, 8.00, 901.20),
        ),
    ),
}


def splits(frame: pd.DataFrame, seed: int) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Draw clients, then give each fold's training and test part, a fifth of every client."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(frame))
    shuffled = frame.iloc[order].assign(client=np.arange(len(frame)) % CLIENTS)
    fold = (np.arange(len(frame)) // CLIENTS) % FOLDS
    for number in range(FOLDS):
        yield shuffled[fold != number], shuffled[fold == number]


def rmse(model: FuzzyTreeRegressor, table: pd.DataFrame, target: str) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((model.predict(table) - table[target]) ** 2)))


def models(
    train: pd.DataFrame, schema: Schema, target: str
) -> Mapping[str, Mapping[int, FuzzyTreeRegressor]]:
    """By setting, the model that each client has."""
    federation = LocalDisclosure.from_frame(
        train, target, client="client", schema=schema, policy=FuzzyTreeRegressor().published()
    )
    federated = FuzzyTreeRegressor().fit(federation)
    pooled = FuzzyTreeRegressor().fit(UngatedDisclosure.from_frame(train, schema))
    own = {
        client: FuzzyTreeRegressor().fit(
            UngatedDisclosure.from_frame(train[train["client"] == client], schema)
        )
        for client in range(CLIENTS)
    }
    alike = range(CLIENTS)
    return {
        "local": own,
        "federated": dict.fromkeys(alike, federated),
        "centralized": dict.fromkeys(alike, pooled),
    }


def one_fold(
    train: pd.DataFrame, test: pd.DataFrame, schema: Schema, target: str
) -> tuple[np.ndarray, np.ndarray]:
    """RMSE by client and column, and sizes by setting (the local trees' mean)."""
    errors, sizes = np.zeros((CLIENTS, len(COLUMNS))), []
    for place, fitted in enumerate(models(train, schema, target).values()):
        for client, model in fitted.items():
            for more, table in enumerate((train, test)):
                own = table[table["client"] == client]
                errors[client, 2 * place + more] = rmse(model, own, target)
        sizes.append(
            np.mean(
                [[m.n_nodes_, m.n_leaves_, m.depth_, m.n_parameters_] for m in fitted.values()], 0
            )
        )
    return errors, np.array(sizes)


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
