"""Linear models from noisy second moments and residuals, by empirical Bayes; post-processing of releases.

What is released of N records in coordinates z (the first is constant) is M = sum z z' + E and, at a
model b, m = sum (y - b'z) z + e, noise E and e of known variance. Were M exact, t = m + M (b - b0)
would tell M (b* - b0) of the least squares' solution b* whatever b is, up to e: so rounds of residuals
are averaged, each by its noise. The released M - E adds E (b* - b), the less the nearer b is to b*.
Departures d = b* - b0 from a constant have a normal prior, d ~ N(0, C), and the posterior mean of d is

    C M (M C M + s^2 M + V)^-1 t,

s^2 being the residuals' variance (sampling) and V the noise's, averaged over prior widths by their
marginal likelihood: where nothing shows, nothing is learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import softmax

from privfed.exchange.disclosure import Answer
from privfed.learners.fuzzy_tree.settings import SETTINGS

_MIN_VARIANCE = 1e-6  #: Least variance of a target
_EXACT = 1e-9  #: Variance of what is told exactly, so that it has a precision
_NARROWEST = 1e-6  #: Least variance of a feature, in the coordinates' units


@dataclass(frozen=True)
class Count:
    """A number of records, and the std of what is unknown about it."""

    records: float
    deviation: float

    def joined(self, other: Count) -> Count:
        """Both by their precision; at least what noise could make."""
        share = self.deviation**2 / (self.deviation**2 + other.deviation**2 + 1e-300)
        records = self.records + share * (other.records - self.records)
        deviation = math.sqrt(1 - share) * self.deviation
        least = max(SETTINGS.min_records_std * deviation, SETTINGS.min_records)
        return Count(max(records, least), deviation)

    def roughly(self) -> Count:
        """The same, where records do not all count alike."""
        return Count(self.records, math.hypot(self.deviation, SETTINGS.weight_error * self.records))


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """Mean second moments of a record's coordinates, with their noise."""

    moments: np.ndarray  #: E z z', shape (width, width)
    variances: np.ndarray  #: of the noise in each, the same shape
    count: Count  #: of the records

    @classmethod
    def from_sums(cls, told: np.ndarray, noise: float, count: Count, lead: float) -> SecondMoments:
        """From released sums z z', shape (width, width), in which every cell has noise of its own.

        Args:
            told: the sums.
            noise: its std, by cell.
            count: of the records, as far as known before.
            lead: the constant coordinate; its square counts the records, too.
        """
        count = count.roughly().joined(Count(told[0, 0] / lead**2, noise / lead**2))
        variances = np.full(told.shape, noise**2 / 2)
        variances[np.diag_indices_from(variances)] *= 2
        return cls((told + told.T) / 2 / count.records, variances / count.records**2, count)

    def moved(self, matrix: np.ndarray) -> SecondMoments:
        """In other coordinates, ``matrix`` times these."""
        moments = matrix @ self.moments @ matrix.T
        return SecondMoments(moments, matrix**2 @ self.variances @ (matrix**2).T, self.count)

    def joined(self, other: SecondMoments) -> SecondMoments:
        """Both by their precision, cell by cell; the count is the other's."""
        if not self.variances.all():
            return self
        share = self.variances / (self.variances + other.variances)
        moments = self.moments + share * (other.moments - self.moments)
        return SecondMoments(moments, share * other.variances, other.count)

    def means(self, lead: float) -> np.ndarray:
        """Of the features, shrunk towards the middle by their noise (James and Stein 1961)."""
        told, noise = self.moments[0, 1:] / lead, self.variances[0, 1:].sum() / lead**2
        square = max(float(told @ told), 1e-12)
        return np.asarray(told * max(0.0, 1 - SETTINGS.mean_caution * noise / square))


