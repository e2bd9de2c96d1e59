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
    told: NoisyMoments  #: sums of its unscaled functions; infinite variance if a scale was zero
    share: float  #: fraction of the budget spent

    @classmethod
    def from_sums(cls, basis: Basis, sums: np.ndarray, noise: float, share: float) -> MainEffects:
        """Build from released sums of scaled functions, shape (functions, outputs), and their noise std."""
        scales = basis.multipliers
        asked = scales > 0
        scales = np.where(asked, scales, 1.0)
        values = np.where(asked[:, None], sums / scales[:, None], 0.0)
        return cls(
            basis, NoisyMoments(values, np.where(asked, (noise / scales) ** 2, np.inf)), share
        )

    def mean_squares(self, marginals: Marginals, variance: float) -> np.ndarray:
        """Return the mean square explained by each column beyond noise and sampling, by trend or bins."""
        ends = self.basis.columns + np.cumsum(self.basis.widths)
        starts = ends - self.basis.widths
        each = [
            self._mean_square(j, slice(*own), marginals, variance)
            for j, own in enumerate(zip(starts, ends, strict=True))
        ]
        return np.array(each)

    def _mean_square(
        self, column: int, bins: slice, marginals: Marginals, variance: float
    ) -> float:
        own, noise = self.told.values[bins], float(self.told.variance[bins.start])
        outputs, shares = own.shape[1], marginals.shares()[column]
        mass = np.bincount(self.basis.bins[column], shares, minlength=len(own))
        records = np.maximum(marginals.records * mass, 1)
        each = noise / records + variance
        excess = float(((own**2).sum(axis=1) / records - outputs * each).sum())
        certain = excess - 0.5 * math.sqrt(2 * outputs * float((each**2).sum()))
        return max(self._trend(column, own, noise, mass, marginals, variance), certain, 0.0)

    def _trend(
        self,
        column: int,
        own: np.ndarray,
        noise: float,
        mass: np.ndarray,
        marginals: Marginals,
        variance: float,
    ) -> float:
        """Return the mean square explained by ranks, from the bins' sums and the linear term's, taken as ranks'."""
        ranks, line = 2 * np.cumsum(mass) - mass - 1, self.basis.values[column]
        spread = marginals.records * max(float(mass @ ranks**2), 1e-3)
        length = marginals.records * max(float(marginals.shares()[column] @ line**2), 1e-3)
        scale = math.sqrt(spread / length)
        doubt, other = noise * float(ranks @ ranks), float(self.told.variance[column]) * scale**2
        trust = doubt / max(doubt + other, 1e-12)
        slope = ranks @ own
        slope = slope + trust * (self.told.values[column] * scale - slope)
        chance = own.shape[1] * ((1 - trust) * doubt + variance * spread)
        return float(((slope**2).sum() - chance) / spread)

    def scale_factors(self, basis: Basis) -> np.ndarray:
        """Return scale factors of a basis' functions, with this round's for the shared ones, shape (functions,).

        Noise is then about equal in all directions, so that the subspace keeps the known ones.
        """
        scale_factors, own = np.ones(basis.size), basis.multipliers[: self.basis.size]
        ratio = self.basis.multipliers[own > 0] / own[own > 0]
        scale_factors[: self.basis.size][own > 0] = np.sqrt(
            1 + self.share / SETTINGS.later_fraction * ratio**2
        )
        return scale_factors

    def sums(self, basis: Basis, scale_factors: np.ndarray) -> NoisyMoments:
        """Return the sums of a basis' functions times these factors."""
        scales = basis.multipliers[: self.basis.size] * scale_factors[: self.basis.size]
        values = np.zeros((basis.size, self.told.values.shape[1]))
        variance = np.full(basis.size, np.inf)
        values[: self.basis.size] = self.told.values * scales[:, None]
        known = np.flatnonzero(np.isfinite(self.told.variance) & (scales > 0))
        variance[known] = self.told.variance[known] * scales[known] ** 2
        return NoisyMoments(values, variance)
