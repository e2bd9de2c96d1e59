"""RuleFit of three classes: one model for each, published and private."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logsumexp, softmax
from sklearn.base import clone
from sklearn.metrics import accuracy_score

from privfed import Column, LocalDisclosure, Schema
from privfed.errors import InputError, QueryError
from privfed.learners import RuleFitClassifier, private
from privfed.learners.forest.private_way import PrivateForest
from privfed.learners.private import PrivateModel
from privfed.learners.rulefit.model import ClassEnsembles
from privfed.learners.rulefit.queries import Objective, unit_target
from privfed.learners.rulefit.scorecard import ScoreCard
from privfed.learners.rulefit.short import _Shortener, shortened
from privfed.questions.query import View
from privfed.tables.records import Records
from privfed.testing.hospitals import FEATURES, gates, patients

SCHEMA = Schema(FEATURES, Column("grade", "category", categories=("a", "b", "c")))
FRAME = patients(900).assign(
    grade=lambda f: np.select([f["GCS"] < 7, f["age"] > 60], ["a", "b"], "c")
)
WAYS = ("published", "short", "long")


@cache
def fitted(way: str) -> RuleFitClassifier:
    """One fit of each way."""
    learner = RuleFitClassifier(
        n_estimators=15,
        n_rounds=25,
        max_terms=None if way == "long" else 8,
        stable=True,
        random_state=0,
    )
    policy = learner.published() if way == "published" else learner.private("8")
    return learner.fit(gates(FRAME, policy, SCHEMA))


@pytest.mark.parametrize("way", WAYS)
def test_three_classes_are_told_apart(way: str) -> None:
    """A model of each; probabilities add up to one, and hold what the link makes of the scores."""
    learner = fitted(way)
    assert isinstance(learner.ensemble_, ClassEnsembles) and len(learner.models_) == 3
    assert not hasattr(learner, "model_")
    chances, scores = learner.predict_proba(FRAME), learner.decision_function(FRAME)
    each = softmax(scores, axis=1) if way == "long" else expit(scores) ** learner.ensemble_.power
    assert np.allclose(chances, each / each.sum(axis=1, keepdims=True))
    assert accuracy_score(FRAME["grade"], learner.predict(FRAME)) > 0.9
    assert learner.feature_importances_[:2].min() > learner.feature_importances_[2:].max()
    if way == "short":
        assert all(np.count_nonzero(own.weights[1:]) <= 8 for own in learner.models_)


def test_of_several_classes_the_log_odds_of_each_rise() -> None:
    """Where the records say that one of them falls, too."""
    learner = clone(fitted("short")).set_params(monotonic_cst={"age": 1})
    learner.fit(gates(FRAME, learner.private("8"), SCHEMA))
    ages = pd.concat([FRAME.iloc[:20]] * 40).assign(age=np.repeat(np.linspace(0, 100, 40), 20))
    asked, free = (
        one.decision_function(ages).reshape(40, 20, 3) for one in (learner, fitted("short"))
    )
    assert (np.diff(asked, axis=0) >= -1e-9).all() and (np.diff(free, axis=0) < -0.01).any()


@pytest.mark.parametrize("way", WAYS)
def test_the_model_is_read_and_saved(way: str) -> None:
    """A table by class, pictures, plain data; scores are the same to the bit after saving."""
    learner = fitted(way)
    table = learner.table(5)
    assert set(table["class"]) <= {"a", "b", "c"} and table["importance"].iloc[0] == pytest.approx(
        100
    )
    first = learner.table()
    assert (first["importance"].diff().dropna() <= 0).all()

    again = RuleFitClassifier.from_dict(json.loads(json.dumps(learner.to_dict())))
    assert np.array_equal(again.predict_proba(FRAME), learner.predict_proba(FRAME))
    again.privacy_ = learner.privacy_
    assert again.describe() == learner.describe()
    assert {str(line.get_label()) for line in learner.plot("age").lines} >= {"a", "b", "c"}
    label = learner.plot().get_yticklabels()[0].get_text()
    assert label[:3] in ("a: ", "b: ", "c: ")
    assert set(learner.readable()["models"]) == {"a", "b", "c"}


@pytest.mark.parametrize("way", ["published", "short"])
def test_each_class_has_a_score_card(way: str) -> None:
    """Of its own log-odds against the rest; risks, to the printed power, divided by their sum are nearly the probabilities."""
    learner = fitted(way)
    assert isinstance(learner.ensemble_, ClassEnsembles)
    cards = [learner.scorecard(label=name) for name in "abc"]
    for card, model in zip(cards, learner.models_, strict=True):
        alone = ScoreCard.from_ensemble(model)
        assert card.table().equals(alone.table()) and card.factor == alone.factor
        assert f"Risk of grade = {card.label} against all other classes" in str(card)
        assert "divided by their sum" in str(card) and "against all" in card.to_latex()
        assert "their intervals, are by this card alone" in card.to_html()
    risks = np.column_stack([card.risk(card.totals(FRAME)) for card in cards])
    power = re.search(r"power of ([0-9.]+), *\n? *divided", str(cards[0]))
    risks = risks ** (1.0 if power is None else float(power[1]))
    assert (power is None) == (learner.ensemble_.power == 1)
    difference = risks / risks.sum(axis=1, keepdims=True) - learner.predict_proba(FRAME)
    assert np.abs(difference).mean() < 0.05
    assert learner.to_html().count("<strong>Score card of ") == 3


def test_a_card_that_cannot_be_made_says_what_to_do() -> None:
    """Without the class, of an unknown one, of the engine's scores; and there may be no more than 64 classes."""
    learner = fitted("short")
    with pytest.raises(InputError, match=r"write scorecard\(label='a'\)"):
        learner.scorecard()
    with pytest.raises(InputError, match="no score card of 'd'; write label = a or b or c"):
        learner.scorecard(label="d")
    with pytest.raises(InputError, match="write max_terms = 20"):
        fitted("long").scorecard(label="a")
    assert "Score card" not in fitted("long").to_html()
    many = Column("y", "category", categories=tuple(map(str, range(65))))
    with pytest.raises(InputError, match="up to 64 classes"):
        learner.check(Schema(FEATURES, many))


