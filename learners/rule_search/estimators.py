"""The rule searches: by tree, by level, by parts of the individuals, by sampled rules (DP-RuL)."""

import math
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, ClassVar, Literal, get_args

from privfed.errors import InputError, NobodyAnswered
from privfed.learners.parameters import Constraints, Exact, Integers, Reals, StrOptions
from privfed.learners.rule_search.asking import CohortSession, FoundRule, ask_offering
from privfed.learners.rule_search.best_first import BestFirst
from privfed.learners.rule_search.estimate import SupportEstimate, counts, hashed_counts
from privfed.learners.rule_search.least_epsilon import (
    Exploration,
    PowerAnalysis,
    Question,
    least_epsilon,
    smallest_part,
    too_few,
)
from privfed.learners.rule_search.level_search import LevelPlan, LevelSearch
from privfed.learners.rule_search.patterns import PatternBit
from privfed.learners.rule_search.queries import (
    CohortSample,
    Encoding,
    HashedRule,
    Parameters,
    SampledRule,
    TemplateBits,
)
from privfed.learners.rule_search.rule_learner import ATOM, SHARED, RuleLearner
from privfed.learners.rule_search.settings import SearchSettings
from privfed.learners.rule_search.tree_search import Adaptive, Equal, TreeSearch, symbols_of
from privfed.learners.stl.grammar import Grammar, Symbols
from privfed.questions.exact import Number, exact
from privfed.questions.part import Unit
from privfed.questions.query import Query
from privfed.tables.schema import Schema

Order = Literal["best-first", "uct", "equal"]  #: Best first, or UCT at minimum or equal epsilons
UCT_CONSTANT = 0.1  #: C of ``uct`` if ``exploration_weight`` is None; see docs/tuning.md


@dataclass(kw_only=True, eq=False, repr=False)
class _HolderSearch(RuleLearner):
    queries: ClassVar[tuple[type[Query], ...]] = (TemplateBits, PatternBit, Parameters)

    def question(self, who: CohortSample, grammar: Grammar) -> Query:
        """Return the query of one bit for the first template."""
        return TemplateBits(who, grammar.digest, (ATOM,))


@dataclass(kw_only=True, eq=False, repr=False)
class _TreeSearch(_HolderSearch):
    """Base class of tree searches, one template at a time, which protect individuals."""

    error: float = 0.05
    margin: float = 1.0
    max_queries: int | None = None
    random_state: int = 0

    unit: ClassVar[Unit] = "individual"
    _parameter_constraints: ClassVar[Constraints] = {
        **SHARED,
        "error": [Reals(above=0, below=0.5)],
        "margin": [Reals(above=0)],
        "max_queries": [Integers(at_least=1), None],
        "random_state": [Integers(at_least=0)],
    }

    def check_parameters(self) -> None:
        """See the base; searches above the threshold need room above it."""
        super().check_parameters()
        self._exploration()

    def _exploration(self) -> Exploration:
        return Exploration(self.min_support, self.error, self.margin)


