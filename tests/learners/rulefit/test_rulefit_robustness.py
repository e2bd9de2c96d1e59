"""Federated RuleFit where clients drop out, are odd, or the input is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score, roc_auc_score

from privfed import Column, LocalDisclosure, Schema
from privfed.errors import InputError, NobodyAnswered, Note
from privfed.exchange.disclosure import Disclosure
from privfed.exchange.messages import Absent, Reply
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners import RuleFitClassifier, RuleFitRegressor
from privfed.questions.query import Query
from privfed.testing.hospitals import BINARY, FEATURES, NUMERIC, QUICK, gates, patients


class Flaky(Disclosure):
    """A federation in which some clients stop answering, by a rule of (query, client)."""

    def __init__(self, inner: Disclosure, silent: Callable[[Query, str], bool]) -> None:
        self.clients, self.schema = inner.clients, inner.schema
        self._inner, self._silent = inner, silent

    def _ask(
        self, questions: Mapping[str, Sequence[Query]], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        replies = self._inner._ask(questions, spend)
        return {
            client: [
                Absent(client, "gone") if self._silent(query, client) else reply
                for query, reply in zip(queries, replies[client], strict=True)
            ]
            for client, queries in questions.items()
        }

    def _offers(
        self, query: Query, clients: Sequence[str], spend: Fraction | None
    ) -> Sequence[str]:
        return self._inner.offers(query, clients, spend=spend)


@pytest.mark.parametrize("kind", ["rules", "supports", "increment", "objective"])
def test_a_client_that_drops_out_between_the_steps(kind: str) -> None:
    """The others' answers are enough, whichever step it misses."""
    inner = UngatedDisclosure.from_frame(patients(), BINARY, "hospital")
    flaky = Flaky(inner, lambda query, client: query.kind == f"rulefit.{kind}" and client == "A")
    model = RuleFitClassifier(**QUICK).fit(flaky)
    assert roc_auc_score(patients()["died"], model.decision_function(patients())) > 0.85


@pytest.mark.parametrize("kind", ["histogram", "correlations", "masses", "gradient"])
@pytest.mark.parametrize("times", [0, 1])
def test_a_client_that_drops_out_of_private_learning(kind: str, times: int) -> None:
    """At the first such question or the next one: the others' noisy answers are enough."""
    asked: list[str] = []

    def silent(query: Query, client: str) -> bool:
        asked.extend([query.kind] * (client == "A"))
        late = asked.count(query.kind) > times
        return client == "A" and query.kind == f"private.{kind}" and late

    frame, model = patients(3000), RuleFitClassifier(max_terms=None, random_state=0)
    model.fit(Flaky(gates(frame, model.private(8)), silent))
    assert roc_auc_score(frame["died"], model.decision_function(frame)) > 0.85


def test_awkward_clients_do_no_harm_in_private() -> None:
    """One class only, two records, a constant covariate: the noise covers them as it does others."""
    frame = patients(3000)
    frame.loc[frame["hospital"] == "A", "died"] = 1
    frame.loc[frame["hospital"] == "B", "noise"] = 0.5
    tiny, model = frame.head(2).assign(hospital="tiny"), RuleFitClassifier(random_state=0)
    model.fit(gates(pd.concat([frame, tiny]), model.private(8)))
    own = frame[frame["hospital"] == "C"]
    assert roc_auc_score(own["died"], model.decision_function(own)) > 0.8


def test_a_federation_that_falls_silent_leaves_what_was_learnt() -> None:
    """After some rounds nobody answers: the model has those rounds, and no objective."""
    asked: list[str] = []

    def silent(query: Query, client: str) -> bool:
        asked.append(query.kind)
        return query.kind == "rulefit.objective" or asked.count("rulefit.increment") > 30

    inner = UngatedDisclosure.from_frame(patients(), BINARY, "hospital")
    model = RuleFitClassifier(**QUICK).fit(Flaky(inner, silent))
    assert model.rounds_ == 10
    assert np.isnan(model.objective_)
    with pytest.raises(NobodyAnswered):
        RuleFitClassifier(**QUICK).fit(Flaky(inner, lambda query, client: True))


