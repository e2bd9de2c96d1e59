"""L1-regularised estimation by dual averaging (paper, Section 2.2.3; Yuan, Zaheer, Reddi 2021).

The objective is the pooled *mean* loss plus lambda times the L1 norm of all coefficients but the intercept. Columns are
centred at public means, which changes only the intercept and improves conditioning.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from privfed.learners.rulefit.settings import SETTINGS


class Slopes(Protocol):
    """Interface of one client's centred columns."""

    def gradient(self, target: np.ndarray, weights: np.ndarray, logistic: bool) -> np.ndarray:
        """Return the sum over records of residual times centred column, shape (1 + terms,)."""


@dataclass(frozen=True)
class Centred:
    """A design matrix, shape (records, 1 + terms), minus the columns' means (zero for the intercept)."""

    matrix: np.ndarray
    means: np.ndarray

    def scores(self, weights: np.ndarray) -> np.ndarray:
        """Return the linear predictor of each record."""
        return np.asarray(self.matrix @ weights - self.means @ weights)

    def slope(self, residual: np.ndarray) -> np.ndarray:
        """Return the sum over records of residual times column."""
        return np.asarray(residual @ self.matrix - self.means * float(residual.sum()))

    def gradient(self, target: np.ndarray, weights: np.ndarray, logistic: bool) -> np.ndarray:
        """See :class:`Slopes`."""
        return self.slope(residuals(target, self.scores(weights), logistic))


def residuals(target: np.ndarray, scores: np.ndarray, logistic: bool) -> np.ndarray:
    """Return minus the derivative of each record's loss by its score."""
    return np.asarray(target - (sigmoid(scores) if logistic else scores))


def sigmoid(scores: np.ndarray) -> np.ndarray:
    """Return the logistic function by NumPy's tanh, twice as fast as SciPy's, with absolute error 2^-53."""
    half: np.ndarray = np.tanh(scores * 0.5)
    half *= 0.5
    half += 0.5
    return half


def losses(target: np.ndarray, scores: np.ndarray, logistic: bool) -> np.ndarray:
    """Return each record's loss: logistic (paper, Eq. 3), or half the squared error."""
    if logistic:
        return np.asarray(np.logaddexp(0, scores) - target * scores)
    return np.asarray((target - scores) ** 2 / 2)


def primal(dual: np.ndarray, threshold: float) -> np.ndarray:
    """Return the proximal map from dual to primal: soft thresholding, except of the intercept."""
    weights: np.ndarray = dual - np.maximum(np.minimum(dual, threshold), -threshold)
    weights[0] = dual[0]
    return weights


@dataclass(frozen=True)
class LocalStepParams:
    """Parameters of a client's local steps in one round (paper, Algorithm 3)."""

    client_step: float  #: eta_c
    elapsed: float  #: eta_s eta_c r G, the sum of step sizes before this round
    steps: int  #: number G of local steps
    penalty: float  #: lambda


def local_steps(
    design: Slopes, target: np.ndarray, dual: np.ndarray, steps: LocalStepParams, logistic: bool
) -> np.ndarray:
    """Return a client's dual increment after G local steps on its own mean loss, ``z_G - z_0``."""
    local, scale = dual.copy(), steps.client_step / len(target)
    for step in range(steps.steps):
        elapsed = steps.elapsed + steps.client_step * (step + 1)
        weights = primal(local, elapsed * steps.penalty)
        local += scale * design.gradient(target, weights, logistic)
    increment: np.ndarray = local - dual
    return increment


def path_residuals(
    design: Centred,
    target: np.ndarray,
    dual: np.ndarray,
    increment: np.ndarray,
    steps: LocalStepParams,
    logistic: bool,
) -> np.ndarray:
    """Return records' residuals at a client's local steps, from its increment only; shape (steps, records).

    Dual vectors start at the public ``z_0`` and end at ``z_0`` plus the increment; in between a straight path is
    assumed.
    """
    rows = []
    for step in range(steps.steps):
        elapsed = steps.elapsed + steps.client_step * (step + 1)
        weights = primal(dual + increment * (step / steps.steps), elapsed * steps.penalty)
        rows.append(residuals(target, design.scores(weights), logistic))
    return np.array(rows)


def largest_eigenvalue(design: Slopes, records: int, terms: int) -> float:
    """Return the largest eigenvalue of X'X / n of n records' columns, the curvature of a mean squared loss.

    It uses Lanczos steps from a public vector. If they do not converge, the trace, an upper bound, is returned, so that
    failing cannot depend on records.
    """
    nothing = np.zeros(records)

    def product(weights: np.ndarray) -> np.ndarray:
        return -design.gradient(nothing, weights.ravel(), logistic=False) / records

    if terms <= SETTINGS.dense_terms:
        return float(np.linalg.eigvalsh(np.array([product(unit) for unit in np.eye(terms)])).max())
    start = np.random.default_rng(0).normal(size=terms)
    operator = LinearOperator((terms, terms), matvec=product, dtype=float)
    try:
        largest = eigsh(
            operator,
            1,
            which="LA",
            v0=start,
            tol=SETTINGS.eigenvalue_tol,
            return_eigenvectors=False,
        )
    except ArpackError:
        return sum(float(product(unit) @ unit) for unit in np.eye(terms))
    return float(largest[0])


def stable_step(pooled: float, logistic: bool, clients: Sequence[float] = ()) -> float:
    """Return a step size that cannot diverge, neither on the pooled objective nor on any client's.

    The Hessian of a mean loss is at most (1/4 for the logistic loss) the columns' second moments, whose
    largest eigenvalues these are, or bounds on them. Gradient steps below twice the inverse of the largest
    converge; a client's local steps stay bounded, and so does their average, below twice that of its own.
    """
    curvature = 0.25 if logistic else 1.0
    return min([1.8 / pooled, *(1.95 / client for client in clients)]) / curvature
