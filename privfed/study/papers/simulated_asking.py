"""A rule search's questions answered by their law alone: fast, for curves over many runs.

What a search sees of a question is the number of yes-answers of n individuals, of whom c hold a
match; under randomized response that number is Bin(c, 1 - q) + Bin(n - c, q), whoever holds what
(DP-RuL Section 3.2). So a simulation may count once for each template and draw two binomial numbers
for each question, where the protocol draws a bit for each individual. There is no gate and no
ledger here: nothing that this class answers is private, and it is fit for simulated populations
alone. Budgets are kept as a gate keeps them: a question is refused, and the search ends, if it
would exceed what is left; a question that was answered at no smaller epsilon is repeated for free.
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
    """How many individuals hold a match of each template, counted once.

    Args:
        book: the population.
    """

    def __init__(self, book: RuleIndex) -> None:
        self.book = book
        self._counts: dict[Symbols, int] = {}

    def count(self, template: Symbols) -> int:
        """Among everybody."""
        if template not in self._counts:
            self._counts[template] = self.book.count(template)
        return self._counts[template]


class SimulatedAsking(CohortSession):
    """Everybody asked in simulation, with one budget that every question draws on.

    It stands for one individual's budget if each question is about one template and goes to
    everybody, or for one rule's if it is about sibling templates.

    Args:
        truths: the population's counts, shared between runs.
        budget: epsilon of all questions together.
        seed: of the answers.
    """

    def __init__(self, truths: Truths, budget: Fraction, seed: int) -> None:
        book = truths.book
        super().__init__(
            ScriptedDisclosure(book.schema, _never_asked, ()), book.grammar, book.people
        )
        self.left, self._truths = budget, truths
        self._rng = np.random.default_rng(seed)
        self._known: dict[tuple[Symbols, ...], tuple[Fraction, SupportEstimate]] = {}

    def bits(
        self, templates: Sequence[Symbols], spend: Fraction | None, who: CohortSample | None = None
    ) -> SupportEstimate:
        """Draw the estimates; see :meth:`CohortSession.bits`.

        Raises:
            InputError: an amount is missing, or the question goes to some only.
            NobodyAnswered: the budget does not allow the question.
        """
        if spend is None or who is not None:
            raise InputError("a simulated question goes to everybody, at a stated epsilon")
        key = tuple(templates)
        cached = self._known.get(key)
        if cached is not None and spend <= cached[0]:
            return cached[1]
        if spend > self.left:
            raise NobodyAnswered("the budget is used up")
        self.left -= spend
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
