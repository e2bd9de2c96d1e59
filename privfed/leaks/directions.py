"""Records that left scaled and shifted as a whole: a row that points in a record's direction."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from privfed.leaks.artefact import Block, Released
from privfed.leaks.evidence import Evidence
from privfed.leaks.rows import MEND
from privfed.leaks.table import RawTable

PRODUCTS = 20_000_000  #: Most products of released rows and records that are formed


def parallel(released: Released, logarithm: bool, table: RawTable) -> Evidence | None:
    """Rows that are a times a record plus b, for some a and b of their own (or such rows' exp)."""
    records, width = table.numbers.shape
    if width < 3 or records < 2:
        return None
    raw = _unit(table.numbers)
    best, looked, left = (0.0, "", 0), 0, PRODUCTS // records
    for block, rows, turned in _rows_of(released, width):
        rows = rows[: left - looked].astype(float)
        if not len(rows):
            break
        looked += len(rows)
        with np.errstate(all="ignore"):
            log, nearest = _nearest_direction(raw, _unit(np.log(rows) if logarithm else rows))
        surest = int(np.argmin(log))
        if log[surest] < best[0]:
            start = surest if turned else surest * width
            best = (float(log[surest]), block.leaf.element(start), int(nearest[surest]))
    return Evidence(
        "directions",
        f"a record, scaled and shifted as a whole{', its exponential' * logarithm}",
        -best[0] - np.log(max(1, looked) * records),
        partial(str, best[1]),
        partial(str, f"record {best[2]}{table.whose}"),
        mend=MEND,
        plain=3,
    )


def _rows_of(released: Released, width: int) -> Iterator[tuple[Block, np.ndarray, bool]]:
    """Blocks as rows as wide as the table, and whether they lay along the first axis."""
    for block in released.blocks:
        values = block.values
        if values.dtype == bool or values.size < width:
            continue
        if values.shape[-1] == width or values.size == width:
            yield block, values.reshape(-1, width), False
        if values.ndim == 2 and values.shape[0] == width != values.shape[1]:
            yield block, values.T, True


def _unit(rows: np.ndarray) -> np.ndarray:
    """Rows centred and scaled to length one; those without spread become zero."""
    with np.errstate(all="ignore"):
        centred = rows - rows.mean(axis=1, keepdims=True)
        unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    return np.where(np.isfinite(unit).all(axis=1, keepdims=True), unit, 0.0)


def _nearest_direction(raw: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each row the log chance of so small an angle to its nearest record, and that record.

    The second nearest record tells how near a record is by chance; an angle's square that is r
    times smaller is r^((d - 2) / 2) times less likely in d dimensions less one.
    """
    with np.errstate(all="ignore"):
        angles = 1 - np.abs(unit @ raw.T)
    nearest = np.argmin(angles, axis=1)
    second = np.partition(angles, 1, axis=1)[:, 1]
    other = raw[nearest]
    gap = np.minimum(((unit - other) ** 2).sum(axis=1), ((unit + other) ** 2).sum(axis=1)) / 2
    ratio = np.maximum(gap, 1e-30) / np.maximum(second, 1e-30)
    log = np.log(np.minimum(ratio, 1.0)) * (raw.shape[1] - 2) / 2
    log[(gap > 1e-8) | (np.abs(unit).sum(axis=1) == 0)] = 0.0
    return log, nearest
