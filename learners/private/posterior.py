"""Approximate MAP weights from noisy moments, under a Gaussian prior.

The model is F = intercept + phi . w, with moments g(w) = N E[c phi (prediction - mean)] over synthetic records.
Releases estimate t = sum of c phi (target - mean) over real records, in any round. The weights balance g(w) = t, up to
sampling and noise, against the prior. If c is below one (:class:`.Basis`), this is weighted least squares; sampling
variance has c^2 but is computed with c, which overestimates it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import cho_solve, cholesky, qr, solve_triangular

from privfed.learners.private.settings import SETTINGS
from privfed.learners.private.target_link import Outcome

SWEEPS = 2  #: Number of sweeps over all groups
#: Factors of a kind's likeliest scales, for averages over scales; at 0 there are no such functions
SCALE_FACTORS = np.array([0.0, *2.0 ** np.array([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0])])
#: Kinds of functions that share a factor: lines, bins, trees of the first depth, deeper ones
KINDS = (slice(0, 1), slice(1, 2), slice(2, 3), slice(3, None))


@dataclass(frozen=True, eq=False)
class MarginalLikelihood:
    """Marginal likelihood of sums t ~ N(0, sum over groups g of s_g^2 M_g + rest), by output."""

    values: Sequence[np.ndarray]  #: t by output, each of shape (directions,)
    moved: Sequence[Sequence[np.ndarray]]  #: M_g = G A_g G' by output, (directions, directions)
    rest: Sequence[np.ndarray]  #: covariance that does not depend on the scales s, by output
    share: float = 1.0  #: factor of the logarithm, if several evidences use the same sums

    def halved(self, other: MarginalLikelihood) -> MarginalLikelihood:
        """Return the mean of this and another, for the same scales and sums."""
        return MarginalLikelihood(
            [*self.values, *other.values],
            [*self.moved, *other.moved],
            [*self.rest, *other.rest],
            share=0.5,
        )

    @cached_property
    def _rows(self) -> list[np.ndarray]:
        return [np.array(moved).reshape(len(moved), -1) for moved in self.moved]

    def likelihood(self, scales: np.ndarray) -> float:
        """Return the log-likelihood up to a constant; ``scales`` has shape (groups,)."""
        found, squares = 0.0, scales**2
        for values, moved, rest in zip(self.values, self._rows, self.rest, strict=True):
            root = factor((squares @ moved).reshape(rest.shape) + rest)
            white = solve_triangular(root, values, lower=True, check_finite=False)
            found -= float(white @ white) / 2 + float(np.log(np.diag(root)).sum())
        return self.share * found

    def density(self, scales: np.ndarray, unit: float) -> float:
        """Return the log posterior density of the scales' logarithms, up to a constant.

        ``unit`` is the scale of :class:`.ModelParams`.
        """
        stray = float(((np.log(scales / unit) - SETTINGS.log_scale_mean) ** 2).sum())
        return self.likelihood(scales) - stray / (2 * SETTINGS.log_scale_std**2)

    def mean_squares(self, scales: np.ndarray, unit: float) -> np.ndarray:
        """Return posterior mean squares of the scales, shape (groups,).

        The scales of each kind of functions are multiplied by one of :data:`SCALE_FACTORS`, others staying the
        likeliest. A priori the kind is absent (0) with probability ``absent``; other factors are weighted by
        :meth:`density`'s prior. ``unit`` as there.
        """
        squares, present = scales**2, SCALE_FACTORS[1:]
        for kind in KINDS:
            tried = np.tile(scales, (len(SCALE_FACTORS), 1))
            tried[:, kind] *= SCALE_FACTORS[:, None]
            stray = np.log(tried[1:, kind] / unit) - SETTINGS.log_scale_mean
            weights = np.exp(-(stray**2).sum(axis=1) / (2 * SETTINGS.log_scale_std**2))
            weights *= (1 - SETTINGS.absent) / max(float(weights.sum()), 1e-300)
            logs = np.array([self.likelihood(own) for own in tried])
            chances = np.concatenate([[SETTINGS.absent], weights]) * np.exp(logs - logs.max())
            squares[kind] *= chances[1:] @ present**2 / chances.sum()
        return squares

    def likeliest(self, scales: np.ndarray, unit: float) -> np.ndarray:
        """Maximise the posterior density of the scales, shape (groups,), coordinate by coordinate.

        It starts at the best of the given scales and common ones; ``unit`` as in :meth:`density`.
        """

        tried_before: dict[bytes, float] = {}  # sweeps revisit the same scales

        def density(logs: np.ndarray) -> float:
            if (key := logs.tobytes()) not in tried_before:
                tried_before[key] = self.density(unit * np.exp(logs), unit)
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
    """Return the Cholesky factor, with the diagonal raised by about the rounding error."""
    enough = 1e-9 * float(np.trace(system)) / len(system) + 1e-12
    system = system.copy()
    system.ravel()[:: len(system) + 1] += enough
    return np.asarray(cholesky(system, lower=True, overwrite_a=True, check_finite=False))


POWERS = 3  #: Power iterations of a random subspace
HALVINGS = 4  #: Step lengths that are tried: 1, 1/2, 1/4,


@dataclass(frozen=True, eq=False)
class Subspace:
    """Leading directions of the functions, from synthetic records."""

    axes: np.ndarray  #: orthonormal columns, shape (functions, directions)
    features: np.ndarray  #: of the synthetic records, shape (records, directions)
    functions: np.ndarray  #: all of them, float32, shape (records, functions)

    @classmethod
    def from_matrix(
        cls, matrix: np.ndarray, most: int, rng: np.random.Generator, kept: np.ndarray
    ) -> Subspace:
        """Return kept functions and the others' directions of largest second moments, by randomized power iteration.

        Args:
            matrix: functions of the synthetic records, float32, shape (records, functions).
            most: maximum number of directions.
            rng: draws the random subspace.
            kept: indices of functions that are directions themselves, unless more than half would be.

        Source: Halko, Martinsson and Tropp 2011, Algorithm 4.4.
        """
        size = matrix.shape[1]
        axes = np.eye(size, dtype=np.float32)
        if most < size:
            kept = kept if 2 * len(kept) <= most else kept[:0]
            moments = matrix.T @ matrix / len(matrix)
            moments[kept], moments[:, kept] = 0, 0
            whole = axes[:, kept]
            axes = rng.normal(size=(size, most - len(kept))).astype(np.float32)
            for _ in range(POWERS):
                axes = qr(moments @ axes, mode="economic", overwrite_a=True, check_finite=False)[0]
            axes = np.concatenate([whole, axes], axis=1)
        return cls(axes.astype(float), (matrix @ axes).astype(float), matrix)


@dataclass(frozen=True, eq=False)
class NoisyMoments:
    """Estimate of t after some rounds."""

    values: np.ndarray  #: by function, shape (functions, outputs)
    variance: np.ndarray  #: noise variance, shape (functions,); infinite if not released

    def rescaled(self, scale_factors: np.ndarray) -> NoisyMoments:
        """Return the moments of functions times these factors."""
        return NoisyMoments(self.values * scale_factors[:, None], self.variance * scale_factors**2)

    def along(self, axes: np.ndarray) -> ProjectedMoments:
        """Return the moments in the subspace spanned by the columns of ``axes``."""
        return ProjectedMoments(axes.T @ self.values, (axes * self.variance[:, None]).T @ axes)


@dataclass(frozen=True, eq=False)
class ProjectedMoments:
    """Estimate of t in the subspace, at some weights."""

    values: np.ndarray  #: at some weights, shape (directions, outputs)
    noise: np.ndarray  #: noise covariance, shape (directions, directions)
    slopes: np.ndarray | None = None  #: dt/dw, (outputs, directions, directions); None for 0

    def at(self, step: np.ndarray) -> np.ndarray:
        """Return the values a step away from those weights; ``step`` has shape (directions, outputs)."""
        if self.slopes is None:
            return self.values
        return np.asarray(self.values + np.einsum("oij,jo->io", self.slopes, step))

    def jacobian(self, curvature: np.ndarray, output: int) -> np.ndarray:
        """Return G = H - dt/dw, for the synthetic records' curvature H."""
        return curvature if self.slopes is None else curvature - self.slopes[output]


