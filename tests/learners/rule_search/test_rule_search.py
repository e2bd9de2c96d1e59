"""Searches find what is held, spend what they may, and repeat themselves."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from privfed.engines.cohort import CohortDisclosure
from privfed.errors import InputError
from privfed.learners import RuleSearch
from privfed.learners.rule_search.asking import CohortSession, FoundRule, SearchStep
from privfed.learners.rule_search.best_first import BestFirst
from privfed.learners.rule_search.generator import Profile, generate
from privfed.learners.rule_search.least_epsilon import Exploration, least_epsilon, smallest_part
from privfed.learners.rule_search.level_search import LevelPlan
from privfed.learners.rule_search.population_rules import (
    PopulationRules,
    WeightedRule,
    coverage,
    utility,
)
from privfed.learners.rule_search.tree_search import Adaptive, Equal, SearchNode, TreeSearch
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.parser import parse
from privfed.study.papers.simulated_asking import SimulatedAsking, Truths
from privfed.tables.schema import Column, Schema

PROFILE = Profile(3000, 30_000, 600, 5, 1.6, 3, top=0.5, stems=5)
BOOK = generate(PROFILE, 2, values=True)
NU = 0.05
TRUTHS = Truths(BOOK)
VALID = BOOK.valid(NU * PROFILE.people)
COMMON = {"min_support": NU, "max_operators": 3, "horizon": 10}


def _fitted(strategy: str, epsilon: str, seed: int = 1, **settings: object) -> RuleSearch:
    model = RuleSearch(strategy, epsilon=epsilon, random_state=seed, **COMMON, **settings)  # type: ignore[arg-type]
    federation = CohortDisclosure.of(BOOK, model.private("6000"), seed=seed)
    model.fit(federation)
    model.spent_ = federation.budget().iloc[0]["spent"]
    return model


def _scored(model: RuleSearch) -> tuple[float, float]:
    return coverage([one.structure for one in model.found_], VALID)


def _simulated(search: str, epsilon: int, seed: int = 1) -> tuple[float, float]:
    """Coverage and precision of a tree search over simulated answers."""
    asking = SimulatedAsking(TRUTHS, Fraction(epsilon), seed)
    if search == "equal":
        found = TreeSearch(asking, Equal(Fraction(epsilon), 1000, NU), seed=seed).run()
    elif search == "uct":
        found = TreeSearch(asking, Adaptive(Exploration(NU)), seed=seed).run()
    else:
        found = BestFirst(asking, Exploration(NU), Fraction(epsilon)).run()
    return coverage([one.structure for one in found], VALID)


@pytest.mark.parametrize(
    ("search", "epsilon", "least"),
    [("equal", 6000, 0.8), ("adaptive", 3000, 0.8), ("uct", 6000, 0.6)],
)
def test_with_a_large_budget_each_tree_search_finds_the_valid_rules(
    search: str, epsilon: int, least: float
) -> None:
    """Coverage and precision are high where the budget pays for the whole tree.

    UCT with the least epsilon never asks twice: rules within its margin around nu stay in doubt.
    """
    right, precise = np.mean([_simulated(search, epsilon, seed) for seed in range(3)], axis=0)
    assert right > least
    assert precise > least


@pytest.mark.parametrize("search", ["equal", "adaptive"])
def test_with_a_small_budget_no_tree_search_does(search: str) -> None:
    """The power twin: at a hundredth of the budget neither is both complete and right."""
    assert min(_simulated(search, 30)) < 0.3


def test_with_a_large_budget_levels_find_the_valid_rules() -> None:
    """Coverage and precision through a real gate."""
    right, precise = _scored(_fitted("levels", "60"))
    assert right > 0.8
    assert precise > 0.8


@pytest.mark.parametrize("strategy", ["equal", "uct", "adaptive"])
def test_tree_searches_pass_through_a_gate(strategy: str) -> None:
    """Through gate and ledger too: what the learner counts is what is charged, within its epsilon."""
    model = _fitted(strategy, "80", questions=200, max_queries=150)
    assert 100 < len(model.steps_) <= 150
    assert 0 < model.spent_ <= 80
    assert model.spent_ == pytest.approx(sum(step.epsilon for step in model.steps_), abs=1e-6)


def test_with_hardly_any_budget_levels_find_noise() -> None:
    """The power twin: the same search at a hundredth of a nat has no precision."""
    assert _scored(_fitted("levels", "0.01"))[1] < 0.5


def test_levels_spend_the_whole_budget_and_no_more() -> None:
    """The sum over levels and the last question is the stated epsilon, exactly."""
    model = _fitted("levels", "10")
    assert model.spent_ == 10.0
    assert sum(step.epsilon for step in model.steps_) == pytest.approx(10.0)
    assert len(model.steps_) <= model.levels + 1


def test_parts_ask_each_individual_once() -> None:
    """Fresh people for each question: nobody spends more than epsilon."""
    model = _fitted("parts", "8")
    part = smallest_part(PROFILE.people, 8.0, NU, 1.0, 0.05)
    assert model.spent_ == 8.0
    assert {step.asked for step in model.steps_} == {part}
    assert len(model.steps_) == PROFILE.people // part


def test_sampled_rules_are_estimated_without_bias() -> None:
    """At the first level, the estimate times the slots is near the number of matching rules."""
    model = _fitted("sampled", "16", slots=40, levels=2)
    assert model.steps_[0].asked == PROFILE.people // 2
    assert model.spent_ == 16.0


def test_a_search_repeats_itself() -> None:
    """The same seeds give the same rules."""
    one, other = (_fitted("levels", "20", seed=4) for _ in range(2))
    assert one.to_dict() == other.to_dict()


def test_searches_stop_when_the_budget_refuses() -> None:
    """A budget below the learner's wish ends the search, without an error, with what it has."""
    model = RuleSearch("equal", epsilon="10", questions=10, max_queries=50, **COMMON)  # type: ignore[arg-type]
    federation = CohortDisclosure.of(BOOK, model.private("5"), seed=1)
    model.fit(federation)
    assert len(model.steps_) == 5


