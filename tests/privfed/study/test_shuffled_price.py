"""What a trusted shuffler would make of a rule search's price, and what it leaves as it is."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from privfed.accountants.shuffled import shuffled_epsilon, shuffled_total
from privfed.engines.cohort import CohortDisclosure
from privfed.errors import PolicyError
from privfed.learners import RuleSearch
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.grammar import Grammar
from privfed.privacy.pairs import LaplacePair
from privfed.privacy.policy import Policy, TrustedShuffler
from privfed.privacy.policy_objects import accountant_of
from privfed.study.price import Price, price, priced
from privfed.tables.schema import Column, Schema

SCHEMA = Schema((Column("hr", lower=20, upper=220), Column("bp", lower=20, upper=220)))


def trusting(model: RuleSearch, people: int = 2000, **changes: Any) -> Policy:
    """A search's private policy at epsilon 2, with a shuffler."""
    return replace(model.private("2"), shuffled=TrustedShuffler(people), **changes)


def found(strategy: Any, **params: Any) -> Price:
    """The price of a search at epsilon 2 with a shuffler."""
    model = RuleSearch(strategy, epsilon=params.pop("epsilon", "2"), **params)
    return price(model.plan(SCHEMA, trusting(model)), SCHEMA, trusting(model))


def test_fixed_questions_are_priced_beside_the_local_figure() -> None:
    """The local epsilon is the one of a policy without a shuffler."""
    told = found("equal", questions=10)
    model = RuleSearch("equal", epsilon="2", questions=10)
    alone = price(model.plan(SCHEMA, model.private("2")), SCHEMA, model.private("2"))
    assert told.amount == alone.amount and told.epsilon == alone.epsilon and alone.shuffled is None
    assert float(told.shuffled or 0) == pytest.approx(shuffled_epsilon(0.2, 2000, 10), rel=1e-6)
    (line,) = [line for line in priced(told).splitlines() if "shuffler" in line]
    assert "2000 people" in line and "charged as if there were none" in line
    assert "shuffler" not in priced(alone)


def test_a_level_s_bits_of_one_rule_are_single_answers() -> None:
    """One rule turns one bit of its level: unit rule is priced, unit individual refused."""
    assert Fraction(0) < (found("levels").shuffled or 0) < 1
    model = RuleSearch("levels", epsilon="2")
    policy = trusting(model, unit="individual")
    with pytest.raises(PolicyError, match="one bit"):
        price(model.plan(SCHEMA, policy), SCHEMA, policy)


@pytest.mark.parametrize(
    "params",
    [
        {"strategy": "adaptive"},
        {"strategy": "uct"},
        {"strategy": "sampled"},
        {"strategy": "sampled", "encoding": "hashed"},
    ],
)
def test_what_no_figure_is_known_for_is_refused(params: Any) -> None:
    """Epsilons chosen on the way, several bits of one individual, hashes that need their senders."""
    with pytest.raises(PolicyError, match="choose another strategy"):
        found(**params)


def test_thresholds_are_not_shuffled() -> None:
    """Numbers with noise keep their whole price, composed with the shuffled answers."""
    told = found("equal", epsilon="1", questions=10, parameter_epsilon="1")
    (numbers,) = [line for line in told.lines if line.mechanism == "laplace"]
    assert numbers.loss is not None and numbers.loss.epsilon is not None
    assert 0.9 < float(told.shuffled or 0) < 1.3
    with_pair = shuffled_total({0.1: 10}, 2000, unshuffled={LaplacePair(1.0, 1): 1})
    assert shuffled_epsilon(0.1, 2000, 10) < with_pair <= 2


def test_a_cohort_s_gate_charges_the_local_figure() -> None:
    """It knows who said what, so that its ledger counts no shuffler."""
    grammar = Grammar.of(SCHEMA, most_operators=1, horizon=2)
    spent = []
    for shuffler in (None, TrustedShuffler(50)):
        model = RuleSearch("equal", epsilon="2", questions=3, max_operators=1, horizon=2)
        records = RuleIndex.of({str(person): [] for person in range(50)}, grammar)
        policy = replace(model.private("2"), shuffled=shuffler)
        asking = CohortDisclosure.of(records, policy, seed=1)
        model.fit(asking)
        gate = asking.gates["cohort"]
        spent.append(gate.ledger.spent(accountant_of(policy)).total)
    assert spent[0] == spent[1] and spent[0][0] > 0