@dataclass(kw_only=True, eq=False, repr=False)
class TreeRuleSearch(_TreeSearch):
    """Searches the tree of templates, one query to everybody at a time; protects whole individuals.

    ``uct`` and ``equal`` are the published protocol: selection by UCT, each query at the smallest
    required or an equal epsilon. ``best-first`` queries the largest predicted support. ``error`` is
    theta, the maximum probability of wrongly ignoring a subtree (not ``equal``); one worth
    exploring has (1 + ``margin``) nu N holders; for ``share`` see :class:`Exploration`.
    ``exploration_weight`` is C of equation 1 (None: sqrt 2 for ``equal``, 0.1 for ``uct``),
    ``expected`` a prior number of valid rules (``best-first``), ``questions`` is Q of ``equal`` and
    the minimum number of first queries of ``best-first``, ``random_state`` the seed of the public
    order of children. For the others see :class:`RuleLearner`.
    """

    order: Order = "best-first"
    share: float = 0.0
    exploration_weight: float | None = None
    expected: int = 400
    questions: int = 1000

    _parameter_constraints: ClassVar[Constraints] = {
        **_TreeSearch._parameter_constraints,
        "order": [StrOptions(*get_args(Order))],
        "share": [Reals(at_least=0, at_most=1)],
        "exploration_weight": [Reals(at_least=0), None],
        "expected": [Integers(at_least=0)],
        "questions": [Integers(at_least=1)],
    }

    def check_parameters(self) -> None:
        """See the base; equal shares search at the threshold itself."""
        (RuleLearner if self.order == "equal" else _TreeSearch).check_parameters(self)

    def _exploration(self) -> Exploration:
        return Exploration(self.min_support, self.error, self.margin, self.share)

    def search(self, session: CohortSession) -> list[FoundRule]:
        """See the base."""
        search = self._best_first(session) if self.order == "best-first" else self._uct(session)
        return search.run(self.max_queries)

    def _best_first(self, session: CohortSession) -> BestFirst:
        exploration = self._exploration()
        self._check_affordable(exploration.looking_for(session.people, session.people))
        settings = SearchSettings(spread=self.questions, expected=self.expected)
        return BestFirst(session, exploration, self._total, settings)

    def _uct(self, session: CohortSession) -> TreeSearch:
        allocation: Equal | Adaptive = self._equal()
        default = math.sqrt(2)
        if self.order == "uct":
            exploration, people = self._exploration(), session.people
            self._check_affordable(exploration.question(people, self.share * people))
            allocation, default = Adaptive(exploration), UCT_CONSTANT
        constant = default if self.exploration_weight is None else self.exploration_weight
        return TreeSearch(session, allocation, constant, seed=self.random_state, total=self._total)

    def _equal(self) -> Equal:
        return Equal(self._total, self.questions, self.min_support)

    def _check_affordable(self, question: Question) -> None:
        required = least_epsilon(question)
        if required > self._total:
            raise InputError(
                f"epsilon {float(self._total)} is too small for any question to {question.people} "
                f"individuals; the least is {float(required)}"
            )

    @property
    def decides(self) -> bool:
        """Whether the number of queries is chosen; only equal shares fix it."""
        return self.order != "equal"

    def spends(self) -> list[tuple[int, Fraction]]:
        """Return equal shares, or the total."""
        return [(1, self._total)] if self.decides else [(self.questions, self._equal().share)]

    def _outlook(self, schema: Schema, people: int) -> str:
        parts = symbols_of(self.grammar(schema)) if self.decides else self.questions
        return PowerAnalysis(self._exploration(), people, self._total, Fraction(1, parts)).advice()


@dataclass(kw_only=True, eq=False, repr=False)
class LevelRuleSearch(_HolderSearch):
    """Asks about all sibling templates of a level in one vector of bits; protects single rules.

    ``levels`` is the maximum symbols of a rule, ``confirm`` the last query's fraction of epsilon,
    ``max_templates`` the maximum of one query. For the others see :class:`RuleLearner`.
    """

    levels: int = 5
    confirm: Number = "0.7"
    max_templates: int = 5000

    unit: ClassVar[Unit] = "rule"
    decides: ClassVar[bool] = False
    _parameter_constraints: ClassVar[Constraints] = {
        **SHARED,
        "levels": [Integers(at_least=1)],
        "confirm": [Exact(at_least=0, below=1)],
        "max_templates": [Integers(at_least=1)],
    }

    def question(self, who: CohortSample, grammar: Grammar) -> Query:
        """Return a query of two templates, as there may be more than one."""
        return TemplateBits(who, grammar.digest, (ATOM, (2,)))

    def search(self, session: CohortSession) -> list[FoundRule]:
        """See the base."""
        return LevelSearch(session, self._plan()).run()

    def _plan(self) -> LevelPlan:
        confirm, max_size = exact(self.confirm, "confirm", zero=True), self.max_templates
        return LevelPlan(self._total, self.min_support, self.levels, confirm, max_size=max_size)

    def spends(self) -> list[tuple[int, Fraction]]:
        """Return each level once, and the last query."""
        return [(1, amount) for amount in self._plan().questions]

    def _outlook(self, schema: Schema, people: int) -> str:
        part = max(self._plan().questions) / self._total
        return PowerAnalysis(Exploration(self.min_support), people, self._total, part).advice()


