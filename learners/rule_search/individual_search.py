"""Rule search with privacy for whole individuals: ask each of them rarely.

A query to everybody costs everybody; a query to a fresh random part of the population costs that
part alone, which can then afford a large epsilon. What limits it is the number of people: of n who
are asked, about nu n hold a rule at the threshold, and they must stand out from chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy import stats

from privfed.errors import InputError, NobodyAnswered
from privfed.learners.rule_search.asking import CohortSession, FoundRule, offered
from privfed.learners.rule_search.estimate import SupportEstimate, counts, hashed_counts
from privfed.learners.rule_search.queries import CohortSample, Encoding, HashedRule, SampledRule
from privfed.learners.stl.grammar import Symbols


def smallest_part(
    people: int, epsilon: float, threshold: float, margin: float, error: float
) -> int:
    """The fewest individuals of a query that tells (1 + margin) nu from nu.

    The estimate of a share from n individuals drawn at random varies by c (1 - c) / n for the draw
    and 1 / (4 n sinh^2(eps / 2)) for the noise; nu lies z deviations below (1 + margin) nu, or
    below everybody where that would be more.

    Raises:
        InputError: not even the whole population is enough; the message says which epsilon is.
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


@dataclass
class SampledSearch:
    """A frequency oracle for each level: a fresh part of the people, one sampled rule each.

    Args:
        asking: whom to ask.
        total: epsilon of an individual, all spent on its one answer.
        threshold: nu.
        levels: how many levels, and parts of the population.
        slots: places from which an individual draws one rule: its largest number of rules.
        most: most templates of one query.
        seed: draws the public order of the individuals.
        encoding: of an answer, ``unary`` (a bit for each template) or ``hashed`` (one bit, and more
            noise above epsilon 1 or so; see :mod:`.estimate`).
    """

    asking: CohortSession
    total: Fraction
    threshold: float
    levels: int
    slots: int
    most: int = 2000
    seed: int = 0
    encoding: Encoding = "unary"

    def run(self) -> list[FoundRule]:
        """Search level by level; estimates are of matching rules, not of their holders."""
        grammar = self.asking.grammar
        frontier: list[Symbols] = [()]
        found: list[FoundRule] = []
        size = self.asking.people // self.levels
        for level in range(self.levels):
            templates = [t for f in frontier for t in grammar.continuations(f)][: self.most]
            if not templates:
                break
            try:
                result = self._ask(templates, level * size, (level + 1) * size)
            except NobodyAnswered:
                break
            std = result.deviation
            cut = max(self.threshold, 1.645 * std / size) * size
            rows = zip(templates, result.estimate, strict=True)
            kept = [(template, holders) for template, holders in rows if holders >= cut]
            frontier = [template for template, _ in kept if grammar.open(template)]
            found += [FoundRule.of_count(t, c, std, size) for t, c in kept if not grammar.open(t)]
        return found

    def _ask(self, templates: list[Symbols], first: int, last: int) -> SupportEstimate:
        """Scale by the number of slots, for a rule is sampled with probability 1 / slots."""
        asking, hashed = self.asking, self.encoding == "hashed"
        who = CohortSample(asking.people, first, last, self.seed + 1)
        kind: type[SampledRule | HashedRule] = HashedRule if hashed else SampledRule
        query = kind(who, asking.grammar.digest, tuple(templates), self.slots)
        answer = offered(asking.federation, query, self.total)
        result = asking.noted(
            hashed_counts(answer) if hashed else counts(answer, who.size), self.total
        )
        return SupportEstimate(
            result.estimate * self.slots, result.deviation * self.slots, result.people
        )
