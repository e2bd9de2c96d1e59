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
    share: float = 1.0  #: factor of the logarithm, if several evidences use the same sums, or outputs depend on each other

    def halved(self, other: MarginalLikelihood) -> MarginalLikelihood:
        """Return the mean of this and another, for the same scales and sums."""
        return MarginalLikelihood(
            [*self.values, *other.values],
            [*self.moved, *other.moved],
            [*self.rest, *other.rest],
            share=self.share / 2,
        )

    @cached_property
    def _rows(self) -> list[np.ndarray]:
        return [np.array(moved).reshape(len(moved), -1) for moved in self.moved]

    def likelihood(self, scales: np.ndarray) -> float:
        """Return the log-likelihood up to a constant; ``scales`` has shape (groups,)."""
        total, squares = 0.0, scales**2
        for values, rows, noise in zip(self.values, self._rows, self.rest, strict=True):
            root = factor((squares @ rows).reshape(noise.shape) + noise)
            white = solve_triangular(root, values, lower=True, check_finite=False)
            total -= float(white @ white) / 2 + float(np.log(np.diag(root)).sum())
        return self.share * total

    def density(self, scales: np.ndarray, unit: float) -> float:
        """Return the log posterior density of the scales' logarithms, up to a constant.

        ``unit`` is the scale of :class:`.ModelParams`.
        """
        penalty = float(((np.log(scales / unit) - SETTINGS.log_scale_mean) ** 2).sum())
        return self.likelihood(scales) - penalty / (2 * SETTINGS.log_scale_std**2)

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

        cache: dict[bytes, float] = {}  # sweeps revisit the same scales

        def density(logs: np.ndarray) -> float:
            if (key := logs.tobytes()) not in cache:
                cache[key] = self.density(unit * np.exp(logs), unit)
            return cache[key]

        starts = [
            np.log(scales / unit),
            *(np.full(len(scales), np.log(scale)) for scale in SETTINGS.common_scales),
        ]
        densities = [density(candidate) for candidate in starts]
        logs, best = starts[int(np.argmax(densities))], max(densities)
        for group in list(range(len(logs))) * SWEEPS:
            for step in (SETTINGS.log_scale_step, -SETTINGS.log_scale_step):
                before = best
                while True:
                    candidate = logs.copy()
                    candidate[group] = np.clip(candidate[group] + step, *SETTINGS.log_scale_bounds)
                    value = density(candidate) if candidate[group] != logs[group] else -np.inf
                    if value <= best + 1e-3:
                        break
                    logs, best = candidate, value
                if best > before:
                    break
        return np.asarray(unit * np.exp(logs))


def factor(system: np.ndarray) -> np.ndarray:
    """Return the Cholesky factor, with the diagonal raised by about the rounding error."""
    jitter = 1e-9 * float(np.trace(system)) / len(system) + 1e-12
    system = system.copy()
    system.ravel()[:: len(system) + 1] += jitter
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
        cls, matrix: np.ndarray, limit: int, rng: np.random.Generator, kept: np.ndarray
    ) -> Subspace:
        """Return kept functions and the others' directions of largest second moments, by randomized power iteration.

        Args:
            matrix: functions of the synthetic records, float32, shape (records, functions).
            limit: maximum number of directions.
            rng: draws the random subspace.
            kept: indices of functions that are directions themselves, unless more than half would be.

        Source: Halko, Martinsson and Tropp 2011, Algorithm 4.4.
        """
        size = matrix.shape[1]
        axes = np.eye(size, dtype=np.float32)
        if limit < size:
            kept = kept if 2 * len(kept) <= limit else kept[:0]
            moments = matrix.T @ matrix / len(matrix)
            moments[kept], moments[:, kept] = 0, 0
            units = axes[:, kept]
            axes = rng.normal(size=(size, limit - len(kept))).astype(np.float32)
            for _ in range(POWERS):
                axes = qr(moments @ axes, mode="economic", overwrite_a=True, check_finite=False)[0]
            axes = np.concatenate([units, axes], axis=1)
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
        jitter = 1e-6 * float(np.trace(self.covariance)) / len(self.constant)
        return factor(self.covariance + jitter * np.eye(len(self.constant)))

    def against(self, weights: np.ndarray) -> float:
        """Return w' C^-1 w summed over all outputs."""
        white = solve_triangular(self.root, weights, lower=True, check_finite=False)
        return float((white**2).sum())


