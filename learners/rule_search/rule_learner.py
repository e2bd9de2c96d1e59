"""Base class of rule searches: parameters, policies, the fitted rules, and their scores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from privfed.errors import InputError, NobodyAnswered, number_of
from privfed.exchange.disclosure import Disclosure
from privfed.learners.base import Planned
from privfed.learners.cohort import CohortLearner
from privfed.learners.parameters import Constraints, Exact, Integers, Names, Reals
from privfed.learners.privacy_text import privacy_text
from privfed.learners.rule_search.asking import CohortSession, FoundRule, SearchStep
from privfed.learners.rule_search.level_search import MAX_EPSILON
from privfed.learners.rule_search.population_rules import (
    NOTE,
    PopulationRules,
    WeightedRule,
    coverage,
    summary,
)
from privfed.learners.rule_search.queries import CohortSample, Parameters
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.formula import show
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.parser import parse
from privfed.learners.stl.rule_file import read_rules, rule_files
from privfed.privacy.accountant import Budget
from privfed.privacy.policy import Guard, Policy
from privfed.questions.exact import Number, exact
from privfed.questions.part import Unit
from privfed.questions.query import Query
from privfed.tables.schema import Schema

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOTHING = "No rule was found."
THRESHOLDS = (
    "Thresholds and ends of intervals are percentile {:g} of the holders', from noisy answers and without limits of their "
    "own. ± is what the noise leaves open of their mean (95 %), in per cent of the range that the schema and the horizon "
    "allow; unknown: half of it or more."
)
MIDDLES = "Thresholds and ends of intervals were not asked: they are the middles of their ranges."
_FIGURES = ["rule", "share", "low", "high"]  #: Of each rule, as plain data
MAX_CELLS = 2_000_000_000  #: Maximum cells of a cohort's answer: a bit per individual and template
ATOM = (1,)  #: The template that prices a query
SHARED: Constraints = {
    "epsilon": [Exact(above=0)],
    "min_support": [Reals(above=0, at_most=1)],
    "parameter_epsilon": [Exact(at_least=0)],
    "percentile": [Reals(at_least=0, at_most=100)],
    "operators": [Names()],
    "relations": [Names()],
    "max_operators": [Integers(at_least=1)],
    "horizon": [Integers(at_least=1)],
    "n_individuals": [Integers(at_least=1), None],
}


@dataclass(kw_only=True, eq=False, repr=False)
class RuleLearner(ClassifierMixin, CohortLearner):  # type: ignore[misc]
    """Finds the rules that a fraction of the individuals hold (DP-RuL)."""

    epsilon: Number = "10"  #: of an individual (or a rule, if that is the unit) for structures
    min_support: float = 0.01  #: nu, minimum fraction of individuals for a valid rule
    parameter_epsilon: Number = 0  #: for thresholds and intervals; 0: midpoints of the ranges
    percentile: float = 50.0  #: of the individuals' parameters, for the population's rule
    operators: tuple[str, ...] = ("&", "|", "U", "F", "G")  #: ``!`` is for ``U`` and ``=`` only
    relations: tuple[str, ...] = ("<=", ">=")  #: relations of the grammar's atoms, of ``<= >= =``
    max_operators: int = 4  #: maximum operators of a rule
    horizon: int = 10  #: maximum step of an interval
    n_individuals: int | None = None  #: individuals per client; None: as the federation states

    _parameter_constraints: ClassVar[Constraints] = SHARED

    # --- abstract methods -----------------------------------------------------------------

    @property
    @abstractmethod
    def unit(self) -> Unit:
        """The unit of privacy: a single rule, or all of an individual's."""

    @property
    @abstractmethod
    def decides(self) -> bool:
        """Whether the search itself chooses its number of queries, within its epsilon."""

    @abstractmethod
    def search(self, session: CohortSession) -> list[FoundRule]:
        """Return the structures found (InputError: epsilon is too small for any query)."""

    @abstractmethod
    def spends(self) -> list[tuple[int, Fraction]]:
        """Return (number, epsilon) of an individual's queries for structures."""

    @abstractmethod
    def question(self, who: CohortSample, grammar: Grammar) -> Query:
        """Return a query for structures, about the first template."""

    @abstractmethod
    def _outlook(self, schema: Schema, people: int) -> str: ...

    def outlook(self, schema: Schema, people: int) -> str:
        """Return in a line what finding rules among ``people`` would require; empty if met."""
        self.check_parameters()
        return "" if self.min_support == 1 else self._outlook(schema, people)

    # --- learning ------------------------------------------------------------------------------

    def fit(self, federation: Disclosure) -> Self:
        """Search, then query parameters if there is a budget for them (InputError: too little).

        Sets ``found_`` (structures), ``steps_`` (the queries), ``rules_``, ``grammar_``.
        """
        self._start(federation)
        grammar = self.grammar(federation.schema)
        session = CohortSession(
            federation, grammar, self._people(federation) * len(federation.clients)
        )
        self.grammar_ = grammar
        self.found_ = self.search(session)
        self.steps_ = session.steps
        parameters = self._parameters(session, self.found_)
        rules = (
            WeightedRule(grammar.formula(rule.structure, values), rule.share, rule.std, error)
            for rule, (values, error) in zip(self.found_, parameters, strict=True)
        )
        self.rules_ = PopulationRules(tuple(rules), grammar.names)
        return self

    def check(self, schema: Schema) -> None:
        """Check the parameters, and that the schema gives a grammar."""
        super().check(schema)
        self.grammar(schema)

    def grammar(self, schema: Schema) -> Grammar:
        """Return the grammar of rules over a schema's variables."""
        limits = {"most_operators": self.max_operators, "horizon": self.horizon}
        return Grammar.of(schema, self.operators, relations=self.relations, **limits)

    def _people(self, federation: Disclosure) -> int:
        people = self.n_individuals or getattr(federation, "people", None)
        if not people or people < 1:
            raise InputError("say how many individuals stand behind each client: people=...")
        return int(people)

    @property
    def _total(self) -> Fraction:
        return exact(self.epsilon, "epsilon")

    @property
    def _answer(self) -> Fraction:
        return min(self._total, Fraction(MAX_EPSILON))

    def _parameters(
        self, session: CohortSession, rules: Sequence[FoundRule]
    ) -> Sequence[tuple[list[float], float | None]]:
        """Return each structure's parameters and their error, or midpoints of their ranges without an answer."""
        ranges = [session.grammar.ranges(one.structure) for one in rules]
        spend = exact(self.parameter_epsilon, "parameter_epsilon", zero=True)
        if rules and spend > 0:
            try:
                return session.parameters(rules, spend, self.percentile)
            except NobodyAnswered:
                pass
        return [([(low + high) / 2 for low, high in one], None) for one in ranges]

    # --- the fitted rules ----------------------------------------------------------------------

    @property
    def classes_(self) -> np.ndarray:
        """The classes: whether a trajectory is of the positive class."""
        check_is_fitted(self)
        return np.array([False, True])

    def predict(self, X: pd.DataFrame | np.ndarray, *, client: str | None = None) -> np.ndarray:
        """Return whether the rules' weighted vote is for the positive class; see :meth:`decision_function`."""
        return self.decision_function(X, client=client) >= 0

    def decision_function(
        self, X: pd.DataFrame | np.ndarray, *, client: str | None = None
    ) -> np.ndarray:
        """Return the weighted fraction of the rules that hold, minus the cut, shape (samples,).

        Trajectories have the shape (samples, steps, variables in the schema's order).
        """
        rules, columns = self.rules_, [self.schema_.names.index(n) for n in self.grammar_.names]
        self._check_client(client)
        array = np.asarray(X, dtype=float)
        if array.ndim != 3 or array.shape[2] != len(columns):
            raise InputError(
                "X must hold trajectories, shape (samples, steps, variables), the variables "
                f"{', '.join(self.schema_.names)}"
            )
        return rules.votes(array[..., columns]) - rules.cut

    def describe(self) -> str:
        """Return the rules, one per line, with the estimated fraction of individuals who hold the structure."""
        check_is_fitted(self)
        rules = self.rules_.rules
        if not rules:
            return "\n".join([NOTHING, *self._scope(), privacy_text(self.privacy_)])
        lines = [
            f"{100 * rule.share:.1f} % ({100 * low:.1f} to {100 * high:.1f} %): {text}"
            for rule, text in zip(rules, self._texts(), strict=True)
            for low, high in [rule.interval()]
        ]
        thresholds = MIDDLES if all(rule.error is None for rule in rules) else THRESHOLDS
        vote = f"A trajectory is of the positive class where rules with at least {100 * self.rules_.cut:g} % of all shares hold."
        note = f"{NOTE[:1].upper()}{NOTE[1:]}."
        text = [note, *lines, thresholds.format(self.percentile), *self._scope(), vote]
        return "\n".join([*text, privacy_text(self.privacy_)])

    def _texts(self) -> list[str]:
        """Return the rules as they are printed."""
        widths = {column.name: float(np.ptp(column.bounds)) for column in self.schema_.columns}
        return [rule.text(widths) for rule in self.rules_.rules]

    def _scope(self) -> Iterator[str]:
        """Yield a sentence on what was asked, and what was not."""
        if not self.steps_:
            return
        people = sorted({step.asked for step in self.steps_})
        asked = " to ".join(f"{number:,}" for number in dict.fromkeys([people[0], people[-1]]))
        templates = sum(step.templates for step in self.steps_)
        yield (
            f"Searched by {number_of(len(self.steps_), 'query', 'queries')} on {number_of(templates, 'template')} to {asked} individuals, "
            f"for rules that {100 * self.min_support:g} % of all or more hold, of at most {number_of(self.max_operators, 'operator')} "
            f"({', '.join(self.operators)}) and the relations {', '.join(self.relations)}. Limits are for these individuals, not for "
            "others like them; a rule that is not listed was not asked about, or not told from the noise, and may be held."
        )

    def plot(self, feature: str | None = None, *, ax: Axes | None = None) -> Axes:
        """Plot the rules' estimated fractions as bars, with their 95 % limits."""
        check_is_fitted(self)
        if feature is not None:
            return super().plot(feature, ax=ax)
        from privfed.learners import pictures

        table = pd.DataFrame([rule.to_dict() for rule in self.rules_.rules], columns=_FIGURES)
        table["rule"] = self._texts()
        fractions, ends = table["share"].to_numpy(float), table[["low", "high"]].to_numpy(float)
        label = "share of the individuals who hold a rule of this structure"
        ax = pictures.bars(ax, table["rule"].tolist(), fractions, label, ends, level=95)
        return ax if len(table) else pictures.titled(ax, NOTHING)

    def readable(self) -> dict[str, Any]:
        """Return the rules as text with their estimated fractions."""
        return self.rules_.to_dict()

    def state(self) -> dict[str, Any]:
        """See the base: the rules and structures with their estimates, and the queries."""
        return {
            "rules": [
                [show(rule.rule), rule.share, rule.std, rule.error] for rule in self.rules_.rules
            ],
            "found": [[list(rule.structure), rule.share, rule.std] for rule in self.found_],
            "steps": [list(astuple(step)) for step in self.steps_],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """See the base."""
        self.grammar_ = self.grammar(self.schema_)
        self.found_ = [FoundRule(tuple(structure), *rest) for structure, *rest in state["found"]]
        self.steps_ = [SearchStep(*step) for step in state["steps"]]
        rules = tuple(WeightedRule(parse(text), *rest) for text, *rest in state["rules"])
        for rule in rules:
            self.grammar_.structure(rule.rule)
        self.rules_ = PopulationRules(rules, self.grammar_.names)

    # --- a cohort in a study -------------------------------------------------------------------

    def read(self, folder: Path, schema: Schema) -> RuleIndex:
        """Read all rules, one file per individual; see the base."""
        self.check(schema)
        grammar = self.grammar(schema)
        rules = {path.stem: read_rules(path, grammar) for path in rule_files(folder)}
        return RuleIndex.of(rules, grammar)

    def held(self, records: RuleIndex) -> int:
        """Return the number of rules of all individuals."""
        return records.rules

    def assess(self, records: RuleIndex) -> dict[str, Any]:
        """Return recall and precision of the found rules, and what is missing."""
        valid = records.valid(self.min_support * records.people)
        found = {rule.structure for rule in self.found_}
        covered, precise = coverage(found, valid)
        hint = self.outlook(self.schema_, records.people) if covered == 0 else ""
        scores = {"precision": precise, "valid rules": len(valid), "found rules": len(found)}
        return {
            **({"hint": hint} if hint else {}),
            "measure": "coverage of the valid rules",
            "better": "higher",
            "value": covered,
            "told": summary(found, valid),
            "baseline": 0.0,
            "scores": scores,
        }

    # --- policies and costs
    # -------------------------------------------------------------------------

    def published(self) -> Policy:
        """Return the paper's policy: randomized response and Laplace, with counted spending and no ceiling."""
        self.check_parameters()
        return Policy(self._guards(self._total), name="published")

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """Return a policy with ceiling ``epsilon`` per unit of the search, including parameters; losses are pure."""
        self.check_parameters()
        total = exact(epsilon, "epsilon")
        return Policy(
            self._guards(total),
            unit=self.unit,
            budget=Budget(total),
            name="private",
            cells=MAX_CELLS,
        )

    def _guards(self, epsilon: Fraction) -> dict[str, tuple[Guard, ...]]:
        bits = (Guard.of("randomized_response", spend=epsilon, cap=epsilon),)
        values = (Guard.of("laplace", spend=epsilon, cap=epsilon),)
        kinds = [query.kind for query in self.queries]
        return {kind: values if kind == Parameters.kind else bits for kind in kinds}

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """Return every query with its spend; if the search chooses, their total spend."""
        self.check_parameters()
        grammar, who = self.grammar(schema), CohortSample.everybody(self.n_individuals or 1)
        bits, spend = self.question(who, grammar), exact(self.parameter_epsilon, "", zero=True)
        planned = [
            Planned(bits, times, amount, self.decides) for times, amount in self.spends() if amount
        ]
        if spend > 0:
            width = len(grammar.ranges(ATOM))
            planned.append(Planned(Parameters(who, grammar.digest, (ATOM,), (width,)), 1, spend))
        return planned
