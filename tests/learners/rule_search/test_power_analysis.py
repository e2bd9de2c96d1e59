"""What a search lacks is told from public numbers, and what is told is enough."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

from privfed.learners import RuleSearch
from privfed.learners.rule_search.least_epsilon import Exploration, PowerAnalysis, least_epsilon
from privfed.tables.schema import Column, Schema

SCHEMA = Schema((Column("hr", lower=20, upper=220), Column("map", lower=20, upper=200)))
FEW = PowerAnalysis(Exploration(0.1), 60, Fraction(8), Fraction(1, 9))


def test_the_least_epsilon_pays_for_the_questions() -> None:
    """A ninth of it is what the finest question to sixty costs, and a ninth of eight is not."""
    finest = least_epsilon(FEW.exploration.finest(60))
    assert Fraction(8, 9) < finest == FEW.least_total / 9
    assert not FEW.enough
    assert PowerAnalysis(FEW.exploration, 60, FEW.least_total, FEW.part).advice() == ""


def test_the_fewest_people_are_enough_and_far_fewer_are_not() -> None:
    """Within a hundredth."""
    people = FEW.fewest_people()
    assert people is not None
    assert PowerAnalysis(FEW.exploration, people, FEW.total, FEW.part).enough
    assert not PowerAnalysis(FEW.exploration, round(0.9 * people), FEW.total, FEW.part).enough


def test_where_no_cohort_is_large_enough_only_epsilon_is_told() -> None:
    """Ten million people do not answer a question that costs next to nothing."""
    hopeless = PowerAnalysis(FEW.exploration, 60, FEW.total, Fraction(1, 10_000))
    assert hopeless.fewest_people() is None
    assert "individuals at this one" not in hopeless.advice()


@pytest.mark.parametrize("strategy", ["levels", "equal", "adaptive", "uct", "parts"])
def test_each_strategy_tells_of_a_small_cohort_and_not_of_a_large_one(strategy: str) -> None:
    """One line with numbers; silence where there is enough."""
    model = RuleSearch(strategy, epsilon="2", min_support=0.1, questions=100)
    few = 150 if strategy == "parts" else 10
    told = model.outlook(SCHEMA, few)
    assert re.search(r"20 % .* about (epsilon )?[\d,]+", told) and "\n" not in told
    assert model.outlook(SCHEMA, 2_000_000) == ""


def test_of_sampled_rules_nothing_is_told() -> None:
    """Nor where everybody must hold a rule: nothing is above that."""
    assert RuleSearch("sampled").outlook(SCHEMA, 10) == ""
    assert RuleSearch("levels", min_support=1).outlook(SCHEMA, 10) == ""