def test_intervals_of_every_class_hold_its_probability() -> None:
    """Wider at a higher level, the same after saving; so have coefficients and importances, of short private models."""
    learner = fitted("short")
    low, high = np.moveaxis(learner.confidence_interval(FRAME), 2, 0)
    told = learner.predict_proba(FRAME)
    assert low.shape == (len(FRAME), 3) and ((low < told) & (told < high)).all()
    assert (learner.confidence_interval(FRAME, level=0.99)[..., 0] < low).all()
    again = RuleFitClassifier.from_dict(json.loads(json.dumps(learner.to_dict())))
    assert np.array_equal(again.confidence_interval(FRAME)[..., 0], low)
    table = learner.table()
    assert (table["low"] < table["coefficient"]).all()
    assert (table["coefficient"] < table["high"]).all()
    ends = learner.importance_intervals()
    assert ends["importance"].max() == 1.0
    assert ((ends["low"] >= 0) & (ends["low"] <= ends["importance"])).all()
    assert (ends["importance"] <= ends["high"]).all()
    for way in ("long", "published"):
        with pytest.raises(InputError, match="max_terms = 20"):
            fitted(way).confidence_interval(FRAME)


@cache
def simulated() -> tuple[PrivateModel, np.ndarray, np.ndarray]:
    """The engine's model of three classes, further records, and their probabilities."""
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, (3500, 3))
    lines = np.column_stack([np.zeros(3500), 2 * x[:, 0] - x[:, 1], 1.5 * x[:, 2] - x[:, 0]])
    chances = softmax(lines, axis=1)
    drawn = (rng.random((3500, 1)) > chances.cumsum(axis=1)).sum(axis=1)
    schema = Schema(
        tuple(Column(f"x{k}", "number", -1, 1) for k in range(3)),
        Column("y", "category", categories=("a", "b", "c")),
    )
    frame = pd.DataFrame(x, columns=schema.names).assign(
        y=np.array(["a", "b", "c"])[drawn.clip(0, 2)], hospital="one"
    )
    policy = private.private("8", "1e-5")
    held = LocalDisclosure.from_frame(
        frame[:3000], "y", client="hospital", schema=schema, policy=policy, seed=4
    )
    outcome = private.Outcome.of(schema, number=False)
    return private.learn(held, outcome, np.random.default_rng(4)), x[3000:], chances[3000:]


def test_intervals_hold_the_truth_of_three_classes() -> None:
    """Of a forest's and a short model's probabilities, nine tenths or so."""
    engine, x, truth = simulated()
    models = [shortened(engine, 20, np.random.default_rng(k), output=k) for k in range(3)]
    short = ClassEnsembles(tuple(models), "one-vs-rest").probability_intervals(x)
    for low, high in (
        np.moveaxis(each, 2, 0) for each in (short, PrivateForest(engine).intervals(x, 0.9))
    ):
        assert ((low <= truth) & (truth <= high)).mean() > 0.8
        assert (high - low).mean() < 0.4


