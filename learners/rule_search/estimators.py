"""The rule searches: by tree, by level, by parts of the people, by sampled rules (DP-RuL)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal, get_args

from privfed.errors import InputError
from privfed.learners.parameters import Constraints, Exact, OneOf, Real, Whole
from privfed.learners.rule_search.asking import Asking, Found
from privfed.learners.rule_search.best_first import BestFirst, Spending
from privfed.learners.rule_search.individual_search import SampledSearch, WholeBudget, smallest_part
from privfed.learners.rule_search.least_epsilon import Exploration, Question, least_epsilon
from privfed.learners.rule_search.level_search import LevelPlan, LevelSearch
from privfed.learners.rule_search.outlook import Outlook, too_few
from privfed.learners.rule_search.patterns import PatternBit
from privfed.learners.rule_search.queries import (
    Asked,
    Encoding,
    HashedRule,
    Parameters,
    SampledRule,
    TemplateBits,
)
from privfed.learners.rule_search.rule_learner import SHARED, RuleLearner
from privfed.learners.rule_search.tree_search import (
    Adaptive,
    Allocation,
    Equal,
    TreeSearch,
    symbols_of,
)
from privfed.learners.stl.grammar import Grammar
from privfed.questions.exact import Number, exact
from privfed.questions.part import Unit
from privfed.questions.query import Query
from privfed.tables.schema import Schema

#: In which order a tree search asks: best first, or by the published UCT with the least epsilon for
#: each question, or with equal shares.
Order = Literal["best-first", "uct", "equal"]
_ATOM = (1,)
#: C of ``uct`` unless told otherwise; see :class:`TreeRuleSearch`.
UCT_CONSTANT = 0.1


@dataclass(kw_only=True, eq=False, repr=False)
class _AsksForHolders(RuleLearner):
    """A search that asks who holds a match of a template."""

    queries: ClassVar[tuple[type[Query], ...]] = (TemplateBits, PatternBit, Parameters)

    def question(self, who: Asked, grammar: Grammar) -> Query:
        """A bit for the first template."""
        return TemplateBits(who, grammar.digest, (_ATOM,))


@dataclass(kw_only=True, eq=False, repr=False)
class TreeRuleSearch(_AsksForHolders):
    """Searches the tree of templates, one question to everybody at a time.

    One bit to each question, so that the guarantee is for whole individuals. ``uct`` and ``equal``
    are the published protocol: selection by UCT, each question at the least epsilon that it needs or
    at an equal share of the budget. ``best-first`` asks where the answers so far promise most, as
    sharply as needed.

    Args:
        order: see above.
        error: theta, most probability of wrongly ignoring a subtree (not ``equal``).
        margin: a subtree worth exploring has (1 + margin) nu N holders.
        share: see :class:`Exploration`; 0 asks every question at its finest (``uct``).
        constant: C, the weight of exploration in equation 1 (``uct``, ``equal``); 0 always follows
            the largest estimate. None takes what did best of sqrt 2, its root's inverse, 0.1, 0.01
            and 0 on population 1 of the simulated icu and sepsis profiles, seeds 0 to 2: the
            convention sqrt 2 for ``equal``, and 0.1 for ``uct``, for rules are held by few, and
            sqrt 2 hides their shares.
        expected: how many valid rules there are, at a guess: while a search is less sure of as
            many, it lists more of what is possible; 0 lists only what is likely (``best-first``).
        questions: Q of ``equal``; ``best-first``: a first question costs at most a Q-th of epsilon.
        most_questions: stop there.
        seed: public randomness: the order of children.

    The other parameters are those of :class:`RuleLearner`.
    """

    order: Order = "best-first"
    error: float = 0.05
    margin: float = 1.0
    share: float = 0.0
    constant: float | None = None
    expected: int = 400
    questions: int = 1000
    most_questions: int | None = None
    seed: int = 0

    unit: ClassVar[Unit] = "individual"
    _parameter_constraints: ClassVar[Constraints] = {
        **SHARED,
        "order": [OneOf(*get_args(Order))],
        "error": [Real(above=0, below=0.5)],
        "margin": [Real(above=0)],
        "share": [Real(at_least=0, at_most=1)],
        "constant": [Real(at_least=0), None],
        "expected": [Whole(at_least=0)],
        "questions": [Whole(at_least=1)],
        "most_questions": [Whole(at_least=1), None],
        "seed": [Whole(at_least=0)],
    }

    def check_parameters(self) -> None:
        """See the base; what looks for more than the threshold needs room above it."""
        super().check_parameters()
        if self.order != "equal":
            self._exploration()

    def _exploration(self) -> Exploration:
        return Exploration(self.threshold, self.error, self.margin, self.share)

    def search(self, asking: Asking) -> list[Found]:
        """See the base."""
        search = self._best_first(asking) if self.order == "best-first" else self._uct(asking)
        return search.run(self.most_questions)

    def _best_first(self, asking: Asking) -> BestFirst:
        exploration = self._exploration()
        self._check_affordable(exploration.looking_for(asking.people, asking.people))
        spending = Spending(self._total, spread=self.questions, expected=self.expected)
        return BestFirst(asking, exploration, spending)

    def _uct(self, asking: Asking) -> TreeSearch:
        if self.order == "equal":
            return self._tree(asking, self._equal(), math.sqrt(2))
        exploration = self._exploration()
        first = exploration.question(asking.people, float(asking.people), self.share)
        self._check_affordable(first)
        return self._tree(asking, Adaptive(exploration), UCT_CONSTANT)

    def _tree(self, asking: Asking, allocation: Allocation, usual: float) -> TreeSearch:
        constant = usual if self.constant is None else self.constant
        return TreeSearch(asking, allocation, constant, seed=self.seed, total=self._total)

    def _equal(self) -> Equal:
        return Equal(self._total, self.questions, self.threshold)

    def _check_affordable(self, question: Question) -> None:
        """One question must fit."""
        least = least_epsilon(question)
        if least > self._total:
            raise InputError(
                f"epsilon {float(self._total)} is too small for any question to {question.people} "
                f"individuals; the least is {float(least)}"
            )

    @property
    def decides(self) -> bool:
        """Only equal shares are counted beforehand."""
        return self.order != "equal"

    def spends(self) -> list[tuple[int, Fraction]]:
        """Equal shares, or all of it together."""
        return [(self.questions, self._equal().share)] if not self.decides else [(1, self._total)]

    def outlook(self, schema: Schema, people: int) -> str:
        """See the base; not known at a threshold of 1."""
        self.check_parameters()
        if self.threshold == 1:
            return ""
        parts = self.questions if self.order == "equal" else symbols_of(self.grammar(schema))
        return Outlook(self._exploration(), people, self._total, Fraction(1, parts)).told()


@dataclass(kw_only=True, eq=False, repr=False)
class LevelRuleSearch(_AsksForHolders):
    """Asks about all sibling templates of a level in one vector of bits; protects single rules.

    Args:
        levels: most symbols of a rule.
        confirm: share of epsilon for the last question.
        most_templates: most templates of one question.

    The other parameters are those of :class:`RuleLearner`.
    """

    levels: int = 5
    confirm: Number = "0.7"
    most_templates: int = 5000

    unit: ClassVar[Unit] = "rule"
    decides: ClassVar[bool] = False
    _parameter_constraints: ClassVar[Constraints] = {
        **SHARED,
        "levels": [Whole(at_least=1)],
        "confirm": [Exact(at_least=0, below=1)],
        "most_templates": [Whole(at_least=1)],
    }

    def search(self, asking: Asking) -> list[Found]:
        """See the base."""
        return LevelSearch(asking, self._plan()).run()

    def _plan(self) -> LevelPlan:
        confirm = exact(self.confirm, "confirm", zero=True)
        return LevelPlan(
            self._total, self.threshold, self.levels, confirm, most=self.most_templates
        )

    def spends(self) -> list[tuple[int, Fraction]]:
        """Each level once, and the last question."""
        return [(1, amount) for amount in self._plan().questions]

    def outlook(self, schema: Schema, people: int) -> str:
        """See the base; not known at a threshold of 1."""
        self.check_parameters()
        if self.threshold == 1:
            return ""
        part = max(self._plan().questions) / self._total
        return Outlook(Exploration(self.threshold), people, self._total, part).told()


@dataclass(kw_only=True, eq=False, repr=False)
class PartRuleSearch(_AsksForHolders):
    """Searches the tree by UCT, each question to individuals who were not asked before.

    Args:
        error: theta, most probability of wrongly ignoring a subtree.
        margin: a subtree worth exploring has (1 + margin) nu n holders among n who are asked.
        most_questions: stop there.
        seed: public randomness: the order of children and of individuals.

    The other parameters are those of :class:`RuleLearner`.
    """

    error: float = 0.05
    margin: float = 1.0
    most_questions: int | None = None
    seed: int = 0

    unit: ClassVar[Unit] = "individual"
    decides: ClassVar[bool] = False
    _parameter_constraints: ClassVar[Constraints] = {
        **SHARED,
        "error": [Real(above=0, below=0.5)],
        "margin": [Real(above=0)],
        "most_questions": [Whole(at_least=1), None],
        "seed": [Whole(at_least=0)],
    }

    def check_parameters(self) -> None:
        """See the base; what looks for more than the threshold needs room above it."""
        super().check_parameters()
        self._exploration()

    def _exploration(self) -> Exploration:
        return Exploration(self.threshold, self.error, self.margin)

    def _part(self, people: int) -> int:
        """Individuals of one question."""
        return smallest_part(people, float(self._answer), self.threshold, self.margin, self.error)

    def search(self, asking: Asking) -> list[Found]:
        """See the base."""
        whole, part = WholeBudget(self._answer, self.threshold), self._part(asking.people)
        return TreeSearch(asking, whole, seed=self.seed, part=part).run(self.most_questions)

    def spends(self) -> list[tuple[int, Fraction]]:
        """Everything, once."""
        return [(1, self._answer)]

    def outlook(self, schema: Schema, people: int) -> str:
        """See the base: how many individuals would be enough."""
        self.check_parameters()
        enough = symbols_of(self.grammar(schema)) * self._part(people)
        return too_few(self._exploration(), people, enough)


@dataclass(kw_only=True, eq=False, repr=False)
class SampledRuleSearch(RuleLearner):
    """Asks each individual once, for one rule of its own that it draws in secret.

    Args:
        levels: most symbols of a rule; as many parts of the individuals.
        slots: most rules of an individual.
        encoding: of an answer: ``unary``, a bit for each template, or ``hashed``, one bit in all,
            with more noise.
        most_templates: most templates of one question.
        seed: public randomness: the order of individuals.

    The other parameters are those of :class:`RuleLearner`.
    """

    levels: int = 5
    slots: int = 128
    encoding: Encoding = "unary"
    most_templates: int = 5000
    seed: int = 0

    queries: ClassVar[tuple[type[Query], ...]] = (SampledRule, HashedRule, Parameters)
    unit: ClassVar[Unit] = "individual"
    decides: ClassVar[bool] = False
    _parameter_constraints: ClassVar[Constraints] = {
        **SHARED,
        "levels": [Whole(at_least=1)],
        "slots": [Whole(at_least=1)],
        "encoding": [OneOf(*get_args(Encoding))],
        "most_templates": [Whole(at_least=1)],
        "seed": [Whole(at_least=0)],
    }

    def search(self, asking: Asking) -> list[Found]:
        """See the base."""
        return SampledSearch(
            asking,
            self._answer,
            self.threshold,
            self.levels,
            self.slots,
            self.most_templates,
            self.seed,
            self.encoding,
        ).run()

    def question(self, who: Asked, grammar: Grammar) -> Query:
        """A drawn rule among one template."""
        sampled = HashedRule if self.encoding == "hashed" else SampledRule
        return sampled(who, grammar.digest, (_ATOM,), self.slots)

    def spends(self) -> list[tuple[int, Fraction]]:
        """Everything, once."""
        return [(1, self._answer)]

    def outlook(self, schema: Schema, people: int) -> str:
        """Not known."""
        self.check_parameters()
        return ""
