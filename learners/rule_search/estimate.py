"""From noisy bits to counts with confidence intervals, and from noisy values to percentiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from privfed.errors import InputError, PrivfedError
from privfed.exchange.disclosure import Answer
from privfed.exchange.messages import ReleasedPart
from privfed.learners.rule_search.intervals import exact_limits

#: Steps of expectation-maximisation; few enough to smooth: see :func:`percentile`.
STEPS = 200


class AnswerError(PrivfedError):
    """An answer that does not hold one column for each individual that was asked."""


@dataclass(frozen=True, eq=False)
class Counts:
    """Estimated numbers of individuals with a match.

    Args:
        estimate: unbiased, shape (templates,); may be negative.
        deviation: standard deviation of the noise, the same for all.
        people: how many answered.
        flip: probability that an answer is the opposite of the truth; none where the estimate is
            of more than one question.
    """

    estimate: np.ndarray
    deviation: float
    people: int
    flip: float | None = None

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Confidence limits, by the normal law, within what is possible: fast, and approximate."""
        reach = float(stats.norm.ppf((1 + level) / 2)) * self.deviation
        low = np.clip(self.estimate - reach, 0, self.people)
        return low, np.clip(self.estimate + reach, 0, self.people)

    def exact_interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Confidence limits that hold at every size: see :func:`exact_limits`.

        Raises:
            InputError: the estimate is of more than one question.
        """
        if self.flip is None:
            raise InputError("exact limits are of one question's answers; use interval() instead")
        yes = np.rint(self.estimate * (1 - 2 * self.flip) + self.people * self.flip).astype(int)
        limits = [exact_limits(int(each), self.people, self.flip, level) for each in yes]
        low, high = np.array(limits, dtype=float).reshape(-1, 2).T
        return low, high

    def combined(self, other: Counts) -> Counts:
        """The two estimates of the same counts, weighted by their precisions."""
        if not (self.deviation > 0 and other.deviation > 0):
            return self if self.deviation <= other.deviation else other
        weights = np.array([self.deviation**-2, other.deviation**-2])
        mean = (weights[0] * self.estimate + weights[1] * other.estimate) / weights.sum()
        return Counts(mean, float(weights.sum() ** -0.5), self.people)


def counts(answer: Answer, asked: int | None = None) -> Counts:
    """Estimate from the releases of one question.

    c_hat = (r - N q) / (1 - 2 q) for r yes-answers of N (DP-RuL equation 4). Its variance is
    N q (1 - q) / (1 - 2 q)^2 whatever the truth, for a bit's variance does not depend on it.

    Args:
        answer: all clients' replies; cohorts and single individuals alike.
        asked: how many individuals were asked, or none to take those that answered.

    Raises:
        AnswerError: an answer has another number of columns, or answers with gaps.
    """
    parts = [release.parts["bits"] for release in answer.releases.values() if "bits" in release]
    if not parts or any(part.mask is not None for part in parts):
        raise AnswerError("no complete answer: the question was not answered by those it asked")
    people = sum(part.units.shape[1] for part in parts)
    if asked is not None and people != asked:
        raise AnswerError(
            f"{people} individuals answered a question to {asked}: somebody answered twice or not "
            "at all; count each individual once"
        )
    flips = {flip_of(part) for part in parts}
    if len(flips) != 1:
        raise AnswerError("the answers carry different noise; estimate them apart")
    flip = flips.pop()
    yes = sum(np.count_nonzero(part.units, axis=1) for part in parts)
    scale = 1 - 2 * flip
    deviation = float(np.sqrt(people * flip * (1 - flip)) / scale)
    return Counts(np.asarray((yes - people * flip) / scale), deviation, people, flip)


def flip_of(part: ReleasedPart) -> float:
    """The probability that a bit of a released part is the opposite of the truth."""
    return 0.0 if part.noise is None else part.noise.parameter


def percentile(
    noisy: np.ndarray, scale: float, share: float, percent: float, cells: int | None = None
) -> float:
    """A percentile of the holders' values, without the bias that noise and non-holders bring.

    The noisy values are a mixture: of those who hold no match, all at 1/2, and of the holders'
    unknown law on [0, 1]; each plus Laplace noise. The law over cells is found by
    expectation-maximisation with the non-holders' weight fixed (deconvolution); the percentile is
    read off it. It starts from the uniform law and is stopped after 200 steps on purpose: where the
    noise says little, the answer stays near the uniform law's own percentile, and the greatest
    likelihood, which is spiky, is never reached.

    Args:
        noisy: released values in units of the public range, shape (people,).
        scale: scale of the Laplace noise in the same units.
        share: estimated share of holders, above 0.
        percent: which percentile, 0 to 100.
        cells: how finely the law is resolved; 40, or 400 where there is hardly any noise.

    Returns:
        the percentile in units of the public range, from 0 to 1.
    """
    cells = cells or (40 if scale > 0.02 else 400)
    centres = (np.arange(cells) + 0.5) / cells
    edges, weights = _binned(noisy, scale)
    likelihood = np.diff(
        _laplace_cdf((edges[:, None] - np.append(centres, 0.5)[None]) / scale), axis=0
    )
    holders, others = share * likelihood[:, :-1], (1 - share) * likelihood[:, -1]
    law = np.full(cells, 1 / cells)
    for _ in range(STEPS):
        expected = np.maximum(holders @ law + others, 1e-300)
        law = law * (holders.T @ (weights / expected))
        law = law / law.sum() if law.sum() > 0 else np.full(cells, 1 / cells)
    cumulative = np.concatenate([[0.0], np.cumsum(law)])
    return float(np.interp(percent / 100, cumulative, np.arange(cells + 1) / cells))


def _binned(noisy: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Histogram of noisy values over the range and some noise beyond it."""
    reach = 6 * scale
    inner = np.linspace(-reach, 1 + reach, 400)
    weights, _ = np.histogram(noisy, np.concatenate([[-np.inf], inner, [np.inf]]))
    return np.concatenate([[-1e300], inner, [1e300]]), weights.astype(float)


def _laplace_cdf(z: np.ndarray) -> np.ndarray:
    return np.asarray(np.where(z < 0, 0.5 * np.exp(np.minimum(z, 0)), 1 - 0.5 * np.exp(-np.abs(z))))


def naive_percentile(noisy: Sequence[float] | np.ndarray, percent: float) -> float:
    """The percentile of the noisy values themselves, as DP-RuL Section 3.4 takes it: biased."""
    return float(np.percentile(np.asarray(noisy, dtype=float), percent))
