"""Columns of a table that tell of one another, as postcode and city do."""

from collections.abc import Sequence

import numpy as np

#: Most records that are looked at; how many classes a column of many values is divided into, at most and of how
#: many records each at least.
RECORDS, CLASSES, EACH = 2000, 16, 10
#: How many strata of a common factor records are divided into, of how many records each at least; by how many
#: times the factor must exceed that of independent columns.
STRATA, STRATUM, CLEAR = 8, 12, 1.2
REPEATED = 0.2  #: A column of fewer values than this share of the records keeps them as its classes
#: Correlation of ranks from which on two columns are one, and of how many records.
ALIKE, ENOUGH = 0.9, 16
SHARED = 0.5  #: Share of the smaller entropy that two columns must have in common


def dependent(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Which columns depend on one another: for each the number of its group.

    Two columns are of one group where the mutual information of their classes, less that of the
    same columns shuffled, is at least half of the smaller entropy, or whose ranks are correlated nearly
    perfectly; and so on from column to column.

    Args:
        columns: numbers or codes, one a record; NaN where there is none.
    """
    groups = np.arange(len(columns))
    if not len(columns) or len(columns[0]) < 2:
        return groups
    records = np.linspace(0, len(columns[0]) - 1, min(len(columns[0]), RECORDS)).astype(int)
    classes = [_classes(column[records]) for column in columns]
    ranks = np.column_stack([_ranks(column[records]) for column in columns])
    alike = (np.abs(ranks.T @ ranks) / len(records) >= ALIKE) & (len(records) >= ENOUGH)
    entropies = [_entropy(one) for one in classes]
    mixed = np.random.default_rng(0).permutation(len(records))
    for at, one in enumerate(classes):
        for place, other in enumerate(classes[:at]):
            least = min(entropies[at], entropies[place])
            width = int(other.max()) + 1
            common = _entropy(one * width + other[mixed]) - _entropy(one * width + other)
            if least > 0 and (alike[at, place] or common >= SHARED * least):
                groups[groups == groups[at]] = groups[place]
    return groups


def strata_of(columns: np.ndarray) -> np.ndarray:
    """Of records in a table of numbers the strata by the factor that their columns have in common, if any.

    The factor is the first principal component of ranks, where its variance is greater than that of as many
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
    place = np.argsort(np.argsort(ranks @ axes[:, -1], kind="stable"))
    return np.asarray(place * strata // count)


def _ranks(column: np.ndarray) -> np.ndarray:
    """Standardised; equal values have one, and a constant has zeros."""
    _, which, often = np.unique(column, return_inverse=True, return_counts=True)
    centred = (np.cumsum(often) - (often - 1) / 2)[which] - (len(column) + 1) / 2
    return np.asarray(centred / max(float(centred.std()), 0.5))


def _classes(column: np.ndarray) -> np.ndarray:
    """Equal values together, or neighbouring ones in equal parts."""
    values, codes = np.unique(column, return_inverse=True)
    most = int(np.clip(len(column) // EACH, 2, CLASSES))
    if len(values) > max(most, REPEATED * len(column)):
        return codes * most // len(values)
    return codes


def _entropy(classes: np.ndarray) -> float:
    """In nats."""
    share = np.bincount(classes) / len(classes)
    return float(-(share[share > 0] * np.log(share[share > 0])).sum())
