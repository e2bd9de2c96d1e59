"""Secret bits from many noisy subset sums, by linear programming.

Dinur and Nissim (2003, "Revealing information while preserving privacy", Theorem 5; least absolute
errors: Dwork, McSherry and Talwar 2007): with noise well below the square root of the number of
records, more answers than records give nearly all bits.
"""

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, vstack

from privfed.errors import InputError

ITERATIONS = 50_000  #: Most iterations of the solver


def rebuilt_bits(
    weights: np.ndarray,
    answers: np.ndarray,
    *,
    deviations: np.ndarray | None = None,
    time_limit: float = 30.0,
) -> np.ndarray | None:
    """The bits x that explain sums A x + noise with the least absolute error.

    Solves min sum e_r / s_r subject to |A x - y| <= e and 0 <= x <= 1, and rounds.

    Args:
        weights: A, what each bit adds to each sum, shape (sums, bits).
        answers: y, shape (sums,).
        deviations: s, the scale of each answer's error; uniform by default.
        time_limit: seconds for the solver.

    Returns:
        bool, shape (bits,); None if the solver found nothing in time.

    Raises:
        InputError: shapes that do not fit, or numbers that are not finite.
    """
    rows, values = np.asarray(weights, dtype=float), np.asarray(answers, dtype=float)
    if rows.ndim != 2 or values.shape != (len(rows),) or not rows.size:
        raise InputError("subset sums need one answer for each row of weights")
    if not (np.isfinite(rows).all() and np.isfinite(values).all()):
        raise InputError("subset sums and their weights must be finite numbers")
    scale = np.ones(len(rows)) if deviations is None else np.asarray(deviations, dtype=float)
    sums, bits = rows.shape
    sparse, slack = csr_array(rows / scale[:, None]), eye_array(sums, format="csr")
    shifted = values / scale
    result = linprog(
        np.concatenate([np.zeros(bits), np.ones(sums)]),
        A_ub=vstack([hstack([sparse, -slack]), hstack([-sparse, -slack])], format="csr"),
        b_ub=np.concatenate([shifted, -shifted]),
        bounds=[(0, 1)] * bits + [(0, None)] * sums,
        method="highs",
        options={"time_limit": time_limit, "maxiter": ITERATIONS},
    )
    return None if result.x is None else np.asarray(result.x[:bits] > 0.5)