@dataclass(frozen=True, eq=False)
class Linearization:
    """Predictions, moments and curvature of the synthetic records at some weights."""

    weights: np.ndarray  #: shape (directions, outputs)
    predictions: np.ndarray  #: of the records, shape (records, outputs)
    moments: np.ndarray  #: g, shape (directions, outputs)
    curvatures: tuple[np.ndarray, ...]  #: H of each output, shape (directions, directions) each


@dataclass(frozen=True, eq=False)
class WeightPosterior:
    """Maps noisy moments to weights."""

    leading: Subspace  #: directions and synthetic records
    shares: np.ndarray  #: weights of the synthetic records, mean 1, times c of :class:`.Basis`
    outcome: Outcome  #: the link
    intercept: np.ndarray  #: score if all functions are zero, shape (outputs,)
    means: np.ndarray  #: predictions at that score, shape (outputs,)
    records: float  #: N
    prior: Prior  #: of the weights

    def predictions(self, weights: np.ndarray) -> np.ndarray:
        """Return predictions for the synthetic records, shape (records, outputs)."""
        return self.outcome.predictions(self.intercept + self.leading.features @ weights)

    def at(self, weights: np.ndarray) -> Linearization:
        """Linearise at some weights."""
        predictions = self.predictions(weights)
        irls_weights = self.outcome.variances(predictions)
        curvatures = tuple(self.curvature(w) for w in irls_weights.T)
        return Linearization(weights, predictions, self.moments(predictions), curvatures)

    def expected(self, predictions: np.ndarray) -> np.ndarray:
        """Return N E[c phi (prediction - mean)], shape (functions, outputs)."""
        diff = ((predictions - self.means) * self.shares[:, None]).astype(np.float32)
        return np.asarray(self.leading.functions.T @ diff, float) * (self.records / len(diff))

    def curvatures(self, predictions: np.ndarray) -> np.ndarray:
        """Return N E[c irls_weight phi^2] of each function, averaged over outputs; shape (functions,)."""
        weights = self.shares * self.outcome.variances(predictions).mean(axis=1)
        squares = weights.astype(np.float32) @ self.leading.functions**2
        return np.asarray(squares, float) * (self.records / len(weights))

    def moments(self, predictions: np.ndarray) -> np.ndarray:
        """Return the expected moments in the subspace, shape (directions, outputs)."""
        diff = (predictions - self.means) * self.shares[:, None]
        return np.asarray(self.leading.features.T @ diff) * (self.records / len(diff))

    def curvature(self, irls_weights: np.ndarray) -> np.ndarray:
        """Return N E[c irls_weight phi phi'], shape (directions, directions)."""
        scaled = self.leading.features * np.sqrt(self.shares * irls_weights)[:, None]
        return np.asarray(scaled.T @ scaled) * (self.records / len(scaled))

    def weights(
        self, sums: ProjectedMoments, local: Linearization, sampling: float, steps: int = 2
    ) -> np.ndarray:
        """Take Gauss-Newton steps w = C G' (G C G' + s H + V)^-1 (t(w) - g(w) + G w), with backtracking.

        V is the noise of the sums t, estimated at ``local``, and s (``sampling``) the variance added by sampling and
        errors of synthetic records. H is the synthetic records' curvature, and G = H - dt/dw its correction by the
        rounds. For several classes each has K / (K - 1) of the softmax's diagonal, exact along weights that sum to zero
        at equal probabilities; elsewhere steps are halved until the posterior's misfit decreases.
        """
        origin = current = local
        for remaining in range(steps, 0, -1):
            target = self._full_step(sums, origin, current, sampling)
            if self.outcome.kind == "number":
                return target
            weights = self._backtrack(sums, origin, current, target, sampling)
            if remaining > 1:
                current = self.at(weights)
        return weights

    def _full_step(
        self, sums: ProjectedMoments, origin: Linearization, current: Linearization, sampling: float
    ) -> np.ndarray:
        residual, target = (
            sums.at(current.weights - origin.weights) - current.moments,
            np.empty_like(current.moments),
        )
        covariance = self.prior.covariance
        for output, curvature in enumerate(current.curvatures):
            jacobian = sums.jacobian(curvature, output)
            rhs = residual[:, output] + jacobian @ current.weights[:, output]
            cross = jacobian @ covariance
            root = factor(cross @ jacobian.T + (sampling * curvature + sums.noise))
            solved = cho_solve((root, True), rhs, check_finite=False)
            target[:, output] = covariance @ (jacobian.T @ solved)
        return target

    def _backtrack(
        self,
        sums: ProjectedMoments,
        origin: Linearization,
        current: Linearization,
        target: np.ndarray,
        sampling: float,
    ) -> np.ndarray:
        """Return the best of a full step, half of it, and so on, or no step."""
        floor = 1e-9 * float(np.trace(current.curvatures[0])) * np.eye(len(target))
        roots = [factor(sampling * h + sums.noise + floor) for h in current.curvatures]

        def misfit(candidate: np.ndarray, moments: np.ndarray) -> float:
            residual = sums.at(candidate - origin.weights) - moments
            total = self.prior.against(candidate)
            for output, root in enumerate(roots):
                h = solve_triangular(root, residual[:, output], lower=True, check_finite=False)
                total += float(h @ h)
            return total

        weights = current.weights
        best, lowest = weights, misfit(weights, current.moments)
        for halving in range(HALVINGS):
            candidate = weights + 0.5**halving * (target - weights)
            value = misfit(candidate, self.moments(self.predictions(candidate)))
            if value < lowest:
                best, lowest = candidate, value
            elif best is not weights:
                break
        return best

    def evidence(
        self, sums: ProjectedMoments, local: Linearization, sampling: float
    ) -> MarginalLikelihood:
        """Return the marginal likelihood of the prior's scales, from sums at ``local``.

        A record's K residuals add up to zero, so that the sums' mean over classes is noise alone. At zero weights, where
        classes are about equally probable, the rest times sqrt(K / (K - 1)) has the variance that the scales and the
        curvatures say, and K - 1 independent values for K.
        """
        residual = sums.values - local.moments
        jacobian = [sums.jacobian(m, output) for output, m in enumerate(local.curvatures)]
        values = np.array(
            [m + g @ w for m, g, w in zip(residual.T, jacobian, local.weights.T, strict=True)]
        )
        coupled = self.outcome.coupled
        if coupled > 1 and not local.weights.any():
            values = math.sqrt(coupled) * (values - values.mean(axis=0))
        return MarginalLikelihood(
            list(values),
            [[g @ m @ g.T for m in self.prior.groups] for g in jacobian],
            [
                sampling * h + sums.noise + g @ self.prior.level @ g.T
                for h, g in zip(local.curvatures, jacobian, strict=True)
            ],
            share=1 / coupled,
        )

    def scaled(self, scales: np.ndarray) -> WeightPosterior:
        """Return the same with other scales of the prior."""
        return replace(self, prior=replace(self.prior, scales=scales))

    def smaller(self, evidence: MarginalLikelihood) -> list[tuple[float, WeightPosterior]]:
        """Return the same under fractions of this prior's scales, with their probabilities."""
        logs = [
            evidence.likelihood(fraction * self.prior.scales) + math.log(fraction)
            for fraction in SETTINGS.prior_fractions
        ]
        p = np.exp(np.array(logs) - max(logs))
        p = np.where(p > SETTINGS.min_prior_probability * p.sum(), p, 0.0)
        return [
            (float(probability / p.sum()), self.scaled(fraction * self.prior.scales))
            for probability, fraction in zip(p, SETTINGS.prior_fractions, strict=True)
            if probability
        ]


