"""The forest's yardsticks: what they learn, against twins, and that what they ask for is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor

from privfed import Column, LocalDisclosure, Policy, Schema
from privfed.errors import InputError, PolicyError, QueryError
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners.base import FederatedLearner
from privfed.learners.baselines import (
    CentralForestClassifier,
    CentralForestRegressor,
    FedAvgNetworkClassifier,
    FedAvgNetworkRegressor,
    HistogramForestClassifier,
    HistogramForestRegressor,
    LocalForestClassifier,
    LocalForestRegressor,
)
from privfed.learners.baselines.network import NetworkStep, _gradient, forward
from privfed.learners.forest.mixture import equal_steps

FEATURES = (
    Column("a", "number", -5, 5),
    Column("b", "number", -5, 5),
    Column("kind", "category", categories=("u", "v", "w")),
)
NUMERIC = Schema(FEATURES, Column("y", "number", -12, 12))
BINARY = Schema(FEATURES, Column("y", "category", categories=("no", "yes")))
REGRESSORS: list[Any] = [
    HistogramForestRegressor(n_estimators=20, random_state=0),
    FedAvgNetworkRegressor(hidden_layer_sizes=(16, 8), n_rounds=15, random_state=0),
    CentralForestRegressor(n_estimators=20, random_state=0),
    LocalForestRegressor(n_estimators=20, random_state=0),
]
CLASSIFIERS: list[Any] = [
    HistogramForestClassifier(n_estimators=20, random_state=0),
    FedAvgNetworkClassifier(hidden_layer_sizes=(16, 8), n_rounds=15, random_state=0),
    CentralForestClassifier(n_estimators=20, random_state=0),
    LocalForestClassifier(n_estimators=20, random_state=0),
]


def table(records: int = 900, seed: int = 0) -> pd.DataFrame:
    """A step, a slope, and an effect of the category."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(size=records), "b": rng.normal(size=records)})
    frame["kind"] = rng.choice(["u", "v", "w"], records)
    frame["y"] = 3 * (frame["a"] > 0) + frame["b"] + 2 * (frame["kind"] == "v")
    return frame.assign(client=rng.choice(["A", "B", "C"], records))


def classes(frame: pd.DataFrame) -> pd.DataFrame:
    """The target in two classes."""
    return frame.assign(y=np.where(frame["y"] > 2, "yes", "no"))


def fitted(learner: Any, frame: pd.DataFrame, schema: Schema) -> tuple[Any, LocalDisclosure]:
    """A clone, fitted through gates that let everything out."""
    fed = LocalDisclosure.from_frame(
        frame, "y", client="client", schema=schema, policy=learner.published(), seed=0
    )
    return clone(learner).fit(fed), fed


@pytest.mark.parametrize("learner", REGRESSORS, ids=lambda own: type(own).__name__)
def test_regressors_learn(learner: FederatedLearner) -> None:
    """Most of the variance on fresh rows; what leaves is unprotected, and planned."""
    own, fed = fitted(learner, table(), NUMERIC)
    test = table(seed=1)
    error = test["y"] - own.predict(test)
    assert 1 - (error**2).mean() / test["y"].var() > 0.8
    assert (fed.budget()["unprotected"] > 0).all()
    assert {line.query.kind for line in learner.plan(NUMERIC, learner.published())} == set(
        learner.published().guards
    )
    assert own.to_dict()
    with pytest.raises(PolicyError):
        learner.private(1)


@pytest.mark.parametrize("learner", CLASSIFIERS, ids=lambda own: type(own).__name__)
def test_classifiers_learn(learner: FederatedLearner) -> None:
    """Most right on fresh rows; probabilities sum to one; a numeric target is told."""
    own, _ = fitted(learner, classes(table()), BINARY)
    test = classes(table(seed=1))
    assert (own.predict(test) == test["y"]).mean() > 0.85
    assert np.allclose(own.predict_proba(test).sum(axis=1), 1)
    with pytest.raises(InputError):
        learner.check(Schema(FEATURES, Column("y", "number", 0, 0.5)))