def test_questions_cost_less_below_frequent_parents() -> None:
    """The least epsilon about a large share of everybody's rules is far below the finest."""
    exploration = Exploration(NU, share=0.25)
    asking = SimulatedAsking(TRUTHS, Fraction(1000), 1)
    TreeSearch(asking, Adaptive(exploration), seed=1).run(60)
    spent = [step.epsilon for step in asking.steps]
    assert min(spent) < 0.5 * float(least_epsilon(exploration.finest(BOOK.people)))


def test_uct_explores_what_was_visited_least() -> None:
    """Equation 1 by hand: share of the people plus C sqrt(ln N_parent / n)."""
    search = TreeSearch(SimulatedAsking(TRUTHS, Fraction(1), 1), Equal(Fraction(1), 1, NU), 0.5)
    parent, often, seldom = SearchNode(()), SearchNode((1,)), SearchNode((2,))
    parent.visits, often.visits, seldom.visits = 100, 90, 10
    often.total, seldom.total = 90 * 600.0, 10 * 300.0
    scores = [search._score(parent, child) for child in (often, seldom)]
    assert scores == pytest.approx(
        [0.2 + 0.5 * math.sqrt(math.log(100) / 90), 0.1 + 0.5 * math.sqrt(math.log(100) / 10)]
    )
    assert scores[1] > scores[0]


def test_a_share_of_zero_asks_each_question_at_the_finest() -> None:
    """The nearest to equation 5: one epsilon for all, as long as the tree is unexplored."""
    asking = SimulatedAsking(TRUTHS, Fraction(1000), 1)
    TreeSearch(asking, Adaptive(Exploration(NU)), seed=1).run(300)
    finest = float(least_epsilon(Exploration(NU).finest(BOOK.people)))
    assert {step.epsilon for step in asking.steps} == {finest}


def test_what_remains_of_an_explored_tree_looks_closer() -> None:
    """Half of the budget used to be left; now nu N is looked for, and doubts are settled."""
    book = generate(Profile(2000, 20_000, 400, 3, 1.8, 3, top=0.5, stems=5), 3)
    truths, total = Truths(book), Fraction(1000)
    scores = []
    for seed in range(2):
        asking = SimulatedAsking(truths, total, seed)
        found = TreeSearch(asking, Adaptive(Exploration(NU)), 0.1, seed=seed, total=total).run()
        assert asking.remaining < total / 20
        scores.append(coverage([one.structure for one in found], book.valid(NU * book.people)))
    right, precise = np.mean(scores, axis=0)
    assert right > 0.8 and precise > 0.85


def test_equal_shares_are_equal() -> None:
    """A Q-th of the budget each, and nu N."""
    share = Equal(Fraction(10), 1000, NU).question(3000, TreeSearch.__new__(TreeSearch))  # type: ignore[arg-type]
    assert share == (Fraction(1, 100), NU * 3000)


