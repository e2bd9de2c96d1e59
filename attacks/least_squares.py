"""Generalised least squares over linear answers: repeats, overlaps and differences, of all studies.

Each answer is one row of A n + noise, n the unknowns (records in each cell of a partition, or who
is a member). What lies outside the row space of A is not determined by any number of answers.
"""

from dataclasses import dataclass

import numpy as np

from privfed.errors import InputError

#: Largest component outside the row space of an unknown that counts as determined.
OUTSIDE = 1e-7
WEAK = 1e-10  #: Directions weaker than this fraction of the strongest count as none
EXACT = 1e-5  #: Std assumed of exact answers, as a fraction of the least noisy one's


@dataclass(frozen=True, eq=False)
class Combined:
    """All answers combined, each of shape (unknowns,)."""

    estimate: np.ndarray  #: of least variance; zero where not determined
    deviation: np.ndarray  #: its standard deviation; infinite where not determined

    @property
    def determined(self) -> np.ndarray:
        """Whether the answers determine it."""
        return np.asarray(np.isfinite(self.deviation))


def combined(design: np.ndarray, answers: np.ndarray, *, deviations: np.ndarray) -> Combined:
    """Combine answers with independent noise; InputError for shapes that do not fit, or non-finite numbers.

    Args:
        design: shape (answers, unknowns).
        answers: shape (answers,).
        deviations: noise std of each answer, 0 if exact; shape (answers,).
    """
    rows, values, std = (np.asarray(array, dtype=float) for array in (design, answers, deviations))
    if rows.ndim != 2 or values.shape != (len(rows),) or std.shape != (len(rows),):
        raise InputError("answers and deviations need one number for each row of the design")
    if not all(np.isfinite(array).all() for array in (rows, values, std)) or (std < 0).any():
        raise InputError("a design, its answers and their deviations must be finite numbers")
    noisy = std[std > 0]
    min_std = EXACT * (float(noisy.min()) if len(noisy) else 1.0)
    weight = 1 / np.where(std > 0, std, min_std)
    left, strength, right = np.linalg.svd(rows * weight[:, None], full_matrices=False)
    kept = strength > WEAK * strength.max(initial=0.0)
    right, strength = right[kept], strength[kept]
    estimate = right.T @ ((left[:, kept].T @ (values * weight)) / strength)
    inside = (right**2).sum(axis=0)
    variance = ((right / strength[:, None]) ** 2).sum(axis=0)
    determined = 1 - inside <= OUTSIDE
    if not len(noisy):
        variance = np.zeros_like(variance)
    return Combined(
        np.where(determined, estimate, 0.0), np.where(determined, np.sqrt(variance), np.inf)
    )


def nested(members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the wider and the narrower predicate, (pairs,) each, of all pairs of which one strictly implies the other.

    `members` says which points satisfy each, shape (predicates, points), bool.
    """
    inside = np.asarray(members, dtype=np.float32)
    sizes = inside.sum(axis=1)
    both = inside @ inside.T
    contained = (both == sizes[None, :]) & (sizes[None, :] < sizes[:, None]) & (sizes[None, :] > 0)
    wide, narrow = np.nonzero(contained)
    return np.asarray(wide), np.asarray(narrow)
