"""Accelerated proximal gradient for an L1 penalty (Beck and Teboulle 2009, Section 4).

With restarts wherever momentum leads uphill (O'Donoghue and Candes 2015, Section 3.2, the gradient
scheme): strong convexity is not known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np

from privfed.learners.rulefit.averaging import primal
from privfed.learners.rulefit.settings import SETTINGS


@dataclass(frozen=True, eq=False)
class Iterate:
    """State of the minimisation: x_k, y_(k+1), where the next gradient is taken, and t_(k+1)."""

    weights: np.ndarray
    ahead: np.ndarray
    momentum: float

    @classmethod
    def at(cls, weights: np.ndarray) -> Self:
        """The beginning, at some weights."""
        return cls(weights, weights, 1.0)

    def after(self, slope: np.ndarray, step: float, penalty: float) -> Iterate:
        """The next one, by minus the gradient of the smooth part at :attr:`ahead` (Eqs. 4.1 to 4.3)."""
        weights = primal(self.ahead + step * slope, step * penalty)
        uphill = (self.ahead - weights) @ (weights - self.weights) > 0
        momentum = 1.0 if uphill else self.momentum
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = weights + (momentum - 1) / following * (weights - self.weights)
        return Iterate(weights, ahead, following)

    def settled(self, before: Iterate) -> bool:
        """Whether it moved no further from where its gradient was taken than is worth a round."""
        return bool(np.abs(self.weights - before.ahead).max() < SETTINGS.settled)


def descending_step(curvature: float, logistic: bool) -> float:
    """The inverse of the gradient's Lipschitz constant, the curvature known to Lanczos' precision."""
    return (4.0 if logistic else 1.0) / ((1 + 2 * SETTINGS.eigenvalue_tol) * curvature)


def optimum(
    slope: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    step: float,
    penalty: float,
    iterations: int = 5000,
) -> np.ndarray:
    """The minimiser, in at most `iterations`; `step` is at most one over the gradient's Lipschitz constant."""
    at = Iterate.at(start)
    for _ in range(iterations):
        following = at.after(slope(at.ahead), step, penalty)
        if following.settled(at):
            return following.weights
        at = following
    return at.weights
