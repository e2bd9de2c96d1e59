"""Bounded least squares: minimise h' G h / 2 - b' h over 0 <= h <= most.

Block principal pivoting (Judice and Pires 1994, "A block principal pivoting algorithm for
large-scale strictly monotone linear complementarity problems", with upper bounds): each unknown is
guessed to lie at a bound or between, those between are solved for, and all that contradict their
guess change it at once; ten to thirty factorings. If the number of contradictions stops falling,
unknowns are added one by one (Lawson and Hanson 1974), and those above the most are fixed there:
near the minimum only.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.optimize import nnls

from privfed.attacks.deadline import Deadline
from privfed.attacks.linear import LinearEquations

PRIOR, SPREAD = 0.3, 0.5  #: Prior mean and std of a multiplicity
PATIENCE = 10  #: Most rounds in a row without fewer contradictions
NEAR = 1e-10  #: Tolerance of a contradiction, as a fraction of the largest bound or gradient
LOW, BETWEEN, HIGH = -1, 0, 1  #: Where an unknown is guessed to lie


def boxed(gram: np.ndarray, right: np.ndarray, most: np.ndarray, deadline: Deadline) -> np.ndarray:
    """Minimise h' G h / 2 - b' h in a box, shape (unknowns,); after the deadline, the current point.

    Args:
        gram: G, positive definite, shape (unknowns, unknowns).
        right: b, shape (unknowns,).
        most: upper bounds above 0, shape (unknowns,).
    """
    guess = np.zeros(len(right), int)
    fewest, patience = len(right) + 1, PATIENCE
    margin = NEAR * max(float(np.abs(right).max(initial=0.0)), 1.0)
    while patience:
        found, slope = _solved(gram, right, most, guess)
        better = _contradicted(found, slope, most, guess, margin)
        wrong = int((better != guess).sum())
        if not wrong or deadline.over:
            return np.asarray(np.clip(found, 0.0, most))
        patience = PATIENCE if wrong < fewest else patience - 1
        fewest, guess = min(wrong, fewest), better
    return _one_by_one(gram, right, most, deadline)


def _one_by_one(
    gram: np.ndarray, right: np.ndarray, most: np.ndarray, deadline: Deadline
) -> np.ndarray:
    """Non-negative least squares; unknowns above the most are fixed there, one round after another."""
    factor = cholesky(gram)
    aim = solve_triangular(factor, right, trans="T")
    full = np.zeros(len(right), bool)
    while True:
        found = most.astype(float)
        found[~full] = _not_below_zero(factor[:, ~full], aim - factor[:, full] @ most[full])
        over = ~full & (found > most * (1 + 1e-6))
        if not over.any() or deadline.over:
            return np.asarray(np.minimum(found, most))
        full |= over


def _not_below_zero(matrix: np.ndarray, aim: np.ndarray) -> np.ndarray:
    """Non-negative least squares; the clipped plain solution if it does not converge."""
    if not matrix.shape[1]:
        return np.zeros(0)
    try:
        return np.asarray(nnls(matrix, aim, maxiter=30 * matrix.shape[1])[0])
    except RuntimeError:
        return np.asarray(np.maximum(np.linalg.lstsq(matrix, aim, rcond=None)[0], 0.0))


def _solved(
    gram: np.ndarray, right: np.ndarray, most: np.ndarray, guess: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The minimum under a guess, and the gradient there."""
    found = np.where(guess == HIGH, most, 0.0)
    free = np.flatnonzero(guess == BETWEEN)
    if len(free):
        factor = cho_factor(gram[np.ix_(free, free)], overwrite_a=True, check_finite=False)
        found[free] = cho_solve(factor, (right - gram @ found)[free], check_finite=False)
    return found, gram @ found - right


def _contradicted(
    found: np.ndarray, slope: np.ndarray, most: np.ndarray, guess: np.ndarray, margin: float
) -> np.ndarray:
    """The guesses that this minimum suggests."""
    better = guess.copy()
    between = guess == BETWEEN
    better[between & (found < -NEAR)] = LOW
    better[between & (found > most * (1 + NEAR))] = HIGH
    better[(guess == LOW) & (slope < -margin)] = BETWEEN
    better[(guess == HIGH) & (slope > margin)] = BETWEEN
    return better


@dataclass
class CandidateSystem:
    """The normal equations of a client's releases; unknown i is at most ``often[i]``."""

    often: np.ndarray
    gram: np.ndarray = field(init=False)
    right: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.gram, self.right = np.zeros((len(self.often),) * 2), np.zeros(len(self.often))

    def add(self, told: LinearEquations) -> None:
        """Add the equations of a release."""
        self.gram += told.added @ told.added.T
        self.right += told.added @ told.told

    @property
    def rank(self) -> int:
        """Number of directions in which the equations outweigh the prior."""
        return int((np.linalg.eigvalsh(self.gram) > 1 / SPREAD**2).sum())

    @property
    def full(self) -> bool:
        """Whether they outweigh it in all: by a Cholesky factor, a tenth of the work of the eigenvalues."""
        try:
            np.linalg.cholesky(self.gram - np.eye(len(self.often)) / SPREAD**2)
        except np.linalg.LinAlgError:
            return False
        return True

    def solve(self, deadline: Deadline) -> np.ndarray:
        """Estimated multiplicities, shape (unknowns,): bounded least squares with the prior."""
        gram = self.gram + np.eye(len(self.often)) / SPREAD**2
        return boxed(gram, self.right + PRIOR / SPREAD**2, self.often, deadline)
