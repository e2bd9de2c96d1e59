"""What of a person follows from the population, without any release: the baseline of attribute inference."""

import numpy as np
from scipy.spatial import cKDTree

NEIGHBOURS = 10  #: People alike who are asked


def inferred(
    known: np.ndarray, people: np.ndarray, told: np.ndarray, *, category: bool
) -> np.ndarray:
    """Infer a column of some records from the people most like them whose column is known.

    Columns are scaled by their deviation among those people; neighbours are averaged, or of categories the
    most frequent one is taken (Cover and Hart 1967).

    Args:
        known: the records' other columns, shape (records, columns).
        people: the same columns of others, shape (people, columns), one person at least.
        told: their values of the column, shape (people,).
        category: whether the values are codes.

    Returns:
        values, shape (records,).
    """
    spread = people.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    count = min(NEIGHBOURS, len(people))
    _, near = cKDTree(people / scale).query(known / scale, k=[*range(1, count + 1)])
    values = told[near]
    if not category:
        return np.asarray(values.mean(axis=1))
    codes, places = np.unique(values, return_inverse=True)
    votes = (places.reshape(values.shape)[..., None] == np.arange(len(codes))).sum(axis=1)
    return np.asarray(codes[votes.argmax(axis=1)])
