"""The front of all rule searches: one name, and the strategy as a parameter."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, ClassVar, Literal

from privfed.learners.parameters import Constraints, OneOf
from privfed.learners.rule_search.asking import Asking, Found
from privfed.learners.rule_search.estimators import (
    LevelRuleSearch,
    PartRuleSearch,
    SampledRuleSearch,
    TreeRuleSearch,
)
from privfed.learners.rule_search.patterns import PatternBit
from privfed.learners.rule_search.queries import (
    Asked,
    Encoding,
    HashedRule,
    Parameters,
    SampledRule,
    TemplateBits,
)
from privfed.learners.rule_search.rule_learner import RuleLearner
from privfed.learners.stl.grammar import Grammar
from privfed.questions.exact import Number
from privfed.questions.part import Unit
from privfed.questions.query import Query
from privfed.tables.schema import Schema

Strategy = Literal["equal", "adaptive", "uct", "levels", "parts", "sampled"]
#: Which search each strategy is, and with which parameters of its own.
STRATEGIES: dict[str, tuple[type[RuleLearner], dict[str, Any]]] = {
    "equal": (TreeRuleSearch, {"order": "equal"}),
    "adaptive": (TreeRuleSearch, {"order": "best-first"}),
    "uct": (TreeRuleSearch, {"order": "uct"}),
    "levels": (LevelRuleSearch, {}),
    "parts": (PartRuleSearch, {}),
    "sampled": (SampledRuleSearch, {}),
}
#: What the parameters of all searches together may be; the order is the strategy's.
_OF_ALL: Constraints = {
    name: allowed
    for search, own in STRATEGIES.values()
    for name, allowed in search._parameter_constraints.items()
    if name not in own
}


@dataclass(kw_only=True, eq=False, repr=False)
class RuleSearch(RuleLearner):
    """Finds the rules that a share of the individuals hold (DP-RuL), by one of six strategies.

    ``equal``, ``uct`` and ``adaptive`` are :class:`TreeRuleSearch` in the order ``equal``, ``uct``
    and ``best-first``; ``levels`` is :class:`LevelRuleSearch`, ``parts`` :class:`PartRuleSearch` and
    ``sampled`` :class:`SampledRuleSearch`. Parameters are theirs, and each strategy uses its own;
    ``built`` gives the search itself.
    """

    strategy: Strategy = field(default="levels", kw_only=False)
    error: float = 0.05
    margin: float = 1.0
    share: float = 0.0
    constant: float | None = None
    expected: int = 400
    questions: int = 1000
    levels: int = 5
    confirm: Number = "0.7"
    most_templates: int = 5000
    slots: int = 128
    encoding: Encoding = "unary"
    most_questions: int | None = None
    seed: int = 0

    queries: ClassVar[tuple[type[Query], ...]] = (
        TemplateBits,
        PatternBit,
        SampledRule,
        HashedRule,
        Parameters,
    )
    _parameter_constraints: ClassVar[Constraints] = {
        "strategy": [OneOf(*STRATEGIES)],
        **_OF_ALL,
    }

    def built(self) -> RuleLearner:
        """The strategy's search, with these parameters."""
        search, own = STRATEGIES[self.strategy]
        mine = {one.name for one in fields(self)}
        shared = [one.name for one in fields(search) if one.name in mine]
        return search(**{name: getattr(self, name) for name in shared}, **own)

    def check_parameters(self) -> None:
        """See the base; the strategy's own checks as well."""
        super().check_parameters()
        self.built().check_parameters()

    @property
    def unit(self) -> Unit:
        """The strategy's."""
        return self.built().unit

    @property
    def decides(self) -> bool:
        """The strategy's."""
        return self.built().decides

    def search(self, asking: Asking) -> list[Found]:
        """The strategy's."""
        return self.built().search(asking)

    def spends(self) -> list[tuple[int, Fraction]]:
        """The strategy's."""
        return self.built().spends()

    def question(self, who: Asked, grammar: Grammar) -> Query:
        """The strategy's."""
        return self.built().question(who, grammar)

    def outlook(self, schema: Schema, people: int) -> str:
        """The strategy's."""
        self.check_parameters()
        return self.built().outlook(schema, people)

    def readable(self) -> dict[str, Any]:
        """The strategy, and the rules as text with their estimated shares."""
        return {"strategy": self.strategy, **super().readable()}
