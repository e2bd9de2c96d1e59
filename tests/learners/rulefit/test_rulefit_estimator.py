"""Federated RuleFit through gates: both policies, interpretation, export."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score, roc_auc_score

from privfed import Column, LocalDisclosure, Schema
from privfed.errors import SchemaError
from privfed.exchange.disclosure import Answers, ReplayDisclosure
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import RuleFitClassifier, RuleFitRegressor
from privfed.learners.rulefit.averaging import Centred, losses, residuals
from privfed.learners.rulefit.estimation import Iterate, descending_step, optimum
from privfed.learners.rulefit.model import RuleEnsemble
from privfed.testing.hospitals import BINARY, FEATURES, NAMES, NUMERIC, QUICK, gates, patients


@cache
def fitted() -> tuple[RuleFitClassifier, LocalDisclosure]:
    """One published fit, shared by the tests that only read it."""
    model = RuleFitClassifier(**QUICK)
    federation = gates(patients(), model.published())
    return model.fit(federation), federation


def test_the_published_way_learns_and_ranks_the_covariates() -> None:
    """Close to the best AUC there is; GCS before age before what does not matter."""
    model, _ = fitted()
    test = patients(seed=9)
    truth = 4.0 * (test["GCS"] < 7) + 2.0 * (test["age"] >= 60)
    chance = model.predict_proba(test)
    assert chance.sum(axis=1) == pytest.approx(1)
    assert roc_auc_score(test["died"], chance[:, 1]) > roc_auc_score(test["died"], truth) - 0.02
    assert np.argsort(-model.feature_importances_)[:2].tolist() == [1, 0]
    assert set(model.predict(test)) <= {0, 1}
    assert not model.private_


def test_the_ledger_shows_p_epsilon_and_the_rest_unprotected() -> None:
    """Four covariates at epsilon 1: four in all, though the paper says one."""
    _, federation = fitted()
    for gate in federation.gates.values():
        spent = gate.ledger.spent(gate.accountant)
        assert spent.total[0] == Fraction(4)
        assert spent.unprotected > 1
    federation.verify()


#: The paper's own estimation, and what comes in its place.
WAYS: dict[str, dict[str, Any]] = {
    "gradient": {"solver": "gradient"},
    "averaging": {"solver": "averaging", "local_steps": 5},
}


@pytest.mark.parametrize("way", WAYS)
def test_both_ways_come_close_to_the_pooled_optimum(way: str) -> None:
    """The reported objective is the pooled one, within 0.01 of the proximal-gradient optimum."""
    model, frame = RuleFitClassifier(**QUICK, **WAYS[way]), patients()
    model.fit(gates(frame, model.published()))
    encoded = model._encode(frame)
    matrix = model.model_.terms.design(encoded)
    design = Centred(matrix, np.concatenate([[0.0], matrix.mean(axis=0)[1:]]))
    target = frame["died"].to_numpy(float)
    step = descending_step(1 + float(matrix.var(axis=0)[1:].sum()), logistic=True)
    best = optimum(
        lambda w: design.slope(residuals(target, design.scores(w), True)) / len(target),
        np.zeros(matrix.shape[1]),
        step,
        model.alpha,
    )
    least = losses(target, design.scores(best), True).mean()
    least += model.alpha * np.abs(best[1:]).sum()
    own = losses(target, model.decision_function(frame), True).mean()
    own += model.alpha * np.abs(model.model_.weights[1:]).sum()
    assert model.objective_ == pytest.approx(own, abs=1e-4)
    assert least <= own <= least + 0.01
    asked = clone(model).set_params(reference_rounds=300)
    asked.fit(gates(frame, model.published()))
    assert np.array_equal(asked.model_.weights, model.model_.weights)
    assert asked.gap_ == pytest.approx(own - least, abs=1e-3)
    assert np.isnan(model.gap_)


def test_clients_however_unlike_are_led_to_the_pooled_optimum() -> None:
    """Clients with one class each: exact gradients arrive where local steps lead apart."""
    frame = patients().sort_values("died", ignore_index=True)
    frame["hospital"] = np.repeat(["A", "B", "C"], -(-len(frame) // 3))[: len(frame)]
    gaps = {}
    for name, way in WAYS.items():
        asked = QUICK | way | {"n_rounds": 80, "reference_rounds": 300}
        model = RuleFitClassifier(**asked)
        gaps[name] = model.fit(UngatedDisclosure.from_frame(frame, BINARY, "hospital")).gap_
    assert gaps["gradient"] < 1e-3 < gaps["averaging"]


def test_a_round_asks_for_an_exact_gradient_where_momentum_leads() -> None:
    """Every client is asked at the same point, for one step of size one without penalty."""
    model = RuleFitClassifier(
        **(QUICK | {"n_rounds": 4, "n_estimators": 5, "client_learning_rate": 0.3})
    )
    federation = gates(patients(), model.published())
    model.fit(federation)
    told = [list(federation.transcript().of("rulefit.increment", c)) for c in federation.clients]
    sizes = np.array([(patients()["hospital"] == client).sum() for client in federation.clients])
    at = Iterate.at(np.zeros(len(model.model_.weights)))
    for entries in zip(*told, strict=True):
        for entry in entries:
            assert entry.query["steps"] == {
                "client_step": 1.0, "elapsed": 0.0, "steps": 1, "penalty": 0.0,
            }  # fmt: skip
            assert np.asarray(entry.query["dual"]) == pytest.approx(at.ahead)
        slopes = [np.asarray(entry.release["increment"].data) for entry in entries]
        at = at.after(np.average(slopes, axis=0, weights=sizes), 0.3, model.alpha)
    assert model.model_.weights[1:] == pytest.approx(at.weights[1:])


def test_no_round_is_asked_for_when_nothing_moves_any_more() -> None:
    """A penalty that leaves nothing but the intercept: far fewer rounds than allowed."""
    model = RuleFitClassifier(**(QUICK | {"n_rounds": 500, "alpha": 10}))
    model.fit(UngatedDisclosure.from_frame(patients(), BINARY, "hospital"))
    assert model.rounds_ < 100
    assert not model.model_.weights[1:].any()


def test_any_split_over_clients_has_the_pooled_objective() -> None:
    """Unequal clients are weighted by their records: the optimum does not hang on the split."""
    frame = patients()
    halves = frame.assign(hospital=np.where(np.arange(len(frame)) < 60, "A", "B"))
    params = {**QUICK, "n_estimators": 1, "max_rules": 1, "n_rounds": 300}
    found = []
    for table in (halves, frame.assign(hospital="one")):
        bare = UngatedDisclosure.from_frame(table, BINARY, "hospital")
        found.append(RuleFitClassifier(**{**params, "min_samples_leaf": 10_000}).fit(bare))
    first, second = (model.model_.weights for model in found)
    assert first == pytest.approx(second, abs=1e-3)
    assert np.abs(first[1:]).max() > 0.1


def test_the_private_way_spends_its_budget_and_nothing_is_unprotected() -> None:
    """Finite end to end, within the ceiling, and it learns."""
    model = RuleFitClassifier(random_state=0)
    frame = patients(3000)
    federation = gates(frame, model.private(4))
    model.fit(federation)
    assert model.private_
    budget = federation.budget()
    assert (budget["unprotected"] == 0).all()
    assert (budget["spent"] <= 4).all()
    assert (budget["spent"] > 3.99).all()
    assert roc_auc_score(frame["died"], model.predict_proba(frame)[:, 1]) > 0.85
    assert np.isfinite(model.model_.supports).all()
    kinds = {entry.kind for entry in federation.transcript()}
    asked = ("histogram", "target", "correlations", "masses", "gradient", "scores")
    assert kinds == {f"private.{kind}" for kind in asked}


@pytest.mark.filterwarnings("ignore:the noise in all histograms")
def test_private_learning_gets_better_with_the_budget() -> None:
    """Epsilon 0.05 is worse than 8, on the mean of two seeds."""
    frame, test = patients(1000), patients(1000, seed=9)
    means = []
    for epsilon in ("0.05", "8"):
        scores = []
        for seed in range(2):
            model = RuleFitClassifier(max_terms=None, random_state=seed)
            model.fit(gates(frame, model.private(epsilon), seed=seed))
            scores.append(roc_auc_score(test["died"], model.predict_proba(test)[:, 1]))
        means.append(np.mean(scores))
    assert means[0] < means[1] - 0.05


def test_the_regressor_learns_both_ways() -> None:
    """Squared loss: most of the variance explained, predictions within the public bounds."""
    frame = patients(1500)
    for policy, least in (("published", 0.8), ("private", 0.7)):
        model = RuleFitRegressor(**QUICK)
        chosen = model.published() if policy == "published" else model.private(8)
        model.fit(gates(frame, chosen, NUMERIC))
        predicted = model.predict(frame)
        assert r2_score(frame["days"], predicted) > least
        assert predicted.min() >= 0
        assert predicted.max() <= 60
        own = model.models_[0]
        added = own.terms.design(model._encode(frame))[:, 1:]
        table = model.table()
        terms = [rule.text(model.schema_) for rule in own.rules]
        terms += [f"linear: {NUMERIC.names[f]}" for f in own.terms.linear]
        said = table["term"].str.replace(r" per .*", "", regex=True)
        days = added @ table.set_index(said)["coefficient"].reindex(terms).fillna(0).to_numpy()
        inside = (predicted > 0.01) & (predicted < 59.99)
        assert np.ptp((predicted - days)[inside]) < 1e-6, "coefficients are in days"
        assert "exp_coefficient" not in table


def test_a_lines_text_says_how_far_its_coefficient_goes() -> None:
    """Moved by that much between the limits, the score moves by the coefficient; beyond them by nothing."""
    model, _ = fitted()
    table = model.table().set_index("term")["coefficient"]
    lines = [text for text in table.index if text.startswith("linear: ")]
    slopes, _ = model.models_[0].linear_coefficients()
    assert lines
    for text in lines:
        form = re.fullmatch(r"linear: (\S+)(?: per (\S+), from (\S+) to (\S+))?", text)
        assert form
        name, unit, low, high = form.groups()
        if unit is not None:
            assert slopes[name] * float(unit) == pytest.approx(table[text], rel=2e-3)
            place = NAMES.index(name)
            cutoffs = model.models_[0].terms.cutoffs
            assert [float(low), float(high)] == pytest.approx(
                [cutoffs.lower[place], cutoffs.upper[place]], rel=1e-3, abs=1e-3
            )


def test_the_exported_model_predicts_without_privfed() -> None:
    """JSON alone gives the same log-odds: intercept, winsorised slopes, rules' conditions."""
    model, _ = fitted()
    plain = json.loads(json.dumps(model.to_dict()))
    frame = patients(50, seed=3)
    numbers = frame.assign(sex=frame["sex"].map(plain["codes"]["sex"]))
    score = np.full(50, plain["intercept"])
    for name, slope in plain["linear"].items():
        score += slope * np.clip(numbers[name].to_numpy(float), *plain["winsorised"][name])
    for rule in plain["rules"]:
        held = np.ones(50, bool)
        for condition in rule["conditions"]:
            values = numbers[condition["feature"]].to_numpy(float)
            low, high = condition["lower"], condition["upper"]
            held &= (low is None or values >= low) & (high is None or values < high)
        score += rule["coefficient"] * held
    assert score == pytest.approx(model.decision_function(frame), abs=1e-9)