def test_nobody_tells_rules_or_gradients() -> None:
    """Linear terms without rules; a constant with a warning without a single round."""
    inner = UngatedDisclosure.from_frame(patients(), BINARY, "hospital")
    linear = RuleFitClassifier(**QUICK).fit(Flaky(inner, lambda q, c: q.kind == "rulefit.rules"))
    assert linear.rules_ == []
    assert roc_auc_score(patients()["died"], linear.decision_function(patients())) > 0.8
    with pytest.warns(UserWarning, match="predicts a constant"):
        RuleFitClassifier(**QUICK).fit(Flaky(inner, lambda q, c: q.kind == "rulefit.increment"))


def test_partial_participation() -> None:
    """One client a round learns nearly as well, and no round asks more."""
    inner = UngatedDisclosure.from_frame(patients(), BINARY, "hospital")
    counted: list[str] = []

    def count(query: Query, client: str) -> bool:
        counted.append(query.kind)
        return False

    averaged = RuleFitClassifier(solver="averaging", clients_per_round=1, **QUICK)
    model = averaged.fit(Flaky(inner, count))
    assert counted.count("rulefit.increment") == QUICK["n_rounds"]
    assert roc_auc_score(patients()["died"], model.decision_function(patients())) > 0.85


def test_awkward_clients_do_no_harm() -> None:
    """One class only, fewer records than a leaf, a covariate that is constant."""
    frame = patients()
    frame.loc[frame["hospital"] == "A", "died"] = 1
    frame.loc[frame["hospital"] == "B", "noise"] = 0.5
    tiny = frame.head(2).assign(hospital="tiny")
    model = RuleFitClassifier(**QUICK)
    model.fit(gates(pd.concat([frame, tiny]), model.published()))
    own = frame[frame["hospital"] == "C"]
    assert roc_auc_score(own["died"], model.decision_function(own)) > 0.8


def test_a_covariate_constant_everywhere_gets_no_term() -> None:
    """Its cut-offs collapse to one at most, and it has no linear term."""
    frame = patients().assign(noise=0.5)
    bare = UngatedDisclosure.from_frame(frame, BINARY, "hospital")
    model = RuleFitClassifier(**QUICK).fit(bare)
    assert len(model.cutoffs_.cuts[2]) <= 1
    assert model.feature_importances_[2] < 0.01


def test_hardly_any_budget_warns_and_still_gives_a_model() -> None:
    """All counts drowned: cut-offs are defined, the warning says why."""
    model = RuleFitClassifier(n_bins=500, random_state=0)
    federation = gates(patients(60), model.private("0.001"), seed=2)
    with pytest.warns(UserWarning, match="budget is too small"):
        model.fit(federation)
    assert np.isfinite(model.decision_function(patients(10))).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"n_bins": 1},
        {"n_bins": float("nan")},
        {"n_bins": 20.5},
        {"n_rounds": 30.0},
        {"n_quantiles": 0},
        {"n_quantiles": 251},
        {"n_estimators": 0},
        {"tree_size": 1.5},
        {"learning_rate": 0},
        {"learning_rate": float("nan")},
        {"subsample": 1.5},
        {"min_samples_leaf": 0},
        {"max_rules": 0},
        {"alpha": -0.1},
        {"alpha": float("nan")},
        {"n_rounds": 0},
        {"local_steps": 0},
        {"server_learning_rate": float("nan")},
        {"client_learning_rate": 0},
        {"clients_per_round": 4},
        {"clients_per_round": 2},
        {"solver": "newton"},
        {"reference_rounds": -1},
    ],
)
def test_wrong_parameters_are_one_clear_error(wrong: dict[str, Any]) -> None:
    """Named, and before anybody is asked."""
    bare = UngatedDisclosure.from_frame(patients(), BINARY, "hospital")
    with pytest.raises(InputError, match=next(iter(wrong))):
        RuleFitClassifier(**wrong).fit(bare)


def test_targets_of_the_wrong_kind_are_one_clear_error() -> None:
    """A number for the classifier, no target at all for the regressor."""
    frame = patients()
    with pytest.raises(InputError, match="target with classes"):
        RuleFitClassifier().fit(UngatedDisclosure.from_frame(frame, NUMERIC, "hospital"))
    with pytest.raises(InputError, match="numeric target"):
        RuleFitRegressor().fit(UngatedDisclosure.from_frame(frame, Schema(FEATURES), "hospital"))