def test_the_more_noise_hides_of_a_class_the_fewer_terms_it_has() -> None:
    """As of two classes: terms are told until what they miss is within the posterior's variance."""
    engine, _, _ = simulated()
    assert engine.covariance is not None
    vague = replace(engine, covariance=np.asarray(engine.covariance) * 100)
    terms = [
        len(shortened(own, 20, np.random.default_rng(0), output=1).weights)
        for own in (engine, vague)
    ]
    assert 1 < terms[1] < terms[0]


def test_log_odds_against_the_rest_move_as_the_scores_do() -> None:
    """Of the engine's scores of all classes: numerically; a class of its own has the slope one."""
    engine, _, _ = simulated()
    held = _Shortener(engine, np.random.default_rng(0), stable=True, output=1)
    rng = np.random.default_rng(0)
    codes = engine.source.draw(engine.basis, 10_000, rng)[0]
    assert np.array_equal(codes, held.codes)
    scores = engine.start + engine.basis.scores(engine.basis.cells(codes), engine.weights)

    def against(moved: np.ndarray) -> np.ndarray:
        return np.asarray(moved[:, 1] - logsumexp(moved[:, [0, 2]], axis=1))

    assert np.allclose(against(scores), held.scores)
    for output in range(3):
        step = 1e-5 * (np.arange(3) == output)
        slopes = (against(scores + step) - against(scores - step)) / 2e-5
        assert np.allclose(slopes, held.slopes[:, output], atol=1e-6)
    assert (held.slopes[:, 1] == 1).all()


def test_the_plan_asks_for_every_class() -> None:
    """Rules and objectives once for each class, rounds for each; histograms as for two classes."""
    learner = RuleFitClassifier(n_rounds=40)
    times = {line.query.kind: line.times for line in learner.plan(SCHEMA, learner.published())}
    assert times["rulefit.rules"] == 3 and times["rulefit.supports"] == 1
    assert times["rulefit.increment"] == 3 * 40
    assert times["rulefit.objective"] == 6 and times["rulefit.histogram"] == len(FEATURES)


def test_a_label_is_a_class_of_the_target() -> None:
    """Each record counts for exactly one label, whatever its value; another label is refused."""
    terms = fitted("published").models_[0].terms
    target = np.array([0.0, 1.0, 2.0, 7.0, -3.0, 0.6])
    rows = np.tile((SCHEMA.lower + SCHEMA.upper) / 2, (len(target), 1))
    view = View(Records(SCHEMA, rows, target), SCHEMA)
    each = np.array([unit_target(view, True, label) for label in range(3)])
    assert (each.sum(axis=0) == 1).all() and each[:, 3].tolist() == [0, 0, 1]
    for label in (-1, 3):
        with pytest.raises(QueryError, match="no class"):
            Objective(terms, np.zeros(1 + len(terms)), True, label).parts(SCHEMA)


def test_risks_of_short_models_are_sharpened_until_their_classes_are_likeliest() -> None:
    """Of half the true log-odds, the power is about two; of the true ones, one: more decimals would not be added up by hand."""
    ensemble = fitted("short").ensemble_
    assert isinstance(ensemble, ClassEnsembles)
    X = fitted("short")._encode(FRAME)
    rng, scores = np.random.default_rng(0), ensemble.scores(X)
    for power in (1.0, 2.0):
        chances = replace(ensemble, power=power).probabilities(X)
        codes = (chances.cumsum(axis=1) < rng.random((len(X), 1))).sum(axis=1)
        assert ensemble.sharpened(X, codes).power == pytest.approx(power, abs=0.3)
    assert np.array_equal(ensemble.sharpened(X, codes).scores(X), scores)


def test_a_power_that_is_none_is_refused_and_none_was_one() -> None:
    """Of a model file; those of earlier versions have no power."""
    ensemble = fitted("published").ensemble_
    assert isinstance(ensemble, ClassEnsembles) and ensemble.power == 1
    state = ensemble.to_state()
    for power in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="power"):
            ClassEnsembles.from_state(SCHEMA, {**state, "power": power})
    del state["power"]
    assert ClassEnsembles.from_state(SCHEMA, state).power == 1