@dataclass(frozen=True, eq=False)
class Prior:
    """w ~ N(0, C), C = sum over g of s_g^2 A_g + free^2 c c'."""

    groups: np.ndarray  #: A_g = V_g' V_g of V's rows of a group, (groups, directions, directions)
    scales: np.ndarray  #: s, standard deviations of scaled weights, shape (groups,)
    constant: np.ndarray  #: c, of the function 1, shape (directions,)
    free: float  #: prior standard deviation of its weight

    @property
    def level(self) -> np.ndarray:
        """The constant function's part of C."""
        return np.asarray(self.free**2 * np.multiply.outer(self.constant, self.constant))

    @cached_property
    def covariance(self) -> np.ndarray:
        """C, shape (directions, directions)."""
        return np.asarray(np.tensordot(self.scales**2, self.groups, 1) + self.level)

    @cached_property
    def root(self) -> np.ndarray:
        """Cholesky factor of C, its diagonal slightly raised."""
        little = 1e-6 * float(np.trace(self.covariance)) / len(self.constant)
        return factor(self.covariance + little * np.eye(len(self.constant)))

    def against(self, weights: np.ndarray) -> float:
        """Return w' C^-1 w summed over all outputs."""
        own = solve_triangular(self.root, weights, lower=True, check_finite=False)
        return float((own**2).sum())


