"""ROC curves: empirical ones, and the best attacker's in closed form; exact bounds on a rate.

The best attacker knows every other record, what the record adds and the noise's distribution, and
decides by likelihood ratio (Neyman and Pearson 1933). Ties are broken at random, so that a rate is
attained exactly, on integers too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, betaln, ndtr, ndtri, stdtr

from privfed.errors import InputError
from privfed.privacy.laws import Law

RATES = (0.001, 0.01, 0.1)  #: FPR at which findings state the TPR
FOUND_AT = "found at false positives of"  #: Key of those rates in a finding's detail
#: Bounds of at least this many counts, of at most this many trials, are tabulated.
FEW, TABLED = 32, 10_000
REACH = 40  #: Standard deviations of noise beyond which outputs are ignored, each side


@dataclass(frozen=True)
class RocCurve:
    """Piecewise-linear ROC curve: FPR rising from 0 to 1, and TPR, shape (points,) each."""

    fpr: np.ndarray
    tpr: np.ndarray

    @classmethod
    def of(cls, members: np.ndarray, others: np.ndarray) -> RocCurve:
        """From scores, larger for members, ties at random; InputError for no score on one side, or a NaN."""
        both = [np.asarray(scores, dtype=float) for scores in (members, others)]
        if not all(len(scores) and not np.isnan(scores).any() for scores in both):
            raise InputError("rates need scores of members and of others, none of them NaN")
        levels = np.unique(np.concatenate(both))[::-1]
        weights = [
            np.bincount(np.searchsorted(-levels, -scores), minlength=len(levels)) for scores in both
        ]
        return cls.of_masses(*weights)

    @classmethod
    def of_masses(cls, members: np.ndarray, others: np.ndarray) -> RocCurve:
        """From probabilities, or counts, of the same outcomes, by falling likelihood ratio; shape (outcomes,) each.

        Counts add up without rounding, so that a step at a rate of 1 % lies at 0.01 exactly.
        """
        rates = (
            np.concatenate([[0.0], np.cumsum(mass) / np.sum(mass)]) for mass in (others, members)
        )
        return cls(*rates)

    def at(self, rate: float) -> float:
        """TPR at this FPR."""
        return min(1.0, float(np.interp(rate, self.fpr, self.tpr)))

    @property
    def points(self) -> dict[str, float]:
        """TPR at each of :data:`RATES`, by the FPR in words."""
        return {f"{100 * rate:g} %": self.at(rate) for rate in RATES}

    @property
    def auc(self) -> float:
        """Area under the curve, ties counted half."""
        return min(1.0, float(np.trapezoid(self.tpr, self.fpr)))


def mean_points(curves: Sequence[RocCurve], weights: Sequence[float]) -> dict[str, float]:
    """Means of several curves' :attr:`RocCurve.points`."""
    points = [curve.points for curve in curves]
    return {
        name: float(np.average([values[name] for values in points], weights=weights))
        for name in points[0]
    }


def exposure(members: np.ndarray, others: np.ndarray) -> np.ndarray:
    """False positive rate at which each member is found, counting itself among others.

    Args:
        members: scores, shape (members,).
        others: scores of outsiders.

    Returns:
        in (0, 1], shape (members,): 1 / (others + 1) where a member scores above all of them; NaN
        without others.
    """
    if not len(others):
        return np.full(len(members), np.nan)
    above = len(others) - np.searchsorted(np.sort(others), members, side="left")
    return np.asarray((1 + above) / (1 + len(others)))


def gaussian_tpr(mu: float, rate: float) -> float:
    """TPR at FPR ``rate`` against Gaussian noise: Phi(Phi^-1(rate) + mu).

    mu is the square root of the sum over cells of (what the record adds / noise std)^2.
    """
    return float(ndtr(ndtri(rate) + mu))


def gaussian_auc(mu: float) -> float:
    """Area under the curve against Gaussian noise: Phi(mu / sqrt 2)."""
    return float(ndtr(mu / math.sqrt(2)))


