"""Learning a population's rules from what individuals answer under local differential privacy."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import pandas as pd
from sklearn.exceptions import NotFittedError

from privfed.accountant import Budget
from privfed.disclosure import Disclosure
from privfed.errors import InputError, NobodyAnswered
from privfed.exact import Number, exact
from privfed.learners.base import FederatedLearner, Planned
from privfed.learners.rule_search.asking import Asking, Found
from privfed.learners.rule_search.best_first import BestFirst, Spending
from privfed.learners.rule_search.individual_search import SampledSearch, Whole, smallest_part
from privfed.learners.rule_search.level_search import MOST, LevelPlan, LevelSearch
from privfed.learners.rule_search.outlook import Outlook, too_few
from privfed.learners.rule_search.parameters import ask_parameters
from privfed.learners.rule_search.population_rules import PopulationRules, WeightedRule
from privfed.learners.rule_search.queries import (
    Asked,
    Encoding,
    HashedRule,
    Parameters,
    SampledRule,
    TemplateBits,
)
from privfed.learners.rule_search.settings import check_choice, check_numbers
from privfed.learners.rule_search.tree_search import Adaptive, Equal, TreeSearch, symbols_of
from privfed.learners.stl.grammar import Grammar
from privfed.least_epsilon import Exploration, Question, least_epsilon
from privfed.part import Unit
from privfed.policy import Guard, Policy
from privfed.query import Query
from privfed.schema import Schema

Strategy = Literal["equal", "adaptive", "uct", "levels", "parts", "sampled"]
_UNITS: dict[str, Unit] = {
    "equal": "individual",
    "adaptive": "individual",
    "uct": "individual",
    "levels": "rule",
    "parts": "individual",
    "sampled": "individual",
}


class RuleSearch(FederatedLearner):
    """Finds the rules that a share of the individuals hold (DP-RuL).

    Strategies: ``equal`` and ``uct`` are the published protocol (a tree search by UCT, each
    question to everybody; one bit to each, so the guarantee is for whole individuals), with equal
    shares of the budget and with the least epsilon for each question; ``adaptive`` asks best first,
    as sharply as needed; ``levels`` asks whole levels at once and protects single rules; ``parts``
    asks each individual once, and ``sampled`` asks each for one rule of its own, drawn in secret.

    Args:
        strategy: see above.
        epsilon: what an individual (``levels``: a rule) spends on structures.
        threshold: nu, the share of individuals that makes a rule valid.
        error: theta, most probability of wrongly ignoring a subtree (``adaptive``, ``uct``,
            ``parts``).
        margin: a subtree worth exploring has (1 + margin) nu N holders.
        share: see :class:`Exploration`; 0 asks every question at its finest (``uct``).
        expected: how many valid rules there are, at a guess: while a search is less sure of as
            many, it lists more of what is possible; 0 lists only what is likely (``adaptive``).
        questions: Q of ``equal``; ``adaptive``: a first question costs at most a Q-th of epsilon.
        levels: most symbols of a rule for ``levels`` and ``sampled``.
        confirm: share of epsilon for the last question of ``levels``.
        most_templates: most templates of one question.
        slots: most rules of an individual, for ``sampled``.
        encoding: of an answer to ``sampled``: ``unary``, a bit for each template, or ``hashed``, one
            bit in all, with more noise.
        parameter_epsilon: what is spent on thresholds and intervals, once; 0 takes the middle of
            their public ranges.
        percent: percentile of the individuals' parameters that the population's rule takes.
        operators: operators of the grammar.
        most_operators: most operators of a rule.
        horizon: largest step of an interval.
        people: individuals behind each client; none asks the federation.
        most_questions: stop there (tree searches).
        seed: public randomness: the order of children and of individuals.
    """

    queries: ClassVar[tuple[type[Query], ...]] = (TemplateBits, SampledRule, HashedRule, Parameters)

    def __init__(
        self,
        strategy: Strategy = "levels",
        epsilon: Number = "10",
        threshold: float = 0.01,
        error: float = 0.05,
        margin: float = 1.0,
        share: float = 0.25,
        expected: int = 400,
        questions: int = 1000,
        levels: int = 5,
        confirm: Number = "0.7",
        most_templates: int = 5000,
        slots: int = 128,
        encoding: Encoding = "unary",
        parameter_epsilon: Number = 0,
        percent: float = 50.0,
        operators: tuple[str, ...] = ("&", "|", "U", "F", "G"),
        most_operators: int = 4,
        horizon: int = 10,
        people: int | None = None,
        most_questions: int | None = None,
        seed: int = 0,
    ) -> None:
        self.strategy = strategy
        self.epsilon = epsilon
        self.threshold = threshold
        self.error = error
        self.margin = margin
        self.share = share
        self.expected = expected
        self.questions = questions
        self.levels = levels
        self.confirm = confirm
        self.most_templates = most_templates
        self.slots = slots
        self.encoding = encoding
        self.parameter_epsilon = parameter_epsilon
        self.percent = percent
        self.operators = operators
        self.most_operators = most_operators
        self.horizon = horizon
        self.people = people
        self.most_questions = most_questions
        self.seed = seed

    # --- learning ------------------------------------------------------------------------------

    def fit(self, federation: Disclosure) -> Self:
        """Search, then ask for parameters if there is a budget for them.

        Raises:
            InputError: a parameter that makes no sense, or an epsilon that is too small for any
                question (the message says what the least would be).
        """
        self._check()
        grammar = self._grammar(federation.schema)
        people = self._people(federation)
        asking = Asking(federation, grammar, people * len(federation.clients))
        self.schema_, self.grammar_ = federation.schema, grammar
        self.found_ = self._search(asking)
        self.steps_ = asking.steps
        parameters = self._parameters(asking, self.found_)
        rules = (
            WeightedRule(grammar.formula(found.structure, values), found.share, found.deviation)
            for found, values in zip(self.found_, parameters, strict=True)
        )
        self.rules_ = PopulationRules(tuple(rules), grammar.names)
        return self

    def check(self, schema: Schema) -> None:
        """Hold the parameters to what makes sense; every other use does it first, too.

        Raises:
            InputError: one line that names the parameter, and says what to write.
        """
        self._check()
        self._grammar(schema)

    def _check(self) -> None:
        check_choice("strategy", self.strategy, tuple(_UNITS))
        check_choice("encoding", self.encoding, get_args(Encoding))
        exact(self.epsilon, "epsilon")
        exact(self.parameter_epsilon, "parameter_epsilon", zero=True)
        if exact(self.confirm, "confirm", zero=True) >= 1:
            raise InputError(
                f"RuleSearch: confirm must be from 0 to below 1, not {self.confirm!r}; "
                'write for example confirm = "0.7"'
            )
        check_numbers(self.get_params(deep=False))
        if self.strategy in ("adaptive", "uct", "parts"):
            self._exploration()

    def _grammar(self, schema: Schema) -> Grammar:
        return Grammar.of(schema, self.operators, self.most_operators, self.horizon)

    def _people(self, federation: Disclosure) -> int:
        people = self.people or getattr(federation, "people", None)
        if not people or people < 1:
            raise InputError("say how many individuals stand behind each client: people=...")
        return int(people)

    def _search(self, asking: Asking) -> list[Found]:
        total = exact(self.epsilon, "epsilon")
        answer = min(total, Fraction(MOST))
        if self.strategy == "levels":
            return LevelSearch(asking, self._levels(total)).run()
        if self.strategy == "sampled":
            return SampledSearch(
                asking,
                answer,
                self.threshold,
                self.levels,
                self.slots,
                self.most_templates,
                self.seed,
                self.encoding,
            ).run()
        if self.strategy == "adaptive":
            return self._best_first(asking, total).run(self.most_questions)
        return self._tree(asking, total).run(self.most_questions)

    def _levels(self, total: Fraction) -> LevelPlan:
        confirm = exact(self.confirm, "confirm", zero=True)
        return LevelPlan(total, self.threshold, self.levels, confirm, most=self.most_templates)

    def _exploration(self) -> Exploration:
        return Exploration(self.threshold, self.error, self.margin, self.share)

    def _best_first(self, asking: Asking, total: Fraction) -> BestFirst:
        exploration = self._exploration()
        coarsest = exploration.looking_for(asking.people, asking.people)
        self._check_affordable(coarsest, total)
        spending = Spending(total, spread=self.questions, expected=self.expected)
        return BestFirst(asking, exploration, spending)

    def _tree(self, asking: Asking, total: Fraction) -> TreeSearch:
        if self.strategy == "equal":
            equal = Equal(total, self.questions, self.threshold)
            return TreeSearch(asking, equal, seed=self.seed, total=total)
        if self.strategy == "parts":
            whole = Whole(min(total, Fraction(MOST)), self.threshold)
            part = self._part(asking.people, whole.total)
            return TreeSearch(asking, whole, seed=self.seed, part=part)
        exploration = self._exploration()
        first = exploration.question(asking.people, float(asking.people), self.share)
        self._check_affordable(first, total)
        return TreeSearch(asking, Adaptive(exploration), seed=self.seed, total=total)

    def _part(self, people: int, total: Fraction) -> int:
        """Individuals of one question of ``parts``."""
        answer = float(min(total, Fraction(MOST)))
        return smallest_part(people, answer, self.threshold, self.margin, self.error)

    def _check_affordable(self, question: Question, total: Fraction) -> None:
        """One question must fit."""
        least = least_epsilon(question)
        if least > total:
            raise InputError(
                f"epsilon {float(total)} is too small for any question to {question.people} "
                f"individuals; the least is {float(least)}"
            )

    def _parameters(self, asking: Asking, found: Sequence[Found]) -> list[list[float]]:
        """Each structure's parameters, or the middle of their ranges where nobody answered."""
        ranges = [asking.grammar.ranges(one.structure) for one in found]
        spend = exact(self.parameter_epsilon, "parameter_epsilon", zero=True)
        if found and spend > 0:
            try:
                return ask_parameters(asking, found, spend, self.percent)
            except NobodyAnswered:
                pass
        return [[(low + high) / 2 for low, high in one] for one in ranges]

    # --- the fitted rules ----------------------------------------------------------------------

    def predict(self, x: pd.DataFrame | np.ndarray) -> np.ndarray:
        """The positive class by weighted vote.

        Args:
            x: trajectories, shape (samples, steps, variables in the schema's order).
        """
        if not hasattr(self, "rules_"):
            raise NotFittedError("RuleSearch is not fitted; call fit(federation) first")
        array = np.asarray(x, dtype=float)
        places = [self.schema_.names.index(name) for name in self.grammar_.names]
        return self.rules_.predict(array[..., places])

    def to_dict(self) -> dict[str, Any]:
        """Give the rules as text with their estimated shares."""
        if not hasattr(self, "rules_"):
            raise NotFittedError("RuleSearch is not fitted; call fit(federation) first")
        return {"learner": "RuleSearch", "strategy": self.strategy, **self.rules_.to_dict()}

    # --- what it costs -------------------------------------------------------------------------

    def published(self) -> Policy:
        """The paper's protocol: randomized response and Laplace, spending counted, no ceiling."""
        self._check()
        epsilon = exact(self.epsilon, "epsilon")
        return Policy(self._guards(epsilon, epsilon), name="published")

    def private(self, epsilon: Number, delta: Number = "1e-5") -> Policy:
        """A ceiling for each unit of the strategy: rules under ``levels``, individuals otherwise.

        Args:
            epsilon: the ceiling, parameters included.
            delta: unused; all losses are pure.
        """
        self._check()
        total = exact(epsilon, "epsilon")
        return Policy(
            self._guards(total, total),
            unit=_UNITS[self.strategy],
            budget=Budget(total),
            name="private",
            cells=2_000_000_000,
        )

    def _guards(self, spend: Fraction, cap: Fraction) -> dict[str, tuple[Guard, ...]]:
        bits = (Guard.of("randomized_response", spend=spend, cap=cap),)
        values = (Guard.of("laplace", spend=spend, cap=cap),)
        return {
            **dict.fromkeys((TemplateBits.kind, SampledRule.kind, HashedRule.kind), bits),
            Parameters.kind: values,
        }

    def plan(self, schema: Schema) -> Sequence[Planned]:
        """Every question at what it spends; where the search decides, what all spend together."""
        self._check()
        grammar, who = self._grammar(schema), Asked.everybody(self.people or 1)
        atom, spend = (1,), exact(self.parameter_epsilon, "parameter_epsilon", zero=True)
        bits: Query = TemplateBits(who, grammar.digest, (atom,))
        if self.strategy == "sampled":
            sampled = HashedRule if self.encoding == "hashed" else SampledRule
            bits = sampled(who, grammar.digest, (atom,), self.slots)
        decides = self.strategy in ("adaptive", "uct")
        planned = [Planned(bits, times, each, decides) for times, each in self._spends() if each]
        if spend > 0:
            query = Parameters(who, grammar.digest, (atom,), (len(grammar.ranges(atom)),))
            planned.append(Planned(query, 1, spend))
        return planned

    def outlook(self, schema: Schema, people: int) -> str:
        """What it would take to count on finding rules, in one line; of public numbers alone.

        Args:
            schema: the public variables.
            people: how many individuals there are.

        Returns:
            the line; empty where there is enough, and where that is not known: for ``sampled``, and
            at a threshold of 1.
        """
        self._check()
        if self.strategy == "sampled" or self.threshold == 1:
            return ""
        total, exploration = exact(self.epsilon, "epsilon"), self._exploration()
        first = symbols_of(self._grammar(schema))
        if self.strategy == "parts":
            return too_few(exploration, people, first * self._part(people, total))
        part = Fraction(1, self.questions if self.strategy == "equal" else first)
        if self.strategy == "levels":
            part = max(self._levels(total).questions) / total
        return Outlook(exploration, people, total, part).told()

    def _spends(self) -> list[tuple[int, Fraction]]:
        """How often an individual is asked for structures, and at which epsilon."""
        total = exact(self.epsilon, "epsilon")
        if self.strategy == "levels":
            return [(1, amount) for amount in self._levels(total).questions]
        if self.strategy == "equal":
            return [(self.questions, Equal(total, self.questions, self.threshold).share)]
        once = self.strategy in ("parts", "sampled")
        return [(1, min(total, Fraction(MOST)) if once else total)]