def mixed(
    priors: Sequence[tuple[float, WeightPosterior]],
    sums: ProjectedMoments,
    local: Linearization,
    sampling: float,
) -> np.ndarray:
    """Return the mean of :meth:`.WeightPosterior.weights` over priors."""
    terms = [p * post.weights(sums, local, sampling) for p, post in priors]
    return np.asarray(sum(terms))


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
    means = np.array([post.weights(sums, local, sampling)[:, output] for _, post in priors])
    p = np.array([probability for probability, _ in priors])
    centred = means - p @ means
    result = (centred * p[:, None]).T @ centred
    for probability, post in priors:
        prior = post.prior.covariance
        cross = jacobian @ prior
        root = factor(cross @ jacobian.T + sampling * curvature + sums.noise)
        half = solve_triangular(root, cross, lower=True, check_finite=False)
        result += probability * (prior - half.T @ half)
    return np.asarray(result)


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
        residual = functions - directions @ self.fitted
        noise = np.einsum("ij,ij->i", directions @ self.noise, directions)
        return np.asarray(residual**2 @ self.variances + noise)

    def covariances(
        self, functions: np.ndarray, directions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return second moments of functionals' errors, in total and by noise and sampling, each square."""
        residual = functions - directions @ self.fitted
        noise = directions @ self.noise @ directions.T
        return np.asarray((residual * self.variances) @ residual.T + noise), np.asarray(noise)

    def drawn(self, draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return draws (first, second) such that errors are ``functions @ first + directions @ second``.

        Returns:
            float32, of shapes (functions, draws) and (directions, draws).
        """
        values, vectors = np.linalg.eigh(self.noise)
        size = len(self.variances), len(values)
        truth, noise = (rng.normal(size=(n, draws)) for n in size)
        truth *= np.sqrt(self.variances)[:, None]
        along = (vectors * np.sqrt(np.maximum(values, 0))) @ noise - self.fitted @ truth
        return truth.astype(np.float32), along.astype(np.float32)

    def calibrated(self, factor: float) -> EstimationError:
        """Return the errors if scores are multiplied by a factor, and the truth is not."""
        return replace(
            self,
            noise=factor**2 * self.noise,
            fitted=self.fitted * np.float32(factor),
            gain=factor * self.gain,
        )

    def of_refit(
        self,
        directions: np.ndarray,
        functions: np.ndarray,
        further: np.ndarray,
        irls_weights: np.ndarray,
        *,
        calibrated: bool,
    ) -> EstimationError:
        """Return errors against the scores that would be learned from the same records without noise.

        These are chi . a L t, over a third draw chi of the basis, with chi's sums t = B psi . u + f, their sampling f,
        and L = (M + s / D)^-1, M = chi' W chi. The scores' differences to them are chi . a L (B psi . u + f) - phi . (b
        K A psi . u + b K (e + v)), where e and f have the covariance s phi' W chi. The factor a is that of calibrating
        chi . L t by the same records: least squares of the working response on it, t' L t / t' L M L t, with both at
        their means, E t t' = M D M + s M. It is above one, as the records are also those of the fit.

        Args:
            directions: phi of synthetic records, shape (records, directions).
            functions: psi of them, shape (records, functions).
            further: chi of them, in psi's order and scales, the same shape.
            irls_weights: W, that sum to those of all records, shape (records,).
            calibrated: whether that model is; else a = 1.

        Returns:
            errors whose ``functions`` are 0, and whose ``directions`` are those of phi and, negative, chi.
        """
        root, weighted = np.sqrt(self.variances), further.T * irls_weights.astype(np.float32)
        moments = (weighted @ further).astype(float)
        sampling = self.sampling / SETTINGS.noise_factor
        system = root[:, None] * moments * root + sampling * np.eye(len(root))
        gain = root[:, None] * np.linalg.inv(system) * root
        if calibrated:
            sums = (moments * self.variances) @ moments + sampling * moments
            gain *= (gain * sums).sum() / max(float((gain @ moments @ gain * sums).sum()), 1e-300)
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
    first, curvature = priors[0][1], local.curvatures[output]
    jacobian, rest = sums.jacobian(curvature, output), sampling * curvature + sums.noise
    gain = np.zeros_like(rest)
    for p, post in priors:
        cross = jacobian @ post.prior.covariance
        gain += p * cho_solve((factor(cross @ jacobian.T + rest), True), cross).T
    weights = first.outcome.variances(local.predictions)[:, output] * first.shares * first.records
    phi = (first.leading.features * (weights / len(functions))[:, None]).T.astype(functions.dtype)
    fitted = gain.astype(functions.dtype) @ (phi @ functions)
    noise = SETTINGS.noise_factor * gain @ rest @ gain.T
    return EstimationError(noise, fitted, variances, gain, SETTINGS.noise_factor * sampling)
