"""One rule chooses how a learner learns, and a plan lists what can begin."""

from __future__ import annotations

import warnings
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from privfed import Column, LocalDisclosure, Policy, Schema
from privfed.errors import NobodyAnswered, Note
from privfed.learners import (
    FedForestClassifier,
    FedForestRegressor,
    FuzzyTreeRegressor,
    GeneticTreeClassifier,
    GeneticTreeRegressor,
    RuleFitClassifier,
    RuleFitRegressor,
)
from privfed.learners.baselines import HistogramForestClassifier
from privfed.learners.ways import LearnerByWays
from privfed.testing.hospitals import BINARY, NAMES, NUMERIC, QUICK, patients

GENETIC: dict[str, Any] = {
    "population_size": 4,
    "generations": 2,
    "max_depth": 4,
    "random_state": 0,
}
LEARNERS: list[LearnerByWays] = [
    RuleFitClassifier(**QUICK, max_terms=None),
    RuleFitRegressor(**QUICK, max_terms=None),
    FedForestClassifier(n_estimators=3, random_state=0),
    FedForestRegressor(n_estimators=3, random_state=0),
    GeneticTreeClassifier(**GENETIC),
    GeneticTreeRegressor(**GENETIC),
]
EACH = pytest.mark.parametrize("learner", LEARNERS, ids=lambda one: type(one).__name__)


def _schema(learner: LearnerByWays) -> Any:
    return NUMERIC if type(learner).__name__.endswith("Regressor") else BINARY


def _learned(learner: LearnerByWays, policies: dict[str, Policy]) -> str:
    """By which way it learns where each hospital has a policy of its own."""
    schema = _schema(learner)
    target = schema.columns[-1].name
    frame = patients(300)[[*NAMES, "hospital", target]]
    federation = LocalDisclosure.from_frame(
        frame, target, client="hospital", schema=schema, policy=policies, seed=1
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)
        fitted: LearnerByWays = clone(learner).fit(federation)
    return fitted.way_


@EACH
def test_it_learns_by_the_first_way_that_any_client_offers(learner: LearnerByWays) -> None:
    """One client under `published` suffices; without one it is `private`."""
    published, private = learner.published(), learner.private(4, schema=_schema(learner))
    assert _learned(learner, {"A": private, "B": published, "C": private}) == "published"
    assert _learned(learner, dict.fromkeys("ABC", private)) == "private"
    with pytest.raises(NobodyAnswered):
        _learned(learner, dict.fromkeys("ABC", Policy({})))


@EACH
def test_a_plan_lists_what_can_begin(learner: LearnerByWays) -> None:
    """The ways whose first query the policy names: one, both, or the last where it names neither."""
    schema = _schema(learner)
    published, private = learner.published(), learner.private(4, schema=schema)

    def planned(policy: Policy) -> set[str]:
        return {line.query.kind for line in learner.plan(schema, policy)}

    first, last = planned(published), planned(private)
    assert first <= {query.kind for query in learner.ways[0].queries} and not first & last
    assert last <= {query.kind for query in learner.ways[1].queries}
    assert planned(Policy({**published.guards, **private.guards})) == first | last
    assert planned(Policy({})) == last


@EACH
def test_published_opens_no_query_of_the_private_way(learner: LearnerByWays) -> None:
    """What a data owner releases unprotected is what the paper asks for, and nothing else."""
    private = {query.kind for query in learner.ways[1].queries}
    assert not private & set(learner.published().guards)
    assert {query.kind for way in learner.ways for query in way.queries} == {
        query.kind for query in learner.queries
    }


def test_a_baseline_with_one_way_asks_for_nothing_else() -> None:
    """A histogram forest never learns in the private way."""
    learner = HistogramForestClassifier(n_estimators=2)
    private = FedForestClassifier().private(4)
    assert [way.name for way in learner.ways] == ["published"]
    with pytest.raises(NobodyAnswered):
        _learned(learner, dict.fromkeys("ABC", private))


