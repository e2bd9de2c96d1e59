"""The least epsilon of a query, by the exact distribution of its answers.

Of N individuals, c hold a match. Randomized response with truth p = e^eps / (1 + e^eps), q = 1 - p,
gives Y ~ Bin(c, p) + Bin(N - c, q) yes-answers and the estimate (Y - N q) / (p - q) (DP-RuL
equations 2 to 4). A subtree is ignored if its estimate lies below a cut. DP-RuL equation 5 asks for
the least epsilon with P(estimate < nu N | c = nu N) <= theta, but that is about 1/2 at every
epsilon (:func:`published_error`). Here a subtree worth exploring has at least ``count`` holders,
more than the ``cut``; the bound at ``count`` covers all larger subtrees.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

from scipy import stats

from privfed.errors import InputError
from privfed.learners.rule_search.estimate import at_most

STEP, MAX_EPSILON = Fraction(1, 200), 40  #: Grid of epsilons, and the largest one considered; nats


@dataclass(frozen=True)
class Question:
    """A test between subtrees that are worth exploring and those that are not."""

    people: int  #: N, how many are asked
    count: int  #: c*, the fewest holders of a subtree worth exploring
    cut: float  #: a subtree is ignored if its estimate lies below this
    error: float  #: theta, the largest probability of ignoring a subtree worth exploring

    def __post_init__(self) -> None:
        if not 0 < self.error < 1:
            raise InputError("the error theta must lie between 0 and 1; write for example 0.05")
        if not 0 <= self.cut < self.count <= self.people:
            raise InputError(
                "a question needs a margin: cut below count, and count at most the number asked; "
                "at count = cut the error is 1/2 at every epsilon"
            )


def ignoring(people: int, count: int, cut: float, epsilon: float) -> float:
    """P(estimate < cut) if so many hold a match, exactly: P(Y < t) with t = N q + cut (p - q)."""
    if not 0 < epsilon < math.inf:
        raise InputError("epsilon must be a finite number greater than 0")
    flip = 1 / (1 + math.exp(epsilon))
    least_yes = people * flip + cut * (1 - 2 * flip)
    return at_most(math.ceil(least_yes - 1e-9) - 1, count, people, flip)


@lru_cache(maxsize=4096)
def least_epsilon(question: Question, step: Fraction = STEP) -> Fraction:
    """The least epsilon of the grid from which all larger ones keep the error.

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


def published_error(people: int, share: float, epsilon: float) -> float:
    """DP-RuL equation 5 as printed: the truth exactly at the threshold that it is held against."""
    count = round(share * people)
    return ignoring(people, count, count, epsilon)


@dataclass(frozen=True)
class Exploration:
    """When a subtree is worth exploring, and what asking about it costs; public.

    With a share of 0 every query is the finest: the nearest to DP-RuL equation 5 that a margin
    allows. With a share above 0, a child worth exploring *first* holds that share of its parent's
    estimate; the others wait, and are asked about again more sharply.
    """

    threshold: float = 0.01  #: nu, the share of individuals that makes a rule valid
    error: float = 0.05  #: theta, see :class:`Question`
    margin: float = 1.0  #: c* is (1 + margin) nu N at the finest
    share: float = 0.0  #: see above; 0 asks at the finest at once
    #: about the probability of exploring a subtree without holders. The cut lies between 0 and c*
    #: so that both probabilities are kept: a template has a hundred children or more, and if one of
    #: a hundred empty ones were explored, the search would never end
    stray: float = 0.004

    def __post_init__(self) -> None:
        shares = 0 < self.threshold < 1 and 0 <= self.share <= 1 and 0 < self.stray < 0.5
        if not shares or not self.margin > 0 or not 0 < self.error < 0.5:
            raise InputError(
                "exploration needs a min_support between 0 and 1, a margin above 0, a share from 0 "
                "to 1, and an error and a stray probability between 0 and 0.5"
            )

    @cached_property
    def height(self) -> float:
        """Where the cut lies between 0 and c*: z_stray / (z_stray + z_theta)."""
        stray, error = stats.norm.isf(self.stray), stats.norm.isf(self.error)
        return float(stray / (stray + error))

    def finest(self, people: int) -> Question:
        """The sharpest query that is ever asked of so many people."""
        count = min(people, math.ceil((1 + self.margin) * self.threshold * people))
        return Question(people, count, self.height * count, self.error)

    def question(self, people: int, count: float) -> Question:
        """The query that finds so many holders of ``people``; the finest for fewer than it finds."""
        finest, wanted = self.finest(people), min(people, math.floor(count))
        if wanted <= finest.count:
            return finest
        return Question(people, wanted, self.height * wanted, self.error)

    def looking_for(self, people: int, count: float) -> Question:
        """The same on a grid of factors sqrt 2 from the finest up, at most half of the people."""
        finest = self.finest(people)
        steps = math.floor(2 * math.log2(max(count, 1.0) / finest.count))
        rounded = min(people // 2, round(finest.count * 2 ** (steps / 2)))
        return finest if steps <= 0 else self.question(people, rounded)
