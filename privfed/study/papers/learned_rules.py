"""DP-RuL's Figures 10 to 12: protocols over rules that individuals learned, and utility of the rules found.

The hospitals' patients are not public: the trajectories are BasicMotions (80 recordings of six sensors,
vigorous motion or not), a third of them held out. The persons are not known: each of 400 individuals is
SIMULATED by four of the other trajectories, from which the genetic learner learns its rules, so that no
distribution of symbols is assumed. Every search goes through a gate, three quarters of epsilon for
structures and a quarter for thresholds and intervals. ``all rules`` is every valid structure with the
median of its holders' parameters, without noise: the paper's black line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from privfed.engines.cohort import CohortDisclosure
from privfed.errors import InputError
from privfed.learners import RuleSearch
from privfed.learners.rule_search.population_rules import (
    PopulationRules,
    WeightedRule,
    coverage,
    utility,
)
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.learner import GeneticRules
from privfed.study.papers.table import Measured, repeated

SET = "basic_motions"
BOUND = 20.0  #: public, of each sensor
EVERY = 5  #: every fifth step is kept
PEOPLE, EACH, SEED = 400, 4, 1
EPSILONS = (30, 300, 3000)
LEVELS = (2, 8)  #: epsilon of searches by level, whose unit is one rule
#: Default nu, its values where it varies, and epsilon there.
NU, NUS, FIXED = 0.02, (0.01, 0.02, 0.05, 0.1), 300
#: The strategy and its parameters, by protocol.
PROTOCOLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "baseline, Q = 1000": ("equal", {"questions": 1000}),
    "paper's adaptive (UCT), C = 0.1": ("uct", {}),
    "ours, best first": ("adaptive", {}),
}
BY_LEVEL, ALL = "ours, by level (unit: one rule)", "all valid rules, no noise"
Cell = tuple[str, int, float]  #: protocol, epsilon, nu


@dataclass(frozen=True, eq=False)
class Learned:
    """Trajectories, shape (samples, steps, variables), with labels, individuals' rules, and the held-out part."""

    signals: np.ndarray
    labels: np.ndarray

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Learned:
        """Read a table with one row per trajectory and step."""
        ordered = frame.sort_values(["trajectory", "step"])
        shape = (ordered["trajectory"].nunique(), ordered["step"].nunique(), -1)
        sensors = [name for name in frame if name not in ("trajectory", "step", "vigorous")]
        signals = ordered[sensors].to_numpy(float).reshape(shape)[:, ::EVERY]
        labels = ordered["vigorous"].to_numpy(int).reshape(shape[:2])[:, 0] == 1
        return cls(signals, labels)

    @cached_property
    def order(self) -> np.ndarray:
        """Trajectories in random order; the first third is held out."""
        return np.random.default_rng(SEED).permutation(len(self.signals))

    @property
    def held_out(self) -> np.ndarray:
        """Indices of the held-out trajectories, which no individual has."""
        return self.order[: len(self.order) // 3]

    @cached_property
    def book(self) -> RuleIndex:
        """Each individual's rules, learned from a balanced draw of trajectories."""
        variables = self.signals.shape[2]
        names = tuple((f"x{i}", -BOUND, BOUND) for i in range(variables))
        grammar = Grammar(names, most_operators=2, horizon=self.signals.shape[1] - 1)
        training, rng = self.order[len(self.held_out) :], np.random.default_rng(SEED)
        classes = [training[self.labels[training] == label] for label in (True, False)]
        rules = {}
        for person in range(PEOPLE):
            index = np.concatenate([rng.choice(item, EACH // 2, replace=False) for item in classes])
            learner = GeneticRules(
                grammar, rules=8, population=10, generations=2, seed=10**6 * SEED + person
            )
            learned = learner.learn(self.signals[index], self.labels[index])
            rules[f"{person:05d}"] = [item.rule for item in learned]
        return RuleIndex.of(rules, grammar)

    def worth(self, rules: PopulationRules) -> dict[str, float]:
        """Return balanced accuracy and F1 of rules on the held-out trajectories."""
        return utility(rules.predict(self.signals[self.held_out]), self.labels[self.held_out])

    def valid(self, nu: float) -> Mapping[tuple[int, ...], int]:
        """Return structures held by at least a fraction ``nu`` of the individuals, with their number of holders."""
        return self.book.valid(nu * self.book.people)

    def every_rule(self, nu: float) -> PopulationRules:
        """Return every valid structure with the median of its holders' parameters."""
        book, rules = self.book, []
        for structure, holders in self.valid(nu).items():
            ranges = np.array(book.grammar.ranges(structure))
            parameters = book.parameters(structure, len(ranges))[:, book.answers(structure)]
            values = ranges[:, 0] + np.median(parameters, axis=1) * (ranges[:, 1] - ranges[:, 0])
            rule = book.grammar.formula(structure, values.tolist())
            rules.append(WeightedRule(rule, holders / book.people))
        return PopulationRules(tuple(rules), book.grammar.names)

    def searched(self, protocol: str, epsilon: int, nu: float, seed: int) -> dict[str, float]:
        """Return coverage and precision of one search, and the utility of its rules."""
        strategy, options = PROTOCOLS.get(protocol, ("levels", {}))
        total, grammar = Fraction(epsilon), self.book.grammar
        model = RuleSearch(
            strategy, epsilon=total * 3 / 4, parameter_epsilon=total / 4, min_support=nu, random_state=seed,
            max_operators=grammar.most_operators, horizon=grammar.horizon, **options,
        )  # fmt: skip
        try:
            model.fit(CohortDisclosure.of(self.book, model.private(total), seed=seed + 1))
        except InputError as error:
            if "too small" not in str(error):
                raise
            model.found_, model.rules_ = [], PopulationRules((), grammar.names)
        covered, precision = coverage([rule.structure for rule in model.found_], self.valid(nu))
        return {"coverage": covered, "precision": precision, **self.worth(model.rules_)}


#: A search's scores, and their names in tables.
SCORES = {"coverage": "coverage", "precision": "precision", "balanced_accuracy": "balanced accuracy", "f1": "F1"}  # fmt: skip


def by_epsilon() -> Iterator[tuple[str, Cell]]:
    """Yield Figure 10's settings and searches."""
    for protocol in (*PROTOCOLS, BY_LEVEL):
        for epsilon in EPSILONS if protocol in PROTOCOLS else LEVELS:
            yield f"epsilon {epsilon:,}", (protocol, epsilon, NU)


def by_nu() -> Iterator[tuple[str, Cell]]:
    """Yield Figure 11's settings and searches."""
    for protocol in PROTOCOLS:
        yield from ((f"nu {nu:g}", (protocol, FIXED, nu)) for nu in NUS)


def table(
    cells: Callable[[], Iterator[tuple[str, Cell]]], reference: tuple[float, ...]
) -> Callable[[Mapping[str, pd.DataFrame], int], Iterator[Measured]]:
    """Return a run of searches' scores; ``reference``: values of nu at which all valid rules are compared."""

    def run(data: Mapping[str, pd.DataFrame], runs: int) -> Iterator[Measured]:
        learned = Learned.of(data[SET])
        for setting, (protocol, epsilon, nu) in cells():
            searches = repeated(range(runs), f"{protocol}, {setting}")
            rows = pd.DataFrame([learned.searched(protocol, epsilon, nu, run) for run in searches])
            for score, words in SCORES.items():
                if len(values := rows[score].dropna()):
                    yield Measured(f"{protocol}, {setting}", words, None, values.tolist())
        for nu in reference:
            for score, value in learned.worth(learned.every_rule(nu)).items():
                yield Measured(f"{ALL}, nu {nu:g}", SCORES[score], None, [value])

    return run


def figure_12(data: Mapping[str, pd.DataFrame], runs: int) -> Iterator[Measured]:
    """Yield Figure 12: valid rules by the fraction of the population that must hold them, without noise."""
    learned = Learned.of(data[SET])
    for nu in NUS:
        yield Measured(
            "valid rules", f"held by {100 * nu:g} %", None, [float(len(learned.valid(nu)))]
        )