def test_constructors_differ_from_their_parents_as_declared() -> None:
    """Other defaults, one parameter less; scikit-learn's clone and get_params agree."""
    assert FedForestRegressor().criterion == "squared_error"
    assert FedForestRegressor().max_features is None
    assert FedForestRegressor(max_features=3).max_features == 3
    assert FedForestClassifier().get_params()["criterion"] == "gini"
    assert list(signature(FedForestRegressor).parameters) == list(
        signature(FedForestClassifier).parameters
    )
    assert "bounded" not in GeneticTreeClassifier().get_params()
    with pytest.raises(TypeError, match="bounded"):
        GeneticTreeClassifier(bounded=True)
    assert clone(GeneticTreeRegressor(7, bounded=True)).get_params()["bounded"] is True
    assert GeneticTreeRegressor(7).get_params()["population_size"] == 7


def with_a_still_column(learner: Any, records: int) -> tuple[pd.DataFrame, Schema]:
    """A table whose target follows ``a``, while ``still`` is 1 everywhere; the schema has it between 0 and 1."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.uniform(0, 10, records), "still": 1.0})
    frame["owner"] = [f"c{row % 3}" for row in range(records)]
    classify = hasattr(learner, "predict_proba")
    level = 3 * frame["a"] + rng.normal(0, 1, records)
    frame["y"] = np.where(level > 15, "high", "low") if classify else level
    target = (
        Column("y", "category", categories=("high", "low"))
        if classify
        else Column("y", lower=-10, upper=50)
    )
    schema = Schema((Column("a", lower=0, upper=10), Column("still", lower=0, upper=1)), target)
    return frame, schema


@pytest.mark.filterwarnings("ignore:.*only one value")
@pytest.mark.parametrize(
    "learner",
    [
        FuzzyTreeRegressor(max_depth=1),
        RuleFitRegressor(**QUICK),
        RuleFitClassifier(**QUICK),
        FedForestRegressor(n_estimators=5, random_state=0),
        FedForestClassifier(n_estimators=5, random_state=0),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_published_models_have_no_use_for_a_column_of_one_value(learner: Any) -> None:
    """Records say nothing of its other values, which the schema allows: predictions are the same there."""
    frame, schema = with_a_still_column(learner, 300)
    owners = LocalDisclosure.from_frame(
        frame, target="y", client="owner", schema=schema, policy=learner.published(), seed=0
    )
    learner.fit(owners)
    rows = frame[["a", "still"]]
    told = getattr(learner, "predict_proba", learner.predict)
    assert np.ptp(told(rows), axis=0).max() > 0.1
    assert np.array_equal(told(rows), told(rows.assign(still=0.0)))
    assert learner.feature_importances_[1] == 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "learner",
    [
        RuleFitRegressor(),
        RuleFitClassifier(),
        FedForestRegressor(),
        FedForestClassifier(),
        FuzzyTreeRegressor(),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_private_models_have_no_use_for_a_column_of_one_value(learner: Any) -> None:
    """What noise counts beside its value is no reason for a rule, a split or a slope."""
    frame, schema = with_a_still_column(learner, 3000)
    owners = LocalDisclosure.from_frame(
        frame, target="y", client="owner", schema=schema, policy=learner.private(4), seed=0
    )
    learner.fit(owners)
    rows = frame[["a", "still"]]
    told = getattr(learner, "predict_proba", learner.predict)
    assert np.ptp(told(rows), axis=0).max() > 0.1
    assert learner.feature_importances_[1] < 1e-3 * learner.feature_importances_[0]
    assert np.array_equal(told(rows), told(rows.assign(still=0.0)))


def test_a_fit_that_got_nothing_says_what_to_do_by_why() -> None:
    """A policy used up by one fit, another learner's policy: each has its own remedy."""
    learner = RuleFitClassifier(**QUICK, max_terms=None)
    frame, schema = with_a_still_column(learner, 300)

    def owners(policy: Policy) -> LocalDisclosure:
        return LocalDisclosure.from_frame(
            frame, target="y", client="owner", schema=schema, policy=policy, seed=0
        )

    used = owners(learner.private(1))
    learner.fit(used)
    with pytest.raises(NobodyAnswered, match="one fit: make another federation"):
        learner.fit(used)
    with pytest.raises(NobodyAnswered, match=r"RuleFitClassifier\(\).private\(1\) or Rule"):
        learner.fit(owners(FedForestClassifier(n_estimators=5).published()))
