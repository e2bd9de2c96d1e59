"""What all searches share: whom they ask, what they know, and what they find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from privfed.errors import NobodyAnswered
from privfed.exchange.disclosure import Answer, Disclosure
from privfed.learners.rule_search.estimate import Counts, counts
from privfed.learners.rule_search.queries import Asked, TemplateBits
from privfed.learners.stl.grammar import Grammar, Symbols
from privfed.questions.query import Query


@dataclass(frozen=True)
class Found:
    """A complete structure that a search believes in.

    Args:
        structure: what was found.
        share: estimated share of individuals that hold it.
        deviation: standard deviation of that estimate.
    """

    structure: Symbols
    share: float
    deviation: float


@dataclass(frozen=True)
class Step:
    """One question of a search, for its curves: all of it is public."""

    templates: int
    asked: int
    epsilon: float
    estimate: float


@dataclass
class Asking:
    """A federation of individuals with rules over one grammar, and the questions so far.

    Args:
        federation: what is asked.
        grammar: the public rule grammar.
        people: how many individuals there are.
    """

    federation: Disclosure
    grammar: Grammar
    people: int
    steps: list[Step] = field(default_factory=list)

    def bits(
        self, templates: Sequence[Symbols], spend: Fraction | None, who: Asked | None = None
    ) -> Counts:
        """Ask for the holders of sibling templates.

        Raises:
            NobodyAnswered: nobody offers an answer, by public state alone: the search ends.
            AnswerError: somebody answered twice or not at all.
        """
        whom = who or Asked.everybody(self.people // max(1, len(self.federation.clients)))
        query = TemplateBits(whom, self.grammar.digest, tuple(templates))
        answer = offered(self.federation, query, spend)
        found = counts(answer, whom.size * len(self.federation.clients))
        first = float(found.estimate[0])
        self.steps.append(Step(len(templates), found.people, float(spend or 0), first))
        return found


def offered(federation: Disclosure, query: Query, spend: Fraction | None) -> Answer:
    """Ask whoever offers an answer.

    Raises:
        NobodyAnswered: nobody does, by public state alone.
    """
    answer = federation.ask_offered(query, spend=spend).only
    if not answer.releases:
        raise NobodyAnswered(f"nobody answers {query.kind} any more")
    return answer
