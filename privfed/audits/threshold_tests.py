"""Rules that guess from an output which of two inputs it came from, and what their hits prove.

A rule is chosen on some outputs and judged on others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from privfed.attacks.roc import clopper_pearson
from privfed.audits.bounds import (
    epsilon_from_event,
    gaussian_epsilon,
    right_guesses,
    right_guesses_mu,
)
from privfed.audits.test_statistics import Score
from privfed.errors import InputError

#: Thresholds tried for each score: quantiles of the pooled outputs, and some more in either tail.
THRESHOLDS, TAIL = 200, 30
#: Level at which a family's most promising rule is chosen: luck is not held against it.
LENIENT = 0.1
#: Shares of alpha for the rule that was surest where it was chosen, and for all others. The rest is
#: kept back: noise on a grid is only nearly the continuous one that a claim may speak of.
SUREST, OTHERS = 0.7, 0.1


@dataclass(frozen=True)
class Hits:
    """What a rule's guesses came to; each count may be an array, for many rules at once.

    Args:
        found: outputs with the record of which it says so.
        accused: outputs without it of which it says that it was there.
        missed: outputs with the record of which it says that it was not there.
        cleared: outputs without it of which it says so.
        present, absent: outputs there are of either kind.
    """

    found: np.ndarray
    accused: np.ndarray
    missed: np.ndarray
    cleared: np.ndarray
    present: int
    absent: int

    @property
    def right(self) -> np.ndarray:
        """Right guesses."""
        return np.asarray(self.found + self.cleared)

    @property
    def made(self) -> np.ndarray:
        """All guesses."""
        return np.asarray(self.right + self.accused + self.missed)

    @property
    def mirrored(self) -> Hits:
        """The same hits with the parts of the two inputs exchanged."""
        told = (self.cleared, self.missed, self.accused, self.found)
        return Hits(*told, self.absent, self.present)

    def one_sided(self) -> Hits:
        """Hits of a rule that only ever names one of the inputs, and names the record's presence."""
        return self if np.any(self.found + self.accused) else self.mirrored


@dataclass(frozen=True)
class Claim:
    """What a mechanism says of itself, and how guesses are held against it.

    Args:
        epsilon: nats.
        delta: pure epsilon is claimed where it is 0.
        gaussian: whether a Gaussian trade-off curve is claimed, whose epsilon at ``delta`` is given:
            true of Gaussian noise alone, and far tighter (Dong et al. 2022).

    Raises:
        InputError: no such claim can be made.
    """

    epsilon: float
    delta: float = 0.0
    gaussian: bool = False

    def __post_init__(self) -> None:
        if not (self.epsilon >= 0 and 0 <= self.delta < 1):
            raise InputError("an audit needs claimed >= 0 and 0 <= delta < 1")
        if self.gaussian and not self.delta:
            raise InputError("a claim of Gaussian noise is stated at a delta above 0")

    @property
    def two_sided(self) -> bool:
        """Whether rules that name either input, and pass over some outputs, can be judged."""
        return not self.delta

    def strength(self, hits: Hits, alpha: float) -> np.ndarray:
        """What hits prove: epsilon, or mu where Gaussian noise is claimed."""
        if not self.delta:
            return right_guesses(hits.right, hits.made, alpha)
        if self.gaussian and np.all(hits.made == hits.present + hits.absent):
            return right_guesses_mu(hits.right, hits.made, alpha)
        event = hits.one_sided()
        if self.gaussian:
            return _mu_of_event(event, alpha)
        return epsilon_from_event(
            event.found,
            event.accused,
            trials=event.present,
            trials_outside=event.absent,
            delta=self.delta,
            alpha=alpha,
        )

    def proven(self, strength: float) -> float:
        """The epsilon that a strength stands for."""
        if not self.gaussian or strength <= 0:
            return strength
        return gaussian_epsilon(strength, self.delta)


def _mu_of_event(event: Hits, alpha: float) -> np.ndarray:
    """mu >= Phi^-1(1 - a) - Phi^-1(b), each error rate at its upper bound (Dong et al. 2022)."""
    _, accused = clopper_pearson(event.accused, event.absent, alpha / 2)
    _, missed = clopper_pearson(event.present - event.found, event.present, alpha / 2)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nan_to_num(np.maximum(norm.isf(accused) - norm.ppf(missed), 0.0)))


@dataclass(frozen=True)
class Rule:
    """Guesses one input at or above a threshold of a score, the other at or below one.

    Args:
        score: the score.
        above: from where it names the first input, or none.
        below: up to where it names the second, or none.
        swapped: whether the first is that without the record.
    """

    score: Score
    above: float | None
    below: float | None
    swapped: bool = False

    @property
    def threshold(self) -> float:
        """A threshold of it, for reports."""
        return float(self.above if self.above is not None else self.below or 0.0)

    def hits(self, present: np.ndarray, absent: np.ndarray) -> Hits:
        """Guess about outputs, shape (runs, cells) each, and count."""
        values = [self.score.of(outputs) for outputs in (present, absent)]
        upper, lower = (
            [np.asarray(0 if edge is None else np.sum(side(v, edge))) for v in values]
            for side, edge in ((np.greater_equal, self.above), (np.less_equal, self.below))
        )
        return _hits(upper, lower, (len(present), len(absent)), self.swapped)


