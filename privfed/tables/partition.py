"""Partitions of one table among data owners, for simulations.

Each function returns a client's name for each record, shape (records,).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from privfed.errors import InputError, no_column, number_of

FEWEST = 2  #: Minimum records of a client: a single one has no held-out part and no variance
MOST = 1_000_000  #: Maximum number of numbered clients
#: Maximum draws of a random partition until every client owns :data:`FEWEST` records.
TRIES = 100


def named(count: int | None = None, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the clients' unique names: those given, or ``client-1`` to ``client-<count>``."""
    if (count is None) == (names is None):
        raise InputError('clients: write either count = 5 or names = ["north", "south"]')
    if names is None:
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST:
            raise InputError(
                f"clients: count must be a whole number of at least 1 and at most {MOST:,}, such as 5"
            )
        return tuple(f"client-{number}" for number in range(1, count + 1))
    return unique(names)


def unique(names: Sequence[str]) -> tuple[str, ...]:
    """Check that clients' names are unique (ignoring surrounding spaces)."""
    trimmed = [str(name).strip() for name in names]
    if not trimmed or not all(trimmed):
        raise InputError("clients: a client has no name; give each a name of its own")
    duplicates = sorted({name for name in trimmed if trimmed.count(name) > 1})
    if duplicates:
        raise InputError(
            f"clients: two clients are called {duplicates[0]!r}; give each its own name"
        )
    return tuple(trimmed)


def by_column(frame: pd.DataFrame, column: str) -> np.ndarray:
    """Partition by a column of owners' names (InputError: missing or ambiguous names)."""
    if column not in frame.columns:
        raise InputError(f"clients: {no_column(column, frame.columns)}")
    owners = frame[column]
    missing = int(owners.isna().sum())
    if missing:
        raise InputError(
            f"clients: column {column!r} leaves {missing} of {len(owners)} records without a client; "
            "name their owner, or leave those records out"
        )
    numbers = pd.to_numeric(owners, errors="coerce")
    if numbers.notna().all() and (numbers.astype(float) % 1 != 0).any():
        raise InputError(f"clients: column {column!r} holds measurements, which are nobody's names")
    unique([str(name) for name in owners.unique()])
    return owners.astype(str).str.strip().to_numpy(dtype=object)


def iid(records: int, names: Sequence[str], rng: np.random.Generator) -> np.ndarray:
    """Partition at random into fractions as equal as possible."""
    owners = np.arange(records) % len(names)
    return _assign_names(rng.permutation(owners), names)


def by_quantity(
    records: int, names: Sequence[str], alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """Partition at random into unequal fractions from a symmetric Dirichlet(alpha) (Li et al. 2022)."""
    check_alpha(alpha)

    def draw() -> np.ndarray:
        fractions = rng.dirichlet(np.full(len(names), alpha))
        return rng.permutation(_split(records, fractions))

    return _assign_names(_draw_valid(draw, len(names)), names)


def dirichlet(
    labels: pd.Series, names: Sequence[str], alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """Partition each class by its own Dirichlet(alpha) fractions: clients have different class mixtures.

    More than ten numeric values are first grouped into ten quantile bins (Hsu et al. 2019 define it for classes).
    """
    check_alpha(alpha)
    classes = _classes(labels)

    def draw() -> np.ndarray:
        owners = np.empty(len(classes), dtype=int)
        for label in np.unique(classes):
            index = rng.permutation(np.flatnonzero(classes == label))
            owners[index] = _split(len(index), rng.dirichlet(np.full(len(names), alpha)))
        return owners

    return _assign_names(_draw_valid(draw, len(names)), names)


def by_coins(coins: np.ndarray, fractions: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Partition by each record's own coin, so that adding a record does not move others.

    Args:
        coins: uniform over all 64-bit integers, shape (records,).
        fractions: of each client, shape (clients,), or of the clients in each record's
            class, shape (records, clients); independent of the records.
    """
    ends = np.cumsum(fractions, axis=-1)[..., :-1]
    beyond = (coins / 2.0**64)[:, None] >= ends
    return _assign_names(beyond.sum(axis=1), names)


def check_sizes(owners: np.ndarray, names: Sequence[str]) -> None:
    """Check that every client has at least :data:`FEWEST` records."""
    for name in names:
        size = int((owners == name).sum())
        if size < FEWEST:
            raise InputError(
                f"client {name!r} has {number_of(size, 'record')}, and {FEWEST} are the "
                "fewest a client can hold; join it with another client, or leave it out"
            )


def check_alpha(alpha: float) -> None:
    """Check that Dirichlet's parameter can be drawn with."""
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha < 1e6:
        raise InputError("clients: alpha must be a number above 0 (0.1 uneven, 100 nearly even)")


def _assign_names(owners: np.ndarray, names: Sequence[str]) -> np.ndarray:
    clients: np.ndarray = np.array(names, dtype=object)[owners]
    return clients


def _split(size: int, fractions: np.ndarray) -> np.ndarray:
    """Assign ``size`` positions to clients in consecutive runs, shape (size,), in proportion to ``fractions``."""
    ends = np.floor(np.cumsum(fractions)[:-1] * size + 0.5)
    return np.searchsorted(ends, np.arange(size), side="right")


def _draw_valid(draw: Callable[[], np.ndarray], clients: int) -> np.ndarray:
    for _ in range(TRIES):
        owners = draw()
        if np.bincount(owners, minlength=clients).min() >= FEWEST:
            return owners
    raise InputError(
        f"clients: in {TRIES} draws some client always got fewer than {FEWEST} records; "
        "write a larger alpha or fewer clients"
    )


def _classes(labels: pd.Series) -> np.ndarray:
    if pd.api.types.is_numeric_dtype(labels) and labels.nunique() > 10:
        return np.asarray(pd.qcut(labels.rank(method="first"), 10, labels=False))
    return np.asarray(pd.factorize(labels)[0])
