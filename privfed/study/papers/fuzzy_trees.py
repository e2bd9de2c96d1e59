"""Tables 3 and 5 of the paper on federated fuzzy regression trees: errors and sizes of three trees.

Records are assigned at random to five clients, with 5-fold cross-validation at each; folds share records, so
standard errors over them are too small.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from privfed.engines.local import LocalDisclosure
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import FuzzyTreeRegressor
from privfed.study.papers.table import Measured, repeated, rows_of
from privfed.tables.schema import Schema

CLIENTS, FOLDS = 5, 5
SETTINGS = ("local", "federated", "centralized")
COLUMNS = tuple(f"{setting} {part}" for setting in SETTINGS for part in ("train", "test"))
SIZES = ("nodes", "leaves", "depth", "parameters")


@dataclass(frozen=True)
class Published:
    """The paper's figures for one set.

    Args:
        unit: of its RMSE.
        clients: RMSE by client, then their mean, in the order of ``COLUMNS``.
        ranks: R and p of Table 4, federated with local and with centralized; empty if equal.
        sizes: of the local, federated and centralized trees (Table 5).
    """

    unit: float
    clients: tuple[tuple[float, ...], ...]
    ranks: tuple[tuple[float, ...], ...]
    sizes: tuple[tuple[float, ...], ...]


def published() -> dict[str, Published]:
    """Read the paper's figures by set, in the order of :class:`Published`."""
    by_set: dict[str, dict[str, list[tuple[float, ...]]]] = {}
    for row in rows_of("fuzzy_tree.csv"):
        values = tuple(map(float, row["values"].split()))
        by_set.setdefault(row["set"], {}).setdefault(row["figure"], []).append(values)
    return {
        name: Published(
            figures["unit"][0][0], *(tuple(figures[key]) for key in ("clients", "ranks", "sizes"))
        )
        for name, figures in by_set.items()
    }


PAPER = published()


def splits(frame: pd.DataFrame, seed: int) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Draw clients, and yield each fold's training and test part, a fifth of every client."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(frame))
    shuffled = frame.iloc[order].assign(client=np.arange(len(frame)) % CLIENTS)
    fold = (np.arange(len(frame)) // CLIENTS) % FOLDS
    for number in range(FOLDS):
        yield shuffled[fold != number], shuffled[fold == number]


def rmse(model: FuzzyTreeRegressor, table: pd.DataFrame, target: str) -> float:
    """Return the root mean squared error."""
    return float(np.sqrt(np.mean((model.predict(table) - table[target]) ** 2)))


def models(
    train: pd.DataFrame, schema: Schema, target: str
) -> Mapping[str, Mapping[int, FuzzyTreeRegressor]]:
    """Return each client's model, by setting."""
    federation = LocalDisclosure.from_frame(
        train, target, client="client", schema=schema, policy=FuzzyTreeRegressor().published()
    )
    federated = FuzzyTreeRegressor().fit(federation)
    pooled = FuzzyTreeRegressor().fit(UngatedDisclosure.from_frame(train, schema))
    local = {
        client: FuzzyTreeRegressor().fit(
            UngatedDisclosure.from_frame(train[train["client"] == client], schema)
        )
        for client in range(CLIENTS)
    }
    clients = range(CLIENTS)
    return {
        "local": local,
        "federated": dict.fromkeys(clients, federated),
        "centralized": dict.fromkeys(clients, pooled),
    }


def one_fold(
    train: pd.DataFrame, test: pd.DataFrame, schema: Schema, target: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return RMSE by client and column, and sizes by setting (the local trees' mean)."""
    errors, sizes = np.zeros((CLIENTS, len(COLUMNS))), []
    for index, fitted in enumerate(models(train, schema, target).values()):
        for client, model in fitted.items():
            for offset, table in enumerate((train, test)):
                records = table[table["client"] == client]
                errors[client, 2 * index + offset] = rmse(model, records, target)
        sizes.append(
            np.mean(
                [[m.n_nodes_, m.n_leaves_, m.depth_, m.n_parameters_] for m in fitted.values()], 0
            )
        )
    return errors, np.array(sizes)


def folds(frame: pd.DataFrame, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return errors (folds, clients, columns) and sizes (folds, settings, figures) over all seeds."""
    target = str(frame.columns[-1])
    schema = Schema.infer(frame, target)
    results = [
        one_fold(train, test, schema, target)
        for seed in range(seeds)
        for train, test in repeated(splits(frame, seed), f"{target}, five folds", FOLDS)
    ]
    errors, sizes = (np.array(arrays) for arrays in zip(*results, strict=True))
    return errors, sizes


def table_3(data: Mapping[str, pd.DataFrame], repetitions: int) -> Iterator[Measured]:
    """Yield Table 3: RMSE in the target's unit, means over clients."""
    for name, frame in data.items():
        errors = folds(frame, repetitions)[0].mean(axis=1)
        for index, column in enumerate(COLUMNS):
            reference = PAPER[name].clients[-1][index] * PAPER[name].unit
            yield Measured(name, column, reference, errors[:, index].tolist())


def table_5(data: Mapping[str, pd.DataFrame], repetitions: int) -> Iterator[Measured]:
    """Yield Table 5: nodes, leaves, depth and parameters."""
    for name, frame in data.items():
        sizes = folds(frame, repetitions)[1]
        for (number, setting), (index, size) in product(enumerate(SETTINGS), enumerate(SIZES)):
            reference = PAPER[name].sizes[number][index]
            yield Measured(name, f"{setting} {size}", reference, sizes[:, number, index].tolist())