def _hits(
    upper: Sequence[np.ndarray], lower: Sequence[np.ndarray], sizes: tuple[int, int], swapped: bool
) -> Hits:
    """Hits from the outputs on either side, of both inputs each."""
    named, other = (lower, upper) if swapped else (upper, lower)
    return Hits(named[0], named[1], other[0], other[1], *sizes)


class Scored:
    """Outputs of both inputs by one score, counted on either side of many thresholds.

    Args:
        score: the score.
        present, absent: outputs with and without the record, shape (runs, cells).
    """

    def __init__(self, score: Score, present: np.ndarray, absent: np.ndarray) -> None:
        self.score, self.sizes = score, (len(present), len(absent))
        values = [np.sort(score.of(outputs)) for outputs in (present, absent)]
        self.tried = _thresholds(*values)
        self.upper = [np.asarray(len(v) - np.searchsorted(v, self.tried, "left")) for v in values]
        self.lower = [np.asarray(np.searchsorted(v, self.tried, "right")) for v in values]

    def best(self, claim: Claim, alpha: float) -> tuple[Rule, float]:
        """The rule that proves most of a claim at level ``alpha``, and what it proves."""
        options = [o for swapped in (False, True) for o in self._options(claim, alpha, swapped)]
        return max(options, key=lambda option: option[1])

    def _options(self, claim: Claim, alpha: float, swapped: bool) -> list[tuple[Rule, float]]:
        """The best rule that names the upper side, the lower side, and both."""

        def strongest(upper: list[np.ndarray], lower: list[np.ndarray]) -> tuple[int, float]:
            strengths = claim.strength(_hits(upper, lower, self.sizes, swapped), alpha)
            top = int(np.argmax(strengths))
            return top, float(np.ravel(strengths)[top])

        tried, none = self.tried, [np.zeros(len(self.tried), int)] * 2
        high, from_high = strongest(self.upper, none)
        low, from_low = strongest(none, self.lower)
        found = [
            (Rule(self.score, float(tried[high]), None, swapped), from_high),
            (Rule(self.score, None, float(tried[low]), swapped), from_low),
        ]
        if claim.gaussian:
            rest = [size - upper for size, upper in zip(self.sizes, self.upper, strict=True)]
            cut, strength = strongest(self.upper, rest)
            edge = float(np.nextafter(tried[cut], -np.inf))
            found.append((Rule(self.score, float(tried[cut]), edge, swapped), strength))
        elif claim.two_sided and tried[low] < tried[high]:
            ends = [u[[high]] for u in self.upper], [v[[low]] for v in self.lower]
            both = Rule(self.score, float(tried[high]), float(tried[low]), swapped)
            found.append((both, strongest(*ends)[1]))
        return found


def _thresholds(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Distinct quantiles of the pooled scores, denser in the tails."""
    pooled = np.sort(np.concatenate([mine, theirs]))
    last = len(pooled) - 1
    ends = np.geomspace(1, max(last, 1), TAIL)
    picked = np.concatenate([np.linspace(0, last, THRESHOLDS), ends, last - ends])
    return np.unique(pooled[np.clip(picked.astype(int), 0, last)])


def choose(
    scores: Sequence[Score],
    present: np.ndarray,
    absent: np.ndarray,
    claim: Claim,
    alpha: float,
) -> tuple[list[Rule], float]:
    """The surest rule of all, then the most promising one of each family of scores.

    Luck is held against the surest: each of the thresholds tried must pass at a level of its own.
    The most promising of a family is judged without that, so that rare events are not passed over.

    Returns:
        the rules, and what the surest proves on these outputs.
    """
    scored = [Scored(score, present, absent) for score in scores]
    luck = alpha / (4 * (THRESHOLDS + 2 * TAIL))
    surest, strength = max(
        (each.best(claim, luck) for each in scored), key=lambda option: option[1]
    )
    chosen = [surest]
    for family in dict.fromkeys(score.family for score in scores):
        hopes = [each.best(claim, LENIENT) for each in scored if each.score.family == family]
        rule, hope = max(hopes, key=lambda option: option[1])
        if hope > 0 and rule not in chosen:
            chosen.append(rule)
    return chosen, strength


def judge(
    rules: Sequence[Rule], present: np.ndarray, absent: np.ndarray, claim: Claim, alpha: float
) -> tuple[Rule, float]:
    """What rules prove on outputs that did not choose them, alpha split among them.

    The first rule gets most of alpha, the others equal shares of a tenth.

    Returns:
        the rule that proves most, and the epsilon that it proves, nats.
    """
    first = (SUREST if len(rules) > 1 else SUREST + OTHERS) * alpha
    rest = OTHERS * alpha / max(len(rules) - 1, 1)
    strengths = [
        float(claim.strength(rule.hits(present, absent), level))
        for rule, level in zip(rules, [first] + [rest] * (len(rules) - 1), strict=True)
    ]
    best = int(np.argmax(strengths))
    return rules[best], claim.proven(strengths[best])
