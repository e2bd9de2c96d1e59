"""Linear models from noisy second moments and residuals, by empirical Bayes; post-processing of releases.

For N records in coordinates z (the first is constant) the releases are M = sum z z' + E and, at a model b, m = sum (y -
b'z) z + e, with noise E and e of known variance. For exact M, t = m + M (b - b0) would estimate M (b* - b0) for the
least-squares solution b* and any b, up to e: so rounds of residuals are averaged, weighted by noise. The noise in M
adds E (b* - b), which is smaller the closer b is to b*. Deviations d = b* - b0 from a constant have a normal prior, d ~
N(0, C), and the posterior mean of d is

    C M (M C M + s^2 M + V)^-1 t,

where s^2 is the residuals' variance (sampling) and V the noise's, averaged over prior widths by their marginal
likelihood: without evidence, nothing is learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import softmax

from privfed.exchange.disclosure import Answer
from privfed.learners.fuzzy_tree.settings import SETTINGS

_MIN_VARIANCE = 1e-6  #: Minimum variance of a target
_EXACT = 1e-9  #: Variance of exact values, so that they have a precision
_NARROWEST = 1e-6  #: Minimum variance of a feature, in the coordinates' units


@dataclass(frozen=True)
class Count:
    """A number of records, and the std of its error."""

    records: float
    std: float
    #: the same without a minimum; None for ``records``
    released: float | None = field(default=None, compare=False)

    @property
    def of_noise(self) -> bool:
        """Whether noise alone could explain it."""
        return 0 < self.std < math.inf and self._released <= self.noise

    @property
    def noise(self) -> float:
        """Number of records that noise could explain."""
        return SETTINGS.min_records_std * self.std

    @property
    def _released(self) -> float:
        return self.records if self.released is None else self.released

    def joined(self, other: Count) -> Count:
        """Combine both by precision, an unknown one (infinite deviation) not at all; at least a number explained by noise."""
        if math.isinf(self.std) and not math.isinf(other.std):
            return other.joined(self)
        gain = self.std**2 / (self.std**2 + other.std**2 + 1e-300)
        records = self.records + gain * (other.records - self.records)
        joined = Count(records, math.sqrt(1 - gain) * self.std)
        released = self._released + gain * (other._released - self._released)
        return replace(
            joined, records=max(records, joined.noise, SETTINGS.min_records), released=released
        )

    def roughly(self) -> Count:
        """Return the same, for records with unequal weights."""
        return replace(self, std=math.hypot(self.std, SETTINGS.weight_error * self.records))


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """Mean second moments of a record's coordinates, with their noise."""

    moments: np.ndarray  #: E z z', shape (width, width)
    variances: np.ndarray  #: of the noise in each, the same shape
    count: Count  #: of the records

    @classmethod
    def from_sums(cls, sums: np.ndarray, noise: float, count: Count, lead: float) -> SecondMoments:
        """Build from released sums z z', shape (width, width), with independent noise in every cell.

        Args:
            sums: the sums.
            noise: its std, by cell.
            count: the number of records, as known before.
            lead: the constant coordinate; its square counts the records, too.
        """
        count = count.roughly().joined(Count(sums[0, 0] / lead**2, noise / lead**2))
        variances = np.full(sums.shape, noise**2 / 2)
        variances[np.diag_indices_from(variances)] *= 2
        return cls((sums + sums.T) / 2 / count.records, variances / count.records**2, count)

    def moved(self, matrix: np.ndarray) -> SecondMoments:
        """Return the moments in other coordinates, ``matrix`` times these."""
        moments = matrix @ self.moments @ matrix.T
        return SecondMoments(moments, matrix**2 @ self.variances @ (matrix**2).T, self.count)

    def joined(self, other: SecondMoments) -> SecondMoments:
        """Combine both by precision, cell by cell; the count is the other's."""
        if not self.variances.all():
            return self
        gain = self.variances / (self.variances + other.variances)
        moments = self.moments + gain * (other.moments - self.moments)
        return SecondMoments(moments, gain * other.variances, other.count)

    def means(self, lead: float) -> np.ndarray:
        """Return the features' means, shrunk towards the middle by their noise (James and Stein 1961)."""
        observed, noise = self.moments[0, 1:] / lead, self.variances[0, 1:].sum() / lead**2
        square = max(float(observed @ observed), 1e-12)
        return np.asarray(observed * max(0.0, 1 - SETTINGS.mean_caution * noise / square))