@pytest.mark.parametrize("strategy", ["adaptive", "uct", "parts"])
def test_an_epsilon_too_small_for_any_question_names_the_least(strategy: str) -> None:
    """The message says what would be enough, and that is enough indeed."""
    with pytest.raises(InputError, match=r"too small .*(least|at least)") as caught:
        _fitted(strategy, "0.001", share=0.0)
    enough = str(caught.value).split()[-1]
    _fitted(strategy, str(float(enough) + 0.01), share=0.0, max_queries=3)


@pytest.mark.parametrize(
    "settings",
    [{"strategy": "guess"}, {"epsilon": "nan"}, {"levels": 0}, {"epsilon": 0}, {"slots": 0}],
)
def test_settings_that_make_no_sense(settings: dict[str, object]) -> None:
    """One clear error each, before anything is asked."""
    model = RuleSearch(**settings)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        model.fit(CohortDisclosure.of(BOOK, RuleSearch().private("1"), seed=1))


def test_parameters_stay_in_their_public_ranges() -> None:
    """With a budget for them, thresholds come near the holders'; intervals are whole steps."""
    model = _fitted("levels", "60", parameter_epsilon="300", max_templates=500)
    for weighted, found in zip(model.rules_.rules, model.found_, strict=True):
        assert BOOK.grammar.structure(weighted.rule) == found.structure
    assert 300 < model.spent_ <= 360


def test_the_percentile_of_the_parameters_is_the_one_asked_for() -> None:
    """Thresholds at the tenth and at the ninetieth are those of the holders, within the noise."""
    frequent = sorted(VALID, key=lambda structure: -VALID[structure])[:3]
    found = [FoundRule(one, VALID[one] / BOOK.people, 0.0) for one in frequent]
    policy = RuleSearch("levels").private("300")
    for percent in (10.0, 90.0):
        gate = CohortDisclosure.of(BOOK, policy, seed=1)
        asking = CohortSession(gate, BOOK.grammar, BOOK.people)
        told = asking.parameters(found, Fraction(300), percent)
        for structure, (values, error) in zip(frequent, told, strict=True):
            ranges = np.array(BOOK.grammar.ranges(structure))
            scaled = (np.array(values) - ranges[:, 0]) / (ranges[:, 1] - ranges[:, 0])
            held = BOOK.parameters(structure, len(ranges))[:, BOOK.answers(structure)]
            assert 0 < error < 0.05
            assert scaled == pytest.approx(np.percentile(held, percent, axis=1), abs=0.05)


def test_the_vote_weighs_rules_by_their_shares() -> None:
    """Two rules against one, by weight; and no rules vote for nothing."""
    rules = (WeightedRule(parse("a >= 1"), 0.6), WeightedRule(parse("a >= 3"), 0.3))
    vote = PopulationRules(rules, ("a",))
    signals = np.array([[[0.0]], [[2.0]], [[4.0]]])
    assert vote.votes(signals).tolist() == pytest.approx([0, 2 / 3, 1])
    assert vote.predict(signals).tolist() == [False, True, True]
    assert PopulationRules((), ("a",)).votes(signals).tolist() == [0, 0, 0]
    scores = utility(vote.predict(signals), np.array([False, True, True]))
    assert scores == {"balanced_accuracy": 1.0, "f1": 1.0}


def holding(*rules: WeightedRule, parameter_epsilon: int = 0) -> RuleSearch:
    """A search that found rules on the heart rate by two queries."""
    model = RuleSearch(min_support=0.1, max_operators=2, parameter_epsilon=parameter_epsilon)
    model.schema_ = Schema((Column("hr", lower=20, upper=220),))
    model.rules_ = PopulationRules(rules, ("hr",))
    model.steps_ = [SearchStep(9, 400, 0.5, 1.0), SearchStep(1, 300, 0.5, 1.0)]
    return model


def test_a_text_says_how_far_thresholds_are_known_and_what_was_asked() -> None:
    """Digits by the error; half of the range is nothing; middles of ranges are said to be that."""
    rules = [
        WeightedRule(parse(f"G[0,4](hr >= {100 + error})"), 0.5, 0.01, error)
        for error in (0.0012, 0.1234, 0.75)
    ]
    told = holding(*rules, parameter_epsilon=2).describe().splitlines()
    assert [line.partition(": ")[2] for line in told[1:4]] == [
        "G[0,4](hr >= 100.0) (thresholds ± 0.12 %)",
        "G[0,4](hr >= 100.0) (thresholds ± 12 %)",
        "G[0,4](hr >= 100.0) (thresholds unknown)",
    ]
    assert "percentile 50 of the holders'" in told[4] and "what the noise leaves open" in told[4]
    assert told[5].startswith(
        "Searched by 2 queries on 10 templates to 300 to 400 individuals, for rules that 10 % of all or more "
        "hold, of at most 2 operators (&, |, U, F, G) and the relations <=, >=."
    )
    assert "a rule that is not listed was not asked about" in told[5]
    middles = holding(WeightedRule(parse("hr >= 120"), 0.5, 0.01)).describe()
    assert "were not asked: they are the middles of their ranges" in middles
    assert "±" not in middles