def test_the_export_tells_how_learning_went() -> None:
    """Rounds, objective, and none for a gap that nobody asked for or an objective withheld."""
    model, _ = fitted()
    told = model.to_dict()["convergence"]
    assert told == {"rounds": QUICK["n_rounds"], "objective": model.objective_, "gap": None}
    private = RuleFitClassifier(random_state=0)
    private.fit(gates(patients(3000), private.private(8)))
    assert private.to_dict()["convergence"]["objective"] is None


def test_the_papers_settings_can_be_asked_for() -> None:
    """As printed, and each can still be set."""
    model = RuleFitClassifier.paper(n_rounds=10, random_state=0)
    chosen = model.get_params()
    assert (chosen["alpha"], chosen["client_learning_rate"], chosen["n_rounds"]) == (0.01, 0.01, 10)
    assert chosen["local_steps"] == 20
    assert (chosen["min_samples_leaf"], chosen["subsample"], chosen["max_rules"]) == (1, 1, None)
    frame = patients()
    model.fit(gates(frame, model.published()))
    assert roc_auc_score(frame["died"], model.decision_function(frame)) > 0.85


def test_the_table_is_what_a_clinician_reads() -> None:
    """Importance up to 100, exp(coef), supports that are shares of the pooled records."""
    model, _ = fitted()
    table = model.table(5, least_support=0.1)
    assert list(table.columns) == [
        "term",
        "coefficient",
        "exp_coefficient",
        "importance",
        "support",
    ]
    assert len(table) == 5
    assert table["importance"].is_monotonic_decreasing
    assert np.exp(table["coefficient"].to_numpy()) == pytest.approx(
        table["exp_coefficient"].to_numpy()
    )
    assert (table["support"] >= 0.1).all()
    assert "GCS" in model.describe(3)
    frame = patients()
    x = model._encode(frame)
    rule, support = model.rules_[0], model.table().set_index("term")["support"]
    held = rule.holds(x, NAMES).mean()
    assert support[rule.text(model.schema_)] == pytest.approx(held)