def auc_p_value(
    roc_auc: float, members: int, outsiders: int, std: float = 0.0, freedom: float = math.inf
) -> float:
    """Approximate p-value of an AUC, if scores are independent of membership.

    By the std under the null, sqrt((n + m + 1) / (12 n m)) (Mann and Whitney 1947), which is not 0 for perfect
    separation, and half a pair for continuity; never below 1 / C(n + m, n), the probability of perfect separation.

    Args:
        roc_auc: the observed AUC.
        members, outsiders: independent scores, n and m.
        std: of the AUC, if known to be larger, such as for clients' scores that share draws of noise.
        freedom: degrees of freedom behind ``std``, of Student's t.
    """
    std = max(std, math.sqrt((members + outsiders + 1) / (12 * members * outsiders)))
    all_apart = math.exp(math.log(members + outsiders + 1) + betaln(members + 1, outsiders + 1))
    half_a_pair = 0.5 / (members * outsiders)
    return max(float(stdtr(freedom, (0.5 - roc_auc + half_a_pair) / std)), all_apart)


def discrete(law: Law, shift: int) -> RocCurve:
    """The best test's ROC curve on one integer with noise of a law, which a record shifts by `shift` grid units.

    Raises:
        InputError: the law's noise is not added to numbers.
    """
    if not law.additive:
        raise InputError(f"the rates of noise of the law {law.name!r} are not known")
    reach = math.ceil(REACH * law.std)
    points = np.arange(-reach, reach + abs(shift) + 1)
    moved, still = points - abs(shift), points
    with np.errstate(invalid="ignore"):
        ratio = np.round(law.log_ratio(moved, still), 9)
    levels, index = np.unique(-ratio, return_inverse=True)
    masses = (
        np.bincount(index, np.exp(law.log_mass(outputs)), len(levels)) for outputs in (moved, still)
    )
    return RocCurve.of_masses(*masses)


def clopper_pearson(hits: ArrayLike, trials: ArrayLike, alpha: float) -> tuple[Any, Any]:
    """One-sided exact bounds (low, high) on a probability, each failing with probability at most ``alpha``.

    Of `hits` successes in `trials`, in their broadcast shape. Source: Clopper and Pearson 1934.
    """
    return at_least(hits, trials, alpha), at_most(hits, trials, alpha)


def at_least(hits: ArrayLike, trials: ArrayLike, alpha: float) -> Any:
    """The lower bound of :func:`clopper_pearson` alone."""
    k, n = _counts(hits, trials, alpha)
    return np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, alpha), 0.0)


def at_most(hits: ArrayLike, trials: ArrayLike, alpha: float) -> Any:
    """The upper bound of :func:`clopper_pearson` alone."""
    k, n = _counts(hits, trials, alpha)
    integers = k.astype(int)
    if np.ndim(trials) == 0 and k.size >= FEW and n.flat[0] <= TABLED and (integers == k).all():
        return _upper_bounds(int(n.flat[0]), float(alpha))[integers]
    return np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1), 1 - alpha), 1.0)


@lru_cache(maxsize=64)
def _upper_bounds(trials: int, alpha: float) -> np.ndarray:
    """:func:`at_most` of 0 to all trials: audits call it for the same trials thousands of times."""
    hits = np.arange(trials)
    return np.append(betaincinv(hits + 1, trials - hits, 1 - alpha), 1.0)


def _counts(hits: ArrayLike, trials: ArrayLike, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    check_fraction("alpha", alpha)
    k, n = np.broadcast_arrays(np.asarray(hits, float), np.asarray(trials, float))
    if not ((k >= 0) & (k <= n) & (n > 0)).all():
        raise InputError("counts need 0 <= hits <= trials, and at least one trial")
    return k, n


def interval(hits: float, trials: int) -> tuple[float, float]:
    """Exact 95 % interval of a rate of independent trials; fractions of a hit widen it."""
    alpha = (1 - 0.95) / 2
    low, _ = clopper_pearson(math.floor(hits + 1e-9), trials, alpha)
    _, high = clopper_pearson(min(trials, math.ceil(hits - 1e-9)), trials, alpha)
    return float(low), float(high)


def check_fraction(name: str, value: float) -> None:
    """Raise InputError outside (0, 1)."""
    if not 0 < value < 1:
        raise InputError(f"{name} must lie between 0 and 1; write for example 0.05")