@dataclass(kw_only=True, eq=False, repr=False)
class PartRuleSearch(_TreeSearch):
    """Searches the tree by UCT, each query to individuals who were not asked before.

    ``error`` and ``margin`` are as for :class:`TreeRuleSearch`, for the n individuals queried;
    ``random_state`` is the seed of the public order of children and individuals. For the others see
    :class:`RuleLearner`.
    """

    decides: ClassVar[bool] = False

    def _part(self, people: int) -> int:
        return smallest_part(people, float(self._answer), self.min_support, self.margin, self.error)

    def search(self, session: CohortSession) -> list[FoundRule]:
        """See the base; each individual spends its whole budget on its one answer."""
        allocation, part = Equal(self._answer, 1, self.min_support), self._part(session.people)
        return TreeSearch(session, allocation, seed=self.random_state, part=part).run(
            self.max_queries
        )

    def spends(self) -> list[tuple[int, Fraction]]:
        """Return one query at the whole epsilon."""
        return [(1, self._answer)]

    def _outlook(self, schema: Schema, people: int) -> str:
        required = symbols_of(self.grammar(schema)) * self._part(people)
        return too_few(self._exploration(), people, required)


@dataclass(kw_only=True, eq=False, repr=False)
class SampledRuleSearch(RuleLearner):
    """Asks each individual once, for one rule of its own that it draws in secret.

    ``levels`` is the maximum symbols of a rule, and the number of parts of the individuals;
    ``slots`` the maximum rules of an individual; ``encoding`` is ``unary``, a bit for each of at
    most ``max_templates``, or ``hashed``, a single bit with more noise. For the others see
    :class:`RuleLearner`.
    """

    levels: int = 5
    slots: int = 128
    encoding: Encoding = "unary"
    max_templates: int = 5000
    random_state: int = 0

    queries: ClassVar[tuple[type[Query], ...]] = (SampledRule, HashedRule, Parameters)
    unit: ClassVar[Unit] = "individual"
    decides: ClassVar[bool] = False
    _parameter_constraints: ClassVar[Constraints] = {
        **SHARED,
        "levels": [Integers(at_least=1)],
        "slots": [Integers(at_least=1)],
        "encoding": [StrOptions(*get_args(Encoding))],
        "max_templates": [Integers(at_least=1)],
        "random_state": [Integers(at_least=0)],
    }

    def search(self, session: CohortSession) -> list[FoundRule]:
        """Search level by level, each with a new part of the individuals; estimates count rules, not holders."""
        grammar, size = session.grammar, session.people // self.levels
        frontier: list[Symbols] = [()]
        results: list[FoundRule] = []
        for level in range(self.levels):
            templates = [t for f in frontier for t in grammar.continuations(f)]
            templates = templates[: self.max_templates]
            if not templates:
                break
            who = CohortSample(
                session.people, level * size, (level + 1) * size, self.random_state + 1
            )
            try:
                result = self._ask(session, templates, who)
            except NobodyAnswered:
                break
            std = result.std
            cut = max(self.min_support, 1.645 * std / size) * size
            rows = zip(templates, result.estimate, strict=True)
            kept = [(template, rules) for template, rules in rows if rules >= cut]
            frontier = [template for template, _ in kept if grammar.open(template)]
            results += [FoundRule.of_count(t, c, std, size) for t, c in kept if not grammar.open(t)]
        return results

    def _ask(
        self, session: CohortSession, templates: list[Symbols], who: CohortSample
    ) -> SupportEstimate:
        """Query, and scale by the number of slots, as a rule is sampled with probability 1 / slots."""
        hashed, spend = self.encoding == "hashed", self._answer
        kind: type[SampledRule | HashedRule] = HashedRule if hashed else SampledRule
        query = kind(who, session.grammar.digest, tuple(templates), self.slots)
        answer = ask_offering(session.federation, query, spend)
        result = hashed_counts(answer) if hashed else counts(answer, who.size)
        session.record(result, spend)
        std = result.std * self.slots
        return SupportEstimate(result.estimate * self.slots, std, result.people)

    def question(self, who: CohortSample, grammar: Grammar) -> Query:
        """Return a query of a drawn rule among two templates, as there may be more than one."""
        sampled = HashedRule if self.encoding == "hashed" else SampledRule
        return sampled(who, grammar.digest, (ATOM, (2,)), self.slots)

    def spends(self) -> list[tuple[int, Fraction]]:
        """Return one query at the whole epsilon."""
        return [(1, self._answer)]

    def _outlook(self, schema: Schema, people: int) -> str:
        return ""