@dataclass(frozen=True, eq=False)
class DesignEstimate:
    """Means and a positive definite covariance, from noisy second moments."""

    lead: float  #: the constant coordinate
    means: np.ndarray  #: of the features, shape (F,)
    covariance: np.ndarray  #: positive definite, shape (F, F)
    count: float  #: of the records
    noise: float  #: variance of the noise in a cell off the diagonal, on average

    @classmethod
    def from_moments(cls, design: SecondMoments, lead: float) -> DesignEstimate:
        """Estimate by shrinking eigenvalues for noise.

        A symmetric matrix of noise of variance v has eigenvalues up to r = 2 sqrt(v F); one that
        stands out at l was sqrt(l^2 - r^2) along its direction, by least squares (Gavish and Donoho
        2017, Section 3, for the symmetric case).
        """
        means = design.means(lead)
        width = len(means)
        if not width:
            return cls(lead, means, np.zeros((0, 0)), design.count.records, 0.0)
        inner = design.moments[1:, 1:] - np.outer(means, means)
        variance = float(design.variances[1:, 1:].mean())
        # the trace is most precise; up to this much of it may be noise
        trace = max(float(np.trace(inner)), math.sqrt(2 * variance * width), _NARROWEST * width)
        values, vectors = np.linalg.eigh(inner - trace / width * np.eye(width))
        beyond = np.maximum(values**2 - 4 * variance * width, 0.0)
        levels = trace / width + np.sign(values) * np.sqrt(beyond)
        levels = np.maximum(levels, SETTINGS.min_covariance * trace / width)
        covariance = (vectors * (levels * trace / levels.sum())) @ vectors.T
        return cls(lead, means, covariance, design.count.records, variance)

    def within(self, features: Sequence[int], peaks: np.ndarray, variances: np.ndarray) -> Self:
        """Return the design of normal records weighted by normal curves about `peaks`, as by a leaf's sets."""
        index = list(features)
        across = self.covariance[:, index]
        system = across[index] + np.diag(np.maximum(variances, _NARROWEST * np.diag(across[index])))
        gain = np.linalg.solve(system, across.T).T
        means = self.means + gain @ (peaks - self.means[index])
        return replace(self, means=means, covariance=self.covariance - gain @ across.T)

    @property
    def gram(self) -> np.ndarray:
        """Return sum z z' of all records, shape (width, width)."""
        first = np.append(self.lead, self.means)
        gram = np.outer(first, first)
        gram[1:, 1:] += self.covariance
        return self.count * gram

    @property
    def variances(self) -> np.ndarray:
        """Variance of each feature, shape (F,)."""
        return np.diag(self.covariance)

    def explained(self, model: np.ndarray) -> float:
        """Return the variance of a linear model's predictions."""
        return float(model[1:] @ self.covariance @ model[1:])

    def prior(self, slopes: float, level: float) -> np.ndarray:
        """Return the covariance of models with prediction variance `slopes` over records and `level` at the means."""
        width = len(self.means)
        slope_var = slopes / max(float(np.trace(self.covariance)), 1e-12)
        basis = np.eye(width + 1)
        basis[0] = np.append(1.0, -self.means) / self.lead
        variances = np.append(level, np.full(width, slope_var))
        return np.asarray((basis * variances) @ basis.T)


@dataclass(frozen=True)
class Target:
    """Estimates of the target, in [-1/2, 1/2], before any model."""

    mean: float = 0.0  #: its mean, and the variance of the mean's error
    uncertain: float = SETTINGS.mean_std**2
    variance: float = SETTINGS.usual_variance  #: of the target

    @classmethod
    def from_answer(
        cls, answer: Answer, usual: float = SETTINGS.usual_variance
    ) -> tuple[Count, Target]:
        """Return records and target, from noisy sums of the root and of each feature's sets, combined by precision.

        The mean is shrunk towards the middle, and the variance towards `usual`, by their noise.
        """
        (records, a), (linear, b), (squares, c) = (
            _root_sum(answer, name) for name in ("weights", "linear", "squares")
        )
        count = Count(records, math.sqrt(a)).joined(Count(0.0, math.inf))
        if math.isinf(a) or math.isinf(b) or records <= SETTINGS.proven_std * math.sqrt(a):
            return count, cls(variance=usual)
        noise, mean = b / records**2, linear / records
        gain = SETTINGS.mean_std**2 / (SETTINGS.mean_std**2 + noise)
        shrunk = float(np.clip(gain * mean, -0.5, 0.5))
        observed = squares / records - mean**2 + noise
        error = (c + 4 * mean**2 * b) / records**2
        estimate = usual + usual**2 / (usual**2 + error) * (observed - usual)
        variance = float(np.clip(estimate, max(_MIN_VARIANCE, usual / 4), 0.25))
        return count, cls(shrunk, gain * noise, variance)


def _root_sum(answer: Answer, name: str) -> tuple[float, float]:
    """Return a sum over all records, and its noise variance; infinite if not released."""
    total, variance = 0.0, math.inf
    if f"node_{name}" in answer:
        total = float(answer.total(f"node_{name}")[0])
        variance = answer.deviation(f"node_{name}") ** 2
    if name in answer and len(cells := answer.total(name)[0]):
        other = answer.deviation(name) ** 2 * cells.shape[1] / len(cells)
        gain = 1.0 if math.isinf(variance) else variance / max(variance + other, 1e-300)
        total += gain * (float(cells.sum()) / len(cells) - total)
        variance = gain * other
    return total, variance


