"""Records from normal equations of several cells: G_k = sum over the cell's records of w c c'.

Here c is a record's row with a leading 1. One record alone is the first row of G over its corner.
Cells that share records, those of overlapping predicates or of two studies, are diagonalised
together: with C the records' rows, G_k = C' D_k C for each cell, and the generalised eigenvectors
of two mixtures of the cells are the records, as long as these are fewer than the columns of G and
no two have weights in the same proportion everywhere.
"""

from collections.abc import Iterator

import numpy as np

from privfed.errors import InputError

WEAK = 1e-6  #: Directions weaker than this fraction of the strongest are the grid's rounding
CROSS = 1e-4  #: Largest off-diagonal entry of jointly diagonalised cells
CELLS = 200  #: Most cells whose pairs are examined


def joint_records(grams: np.ndarray, seed: int = 0) -> np.ndarray:
    """The records of some cells, from all their equations together.

    Args:
        grams: shape (cells, columns, columns), symmetric; the first column is the records' 1.
        seed: draws the two mixtures.

    Returns:
        rows with the leading 1, shape (records, columns); empty if there are as many directions as
        columns, or cells that are not jointly diagonal.

    Raises:
        InputError: another shape, or numbers that are not finite.
    """
    cells = np.asarray(grams, dtype=float)
    if cells.ndim != 3 or cells.shape[1] != cells.shape[2] or not np.isfinite(cells).all():
        raise InputError("normal equations need finite square matrices, one for each cell")
    columns = cells.shape[1]
    values, vectors = np.linalg.eigh(cells.sum(axis=0))
    kept = values > WEAK * max(float(values.max(initial=0.0)), 0.0)
    if not kept.any() or kept.sum() >= columns:
        return np.empty((0, columns))
    candidates, rotated, eigenvalues = diagonalise(cells, values[kept], vectors[:, kept], seed)
    apart = np.diff(eigenvalues).min(initial=np.inf) > CROSS
    cross = rotated - np.einsum("kii->ki", rotated)[:, :, None] * np.eye(int(kept.sum()))
    if not apart or np.abs(cross).max() > CROSS or (np.abs(candidates[0]) < CROSS).any():
        return np.empty((0, columns))
    return np.asarray((candidates / candidates[0]).T)


def diagonalise(
    grams: np.ndarray, values: np.ndarray, vectors: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Generalised eigenvectors of the sum of cells, given by its eigenpairs, and a random mixture.

    Returns the columns sqrt(w) c, one for each record; the cells in their basis; and the eigenvalues.
    """
    whiten = vectors / np.sqrt(values)
    white = np.einsum("ia,kij,jb->kab", whiten, grams, whiten)
    weights = np.random.default_rng(seed).uniform(size=len(grams))
    eigenvalues, rotation = np.linalg.eigh(np.tensordot(weights, white, 1))
    rotated = np.einsum("ai,kab,bj->kij", rotation, white, rotation)
    return (vectors * np.sqrt(values)) @ rotation, rotated, eigenvalues


def rank_deficient(grams: np.ndarray) -> np.ndarray:
    """The cells, shape (cells, columns, columns), whose rank is below the number of columns."""
    ranks = _ranks(grams)
    return np.asarray(grams[(ranks > 0) & (ranks < grams.shape[1])])


def sharing(grams: np.ndarray) -> Iterator[np.ndarray]:
    """Indices of cells, shape (cells, columns, columns), that may identify records.

    Each cell of rank one alone, then pairs that share records: their summed equations have a lower
    rank than the sum of their ranks.
    """
    columns, ranks = grams.shape[1], _ranks(grams)
    small = np.flatnonzero((ranks > 0) & (ranks < columns))
    for cell in small[ranks[small] == 1]:
        yield np.array([cell])
    for index, first in enumerate(small):
        others = small[index + 1 :]
        if len(others):
            both = _ranks(grams[first] + grams[others])
            for second in others[(both < columns) & (both < ranks[first] + ranks[others])]:
                yield np.array([first, second])


def _ranks(grams: np.ndarray) -> np.ndarray:
    values = np.linalg.eigvalsh(grams)
    return np.asarray((values > WEAK * np.maximum(values[:, -1:], 1e-300)).sum(axis=1))
