"""Weights that go with noisy sums: a Gaussian prior, the noise of each release, and made-up records.

A model F = start + phi . w gives, over N records, g(w) = N E[phi (prediction - mean)], the expectation
being over made-up records. What clients release tells the sum of phi (target - mean) up to noise: one
*target of the sums* that does not depend on the round. Weights are those at which g(w) agrees with it
as far as sampling, noise and a standard normal prior on scaled weights say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve, cholesky, qr, solve_triangular

from privfed.learners.private.outcome import Outcome

#: Times that a random subspace is multiplied by the moments.
POWERS = 3
#: Lengths of a step that are tried: 1, 1/2, 1/4, ...
HALVINGS = 4
#: Mismatch of the made-up records below which steps are not damped, and the values tried for it.
FREE, MISMATCHES = 100.0, 10.0 ** np.arange(-2, 5, 0.25)


@dataclass(frozen=True, eq=False)
class Leading:
    """The functions' leading directions, as made-up records have them.

    Args:
        axes: orthonormal columns, shape (functions, directions).
        features: of the made-up records, shape (records, directions).
    """

    axes: np.ndarray
    features: np.ndarray

    @classmethod
    def of(cls, matrix: np.ndarray, most: int, rng: np.random.Generator) -> Leading:
        """About the directions of the largest second moments, by powers of a random subspace.

        Source: Halko, Martinsson and Tropp 2011, Algorithm 4.4.

        Args:
            matrix: all functions of the made-up records, float32, shape (records, functions).
            most: how many directions at most.
            rng: the server's randomness.
        """
        size = matrix.shape[1]
        axes = np.eye(size, dtype=np.float32)
        if most < size:
            moments = matrix.T @ matrix / len(matrix)
            axes = rng.normal(size=(size, most)).astype(np.float32)
            for _ in range(POWERS):
                axes = qr(moments @ axes, mode="economic", overwrite_a=True, check_finite=False)[0]
        return cls(axes.astype(float), (matrix @ axes).astype(float))


@dataclass(frozen=True, eq=False)
class Sums:
    """The target of the sums after some rounds.

    Args:
        values: in the leading directions, shape (directions, outputs).
        variance: of the noise in each of them.
    """

    values: np.ndarray
    variance: float


def averaged(rounds: list[Sums], decay: float) -> Sums:
    """Average rounds' targets, each by its noise; older ones weigh less by ``decay`` a round."""
    ages = np.arange(len(rounds))[::-1]
    weights = decay**ages / np.array([max(own.variance, 1e-12) for own in rounds])
    weights /= weights.sum()
    values = sum(w * own.values for w, own in zip(weights, rounds, strict=True))
    variance = sum(w**2 * own.variance for w, own in zip(weights, rounds, strict=True))
    return Sums(np.asarray(values), float(variance))