@dataclass(frozen=True, eq=False)
class ResidualSums:
    """One round's sums about the deviations."""

    sums: np.ndarray  #: t, shape (width,)
    noise: np.ndarray  #: covariance of the noise in it, shape (width, width)
    #: E |b* - b|^2 of the slopes at the round's model; None: the prior's own
    departure: float | None = None


def departures(
    shape: DesignEstimate, rounds: Sequence[ResidualSums], target: Target, sampling: float
) -> tuple[np.ndarray, float]:
    """Return the posterior mean of the deviations, and E |error|^2 of the slopes; `sampling` is s^2."""
    gram, eye = shape.gram, np.eye(len(shape.means) + 1)
    mismatch = shape.noise * shape.count**2
    means, likelihoods, errors = [], [], []
    for fraction in SETTINGS.prior_fractions:
        level = max(SETTINGS.level_variance * target.variance, target.uncertain)
        prior = shape.prior(fraction * target.variance, level)
        free = float(np.trace(prior[1:, 1:]))
        noises = [
            r.noise + (_EXACT + mismatch * (free if r.departure is None else r.departure)) * eye
            for r in rounds
        ]
        sums, noise, misfit = _average([r.sums for r in rounds], noises)
        system = gram @ prior @ gram + sampling * gram + noise
        mean, error, likelihood = _posterior(gram @ prior, system, sums)
        means.append(mean)
        errors.append(free - float(np.trace(error[1:, 1:])))
        likelihoods.append(likelihood - misfit)
    weights = softmax(likelihoods)
    return np.asarray(weights @ np.array(means)), float(weights @ errors)


@dataclass(frozen=True, eq=False)
class LeafEstimate:
    """What is estimated of the records of one leaf."""

    design: DesignEstimate  #: of the records that activate it
    weight: float  #: their number
    #: by split feature: its position among the linear terms, the middle of the leaf's set in its coordinate, and
    #: the variance within the set, zero for a category's; None for a feature without linear term
    sets: Sequence[tuple[int, float, float] | None] = ()
    branch: Sequence[int] = ()  #: the leaf's set of each split feature


def leaf_random_effects(
    shape: DesignEstimate,
    sums: np.ndarray,
    leaves: Sequence[LeafEstimate],
    noise: float,
    target: Target,
    error: float = SETTINGS.moment_error,
) -> tuple[np.ndarray, float]:
    """Return leaf effects relative to the overall model, shape (leaves, width), and their probability.

    With the second moments M of a leaf, its sums are M d + noise for effects d = d_1 + ... + d_D + e: for each of the D
    features on its path, a level and a slope common to all leaves of the same set (main effects), and an effect e of
    the leaf alone (interactions). Each kind has its own prior variance; both are averaged over by their marginal
    likelihood, with the main effects' few unknowns eliminated (Woodbury).

    A leaf's second moments are not released but estimated, with an error of the root of M, times a matrix of
    independent errors, times the root of M, which adds a covariance of e^2 (d' M d) M to the sums of effects d.

    Args:
        shape: of the design of all records.
        sums: residuals by leaf, at the model of all, shape (leaves, width).
        leaves: what is known of them.
        noise: variance of the noise in each sum.
        target: its variance is that of the residuals.
        error: its relative standard error e.
    """
    weights = np.array([leaf.weight for leaf in leaves])
    mismatch, eye = shape.noise * weights**2, np.eye(sums.shape[1])
    grams = np.array([leaf.design.gram * (leaf.weight / leaf.design.count) for leaf in leaves])
    mains, units = _main_effects(leaves, shape)
    effects, likelihoods = [], []
    for fraction in (0.0, *SETTINGS.prior_fractions):
        prior = shape.prior(fraction * target.variance, fraction * target.variance)
        free = float(np.trace(prior[1:, 1:]))
        errors = error**2 * np.einsum("ij,lji->l", prior, grams)
        for main in (0.0, *SETTINGS.prior_fractions) if len(mains) else (0.0,):
            variances = main * target.variance * units
            drift = (
                error**2 * main * target.variance * _explained(mains, units, grams) if main else 0.0
            )
            system = (
                grams @ prior @ grams + (target.variance + errors + drift)[:, None, None] * grams
            )
            system = system + ((noise + free * mismatch)[:, None, None] * eye)
            mean, likelihood = _with_main_effects(grams, prior, system, sums, mains, variances)
            effects.append(mean)
            likelihoods.append(likelihood)
    likelihoods[0] += math.log(len(likelihoods) - 1)  # as probable as all others together
    p = softmax(likelihoods)
    return np.tensordot(p, np.array(effects), 1), float(1 - p[0])


