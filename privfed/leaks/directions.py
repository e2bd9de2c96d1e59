"""Finds records released scaled and shifted as a whole: rows parallel to a record."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from privfed.leaks.artefact import Block, Released
from privfed.leaks.evidence import Evidence
from privfed.leaks.rows import REMEDY
from privfed.leaks.table import RawTable

PRODUCTS = 20_000_000  #: Most scalar products of released rows and records


def parallel_rows(released: Released, logarithm: bool, table: RawTable) -> Evidence | None:
    """Evidence from rows equal to a times a record plus b, for any a and b (or the exponential of that)."""
    records, width = table.numbers.shape
    if width < 3 or records < 2:
        return None
    raw = _unit(table.numbers)
    best, n_rows, max_rows = (0.0, "", 0), 0, PRODUCTS // records
    for block, rows, transposed in _rows_of(released, width):
        rows = rows[: max_rows - n_rows].astype(float)
        if not len(rows):
            break
        n_rows += len(rows)
        with np.errstate(all="ignore"):
            log, nearest = _nearest_direction(raw, _unit(np.log(rows) if logarithm else rows))
        row = int(np.argmin(log))
        if log[row] < best[0]:
            start = row if transposed else row * width
            best = (float(log[row]), block.leaf.element(start), int(nearest[row]))
    return Evidence(
        "directions",
        f"a record, scaled and shifted as a whole{', its exponential' * logarithm}",
        -best[0] - np.log(max(1, n_rows) * records),
        partial(str, best[1]),
        partial(str, f"record {best[2]}{table.whose}"),
        remedy=REMEDY,
        complexity=3,
    )


def _rows_of(released: Released, width: int) -> Iterator[tuple[Block, np.ndarray, bool]]:
    """Yield blocks as rows of the table's width, and whether they were transposed."""
    for block in released.blocks:
        values = block.values
        if values.dtype == bool or values.size < width:
            continue
        if values.shape[-1] == width or values.size == width:
            yield block, values.reshape(-1, width), False
        if values.ndim == 2 and values.shape[0] == width != values.shape[1]:
            yield block, values.T, True


def _unit(rows: np.ndarray) -> np.ndarray:
    """Rows centred and scaled to unit length; constant rows become zero."""
    with np.errstate(all="ignore"):
        centred = rows - rows.mean(axis=1, keepdims=True)
        unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    return np.where(np.isfinite(unit).all(axis=1, keepdims=True), unit, 0.0)


def _nearest_direction(raw: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability of each row's angle to its nearest record, and that record.

    The second nearest record estimates the angle by chance. A squared angle smaller by the factor r has
    probability r^((d - 2) / 2), for d columns.
    """
    with np.errstate(all="ignore"):
        angles = 1 - np.abs(unit @ raw.T)
    nearest = np.argmin(angles, axis=1)
    second = np.partition(angles, 1, axis=1)[:, 1]
    closest = raw[nearest]
    gap = np.minimum(((unit - closest) ** 2).sum(axis=1), ((unit + closest) ** 2).sum(axis=1)) / 2
    ratio = np.maximum(gap, 1e-30) / np.maximum(second, 1e-30)
    log = np.log(np.minimum(ratio, 1.0)) * (raw.shape[1] - 2) / 2
    log[(gap > 1e-8) | (np.abs(unit).sum(axis=1) == 0)] = 0.0
    return log, nearest
