"""Values out of their power sums: a count, a sum and a sum of squares of few records say who they are.

The power sums p_k = sum over i of x_i^k of n numbers, k = 1 .. n, are theirs up to order: Newton's
identities turn them into the coefficients of the polynomial whose roots the numbers are. Whole numbers
are found from fewer: the sum and the sum of squares leave few multisets of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from privfed.errors import InputError

#: Roots whose imaginary part is below this share of the numbers' size are real.
REAL = 1e-6
#: Most branches that a search over whole numbers looks at.
SEARCH = 1_000_000


def coefficients(sums: np.ndarray) -> np.ndarray:
    """The monic polynomial whose roots have these power sums, by Newton's identities.

    With e_0 = 1, k e_k = sum over i = 1 .. k of (-1)^(i - 1) e_(k-i) p_i; the polynomial is
    sum over k of (-1)^k e_k x^(n-k).

    Args:
        sums: p_1 to p_n, shape (n,).

    Returns:
        highest power first, shape (n + 1,).
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
    """The n real numbers whose power sums of orders 1 to n are given, ascending.

    They are centred and scaled first, for the roots of a polynomial are sensitive; beyond ten numbers
    or so the rounding of the sums themselves drowns them.

    Returns:
        shape (n,); none where no real numbers have such sums.

    Raises:
        InputError: no sums, or some that are not finite.
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
    whole = np.concatenate([[len(sums)], sums])
    return np.array(
        [
            sum(
                math.comb(order, power) * (-mean) ** (order - power) * whole[power]
                for power in range(order + 1)
            )
            for order in range(1, len(sums) + 1)
        ]
    )


def whole_values(
    count: int, *, total: int, squares: int, low: int, high: int, most: int = 2
) -> list[tuple[int, ...]]:
    """The multisets of whole numbers with a given count, sum and sum of squares.

    Args:
        count: how many numbers.
        total: their sum.
        squares: the sum of their squares.
        low: least number there can be.
        high: greatest.
        most: stop at so many; one alone is proof, two are a doubt.

    Returns:
        ascending tuples; empty too where the search would be too long.
    """
    found: list[tuple[int, ...]] = []
    budget = [SEARCH]
    for multiset in _search(count, total, squares, low, high, budget):
        found.append(multiset)
        if len(found) >= most:
            break
    return found if budget[0] > 0 else []


def _search(
    count: int, total: int, squares: int, low: int, high: int, budget: list[int]
) -> Iterator[tuple[int, ...]]:
    """Ascending numbers, the least first; sums that no numbers from here on can have are cut."""
    budget[0] -= 1
    if budget[0] <= 0 or not low * count <= total <= high * count:
        return
    if squares * count < total**2:  # Cauchy and Schwarz
        return
    if count == 1:
        if total**2 == squares:
            yield (total,)
        return
    for least in range(low, total // count + 1):
        rest = _search(count - 1, total - least, squares - least**2, least, high, budget)
        yield from ((least, *others) for others in rest)


def small_group(
    count: int, sums: Sequence[float], *, whole: tuple[int, int] | None = None
) -> np.ndarray | None:
    """The values of a group from its count, sum and sum of squares, where only one set fits.

    Args:
        count: how many records.
        sums: their sum and the sum of their squares.
        whole: least and greatest value, where values are whole numbers; else none.

    Returns:
        ascending, shape (count,); none where they are not determined.
    """
    if count in (1, 2):
        return values(np.asarray(sums[:count], dtype=float))
    if whole is None or count < 1:
        return None
    total, squares = (round(each) for each in sums[:2])
    if max(abs(total - sums[0]), abs(squares - sums[1])) > 1e-3:
        return None
    found = whole_values(count, total=total, squares=squares, low=whole[0], high=whole[1])
    return np.array(found[0], float) if len(found) == 1 else None
