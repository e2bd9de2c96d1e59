"""The minimum epsilon of a query, from the exact distribution of its answers.

Of N individuals, c hold a match. Randomized response with truth p = e^eps / (1 + e^eps), q = 1 - p,
gives Y ~ Bin(c, p) + Bin(N - c, q) yes-answers and the estimate (Y - N q) / (p - q) (DP-RuL
equations 2 to 4). A subtree is ignored if its estimate is below a cut. DP-RuL equation 5 requires
the smallest epsilon with P(estimate < nu N | c = nu N) <= theta, but that is about 1/2 at every
epsilon. Here a subtree worth exploring has at least ``count`` holders, more than the ``cut``; the
bound at ``count`` covers all larger subtrees.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from scipy import stats

from privfed.errors import InputError
from privfed.learners.rule_search.estimate import at_most

STEP, MAX_EPSILON = Fraction(1, 200), 40  #: Grid of epsilons, and the largest one considered; nats


@dataclass(frozen=True)
class Question:
    """A test for subtrees that are worth exploring."""

    people: int  #: N, how many are asked
    count: int  #: c*, minimum holders of a subtree worth exploring
    cut: float  #: a subtree is ignored if its estimate is below this
    error: float  #: theta, maximum probability of ignoring a subtree worth exploring

    def __post_init__(self) -> None:
        if not 0 < self.error < 1:
            raise InputError("the error theta must lie between 0 and 1; write for example 0.05")
        if not 0 <= self.cut < self.count <= self.people:
            raise InputError(
                "a question needs a margin: cut below count, and count at most the number asked; "
                "at count = cut the error is 1/2 at every epsilon"
            )


def ignoring(people: int, count: int, cut: float, epsilon: float) -> float:
    """Return the exact P(estimate < cut) with ``count`` holders: P(Y < t) with t = N q + cut (p - q)."""
    if not 0 < epsilon < math.inf:
        raise InputError("epsilon must be a finite number greater than 0")
    flip = 1 / (1 + math.exp(epsilon))
    min_yes = people * flip + cut * (1 - 2 * flip)
    return at_most(math.ceil(min_yes - 1e-9) - 1, count, people, flip)


@lru_cache(maxsize=4096)
def least_epsilon(question: Question, step: Fraction = STEP) -> Fraction:
    """Return the smallest epsilon of the grid from which all larger ones keep the error.

    The error is not monotone in epsilon (counts are integers): the search walks down from twice the
    normal approximation 2 asinh(z sqrt(N) / (2 (c* - cut))). InputError: no epsilon up to
    ``MAX_EPSILON``.
    """
    guess = 2 * math.asinh(
        max(stats.norm.ppf(1 - question.error), 0.0)
        * math.sqrt(question.people)
        / (2 * (question.count - question.cut))
    )
    top = min(MAX_EPSILON, 2 * guess + 10 * float(step))
    steps = math.ceil(top / float(step))
    if not _keeps(question, steps * step):
        steps = math.ceil(MAX_EPSILON / float(step))
        if not _keeps(question, steps * step):
            raise InputError(f"no epsilon up to {MAX_EPSILON} keeps the error; widen the margin")
    while steps > 1 and _keeps(question, (steps - 1) * step):
        steps -= 1
    return steps * step


def _keeps(question: Question, epsilon: Fraction) -> bool:
    error = ignoring(question.people, question.count, question.cut, float(epsilon))
    return error <= question.error


@dataclass(frozen=True)
class Exploration:
    """When a subtree is worth exploring, and the cost of querying it; public.

    With a share of 0 every query is the finest, the closest to DP-RuL equation 5 that a margin
    allows. With a share above 0, a child worth exploring *first* has that fraction of its parent's
    estimate; the others are queried again later at a larger epsilon.
    """

    threshold: float = 0.01  #: nu, minimum fraction of individuals for a valid rule
    error: float = 0.05  #: theta, see :class:`Question`
    margin: float = 1.0  #: c* is (1 + margin) nu N at the finest
    share: float = 0.0  #: see above; 0: finest queries at once
    #: approximate probability of exploring a subtree without holders. The cut is between 0 and c*
    #: so that both probabilities are kept: a template has a hundred children or more, and if one of
    #: a hundred empty ones were explored, the search would never end
    stray: float = 0.004

    def __post_init__(self) -> None:
        in_range = 0 < self.threshold < 1 and 0 <= self.share <= 1 and 0 < self.stray < 0.5
        if not in_range or not self.margin > 0 or not 0 < self.error < 0.5:
            raise InputError(
                "exploration needs a min_support between 0 and 1, a margin above 0, a share from 0 "
                "to 1, and an error and a stray probability between 0 and 0.5"
            )

    @cached_property
    def height(self) -> float:
        """The cut as a fraction of c*: z_stray / (z_stray + z_theta)."""
        stray, error = stats.norm.isf(self.stray), stats.norm.isf(self.error)
        return float(stray / (stray + error))

    def finest(self, people: int) -> Question:
        """Return the query with the largest epsilon for ``people`` individuals."""
        count = min(people, math.ceil((1 + self.margin) * self.threshold * people))
        return Question(people, count, self.height * count, self.error)

    def question(self, people: int, count: float) -> Question:
        """Return the query that finds ``count`` holders of ``people``, at most the finest."""
        finest, target = self.finest(people), min(people, math.floor(count))
        if target <= finest.count:
            return finest
        return Question(people, target, self.height * target, self.error)

    def looking_for(self, people: int, count: float) -> Question:
        """Return the same on a grid of factors sqrt 2 from the finest up, at most half of the people."""
        finest = self.finest(people)
        steps = math.floor(2 * math.log2(max(count, 1.0) / finest.count))
        rounded = min(people // 2, round(finest.count * 2 ** (steps / 2)))
        return finest if steps <= 0 else self.question(people, rounded)


# --- power analysis: epsilon or individuals required to find rules, from public numbers only

MAX_PEOPLE = 10**7  #: Maximum individuals considered


@dataclass(frozen=True)
class PowerAnalysis:
    """A planned search of a cohort."""

    exploration: Exploration  #: the rules to find
    people: int  #: N, how many are asked
    total: Fraction  #: epsilon of the whole search
    part: Fraction  #: fraction of it for one query

    @property
    def least_total(self) -> Fraction:
        """Return the smallest epsilon of the whole search at which these people suffice."""
        return self._required(self.people) / self.part

    @property
    def enough(self) -> bool:
        """Whether people and epsilon suffice."""
        return self.least_total <= self.total

    def fewest_people(self) -> int | None:
        """Return how many individuals suffice at this epsilon, within 1 %; None if ten million do not."""
        low, high = 0, self.people
        while not self._affordable(high):
            low, high = high, 2 * high
            if low > MAX_PEOPLE:
                return None
        while high - low > max(1, high // 100):
            middle = (low + high) // 2
            low, high = (low, middle) if self._affordable(middle) else (middle, high)
        return high

    def advice(self) -> str:
        """Return in one line what would suffice; empty if the plan does."""
        if self.enough:
            return ""
        people = self.fewest_people()
        alternative = f", or {people:,} individuals at this one" if people else ""
        return (
            f"epsilon {float(self.total):g} is small for {self.people:,} individuals: telling rules "
            f"that {percent(self.exploration)} of them hold from noise takes about epsilon "
            f"{math.ceil(self.least_total):,}{alternative}"
        )

    def _affordable(self, people: int) -> bool:
        return self._required(people) <= self.total * self.part

    def _required(self, people: int) -> Fraction:
        return least_epsilon(self.exploration.finest(people))


def too_few(exploration: Exploration, people: int, required: int) -> str:
    """Return the same if only the number of people matters, as each is queried once."""
    if people >= required:
        return ""
    return (
        f"{people:,} individuals are few: telling rules that {percent(exploration)} of them hold "
        f"from noise takes about {required:,} at this epsilon"
    )


def percent(exploration: Exploration) -> str:
    """Format the fraction of holders to find."""
    return f"{min(100.0, 100 * (1 + exploration.margin) * exploration.threshold):.3g} %"


def smallest_part(
    people: int, epsilon: float, threshold: float, margin: float, error: float
) -> int:
    """Return the minimum individuals of a query that distinguishes (1 + margin) nu from nu.

    The estimate of a fraction from n random individuals has variance c (1 - c) / n from sampling
    plus 1 / (4 n sinh^2(eps / 2)) from noise; nu is z standard deviations below (1 + margin) nu, or
    below everybody. InputError: not even the whole population suffices.
    """
    fraction = min(1.0, (1 + margin) * threshold)
    quantile = float(stats.norm.ppf(1 - error))

    def needed(value: float) -> float:
        variance = fraction * (1 - fraction) + 1 / (4 * math.sinh(value / 2) ** 2)
        return variance * (quantile / (fraction - threshold)) ** 2

    if needed(epsilon) <= people:
        return math.ceil(needed(epsilon))
    sufficient = next((e for e in np.arange(0.05, 40, 0.05) if needed(float(e)) <= people), None)
    hint = f"at least {sufficient:.2f}" if sufficient else "more individuals; no epsilon is enough"
    raise InputError(
        f"epsilon {epsilon} is too small for any question to {people} individuals; give {hint}"
    )