def _main_effects(
    leaves: Sequence[LeafEstimate], shape: DesignEstimate
) -> tuple[np.ndarray, np.ndarray]:
    """Return unit effects, shape (effects, leaves, width), and their variances relative to each other.

    A level is 1 in a set's leaves. A slope is 1 in the feature's coordinate about the set's middle, and has, over the
    records of the set, as much variance as the level.
    """
    width = len(shape.means) + 1
    splits = len(leaves[0].branch) if leaves else 0
    mains, variances = [], []
    for split in range(splits):
        for branch in sorted({leaf.branch[split] for leaf in leaves}):
            inside = [n for n, leaf in enumerate(leaves) if leaf.branch[split] == branch]
            level = np.zeros((len(leaves), width))
            level[inside, 0] = 1 / shape.lead
            mains.append(level)
            variances.append(1.0)
            known = leaves[inside[0]].sets[split]
            if known is None or not known[2] > 0:
                continue
            feature, middle, variance = known
            slope = np.zeros((len(leaves), width))
            slope[inside, feature + 1], slope[inside, 0] = 1.0, -middle / shape.lead
            mains.append(slope)
            variances.append(1 / variance)
    return np.array(mains), np.array(variances)


def _explained(mains: np.ndarray, variances: np.ndarray, grams: np.ndarray) -> np.ndarray:
    """Return the sum of squares that main effects of these variances have by leaf."""
    return np.asarray(np.einsum("k,kli,lij,klj->l", variances, mains, grams, mains))


def _with_main_effects(
    grams: np.ndarray,
    prior: np.ndarray,
    system: np.ndarray,
    sums: np.ndarray,
    mains: np.ndarray,
    variances: np.ndarray,
) -> tuple[np.ndarray, float]:
    """Return the posterior mean of the leaves' effects, shape (leaves, width), and the log-likelihood of the sums.

    ``system`` is the covariance of each leaf's sums without main effects.
    """
    lifted = system + 1e-12 * np.trace(system, axis1=1, axis2=2)[:, None, None] / system.shape[
        1
    ] * np.eye(system.shape[1])
    factors = np.linalg.cholesky(lifted)
    likelihood = -float(np.log(np.diagonal(factors, axis1=1, axis2=2)).sum())
    white = np.linalg.solve(factors, sums[..., None])[..., 0]
    left, common = sums, np.zeros_like(sums)
    if variances.any():
        across = np.einsum("lij,klj->lik", grams, mains)
        half = np.linalg.solve(factors, across).reshape(-1, len(mains)) * np.sqrt(variances)
        inner = np.eye(len(mains)) + half.T @ half
        factor = cholesky(inner, lower=True, check_finite=False)
        projected = solve_triangular(factor, half.T @ white.ravel(), lower=True, check_finite=False)
        likelihood += float(projected @ projected) / 2 - float(np.log(np.diag(factor)).sum())
        weights = np.sqrt(variances) * np.linalg.solve(inner, half.T @ white.ravel())
        common = np.einsum("k,kli->li", weights, mains)
        left = sums - (grams @ common[..., None])[..., 0]
    likelihood -= float(white.ravel() @ white.ravel()) / 2
    own = prior @ grams @ np.linalg.solve(lifted, left[..., None])
    return common + own[..., 0], likelihood


def _average(
    sums: Sequence[np.ndarray], noises: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return sums combined by precision, their noise, and the negative log-likelihood of their differences."""
    precisions = [np.linalg.inv(noise) for noise in noises]
    noise = np.linalg.inv(sum(precisions))
    mean = noise @ sum(a @ t for a, t in zip(precisions, sums, strict=True))
    residuals = [t - mean for t in sums]
    misfit = sum(float(a @ p @ a) for a, p in zip(residuals, precisions, strict=True))
    log_dets = sum(float(np.linalg.slogdet(a)[1]) for a in noises)
    return mean, noise, (misfit + log_dets - float(np.linalg.slogdet(noise)[1])) / 2


def _posterior(
    across: np.ndarray, system: np.ndarray, sums: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return posterior mean, the prior covariance's explained part, and the log-likelihood of the sums t.

    `across` is the covariance of sums and departures, M C; `system` that of the sums.
    """
    lifted = system + 1e-12 * float(np.trace(system)) / len(system) * np.eye(len(system))
    factor = cholesky(lifted, lower=True, check_finite=False)
    white = solve_triangular(factor, sums, lower=True, check_finite=False)
    half = solve_triangular(factor, across, lower=True, check_finite=False)
    likelihood = -float(white @ white) / 2 - float(np.log(np.diag(factor)).sum())
    return half.T @ white, half.T @ half, likelihood
