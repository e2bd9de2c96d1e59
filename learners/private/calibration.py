"""Recalibrates the fitted scores by residuals summed by score (Platt 1999, with a release's noise).

Functions are multiplied by a common factor b, the intercept shifts by a; the prior has b near 1, a near 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from privfed.learners.private.queries import COUNT
from privfed.learners.private.settings import SETTINGS
from privfed.learners.private.target_link import Outcome

MIN_STD = 1e-6  #: Minimum std of a score for binning
MEAN_STEPS = 50  #: Fixed-point steps to given mean predictions


def with_means(
    means: np.ndarray,
    outcome: Outcome,
    intercept: np.ndarray,
    added: np.ndarray,
    shares: np.ndarray,
) -> np.ndarray:
    """Return the intercept at which synthetic records have given mean predictions, shape (outputs,).

    Where predictions are small, sums hardly depend on the weights, so that noisy gradients may multiply a rare
    class's odds, though its own counts say what they can be. Records keep their order.

    Args:
        means: the classes' shares, by their counts.
        outcome, intercept, added, shares: as in :class:`PlattScaling`.
    """
    for _ in range(MEAN_STEPS):
        found = shares @ outcome.predictions(intercept + added) / shares.sum()
        intercept = intercept + outcome.start(means) - outcome.start(found)
    return intercept


@dataclass(frozen=True, eq=False)
class PlattScaling:
    """Expected values in each bin of the scores, from synthetic records."""

    outcome: Outcome  #: the link
    intercept: np.ndarray  #: intercept, shape (outputs,)
    added: np.ndarray  #: scores of synthetic records minus the intercept, shape (records, outputs)
    shares: np.ndarray  #: weights of the synthetic records, mean 1
    cuts: np.ndarray  #: thresholds of the scores, shape (outputs, bins - 1)

    @classmethod
    def from_scores(
        cls, outcome: Outcome, intercept: np.ndarray, added: np.ndarray, shares: np.ndarray
    ) -> PlattScaling | None:
        """Build with thresholds between bins of about equal mass; None if the scores are constant."""
        scores = intercept + added
        low, high = scores.min(axis=0), scores.max(axis=0)
        if not ((high - low) > MIN_STD).all():
            return None
        levels = np.arange(1, SETTINGS.score_bins) / SETTINGS.score_bins
        cuts = np.quantile(scores, levels, axis=0).T
        evenly = low[:, None] + (high - low)[:, None] * levels
        cuts = cuts + 1e-3 * (evenly - low[:, None])  # kept distinct if many scores are equal
        return cls(outcome, intercept, added, shares, cuts)

    def corrected(self, sums: np.ndarray, noise: float, records: float) -> tuple[float, np.ndarray]:
        """Return the MAP factor b and shift a, shape (outputs,), from sums of shape (2, outputs, bins).

        With b and a the n predictions of a bin increase by n (new mean - old mean), over synthetic records; up to noise
        and sampling (n times a class's own variance) this is the bin's sum of residuals.
        """
        before, count_std = self._means(1.0, np.zeros(len(self.intercept))), noise / float(COUNT)
        expected = records * self._by_bin(np.ones_like(self.added), mean=False)
        count = sums[1] / float(COUNT)
        count = expected + (count - expected) * expected**2 / (expected**2 + count_std**2 + 1e-9)
        count = np.maximum(count, 0)
        std = np.sqrt(noise**2 + count * self.outcome.variances(before) + 1e-9)
        size = np.maximum(self.added.std(axis=0), MIN_STD)

        def scaled(z: np.ndarray) -> tuple[float, np.ndarray]:
            factor = float(np.exp(SETTINGS.log_factor_std * z[0]))
            return factor, np.asarray(SETTINGS.shift_std * size * z[1:])

        def residuals(z: np.ndarray) -> np.ndarray:
            means = self._means(*scaled(z))
            return np.concatenate([((sums[0] - count * (means - before)) / std).ravel(), z])

        limit = np.full(1 + len(size), SETTINGS.max_log_factor / SETTINGS.log_factor_std)
        optimum = least_squares(residuals, np.zeros(len(limit)), bounds=(-limit, limit)).x
        return scaled(optimum)

    def _means(self, factor: float, shift: np.ndarray) -> np.ndarray:
        scores = self.intercept + shift + factor * self.added
        return self._by_bin(self.outcome.predictions(scores))

    def _by_bin(self, values: np.ndarray, *, mean: bool = True) -> np.ndarray:
        """Return means by output and bin of the scores; if not ``mean``, sums over the number of records."""
        result = np.zeros((len(self.cuts), SETTINGS.score_bins))
        for o, cuts in enumerate(self.cuts):
            bins = np.searchsorted(cuts, self.intercept[o] + self.added[:, o], side="right")
            mass = np.bincount(bins, self.shares, SETTINGS.score_bins)
            total = np.bincount(bins, self.shares * values[:, o], SETTINGS.score_bins)
            result[o] = total / np.maximum(mass, 1e-9) if mean else total / len(values)
        return result
