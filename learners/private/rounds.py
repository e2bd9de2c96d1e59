"""Noisy gradient sums by round, and their BLUE at any weights.

If synthetic records had the real second moments, t would not depend on the weights at which a gradient was taken. Their
second moments have an error E, so that sums at weights u estimate those at w up to about N E (u - w). A priori E's
entries are independent with mean zero: as estimates at w, sums of function i at u and at v have errors with covariance

    N(0, m h_i (u - w)' H (v - w) / N),    m = N (relative error of a second moment)^2,

h_i = N E[c irls_weight phi_i^2] and H = N E[c irls_weight phi phi'] over synthetic records. The best linear unbiased
estimate at w (Aitken 1936; kriging) weights each round by its noise and its distance. Differences between rounds
estimate N E along the steps taken (as in Broyden's method), as far as noise allows, and their variance in excess of
noise estimates m. Each output has its own weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privfed.learners.private.posterior import Linearization, NoisyMoments, WeightPosterior
from privfed.learners.private.settings import SETTINGS

FACTORS = 10.0 ** np.arange(-3.0, 2.6, 0.5)  #: Grid of factors of the usual misspecification

LEAST_NOISE = 1e-11  #: Minimum variance of sums, as a fraction of that by misspecification


@dataclass(frozen=True, eq=False)
class SyntheticHessian:
    """Curvature of the loss over synthetic records, at some weights."""

    diagonal: np.ndarray  #: h by function, shape (functions,)
    matrix: np.ndarray  #: H along the leading directions, shape (directions, directions)
    records: float  #: N

    @classmethod
    def at(cls, posterior: WeightPosterior, local: Linearization) -> SyntheticHessian:
        """Return the mean over outputs at some weights."""
        diagonal = posterior.curvatures(local.predictions)
        return cls(diagonal, np.mean(local.curvatures, axis=0), posterior.records)

    def products(self, steps: np.ndarray) -> np.ndarray:
        """Return u' H v / N of steps, shape (steps, directions, outputs); shape (outputs, steps, steps)."""
        moves = steps.transpose(2, 0, 1)
        return np.asarray(moves @ self.matrix @ moves.transpose(0, 2, 1) / self.records)

    def mean_square(self, step: np.ndarray) -> float:
        """Return the IRLS-weighted mean square change of a score by a step."""
        return float(self.products(step[None]).mean())


@dataclass(frozen=True, eq=False)
class GradientRounds:
    """The sums of each round, and the weights at which they were queried."""

    sums: tuple[NoisyMoments, ...] = ()  #: sums of each round
    weights: tuple[np.ndarray, ...] = ()  #: weights of each round, shape (directions, outputs) each

    def joined(self, sums: NoisyMoments, weights: np.ndarray) -> GradientRounds:
        """Return the rounds with one more."""
        return GradientRounds((*self.sums, sums), (*self.weights, weights))

    def at(
        self, weights: np.ndarray, curvature: SyntheticHessian, misspecification: float
    ) -> NoisyMoments:
        """Return the BLUE of the sums at weights of shape (directions, outputs), and its variance."""
        white = self._white(weights, curvature, misspecification)
        return NoisyMoments(white.means, (1 / white.precision).mean(axis=1))

    def slopes(
        self,
        weights: np.ndarray,
        curvature: SyntheticHessian,
        misspecification: float,
        axes: np.ndarray,
    ) -> np.ndarray:
        """Return N E, the sums' derivative by the subspace's weights, shape (outputs, directions, directions)."""
        white, offsets = self._white(weights, curvature, misspecification), self._away(weights)
        residual = white.values - white.ones * white.means[..., None]
        solved = np.linalg.solve(white.root.swapaxes(2, 3), residual[..., None])[..., 0]
        gains = misspecification / curvature.records * curvature.diagonal[:, None, None] * solved
        along = np.einsum("id,iok->odk", axes, gains)
        return np.asarray(along @ (offsets.transpose(2, 0, 1) @ curvature.matrix))

    def misspecification(self, curvature: SyntheticHessian) -> float:
        """Return the MAP estimate of m, by restricted likelihood of the rounds' differences and a log-normal prior."""
        prior = usual_misspecification(curvature.records)

        def density(factor: float) -> float:
            white = self._white(self.weights[-1], curvature, factor * prior)
            explained = white.precision * white.means**2
            excess = (white.values**2).sum(axis=2) - explained
            likelihood = -(white.logs + np.log(white.precision) / 2 + excess / 2).mean(axis=1).sum()
            doubled = 2 * SETTINGS.log_misspecification_std**2
            return float(likelihood) - float(np.log(factor)) ** 2 / doubled

        return prior * float(FACTORS[int(np.argmax([density(float(value)) for value in FACTORS]))])

    def _away(self, weights: np.ndarray) -> np.ndarray:
        return np.asarray(np.array(self.weights) - weights)

    def _white(
        self, weights: np.ndarray, curvature: SyntheticHessian, misspecification: float
    ) -> _White:
        """Return the rounds' sums times the root of their precision; zero if not in a round."""
        noise = np.array([sums.variance for sums in self.sums]).T
        known = np.isfinite(noise)[:, None, :]
        both = known[..., :, None] & known[..., None, :]
        products = curvature.products(self._away(weights))
        system = np.where(
            both, misspecification * curvature.diagonal[:, None, None, None] * products, 0.0
        )
        diagonal = np.arange(len(self.sums))
        floor = LEAST_NOISE * (1 + np.trace(system, axis1=2, axis2=3))[..., None]
        system[..., diagonal, diagonal] += np.where(known, noise[:, None] + floor, 1.0)
        root = np.linalg.cholesky(system)
        values = np.array([sums.values for sums in self.sums]).transpose(1, 2, 0)
        right = np.stack([np.ones_like(values), values], axis=-1) * known[..., None]
        white = np.linalg.solve(root, right)
        return _White(root, white[..., 0], white[..., 1])


@dataclass(frozen=True, eq=False)
class _White:
    """Whitened observations of each function and output."""

    root: np.ndarray  #: Cholesky factor of their covariance, (functions, outputs, rounds, rounds)
    ones: np.ndarray  #: a row of ones, shape (functions, outputs, rounds)
    values: np.ndarray  #: the rounds' sums, the same shape

    @property
    def precision(self) -> np.ndarray:
        return np.asarray((self.ones**2).sum(axis=2))

    @property
    def means(self) -> np.ndarray:
        return np.asarray((self.ones * self.values).sum(axis=2) / self.precision)

    @property
    def logs(self) -> np.ndarray:
        """Half the log-determinant of the covariance, shape (functions, outputs)."""
        return np.asarray(np.log(np.diagonal(self.root, axis1=2, axis2=3)).sum(axis=2))


def usual_misspecification(records: float) -> float:
    """Return m before rounds are compared."""
    return float(SETTINGS.moment_error**2 * records)
