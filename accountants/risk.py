"""Convert a privacy guarantee to bounds on attacks, in numbers and in words for privacy officers.

All figures come from one trade-off curve f(alpha), the lowest FNR of any test with FPR at most
alpha (Wasserman and Zhou 2010; Dong, Roth and Su 2022): the upper envelope of the lines of all
(epsilon, delta) statements. A zCDP statement also bounds the Renyi divergence between any test's
two outcomes, which excludes more tests.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, log_expit, logit

from privfed.errors import InputError, PolicyError
from privfed.privacy.accountant import Accountant, Amount
from privfed.privacy.conversion import to_delta
from privfed.privacy.loss import foreign
from privfed.questions.exact import shown, shown_delta, shown_percent

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_DELTAS = tuple(Fraction(1, 10**power) for power in range(1, 13))
ROUNDING = 1e-15  #: Maximum error of floats in a rate at which both errors are equal
_ORDERS = 1 + np.geomspace(1e-3, 1e3, 400)


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """A trade-off curve between false positives and false negatives of membership tests."""

    epsilon: np.ndarray  #: at least 0, increasing, shape (statements,)
    delta: np.ndarray  #: delta at each epsilon
    concentrated: tuple[float, float] | None = None  #: rho and delta of a zCDP statement

    @classmethod
    def pure(cls, epsilon: float) -> Tradeoff:
        """Return the curve of pure epsilon, attained by randomized response."""
        return cls.approximate(epsilon, 0.0)

    @classmethod
    def approximate(cls, epsilon: float, delta: float) -> Tradeoff:
        """Return the curve of one (epsilon, delta) statement (Kairouz, Oh and Viswanath 2015)."""
        return cls(np.array([float(epsilon)]), np.array([float(delta)]))

    @classmethod
    @lru_cache(maxsize=64)
    def zcdp(cls, rho: float, delta: float = 0.0) -> Tradeoff:
        """Return the curve of delta-approximate rho-zCDP, by its conversions and its Renyi orders."""
        if rho == 0:
            return cls.approximate(0.0, delta)
        grid = _grid(rho + 12 * np.sqrt(rho), 400)
        lines = np.array([to_delta(rho, value) for value in grid]) + delta
        return cls(grid, np.minimum(lines, 1.0), (rho, delta) if delta < 1 else None)

    @classmethod
    def of_total(cls, accountant: Accountant, total: Amount) -> Tradeoff:
        """Return the curve of an accountant's total."""
        if accountant.components == ("rho", "delta") and not foreign(type(accountant)):
            return cls.zcdp(*map(float, total))
        stated = []
        for delta in (Fraction(0), *_DELTAS):
            with suppress(PolicyError):  # of a rho there is no epsilon at delta 0
                stated.append(accountant.guarantee(total, delta))
        return cls.of_epsilons((float(e), float(d)) for e, d in stated)

    @classmethod
    def of_epsilons(cls, stated: Iterable[tuple[float, float]]) -> Tradeoff:
        """Return the curve of several (epsilon, delta) statements that all hold."""
        return cls(*np.array(sorted(stated)).T)

    @classmethod
    def of(cls, distribution: PrivacyLossDistribution, top: float | None = None) -> Tradeoff:
        """Return the curve of a composed privacy loss distribution (see :mod:`privfed.accountants.pld`)."""
        reach = distribution.get_epsilon_for_delta(1e-12) if top is None else top
        grid = _grid(min(float(reach), 200.0))
        return cls(grid, np.asarray(distribution.get_delta_for_epsilon(grid.tolist())))

    def power(self, fpr: float | np.ndarray) -> np.ndarray:
        """Return 1 - f(alpha), the highest TPR at FPR alpha."""
        alpha = np.atleast_1d(np.asarray(fpr, dtype=float))[:, None]
        weight = np.exp(-np.minimum(self.epsilon, 700.0))
        lines = np.minimum(self.delta + alpha / weight, 1 - (1 - self.delta - alpha) * weight)
        power = np.minimum(1.0, lines.min(axis=1))
        if self.concentrated is not None:
            rho, delta = self.concentrated  # except for an event of probability delta
            fpr_else = np.minimum(1.0, alpha[:, 0] / (1 - delta))
            power = np.minimum(power, 1 - (1 - delta) * (1 - _concentrated(rho, fpr_else)))
        return np.asarray(power)

    def fnr(self, fpr: float | np.ndarray) -> np.ndarray:
        """Return f(alpha), the lowest FNR at FPR alpha."""
        return 1 - self.power(fpr)

    def found(self, fpr: float) -> float:
        """Return the highest true-positive rate of membership inference at a false-positive rate."""
        return float(self.power(fpr)[0])

    @property
    def advantage(self) -> float:
        """The largest TPR minus FPR, attained at f(alpha) = alpha by symmetry, rounded up."""
        equal = brentq(lambda a: a - self.fnr(a)[0], 0.0, 1.0, xtol=ROUNDING, rtol=ROUNDING)
        margin = 4 * ROUNDING if self.epsilon.any() or self.delta.any() else 0.0
        return min(1.0, 1 - 2 * float(equal) + margin)

    @property
    def area(self) -> float:
        """The largest area under a test's ROC curve, bounded by steps as f decreases."""
        rates = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 2001)])
        return 1 - float(self.fnr(rates[1:]) @ np.diff(rates))

    def posterior(self, prior: float, fpr: float | None = None) -> float:
        """Return the best test's posterior probability of membership, from a prior fraction in (0, 1).

        ``fpr`` is the false-positive rate, by default that with the highest posterior.
        """
        _check_prior(prior)
        rates = np.geomspace(1e-9, 1.0, 801) if fpr is None else np.array([fpr])
        hits = prior * self.power(rates)
        return float(np.max(hits / (hits + (1 - prior) * rates)))

    def reconstructed(self, prior: float) -> float:
        """Return the largest reconstruction probability of a record, from a prior guessing probability.

        It is 1 - f(kappa) for a baseline kappa (Hayes, Mahloujifar and Balle 2023; Kaissis et al.
        2023).
        """
        _check_prior(prior)
        return self.found(prior)

    def two(self) -> Tradeoff:
        """Return the curve for two steps between neighbours, such as from one answer of a person to the other.

        (epsilon, delta) twice is (2 epsilon, (1 + e^epsilon) delta): group privacy (Dwork and Roth
        2014, Theorem 2.2 and its proof).
        """
        doubled = np.minimum((1 + np.exp(np.minimum(self.epsilon, 700.0))) * self.delta, 1.0)
        return Tradeoff(2 * self.epsilon, doubled)

    def in_odds(self, fpr: float, rate: float) -> tuple[str, ...]:
        """Return the risk among 100 people in odds, the most understandable form (Nanayakkara et al. 2023).

        ``fpr`` is the false-positive rate, ``rate`` the fraction of people whose answer is yes.
        """
        wrong = f"{100 * fpr:g} of 100"
        delta = float(self.delta[0])
        members, answers = self.found(fpr), self.two().posterior(rate, fpr)
        identified = (
            f"An attacker who wrongly accuses {wrong} others finds at most {shown(100 * members, 3)} of 100 "
            f"people in the data on average; guessing finds {100 * fpr:g}."
        )
        answered = (
            f"If {100 * rate:g} of 100 people would answer yes, and an attacker wrongly accuses {wrong} of "
            f"those who answered no, an accusation is right at most {shown(100 * answers, 3)} times in 100, if "
            "each answer is in the data once."
        )
        worst = (
            f"Both include delta {shown_delta(delta)}: at worst, {shown(1e6 * delta, 3)} of a million people would have no "
            "protection at all on average, or all of them at once with that probability. It should be far below one over "
            "the number of people."
        )
        return (identified, answered, worst) if delta else (identified, answered)


