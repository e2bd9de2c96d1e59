"""The least epsilon for a question, by the exact law of its answers.

Of N individuals, c hold a match. Randomized response with truth p = e^eps / (1 + e^eps) gives
Y ~ Bin(c, p) + Bin(N - c, 1 - p) yes-answers, and the estimate (Y - N q) / (p - q), q = 1 - p
(DP-RuL equations 2 to 4). The subtree is ignored if the estimate lies below a cut.

DP-RuL equation 5, read literally, asks for the least epsilon with
P(estimate < nu N | c = nu N) <= theta. The estimate is unbiased, so that this probability is about
1/2 at every epsilon and no epsilon will do: see :func:`published_error`. It needs a margin. Here a
subtree that is worth exploring has at least ``count`` holders, more than the ``cut``; since the
error falls as c grows, the bound at ``count`` covers all larger subtrees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from scipy import stats

from privfed.errors import InputError

#: Epsilons are searched on this grid, in nats.
STEP = Fraction(1, 200)
#: Largest epsilon of a question that is considered.
LARGEST = 40


@dataclass(frozen=True)
class Question:
    """What must be told apart.

    Args:
        people: N, how many are asked.
        count: c*, the fewest holders of a subtree that is worth exploring.
        cut: the subtree is ignored if the estimate lies below this.
        error: theta, most probability of ignoring a subtree that is worth exploring.
    """

    people: int
    count: int
    cut: float
    error: float

    def __post_init__(self) -> None:
        if not 0 < self.error < 1:
            raise InputError("the error theta must lie between 0 and 1; write for example 0.05")
        if not 0 <= self.cut < self.count <= self.people:
            raise InputError(
                "a question needs a margin: cut below count, and count at most the number asked; "
                "at count = cut the error is 1/2 at every epsilon"
            )


def ignoring(people: int, count: int, cut: float, epsilon: float) -> float:
    """Probability that the estimate lies below the cut when so many hold a match, exactly.

    P(Y < t) with t = N q + cut (p - q): the sum over j of Bin(j; c, p) times the probability that
    the others give at most ceil(t) - 1 - j yes-answers.
    """
    truth, lie = _truth(epsilon)
    threshold = people * lie + cut * (truth - lie)
    most = math.ceil(threshold - 1e-9) - 1
    spread = 12 * math.sqrt(count * truth * lie) + 12
    low = max(0, math.floor(count * truth - spread))
    high = min(count, math.ceil(count * truth + spread))
    yes = np.arange(low, high + 1)
    others = stats.binom.cdf(most - yes, people - count, lie)
    return float(np.sum(stats.binom.pmf(yes, count, truth) * others))


@lru_cache(maxsize=4096)
def least_epsilon(question: Question, step: Fraction = STEP) -> Fraction:
    """The least epsilon of the grid from which all larger ones keep the error.

    The error is not monotone in epsilon (the counts are whole numbers), so that the search walks
    down from twice the normal guess 2 asinh(z sqrt(N) / (2 (c* - cut))) until the error is broken.

    Raises:
        InputError: no epsilon up to the largest considered keeps the error.
    """
    guess = 2 * math.asinh(
        max(stats.norm.ppf(1 - question.error), 0.0)
        * math.sqrt(question.people)
        / (2 * (question.count - question.cut))
    )
    top = min(LARGEST, 2 * guess + 10 * float(step))
    place = math.ceil(top / float(step))
    if not _keeps(question, place * step):
        place = math.ceil(LARGEST / float(step))
        if not _keeps(question, place * step):
            raise InputError(f"no epsilon up to {LARGEST} keeps the error; widen the margin")
    while place > 1 and _keeps(question, (place - 1) * step):
        place -= 1
    return place * step


def _keeps(question: Question, epsilon: Fraction) -> bool:
    error = ignoring(question.people, question.count, question.cut, float(epsilon))
    return error <= question.error


def published_error(people: int, share: float, epsilon: float) -> float:
    """DP-RuL equation 5 as printed: the truth exactly at the threshold that it is held against."""
    count = round(share * people)
    return ignoring(people, count, count, epsilon)


def _truth(epsilon: float) -> tuple[float, float]:
    if not 0 < epsilon < math.inf:
        raise InputError("epsilon must be a finite number greater than 0")
    lie = 1 / (1 + math.exp(epsilon))
    return 1 - lie, lie


@dataclass(frozen=True)
class Exploration:
    """When a subtree is worth exploring, and what asking about it needs; public.

    With a share of 0 every question is the finest: the nearest to DP-RuL equation 5 that a margin
    allows. With a share above 0 a question about a child adapts to the release about its parent:
    where the parent's estimate is large, a child worth exploring *first* holds that share of it, and
    telling so many from none needs far less. Children below wait, and are asked again, more sharply,
    once the rest is explored: the share is divided, until the finest question looks for
    (1 + margin) nu N. Most children hold less, so that most are paid for twice: over the simulated
    populations a share of 0.25 finds about half of what 0 finds (docs/results.md).

    Args:
        threshold: nu, the share of individuals that makes a rule valid.
        error: theta, see :class:`Question`.
        margin: c* is (1 + margin) nu N at the finest.
        share: share of the parent's estimate that a child worth exploring first holds; 0 asks at
            the finest at once.
        stray: about the probability of exploring a subtree that nobody holds. The cut lies between
            0 and c* so that both probabilities are kept: a template has a hundred children or
            more, and if one of a hundred empty ones were explored, the search would never end.
    """

    threshold: float = 0.01
    error: float = 0.05
    margin: float = 1.0
    share: float = 0.0
    stray: float = 0.004

    def __post_init__(self) -> None:
        shares = 0 < self.threshold < 1 and 0 <= self.share <= 1 and 0 < self.stray < 0.5
        if not shares or not self.margin > 0 or not 0 < self.error < 0.5:
            raise InputError(
                "exploration needs a threshold between 0 and 1, a margin above 0, a share from 0 "
                "to 1, and an error and a stray probability between 0 and 0.5"
            )

    @cached_property
    def height(self) -> float:
        """Where the cut lies between 0 and c*: z_stray / (z_stray + z_theta)."""
        stray, error = stats.norm.isf(self.stray), stats.norm.isf(self.error)
        return float(stray / (stray + error))

    def finest(self, people: int) -> Question:
        """The sharpest question that is ever asked of so many people."""
        count = min(people, math.ceil((1 + self.margin) * self.threshold * people))
        return Question(people, count, self.height * count, self.error)

    def question(self, people: int, parent: float, share: float) -> Question:
        """The question about a child.

        Args:
            people: how many are asked.
            parent: a lower confidence bound on the parent's holders, from its release.
            share: the share of them that is looked for now.
        """
        finest = self.finest(people)
        wanted = min(people, math.floor(share * parent))
        if wanted <= finest.count:
            return finest
        return Question(people, wanted, self.height * wanted, self.error)

    def looking_for(self, people: int, wanted: float) -> Question:
        """The question that finds so many holders, on a grid of factors sqrt 2 from the finest up.

        Args:
            people: how many are asked.
            wanted: how many holders are looked for; at most half of the people, and the finest
                question for fewer than that finds.
        """
        finest = self.finest(people)
        steps = math.floor(2 * math.log2(max(wanted, 1.0) / finest.count))
        count = min(people // 2, round(finest.count * 2 ** (steps / 2)))
        if steps <= 0 or count <= finest.count:
            return finest
        return Question(people, count, self.height * count, self.error)