def test_rules_saved_before_their_errors_were_known_are_read() -> None:
    """As rules without; new ones keep theirs, in the text as in the file."""
    model = fitted_search()
    data = json.loads(json.dumps(model.to_dict()))
    again = RuleSearch.from_dict(data)
    assert again.rules_ == model.rules_ and all(rule.error for rule in again.rules_.rules)
    assert all(rule["parameter_error"] > 0 for rule in data["rules"])
    for row in data["state"]["rules"]:
        del row[3]
    old = RuleSearch.from_dict(data)
    assert [rule.error for rule in old.rules_.rules] == [None] * len(model.rules_.rules)
    assert "±" in model.describe() and "±" not in old.describe()


def test_a_guarantee_of_single_rules_says_what_an_individual_loses() -> None:
    """The sum over their rules; of individuals' guarantees nothing is added."""
    assert "for each rule of an individual (add-or-remove)" in fitted_search().describe()
    assert "loses the sum over them" in fitted_search().describe()


@cache
def fitted_search() -> RuleSearch:
    """A search by level of the book, with thresholds."""
    return _fitted("levels", "60", parameter_epsilon="60")


def test_rules_are_read_with_their_shares_and_limits() -> None:
    """Text and notebook; no rule is said to be none."""
    model = holding(WeightedRule(parse("hr >= 100"), 0.66, 0.01))
    assert "66.0 % (64.0 to 68.0 %): hr >= 100" in model.describe()
    assert "at least 50 % of all shares" in model.describe() and "hr &gt;= 100" in model.to_html()
    model.rules_ = PopulationRules((), ("hr",))
    assert model.describe().startswith("No rule was found.\nSearched by 2 queries")
    assert model.plot().get_title(loc="left") == "No rule was found."


def test_shares_are_drawn_as_bars_with_their_limits() -> None:
    """Those of the text, and 95 % is what the label says."""
    rules = (
        WeightedRule(parse("hr >= 100"), 0.66, 0.01),
        WeightedRule(parse("hr <= 60"), 0.2, 9.0),
    )
    model = holding(*rules)
    axes = model.plot()
    bars: Any = axes.patches
    (lines,) = list[Any](axes.collections)
    assert [bar.get_width() for bar in bars] == [0.66, 0.2]
    assert np.allclose(
        [one[:, 0] for one in lines.get_segments()], [[0.6404, 0.6796], [0.0, 1.0]], atol=1e-4
    )
    assert axes.get_xlabel().endswith("with 95 % intervals")
    with pytest.raises(InputError, match="no picture of 'hr' alone"):
        model.plot("hr")


def test_coverage_and_precision() -> None:
    """Shares of what is valid and of what was found; of nothing there is no share."""
    assert coverage([(1,), (2,), (3,)], {(1,), (4,)}) == (0.5, pytest.approx(1 / 3))
    assert np.isnan(coverage([], set())).all()
    assert coverage([], {(1,)})[0] == 0.0 and np.isnan(coverage([], {(1,)})[1])
    assert np.isnan(coverage([(1,)], set())[0]) and coverage([(1,)], set())[1] == 0.0


def test_level_plans() -> None:
    """Amounts worked out by hand; malformed plans are refused."""
    plan = LevelPlan(Fraction(10), NU, 3, Fraction(3, 10), growth=Fraction(2))
    assert plan.amounts == (Fraction(1), Fraction(2), Fraction(4))
    assert plan.questions == (Fraction(1), Fraction(2), Fraction(4), Fraction(3))
    with pytest.raises(InputError, match="plan"):
        LevelPlan(Fraction(10), NU, 0)


def test_a_grammar_without_terminals_is_refused() -> None:
    """There is nothing to search."""
    with pytest.raises(InputError, match="terminals"):
        Grammar(())


@pytest.mark.parametrize(("strategy", "epsilon"), [("equal", "1"), ("adaptive", "9"), ("uct", "9")])
def test_a_search_keeps_its_own_epsilon_under_a_larger_ceiling(strategy: str, epsilon: str) -> None:
    """What the price says of the structures holds, though the policy would allow 6000."""
    model = _fitted(strategy, epsilon, questions=20, share=0.0)
    assert 0 < model.spent_ <= float(epsilon)