Strategy = Literal["equal", "adaptive", "uct", "levels", "parts", "sampled"]
#: Each strategy's search, and its own parameters.
STRATEGIES: dict[str, tuple[type[RuleLearner], dict[str, Any]]] = {
    "equal": (TreeRuleSearch, {"order": "equal"}),
    "adaptive": (TreeRuleSearch, {"order": "best-first"}),
    "uct": (TreeRuleSearch, {"order": "uct"}),
    "levels": (LevelRuleSearch, {}),
    "parts": (PartRuleSearch, {}),
    "sampled": (SampledRuleSearch, {}),
}
#: Constraints of all searches' parameters; the order is the strategy's.
_ALL_CONSTRAINTS: Constraints = {
    name: allowed
    for search, own in STRATEGIES.values()
    for name, allowed in search._parameter_constraints.items()
    if name not in own
}


def _delegated(name: str) -> Any:
    return property(lambda self: getattr(self.built(), name))


@dataclass(kw_only=True, eq=False, repr=False)
class RuleSearch(RuleLearner):
    """Finds the rules that a fraction of the individuals hold (DP-RuL), by one of six strategies.

    ``equal``, ``uct`` and ``adaptive`` are orders of :class:`TreeRuleSearch`; ``levels``, ``parts``
    and ``sampled`` the searches of those names. Each strategy uses only its own parameters.
    """

    strategy: Strategy = field(default="levels", kw_only=False)
    error: float = 0.05
    margin: float = 1.0
    share: float = 0.0
    exploration_weight: float | None = None
    expected: int = 400
    questions: int = 1000
    levels: int = 5
    confirm: Number = "0.7"
    max_templates: int = 5000
    slots: int = 128
    encoding: Encoding = "unary"
    max_queries: int | None = None
    random_state: int = 0

    queries: ClassVar[tuple[type[Query], ...]] = (
        TemplateBits,
        PatternBit,
        SampledRule,
        HashedRule,
        Parameters,
    )
    _parameter_constraints: ClassVar[Constraints] = {
        "strategy": [StrOptions(*STRATEGIES)],
        **_ALL_CONSTRAINTS,
    }
    unit: ClassVar[Any] = _delegated("unit")
    decides: ClassVar[Any] = _delegated("decides")
    search: ClassVar[Any] = _delegated("search")
    spends: ClassVar[Any] = _delegated("spends")
    question: ClassVar[Any] = _delegated("question")
    _outlook: ClassVar[Any] = _delegated("_outlook")

    def built(self) -> RuleLearner:
        """Return the strategy's search, with these parameters."""
        search, fixed = STRATEGIES[self.strategy]
        names = {parameter.name for parameter in fields(self)}
        shared = [parameter.name for parameter in fields(search) if parameter.name in names]
        return search(**{name: getattr(self, name) for name in shared}, **fixed)

    def check_parameters(self) -> None:
        """See the base; the strategy's own checks as well."""
        super().check_parameters()
        self.built().check_parameters()

    def readable(self) -> dict[str, Any]:
        """Return the strategy, and the rules as text with their estimated fractions."""
        return {"strategy": self.strategy, **super().readable()}
