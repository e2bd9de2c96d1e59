"""Inference of a person's attributes from the population, without any release: a baseline."""

import numpy as np
from scipy.spatial import cKDTree

NEIGHBOURS = 10  #: Number of nearest neighbours


def infer_by_neighbours(
    known: np.ndarray, people: np.ndarray, known_values: np.ndarray, *, category: bool
) -> np.ndarray:
    """Infer a column of some records by nearest neighbours among people whose column is known.

    Columns are scaled by their standard deviation among those people; the prediction is the neighbours' mean, or
    the most frequent category (Cover and Hart 1967).

    Args:
        known: the records' other columns, shape (records, columns).
        people: the same columns of others, shape (people, columns), at least one person.
        known_values: their values of the column, shape (people,).
        category: whether the values are codes.

    Returns:
        values, shape (records,).
    """
    std = people.std(axis=0)
    scale = np.where(std > 0, std, 1.0)
    count = min(NEIGHBOURS, len(people))
    _, near = cKDTree(people / scale).query(known / scale, k=[*range(1, count + 1)])
    values = known_values[near]
    if not category:
        return np.asarray(values.mean(axis=1))
    codes, index = np.unique(values, return_inverse=True)
    votes = (index.reshape(values.shape)[..., None] == np.arange(len(codes))).sum(axis=1)
    return np.asarray(codes[votes.argmax(axis=1)])
