"""Rule search by level: all siblings in one vector, so that a rule is charged once per level.

The templates of one query are disjoint, and its answer has the sensitivity of one bit (see
:class:`TemplateBits`): a rule costs the sum over all levels, plus one last query about the complete
structures. Privacy is per rule: a client with many rules is not covered as a whole.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from privfed.errors import InputError, NobodyAnswered
from privfed.learners.rule_search.asking import CohortSession, FoundRule
from privfed.learners.rule_search.estimate import SupportEstimate
from privfed.learners.stl.grammar import Symbols

GRID = 10**6  #: Parts of a budget are rounded down to multiples of 1 / GRID, to add up exactly
MAX_EPSILON = 20  #: Maximum of one answer: above, randomized response is nearly the truth


@dataclass(frozen=True)
class LevelPlan:
    """The allocation of a budget to levels; public, and adapted to earlier releases only.

    More templates in one query cost only work: the levels only reduce their number, and most of the
    budget is for the last query.
    """

    total: Fraction  #: epsilon of one rule, along its whole path
    threshold: float  #: nu
    levels: int  #: maximum number of levels
    #: fraction for the last query, which also gets the remainder
    confirm: Fraction = Fraction(7, 10)
    slack: float = 2.0  #: std below nu N at which a template is still explored
    max_size: int = 5000  #: maximum templates of one query; the best ones' children are queried
    growth: Fraction = Fraction(3, 2)  #: ratio between levels: deeper templates have fewer holders

    def __post_init__(self) -> None:
        if self.levels < 1 or self.max_size < 1 or not 0 <= self.confirm < 1 or self.growth <= 0:
            raise InputError(
                "a level plan needs levels, templates and growth, and confirm from 0 to below 1"
            )

    @property
    def amounts(self) -> tuple[Fraction, ...]:
        """Return epsilon of each level, in geometric progression."""
        weights = [self.growth**level for level in range(self.levels)]
        unit = (1 - self.confirm) * self.total / sum(weights)
        floors = [Fraction(math.floor(unit * w * GRID), GRID) for w in weights]
        return tuple(min(amount, Fraction(MAX_EPSILON)) for amount in floors)

    @property
    def questions(self) -> tuple[Fraction, ...]:
        """Return epsilon of every query of the longest run: each level's, and the last one's."""
        remaining = self.total - sum(self.amounts)
        return (*self.amounts, min(remaining, Fraction(MAX_EPSILON)))


@dataclass
class LevelSearch:
    """One run."""

    session: CohortSession  #: whom to ask
    plan: LevelPlan  #: the allocation of the budget
    candidates: dict[Symbols, SupportEstimate] = field(default_factory=dict)

    def run(self) -> list[FoundRule]:
        """Search level by level, then confirm the complete structures with the remaining budget."""
        plan, remaining = self.plan, self.plan.total
        frontier: list[tuple[float, Symbols]] = [(0.0, ())]
        try:
            for amount in plan.amounts:
                templates = self._children(frontier)
                if not templates:
                    break
                counts = self.session.bits(templates, amount)
                remaining -= amount
                frontier = self._survivors(templates, counts)
            if self.candidates and remaining > 0:
                self._confirm(remaining)
        except NobodyAnswered:
            pass
        return [
            FoundRule.of_count(template, counts.estimate[0], counts.std, counts.people)
            for template, counts in self.candidates.items()
            if counts.estimate[0] >= plan.threshold * counts.people
        ]

    def _children(self, frontier: list[tuple[float, Symbols]]) -> list[Symbols]:
        """Return children of the best templates, as many as fit into one query."""
        templates: list[Symbols] = []
        for _, template in sorted(frontier, reverse=True):
            following = self.session.grammar.continuations(template)
            if len(templates) + len(following) > self.plan.max_size:
                break
            templates += following
        return templates

    def _survivors(
        self, templates: list[Symbols], counts: SupportEstimate
    ) -> list[tuple[float, Symbols]]:
        """Return templates to explore, with their estimates; complete ones become candidates."""
        cut = self.plan.threshold * counts.people - self.plan.slack * counts.std
        frontier = []
        for row in np.flatnonzero(counts.estimate >= cut).tolist():
            template = templates[row]
            if self.session.grammar.open(template):
                frontier.append((float(counts.estimate[row]), template))
            else:
                self.candidates[template] = counts.at(row)
        return frontier

    def _confirm(self, remaining: Fraction) -> None:
        """Query the most probable candidates again, and combine both estimates."""
        known = self.candidates
        likely = sorted(known, key=lambda t: -float(known[t].estimate[0]))
        templates = sorted(likely[: self.plan.max_size])
        again = self.session.bits(templates, min(remaining, Fraction(MAX_EPSILON)))
        self.candidates = {
            template: again.at(row).combined(known[template])
            for row, template in enumerate(templates)
        }