def largest_epsilon(found: float, delta: float, fpr: float) -> float:
    """Return the largest epsilon at which the TPR is at most ``found``, rounded down.

    ``fpr`` is the false-positive rate. InputError: guessing, or delta, already has that TPR.
    """
    if Tradeoff.approximate(0.0, delta).found(fpr) >= found:
        raise InputError(
            f"no epsilon is small enough: an attacker who wrongly accuses {shown_percent(fpr)} of the others "
            "finds as many by guessing; accept a higher risk, or assume fewer wrong accusations"
        )
    low, high = 0.0, 1.0
    while Tradeoff.approximate(high, delta).found(fpr) <= found and high < 700:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        within = Tradeoff.approximate(middle, delta).found(fpr) <= found
        low, high = (middle, high) if within else (low, middle)
    return low


def _concentrated(rho: float, fpr: np.ndarray) -> np.ndarray:
    """Return the highest true-positive rates under rho-zCDP, shape of ``fpr``, rounded up.

    A test maps the two outputs to two coins; post-processing never increases a Renyi divergence, so
    the coins' divergence of order a is at most rho * a, in both directions and for every a > 1 (van
    Erven and Harremoes 2014, Theorem 9).
    """
    low = logit(np.clip(fpr, 1e-300, 1 - 1e-12))
    high = np.full_like(low, logit(1 - 1e-12))
    base, worst = _coin(low), np.zeros((2, len(low)), int)
    for _ in range(60):
        middle = (low + high) / 2
        rate = _coin(middle)
        over = np.zeros(len(low), bool)
        directions = ((rate, base), (base, rate))
        # The previous worst order often suffices.
        for known, (p, q) in zip(worst, directions, strict=True):
            live = np.flatnonzero(~over)
            over[live] = _excess(p[:, live], q[:, live], rho, _ORDERS[known[live], None])[:, 0] > 0
        for known, (p, q) in zip(worst, directions, strict=True):
            live = np.flatnonzero(~over)
            excess = _excess(p[:, live], q[:, live], rho, _ORDERS)
            known[live], over[live] = excess.argmax(axis=1), excess.max(axis=1) > 0
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return np.asarray(np.minimum(1.0, expit(high) + 1e-8))


