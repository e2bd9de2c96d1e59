"""Power analysis: epsilon or individuals that finding rules takes, from public numbers alone."""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy import stats

from privfed.errors import InputError
from privfed.learners.rule_search.least_epsilon import Exploration, least_epsilon

MAX_PEOPLE = 10**7  #: Most individuals considered


@dataclass(frozen=True)
class PowerAnalysis:
    """A planned search of a cohort."""

    exploration: Exploration  #: what is looked for
    people: int  #: N, how many are asked
    total: Fraction  #: epsilon of the whole search
    part: Fraction  #: the fraction of it that one query gets

    @property
    def least_total(self) -> Fraction:
        """The least epsilon of the whole search at which these people are enough."""
        return self._least(self.people) / self.part

    @property
    def enough(self) -> bool:
        """Whether people and epsilon suffice."""
        return self.least_total <= self.total

    def fewest_people(self) -> int | None:
        """How many individuals are enough at this epsilon, within 1 %; None if ten million are not."""
        low, high = 0, self.people
        while not self._affordable(high):
            low, high = high, 2 * high
            if low > MAX_PEOPLE:
                return None
        while high - low > max(1, high // 100):
            middle = (low + high) // 2
            low, high = (low, middle) if self._affordable(middle) else (middle, high)
        return high

    def told(self) -> str:
        """What would be enough, in one line; empty if this is."""
        if self.enough:
            return ""
        people = self.fewest_people()
        also = f", or {people:,} individuals at this one" if people else ""
        return (
            f"epsilon {float(self.total):g} is little for {self.people:,} individuals: to tell rules "
            f"that {percent(self.exploration)} of them hold from noise takes about epsilon "
            f"{math.ceil(self.least_total):,}{also}"
        )

    def _affordable(self, people: int) -> bool:
        return self._least(people) <= self.total * self.part

    def _least(self, people: int) -> Fraction:
        return least_epsilon(self.exploration.finest(people))


def too_few(exploration: Exploration, people: int, enough: int) -> str:
    """The same where only the number of people counts: each is asked once."""
    if people >= enough:
        return ""
    return (
        f"{people:,} individuals are few: to tell rules that {percent(exploration)} of them hold "
        f"from noise takes about {enough:,} at this epsilon"
    )


def percent(exploration: Exploration) -> str:
    """The fraction of holders that is looked for."""
    return f"{min(100.0, 100 * (1 + exploration.margin) * exploration.threshold):.3g} %"


def smallest_part(
    people: int, epsilon: float, threshold: float, margin: float, error: float
) -> int:
    """The fewest individuals of a query that tells (1 + margin) nu from nu.

    The estimate of a share from n individuals drawn at random varies by c (1 - c) / n for the draw
    and 1 / (4 n sinh^2(eps / 2)) for the noise; nu lies z deviations below (1 + margin) nu, or
    below everybody. InputError: not even the whole population is enough.
    """
    share = min(1.0, (1 + margin) * threshold)
    deviations = float(stats.norm.ppf(1 - error))

    def needed(value: float) -> float:
        variance = share * (1 - share) + 1 / (4 * math.sinh(value / 2) ** 2)
        return variance * (deviations / (share - threshold)) ** 2

    if needed(epsilon) <= people:
        return math.ceil(needed(epsilon))
    enough = next((e for e in np.arange(0.05, 40, 0.05) if needed(float(e)) <= people), None)
    hint = f"at least {enough:.2f}" if enough else "more individuals; no epsilon is enough"
    raise InputError(
        f"epsilon {epsilon} is too small for any question to {people} individuals; give {hint}"
    )
