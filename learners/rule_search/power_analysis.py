"""Power analysis: epsilon or individuals that finding rules takes, from public numbers alone.

It asks whether the finest query of :class:`Exploration`, which tells (1 + margin) nu N holders from
none, can be asked as often as a search must.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from privfed.learners.rule_search.least_epsilon import Exploration, least_epsilon

#: Most individuals considered.
MAX_PEOPLE = 10**7


@dataclass(frozen=True)
class PowerAnalysis:
    """A planned search of a cohort.

    Args:
        exploration: what is looked for.
        people: N, how many are asked.
        total: epsilon of the whole search.
        part: the fraction of it that one query gets.
    """

    exploration: Exploration
    people: int
    total: Fraction
    part: Fraction

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