def test_importances_follow_the_paper() -> None:
    """|coef| sd, and a rule's importance shared among its covariates."""
    model, _ = fitted()
    ensemble: RuleEnsemble = model.model_
    importances = np.abs(ensemble.weights[1:]) * ensemble.deviations
    assert ensemble.term_importances == pytest.approx(importances)
    assert len(set(ensemble.deviations.round(3))) > 10
    expected = np.zeros(4)
    for k, rule in enumerate(ensemble.rules):
        for name in rule.features:
            expected[NAMES.index(name)] += importances[k] / len(rule.features)
    for k, feature in enumerate(ensemble.terms.linear):
        expected[feature] += importances[len(ensemble.rules) + k]
    assert ensemble.variable_importances == pytest.approx(expected / expected.max())


def test_deviations_of_rules_are_those_of_the_records() -> None:
    """Pooled within clients (Section 2.1), like the linear terms' below."""
    model, _ = fitted()
    frame, ensemble = patients(), model.model_
    held = pd.DataFrame(ensemble.terms.rules(model._encode(frame)).astype(float))
    groups = held.groupby(frame["hospital"].to_numpy())
    within = sum((own - own.mean()).pow(2).sum() for _, own in groups)
    expected = np.sqrt(within / (len(frame) - groups.ngroups))
    assert ensemble.deviations[: len(ensemble.rules)] == pytest.approx(np.asarray(expected))


