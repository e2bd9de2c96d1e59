"""Values from power sums.

The power sums p_k = sum over i of x_i^k of n numbers, k = 1 .. n, determine them up to order:
Newton's identities turn them into the coefficients of the polynomial whose roots the numbers are.
"""

import math

import numpy as np

from privfed.errors import InputError

REAL = 1e-6  #: Roots whose imaginary part is below this fraction of the numbers' size are real


def coefficients(sums: np.ndarray) -> np.ndarray:
    """The monic polynomial whose roots have the power sums p_1 to p_n, by Newton's identities; highest power first.

    With e_0 = 1, k e_k = sum over i = 1 .. k of (-1)^(i - 1) e_(k-i) p_i; the polynomial is sum
    over k of (-1)^k e_k x^(n-k), shape (n + 1,).
    """
    count = len(sums)
    elementary = np.zeros(count + 1)
    elementary[0] = 1.0
    signs = (-1.0) ** np.arange(count)
    for order in range(1, count + 1):
        terms = signs[:order] * elementary[order - 1 :: -1][:order] * sums[:order]
        elementary[order] = terms.sum() / order
    return np.asarray(elementary * (-1.0) ** np.arange(count + 1))


def values(sums: np.ndarray) -> np.ndarray | None:
    """The n real numbers, ascending, whose power sums of orders 1 to n are given; None if there are none.

    They are centred and scaled first, for the roots of a polynomial are sensitive; beyond about ten numbers
    the rounding of the sums prevents a solution. InputError for no sums, or some that are not finite.
    """
    known = np.asarray(sums, dtype=float)
    if known.ndim != 1 or not len(known) or not np.isfinite(known).all():
        raise InputError("power sums must be finite numbers, p_1 to p_n of n values")
    count, mean = len(known), known[0] / len(known)
    moved = _shifted(known, mean)
    scale = math.sqrt(max(moved[1], 0.0) / count) if count > 1 else 0.0
    if scale <= 1e-12 * max(abs(mean), 1e-300):
        return np.full(count, mean) if count == 1 or moved[1] >= -REAL * known[1] else None
    roots = np.roots(coefficients(moved / scale ** np.arange(1, count + 1)))
    if np.abs(roots.imag).max() > math.sqrt(REAL):
        return None
    return np.asarray(np.sort(mean + scale * roots.real))


def _shifted(sums: np.ndarray, mean: float) -> np.ndarray:
    """Power sums of the numbers less their mean (binomial theorem)."""
    moments = np.concatenate([[len(sums)], sums])
    return np.array(
        [
            sum(
                math.comb(order, power) * (-mean) ** (order - power) * moments[power]
                for power in range(order + 1)
            )
            for order in range(1, len(sums) + 1)
        ]
    )