@dataclass(frozen=True, eq=False)
class DesignEstimate:
    """Means and a positive definite covariance, by noisy second moments."""

    lead: float  #: the constant coordinate
    means: np.ndarray  #: of the features, shape (F,)
    covariance: np.ndarray  #: positive definite, shape (F, F)
    count: float  #: of the records
    noise: float  #: variance of the noise in a cell off the diagonal, on average

    @classmethod
    def from_moments(cls, design: SecondMoments, lead: float) -> DesignEstimate:
        """Shrink eigenvalues by what noise explains.

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
        # the trace is known best; noise alone could feign this much of it
        trace = max(float(np.trace(inner)), math.sqrt(2 * variance * width), _NARROWEST * width)
        values, vectors = np.linalg.eigh(inner - trace / width * np.eye(width))
        beyond = np.maximum(values**2 - 4 * variance * width, 0.0)
        levels = trace / width + np.sign(values) * np.sqrt(beyond)
        levels = np.maximum(levels, SETTINGS.min_covariance * trace / width)
        covariance = (vectors * (levels * trace / levels.sum())) @ vectors.T
        return cls(lead, means, covariance, design.count.records, variance)

    def within(self, features: Sequence[int], peaks: np.ndarray, variances: np.ndarray) -> Self:
        """Of normal records weighted by normal curves about `peaks` of some features: what a leaf's sets make of them."""
        held = list(features)
        across = self.covariance[:, held]
        system = across[held] + np.diag(np.maximum(variances, _NARROWEST * np.diag(across[held])))
        gain = np.linalg.solve(system, across.T).T
        means = self.means + gain @ (peaks - self.means[held])
        return replace(self, means=means, covariance=self.covariance - gain @ across.T)

    @property
    def gram(self) -> np.ndarray:
        """sum z z' of all records, shape (width, width)."""
        first = np.append(self.lead, self.means)
        gram = np.outer(first, first)
        gram[1:, 1:] += self.covariance
        return self.count * gram

    @property
    def variances(self) -> np.ndarray:
        """Of each feature, shape (F,)."""
        return np.diag(self.covariance)

    def explained(self, model: np.ndarray) -> float:
        """Variance of a linear model's predictions."""
        return float(model[1:] @ self.covariance @ model[1:])

    def prior(self, slopes: float, level: float) -> np.ndarray:
        """Covariance of models whose predictions vary by `slopes` over records, and by `level` at the means."""
        width = len(self.means)
        each = slopes / max(float(np.trace(self.covariance)), 1e-12)
        basis = np.eye(width + 1)
        basis[0] = np.append(1.0, -self.means) / self.lead
        variances = np.append(level, np.full(width, each))
        return np.asarray((basis * variances) @ basis.T)


@dataclass(frozen=True)
class Target:
    """What is known of the target, in [-1/2, 1/2], before any model."""

    mean: float = 0.0  #: its mean, and the variance of what is unknown about that
    uncertain: float = SETTINGS.mean_std**2
    variance: float = SETTINGS.usual_variance  #: of the target

    @classmethod
    def from_answer(
        cls, answer: Answer, usual: float = SETTINGS.usual_variance
    ) -> tuple[Count, Target]:
        """The records and their targets, from noisy sums of the root and of each feature's sets, joined by precision.

        The mean is shrunk towards the middle, and the variance towards `usual`, by their noise.
        """
        (records, a), (linear, b), (squares, c) = (
            _root_sum(answer, name) for name in ("weights", "linear", "squares")
        )
        count = Count(records, math.sqrt(a)).joined(Count(0.0, math.inf))
        if math.isinf(a) or math.isinf(b) or records <= SETTINGS.proven_std * math.sqrt(a):
            return count, cls(variance=usual)
        noise, mean = b / records**2, linear / records
        share = SETTINGS.mean_std**2 / (SETTINGS.mean_std**2 + noise)
        shrunk = float(np.clip(share * mean, -0.5, 0.5))
        observed = squares / records - mean**2 + noise
        unsure = (c + 4 * mean**2 * b) / records**2
        likely = usual + usual**2 / (usual**2 + unsure) * (observed - usual)
        variance = float(np.clip(likely, max(_MIN_VARIANCE, usual / 4), 0.25))
        return count, cls(shrunk, share * noise, variance)


def _root_sum(answer: Answer, name: str) -> tuple[float, float]:
    """A sum over all records, and the variance of the noise in it; infinite where nothing is told."""
    total, variance = 0.0, math.inf
    if f"node_{name}" in answer:
        total = float(answer.total(f"node_{name}")[0])
        variance = answer.deviation(f"node_{name}") ** 2
    if name in answer:
        cells = answer.total(name)[0]
        other = answer.deviation(name) ** 2 * cells.shape[1] / len(cells)
        share = 1.0 if math.isinf(variance) else variance / max(variance + other, 1e-300)
        total += share * (float(cells.sum()) / len(cells) - total)
        variance = share * other
    return total, variance


@dataclass(frozen=True, eq=False)
class ResidualSums:
    """What one round says of the departures."""

    sums: np.ndarray  #: t, shape (width,)
    noise: np.ndarray  #: covariance of the noise in it, shape (width, width)
    #: E |b* - b|^2 of the slopes where the residuals were taken; none: the prior's own
    departure: float | None = None