@dataclass(frozen=True, eq=False)
class Linearization:
    """Predictions, moments and curvature of the synthetic records at some weights."""

    weights: np.ndarray  #: shape (directions, outputs)
    predictions: np.ndarray  #: of the records, shape (records, outputs)
    told: np.ndarray  #: g, shape (directions, outputs)
    curvatures: tuple[np.ndarray, ...]  #: H of each output, shape (directions, directions) each


@dataclass(frozen=True, eq=False)
class WeightPosterior:
    """Maps noisy moments to weights."""

    leading: Subspace  #: directions and synthetic records
    shares: np.ndarray  #: weights of the synthetic records, mean 1, times c of :class:`.Basis`
    outcome: Outcome  #: the link
    start: np.ndarray  #: score if all functions are zero, shape (outputs,)
    means: np.ndarray  #: predictions at that score, shape (outputs,)
    records: float  #: N
    prior: Prior  #: of the weights

    def predictions(self, weights: np.ndarray) -> np.ndarray:
        """Return predictions for the synthetic records, shape (records, outputs)."""
        return self.outcome.predictions(self.start + self.leading.features @ weights)

    def at(self, weights: np.ndarray) -> Linearization:
        """Linearise at some weights."""
        predictions = self.predictions(weights)
        irls_weights = self.outcome.variances(predictions)
        curvatures = tuple(self.curvature(own) for own in irls_weights.T)
        return Linearization(weights, predictions, self.told(predictions), curvatures)

    def expected(self, predictions: np.ndarray) -> np.ndarray:
        """Return N E[c phi (prediction - mean)], shape (functions, outputs)."""
        rest = ((predictions - self.means) * self.shares[:, None]).astype(np.float32)
        return np.asarray(self.leading.functions.T @ rest, float) * (self.records / len(rest))

    def curvatures(self, predictions: np.ndarray) -> np.ndarray:
        """Return N E[c irls_weight phi^2] of each function, averaged over outputs; shape (functions,)."""
        heavy = self.shares * self.outcome.variances(predictions).mean(axis=1)
        squares = heavy.astype(np.float32) @ self.leading.functions**2
        return np.asarray(squares, float) * (self.records / len(heavy))

    def told(self, predictions: np.ndarray) -> np.ndarray:
        """Return the expected moments in the subspace, shape (directions, outputs)."""
        rest = (predictions - self.means) * self.shares[:, None]
        return np.asarray(self.leading.features.T @ rest) * (self.records / len(rest))

    def curvature(self, irls_weights: np.ndarray) -> np.ndarray:
        """Return N E[c irls_weight phi phi'], shape (directions, directions)."""
        own = self.leading.features * np.sqrt(self.shares * irls_weights)[:, None]
        return np.asarray(own.T @ own) * (self.records / len(own))

    def weights(
        self, sums: ProjectedMoments, local: Linearization, sampling: float, steps: int = 2
    ) -> np.ndarray:
        """Take Gauss-Newton steps w = C G' (G C G' + s H + V)^-1 (t(w) - g(w) + G w), with backtracking.

        V is the noise of the sums t, estimated at ``local``, and s (``sampling``) the variance added by sampling and
        errors of synthetic records. H is the synthetic records' curvature, and G = H - dt/dw its correction by the
        rounds. For several classes each has K / (K - 1) of the softmax's diagonal, exact along weights that sum to zero
        at equal probabilities; elsewhere steps are halved until the posterior's misfit decreases.
        """
        start = now = local
        for left in range(steps, 0, -1):
            wanted = self._wanted(sums, start, now, sampling)
            if self.outcome.kind == "number":
                return wanted
            weights = self._as_far_as_it_helps(sums, start, now, wanted, sampling)
            if left > 1:
                now = self.at(weights)
        return weights

    def _wanted(
        self, sums: ProjectedMoments, start: Linearization, now: Linearization, sampling: float
    ) -> np.ndarray:
        rest, wanted = sums.at(now.weights - start.weights) - now.told, np.empty_like(now.told)
        covariance = self.prior.covariance
        for output, curvature in enumerate(now.curvatures):
            jacobian = sums.jacobian(curvature, output)
            right = rest[:, output] + jacobian @ now.weights[:, output]
            moved = jacobian @ covariance
            root = factor(moved @ jacobian.T + (sampling * curvature + sums.noise))
            solved = cho_solve((root, True), right, check_finite=False)
            wanted[:, output] = covariance @ (jacobian.T @ solved)
        return wanted

    def _as_far_as_it_helps(
        self,
        sums: ProjectedMoments,
        start: Linearization,
        now: Linearization,
        wanted: np.ndarray,
        sampling: float,
    ) -> np.ndarray:
        """Return the best of a full step, half of it, and so on, or no step."""
        least_noise = 1e-9 * float(np.trace(now.curvatures[0])) * np.eye(len(wanted))
        roots = [factor(sampling * own + sums.noise + least_noise) for own in now.curvatures]

        def misfit(tried: np.ndarray, told: np.ndarray) -> float:
            rest = sums.at(tried - start.weights) - told
            total = self.prior.against(tried)
            for output, root in enumerate(roots):
                own = solve_triangular(root, rest[:, output], lower=True, check_finite=False)
                total += float(own @ own)
            return total

        weights = now.weights
        best, least = weights, misfit(weights, now.told)
        for halving in range(HALVINGS):
            tried = weights + 0.5**halving * (wanted - weights)
            found = misfit(tried, self.told(self.predictions(tried)))
            if found < least:
                best, least = tried, found
            elif best is not weights:
                break
        return best

    def evidence(
        self, sums: ProjectedMoments, local: Linearization, sampling: float
    ) -> MarginalLikelihood:
        """Return the marginal likelihood of the prior's scales, from sums at ``local``."""
        right = sums.values - local.told
        jacobian = [sums.jacobian(own, output) for output, own in enumerate(local.curvatures)]
        return MarginalLikelihood(
            [own + g @ w for own, g, w in zip(right.T, jacobian, local.weights.T, strict=True)],
            [[g @ own @ g.T for own in self.prior.groups] for g in jacobian],
            [
                sampling * h + sums.noise + g @ self.prior.level @ g.T
                for h, g in zip(local.curvatures, jacobian, strict=True)
            ],
        )

    def scaled(self, scales: np.ndarray) -> WeightPosterior:
        """Return the same with other scales of the prior."""
        return replace(self, prior=replace(self.prior, scales=scales))

    def smaller(self, evidence: MarginalLikelihood) -> list[tuple[float, WeightPosterior]]:
        """Return the same under fractions of this prior's scales, with their probabilities."""
        logs = [
            evidence.likelihood(share * self.prior.scales) + math.log(share)
            for share in SETTINGS.prior_fractions
        ]
        chances = np.exp(np.array(logs) - max(logs))
        chances = np.where(chances > SETTINGS.min_prior_probability * chances.sum(), chances, 0.0)
        return [
            (float(chance / chances.sum()), self.scaled(share * self.prior.scales))
            for chance, share in zip(chances, SETTINGS.prior_fractions, strict=True)
            if chance
        ]


