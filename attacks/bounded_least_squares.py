"""Bounded least squares: minimise h' G h / 2 - b' h over 0 <= h <= upper.

Block principal pivoting (Judice and Pires 1994, "A block principal pivoting algorithm for
large-scale strictly monotone linear complementarity problems", with upper bounds): each unknown is
guessed to lie at a bound or between, those between are solved for, and all that contradict their
guess change it at once; ten to thirty factorings. If the number of contradictions stops falling,
unknowns are added one by one (Lawson and Hanson 1974), and those above their bound are fixed at it:
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


def solve_bounded(
    gram: np.ndarray, right: np.ndarray, upper: np.ndarray, deadline: Deadline
) -> np.ndarray:
    """Minimise h' G h / 2 - b' h in a box, shape (unknowns,); after the deadline, the current point.

    Args:
        gram: G, positive definite, shape (unknowns, unknowns).
        right: b, shape (unknowns,).
        upper: upper bounds above 0, shape (unknowns,).
    """
    guess = np.zeros(len(right), int)
    fewest, patience = len(right) + 1, PATIENCE
    margin = NEAR * max(float(np.abs(right).max(initial=0.0)), 1.0)
    while patience:
        solution, gradient = _minimum(gram, right, upper, guess)
        better = _revised_guess(solution, gradient, upper, guess, margin)
        wrong = int((better != guess).sum())
        if not wrong or deadline.over:
            return np.asarray(np.clip(solution, 0.0, upper))
        patience = PATIENCE if wrong < fewest else patience - 1
        fewest, guess = min(wrong, fewest), better
    return _one_by_one(gram, right, upper, deadline)


def _one_by_one(
    gram: np.ndarray, right: np.ndarray, upper: np.ndarray, deadline: Deadline
) -> np.ndarray:
    """Non-negative least squares; unknowns above their bound are fixed at it, round by round."""
    factor = cholesky(gram)
    target = solve_triangular(factor, right, trans="T")
    fixed = np.zeros(len(right), bool)
    while True:
        solution = upper.astype(float)
        solution[~fixed] = _nonnegative(factor[:, ~fixed], target - factor[:, fixed] @ upper[fixed])
        over = ~fixed & (solution > upper * (1 + 1e-6))
        if not over.any() or deadline.over:
            return np.asarray(np.minimum(solution, upper))
        fixed |= over


def _nonnegative(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Non-negative least squares; the clipped unbounded solution if it does not converge."""
    if not matrix.shape[1]:
        return np.zeros(0)
    try:
        return np.asarray(nnls(matrix, target, maxiter=30 * matrix.shape[1])[0])
    except RuntimeError:
        return np.asarray(np.maximum(np.linalg.lstsq(matrix, target, rcond=None)[0], 0.0))


def _minimum(
    gram: np.ndarray, right: np.ndarray, upper: np.ndarray, guess: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The minimum under a guess, and the gradient there."""
    solution = np.where(guess == HIGH, upper, 0.0)
    free = np.flatnonzero(guess == BETWEEN)
    if len(free):
        factor = cho_factor(gram[np.ix_(free, free)], overwrite_a=True, check_finite=False)
        solution[free] = cho_solve(factor, (right - gram @ solution)[free], check_finite=False)
    return solution, gram @ solution - right


def _revised_guess(
    solution: np.ndarray, gradient: np.ndarray, upper: np.ndarray, guess: np.ndarray, margin: float
) -> np.ndarray:
    """The guess with its contradictions changed."""
    better = guess.copy()
    between = guess == BETWEEN
    better[between & (solution < -NEAR)] = LOW
    better[between & (solution > upper * (1 + NEAR))] = HIGH
    better[(guess == LOW) & (gradient < -margin)] = BETWEEN
    better[(guess == HIGH) & (gradient > margin)] = BETWEEN
    return better


@dataclass
class CandidateSystem:
    """The normal equations of a client's releases; unknown i is at most ``copies[i]``."""

    copies: np.ndarray
    gram: np.ndarray = field(init=False)
    right: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.gram, self.right = np.zeros((len(self.copies),) * 2), np.zeros(len(self.copies))

    def add(self, equations: LinearEquations) -> None:
        """Add the equations of a release."""
        self.gram += equations.added @ equations.added.T
        self.right += equations.added @ equations.released

    @property
    def rank(self) -> int:
        """Number of directions in which the equations outweigh the prior."""
        return int((np.linalg.eigvalsh(self.gram) > 1 / SPREAD**2).sum())

    @property
    def full(self) -> bool:
        """Whether they outweigh it in every direction: by a Cholesky factor, a tenth of the eigenvalues' work."""
        try:
            np.linalg.cholesky(self.gram - np.eye(len(self.copies)) / SPREAD**2)
        except np.linalg.LinAlgError:
            return False
        return True

    def solve(self, deadline: Deadline) -> np.ndarray:
        """Estimated multiplicities, shape (unknowns,): bounded least squares with the prior."""
        gram = self.gram + np.eye(len(self.copies)) / SPREAD**2
        return solve_bounded(gram, self.right + PRIOR / SPREAD**2, self.copies, deadline)