@pytest.mark.parametrize(("clients", "records"), [(10, 60), (30, 60), (30, 30)])
@pytest.mark.filterwarnings("ignore::privfed.errors.Note")
def test_tiny_clients_do_not_make_the_steps_diverge(clients: int, records: int) -> None:
    """Numbers of six, two or one record a client: no worse than a constant by much."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(records, 3)).clip(-3, 3), columns=list("abc"))
    frame["y"] = (frame["a"] + frame["b"].abs() + 0.3 * rng.normal(size=records)).clip(-5, 8)
    frame["site"] = [f"s{number % clients}" for number in range(records)]
    features = tuple(Column(name, lower=-3, upper=3) for name in "abc")
    learner = RuleFitRegressor(n_estimators=5, n_rounds=20, random_state=0)
    federation = LocalDisclosure.from_frame(
        frame,
        "y",
        client="site",
        schema=Schema(features, Column("y", lower=-5, upper=8)),
        policy=learner.published(),
        seed=1,
    )
    errors = learner.fit(federation).predict(frame) - frame["y"]
    assert learner.objective_ < 0.02
    assert np.sqrt(np.mean(errors**2)) < 1.05 * frame["y"].std()


@pytest.mark.filterwarnings("ignore::privfed.errors.Note")
@pytest.mark.parametrize("value", [2.0, 2.04])
def test_a_constant_covariate_does_not_stop_learning(value: float) -> None:
    """One bin holds both of its limits: its linear term is no longer than others', and steps no shorter."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=300).clip(-3, 3), "still": value})
    frame["y"] = (frame["a"] + 0.3 * rng.normal(size=300)).clip(-50, 50)
    frame["site"] = [f"s{number % 3}" for number in range(300)]
    features = (Column("a", lower=-3, upper=3), Column("still", lower=0, upper=5))
    learner = RuleFitRegressor(n_estimators=20, alpha=1e-4, reference_rounds=100, random_state=0)
    federation = LocalDisclosure.from_frame(
        frame,
        "y",
        client="site",
        schema=Schema(features, Column("y", lower=-50, upper=50)),
        policy=learner.published(10),
        seed=0,
    )
    errors = learner.fit(federation).predict(frame) - frame["y"]
    assert np.abs(learner.cutoffs_.linear(frame[["a", "still"]].to_numpy())).max() < 2.1
    assert learner.gap_ < 1e-4
    assert np.sqrt(np.mean(errors**2)) < 0.6 * frame["y"].std()


@pytest.mark.parametrize("solver", ["gradient", "averaging"])
@pytest.mark.parametrize("wide", [(-5.0, 5.0), (-5e3, 5e3), (0.0, 1e4)], ids=str)
def test_a_number_s_loose_bounds_hide_no_term(wide: tuple[float, float], solver: str) -> None:
    """Bounds a thousand times too wide, on either side, did: the model was a constant, and not even the mean."""
    frame = patients().assign(days=lambda f: f["days"] / 12)  # from 0 to 5
    schema = Schema(FEATURES, Column("days", lower=wide[0], upper=wide[1]))
    learner = RuleFitRegressor(**QUICK, solver=solver)
    predicted = learner.fit(gates(frame, learner.published(1000), schema)).predict(frame)
    assert abs(predicted.mean() - frame["days"].mean()) < 0.05
    assert r2_score(frame["days"], predicted) > 0.9


@pytest.mark.parametrize("estimation", ["gradient", "averaging"])
def test_steps_that_are_too_large_are_told(estimation: str) -> None:
    """Whoever sets them learns that the model is worse than none, and what to set instead."""
    large = {"client_learning_rate": 2.0, "n_rounds": 10, "n_estimators": 10}
    learner = RuleFitRegressor(**(QUICK | large), solver=estimation)
    with pytest.warns(
        Note, match="worse than without any term: the steps were too large; .*client_learning_rate"
    ):
        learner.fit(gates(patients(), learner.published(1000), NUMERIC))
