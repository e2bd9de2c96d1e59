"""Which of many noisy estimates to list: an empirical Bayes posterior, and the best list by it.

Most templates are held by nobody, and the largest of their estimates are noise. The distribution of
the true shares is the non-parametric mixture of Kiefer and Wolfowitz 1956, on a grid, by
expectation-maximisation.
"""

import numpy as np

from privfed.learners.rule_search.settings import DEFAULT, SearchSettings

CELLS, ROUNDS = 40, 60  #: Grid of positive shares from nu / 16 to 1; steps of the maximisation


def validity(
    estimate: np.ndarray,
    deviation: np.ndarray,
    threshold: float,
    settings: SearchSettings = DEFAULT,
) -> np.ndarray:
    """The probability that a structure is held by at least a share nu, shape (structures,).

    From estimated shares and their standard deviations above 0, shape (structures,) each.
    """
    grid = np.concatenate([[0.0], np.geomspace(threshold / 16, 1.0, CELLS)])
    logs = -0.5 * ((estimate[:, None] - grid) / deviation[:, None]) ** 2
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    empty, weight = settings.empty, settings.empty_weight
    prior = np.where(grid == 0, empty, (1 - empty) / CELLS)
    mass, posterior = prior, likelihood
    for _ in range(ROUNDS):
        posterior = likelihood * mass
        posterior /= posterior.sum(axis=1, keepdims=True)
        mass = (posterior.sum(axis=0) + weight * prior) / (len(estimate) + weight)
    return np.asarray(posterior[:, grid >= threshold * (1 - 1e-9)].sum(axis=1))


def best_list(probability: np.ndarray, expected: float = 0.0) -> np.ndarray:
    """The indices whose list has the best expected F1, most probable first.

    F1 of the k most probable is about 2 sum(p) / (k + number of valid structures); ``expected`` is
    a guess of that number, if above the sum of the probabilities.
    """
    order = np.argsort(-probability, kind="stable")
    total = max(expected, float(probability.sum()))
    scores = 2 * np.cumsum(probability[order]) / (np.arange(1, len(order) + 1) + total)
    return order[: int(np.argmax(scores)) + 1] if len(order) else order


def listed(
    probability: np.ndarray, expected: float = 0.0, settings: SearchSettings = DEFAULT
) -> np.ndarray:
    """The indices to list: the likely ones, or the whole best list where that gains enough."""
    best = best_list(probability, expected)
    likely = best[probability[best] >= 0.5]
    needed = settings.worthwhile * (1 + probability[likely].sum())
    return best if probability[best].sum() >= needed else likely
