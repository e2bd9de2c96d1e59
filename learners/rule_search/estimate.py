"""Estimates from noisy answers: counts with confidence intervals, and percentiles of values.

Hashed encoding (Bassily and Smith 2015; Wang et al. 2017, Section 4.3): individual i has a public
random mask m_i, template t a code, and the answer is the parity of m_i & code. Parities of
different codes are independent over the masks, so that the sum of agreements is an unbiased count,
and all counts together are one Walsh-Hadamard transform. With epsilon per individual the variance
of a count over N answers is N coth(eps / 2)^2, and N / (4 sinh(eps / 4)^2) for unary encoding (two
bits may change, each gets eps / 2), which is smaller at every epsilon; hashing reduces the answer's
size.

Exact limits: if c of N individuals hold a match and each answer is flipped with probability q, then
Y ~ Bin(c, 1 - q) + Bin(N - c, q) yes-answers come back. Y grows stochastically with c, so that two
one-sided tests at half the error each are inverted (Clopper and Pearson 1934): the coverage is at
least the level for every c.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from privfed.errors import InputError, PrivfedError
from privfed.exchange.disclosure import Answer
from privfed.exchange.messages import ReleasedPart
from privfed.learners.rule_search.queries import HashedRule

STEPS = 200  #: EM iterations, few enough to smooth: see :func:`percentile`


class AnswerError(PrivfedError):
    """An answer without one column for each individual queried."""


@dataclass(frozen=True, eq=False)
class SupportEstimate:
    """Estimated numbers of individuals with a match."""

    estimate: np.ndarray  #: unbiased, shape (templates,); may be negative
    std: float  #: standard deviation of the noise, equal for all
    people: int  #: how many answered
    flip: float | None = None  #: flip probability of an answer; None after several queries

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return normal confidence limits, clipped to the possible range; fast, and approximate."""
        half_width = float(stats.norm.ppf((1 + level) / 2)) * self.std
        low = np.clip(self.estimate - half_width, 0, self.people)
        return low, np.clip(self.estimate + half_width, 0, self.people)

    def exact_interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return exact limits for any size (:func:`exact_limits`; InputError: after several queries)."""
        if self.flip is None:
            raise InputError("exact limits are of one question's answers; use interval() instead")
        yes = np.rint(self.estimate * (1 - 2 * self.flip) + self.people * self.flip).astype(int)
        limits = [exact_limits(int(count), self.people, self.flip, level) for count in yes]
        low, high = np.array(limits, dtype=float).reshape(-1, 2).T
        return low, high

    def at(self, index: int) -> SupportEstimate:
        """Return the estimate of one template."""
        return SupportEstimate(self.estimate[index : index + 1], self.std, self.people, self.flip)

    def combined(self, other: SupportEstimate) -> SupportEstimate:
        """Combine two estimates of the same counts, weighted by precision."""
        if not (self.std > 0 and other.std > 0):
            return self if self.std <= other.std else other
        weights = np.array([self.std**-2, other.std**-2])
        mean = (weights[0] * self.estimate + weights[1] * other.estimate) / weights.sum()
        return SupportEstimate(mean, float(weights.sum() ** -0.5), self.people)


def counts(answer: Answer, n_asked: int | None = None) -> SupportEstimate:
    """Estimate from the releases of one query, of cohorts and single individuals alike.

    c_hat = (r - N q) / (1 - 2 q) for r yes-answers of N (DP-RuL equation 4), with variance N q (1 -
    q) / (1 - 2 q)^2 for any truth. AnswerError unless all of ``n_asked`` answered once, with the same
    noise and without gaps.
    """
    parts = [release.parts["bits"] for release in answer.releases.values() if "bits" in release]
    if not parts or any(part.mask is not None for part in parts):
        raise AnswerError("no complete answer: the question was not answered by those it asked")
    people = sum(part.units.shape[1] for part in parts)
    if n_asked is not None and people != n_asked:
        raise AnswerError(
            f"{people} individuals answered a question to {n_asked}: somebody answered twice or not "
            "at all; count each individual once"
        )
    flips = {flip_of(part) for part in parts}
    if len(flips) != 1:
        raise AnswerError("the answers carry different noise; estimate them separately")
    flip = flips.pop()
    yes = sum(np.count_nonzero(part.units, axis=1) for part in parts)
    scale = 1 - 2 * flip
    std = float(np.sqrt(people * flip * (1 - flip)) / scale)
    return SupportEstimate(np.asarray((yes - people * flip) / scale), std, people, flip)


def flip_of(part: ReleasedPart) -> float:
    """Return the flip probability of a released part's bits."""
    return 0.0 if part.noise is None else part.noise.parameter


def hashed_counts(answer: Answer) -> SupportEstimate:
    """Estimate how many drew each template, from a cohort's reply to a :class:`HashedRule`.

    c_hat(t) = sum over i of (-1)^(parity(m_i & code t) + bit i) / (1 - 2 q), unbiased over masks
    and noise, with variance N / (1 - 2 q)^2 minus the holders, which the deviation ignores.
    AnswerError unless one whole cohort answers once.
    """
    query = answer.query
    parts = [release.parts["bits"] for release in answer.releases.values()]
    if not isinstance(query, HashedRule) or len(parts) != 1 or parts[0].mask is not None:
        raise AnswerError("hashed answers come from one whole cohort, complete")
    people = query.who.size
    if parts[0].units.shape != (1, people):
        raise AnswerError(
            f"{parts[0].units.size} bits answer a question to {people}: somebody answered twice or "
            "not at all; count each individual once"
        )
    scale = 1 - 2 * flip_of(parts[0])
    sums = np.bincount(
        query.masks(), weights=1.0 - 2.0 * parts[0].units[0], minlength=2**query.width
    )
    estimate = _walsh_hadamard(sums)[1 : len(query.templates) + 1] / scale
    return SupportEstimate(estimate, float(np.sqrt(people) / scale), people)