def test_the_server_s_step_scales_what_it_adds_and_the_time_that_passes() -> None:
    """z moves by eta_s times the mean increment, the time by eta_s eta_c G (Algorithm 2)."""
    few = {
        "n_rounds": 3,
        "server_learning_rate": 0.5,
        "client_learning_rate": 0.01,
        "n_estimators": 5,
    }
    model = RuleFitClassifier(**(QUICK | WAYS["averaging"] | few))
    federation = gates(patients(), model.published())
    model.fit(federation)
    told = [list(federation.transcript().of("rulefit.increment", c)) for c in federation.clients]
    steps = WAYS["averaging"]["local_steps"]
    sizes = np.array([(patients()["hospital"] == client).sum() for client in federation.clients])
    for number, entries in enumerate(zip(*told, strict=True)):
        for entry in entries:
            assert entry.query["steps"]["elapsed"] == pytest.approx(0.5 * 0.01 * steps * number)
    duals = [np.asarray(entry.query["dual"]) for entry in told[0]]
    moved = [np.asarray(own[0].release["increment"].data) for own in told]
    assert duals[1] - duals[0] == pytest.approx(0.5 * np.average(moved, axis=0, weights=sizes))


def test_deviations_of_linear_terms_are_those_of_the_records() -> None:
    """Pooled within clients, exact, and the same for every seed of the server's."""
    frame = patients()
    deviations = []
    for seed in (0, 1):
        model = RuleFitClassifier(**(QUICK | {"n_rounds": 1, "random_state": seed}))
        ensemble = model.fit(gates(frame, model.published())).model_
        linear = list(ensemble.terms.linear)
        values = pd.DataFrame(ensemble.terms.cutoffs.linear(model._encode(frame))[:, linear])
        groups = values.groupby(frame["hospital"].to_numpy())
        within = sum((own - own.mean()).pow(2).sum() for _, own in groups)
        expected = np.sqrt(within / (len(frame) - groups.ngroups))
        deviations.append(ensemble.deviations[len(ensemble.rules) :])
        assert deviations[-1] == pytest.approx(expected, rel=1e-4)
    assert deviations[0] == pytest.approx(deviations[1])


