"""The adaptive search keeps its promise about ignoring, its budget, and its lead over equal shares."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from privfed.learners.rule_search.best_first import BestFirst, Subtree, SupportPrediction
from privfed.learners.rule_search.generator import Profile, generate
from privfed.learners.rule_search.least_epsilon import Exploration, least_epsilon
from privfed.learners.rule_search.population_rules import coverage
from privfed.learners.rule_search.settings import SearchSettings
from privfed.learners.rule_search.tree_search import Equal, TreeSearch
from privfed.learners.stl.grammar import Symbols
from privfed.study.papers.simulated_asking import SimulatedAsking, Truths

BOOK = generate(Profile(8000, 120_000, 4_000, 20, 2.0, 4, top=0.5, stems=30), 5)
TRUTHS = Truths(BOOK)
NU = 0.01
VALID = BOOK.valid(NU * BOOK.people)


class _Planted(Truths):
    """Every template is held by the same number of individuals."""

    def __init__(self, held: int) -> None:
        super().__init__(BOOK)
        self.held = held

    def count(self, template: Symbols) -> int:
        """The planted number."""
        return self.held


def _search(total: int, seed: int, truths: Truths = TRUTHS, theta: float = 0.05) -> BestFirst:
    budget = Fraction(total)
    asking = SimulatedAsking(truths, budget, seed)
    return BestFirst(asking, Exploration(NU, theta), budget)


def _ignored(held: int, predicted: float, theta: float, trials: int = 1000) -> float:
    """Share of templates with so many holders that end up ignored, however often they are asked."""
    search = _search(10**6, 3, _Planted(held), theta)
    root = Subtree((), None, 1, estimate=float(BOOK.people), std=0.0)
    operator = BOOK.grammar.size
    number = 0
    for _ in range(trials):
        child = Subtree((operator,), root, 1, predicted=predicted)
        verdict = "later"
        while verdict == "later":
            verdict = search.examine(child)
            search.session._known.clear()  # type: ignore[attr-defined]  # another template each time
            child.predicted /= search.settings.coarser
        number += verdict == "ignored"
    return number / trials


@pytest.mark.parametrize(
    ("theta", "predicted"), [(0.02, 0.001), (0.02, 0.5), (0.05, 0.1), (0.2, 0.001), (0.2, 0.5)]
)
def test_a_subtree_worth_exploring_is_ignored_with_probability_theta(
    theta: float, predicted: float
) -> None:
    """At c* = 2 nu N at most theta and at least a third of it, asked coarsely first or not."""
    achieved = _ignored(Exploration(NU, theta).finest(BOOK.people).count, predicted, theta)
    slack = 4 * np.sqrt(theta / 1000)
    assert theta / 3 <= achieved <= theta + slack


def test_smaller_subtrees_are_ignored_more_and_larger_ones_less() -> None:
    """The power twin: half of c* breaks the bound, twice c* wastes nothing of it."""
    count = Exploration(NU).finest(BOOK.people).count
    assert _ignored(count // 2, 0.001, 0.05, 400) > 0.3
    assert _ignored(2 * count, 0.001, 0.05, 400) < 0.01


def _scores(total: int, questions: int, adaptive: bool) -> np.ndarray:
    """Mean coverage, precision and F1 of three runs; adaptive as wide as Q, or equal shares."""
    rows = []
    for seed in range(3):
        asking = SimulatedAsking(TRUTHS, Fraction(total), seed)
        if adaptive:
            settings = SearchSettings(spread=questions)
            found = BestFirst(asking, Exploration(NU), Fraction(total), settings).run()
        else:
            found = TreeSearch(asking, Equal(Fraction(total), questions, NU), seed=seed).run()
        rows.append(coverage([one.structure for one in found], VALID))
    right, precise = np.mean(rows, axis=0)
    return np.array([right, precise, 2 * right * precise / (right + precise)])


@pytest.mark.parametrize(("total", "questions"), [(1000, 1000), (3000, 500)])
def test_adaptive_finds_more_and_errs_less_than_equal_shares(total: int, questions: int) -> None:
    """Coverage is greater; precision is too unless both are nearly perfect."""
    adaptive, equal = (_scores(total, questions, which) for which in (True, False))
    assert adaptive[0] > equal[0]
    assert adaptive[1] > min(equal[1], 0.95)


@pytest.mark.parametrize("questions", [500, 1000])
def test_with_little_adaptive_balances_better(questions: int) -> None:
    """Where equal shares list mostly noise, precision and F1 of the adaptive search are greater."""
    adaptive, equal = (_scores(300, questions, which) for which in (True, False))
    assert (adaptive[1:] > equal[1:]).all()


def test_the_budget_is_never_exceeded_and_nearly_used() -> None:
    """The sum of all amounts stays within the total, and hardly anything is left."""
    search = _search(500, 1)
    search.run()
    spent = sum(Fraction(step.epsilon) for step in search.session.steps)
    assert 495 < spent <= Fraction(500) + Fraction(1, 10**9)


def test_a_sharper_question_follows_a_coarse_one() -> None:
    """Each further question about a template costs more than the one before: fresh, and charged."""
    search = _search(1000, 2)
    asked: dict[Symbols, list[Fraction]] = {}
    ask = search.session.bits

    def watched(templates: list[Symbols], spend: Fraction) -> object:
        asked.setdefault(templates[0], []).append(spend)
        return ask(templates, spend)

    search.session.bits = watched  # type: ignore[method-assign, assignment]
    search.run()
    assert any(len(amounts) > 1 for amounts in asked.values())
    assert all(a < b for amounts in asked.values() for a, b in pairwise(amounts))


def test_large_subtrees_cost_little() -> None:
    """The first question, about an operator, is far cheaper than the finest."""
    search = _search(10_000, 1)
    search.run(max_queries=400)
    finest = float(least_epsilon(Exploration(NU).finest(BOOK.people)))
    amounts = [step.epsilon for step in search.session.steps]
    assert amounts[0] < 0.2 * finest
    assert max(amounts) >= finest


def test_the_same_releases_give_the_same_search() -> None:
    """Nothing but releases and public values decides: equal answers, equal questions."""
    one, other = _search(300, 7), _search(300, 7)
    assert one.run() == other.run()
    assert one.session.steps == other.session.steps


def test_frequent_symbols_are_tried_first() -> None:
    """A symbol that was frequent below one parent has more promise below another."""
    grammar, people = BOOK.grammar, BOOK.people
    promise = SupportPrediction(grammar, people)
    parent = Subtree((grammar.size,), None, 1, estimate=0.8 * people, std=10.0)
    parent.untried = np.array([[1, 2, 3], [0, 0, 0]])
    before = promise.shares(parent)
    frequent = Subtree((grammar.size, 2), parent, 0, estimate=0.4 * people, std=10.0)
    frequent.epsilon = Fraction(1)
    promise.learn(frequent)
    after = promise.shares(parent)
    assert np.ptp(before) == 0
    assert after[1] > 2 * after[0] == 2 * after[2]


def test_releases_about_one_template_are_weighed_by_precision() -> None:
    """Inverse variance: a release ten times as precise decides."""
    search = _search(100, 1, _Planted(400))
    child = Subtree((1,), Subtree((), None, 1, estimate=8000.0), 0, predicted=0.05)
    search._ask(child, Fraction(1, 10))
    coarse = child.std
    search._ask(child, Fraction(2))
    assert child.std < 0.1 * coarse
    assert child.estimate == pytest.approx(400, abs=5 * child.std)
