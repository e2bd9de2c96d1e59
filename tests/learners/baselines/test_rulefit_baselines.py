"""Baselines: what they learn, against naive twins, and that their disclosures are named."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from privfed import Column, LocalDisclosure, Schema
from privfed.engines.local import published
from privfed.errors import InputError, PolicyError
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import FedForestClassifier, RuleFitClassifier
from privfed.learners.base import FederatedLearner
from privfed.learners.baselines import (
    BayesianInference,
    CentralRuleFitClassifier,
    CentralRuleFitRegressor,
    FedAvgLogistic,
    LocalForests,
    LocalRuleFitClassifier,
    LocalRuleFitRegressor,
)
from privfed.learners.baselines.bayesian import posterior_mode
from privfed.learners.baselines.forest import _rows, _to_forest
from privfed.learners.rulefit import RuleFitRegressor
from privfed.tables.records import Records

SCHEMA = Schema(
    tuple(Column(name, "number", -5, 5) for name in ("a", "b", "c")), Column("y", "integer", 0, 1)
)
QUICK = RuleFitClassifier(n_estimators=20, n_rounds=20, random_state=0)


def frame(records: int = 600, seed: int = 0) -> pd.DataFrame:
    """A linear logistic outcome over three clients."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(rng.normal(size=(records, 3)), columns=["a", "b", "c"])
    table["y"] = (rng.random(records) < expit(2 * table["a"] - table["b"] + 0.5)).astype(int)
    return table.assign(client=rng.choice(["A", "B", "C"], records))


def bare(table: pd.DataFrame) -> UngatedDisclosure:
    """The clients without gates."""
    return UngatedDisclosure.from_frame(table, SCHEMA, "client")


@pytest.mark.parametrize(
    "learner",
    [
        BayesianInference(),
        FedAvgLogistic(),
        LocalForests(n_estimators=20),
        CentralRuleFitClassifier(QUICK),
        LocalRuleFitClassifier(QUICK),
    ],
)
def test_baselines_learn_through_gates_and_are_unprotected(learner: FederatedLearner) -> None:
    """Every one beats chance by far; the ledger counts what left without protection."""
    table = frame()
    federation = LocalDisclosure.from_frame(
        table, "y", client="client", schema=SCHEMA, policy=learner.published(), seed=0
    )
    learner.fit(federation)
    test = frame(seed=1)
    chance = learner.predict_proba(test)[:, 1]
    assert roc_auc_score(test["y"], chance) > 0.8
    assert set(np.asarray(learner.predict(test)).tolist()) == {0, 1}
    assert (federation.budget()["unprotected"] > 0).all()
    assert {line.query.kind for line in learner.plan(SCHEMA, learner.published())} == set(
        learner.published().guards
    )
    assert learner.to_dict()


def test_the_policy_called_published_lets_no_raw_records_out() -> None:
    """Baselines are left out of it."""
    assert "baselines.records" not in published().guards
    assert "rulefit.histogram" in published().guards


def test_no_private_way_is_an_error_that_says_so() -> None:
    """A baseline never pretends to protect."""
    with pytest.raises(PolicyError, match="published"):
        BayesianInference().private(1)


def test_bayesian_inference_on_one_client_is_the_posterior_mode() -> None:
    """And equals scikit-learn's ridge, whose C is one over the precision."""
    table = frame()
    joined = BayesianInference(0.5).fit(bare(table.assign(client="one")))
    design = np.column_stack([np.ones(len(table)), table[["a", "b", "c"]]])
    assert joined.weights_ == pytest.approx(posterior_mode(design, table["y"].to_numpy(float), 0.5))
    ridge = LogisticRegression(C=2.0, tol=1e-10, fit_intercept=False).fit(design, table["y"])
    assert joined.weights_ == pytest.approx(ridge.coef_[0], abs=1e-4)


def test_bayesian_inference_joins_clients_nearly_as_pooled() -> None:
    """Three clients' Gaussians together are close to the pooled posterior."""
    table = frame(1500)
    split = BayesianInference().fit(bare(table)).weights_
    pooled = BayesianInference().fit(bare(table.assign(client="one"))).weights_
    assert split == pytest.approx(pooled, abs=0.15)


def test_a_separable_client_keeps_a_finite_mode() -> None:
    """One class only: the prior holds the mode."""
    table = frame()
    table.loc[table["client"] == "A", "y"] = 1
    assert np.isfinite(BayesianInference().fit(bare(table)).weights_).all()


