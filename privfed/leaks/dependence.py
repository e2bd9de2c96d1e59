"""Statistical dependence between columns, as of postcode and city."""

from collections.abc import Sequence

import numpy as np

#: Most records used; most classes of a column of many values, and fewest records per class.
RECORDS, CLASSES, EACH = 2000, 16, 10
#: Most strata of a common factor, and fewest records per stratum; by how many times the factor's variance must
#: exceed that of independent columns.
STRATA, STRATUM, CLEAR = 8, 12, 1.2
#: A column with fewer values than this fraction of the records has one class per value.
REPEATED = 0.2
#: Rank correlation from which two columns count as the same, and the fewest records for it.
ALIKE, ENOUGH = 0.9, 16
#: Mutual information that makes columns dependent, as a fraction of the smaller entropy.
SHARED = 0.5


def dependent(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Group mutually dependent columns; returns the group number of each.

    Two columns belong to one group if the mutual information of their classes, less that of the
    shuffled columns, is at least half of the smaller entropy, or if their ranks are almost perfectly
    correlated. Groups are closed transitively.

    Args:
        columns: numbers or codes, each of shape (records,); NaN for missing.
    """
    groups = np.arange(len(columns))
    if not len(columns) or len(columns[0]) < 2:
        return groups
    records = np.linspace(0, len(columns[0]) - 1, min(len(columns[0]), RECORDS)).astype(int)
    classes = [_classes(column[records]) for column in columns]
    ranks = np.column_stack([_ranks(column[records]) for column in columns])
    alike = (np.abs(ranks.T @ ranks) / len(records) >= ALIKE) & (len(records) >= ENOUGH)
    entropies = [_entropy(a) for a in classes]
    shuffled = np.random.default_rng(0).permutation(len(records))
    for i, a in enumerate(classes):
        for j, b in enumerate(classes[:i]):
            min_entropy = min(entropies[i], entropies[j])
            n = int(b.max()) + 1
            information = _entropy(a * n + b[shuffled]) - _entropy(a * n + b)
            if min_entropy > 0 and (alike[i, j] or information >= SHARED * min_entropy):
                groups[groups == groups[i]] = groups[j]
    return groups


def strata_of(columns: np.ndarray) -> np.ndarray:
    """Stratum of each record by a common factor of the columns; a single stratum if there is no such factor.

    The factor is the first principal component of the ranks, if its variance exceeds that of as many
    independent columns (Marchenko and Pastur's edge, (1 + sqrt(d / n))^2).
    """
    count = len(columns)
    strata = min(STRATA, count // STRATUM)
    if strata < 2 or columns.shape[1] < 2:
        return np.zeros(count, dtype=int)
    ranks = np.column_stack([_ranks(column) for column in columns.T])
    variances, axes = np.linalg.eigh(ranks.T @ ranks / count)
    if variances[-1] < CLEAR * (1 + np.sqrt(ranks.shape[1] / count)) ** 2:
        return np.zeros(count, dtype=int)
    rank = np.argsort(np.argsort(ranks @ axes[:, -1], kind="stable"))
    return np.asarray(rank * strata // count)


def _ranks(column: np.ndarray) -> np.ndarray:
    """Standardised ranks; ties share their mean rank, and a constant column has zeros."""
    _, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
    centred = (np.cumsum(counts) - (counts - 1) / 2)[inverse] - (len(column) + 1) / 2
    return np.asarray(centred / max(float(centred.std()), 0.5))


def _classes(column: np.ndarray) -> np.ndarray:
    """One class per value, or classes of neighbouring values of equal size."""
    values, codes = np.unique(column, return_inverse=True)
    n_classes = int(np.clip(len(column) // EACH, 2, CLASSES))
    if len(values) > max(n_classes, REPEATED * len(column)):
        return codes * n_classes // len(values)
    return codes


def _entropy(classes: np.ndarray) -> float:
    """Entropy of the classes, in nats."""
    fractions = np.bincount(classes) / len(classes)
    return float(-(fractions[fractions > 0] * np.log(fractions[fractions > 0])).sum())
