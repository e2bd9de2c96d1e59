"""Impurity of sets of records from additive statistics (CART: Breiman et al. 1984).

Statistics of a set are a vector: class counts (Gini, entropy), or count and sum of the target
(squared error, whose sum of squares cancels in a decrease).
"""

from typing import Literal

import numpy as np

Criterion = Literal["gini", "entropy", "squared_error"]
CRITERIA: tuple[Criterion, ...] = ("gini", "entropy", "squared_error")


def sizes(statistics: np.ndarray, criterion: Criterion) -> np.ndarray:
    """Return the number of records of each vector of statistics (last axis)."""
    if criterion == "squared_error":
        return statistics[..., 0]
    return _total(statistics)


def _total(statistics: np.ndarray) -> np.ndarray:
    """Return the sum over the last axis, term by term if it is short, as NumPy is slow over short axes."""
    if not 1 <= statistics.shape[-1] <= 8:
        return np.asarray(statistics.sum(axis=-1))
    total = statistics[..., 0].copy()
    for index in range(1, statistics.shape[-1]):
        total += statistics[..., index]
    return total


def neg_weighted_impurity(
    statistics: np.ndarray, criterion: Criterion, noise: np.ndarray | None = None
) -> np.ndarray:
    """Return minus a set's impurity times its size, up to a constant that cancels in a decrease.

    Gini: sum n_c^2 / n. Entropy: sum n_c log(n_c / n), in nats. Squared error: (sum y)^2 / n.
    ``noise`` is the expectation that noise adds to the sums of squares (not for entropy).
    """
    size = np.maximum(sizes(statistics, criterion), 1)
    if criterion == "entropy":
        fractions = np.where(statistics > 0, statistics, 1) / size[..., None]
        return np.asarray(_total(statistics * np.log(fractions)))
    squares = statistics[..., 1] ** 2 if criterion == "squared_error" else _total(statistics**2)
    return np.asarray((squares if noise is None else squares - noise) / size)
