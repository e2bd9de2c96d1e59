"""Decision rules that guess an output's input, and what their guesses prove.

A rule is chosen on some outputs and judged on others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privfed.audits.bounds import (
    epsilon_from_event,
    mu_from_event,
    right_guesses,
    right_guesses_mu,
)
from privfed.audits.test_statistics import Statistic
from privfed.errors import InputError
from privfed.privacy.conversion import gaussian_epsilon

#: Thresholds tried for each score: quantiles of the pooled outputs, and some more in either tail.
THRESHOLDS, TAIL = 200, 30
LENIENT = 0.1  #: Level at which a family's most promising rule is chosen
#: Fractions of alpha for the first rule, and for all others. The rest is kept back: noise on a grid
#: is only nearly the continuous one that a claim may speak of.
SUREST, OTHERS = 0.7, 0.1


@dataclass(frozen=True)
class ConfusionCounts:
    """A rule's guesses about outputs of both inputs; counts may be arrays, one entry a rule.

    The record's presence is the positive class; ``present`` and ``absent`` are numbers of outputs
    of either input, of which a rule may leave some aside.
    """

    tp: np.ndarray
    fp: np.ndarray
    fn: np.ndarray
    tn: np.ndarray
    present: int
    absent: int

    @property
    def right(self) -> np.ndarray:
        """Right guesses."""
        return np.asarray(self.tp + self.tn)

    @property
    def made(self) -> np.ndarray:
        """All guesses."""
        return np.asarray(self.right + self.fp + self.fn)

    @property
    def mirrored(self) -> ConfusionCounts:
        """The same counts with the two inputs exchanged."""
        swapped = (self.tn, self.fn, self.fp, self.tp)
        return ConfusionCounts(*swapped, self.absent, self.present)

    def one_sided(self) -> ConfusionCounts:
        """Those of a rule that names one of the inputs only, as the record's presence."""
        return self if np.any(self.tp + self.fp) else self.mirrored


@dataclass(frozen=True)
class PrivacyClaim:
    """What a mechanism claims, and how guesses are held against it; InputError if no such claim can be made."""

    epsilon: float  #: nats
    delta: float = 0.0  #: pure epsilon is claimed where it is 0
    #: whether a Gaussian trade-off curve is claimed, whose epsilon at ``delta`` is given: true of
    #: Gaussian noise alone, and far tighter (Dong et al. 2022)
    gaussian: bool = False

    def __post_init__(self) -> None:
        if not (self.epsilon >= 0 and 0 <= self.delta < 1):
            raise InputError("an audit needs claimed >= 0 and 0 <= delta < 1")
        if self.gaussian and not self.delta:
            raise InputError("a claim of Gaussian noise is stated at a delta above 0")

    @property
    def two_sided(self) -> bool:
        """Whether rules that name either input, and leave some outputs aside, can be judged."""
        return not self.delta

    def strength(self, counts: ConfusionCounts, alpha: float) -> np.ndarray:
        """Epsilon that guesses prove at level ``alpha``, or mu where Gaussian noise is claimed."""
        if not self.delta:
            return right_guesses(counts.right, counts.made, alpha)
        if self.gaussian and np.all(counts.made == counts.present + counts.absent):
            return right_guesses_mu(counts.right, counts.made, alpha)
        event = counts.one_sided()
        if self.gaussian:
            return mu_from_event(
                event.fp,
                event.present - event.tp,
                trials_without=event.absent,
                trials_with=event.present,
                alpha=alpha,
            )
        return epsilon_from_event(
            event.tp,
            event.fp,
            trials=event.present,
            trials_outside=event.absent,
            delta=self.delta,
            alpha=alpha,
        )

    def proven(self, strength: float) -> float:
        """The epsilon that a strength stands for, nats."""
        if not self.gaussian or strength <= 0:
            return strength
        return gaussian_epsilon(strength, self.delta)


@dataclass(frozen=True)
class DecisionRule:
    """Names one input where a statistic is ``above`` a threshold, the other where ``below`` one.

    The first is that with the record unless ``swapped``; None for no threshold.
    """

    statistic: Statistic
    above: float | None
    below: float | None
    swapped: bool = False

    @property
    def threshold(self) -> float:
        """One of its thresholds, for reports."""
        return float(self.above if self.above is not None else self.below or 0.0)

    def counts(self, present: np.ndarray, absent: np.ndarray) -> ConfusionCounts:
        """Count its guesses about outputs, shape (runs, cells) each."""
        values = [self.statistic.of(outputs) for outputs in (present, absent)]
        upper, lower = (
            [np.asarray(0 if edge is None else np.sum(side(v, edge))) for v in values]
            for side, edge in ((np.greater_equal, self.above), (np.less_equal, self.below))
        )
        return _counts(upper, lower, (len(present), len(absent)), self.swapped)


