"""Which of many noisy estimates to believe: an empirical Bayes posterior, and the best list by it.

Of hundreds of templates asked about, most are held by nobody, and the largest of their estimates
are noise. The law of the true shares is itself estimated from all estimates together (the
non-parametric mixture of Kiefer and Wolfowitz 1956, on a grid, by expectation-maximisation), and
gives each structure the probability that it is valid. Everything here is computed from releases.
"""

from __future__ import annotations

import numpy as np

#: Grid of positive shares, from nu / 16 to everybody.
CELLS = 40
#: Prior: what part of the structures nobody holds, and how many structures that is worth.
EMPTY, WEIGHT = 0.85, 5.0
ROUNDS = 60
#: How many times as many valid structures a long list must hold to be worth its wrong ones, counting
#: one more than is likely: a list of hundreds for less than one valid structure is noise.
WORTHWHILE = 1.3


def validity(estimate: np.ndarray, deviation: np.ndarray, threshold: float) -> np.ndarray:
    """The probability that each structure is held by at least a share nu of the individuals.

    Args:
        estimate: estimated shares, shape (structures,).
        deviation: their standard deviations, above 0.
        threshold: nu.
    """
    grid = np.concatenate([[0.0], np.geomspace(threshold / 16, 1.0, CELLS)])
    logs = -0.5 * ((estimate[:, None] - grid) / deviation[:, None]) ** 2
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    prior = np.where(grid == 0, EMPTY, (1 - EMPTY) / CELLS)
    law, posterior = prior, likelihood
    for _ in range(ROUNDS):
        posterior = likelihood * law
        posterior /= posterior.sum(axis=1, keepdims=True)
        law = (posterior.sum(axis=0) + WEIGHT * prior) / (len(estimate) + WEIGHT)
    return np.asarray(posterior[:, grid >= threshold * (1 - 1e-9)].sum(axis=1))


def best_list(probability: np.ndarray, expected: float = 0.0) -> np.ndarray:
    """The places whose list has the best expected F1, most probable first.

    F1 of the k most probable is about 2 sum(p) / (k + number of valid structures). Where little is
    known for certain the best list is long and of low precision.

    Args:
        probability: of being valid, shape (structures,).
        expected: how many valid structures there are, at a guess, if more than expected of these.
    """
    order = np.argsort(-probability, kind="stable")
    total = max(expected, float(probability.sum()))
    scores = 2 * np.cumsum(probability[order]) / (np.arange(1, len(order) + 1) + total)
    return order[: int(np.argmax(scores)) + 1] if len(order) else order


def listed(probability: np.ndarray, expected: float = 0.0) -> np.ndarray:
    """The places to list: what is likely, or the whole best list where that gains enough by it.

    A few doubtful entries would spoil a list of sure ones; where little is sure, a long list of
    possible ones, most of them wrong, is the best there is.

    Args:
        probability: of being valid, shape (structures,).
        expected: see :func:`best_list`.
    """
    best = best_list(probability, expected)
    likely = best[probability[best] >= 0.5]
    gained = probability[best].sum() >= WORTHWHILE * (1 + probability[likely].sum())
    return best if gained else likely
