"""Tables from their margins, by integer programming.

Counts are non-negative integers, and published totals are equations between them. A cell whose
least and greatest feasible values are equal is disclosed, published or not (Dobra and Fienberg
2000; the United States Census was rebuilt from its tables alike, Garfinkel et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, diags_array, eye_array, hstack

from privfed.errors import InputError

NODES = 1000  #: Most nodes of the search for one end of a range, or for the likeliest table
#: Residuals, in standard deviations, at which a Gaussian's log-likelihood is replaced by its tangents.
TANGENTS = (0.25, 0.75, 1.5, 2.5, 4.0)


@dataclass(frozen=True, eq=False)
class Ranges:
    """The least and greatest count of each cell, int64, and the cells ``looked_at`` in time."""

    least: np.ndarray
    greatest: np.ndarray
    looked_at: np.ndarray

    @property
    def determined(self) -> np.ndarray:
        """Cells of which only one count is possible, bool, shape (cells,)."""
        return np.asarray(self.looked_at & (self.least == self.greatest))


def ranges(
    design: np.ndarray, *, low: np.ndarray, high: np.ndarray, time_limit: float = 60.0
) -> Ranges | None:
    """The least and greatest count of every cell; None if no table has such totals, or none was found in time.

    Args:
        design: which cells each total adds up, shape (totals, cells).
        low, high: bounds of each total (equal if exact), shape (totals,).
        time_limit: seconds after which no further cell is tried.

    Raises:
        InputError: shapes that do not fit, or numbers that are not finite.
    """
    rows, lower, upper = (np.asarray(array, dtype=float) for array in (design, low, high))
    if rows.ndim != 2 or lower.shape != (len(rows),) or upper.shape != (len(rows),):
        raise InputError("totals need a lower and an upper value for each row of the design")
    if not all(np.isfinite(array).all() for array in (rows, lower, upper)):
        raise InputError("a design and its totals must be finite numbers")
    until, cells = monotonic() + time_limit, rows.shape[1]
    limits = LinearConstraint(csr_array(rows), lower, upper)
    first = _solve(np.zeros(cells), limits, until)
    if first is None:
        return None
    bottom, top, seen = first.copy(), first.copy(), np.zeros(cells, bool)
    for cell in range(cells):
        alone = np.eye(1, cells, cell)[0]
        ends = [_solve(sign * alone, limits, until) for sign in (1.0, -1.0)]
        if ends[0] is None or ends[1] is None:
            break
        bottom[cell], top[cell], seen[cell] = ends[0][cell], ends[1][cell], True
    return Ranges(bottom, top, seen)


def likeliest(
    design: np.ndarray,
    answers: np.ndarray,
    *,
    deviations: np.ndarray,
    laplace: np.ndarray | None = None,
    time_limit: float = 60.0,
) -> np.ndarray | None:
    """The table of counts under which noisy totals are likeliest, int64, shape (cells,); None if none was found.

    An integer program (reconstruction from noisy forests: Gorge, Ferry, Gambs and Vidal 2025, "Training set
    reconstruction from differentially private forests: how effective is DP?"): minus the log-likelihood is
    sqrt(2) |r| for Laplace noise, r the residual in standard deviations, and the greatest of the tangents of r^2 / 2 for
    Gaussian noise. Exact totals are equations. Of the best table within :data:`NODES` nodes.

    Args:
        design: what one record in each cell adds to each total, shape (totals, cells).
        answers: shape (totals,).
        deviations: std of their noise, 0 if exact; shape (totals,).
        laplace: whether its noise is Laplace, bool, shape (totals,); Gaussian otherwise.
        time_limit: seconds.
    """
    rows, std, values = (np.asarray(array, float) for array in (design, deviations, answers))
    noisy, cells = std > 0, rows.shape[1]
    pure = np.zeros(len(rows), bool) if laplace is None else np.asarray(laplace, bool)
    wide = int(noisy.sum())
    free, none = eye_array(wide), csr_array((wide, cells))
    limits, slack = [], 1e-6 * np.maximum(np.abs(values[~noisy]), 1.0)
    if not noisy.all():
        exact = hstack([csr_array(rows[~noisy]), csr_array((len(slack), 2 * wide))])
        limits.append(LinearConstraint(exact, values[~noisy] - slack, values[~noisy] + slack))
    if wide:  # variables: copies of each cell, then residuals, then losses
        scaled, target = rows[noisy] / std[noisy, None], values[noisy] / std[noisy]
        residuals = hstack([csr_array(scaled), -free, csr_array((wide, wide))])
        limits.append(LinearConstraint(residuals, target, target))
        for tangent in TANGENTS:  # loss >= slope * |residual| + height
            slope = np.where(pure[noisy], np.sqrt(2), tangent)
            height = np.where(pure[noisy], 0.0, -(tangent**2) / 2)
            for sign in (1.0, -1.0):
                above = hstack([none, diags_array(-sign * slope), free])
                limits.append(LinearConstraint(above, height, np.inf))
    result = milp(
        np.r_[np.zeros(cells + wide), np.ones(wide)],
        constraints=limits,
        integrality=np.r_[np.ones(cells), np.zeros(2 * wide)],
        bounds=Bounds(np.r_[np.zeros(cells), np.full(wide, -np.inf), np.zeros(wide)], np.inf),
        options={"time_limit": time_limit, "node_limit": NODES},
    )
    return None if result.x is None else np.rint(result.x[:cells]).astype(np.int64)


def _solve(goal: np.ndarray, limits: LinearConstraint, until: float) -> np.ndarray | None:
    """The optimal table of counts; None if infeasible or out of time."""
    remaining = until - monotonic()
    if remaining <= 0:
        return None
    result = milp(
        goal,
        constraints=limits,
        integrality=np.ones(len(goal), dtype=np.int64),
        bounds=Bounds(0, np.inf),
        # no gap: by default an end may lie a ten-thousandth off, which is a record of ten thousand
        options={"time_limit": remaining, "node_limit": NODES, "mip_rel_gap": 0.0},
    )
    return np.rint(result.x).astype(np.int64) if result.status == 0 else None