def _counts(
    upper: Sequence[np.ndarray], lower: Sequence[np.ndarray], sizes: tuple[int, int], swapped: bool
) -> ConfusionCounts:
    named, other = (lower, upper) if swapped else (upper, lower)
    return ConfusionCounts(named[0], named[1], other[0], other[1], *sizes)


class ScoredOutputs:
    """Outputs of both inputs by one statistic, counted on either side of many thresholds."""

    def __init__(self, statistic: Statistic, present: np.ndarray, absent: np.ndarray) -> None:
        if statistic.taught:
            present, absent = present[1::2], absent[1::2]
        self.statistic, self.sizes = statistic, (len(present), len(absent))
        values = [np.sort(statistic.of(outputs)) for outputs in (present, absent)]
        self.tried = _thresholds(*values)
        self.upper = [np.asarray(len(v) - np.searchsorted(v, self.tried, "left")) for v in values]
        self.lower = [np.asarray(np.searchsorted(v, self.tried, "right")) for v in values]

    def best(self, claim: PrivacyClaim, alpha: float) -> tuple[DecisionRule, float]:
        """The rule that proves most of a claim at level ``alpha``, and its strength."""
        options = [o for swapped in (False, True) for o in self._options(claim, alpha, swapped)]
        return max(options, key=lambda option: option[1])

    def _options(
        self, claim: PrivacyClaim, alpha: float, swapped: bool
    ) -> list[tuple[DecisionRule, float]]:
        """The best rule that names the upper side, the lower side, and both."""

        def strongest(upper: list[np.ndarray], lower: list[np.ndarray]) -> tuple[int, float]:
            strengths = claim.strength(_counts(upper, lower, self.sizes, swapped), alpha)
            top = int(np.argmax(strengths))
            return top, float(np.ravel(strengths)[top])

        tried, none = self.tried, [np.zeros(len(self.tried), int)] * 2
        high, from_high = strongest(self.upper, none)
        low, from_low = strongest(none, self.lower)
        found = [
            (DecisionRule(self.statistic, float(tried[high]), None, swapped), from_high),
            (DecisionRule(self.statistic, None, float(tried[low]), swapped), from_low),
        ]
        if claim.gaussian:
            rest = [size - upper for size, upper in zip(self.sizes, self.upper, strict=True)]
            cut, strength = strongest(self.upper, rest)
            edge = float(np.nextafter(tried[cut], -np.inf))
            found.append((DecisionRule(self.statistic, float(tried[cut]), edge, swapped), strength))
        elif claim.two_sided and tried[low] < tried[high]:
            ends = [u[[high]] for u in self.upper], [v[[low]] for v in self.lower]
            both = DecisionRule(self.statistic, float(tried[high]), float(tried[low]), swapped)
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
    statistics: Sequence[Statistic],
    present: np.ndarray,
    absent: np.ndarray,
    claim: PrivacyClaim,
    alpha: float,
) -> tuple[list[DecisionRule], float]:
    """Choose the rule that proves most, first, and the most promising one of each family; and the first's strength.

    The first is judged with alpha divided among the thresholds tried; the others leniently, so that
    rare events are not passed over.
    """
    scored = [ScoredOutputs(each, present, absent) for each in statistics]
    luck = alpha / (4 * (THRESHOLDS + 2 * TAIL))
    surest, strength = max(
        (each.best(claim, luck) for each in scored), key=lambda option: option[1]
    )
    chosen = [surest]
    for family in dict.fromkeys(each.family for each in statistics):
        hopes = [each.best(claim, LENIENT) for each in scored if each.statistic.family == family]
        rule, hope = max(hopes, key=lambda option: option[1])
        if hope > 0 and rule not in chosen:
            chosen.append(rule)
    return chosen, strength


def judge(
    rules: Sequence[DecisionRule],
    present: np.ndarray,
    absent: np.ndarray,
    claim: PrivacyClaim,
    alpha: float,
) -> tuple[DecisionRule, float]:
    """The rule that proves most on outputs that chose none, alpha split among them, and its epsilon, nats."""
    first = (SUREST if len(rules) > 1 else SUREST + OTHERS) * alpha
    rest = OTHERS * alpha / max(len(rules) - 1, 1)
    strengths = [
        float(claim.strength(rule.counts(present, absent), level))
        for rule, level in zip(rules, [first] + [rest] * (len(rules) - 1), strict=True)
    ]
    best = int(np.argmax(strengths))
    return rules[best], claim.proven(strengths[best])
