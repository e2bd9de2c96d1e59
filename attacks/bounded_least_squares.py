"""Least squares within a box: the smallest h' G h / 2 - b' h over 0 <= h <= most.

Block principal pivoting (Judice and Pires 1994, "A block principal pivoting algorithm for large-scale
strictly monotone linear complementarity problems", with upper bounds): every unknown is guessed to lie
at a bound or between; those between are solved for; all that contradict their guess change it at once.
It takes some ten to thirty factorings, however many unknowns lie at a bound. Where the number of those
that contradict no longer falls, they are added one by one instead (Lawson and Hanson 1974), which takes
a step for each, and whoever then comes out above the most is set to it for good: no more than near the
least.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.optimize import nnls

from privfed.attacks.clock import Clock

#: How many rounds in a row may contradict as many guesses as any before, or more.
PATIENCE = 10
#: How far beyond a bound, as a share of the largest bound or slope, is no contradiction.
NEAR = 1e-10
#: Where an unknown is guessed to lie.
LOW, BETWEEN, HIGH = -1, 0, 1


def boxed(gram: np.ndarray, right: np.ndarray, most: np.ndarray, clock: Clock) -> np.ndarray:
    """The least of a quadratic form in a box.

    Args:
        gram: G, positive definite, shape (unknowns, unknowns).
        right: b, shape (unknowns,).
        most: upper bounds above 0, shape (unknowns,).
        clock: after which what was reached is given back.

    Returns:
        shape (unknowns,), within the box.
    """
    guess = np.zeros(len(right), int)
    fewest, patience = len(right) + 1, PATIENCE
    margin = NEAR * max(float(np.abs(right).max(initial=0.0)), 1.0)
    while patience:
        found, slope = _solved(gram, right, most, guess)
        better = _contradicted(found, slope, most, guess, margin)
        wrong = int((better != guess).sum())
        if not wrong or clock.over:
            return np.asarray(np.clip(found, 0.0, most))
        patience = PATIENCE if wrong < fewest else patience - 1
        fewest, guess = min(wrong, fewest), better
    return _one_by_one(gram, right, most, clock)


def _one_by_one(gram: np.ndarray, right: np.ndarray, most: np.ndarray, clock: Clock) -> np.ndarray:
    """Not below zero; whoever comes out above the most is set to it, and the rest are solved again."""
    factor = cholesky(gram)
    aim = solve_triangular(factor, right, trans="T")
    full = np.zeros(len(right), bool)
    while True:
        found = most.astype(float)
        found[~full] = _not_below_zero(factor[:, ~full], aim - factor[:, full] @ most[full])
        over = ~full & (found > most * (1 + 1e-6))
        if not over.any() or clock.over:
            return np.asarray(np.minimum(found, most))
        full |= over


def _not_below_zero(matrix: np.ndarray, aim: np.ndarray) -> np.ndarray:
    """Non-negative least squares; where it finds no end, the plain solution cut at zero."""
    if not matrix.shape[1]:
        return np.zeros(0)
    try:
        return np.asarray(nnls(matrix, aim, maxiter=30 * matrix.shape[1])[0])
    except RuntimeError:
        return np.asarray(np.maximum(np.linalg.lstsq(matrix, aim, rcond=None)[0], 0.0))


def _solved(
    gram: np.ndarray, right: np.ndarray, most: np.ndarray, guess: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The least under a guess, and the slope there."""
    found = np.where(guess == HIGH, most, 0.0)
    free = np.flatnonzero(guess == BETWEEN)
    if len(free):
        factor = cho_factor(gram[np.ix_(free, free)], overwrite_a=True, check_finite=False)
        found[free] = cho_solve(factor, (right - gram @ found)[free], check_finite=False)
    return found, gram @ found - right


def _contradicted(
    found: np.ndarray, slope: np.ndarray, most: np.ndarray, guess: np.ndarray, margin: float
) -> np.ndarray:
    """The guesses that the least under the old ones speaks for."""
    better = guess.copy()
    between = guess == BETWEEN
    better[between & (found < -NEAR)] = LOW
    better[between & (found > most * (1 + NEAR))] = HIGH
    better[(guess == LOW) & (slope < -margin)] = BETWEEN
    better[(guess == HIGH) & (slope > margin)] = BETWEEN
    return better
