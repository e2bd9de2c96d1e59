"""Data of the FedGA-Tree benchmarks: binned as the paper does, divided among clients."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from sklearn.preprocessing import KBinsDiscretizer

from privfed.exchange.ungated import UngatedDisclosure
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

CLASSES = {
    **{name: name for name in ("magic_telescope", "electricity", "nursery", "california")},
    "bank_marketing": "bank_marketing",
    "default_credit_card": "default_credit_card",
    "banknote": "banknote",
    "breast_cancer_wdbc": "breast_cancer_wdbc",
    "diabetes_pima": "diabetes_pima",
}
NUMBERS = {
    "houses": "california",
    **{name: name for name in ("abalone", "sulfur", "space_ga", "kin8nm", "delta_elevators")},
}
Kind = TypeVar("Kind", bound=UngatedDisclosure)


@dataclass(frozen=True, eq=False)
class Prepared:
    """One split: the clients' records, the held-out ones, and the public schema."""

    clients: dict[str, tuple[np.ndarray, np.ndarray]]
    test_x: np.ndarray
    test_y: np.ndarray
    schema: Schema

    @property
    def classify(self) -> bool:
        return self.schema.target is not None and not self.schema.target.numeric


def load(data: Path, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Encoded features, target, and which features are numbers."""
    frame = pd.read_csv(data / f"{(CLASSES | NUMBERS)[name]}.csv").dropna()
    target = frame.pop(frame.columns[-1])
    if name in NUMBERS:
        y = target.to_numpy(float)
    else:
        y = pd.factorize(target > target.median() if name == "california" else target, sort=True)[0]
    numeric = np.array([pd.api.types.is_numeric_dtype(frame[c]) for c in frame])
    columns = [
        frame[c].to_numpy(float) if number else pd.factorize(frame[c], sort=True)[0].astype(float)
        for c, number in zip(frame, numeric, strict=True)
    ]
    return np.column_stack(columns), y, numeric


def binned(
    train: np.ndarray, test: np.ndarray, numeric: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Five quantile bins of the training set, or two equal ones (paper, Appendix A)."""
    train, test = train.copy(), test.copy()
    for feature in np.flatnonzero(numeric):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cut = KBinsDiscretizer(
                5, encode="ordinal", strategy="quantile", quantile_method="averaged_inverted_cdf"
            ).fit(train[:, [feature]])
            if len(cut.bin_edges_[0]) < 3:
                cut = KBinsDiscretizer(2, encode="ordinal", strategy="uniform").fit(
                    train[:, [feature]]
                )
        train[:, feature] = cut.transform(train[:, [feature]])[:, 0]
        test[:, feature] = cut.transform(test[:, [feature]])[:, 0]
    return train, test


def prepared(
    data: Path,
    name: str,
    seed: int,
    clients: int,
    alpha: float | None,
    *,
    balanced: bool = True,
    bins: bool = True,
    rows: int | None = None,
) -> Prepared:
    """One random split of 90 and 10 %, the former divided among clients.

    Args:
        data: the folder of tables.
        name: of a set.
        seed: of the split.
        clients: how many.
        alpha: of the Dirichlet law by label; none for equal shares.
        balanced: whether two classes are made equally common, as in the paper's sets.
        bins: whether classification sets are binned, as in the paper.
        rows: most records; none for all.
    """
    rng = np.random.default_rng(seed)
    x, y, numeric = load(data, name)
    classify = name in CLASSES
    if classify and balanced and y.max() == 1:
        least = int(np.bincount(y).min())
        kept = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:least] for c in (0, 1)])
        x, y = x[kept], y[kept]
    order = rng.permutation(len(y))[:rows]
    test, train = order[: len(order) // 10], order[len(order) // 10 :]
    train_x, test_x = x[train], x[test]
    if classify and bins:
        train_x, test_x = binned(train_x, test_x, numeric)
    owner = np.arange(len(train)) % clients
    if alpha is not None:
        for label in np.unique(y):
            here = np.flatnonzero(y[train] == label)
            owner[here] = rng.choice(clients, len(here), p=rng.dirichlet([alpha] * clients))
    lower, upper = x_bounds(train_x)
    columns = [Column(f"x{n}", "number", lower[n], upper[n]) for n in range(x.shape[1])]
    target = (
        Column("y", "category", categories=tuple(f"c{c}" for c in range(int(y.max()) + 1)))
        if classify
        else Column("y", "number", float(y.min()), float(y.max()))
    )
    own = {
        f"{k:02d}": (train_x[owner == k], y[train][owner == k].astype(float))
        for k in range(clients)
    }
    kept_clients = {name_: pair for name_, pair in own.items() if len(pair[1]) >= 10}
    return Prepared(kept_clients, test_x, y[test], Schema(tuple(columns), target))


def x_bounds(x: np.ndarray) -> tuple[list[float], list[float]]:
    low, high = x.min(axis=0), x.max(axis=0)
    return low.tolist(), np.where(high > low, high, low + 1).tolist()


def federation(data: Prepared, kind: type[Kind]) -> Kind:
    """The clients without gates; fits and scores are exact."""
    return kind({name: Records(data.schema, x, y) for name, (x, y) in data.clients.items()})
