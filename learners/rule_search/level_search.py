"""Rule search by level: all siblings in one vector, so that a rule pays once for each level.

One rule matches one template of each length, and the templates of one question are disjoint: its
answer has the sensitivity of one bit (see :class:`TemplateBits`). The cost of a rule is the sum
over the levels along its one path, at most the sum over all levels, plus one last question about
the complete structures. Privacy is per rule: a client with many rules is not covered as a whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from scipy import stats

from privfed.errors import InputError, NobodyAnswered
from privfed.learners.rule_search.asking import Asking, Found
from privfed.learners.rule_search.estimate import Counts
from privfed.learners.stl.grammar import Symbols

#: Shares of a budget are rounded down to this many units per one, so that their sum is exact.
FINENESS = 10**6
#: Most epsilon of one answer: beyond, randomized response is the truth in all but name.
MOST = 20


@dataclass(frozen=True)
class LevelPlan:
    """How a budget is spread over levels; public, and adapted to earlier releases only.

    More templates in one question cost nothing but work. So the levels only thin the templates out
    to as many as one can handle, with little, and most of the budget goes to the last question.

    Args:
        total: epsilon of one rule, along its whole path.
        threshold: nu.
        levels: most levels.
        confirm: share of the budget kept for the last question, which also gets what is left.
        slack: how many deviations below nu N a template's estimate may lie and still be explored.
        most: most templates of one question; the children of the best ones are asked.
        growth: of the amounts from level to level: deeper templates have fewer holders.
    """

    total: Fraction
    threshold: float
    levels: int
    confirm: Fraction = Fraction(7, 10)
    slack: float = 2.0
    most: int = 5000
    growth: Fraction = Fraction(3, 2)

    def __post_init__(self) -> None:
        if self.levels < 1 or self.most < 1 or not 0 <= self.confirm < 1 or self.growth <= 0:
            raise InputError(
                "a level plan needs levels, templates and growth, and confirm from 0 to below 1"
            )

    @property
    def amounts(self) -> tuple[Fraction, ...]:
        """Epsilon of each level, in geometric progression."""
        weights = [self.growth**level for level in range(self.levels)]
        whole = (1 - self.confirm) * self.total / sum(weights)
        floors = [Fraction(math.floor(whole * w * FINENESS), FINENESS) for w in weights]
        return tuple(min(amount, Fraction(MOST)) for amount in floors)

    @property
    def questions(self) -> tuple[Fraction, ...]:
        """Epsilon of every question of the longest run: each level's, and the last one's."""
        left = self.total - sum(self.amounts)
        return (*self.amounts, min(left, Fraction(MOST)))


@dataclass
class LevelSearch:
    """One run.

    Args:
        asking: whom to ask.
        plan: how to spread the budget.
    """

    asking: Asking
    plan: LevelPlan
    candidates: dict[Symbols, Counts] = field(default_factory=dict)

    def run(self) -> list[Found]:
        """Search level by level, then confirm the complete structures with what is left."""
        plan, left = self.plan, self.plan.total
        frontier: list[tuple[float, Symbols]] = [(0.0, ())]
        try:
            for amount in plan.amounts:
                templates = self._children(frontier)
                if not templates:
                    break
                counts = self.asking.bits(templates, amount)
                left -= amount
                frontier = self._survivors(templates, counts)
            return self._confirmed(left)
        except NobodyAnswered:
            return self._judged({t: c for t, c in self.candidates.items()})

    def _children(self, frontier: list[tuple[float, Symbols]]) -> list[Symbols]:
        """Children of the best templates, as many as fit into one question."""
        templates: list[Symbols] = []
        for _, template in sorted(frontier, reverse=True):
            following = self.asking.grammar.continuations(template)
            if len(templates) + len(following) > self.plan.most:
                break
            templates += following
        return templates

    def _survivors(self, templates: list[Symbols], counts: Counts) -> list[tuple[float, Symbols]]:
        cut = self.plan.threshold * counts.people - self.plan.slack * counts.deviation
        frontier = []
        for place in np.flatnonzero(counts.estimate >= cut):
            template, estimate = templates[place], float(counts.estimate[place])
            if self.asking.grammar.open(template):
                frontier.append((estimate, template))
            else:
                own = Counts(counts.estimate[place : place + 1], counts.deviation, counts.people)
                self.candidates[template] = own
        return frontier

    def _confirmed(self, left: Fraction) -> list[Found]:
        """Ask once more about the complete structures, and weigh both estimates."""
        if not self.candidates or left <= 0:
            return self._judged(self.candidates)
        likely = sorted(self.candidates, key=lambda t: -float(self.candidates[t].estimate[0]))
        templates = sorted(likely[: self.plan.most])
        again = self.asking.bits(templates, min(left, Fraction(MOST)))
        both = {
            template: Counts(
                again.estimate[place : place + 1], again.deviation, again.people
            ).combined(self.candidates[template])
            for place, template in enumerate(templates)
        }
        return self._judged(both)

    def _judged(self, candidates: dict[Symbols, Counts]) -> list[Found]:
        """Keep what is estimated to be valid."""
        return [
            Found(
                template,
                float(counts.estimate[0]) / counts.people,
                counts.deviation / counts.people,
            )
            for template, counts in candidates.items()
            if counts.estimate[0] >= self.plan.threshold * counts.people
        ]


def slack_for(error: float, levels: int) -> float:
    """Deviations below nu N that keep a rule at nu N alive through all levels but for an error."""
    return float(stats.norm.ppf(1 - error / max(1, levels)))


def longest(operators: int) -> int:
    """Symbols of the longest structure with so many operators."""
    return 2 * operators + 1


def deviation(people: int, epsilon: float) -> float:
    """Standard deviation of an estimated count: sqrt(N) / (2 sinh(epsilon / 2))."""
    return math.sqrt(people) / (2 * math.sinh(epsilon / 2))
