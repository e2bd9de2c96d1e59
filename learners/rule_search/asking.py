"""State of all searches: the cohort, the queries so far, and the structures found."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Self

import numpy as np

from privfed.errors import NobodyAnswered
from privfed.exchange.disclosure import Answer, Disclosure
from privfed.learners.rule_search.estimate import SupportEstimate, counts, mean_error, percentile
from privfed.learners.rule_search.queries import CohortSample, Parameters, TemplateBits
from privfed.learners.stl.grammar import Grammar, Symbols
from privfed.questions.query import Query


@dataclass(frozen=True)
class FoundRule:
    """A complete structure that a search lists."""

    structure: Symbols  #: the structure
    share: float  #: estimated fraction of individuals who hold it
    std: float  #: standard deviation of that estimate

    @classmethod
    def of_count(cls, structure: Symbols, holders: float, std: float, people: int) -> Self:
        """Build from an estimated number of holders among ``people``."""
        return cls(structure, float(holders) / people, float(std) / people)


@dataclass(frozen=True)
class SearchStep:
    """One query of a search, for its curves; public."""

    templates: int
    asked: int
    epsilon: float
    estimate: float


@dataclass
class CohortSession:
    """A federation of individuals with rules over one grammar, and the queries so far."""

    federation: Disclosure  #: the federation to query
    grammar: Grammar  #: the public rule grammar
    people: int  #: number of individuals
    steps: list[SearchStep] = field(default_factory=list)

    @property
    def everybody(self) -> CohortSample:
        """Return every individual of every client."""
        return CohortSample.everybody(self.people // max(1, len(self.federation.clients)))

    def bits(
        self, templates: Sequence[Symbols], spend: Fraction | None, who: CohortSample | None = None
    ) -> SupportEstimate:
        """Estimate the holders of sibling templates; NobodyAnswered ends the search."""
        sample = who or self.everybody
        query = TemplateBits(sample, self.grammar.digest, tuple(templates))
        answer = ask_offering(self.federation, query, spend)
        return self.record(counts(answer, sample.size * len(self.federation.clients)), spend)

    def record(self, result: SupportEstimate, spend: Fraction | None) -> SupportEstimate:
        """Record a query among the steps."""
        number, first = len(result.estimate), float(result.estimate[0])
        self.steps.append(SearchStep(number, result.people, float(spend or 0), first))
        return result

    def parameters(
        self, rules: Sequence[FoundRule], spend: Fraction, percent: float
    ) -> list[tuple[list[float], float]]:
        """Query once all structures' parameters; return a percentile of each, in preorder, and :func:`mean_error`."""
        ranges = [self.grammar.ranges(rule.structure) for rule in rules]
        structures, widths = tuple(rule.structure for rule in rules), tuple(map(len, ranges))
        query = Parameters(self.everybody, self.grammar.digest, structures, widths)
        answer = ask_offering(self.federation, query, spend)
        parts = [release.parts["values"] for release in answer.releases.values()]
        rows = iter(np.concatenate([part.units * float(part.grid) for part in parts], axis=1))
        scale = max(
            (part.noise.parameter * float(part.grid) for part in parts if part.noise), default=0.0
        )
        # A mixture's weight is above 0 and at most 1.
        fractions = [float(np.clip(rule.share, 1e-4, 1.0)) for rule in rules]
        people = sum(part.units.shape[1] for part in parts)
        return [
            (
                [
                    low + (high - low) * percentile(next(rows), max(scale, 1e-6), fraction, percent)
                    for low, high in limits
                ],
                mean_error(scale, fraction, people),
            )
            for limits, fraction in zip(ranges, fractions, strict=True)
        ]


def ask_offering(federation: Disclosure, query: Query, spend: Fraction | None) -> Answer:
    """Query all clients that offer an answer (NobodyAnswered: none does, by public state only)."""
    answer = federation.ask_offered(query, spend=spend).only
    if not answer.releases:
        raise NobodyAnswered(f"nobody answers {query.kind} any more")
    return answer
