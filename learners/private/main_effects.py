"""The first round of gradients: main effects, and the variance explained by each column."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privfed.learners.private.basis import Basis
from privfed.learners.private.marginals import Marginals
from privfed.learners.private.posterior import NoisyMoments
from privfed.learners.private.settings import SETTINGS


@dataclass(frozen=True, eq=False)
class MainEffects:
    """Sums of linear terms and bins, the first functions of every later basis."""

    basis: Basis  #: linear terms and bins only
    noisy: NoisyMoments  #: sums of its unscaled functions; infinite variance if a scale was zero
    share: float  #: fraction of the budget spent

    @classmethod
    def from_sums(cls, basis: Basis, sums: np.ndarray, noise: float, spent: float) -> MainEffects:
        """Build from released sums of scaled functions, shape (functions, outputs), and their noise std."""
        scales = basis.multipliers
        released = scales > 0
        scales = np.where(released, scales, 1.0)
        values = np.where(released[:, None], sums / scales[:, None], 0.0)
        return cls(
            basis, NoisyMoments(values, np.where(released, (noise / scales) ** 2, np.inf)), spent
        )

    def mean_squares(self, marginals: Marginals, variance: float) -> np.ndarray:
        """Return the mean square explained by each column beyond noise and sampling, by trend or bins."""
        ends = self.basis.columns + np.cumsum(self.basis.widths)
        starts = ends - self.basis.widths
        squares = [
            self._mean_square(j, slice(*span), marginals, variance)
            for j, span in enumerate(zip(starts, ends, strict=True))
        ]
        return np.array(squares)

    def _mean_square(
        self, column: int, bins: slice, marginals: Marginals, variance: float
    ) -> float:
        sums, noise = self.noisy.values[bins], float(self.noisy.variance[bins.start])
        outputs, fractions = sums.shape[1], marginals.shares()[column]
        mass = np.bincount(self.basis.bins[column], fractions, minlength=len(sums))
        records = np.maximum(marginals.records * mass, 1)
        expected = noise / records + variance
        excess = float(((sums**2).sum(axis=1) / records - outputs * expected).sum())
        certain = excess - 0.5 * math.sqrt(2 * outputs * float((expected**2).sum()))
        return max(self._trend(column, sums, noise, mass, marginals, variance), certain, 0.0)

    def _trend(
        self,
        column: int,
        sums: np.ndarray,
        noise: float,
        mass: np.ndarray,
        marginals: Marginals,
        variance: float,
    ) -> float:
        """Return the mean square explained by ranks, from the bins' sums and the linear term's, taken as ranks'."""
        ranks, line = 2 * np.cumsum(mass) - mass - 1, self.basis.values[column]
        rank_norm = marginals.records * max(float(mass @ ranks**2), 1e-3)
        line_norm = marginals.records * max(float(marginals.shares()[column] @ line**2), 1e-3)
        scale = math.sqrt(rank_norm / line_norm)
        var_r, var_l = noise * float(ranks @ ranks), float(self.noisy.variance[column]) * scale**2
        gain = var_r / max(var_r + var_l, 1e-12)
        slope = ranks @ sums
        slope = slope + gain * (self.noisy.values[column] * scale - slope)
        by_noise = sums.shape[1] * ((1 - gain) * var_r + variance * rank_norm)
        return float(((slope**2).sum() - by_noise) / rank_norm)

    def scale_factors(self, basis: Basis) -> np.ndarray:
        """Return scale factors of a basis' functions, with this round's for the shared ones, shape (functions,).

        Noise is then about equal in all directions, so that the subspace keeps the known ones.
        """
        scale_factors, scales = np.ones(basis.size), basis.multipliers[: self.basis.size]
        ratio = self.basis.multipliers[scales > 0] / scales[scales > 0]
        scale_factors[: self.basis.size][scales > 0] = np.sqrt(
            1 + self.share / SETTINGS.later_fraction * ratio**2
        )
        return scale_factors

    def sums(self, basis: Basis, scale_factors: np.ndarray) -> NoisyMoments:
        """Return the sums of a basis' functions times these factors."""
        scales = basis.multipliers[: self.basis.size] * scale_factors[: self.basis.size]
        values = np.zeros((basis.size, self.noisy.values.shape[1]))
        variance = np.full(basis.size, np.inf)
        values[: self.basis.size] = self.noisy.values * scales[:, None]
        known = np.flatnonzero(np.isfinite(self.noisy.variance) & (scales > 0))
        variance[known] = self.noisy.variance[known] * scales[known] ** 2
        return NoisyMoments(values, variance)
