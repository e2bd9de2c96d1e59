"""The searches under the front: each alone does what its strategy does, to the bit."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from privfed.engines.cohort import CohortDisclosure
from privfed.errors import InputError
from privfed.learners import (
    LevelRuleSearch,
    PartRuleSearch,
    RuleSearch,
    SampledRuleSearch,
    TreeRuleSearch,
)
from privfed.learners.rule_search.estimators import STRATEGIES
from privfed.learners.rule_search.generator import Profile, generate
from privfed.learners.rule_search.rule_learner import RuleLearner

BOOK = generate(Profile(600, 6_000, 120, 3, 1.6, 2, top=0.5), 2, values=True)
COMMON: dict[str, Any] = {
    "epsilon": "60", "min_support": 0.05, "max_operators": 2, "parameter_epsilon": "20",
}  # fmt: skip
PAIRS: list[tuple[str, RuleLearner, dict[str, Any]]] = [
    ("levels", LevelRuleSearch(levels=3, max_templates=500, **COMMON), {"levels": 3}),
    (
        "equal",
        TreeRuleSearch(order="equal", questions=50, random_state=2, **COMMON),
        {"questions": 50},
    ),
    ("uct", TreeRuleSearch(order="uct", max_queries=40, random_state=2, **COMMON), {}),
    ("adaptive", TreeRuleSearch(max_queries=40, random_state=2, **COMMON), {}),
    ("parts", PartRuleSearch(margin=2.0, random_state=2, **COMMON), {"margin": 2.0}),
    ("sampled", SampledRuleSearch(levels=2, slots=20, random_state=2, **COMMON), {"levels": 2}),
]


def fitted(model: RuleLearner) -> tuple[dict[str, Any], np.ndarray, float]:
    """State, votes and what was spent, from one seeded cohort."""
    federation = CohortDisclosure.of(BOOK, model.private("300"), seed=4)
    model.fit(federation)
    signals = np.random.default_rng(0).normal(0.5, 0.3, (30, 12, 3))
    return model.state(), model.decision_function(signals), federation.budget()["spent"][0]


@pytest.mark.parametrize(("strategy", "search", "own"), PAIRS)
def test_the_front_is_the_search(strategy: Any, search: RuleLearner, own: dict[str, Any]) -> None:
    """Rules, questions, votes, spending, price and outlook; and it asks something."""
    rest = {"random_state": 2, "max_templates": 500, "slots": 20}
    if strategy in ("uct", "adaptive"):
        rest["max_queries"] = 40
    if strategy == "sampled":
        rest["max_templates"] = 5000
    front = RuleSearch(strategy, **COMMON, **(rest | own))
    assert str(front.built()) == str(search)
    state, votes, spent = fitted(clone(search))
    again, said, cost = fitted(front)
    assert state["steps"] and (again, cost) == (state, spent)
    assert np.array_equal(said, votes)
    policy = search.private("300")
    assert [
        (line.query.digest, line.times, line.spend) for line in front.plan(BOOK.schema, policy)
    ] == [(line.query.digest, line.times, line.spend) for line in search.plan(BOOK.schema, policy)]
    assert front.outlook(BOOK.schema, 600) == search.outlook(BOOK.schema, 600)
    assert front.unit == search.unit == policy.unit


def test_the_front_has_every_parameter_of_every_search() -> None:
    """And none of its own but the strategy; defaults agree."""
    known = {one.name: one.default for one in fields(RuleSearch)}
    theirs: dict[str, Any] = {}
    for search, own in STRATEGIES.values():
        for one in fields(search):
            if one.name not in own:
                assert known[one.name] == one.default, one.name
                theirs[one.name] = one.default
    assert set(known) - set(theirs) == {"strategy"}


@pytest.mark.parametrize("search", [LevelRuleSearch, PartRuleSearch, SampledRuleSearch])
def test_each_guards_its_own_questions_alone(search: type[RuleLearner]) -> None:
    """What a search never asks its policies do not allow."""
    model = search()
    kinds = {query.kind for query in search.queries}
    assert set(model.published().guards) == set(model.private(1).guards) == kinds
    assert kinds < {query.kind for query in RuleSearch.queries}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (TreeRuleSearch(order="worst"), "TreeRuleSearch: order must be one of best-first, uct"),  # type: ignore[arg-type]
        (LevelRuleSearch(confirm="1"), "LevelRuleSearch: confirm must be an exact number"),
        (PartRuleSearch(error=0.5), "PartRuleSearch: error must be a number above 0 and below 0.5"),
        (SampledRuleSearch(encoding="morse"), "SampledRuleSearch: encoding must be one of"),  # type: ignore[arg-type]
        (PartRuleSearch(min_support=1), "min_support between 0 and 1"),
        (TreeRuleSearch(min_support=1), "min_support between 0 and 1"),
    ],
)
def test_each_tells_its_own_slips(model: RuleLearner, message: str) -> None:
    """By its own name."""
    with pytest.raises(InputError, match=message):
        model.check(BOOK.schema)


def test_all_but_the_strategy_is_given_by_name() -> None:
    """Numbers in a row would say nothing of what they are."""
    assert RuleSearch("uct").strategy == "uct"
    with pytest.raises(TypeError):
        RuleSearch("uct", "10")
    with pytest.raises(TypeError):
        LevelRuleSearch("10")
