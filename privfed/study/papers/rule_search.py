"""DP-RuL's Figures 6, 8 and 9: coverage and precision of rule searches over simulated patients.

The hospitals' patients are not public: populations are simulated with the published marginals
(:mod:`privfed.learners.rule_search.generator` states the assumptions). Searches that query the whole
population run over simulated answers, which follow the protocol's distribution (:mod:`.simulated_asking`).
``equal`` is the paper's baseline, ``uct`` its adaptive protocol, ``adaptive`` ours (best first); ``levels``
protects one rule, all others an individual. A run without rules has no precision; it counts in coverage only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from privfed.engines.cohort import CohortDisclosure
from privfed.errors import InputError
from privfed.learners import RuleSearch
from privfed.learners.rule_search.asking import CohortSession, FoundRule
from privfed.learners.rule_search.best_first import BestFirst
from privfed.learners.rule_search.estimators import UCT_CONSTANT
from privfed.learners.rule_search.generator import PROFILES, generate
from privfed.learners.rule_search.least_epsilon import Exploration
from privfed.learners.rule_search.level_search import LevelPlan, LevelSearch
from privfed.learners.rule_search.population_rules import coverage
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.rule_search.settings import SearchSettings
from privfed.learners.rule_search.tree_search import Adaptive, Equal, TreeSearch
from privfed.study.papers.simulated_asking import SimulatedAsking, Truths
from privfed.study.papers.table import Measured, repeated

#: Methods that query the whole population; epsilon (nats per individual) of whole searches, of one query, of levels.
EVERYBODY = ("equal1000", "equal5000", "uct", "uct-sqrt2", "adaptive1000", "adaptive5000")
TOTALS = (1, 10, 30, 100, 300, 1000, 3000, 10000)
ONCE = (1, 2, 4, 8, 16)
RULE = (1, 2, 3, 4, 6, 8, 12, 16)
#: Where nu and theta are varied: epsilon of an adaptive search, and of one by level.
FIXED = {"uct": 3000, "adaptive1000": 3000, "levels": 8}
NUS = (0.005, 0.01, 0.02, 0.05)
THETAS = (0.01, 0.02, 0.05, 0.1, 0.2)
#: Maximum symbols of a rule in a search by level: T1D's rules are long.
LEVELS = {"icu": 5, "sepsis": 5, "t1d": 10}
MOST = 8000
#: Expected number of valid rules, by the width of a search.
EXPECTED = {1000: 400, 5000: 4000}
LABELS = {
    "equal1000": "equal shares, Q = 1000",
    "equal5000": "equal shares, Q = 5000",
    "uct": "paper's adaptive (UCT), C = 0.1",
    "uct-sqrt2": "paper's adaptive (UCT), C = sqrt 2",
    "adaptive1000": "ours, best first, as wide as Q = 1000",
    "adaptive5000": "ours, best first, as wide as Q = 5000",
    "levels": "by level (unit: one rule)",
    "parts": "parts (unit: individual)",
    "sampled": "sampled rule (unit: individual)",
}


@lru_cache(maxsize=1)
def population(profile: str, seed: int) -> Truths:
    """Return a simulated population, whose matches are counted once."""
    return Truths(generate(PROFILES[profile], seed))


@lru_cache(maxsize=16)
def valid(book: RuleIndex, nu: float) -> frozenset[tuple[int, ...]]:
    """Return the structures held by at least a fraction ``nu`` of the population."""
    return frozenset(book.valid(nu * book.people))


def search(
    session: CohortSession,
    method: str,
    epsilon: Fraction,
    nu: float,
    theta: float,
    seed: int,
    levels: int,
) -> list[FoundRule]:
    """Search by one method over simulated answers; ``levels``: maximum symbols of a rule."""
    exploration = Exploration(nu, theta)
    if method.startswith("equal"):
        return TreeSearch(session, Equal(epsilon, int(method[5:]), nu), seed=seed).run()
    if method.startswith("uct"):
        constant = math.sqrt(2) if method == "uct-sqrt2" else UCT_CONSTANT
        return TreeSearch(session, Adaptive(exploration), constant, seed=seed).run()
    if method.startswith("adaptive"):
        width = int(method[8:])
        settings = SearchSettings(spread=width, expected=EXPECTED[width])
        return BestFirst(session, exploration, epsilon, settings).run()
    return LevelSearch(session, LevelPlan(epsilon, nu, levels, max_size=MOST)).run()


def through_a_gate(book: RuleIndex, method: str, epsilon: float, seed: int) -> RuleSearch:
    """Search by parts or sampled rules through a gate with seeded noise."""
    model = RuleSearch(
        method, epsilon=str(epsilon), random_state=seed, max_operators=6, max_templates=2000
    )  # fmt: skip
    try:
        model.fit(CohortDisclosure.of(book, model.private(str(epsilon)), seed=seed + 1))
    except InputError as error:
        if "too small" not in str(error):
            raise
        model.found_, model.steps_ = [], []
    return model


def cell(
    truths: Truths, profile: str, method: str, epsilon: float, nu: float, theta: float, seed: int
) -> tuple[dict[str, Any], CohortSession | RuleSearch]:
    """Run one search; return its factors and scores, and the session or learner."""
    started = time.perf_counter()
    searcher: CohortSession | RuleSearch
    if method in ("parts", "sampled"):
        searcher = through_a_gate(truths.book, method, epsilon, seed)
        rules, steps = searcher.found_, searcher.steps_
    else:
        budget = Fraction(epsilon)
        searcher = SimulatedAsking(truths, budget, seed + 1)
        rules = search(searcher, method, budget, nu, theta, seed, LEVELS[profile])
        steps = searcher.steps
    covered, precision = coverage([rule.structure for rule in rules], valid(truths.book, nu))
    row = {"profile": profile, "method": method, "epsilon": epsilon, "nu": nu, "theta": theta}
    row |= {"run": seed, "coverage": covered, "precision": precision if rules else np.nan}
    row |= {"f1": 2 * covered * precision / (covered + precision) if covered else 0.0}
    row |= {
        "found": len(rules),
        "questions": len(steps),
        "seconds": round(time.perf_counter() - started, 2),
    }
    return row, searcher


def grid(
    figure: str, totals: Sequence[int] = TOTALS, methods: Sequence[str] = EVERYBODY
) -> Iterator[tuple[str, float, float, float]]:
    """Yield method, epsilon, nu and theta of each cell of a figure."""
    if figure == "epsilon":
        yield from ((method, total, 0.01, 0.05) for total in totals for method in methods)
        if "levels" in methods or methods == EVERYBODY:
            yield from (("levels", total, 0.01, 0.05) for total in RULE)
    elif figure == "once":
        yield from ((m, total, 0.01, 0.05) for total in ONCE for m in ("parts", "sampled"))
    elif figure == "nu":
        yield from ((method, total, nu, 0.05) for method, total in FIXED.items() for nu in NUS)
    else:
        adaptive = ("uct", "adaptive1000")
        yield from ((m, FIXED[m], 0.01, theta) for m in adaptive for theta in THETAS)


#: Population, and epsilon of whole searches, of the tables that ``privfed reproduce`` runs.
PROFILE, POPULATION, REDUCED = "icu", 11, (300, 1000, 3000, 10000)


def table(figure: str) -> Callable[[Mapping[str, pd.DataFrame], int], Iterator[Measured]]:
    """Return a run of coverage and precision by ``epsilon``, ``nu`` or ``theta``; repetitions share a population."""

    def run(data: Mapping[str, pd.DataFrame], runs: int) -> Iterator[Measured]:
        truths = population(PROFILE, POPULATION)
        for method, epsilon, nu, theta in grid(figure, REDUCED):
            arguments = (truths, PROFILE, method, epsilon, nu, theta)
            searches = repeated(range(runs), LABELS[method])
            rows = pd.DataFrame([cell(*arguments, seed)[0] for seed in searches])
            value = rows[figure].iloc[0]
            for score in ("coverage", "precision"):
                if len(values := rows[score].dropna()):
                    row = f"{LABELS[method]}, {figure} {value:,g}"
                    yield Measured(row, score, None, values.tolist())

    return run


def questions(data: Mapping[str, pd.DataFrame], runs: int) -> Iterator[Measured]:
    """Yield Figure 7: the cost and number of queries in a search of :data:`FIXED` nats."""
    truths = population(PROFILE, POPULATION)
    for method in EVERYBODY:
        by_name: dict[str, list[float]] = {}
        for seed in repeated(range(runs), LABELS[method]):
            _, session = cell(truths, PROFILE, method, FIXED["adaptive1000"], 0.01, 0.05, seed)
            assert isinstance(session, CohortSession)
            spent = np.array([float(step.epsilon) for step in session.steps])
            minimum, median, maximum = np.quantile(spent, [0, 0.5, 1]) if len(spent) else (0, 0, 0)
            names = ("questions", "least epsilon", "median", "most")
            for name, value in zip(names, (len(spent), minimum, median, maximum), strict=True):
                by_name.setdefault(name, []).append(float(value))
        for name, values in by_name.items():
            yield Measured(LABELS[method], name, None, values)
