"""Linear peers: noisy logistic regression, AdaSSP and boosted AdaSSP, each of all records together."""

from __future__ import annotations

import math

import numpy as np

from peers.problem import DELTA, Problem

#: Steps of noisy gradient descent, and how far each goes.
STEPS, LENGTH = 60, 12.0
#: Of boosting: the best of 1, 3, 10, 30 and 100 (which the authors' code has) on magic_telescope, bank_marketing
#: and abalone at epsilon 1.
ROUNDS = 10


def logistic(problem: Problem) -> np.ndarray:
    """Logistic regression by noisy gradients of all records (Bassily, Smith and Thakurta 2014).

    Rows lie in the unit ball by the public bounds, so that a record moves a gradient by 1 at most; STEPS
    Gaussian releases of sensitivity 1 together have mu = sqrt(STEPS) / noise.
    """
    size = math.sqrt(1.0 + len(problem.features))
    x, y, rng = problem.scaled(problem.train) / size, problem.y, problem.rng
    noise = math.sqrt(STEPS) / problem.mu
    weights, kept, speed = np.zeros(x.shape[1]), np.zeros(x.shape[1]), np.zeros(x.shape[1])
    for step in range(STEPS):
        slope = x.T @ (1 / (1 + np.exp(-x @ weights)) - y) + rng.normal(0, noise, len(weights))
        speed = 0.8 * speed - LENGTH * slope / len(x)
        weights = weights + speed
        kept += weights * (step >= STEPS // 2) / (STEPS - STEPS // 2)
    return np.asarray(1 / (1 + np.exp(-problem.scaled(problem.test) / size @ kept)))


def adassp(problem: Problem) -> np.ndarray:
    """Linear regression by adaptive sufficient statistics (Wang 2018)."""
    return boosted(problem, rounds=1)


def boosted(problem: Problem, rounds: int = ROUNDS) -> np.ndarray:
    """AdaSSP fitted again and again to clipped residuals, with one noisy Gram matrix (Tang et al. 2024, Algorithm 1).

    Rows have norm 1 at most and residuals are clipped to [-1, 1]: the Gram matrix, its least eigenvalue and
    each of the moments have sensitivity 1, and a third of mu squared each, the moments together.
    """
    number = problem.target is not None
    size = math.sqrt(1.0 + len(problem.features))
    x, rng = problem.scaled(problem.train) / size, problem.rng
    y = problem.y if number else 2 * problem.y - 1
    width = x.shape[1]
    noise = math.sqrt(3) / problem.mu
    gram = x.T @ x
    least = np.linalg.eigvalsh(gram)[0] + noise * (rng.normal() - 1.7)
    ridge = max(0.0, math.sqrt(width * math.log(6 / DELTA)) * noise - max(least, 0))
    drawn = np.triu(rng.normal(0, noise, gram.shape))
    gram = gram + drawn + np.triu(drawn, 1).T + ridge * np.eye(width)
    weights = np.zeros(width)
    for _ in range(rounds):
        left = np.clip(y - x @ weights, -1, 1)
        weights += np.linalg.solve(
            gram, x.T @ left + rng.normal(0, noise * math.sqrt(rounds), width)
        )
    told = problem.scaled(problem.test) / size @ weights
    return problem.unscaled(told) if number else np.clip((told + 1) / 2, 0, 1)


METHODS = {"logistic": logistic, "AdaSSP": adassp, "boosted AdaSSP": boosted}
ALONE = {"logistic": "classes"}