def mixed(
    priors: Sequence[tuple[float, WeightPosterior]],
    sums: ProjectedMoments,
    local: Linearization,
    sampling: float,
) -> np.ndarray:
    """Return the mean of :meth:`.WeightPosterior.weights` over priors."""
    own = [chance * one.weights(sums, local, sampling) for chance, one in priors]
    return np.asarray(sum(own))


def covariance(
    priors: Sequence[tuple[float, WeightPosterior]],
    sums: ProjectedMoments,
    local: Linearization,
    sampling: float,
    output: int = 0,
) -> np.ndarray:
    """Return the covariance of an output's weights, shape (directions, directions).

    By prior, S = C - C G' (G C G' + s H + V)^-1 G C; over priors, their mean plus the variance of
    :meth:`.WeightPosterior.weights` between them. It includes noise and sampling, but not
    misspecification.
    """
    curvature = local.curvatures[output]
    jacobian = sums.jacobian(curvature, output)
    means = np.array([one.weights(sums, local, sampling)[:, output] for _, one in priors])
    chances = np.array([chance for chance, _ in priors])
    stray = means - chances @ means
    found = (stray * chances[:, None]).T @ stray
    for chance, one in priors:
        prior = one.prior.covariance
        moved = jacobian @ prior
        root = factor(moved @ jacobian.T + sampling * curvature + sums.noise)
        half = solve_triangular(root, moved, lower=True, check_finite=False)
        found += chance * (prior - half.T @ half)
    return np.asarray(found)


