"""A population's rules carry their shares with limits that cover the truth."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.engines.cohort import CohortDisclosure
from privfed.learners.rule_search.asking import CohortSession
from privfed.learners.rule_search.population_rules import PopulationRules, WeightedRule
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.formula import Atom, show
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.parser import parse
from privfed.privacy.policy import Guard, Policy

RULE = Atom("a", "<=", 1.0)
GRAMMAR = Grammar((("a", 0.0, 2.0),), most_operators=1)


def test_limits_lie_within_what_a_share_can_be() -> None:
    """Wide noise gives wide limits, no noise gives the share itself."""
    assert WeightedRule(RULE, 0.9, 0.5).interval() == (0.0, 1.0)
    assert WeightedRule(RULE, 0.9, 0.5).interval(0.1)[0] == pytest.approx(0.837, abs=1e-3)
    assert WeightedRule(RULE, 0.4).interval() == (0.4, 0.4)


@pytest.mark.parametrize(("share", "limits"), [(5.0, (1.0, 1.0)), (-3.0, (0.0, 0.0))])
def test_limits_are_in_order_where_the_estimate_is_beyond_what_is_possible(
    share: float, limits: tuple[float, float]
) -> None:
    """An unbiased estimate can lie far outside of [0, 1]; its limits cannot."""
    assert WeightedRule(RULE, share, 0.5).interval() == limits


def test_the_plain_form_names_rule_share_and_limits() -> None:
    """Readable without privfed."""
    plain = PopulationRules((WeightedRule(RULE, 0.5, 0.1),), ("a",)).to_dict()
    (rule,) = plain["rules"]
    assert (rule["rule"], rule["share"]) == ("a <= 1.0", 0.5)
    assert [rule["low"], rule["high"]] == pytest.approx([0.304, 0.696], abs=1e-3)
    assert "structure" in plain["note"]


def test_figures_have_six_digits_and_the_model_keeps_its_own() -> None:
    """What is read is short; what votes is exact."""
    one = WeightedRule(parse("G[0,3](a >= 62.45078304768881)"), 0.5001031550392673, 0.01)
    plain = one.to_dict()
    assert (plain["rule"], plain["share"]) == ("G[0,3](a >= 62.4508)", 0.500103)
    assert "62.45078304768881" in show(one.rule)


@pytest.mark.parametrize(("scale", "least", "most"), [(1.0, 0.93, 0.98), (0.5, 0.0, 0.8)])
def test_limits_cover_the_truth_and_halved_ones_do_not(
    scale: float, least: float, most: float
) -> None:
    """Over 400 sessions 95 % limits hold the true share; the power twin halves the deviation."""
    structure = GRAMMAR.structure(RULE)
    book = RuleIndex.indexed(GRAMMAR, 500, [(structure, person, []) for person in range(150)])
    policy = Policy({"rule_search.templates": (Guard.of("randomized_response", spend="1"),)})
    held = []
    for seed in range(400):
        asking = CohortSession(CohortDisclosure.of(book, policy, seed=seed), GRAMMAR, 500)
        counts = asking.bits([structure], None)
        share, std = counts.estimate[0] / 500, scale * counts.std / 500
        low, high = WeightedRule(RULE, float(share), float(std)).interval()
        held.append(low <= 0.3 <= high)
    assert least <= np.mean(held) <= most
