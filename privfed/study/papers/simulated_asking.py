"""Simulated answers to a rule search's queries, drawn from their distribution: fast, for many runs.

A search sees of each query the number of yes-answers of n individuals, of whom c hold a match; under
randomized response it is Bin(c, 1 - q) + Bin(n - c, q), regardless of who they are (DP-RuL Section
3.2). So a simulation counts each template once and draws two binomial numbers per query, where the
protocol draws a bit per individual. There is no gate and no ledger: the answers are not private, and
only simulated populations are suitable. Budgets are enforced as by a gate: a query that exceeds the
remaining budget is refused, and the search ends; one answered before at no smaller epsilon is free.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from privfed.errors import InputError, NobodyAnswered
from privfed.exchange.disclosure import ScriptedDisclosure
from privfed.learners.rule_search.asking import CohortSession, SearchStep
from privfed.learners.rule_search.estimate import SupportEstimate
from privfed.learners.rule_search.queries import CohortSample
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.grammar import Symbols
from privfed.mechanisms.randomized_response import flip_probability
from privfed.questions.query import Query


class Truths:
    """Number of individuals with a match of each template, counted once.

    Args:
        book: the population.
    """

    def __init__(self, book: RuleIndex) -> None:
        self.book = book
        self._counts: dict[Symbols, int] = {}

    def count(self, template: Symbols) -> int:
        """Return the number in the whole population."""
        if template not in self._counts:
            self._counts[template] = self.book.count(template)
        return self._counts[template]


class SimulatedAsking(CohortSession):
    """A simulated session with the whole population, and one budget for all queries.

    It is one individual's budget if each query is about one template and goes to the whole
    population, or one rule's if it is about sibling templates.

    Args:
        truths: the population's counts, shared between runs.
        budget: total epsilon of all queries.
        seed: of the answers.
    """

    def __init__(self, truths: Truths, budget: Fraction, seed: int) -> None:
        book = truths.book
        super().__init__(
            ScriptedDisclosure(book.schema, _never_asked, ()), book.grammar, book.people
        )
        self.remaining, self._truths = budget, truths
        self._rng = np.random.default_rng(seed)
        self._known: dict[tuple[Symbols, ...], tuple[Fraction, SupportEstimate]] = {}

    def bits(
        self, templates: Sequence[Symbols], spend: Fraction | None, who: CohortSample | None = None
    ) -> SupportEstimate:
        """Draw the estimates; see :meth:`CohortSession.bits`.

        Raises:
            InputError: an amount is missing, or the query goes to a sample only.
            NobodyAnswered: the query exceeds the remaining budget.
        """
        if spend is None or who is not None:
            raise InputError("a simulated question goes to everybody, at a stated epsilon")
        key = tuple(templates)
        cached = self._known.get(key)
        if cached is not None and spend <= cached[0]:
            return cached[1]
        if spend > self.remaining:
            raise NobodyAnswered("the budget is used up")
        self.remaining -= spend
        counts = self._draw(templates, float(flip_probability(spend)))
        self._known[key] = (spend, counts)
        self.steps.append(
            SearchStep(len(templates), counts.people, float(spend), float(counts.estimate[0]))
        )
        return counts

    def _draw(self, templates: Sequence[Symbols], flip: float) -> SupportEstimate:
        people = self.people
        holders = np.array([self._truths.count(template) for template in templates])
        yes = self._rng.binomial(holders, 1 - flip) + self._rng.binomial(people - holders, flip)
        scale = 1 - 2 * flip
        std = float(np.sqrt(people * flip * (1 - flip)) / scale)
        return SupportEstimate(np.asarray((yes - people * flip) / scale), std, people)


def _never_asked(client: str, query: Query) -> Mapping[str, np.ndarray]:
    raise InputError("a simulated federation is never asked: its answers are drawn")