@dataclass(frozen=True, eq=False)
class EstimationError:
    """Second moments of errors of linear functionals of an output's scores.

    The prior is over random functions, and the basis has a few of them. Under it the truth is psi . u, u ~ N(0, D), for
    other functions psi. Scores b phi . K t, fitted to sums t = A psi . u + e + v with sampling e and noise v, and then
    calibrated by a factor b (:class:`.PlattScaling`), have the error (psi - b phi K A psi) . u - b phi . K (e + v). Its
    second moment is linear in psi D psi', so that a few functions estimate the mean over all draws of the prior
    (Rasmussen and Williams 2006, Chapter 2).
    """

    noise: np.ndarray  #: covariance of b K (e + v), shape (directions, directions)
    fitted: np.ndarray  #: b K A psi, float32, shape (directions, functions psi)
    variances: np.ndarray  #: D's diagonal, shape (functions psi,), posterior means over the scales
    gain: np.ndarray  #: b K, shape (directions, directions)
    sampling: float  #: s of :meth:`.WeightPosterior.weights`, times ``noise_factor``

    def squares(self, functions: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Return mean square errors of functionals, shape (functionals,).

        Args:
            functions: the functionals of psi, shape (functionals, functions psi).
            directions: the functionals of phi, shape (functionals, directions).
        """
        missed = functions - directions @ self.fitted
        noise = np.einsum("ij,ij->i", directions @ self.noise, directions)
        return np.asarray(missed**2 @ self.variances + noise)

    def covariances(
        self, functions: np.ndarray, directions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return second moments of functionals' errors, in total and by noise and sampling, each square."""
        missed = functions - directions @ self.fitted
        noise = directions @ self.noise @ directions.T
        return np.asarray((missed * self.variances) @ missed.T + noise), np.asarray(noise)

    def drawn(self, draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (first, second) such that errors are ``functions @ first + directions @ second``.

        Returns:
            float32, of shapes (functions, draws) and (directions, draws).
        """
        values, vectors = np.linalg.eigh(self.noise)
        size = len(self.variances), len(values)
        missed, noise = (rng.normal(size=(own, draws)) for own in size)
        missed *= np.sqrt(self.variances)[:, None]
        along = (vectors * np.sqrt(np.maximum(values, 0))) @ noise - self.fitted @ missed
        return missed.astype(np.float32), along.astype(np.float32)

    def calibrated(self, factor: float) -> EstimationError:
        """Return the errors if scores are multiplied by a factor, and the truth is not."""
        return replace(
            self,
            noise=factor**2 * self.noise,
            fitted=self.fitted * np.float32(factor),
            gain=factor * self.gain,
        )

    def of_refit(
        self, directions: np.ndarray, functions: np.ndarray, further: np.ndarray, heavy: np.ndarray
    ) -> EstimationError:
        """Return errors against the scores that would be learned from the same records without noise.

        These are chi . L (B psi . u + f), over a third draw chi of the basis, with f the sampling of chi's sums and L =
        (M + s / D)^-1, M = chi' W chi: the scores' differences to them are chi . (L B psi . u + L f) - phi . (b K A psi
        . u + b K (e + v)), where e and f have the covariance s phi' W chi.

        Args:
            directions: phi of synthetic records, shape (records, directions).
            functions: psi of them, shape (records, functions).
            further: chi of them, in psi's order and scales, the same shape.
            heavy: W, IRLS weights that sum to those of all records, shape (records,).

        Returns:
            errors whose ``functions`` are 0, and whose ``directions`` are those of phi and, negative, chi.
        """
        root, weighted = np.sqrt(self.variances), further.T * heavy.astype(np.float32)
        moments = (weighted @ further).astype(float)
        ridge = self.sampling / SETTINGS.noise_factor * np.eye(len(root))
        system = root[:, None] * moments * root + ridge
        gain = root[:, None] * np.linalg.inv(system) * root
        fitted = gain.astype(np.float32) @ (weighted @ functions)
        cross = self.sampling * self.gain @ (weighted @ directions).T @ gain
        own = self.sampling * gain @ moments @ gain
        noise = np.block([[self.noise, cross], [cross.T, own]])
        return replace(self, noise=noise, fitted=np.concatenate([self.fitted, fitted]))


def estimation_error(
    priors: Sequence[tuple[float, WeightPosterior]],
    sums: ProjectedMoments,
    local: Linearization,
    sampling: float,
    functions: np.ndarray,
    variances: np.ndarray,
    output: int = 0,
) -> EstimationError:
    """Return the errors of the weights, with K averaged over priors, noise and sampling times ``noise_factor``.

    Args:
        priors: those of :func:`covariance`.
        sums: estimated at ``local``.
        local: linearization for the curvature.
        sampling: as in :meth:`.WeightPosterior.weights`.
        functions: psi of the posterior's synthetic records, shape (records, functions psi).
        variances: D of their weights, shape (functions psi,).
        output: index of the scores.
    """
    own, curvature = priors[0][1], local.curvatures[output]
    jacobian, rest = sums.jacobian(curvature, output), sampling * curvature + sums.noise
    gain = np.zeros_like(rest)
    for chance, one in priors:
        moved = jacobian @ one.prior.covariance
        gain += chance * cho_solve((factor(moved @ jacobian.T + rest), True), moved).T
    heavy = own.outcome.variances(local.predictions)[:, output] * own.shares * own.records
    told = (own.leading.features * (heavy / len(functions))[:, None]).T.astype(functions.dtype)
    fitted = gain.astype(functions.dtype) @ (told @ functions)
    noise = SETTINGS.noise_factor * gain @ rest @ gain.T
    return EstimationError(noise, fitted, variances, gain, SETTINGS.noise_factor * sampling)