def _walsh_hadamard(sums: np.ndarray) -> np.ndarray:
    """Return the Walsh-Hadamard transform: at t, the sum over m of (-1)^parity(m & t) sums[m]."""
    width, values = len(sums).bit_length() - 1, sums.copy()
    for bit in range(width):
        pairs = values.reshape(-1, 2, 2**bit)
        values = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
    return values


def percentile(
    noisy: np.ndarray, scale: float, fraction: float, percent: float, cells: int | None = None
) -> float:
    """Return a percentile of the holders' values, from 0 to 1, without the bias of noise and non-holders.

    The noisy values, shape (people,), are a mixture of non-holders, all at 1/2, and of the holders'
    unknown distribution on [0, 1]; each plus Laplace noise of a scale in the same units. EM
    estimates the distribution over cells (40, or 400 for little noise), with the holders' ``fraction``
    above 0 fixed. It stops early on purpose: the maximum likelihood is spiky, and with much noise
    the uniform distribution's percentile remains.
    """
    cells = cells or (40 if scale > 0.02 else 400)
    centres = (np.arange(cells) + 0.5) / cells
    edges, weights = _histogram(noisy, scale)
    likelihood = np.diff(
        _laplace_cdf((edges[:, None] - np.append(centres, 0.5)[None]) / scale), axis=0
    )
    holders, others = fraction * likelihood[:, :-1], (1 - fraction) * likelihood[:, -1]
    mass = np.full(cells, 1 / cells)
    for _ in range(STEPS):
        expected = np.maximum(holders @ mass + others, 1e-300)
        mass = mass * (holders.T @ (weights / expected))
        mass = mass / mass.sum() if mass.sum() > 0 else np.full(cells, 1 / cells)
    cumulative = np.concatenate([[0.0], np.cumsum(mass)])
    return float(np.interp(percent / 100, cumulative, np.arange(cells + 1) / cells))


def mean_error(scale: float, fraction: float, people: int, level: float = 0.95) -> float:
    """Return the half-width of normal limits of the mean of the holders' values, in units of their range.

    Of N values, a ``fraction`` f is of holders, the others are 1/2, and each has Laplace noise of variance 2 b^2: the
    holders' mean is (mean - (1 - f) / 2) / f, whose noise has the variance 2 b^2 / (N f^2). It says how much the noise
    leaves open; a percentile of the holders' (:func:`percentile`) has no limits, and its error may be larger.
    """
    z = float(stats.norm.ppf((1 + level) / 2))
    return z * math.sqrt(2 / people) * scale / fraction


def _histogram(noisy: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Return edges and histogram of noisy values over the range and some noise beyond it."""
    margin = 6 * scale
    inner = np.linspace(-margin, 1 + margin, 400)
    weights, _ = np.histogram(noisy, np.concatenate([[-np.inf], inner, [np.inf]]))
    return np.concatenate([[-1e300], inner, [1e300]]), weights.astype(float)


def _laplace_cdf(z: np.ndarray) -> np.ndarray:
    return np.asarray(np.where(z < 0, 0.5 * np.exp(np.minimum(z, 0)), 1 - 0.5 * np.exp(-np.abs(z))))


# --- exact limits of counts

_STDS = 12  #: Standard deviations of the first binomial beyond which its terms are omitted


def at_most(yes: int, holders: int, people: int, flip: float) -> float:
    """Return the exact P(Y <= yes) if ``holders`` of the people hold a match."""
    truth = 1 - flip
    half_width = _STDS * math.sqrt(holders * truth * flip) + _STDS
    first = max(0, math.floor(holders * truth - half_width))
    last = min(holders, math.ceil(holders * truth + half_width))
    yes_of_holders = np.arange(first, last + 1)
    others = _binomial_cdf(yes - yes_of_holders, people - holders, flip)
    return float(np.clip(_binomial_pmf(yes_of_holders, holders, truth) @ others, 0.0, 1.0))


def exact_limits(yes: int, people: int, flip: float, level: float = 0.95) -> tuple[int, int]:
    """Return confidence limits of the number of holders among ``people`` (InputError: impossible counts)."""
    if not (0 <= yes <= people and people > 0 and 0 <= flip < 0.5 and 0 < level < 1):
        raise InputError("an interval needs 0 <= yes <= people, flip in [0, 1/2), level in (0, 1)")
    side = (1 - level) / 2

    def likely_above(holders: int) -> bool:
        return 1 - at_most(yes - 1, holders, people, flip) > side

    def unlikely_below(holders: int) -> bool:
        return at_most(yes, holders, people, flip) <= side

    return _first(likely_above, people), max(0, _first(unlikely_below, people + 1) - 1)


def _first(holds: Callable[[int], bool], end: int) -> int:
    """Return the smallest number below ``end`` from which a monotone condition holds, or ``end``."""
    low, high = 0, end
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _binomial_cdf(counts: np.ndarray, trials: int, p: float) -> np.ndarray:
    """Return P(Bin(trials, p) <= counts)."""
    cdf = special.bdtr(np.clip(counts, 0, trials), trials, p)
    return np.where(counts < 0, 0.0, np.where(counts >= trials, 1.0, cdf))


def _binomial_pmf(successes: np.ndarray, trials: int, p: float) -> np.ndarray:
    log_choose = special.gammaln(trials + 1) - special.gammaln(successes + 1)
    log_choose -= special.gammaln(trials - successes + 1)
    powers = special.xlogy(successes, p) + special.xlog1py(trials - successes, -p)
    return np.asarray(np.exp(log_choose + powers))