def test_scikit_learns_manners() -> None:
    """Clones, refuses to predict unfitted, takes arrays and tables, knows its classes."""
    model, _ = fitted()
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        RuleFitClassifier().predict(patients())
    with pytest.raises(SchemaError, match="4 columns"):
        model.predict(np.zeros((2, 3)))
    frame = patients(20)
    array = model._encode(frame)
    assert np.array_equal(model.predict(array), model.predict(frame))
    assert model.classes_.tolist() == [0, 1]


def test_categories_as_targets_keep_their_names() -> None:
    """Predictions are the schema's own words."""
    schema = Schema(FEATURES, Column("died", "category", categories=("no", "yes")))
    frame = patients().assign(died=lambda f: np.where(f["died"] == 1, "yes", "no"))
    model = RuleFitClassifier(**QUICK).fit(UngatedDisclosure.from_frame(frame, schema, "hospital"))
    assert set(model.predict(frame)) == {"no", "yes"}
    assert (model.predict(frame) == frame["died"]).mean() > 0.7


def test_a_replay_of_the_transcript_gives_the_same_model() -> None:
    """The learner has no other source than the releases."""
    model, federation = fitted()
    replay = ReplayDisclosure(federation.schema, federation.transcript())
    again = clone(model).fit(replay)
    assert np.array_equal(again.model_.weights, model.model_.weights)


def test_policies_round_trip_and_plans_price_every_kind(tmp_path: Path) -> None:
    """Both policies survive their files; every kind of question is in the plan, and has parts."""
    model = RuleFitClassifier()
    for policy in (model.published(), model.private(1)):
        policy.to_toml(tmp_path / "policy.toml")
        assert type(policy).from_toml(tmp_path / "policy.toml").digest == policy.digest
        planned = {line.query.kind: line for line in model.plan(BINARY, policy)}
        assert set(policy.guards) <= set(planned)
    for line in model.plan(BINARY, model.published()):
        assert line.query.parts(BINARY)


def test_a_real_hospital_data_set(data_folder: Path) -> None:
    """Trauma: GCS first, then age and ISS, sex last."""
    frame = pd.read_csv(data_folder / "trauma.csv")
    schema = Schema(
        (
            Column("sex", "category", categories=("0", "1")),
            Column("age", "number", 0, 100),
            Column("ISS", "integer", 1, 75),
            Column("GCS", "integer", 3, 15),
        ),
        Column("mortality", "integer", 0, 1),
    )
    model = RuleFitClassifier(**{**QUICK, "n_estimators": 100})
    model.fit(
        LocalDisclosure.from_frame(
            frame, "mortality", client="hospital", schema=schema, policy=model.published(), seed=0
        )
    )
    assert np.argsort(-model.feature_importances_).tolist()[0] == 3
    assert np.argsort(-model.feature_importances_).tolist()[-1] == 0
    assert isinstance(model, RuleFitClassifier)


def test_answers_type_is_what_the_learner_is_written_against() -> None:
    """The learner reads `Answers` alone: no gate, no ledger in its modules' names."""
    from privfed.learners.rulefit import estimation, pooled

    assert vars(pooled)["Answers"] is Answers
    for module, forbidden in product(
        (estimation, pooled), ("Gate", "Ledger", "SecureNoise", "Gaussian")
    ):
        assert not hasattr(module, forbidden)