def test_histograms_cut_at_equal_widths() -> None:
    """Bins of one width between a node's extremes, wherever its records lie; settings reach it."""
    cuts = equal_steps(np.array([0.0, 2.0, np.inf]), np.array([10.0, 2.0, -np.inf]), 5)
    assert cuts.tolist() == [[2, 4, 6, 8], [0] * 4, [0] * 4]
    learner = HistogramForestRegressor(n_bins=4)
    assert clone(learner).set_params(n_bins=6)._params(NUMERIC).quantiles == 6
    assert learner._params(NUMERIC).candidates == "range"


def test_central_is_scikit_learn_and_local_is_apart() -> None:
    """The same forest as scikit-learn's on the pooled table; a known client's rows are its own's."""
    frame = table().assign(kind="u")
    central, _ = fitted(CentralForestRegressor(n_estimators=5, random_state=0), frame, NUMERIC)
    pooled = pd.concat([own for _, own in frame.groupby("client", sort=False)])
    x = pooled[["a", "b"]].assign(kind=pooled["y"].mean()).to_numpy()
    twin = RandomForestRegressor(5, max_depth=10, min_samples_leaf=5, random_state=0)
    twin.fit(x, pooled["y"])
    assert np.allclose(central.predict(pooled), twin.predict(x))
    shifted = table().assign(kind="u")
    shifted["y"] += shifted["client"].map({"A": 0.0, "B": 5.0, "C": -5.0})
    local, _ = fitted(LocalForestRegressor(n_estimators=5, random_state=0), shifted, NUMERIC)
    known = local.predict(shifted, client=shifted["client"].tolist())
    assert ((shifted["y"] - known) ** 2).mean() < (
        (shifted["y"] - local.predict(shifted)) ** 2
    ).mean() / 5


@pytest.mark.parametrize("outputs", [0, 3])
def test_network_slopes_against_differences(outputs: int) -> None:
    """The gradient by hand is that of finite differences."""
    rng = np.random.default_rng(0)
    layers = [(2, 4), (4, 3), (3, outputs or 1)]
    weights = rng.normal(size=sum((a + 1) * b for a, b in layers))
    x = rng.normal(size=(6, 2))
    y = np.eye(3)[rng.integers(0, 3, 6)] if outputs else rng.normal(size=(6, 1))

    def loss(own: np.ndarray) -> float:
        out = forward(own, layers, x)[-1]
        if not outputs:
            return float(((out - y) ** 2).sum() / 12)
        return float((np.logaddexp.reduce(out, axis=1) - (out * y).sum(axis=1)).mean())

    slope = _gradient(weights, layers, x, y, outputs)
    for place in range(0, len(weights), 5):
        step = np.zeros(len(weights))
        step[place] = 1e-6
        assert slope[place] == pytest.approx(
            (loss(weights + step) - loss(weights - step)) / 2e-6, abs=1e-5
        )


def test_network_questions_are_checked() -> None:
    """Weights of another size, no number, absurd passes: refused before a record is read."""
    good = FedAvgNetworkRegressor(hidden_layer_sizes=(3,)).plan(NUMERIC, Policy({}))[0].query
    assert isinstance(good, NetworkStep)
    settings = (0, 1, 8, 0.1, 0)
    for bad in (
        NetworkStep(good.weights[:-1], (3,), *settings),
        NetworkStep(good.weights * np.nan, (3,), *settings),
        NetworkStep(good.weights, (), *settings),
        NetworkStep(good.weights, (3,), 0, 10**6, 8, 0.1, 0),
    ):
        with pytest.raises(QueryError):
            bad.parts(NUMERIC)
    empty = UngatedDisclosure.from_frame(table().iloc[:0], NUMERIC)
    assert np.array_equal(empty.ask(good).only.total("weights"), good.weights)
