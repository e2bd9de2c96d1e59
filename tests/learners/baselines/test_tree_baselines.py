"""Local, centralized and IBM trees: what leaves, what it costs, and how well they do."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

from privfed import LocalDisclosure
from privfed.errors import InputError, PolicyError
from privfed.learners.base import FederatedLearner, PersonalLearner
from privfed.learners.baselines import (
    CentralTreeClassifier,
    CentralTreeRegressor,
    LocalTreeClassifier,
    LocalTreeRegressor,
    TruexTreeClassifier,
)
from privfed.learners.baselines.truex import LevelCounts
from privfed.privacy.policy import Policy
from privfed.tables.schema import Column, Schema

FEATURES = tuple(Column(name, "integer", 0, 4) for name in ("a", "b", "c"))
CLASSES = Schema(FEATURES, Column("y", "category", categories=("no", "yes")))
NUMBERS = Schema(FEATURES, Column("y", "number", -9, 9))


def _table(records: int, seed: int, classify: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.integers(0, 5, (records, 3)), columns=list("abc"))
    signal = (frame["a"] - 2) * 2 + frame["b"] - 2 + rng.normal(size=records) / 2
    frame["y"] = np.where(signal > 0, "yes", "no") if classify else signal.clip(-9, 9)
    return frame.assign(client=[f"c{number % 3}" for number in range(records)])


def _gates(frame: pd.DataFrame, policy: Policy, seed: int | None = 1) -> LocalDisclosure:
    schema = NUMBERS if frame["y"].dtype.kind == "f" else CLASSES
    return LocalDisclosure.from_frame(
        frame, target="y", client="client", schema=schema, policy=policy, seed=seed
    )


@pytest.mark.parametrize("learner", [LocalTreeClassifier(), LocalTreeRegressor()])
def test_a_local_tree_costs_nothing_and_nothing_leaves(learner: PersonalLearner) -> None:
    """One local effect a client; each predicts by its own tree, and nobody by another's."""
    classify = isinstance(learner, LocalTreeClassifier)
    federation = _gates(_table(600, 0, classify), learner.published())
    learner.fit(federation)
    assert not federation.budget()["unprotected"].any()
    assert not any(entry.release.parts for entry in federation.transcript())
    x = _table(50, 1, classify)[list("abc")]
    with pytest.raises(InputError, match="take_home"):
        type(learner).from_dict(learner.to_dict()).predict(x, client="c0")
    with pytest.raises(InputError, match="client="):
        learner.predict(x)
    for client, shelf in federation.shelves.items():
        learner.take_home(client, shelf)
        assert len(np.unique(learner.predict(x, client=client))) > 1
    mixed = learner.predict(x, client=["c0", "c1"] * 25)
    assert np.array_equal(mixed[::2], learner.predict(x.iloc[::2], client="c0"))
    assert np.array_equal(mixed[1::2], learner.predict(x.iloc[1::2], client="c1"))


def test_a_central_tree_is_cart_on_all_records() -> None:
    """Every record leaves, and the ledger says so; the tree is scikit-learn's of its depth."""
    frame = _table(600, 0)
    learner = CentralTreeClassifier(min_depth=3, max_depth=3)
    federation = _gates(frame, learner.published())
    learner.fit(federation)
    assert federation.budget()["unprotected"].all()
    twin = DecisionTreeClassifier(max_depth=3, random_state=0).fit(frame[list("abc")], frame["y"])
    fresh = _table(200, 1)
    assert (learner.predict(fresh[list("abc")]) == twin.predict(fresh[list("abc")])).mean() > 0.97
    numbers = CentralTreeRegressor().fit(_gates(_table(600, 0, False), learner.published()))
    test = _table(200, 1, False)
    assert np.mean((numbers.predict(test[list("abc")]) - test["y"]) ** 2) < np.var(test["y"]) / 4


@pytest.mark.parametrize(
    "learner", [LocalTreeClassifier(), CentralTreeClassifier(), TruexTreeClassifier(max_depth=2)]
)
def test_baselines_are_saved_and_read_back(learner: FederatedLearner) -> None:
    """What is public of them; a personal tree is not."""
    frame = _table(300, 0)
    learner.fit(_gates(frame, learner.published()))
    plain = json.loads(json.dumps(learner.to_dict()))
    again = type(learner).from_dict(plain)
    if not isinstance(learner, PersonalLearner):
        x = frame[list("abc")]
        assert np.array_equal(again.predict(x), learner.predict(x))


def test_the_ibm_tree_spends_its_epsilon_on_levels_and_leaves() -> None:
    """Epsilon 1 in seven shares, all features of a level together; noisy, and better than chance."""
    frame, learner = _table(3000, 0), TruexTreeClassifier()
    federation = _gates(frame, learner.published())
    learner.fit(federation)
    spent = federation.budget()["spent"]
    assert (spent <= 1).all() and (spent > 0.99).all()
    fresh = _table(500, 1)
    assert (learner.predict(fresh[list("abc")]) == fresh["y"]).mean() > 0.75


def test_without_noise_the_ibm_tree_is_cart() -> None:
    """An epsilon beyond all reason: the predictions are those of a tree of its depth."""
    frame, learner = _table(600, 0), TruexTreeClassifier(max_depth=3)
    learner.fit(_gates(frame, learner.published(10**7)))
    twin = DecisionTreeClassifier(max_depth=3, random_state=0).fit(frame[list("abc")], frame["y"])
    assert (learner.predict(frame[list("abc")]) == twin.predict(frame[list("abc")])).mean() > 0.98


def test_a_secure_sum_needs_less_noise_and_the_ledger_says_what_that_is_worth_alone() -> None:
    """Variance t - 1 times smaller at each of t parties; without encryption epsilon is greater."""
    learner = TruexTreeClassifier()
    (plain,), (less,) = (
        learner.published(1, parties).guards[LevelCounts.kind] for parties in (1, 17)
    )
    assert plain.spend is not None and less.spend is not None
    assert float(less.spend / plain.spend) == pytest.approx(4)
    with pytest.raises(PolicyError, match="parties"):
        learner.published(1, 0)


@pytest.mark.parametrize("learner", [TruexTreeClassifier(), LocalTreeClassifier()])
def test_targets_and_parameters_of_the_wrong_kind_are_told(learner: FederatedLearner) -> None:
    """Before anything is asked."""
    with pytest.raises(InputError):
        learner.check(NUMBERS)
    with pytest.raises(PolicyError, match="has no private policy"):
        learner.private(1)
    for line in learner.plan(CLASSES, learner.published()):
        line.query.parts(CLASSES)
