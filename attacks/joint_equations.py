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

WEAK = 1e-6  #: Directions weaker than this share of the strongest are the grid's rounding
CROSS = 1e-4  #: How far cells may be from being diagonal together
CELLS = 200  #: Most cells whose pairs are looked at


def joint_records(grams: np.ndarray, seed: int = 0) -> np.ndarray:
    """The records of some cells, from all their equations together.

    Args:
        grams: shape (cells, columns, columns), symmetric; the first column is the records' 1.
        seed: draws the two mixtures.

    Returns:
        rows with the leading 1, shape (records, columns); empty if there are as many directions as
        columns, or cells that are not diagonal together.

    Raises:
        InputError: another shape, or numbers that are not finite.
    """
    told = np.asarray(grams, dtype=float)
    if told.ndim != 3 or told.shape[1] != told.shape[2] or not np.isfinite(told).all():
        raise InputError("normal equations need finite square matrices, one for each cell")
    columns = told.shape[1]
    values, vectors = np.linalg.eigh(told.sum(axis=0))
    kept = values > WEAK * max(float(values.max(initial=0.0)), 0.0)
    if not kept.any() or kept.sum() >= columns:
        return np.empty((0, columns))
    found, own, shares = diagonalised(told, values[kept], vectors[:, kept], seed)
    apart = np.diff(shares).min(initial=np.inf) > CROSS
    cross = own - np.einsum("kii->ki", own)[:, :, None] * np.eye(int(kept.sum()))
    if not apart or np.abs(cross).max() > CROSS or (np.abs(found[0]) < CROSS).any():
        return np.empty((0, columns))
    return np.asarray((found / found[0]).T)


def diagonalised(
    grams: np.ndarray, values: np.ndarray, vectors: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Generalised eigenvectors of the sum of cells, given by its eigenpairs, and a random mixture.

    As columns sqrt(w) c of a record each; then the cells in their basis, and the eigenvalues.
    """
    whiten = vectors / np.sqrt(values)
    white = np.einsum("ia,kij,jb->kab", whiten, grams, whiten)
    weights = np.random.default_rng(seed).uniform(size=len(grams))
    shares, turned = np.linalg.eigh(np.tensordot(weights, white, 1))
    own = np.einsum("ai,kab,bj->kij", turned, white, turned)
    return (vectors * np.sqrt(values)) @ turned, own, shares


def of_few_records(grams: np.ndarray) -> np.ndarray:
    """The cells, shape (cells, columns, columns), whose rank is below the number of columns."""
    ranks = _ranks(grams)
    return np.asarray(grams[(ranks > 0) & (ranks < grams.shape[1])])


def sharing(grams: np.ndarray) -> Iterator[np.ndarray]:
    """Indices of cells, shape (cells, columns, columns), that may give records away.

    Each cell of rank one alone, then pairs that share records: their summed equations have a lower
    rank than the sum of their ranks.
    """
    columns, ranks = grams.shape[1], _ranks(grams)
    small = np.flatnonzero((ranks > 0) & (ranks < columns))
    for cell in small[ranks[small] == 1]:
        yield np.array([cell])
    for place, one in enumerate(small):
        others = small[place + 1 :]
        if len(others):
            both = _ranks(grams[one] + grams[others])
            for other in others[(both < columns) & (both < ranks[one] + ranks[others])]:
                yield np.array([one, other])


def _ranks(grams: np.ndarray) -> np.ndarray:
    values = np.linalg.eigvalsh(grams)
    return np.asarray((values > WEAK * np.maximum(values[:, -1:], 1e-300)).sum(axis=1))
