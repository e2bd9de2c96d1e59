"""Templates with "?" anywhere: who holds a rule of such a shape?

A search's own templates are prefixes of a structure in preorder, so that siblings are disjoint. A
template that people write may be open anywhere (``G[?](? -> Hypoglycemia = ?)``); it is asked about
alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.errors import QueryError
from privfed.exchange.disclosure import Disclosure
from privfed.learners.rule_search.asking import offered
from privfed.learners.rule_search.estimate import Counts, counts
from privfed.learners.rule_search.queries import Asked, RuleQuery
from privfed.learners.rule_search.rule_book import RuleBook
from privfed.learners.stl.canonical import matches, pattern
from privfed.learners.stl.formula import Formula, RuleError, show
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.parser import parse
from privfed.questions.part import Bound, Part, PartType, Sensitivity
from privfed.questions.query import View
from privfed.tables.schema import Schema


@dataclass(frozen=True)
class PatternBit(RuleQuery):
    """One bit from each individual: do you hold a rule that matches one template?

    Sensitivity: there is one bit, so that one rule more or less, one in another's place, and other
    rules altogether all move at most one: L1 = 1.

    Args:
        who: whom it asks.
        grammar: digest of the grammar that the rules are of.
        template: as text; see :func:`privfed.learners.stl.canonical.matches`.
    """

    who: Asked
    grammar: str
    template: str
    kind: ClassVar[str] = "rule_search.pattern"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``bits``, shape (1, individuals asked)."""
        self.who.check()
        self._read()
        one = Bound(1, 1)
        shape = (1, self.who.size)
        sensitivity = Sensitivity(one, one, one)
        return {"bits": Part(PartType.BITS, ("template", "individual"), shape, sensitivity)}

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Hold every structure against the template."""
        book = self._book(view)
        return {"bits": holders(book, self._read())[self.asked(len(book))][None]}

    def _read(self) -> Formula:
        try:
            return pattern(parse(self.template))
        except RuleError as error:
            raise QueryError("malformed", f"the template is outside the grammar: {error}") from None


def holders(book: RuleBook, template: Formula) -> np.ndarray:
    """Whether each individual holds a rule that matches, shape (people,)."""
    bits = np.zeros(book.people, dtype=bool)
    for row, symbols in enumerate(book.structures):
        structure = tuple(int(symbol) for symbol in symbols if symbol)
        if matches(template, book.grammar.formula(structure)):
            bits[book.holders[book.starts[row] : book.starts[row + 1]]] = True
    return bits


def ask_pattern(
    federation: Disclosure, grammar: Grammar, *, template: str, people: int, spend: Fraction
) -> Counts:
    """Estimate how many individuals hold a rule that matches a template.

    Args:
        federation: what is asked.
        grammar: the public rule grammar.
        template: as text, ``?`` for whatever is open: a subformula, a variable, a relation, a threshold,
            an interval or an end of it.
        people: how many individuals there are, over all clients.
        spend: epsilon of the question.

    Returns:
        one estimate with its deviation.

    Raises:
        RuleError: the text is outside the grammar.
        NobodyAnswered: nobody offers an answer.
    """
    who = Asked.everybody(people // max(1, len(federation.clients)))
    query = PatternBit(who, grammar.digest, show(parse(template)))
    return counts(offered(federation, query, spend), who.size * len(federation.clients))