def _coin(odds: np.ndarray) -> np.ndarray:
    """Return log-probabilities of a coin's two sides, shape (2, coins, 1)."""
    return np.stack([log_expit(odds), log_expit(-odds)])[:, :, None]


def _excess(p: np.ndarray, q: np.ndarray, rho: float, orders: np.ndarray) -> np.ndarray:
    """Return the divergences of coins p from q in excess of rho-zCDP, shape (coins, orders)."""
    divergence = np.logaddexp(*(orders * p + (1 - orders) * q)) / (orders - 1)
    return np.asarray(divergence - rho * orders)


def _grid(top: float, points: int = 4000) -> np.ndarray:
    return np.linspace(0.0, max(float(top), 1e-3), points + 1)


def _check_prior(prior: float) -> None:
    if not 0 < prior < 1:
        raise InputError(f"prior must lie between 0 and 1, not {prior!r}; write for example 0.01")


@dataclass(frozen=True)
class Subject:
    """Words for the unit that a guarantee protects."""

    one: str = "record"  #: singular
    many: str = "records"  #: plural
    person: bool = False  #: whether it takes part (else it is used)

    @property
    def was(self) -> str:
        """The predicate for a member."""
        return "took part" if self.person else "was used"

    @property
    def were(self) -> str:
        """The predicate for members."""
        return "took part" if self.person else "were used"

    @property
    def members(self) -> str:
        """The phrase for members."""
        return f"the {self.many} {'who' if self.person else 'that'} {self.were}"

    @property
    def others(self) -> str:
        """The phrase for non-members."""
        which = "who took no part" if self.person else "that were not used"
        return f"the {self.many} {which}"

    @property
    def rest(self) -> str:
        """The phrase for members after non-members were named."""
        return "those who did" if self.person else "those that were"

    @property
    def guessed(self) -> str:
        """The phrase for the target of reconstruction."""
        return f"A {self.one}'s data" if self.person else f"A {self.one}"


RECORD = Subject()


@dataclass(frozen=True)
class Risk:
    """Upper bounds on attacks, in numbers."""

    found: dict[float, float]  #: true-positive rate of membership inference, by false-positive rate
    advantage: float  #: largest TPR minus FPR
    prior: float  #: assumed fraction of members among the candidates
    posterior: float  #: the best test's posterior at 1 % FPR, from that prior
    reconstructed: float  #: probability of reconstructing a record with that prior

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, curve: Tradeoff, prior: float = 0.01) -> Risk:
        """Compute all figures from one curve."""
        return cls(
            {rate: curve.found(rate) for rate in (0.001, 0.01, 0.1)},
            curve.advantage,
            prior,
            curve.posterior(prior, 0.01),
            curve.reconstructed(prior),
        )

    def sentences(self, subject: Subject = RECORD) -> tuple[str, ...]:
        """Return the figures in sentences about the protected unit."""
        many, prior = subject.many, shown_percent(self.prior)
        return (
            *(
                f"An attack that flags {shown_percent(rate)} of {subject.others} identifies at most "
                f"{shown_percent(found)} of {subject.rest}."
                for rate, found in self.found.items()
            ),
            f"The advantage (TPR minus FPR) of any attack is at most {shown_percent(self.advantage)}.",
            (
                f"If {prior} of all suspected {many} {subject.were}, and 1 % of the others are accused wrongly, "
                f"an accusation is right with probability at most {shown_percent(self.posterior)}."
            ),
            (
                f"{subject.guessed} with a prior probability of {prior} can be reconstructed with probability "
                f"at most {shown_percent(self.reconstructed)}."
            ),
        )
