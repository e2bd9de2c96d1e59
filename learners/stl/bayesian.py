"""Bayesian optimisation of a rule's parameters: GP-UCB (Srinivas et al. 2010; Nenzi et al. 2018)."""

from collections.abc import Callable

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern, WhiteKernel

_FIRST, _CANDIDATES = 6, 256  #: Points drawn before the first fit; candidates of each step
_WIDTH = 2.0  #: Posterior deviations above the mean; the theory's grow with the steps and are wider
_LENGTH = 0.3  #: How far points of the unit cube resemble one another


def maximised(
    objective: Callable[[np.ndarray], float],
    start: np.ndarray,
    *,
    evaluations: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, float]:
    """Maximise a costly function of points in the unit cube, shape (dimensions,), from a first one.

    Returns the best point of so many evaluations, and the value there.
    """
    points, values = [start], [objective(start)]
    for step in range(1, evaluations):
        point = rng.random(len(start)) if step < _FIRST else _next(points, values, rng)
        points.append(point)
        values.append(objective(point))
    best = int(np.argmax(values))
    return points[best], values[best]


def _next(points: list[np.ndarray], values: list[float], rng: np.random.Generator) -> np.ndarray:
    """The candidate with the largest upper confidence bound."""
    size = len(points[0])
    near = points[int(np.argmax(values))] + rng.normal(0, 0.1, (_CANDIDATES // 2, size))
    candidates = np.concatenate([rng.random((_CANDIDATES // 2, size)), np.clip(near, 0, 1)])
    kernel = Matern(_LENGTH, nu=2.5) + WhiteKernel(1e-4)
    process = GaussianProcessRegressor(kernel, optimizer=None, normalize_y=True)
    process.fit(np.array(points), np.array(values))
    mean, deviation = process.predict(candidates, return_std=True)
    best: np.ndarray = candidates[int(np.argmax(mean + _WIDTH * deviation))]
    return best