def test_federated_averaging_reaches_logistic_regression() -> None:
    """Equal clients, many rounds: the unpenalised optimum."""
    table = frame(900).assign(client=["A", "B", "C"] * 300)
    found = FedAvgLogistic(n_rounds=300, local_steps=5).fit(bare(table)).weights_
    exact = LogisticRegression(C=np.inf, tol=1e-8).fit(table[["a", "b", "c"]], table["y"])
    assert found == pytest.approx([*exact.intercept_, *exact.coef_[0]], abs=0.1)


def test_sent_trees_predict_as_they_did_at_the_client() -> None:
    """Walking node rows equals scikit-learn's forest."""
    table = frame()
    x = table[["a", "b", "c"]].to_numpy()
    forest = RandomForestClassifier(10, random_state=0).fit(x, table["y"])
    rows = [_rows(k, tree.tree_, forest.classes_) for k, tree in enumerate(forest.estimators_)]
    nodes = np.concatenate(rows)
    found = _to_forest(nodes).mean(x, nodes[:, 5])
    assert found == pytest.approx(forest.predict_proba(x)[:, 1])


def test_a_forest_of_one_class_says_that_class() -> None:
    """A client without any event votes for none."""
    table = frame().assign(y=0)
    assert LocalForests(n_estimators=3).fit(bare(table)).predict_proba(table)[
        :, 1
    ] == pytest.approx(0)


def test_local_models_are_one_for_each_client() -> None:
    """And the central one is one for all."""
    local = LocalRuleFitClassifier(QUICK).fit(bare(frame()))
    assert set(local.models_) == {"A", "B", "C"}
    central = CentralRuleFitClassifier(QUICK).fit(bare(frame()))
    assert set(central.to_dict()["state"]["models"]) == {"pooled"}


def test_regressions_have_both_ends_too() -> None:
    """Central and local, squared loss."""
    schema = Schema(SCHEMA.features, Column("y", "number", -10, 10))
    table = frame().assign(y=lambda f: 2 * f["a"] - f["b"])
    quick = RuleFitRegressor(n_estimators=20, n_rounds=40, random_state=0)
    federation = UngatedDisclosure.from_frame(table, schema, "client")
    for learner in (CentralRuleFitRegressor(quick), LocalRuleFitRegressor(quick)):
        predicted = learner.fit(federation).predict(table)
        assert np.corrcoef(predicted, table["y"])[0, 1] > 0.9


def test_local_models_of_three_classes_predict_all_three() -> None:
    """By the mean of the models' probabilities, whatever learner is inside."""
    table = frame().assign(y=lambda f: np.select([f["a"] < -0.5, f["a"] < 0.5], ["u", "v"], "w"))
    target = Column("y", "category", categories=("u", "v", "w"))
    federation = UngatedDisclosure.from_frame(table, Schema(SCHEMA.features, target), "client")
    forest = FedForestClassifier(n_estimators=5, random_state=0)
    local = LocalRuleFitClassifier(forest).fit(federation)
    assert np.mean(local.predict(table) == table["y"]) > 0.9


def test_a_client_without_records_has_no_model() -> None:
    """And where nobody has a record there is nothing to learn from."""
    records = bare(frame())._views
    empty = {name: view.table for name, view in records.items()}
    empty["A"] = Records(SCHEMA, np.zeros((0, 3)), np.zeros(0))
    local = LocalRuleFitClassifier(QUICK).fit(UngatedDisclosure(empty))
    assert set(local.models_) == {"B", "C"}
    with pytest.raises(InputError, match="no client has a record"):
        CentralRuleFitClassifier(QUICK).fit(UngatedDisclosure({"A": empty["A"]}))


@pytest.mark.parametrize(
    "learner",
    [
        BayesianInference(float("nan")),
        BayesianInference(0),
        FedAvgLogistic(n_rounds=0),
        FedAvgLogistic(learning_rate=float("nan")),
        LocalForests(n_estimators=0),
    ],
)
def test_wrong_parameters_are_one_clear_error(learner: FederatedLearner) -> None:
    """Before anybody is asked."""
    with pytest.raises(InputError):
        learner.fit(bare(frame()))


def test_numeric_targets_are_refused_by_classifiers() -> None:
    """The error says what is needed."""
    schema = Schema(SCHEMA.features, Column("y", "number", 0, 2))
    with pytest.raises(InputError, match="two values"):
        BayesianInference().fit(UngatedDisclosure.from_frame(frame(), schema, "client"))
