"""Columns of a table that tell of one another, as postcode and city do."""

from collections.abc import Sequence

import numpy as np

#: Most records that are looked at, and how many classes a column of many values is divided into.
RECORDS, CLASSES = 2000, 16
REPEATED = 0.2  #: A column of fewer values than this share of the records keeps them as its classes
SHARED = 0.5  #: Share of the smaller entropy that two columns must have in common


def dependent(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Which columns depend on one another: for each the number of its group.

    Two columns are of one group where the mutual information of their classes, less that of the
    same columns shuffled, is at least half of the smaller entropy; and so on from column to column.

    Args:
        columns: numbers or codes, one a record; NaN where there is none.
    """
    groups = np.arange(len(columns))
    if not len(columns) or len(columns[0]) < 2:
        return groups
    records = np.linspace(0, len(columns[0]) - 1, min(len(columns[0]), RECORDS)).astype(int)
    classes = [_classes(column[records]) for column in columns]
    entropies = [_entropy(one) for one in classes]
    mixed = np.random.default_rng(0).permutation(len(records))
    for at, one in enumerate(classes):
        for place, other in enumerate(classes[:at]):
            least = min(entropies[at], entropies[place])
            width = int(other.max()) + 1
            common = _entropy(one * width + other[mixed]) - _entropy(one * width + other)
            if least > 0 and common >= SHARED * least:
                groups[groups == groups[at]] = groups[place]
    return groups


def _classes(column: np.ndarray) -> np.ndarray:
    """Equal values together, or neighbouring ones in equal parts."""
    values, codes = np.unique(column, return_inverse=True)
    if len(values) > max(CLASSES, REPEATED * len(column)):
        return codes * CLASSES // len(values)
    return codes


def _entropy(classes: np.ndarray) -> float:
    """In nats."""
    share = np.bincount(classes) / len(classes)
    return float(-(share[share > 0] * np.log(share[share > 0])).sum())
