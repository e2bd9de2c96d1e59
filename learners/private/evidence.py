"""Marginal likelihood of released sums under a prior, and its maximum (empirical Bayes)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from privfed.learners.private.settings import SETTINGS

#: How often all groups are tried in turn.
SWEEPS = 2


@dataclass(frozen=True, eq=False)
class MarginalLikelihood:
    """Of sums t ~ N(0, sum over groups g of s_g^2 M_g + rest), by output."""

    values: Sequence[np.ndarray]  #: t by output, each of shape (directions,)
    #: M_g = G A_g G' by output and group, each of shape (directions, directions)
    moved: Sequence[Sequence[np.ndarray]]
    rest: Sequence[np.ndarray]  #: covariance that does not depend on the scales s, by output
    share: float = 1.0  #: factor of the logarithm, where several evidences are of the same sums

    def halved(self, other: MarginalLikelihood) -> MarginalLikelihood:
        """The mean of this and another, on the same scales by the same sums."""
        return MarginalLikelihood(
            [*self.values, *other.values],
            [*self.moved, *other.moved],
            [*self.rest, *other.rest],
            share=0.5,
        )

    @cached_property
    def _rows(self) -> list[np.ndarray]:
        """M by output, a row for each group."""
        return [np.array(moved).reshape(len(moved), -1) for moved in self.moved]

    def likelihood(self, scales: np.ndarray) -> float:
        """The log-likelihood up to a constant; ``scales`` has shape (groups,)."""
        found, squares = 0.0, scales**2
        for values, moved, rest in zip(self.values, self._rows, self.rest, strict=True):
            root = factor((squares @ moved).reshape(rest.shape) + rest)
            white = solve_triangular(root, values, lower=True, check_finite=False)
            found -= float(white @ white) / 2 + float(np.log(np.diag(root)).sum())
        return self.share * found

    def likeliest(self, scales: np.ndarray, unit: float) -> np.ndarray:
        """Maximise the posterior density of the scales, coordinate by coordinate from the best common one.

        Args:
            scales: where to begin, beside common ones; shape (groups,).
            unit: the scale of :class:`.ModelParams`.
        """

        tried_before: dict[bytes, float] = {}  # sweeps come by the same scales again

        def density(logs: np.ndarray) -> float:
            """Of the scales' logarithms, up to a constant."""
            if (key := logs.tobytes()) not in tried_before:
                stray = float(((logs - SETTINGS.log_scale_mean) ** 2).sum()) / (
                    2 * SETTINGS.log_scale_std**2
                )
                tried_before[key] = self.likelihood(unit * np.exp(logs)) - stray
            return tried_before[key]

        begun = [
            np.log(scales / unit),
            *(np.full(len(scales), np.log(one)) for one in SETTINGS.common_scales),
        ]
        densities = [density(tried) for tried in begun]
        logs, best = begun[int(np.argmax(densities))], max(densities)
        for group in list(range(len(logs))) * SWEEPS:
            for step in (SETTINGS.log_scale_step, -SETTINGS.log_scale_step):
                before = best
                while True:
                    tried = logs.copy()
                    tried[group] = np.clip(tried[group] + step, *SETTINGS.log_scale_bounds)
                    found = density(tried) if tried[group] != logs[group] else -np.inf
                    if found <= best + 1e-3:
                        break
                    logs, best = tried, found
                if best > before:
                    break
        return np.asarray(unit * np.exp(logs))


def factor(system: np.ndarray) -> np.ndarray:
    """Cholesky factor, the diagonal raised by rounding's size."""
    enough = 1e-9 * float(np.trace(system)) / len(system) + 1e-12
    system = system.copy()
    system.ravel()[:: len(system) + 1] += enough
    return np.asarray(cholesky(system, lower=True, overwrite_a=True, check_finite=False))