def departures(
    shape: DesignEstimate, told: Sequence[ResidualSums], target: Target, sampling: float
) -> tuple[np.ndarray, float]:
    """The posterior mean of the departures by the rounds' sums, and E |error|^2 of the slopes; `sampling` is s^2."""
    gram, eye = shape.gram, np.eye(len(shape.means) + 1)
    mismatch = shape.noise * shape.count**2
    found, likelihoods, errors = [], [], []
    for share in SETTINGS.prior_fractions:
        level = max(SETTINGS.level_variance * target.variance, target.uncertain)
        prior = shape.prior(share * target.variance, level)
        free = float(np.trace(prior[1:, 1:]))
        each = [
            own.noise
            + (_EXACT + mismatch * (free if own.departure is None else own.departure)) * eye
            for own in told
        ]
        sums, noise, unlikely = _joined([own.sums for own in told], each)
        system = gram @ prior @ gram + sampling * gram + noise
        mean, error, likelihood = _posterior(gram @ prior, system, sums)
        found.append(mean)
        errors.append(free - float(np.trace(error[1:, 1:])))
        likelihoods.append(likelihood - unlikely)
    weights = softmax(likelihoods)
    return np.asarray(weights @ np.array(found)), float(weights @ errors)


def leaf_random_effects(
    shape: DesignEstimate,
    sums: np.ndarray,
    weights: np.ndarray,
    noise: float,
    target: Target,
    shapes: Sequence[DesignEstimate],
    error: float = SETTINGS.moment_error,
) -> tuple[np.ndarray, float]:
    """Departures of leaves from the model of all, shape (leaves, width), and the probability that there are any.

    A leaf's second moments M are no release but a guess: the root of M, times a matrix of independent errors, times
    the root of M is missing, which moves the sums of departures d by a covariance of e^2 (d' M d) M. All leaves share one prior.

    Args:
        shape: of the design of all records.
        sums: residuals by leaf, at the model of all, shape (leaves, width).
        weights: records by leaf, shape (leaves,).
        noise: variance of the noise in each sum.
        target: its variance is that of the residuals.
        shapes: of the designs of the leaves, a guess.
        error: its relative standard error e.
    """
    mismatch, eye = shape.noise * weights**2, np.eye(sums.shape[1])
    grams = [own.gram * (w / own.count) for w, own in zip(weights, shapes, strict=True)]
    found, likelihoods = [], []
    for share in (0.0, *SETTINGS.prior_fractions):
        prior = shape.prior(share * target.variance, share * target.variance)
        free = float(np.trace(prior[1:, 1:]))
        guessed = [error**2 * float(np.trace(prior @ gram)) for gram in grams]
        leaves = [
            _posterior(
                gram @ prior,
                gram @ prior @ gram
                + (target.variance + wrong) * gram
                + (noise + free * extra) * eye,
                own,
            )
            for gram, wrong, extra, own in zip(grams, guessed, mismatch, sums, strict=True)
        ]
        found.append(np.array([mean for mean, _, _ in leaves]))
        likelihoods.append(sum(likelihood for _, _, likelihood in leaves))
    likelihoods[0] += math.log(len(SETTINGS.prior_fractions))  # as likely as all others together
    chances = softmax(likelihoods)
    return np.tensordot(chances, np.array(found), 1), float(1 - chances[0])


def _joined(
    sums: Sequence[np.ndarray], noises: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, float]:
    """Sums by their precision, the noise left, and the negative log-likelihood of their differences."""
    precisions = [np.linalg.inv(noise) for noise in noises]
    noise = np.linalg.inv(sum(precisions))
    joined = noise @ sum(own @ each for own, each in zip(precisions, sums, strict=True))
    away = [each - joined for each in sums]
    misfit = sum(float(own @ p @ own) for own, p in zip(away, precisions, strict=True))
    spread = sum(float(np.linalg.slogdet(own)[1]) for own in noises)
    return joined, noise, (misfit + spread - float(np.linalg.slogdet(noise)[1])) / 2


def _posterior(
    across: np.ndarray, system: np.ndarray, sums: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Posterior mean, the prior covariance's explained part, and the log-likelihood of the sums t.

    `across` is the covariance of sums and departures, M C; `system` that of the sums.
    """
    lifted = system + 1e-12 * float(np.trace(system)) / len(system) * np.eye(len(system))
    factor = cholesky(lifted, lower=True, check_finite=False)
    rest = solve_triangular(factor, sums, lower=True, check_finite=False)
    spread = solve_triangular(factor, across, lower=True, check_finite=False)
    likelihood = -float(rest @ rest) / 2 - float(np.log(np.diag(factor)).sum())
    return spread.T @ rest, spread.T @ spread, likelihood
