"""Queries of single templates with "?" anywhere (``G[?](? -> Hypoglycemia = ?)``).

A search's own templates are prefixes of a structure in preorder, so that siblings are disjoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from privfed.errors import QueryError
from privfed.exchange.disclosure import Disclosure
from privfed.learners.rule_search.asking import ask_offering
from privfed.learners.rule_search.estimate import SupportEstimate, counts
from privfed.learners.rule_search.queries import CohortSample, RuleQuery
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.canonical import matches, pattern
from privfed.learners.stl.formula import Formula, RuleError, show
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.parser import parse
from privfed.questions.part import Part
from privfed.questions.query import View
from privfed.tables.schema import Schema


@dataclass(frozen=True)
class PatternBit(RuleQuery):
    """One bit from each individual: do you hold a rule that matches one template?

    Sensitivity: one bit changes by at most one, for any change of rules: L1 = 1.
    """

    who: CohortSample  #: the individuals queried
    grammar: str  #: digest of the rules' grammar
    template: str  #: as text; see :func:`privfed.learners.stl.canonical.matches`
    kind: ClassVar[str] = "rule_search.pattern"

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """``bits``, shape (1, individuals asked)."""
        self._read()
        return self._bits(1, "template", 1, 1, 1)

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Match every structure with the template."""
        index = self._rule_index(view)
        return {"bits": holders(index, self._read())[self.asked(len(index))][None]}

    def _read(self) -> Formula:
        try:
            return pattern(parse(self.template))
        except RuleError as error:
            raise QueryError("malformed", f"the template is outside the grammar: {error}") from None


def holders(index: RuleIndex, template: Formula) -> np.ndarray:
    """Return whether each individual holds a matching rule, shape (people,)."""
    bits = np.zeros(index.people, dtype=bool)
    for row in range(len(index.structures)):
        if matches(template, index.grammar.formula(index.structure(row))):
            bits[index.held_by(row)] = True
    return bits


def ask_pattern(
    federation: Disclosure, grammar: Grammar, *, template: str, people: int, spend: Fraction
) -> SupportEstimate:
    """Estimate how many of ``people`` individuals hold a rule that matches a template.

    ``?`` is an open subformula, variable, relation, threshold, interval or end of one. RuleError:
    the text is outside the grammar; NobodyAnswered: no client offers an answer.
    """
    who = CohortSample.everybody(people // max(1, len(federation.clients)))
    query = PatternBit(who, grammar.digest, show(parse(template)))
    return counts(ask_offering(federation, query, spend), who.size * len(federation.clients))