@dataclass(frozen=True, eq=False)
class Posterior:
    """The map from sums to weights.

    Args:
        leading: directions and made-up records.
        shares: weights of the made-up records, mean 1.
        outcome: the link.
        start: score of a record without any function, shape (outputs,).
        means: predictions there, shape (outputs,).
        records: N.
        prior: standard deviation of a scaled weight.
        constant: weights, in the leading directions, of the function that is 1 for every record.
        free: standard deviation of what the prior lets it add.
    """

    leading: Leading
    shares: np.ndarray
    outcome: Outcome
    start: np.ndarray
    means: np.ndarray
    records: float
    prior: float
    constant: np.ndarray
    free: float

    def predictions(self, weights: np.ndarray) -> np.ndarray:
        """Of the made-up records, shape (records, outputs)."""
        return self.outcome.predictions(self.start + self.leading.features @ weights)

    def told(self, predictions: np.ndarray) -> np.ndarray:
        """N E[phi (prediction - mean)], shape (directions, outputs)."""
        rest = (predictions - self.means) * self.shares[:, None]
        return np.asarray(self.leading.features.T @ rest) * (self.records / len(rest))

    def curvature(self, steepness: np.ndarray) -> np.ndarray:
        """N E[steepness phi phi'], shape (directions, directions)."""
        own = self.leading.features * np.sqrt(self.shares * steepness)[:, None]
        return np.asarray(own.T @ own) * (self.records / len(own))

    def weights(self, sums: Sums, start: np.ndarray, sampling: float, steps: int = 2) -> np.ndarray:
        """Gauss-Newton steps w = C H (H C H + s H + v I)^-1 (t - g(w) + H w), each as far as it helps.

        With several classes each has its own curvature: by K / (K - 1) of the diagonal, what softmax has
        along weights that add up to zero where chances are alike. Elsewhere that is no exact
        derivative, so a step is halved until the posterior's own measure of misfit falls.

        Args:
            sums: t, with the variance v of its noise.
            start: weights to start from, shape (directions, outputs).
            sampling: s, the variance that sampling (and what made-up records get wrong) adds.
            steps: how many.
        """
        weights = start.copy()
        for _ in range(1 if self.outcome.kind == "number" else steps):
            predictions = self.predictions(weights)
            rest = sums.values - self.told(predictions)
            steepness = self.outcome.variances(predictions)
            wanted, curvatures = np.empty_like(weights), []
            for output in range(weights.shape[1]):
                curvature = self.curvature(steepness[:, output])
                right = rest[:, output] + curvature @ weights[:, output]
                wanted[:, output] = self._solved(curvature, right, sums.variance, sampling)
                curvatures.append(curvature)
            if self.outcome.kind == "number":
                return wanted
            weights = self._as_far_as_it_helps(sums, weights, wanted, curvatures, sampling)
        return weights

    def _as_far_as_it_helps(
        self,
        sums: Sums,
        weights: np.ndarray,
        wanted: np.ndarray,
        curvatures: Sequence[np.ndarray],
        sampling: float,
    ) -> np.ndarray:
        """The best of a whole step, its half, and so on, or none."""
        noise = sums.variance + 1e-9 * float(np.trace(curvatures[0]))
        factors = [
            cholesky(sampling * own + noise * np.eye(len(own)), lower=True, check_finite=False)
            for own in curvatures
        ]

        def misfit(tried: np.ndarray) -> float:
            rest, total = sums.values - self.told(self.predictions(tried)), self._against(tried)
            for output, factor in enumerate(factors):
                own = solve_triangular(factor, rest[:, output], lower=True, check_finite=False)
                total += float(own @ own)
            return total

        best, least = weights, misfit(weights)
        for halving in range(HALVINGS):
            tried = weights + 0.5**halving * (wanted - weights)
            found = misfit(tried)
            if found < least:
                best, least = tried, found
            elif best is not weights:
                break
        return best

    def _against(self, weights: np.ndarray) -> float:
        """What the prior holds against weights, w' C^-1 w over all outputs."""
        along = self.constant @ weights
        share = self.free**2 / (self.prior**2 + self.free**2 * float(self.constant @ self.constant))
        return float(((weights**2).sum() - share * (along**2).sum()) / self.prior**2)

    def _solved(
        self, curvature: np.ndarray, wanted: np.ndarray, noise: float, sampling: float
    ) -> np.ndarray:
        factor = self._factor(curvature, noise, sampling)
        solved = cho_solve((factor, True), wanted, check_finite=False)
        return np.asarray(self._spread(curvature @ solved))

    def _spread(self, vector: np.ndarray) -> np.ndarray:
        """C times a vector: C = prior^2 I + free^2 c c', the constant's own prior being wide."""
        along = float(self.constant @ vector) * self.free**2
        return np.asarray(self.prior**2 * vector + along * self.constant)

    def _factor(self, curvature: np.ndarray, noise: float, sampling: float) -> np.ndarray:
        """Cholesky factor of H C H + s H + v I, with enough on the diagonal to exist."""
        system = self.prior**2 * (curvature @ curvature) + sampling * curvature
        moved = self.free * (curvature @ self.constant)
        system += np.multiply.outer(moved, moved)
        system[np.diag_indices_from(system)] += noise + 1e-9 * float(np.trace(system)) / len(system)
        return np.asarray(cholesky(system, lower=True, overwrite_a=True, check_finite=False))

    def likeliest(
        self, sums: Sums, weights: np.ndarray, sampling: float, priors: Sequence[float]
    ) -> Posterior:
        """The same with the prior under which the sums are likeliest.

        Args:
            sums: the target so far.
            weights: where the curvature is taken, shape (directions, outputs).
            sampling: see :meth:`weights`.
            priors: the choices.
        """
        predictions = self.predictions(weights)
        steepness, told = self.outcome.variances(predictions), self.told(predictions)
        found = dict.fromkeys(priors, 0.0)
        for output in range(weights.shape[1]):
            curvature = self.curvature(steepness[:, output])
            wanted = sums.values[:, output] - told[:, output] + curvature @ weights[:, output]
            for prior in priors:
                factor = replace(self, prior=prior)._factor(curvature, sums.variance, sampling)
                rest = solve_triangular(factor, wanted, lower=True, check_finite=False)
                found[prior] -= float(rest @ rest) / 2 + float(np.log(np.diag(factor)).sum())
        return replace(self, prior=max(priors, key=lambda prior: found[prior]))

    def mismatch(self, moved: np.ndarray, noise: float, predictions: np.ndarray) -> float:
        """How far two rounds' targets differ beyond their noise, in units of the curvature.

        Were the made-up records like the real ones, targets of two rounds would differ by noise alone,
        moved ~ N(0, noise I + m H). The likeliest m tells signal from mismatch where priors are
        compared, and what of it is beyond :data:`FREE` damps the next step.

        Args:
            moved: difference of two targets, shape (directions, outputs).
            noise: variance of the noise in it.
            predictions: of the made-up records.
        """
        curvature = self.curvature(self.outcome.variances(predictions).mean(axis=1))
        values, vectors = np.linalg.eigh(curvature)
        squares = ((vectors.T @ moved) ** 2).mean(axis=1)
        best, likeliest = -np.inf, 0.0
        for tried in (0.0, *MISMATCHES):
            spread = noise + tried * np.maximum(values, 0) + 1e-12
            likelihood = -float((squares / spread + np.log(spread)).sum())
            if likelihood > best:
                best, likeliest = likelihood, float(tried)
        return likeliest
