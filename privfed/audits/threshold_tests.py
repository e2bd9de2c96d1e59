"""Decision rules that guess an output's input, and the bounds that their guesses prove.

A rule is chosen on some outputs and evaluated on others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privfed.audits.bounds import epsilon_from_event, mu_from_event, right_guesses, right_guesses_mu
from privfed.audits.test_statistics import Statistic
from privfed.errors import InputError
from privfed.privacy.conversion import gaussian_epsilon

#: Thresholds tried for each score: quantiles of the pooled outputs, and some more in either tail.
THRESHOLDS, TAIL = 200, 30
LENIENT = 0.1  #: Level at which a family's most promising rule is chosen
#: Fractions of alpha for the first rule, and for all others. The rest is a margin: noise on a grid
#: only approximates the continuous noise of a claim.
SUREST, OTHERS = 0.7, 0.1


@dataclass(frozen=True)
class ConfusionCounts:
    """A rule's guesses about outputs of both inputs; counts may be arrays, one entry per rule.

    The record's presence is the positive class; ``present`` and ``absent`` are numbers of outputs
    of either input, some of which a rule may not guess.
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


@dataclass(frozen=True)
class PrivacyClaim:
    """A mechanism's claim, and the bounds that guesses prove under it; InputError if it is impossible."""

    epsilon: float  #: nats
    delta: float = 0.0  #: 0 for pure epsilon
    #: whether a Gaussian trade-off curve is claimed, whose epsilon at ``delta`` is given: true of
    #: Gaussian noise alone, and far tighter (Dong et al. 2022)
    gaussian: bool = False

    def __post_init__(self) -> None:
        if not (self.epsilon >= 0 and 0 <= self.delta < 1):
            raise InputError("an audit needs claimed >= 0 and 0 <= delta < 1")
        if self.gaussian and not self.delta:
            raise InputError("a claim of Gaussian noise is stated at a delta above 0")

    def strength(self, counts: ConfusionCounts, alpha: float) -> np.ndarray:
        """Epsilon that guesses prove at level ``alpha``, or mu if Gaussian noise is claimed."""
        if not self.delta:
            return right_guesses(counts.right, counts.made, alpha)
        if self.gaussian and np.all(counts.made == counts.present + counts.absent):
            return right_guesses_mu(counts.right, counts.made, alpha)
        # of a rule that guesses only one of the inputs, as the record's presence
        event = counts if np.any(counts.tp + counts.fp) else counts.mirrored
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
        """Convert a strength to epsilon, nats."""
        if not self.gaussian or strength <= 0:
            return strength
        return gaussian_epsilon(strength, self.delta)


@dataclass(frozen=True)
class DecisionRule:
    """Guesses one input if a statistic is ``above`` a threshold, the other if ``below`` one.

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
        if statistic.trained:
            present, absent = present[1::2], absent[1::2]
        self.statistic, self.sizes = statistic, (len(present), len(absent))
        values = [np.sort(statistic.of(outputs)) for outputs in (present, absent)]
        self.edges = _thresholds(*values)
        self.upper = [np.asarray(len(v) - np.searchsorted(v, self.edges, "left")) for v in values]
        self.lower = [np.asarray(np.searchsorted(v, self.edges, "right")) for v in values]

    def best(self, claim: PrivacyClaim, alpha: float) -> tuple[DecisionRule, float]:
        """The rule with the largest bound at level ``alpha``, and its strength."""
        options = [o for swapped in (False, True) for o in self._options(claim, alpha, swapped)]
        return max(options, key=lambda option: option[1])

    def _options(
        self, claim: PrivacyClaim, alpha: float, swapped: bool
    ) -> list[tuple[DecisionRule, float]]:
        """The best rule that guesses on the upper side, the lower side, and both."""

        def strongest(upper: list[np.ndarray], lower: list[np.ndarray]) -> tuple[int, float]:
            strengths = claim.strength(_counts(upper, lower, self.sizes, swapped), alpha)
            top = int(np.argmax(strengths))
            return top, float(np.ravel(strengths)[top])

        edges, none = self.edges, [np.zeros(len(self.edges), int)] * 2
        high, from_high = strongest(self.upper, none)
        low, from_low = strongest(none, self.lower)
        rules = [
            (DecisionRule(self.statistic, float(edges[high]), None, swapped), from_high),
            (DecisionRule(self.statistic, None, float(edges[low]), swapped), from_low),
        ]
        if claim.gaussian:
            below = [size - upper for size, upper in zip(self.sizes, self.upper, strict=True)]
            best, strength = strongest(self.upper, below)
            edge = float(np.nextafter(edges[best], -np.inf))
            rules.append(
                (DecisionRule(self.statistic, float(edges[best]), edge, swapped), strength)
            )
        elif not claim.delta and edges[low] < edges[high]:
            ends = [u[[high]] for u in self.upper], [v[[low]] for v in self.lower]
            both = DecisionRule(self.statistic, float(edges[high]), float(edges[low]), swapped)
            rules.append((both, strongest(*ends)[1]))
        return rules


def _thresholds(present: np.ndarray, absent: np.ndarray) -> np.ndarray:
    """Distinct quantiles of the pooled scores, denser in the tails."""
    pooled = np.sort(np.concatenate([present, absent]))
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
) -> list[DecisionRule]:
    """Choose the rule with the largest bound, first, and the most promising one of each family.

    The first is chosen with alpha divided among the thresholds tried; the others at a lenient level, so that
    rare events are not missed.
    """
    scored = [ScoredOutputs(s, present, absent) for s in statistics]
    chosen = [_strongest(scored, claim, alpha)[0]]
    for family in dict.fromkeys(s.family for s in statistics):
        options = [s.best(claim, LENIENT) for s in scored if s.statistic.family == family]
        rule, promise = max(options, key=lambda option: option[1])
        if promise > 0 and rule not in chosen:
            chosen.append(rule)
    return chosen


def largest_strength(
    statistics: Sequence[Statistic],
    present: np.ndarray,
    absent: np.ndarray,
    claim: PrivacyClaim,
    alpha: float,
) -> float:
    """The strength of the first rule of :func:`choose`."""
    return _strongest([ScoredOutputs(s, present, absent) for s in statistics], claim, alpha)[1]


def _strongest(
    scored: Sequence[ScoredOutputs], claim: PrivacyClaim, alpha: float
) -> tuple[DecisionRule, float]:
    level = alpha / (4 * (THRESHOLDS + 2 * TAIL))
    return max((s.best(claim, level) for s in scored), key=lambda option: option[1])


def judge(
    rules: Sequence[DecisionRule],
    present: np.ndarray,
    absent: np.ndarray,
    claim: PrivacyClaim,
    alpha: float,
) -> tuple[DecisionRule, float]:
    """The rule with the largest bound on fresh outputs, alpha split among the rules, and its epsilon, nats."""
    first_level = (SUREST if len(rules) > 1 else SUREST + OTHERS) * alpha
    other_level = OTHERS * alpha / max(len(rules) - 1, 1)
    strengths = [
        float(claim.strength(rule.counts(present, absent), level))
        for rule, level in zip(rules, [first_level] + [other_level] * (len(rules) - 1), strict=True)
    ]
    best = int(np.argmax(strengths))
    return rules[best], claim.proven(strengths[best])
