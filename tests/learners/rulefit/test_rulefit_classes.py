"""RuleFit of three classes: one model for each, published and private."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, log_softmax, softmax
from sklearn.base import clone
from sklearn.metrics import accuracy_score

from privfed import Column, LocalDisclosure, Schema
from privfed.errors import InputError, QueryError
from privfed.learners import RuleFitClassifier, private
from privfed.learners.forest.private_way import PrivateForest
from privfed.learners.private import PrivateModel
from privfed.learners.rulefit.class_scorecards import ClassScoreCard
from privfed.learners.rulefit.model import ClassEnsembles
from privfed.learners.rulefit.queries import Objective, unit_target
from privfed.learners.rulefit.refits import SoftmaxRefit
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
    each = expit(scores) if way == "published" else softmax(scores, axis=1)
    assert np.allclose(chances, each / each.sum(axis=1, keepdims=True))
    assert accuracy_score(FRAME["grade"], learner.predict(FRAME)) > 0.9
    assert learner.feature_importances_[:2].min() > learner.feature_importances_[2:].max()
    if way == "short":
        assert all(np.count_nonzero(own.weights[1:]) <= 8 for own in learner.models_)


def test_of_several_classes_the_score_of_each_rises() -> None:
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


def test_each_published_class_has_a_score_card() -> None:
    """Of its own log-odds against the rest; risks divided by their sum are nearly the probabilities."""
    learner = fitted("published")
    assert isinstance(learner.ensemble_, ClassEnsembles)
    cards = [learner.scorecard(label=name) for name in "abc"]
    for card, model in zip(cards, learner.models_, strict=True):
        alone = ScoreCard.from_ensemble(model)
        assert card.table().equals(alone.table()) and card.factor == alone.factor
        assert f"Risk of grade = {card.label} against all other classes" in str(card)
        assert "divided by their sum" in str(card) and "against all" in card.to_latex()
        assert "their intervals, are by this card alone" in card.to_html()
    risks = np.column_stack([card.risk(card.totals(FRAME)) for card in cards])
    assert "to the power" not in str(cards[0])
    difference = risks / risks.sum(axis=1, keepdims=True) - learner.predict_proba(FRAME)
    assert np.abs(difference).mean() < 0.05
    assert learner.to_html().count("<strong>Score card of ") == 3


def test_private_classes_score_cards_together_are_nearly_the_model() -> None:
    """Their totals tell the likeliest class and its probability; the text is the same after saving."""
    learner = fitted("short")
    cards = [learner.scorecard(label=name) for name in "abc"]
    totals = np.column_stack([card.totals(FRAME) for card in cards])
    assert isinstance(cards[0], ClassScoreCard)
    told, wanted = cards[0].probabilities(totals), learner.predict_proba(FRAME)
    assert np.abs(told - wanted).mean() < 0.03
    assert (told.argmax(axis=1) == wanted.argmax(axis=1)).mean() > 0.95
    again = RuleFitClassifier.from_dict(json.loads(json.dumps(learner.to_dict())))
    again.privacy_ = learner.privacy_
    assert str(again.scorecard(label="b")) == str(cards[1])
    assert learner.to_html().count("one of 3 classes") == 3
    small = learner.scorecard(5, label="a")
    assert isinstance(small, ClassScoreCard) and small.doubling < cards[0].doubling


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
    models = shortened(engine, 20, np.random.default_rng(0))
    short = ClassEnsembles(tuple(models), "softmax").probability_intervals(x)
    for low, high in (
        np.moveaxis(each, 2, 0) for each in (short, PrivateForest(engine).intervals(x, 0.9))
    ):
        assert ((low <= truth) & (truth <= high)).mean() > 0.8
        assert (high - low).mean() < 0.4


@pytest.mark.parametrize("link", ["softmax", "one-vs-rest"])
def test_even_the_smallest_probabilities_are_within_their_intervals(link: str) -> None:
    """As the intervals' middle is computed from scores, not from rounded probabilities."""
    engine, x, _ = simulated()
    first, *others = shortened(engine, 20, np.random.default_rng(0))
    certain = replace(first, weights=first.weights - 45 * (np.arange(len(first.weights)) == 0))
    model = ClassEnsembles((certain, *others), link)
    p, ends = model.probabilities(x), model.probability_intervals(x)
    assert (p[:, 0] < 1e-15).all()
    assert ((ends[..., 0] <= p) & (p <= ends[..., 1])).all()


def test_the_more_noise_hides_of_a_class_the_fewer_terms_it_has() -> None:
    """As of two classes: terms are told until what they miss is within the posterior's variance."""
    engine, _, _ = simulated()
    assert engine.covariance is not None
    exact = replace(engine, covariance=np.asarray(engine.covariance) / 100)
    terms = [
        sum(len(model.terms) for model in shortened(own, 20, np.random.default_rng(0)))
        for own in (exact, engine)
    ]
    assert 3 <= terms[1] < terms[0]


def class_refit() -> tuple[_Shortener, SoftmaxRefit]:
    """Three classes' terms, of which one is in two lists, and one list is empty but for it."""
    engine, _, _ = simulated()
    held = _Shortener(engine, np.random.default_rng(0), stable=True)
    steps = np.column_stack([held.codes[0] > 4, held.codes[1] > 6, held.codes[2] > 3]).astype(float)
    designs = [steps[:, :2], steps[:, :1], steps[:, 2:]]
    return held, SoftmaxRefit(designs, held.predictions, held.mass, 1e-4)


def test_all_classes_coefficients_are_the_least_of_one_softmax_loss() -> None:
    """No coefficient can be moved, alone, without raising it; intercepts add up to zero, as a shift of all changes nothing."""
    held, refit = class_refit()
    mass = held.mass / held.mass.sum()

    def loss(weights: list[np.ndarray]) -> float:
        pairs = zip(weights, refit.designs, strict=True)
        scores = np.column_stack([own[0] + design @ own[1:] for own, design in pairs])
        fit = -float(mass @ (held.predictions * log_softmax(scores, axis=1)).sum(axis=1))
        return fit + 1e-4 / 2 * sum(float(own[1:] @ own[1:]) for own in weights)

    least, weights = loss(refit.weights), refit.weights
    assert sum(own[0] for own in weights) == pytest.approx(0, abs=1e-9)
    for k, own in enumerate(weights):
        for j in range(len(own)):
            for step in (-1e-3, 1e-3):
                moved = [each.copy() for each in weights]
                moved[k][j] += step
                assert loss(moved) > least


def test_coefficients_of_classes_move_with_all_scores_as_their_errors_say() -> None:
    """Errors' root, added to one class's scores after another, moves the refit of every class by its image."""
    held, refit = class_refit()
    few, roots, known = 1_000, [], []
    for own in held.fitted.errors:
        values, vectors = np.linalg.eigh(own.noise)
        roots.append(vectors[:, -4:] * np.sqrt(values[-4:]))
        known.append(replace(own, variances=0 * own.variances, noise=roots[-1] @ roots[-1].T))
    designs, mass = [own[:few] for own in refit.designs], held.mass[:few]
    refit = SoftmaxRefit(designs, held.predictions[:few], mass, 1e-4)
    scores = refit._scores(refit._solution)  # labels that the terms can express
    refit = replace(refit, labels=softmax(scores, axis=1))
    directions = held.directions[:few]
    engine = replace(held.fitted, errors=tuple(known))
    found = refit.errors(engine, held.codes[:, :few], directions, 1.0)
    wanted = [np.zeros((len(own), len(own))) for own in refit.weights]
    for output, root in enumerate(roots):
        for own in (directions @ root).T:
            change = np.multiply.outer(own, np.arange(3) == output)
            ends = [
                replace(refit, labels=softmax(scores + step * change, axis=1)).weights
                for step in (1e-3, -1e-3)
            ]
            for k, (one, other) in enumerate(zip(*ends, strict=True)):
                wanted[k] += np.multiply.outer(one - other, one - other) / 4e-6
    for (covariance, *_), told in zip(found, wanted, strict=True):
        assert covariance == pytest.approx(told, rel=0.01, abs=1e-3 * np.abs(told).max())


def test_errors_against_the_same_terms_of_classes_are_those_of_two_fits() -> None:
    """Of one sampling of the records: in the engine's sums of every class, and in the terms' own fit to the records."""
    held, refit = class_refit()
    engine = held.fitted
    few, p = 1_000, held.predictions[:1_000]
    refit = SoftmaxRefit([own[:few] for own in refit.designs], p, held.mass[:few], 1e-4)
    mass = refit.mass / refit.mass.sum()
    inverse = np.linalg.inv(refit._system(softmax(refit._scores(refit._solution), axis=1), mass))
    owner = np.repeat(np.arange(3), [own.shape[1] for own in refit._matrices])
    every = np.concatenate(refit._matrices, axis=1)
    directions, codes = held.directions[:few], held.codes[:, :few]
    sampling = engine.errors[0].sampling * engine.records
    learned = np.zeros((3 * few, len(owner)))
    fitted = np.zeros_like(learned)
    for c in range(3):  # a record's residuals, of each class that it may have
        residuals = np.sqrt(sampling * mass[:, None] * p[:, [c]]) * ((np.arange(3) == c) - p)
        fitted[c * few : (c + 1) * few] = (every * residuals[:, owner]) @ inverse / engine.records
        for j, error in enumerate(engine.errors):
            slopes = mass[:, None] * p * ((np.arange(3) == j) - p[:, [j]])
            influence = inverse @ ((every * slopes[:, owner]).T @ directions)
            moved = residuals[:, [j]] * directions @ error.gain.T / 1.0
            learned[c * few : (c + 1) * few] += moved @ influence.T
    blank = [
        replace(own, variances=0 * own.variances, noise=0 * own.noise) for own in engine.errors
    ]
    found = refit.errors(replace(engine, errors=tuple(blank)), codes, directions, 1.0)
    wanted = fitted.T @ fitted - learned.T @ fitted - fitted.T @ learned
    for part, (whole, _, same) in zip(refit._parts, found, strict=True):
        assert not whole.any()
        assert same == pytest.approx(wanted[part, part], rel=2e-3, abs=1e-9)


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


def test_a_short_model_of_an_earlier_version_predicts_as_it_did() -> None:
    """Risks against the rest, to a power, divided by their sum; a power that is none is refused, and none was one."""
    ensemble = fitted("published").ensemble_
    assert isinstance(ensemble, ClassEnsembles) and ensemble.power == 1
    state, X = ensemble.to_state(), fitted("published")._encode(FRAME)
    assert "power" not in state
    for power in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="power"):
            ClassEnsembles.from_state(SCHEMA, {**state, "power": power})
    older = ClassEnsembles.from_state(SCHEMA, {**state, "power": 1.3})
    assert older.to_state() == {**state, "power": 1.3}
    risks = expit(ensemble.scores(X)) ** 1.3
    assert np.allclose(older.probabilities(X), risks / risks.sum(axis=1, keepdims=True))
    learner = clone(fitted("published"))
    learner.__dict__.update(fitted("published").__dict__)
    learner.ensemble_ = older
    for text in (learner.describe(), str(learner.scorecard(label="a"))):
        assert "to the power of 1.3, divided by their sum" in text


def constant(way: str, number: int = 1) -> RuleFitClassifier:
    """The fit of a way, in which one class's model has no term."""
    learner: RuleFitClassifier = clone(fitted(way))
    model = fitted(way).ensemble_
    assert isinstance(model, ClassEnsembles)
    start = np.zeros_like(model.models[number].weights)
    start[0] = -4
    models = [
        replace(own, weights=start) if k == number else own for k, own in enumerate(model.models)
    ]
    learner.__dict__.update(vars(fitted(way)))
    learner.ensemble_ = replace(model, models=tuple(models))
    return learner


@pytest.mark.parametrize("way", WAYS)
def test_a_class_without_terms_does_not_change_how_others_are_printed(way: str) -> None:
    """Tables keep their types, and texts their decimals."""
    learner = constant(way)
    table = learner.table()
    assert "b" not in set(table["class"])
    assert all(table[name].dtype == float for name in ("coefficient", "importance", "support"))
    assert " 100.0" not in learner.describe(top=1) and " 100 " in learner.describe(top=1)


def test_cards_say_the_risk_of_a_class_that_has_none() -> None:
    """One for all: without it nobody could divide by the sum of all risks."""
    learner = constant("published")
    with pytest.raises(InputError, match="the model of 'b' is a constant"):
        learner.scorecard(label="b")
    line = "Classes without a card, whose risk is the same for everybody: b, 1.8 %."
    assert line in str(learner.scorecard(label="a"))
    assert line not in str(fitted("published").scorecard(label="a"))


def test_a_private_class_without_terms_has_a_card_with_its_starting_points() -> None:
    """In all forms."""
    card = constant("short").scorecard(label="b")
    assert isinstance(card, ClassScoreCard) and not len(card.points)
    assert (card.totals(FRAME) == card.start).all()
    for text in (str(card), card.to_html(), card.to_latex(), json.dumps(card.to_dict())):
        assert "nan" not in text.lower()
    assert card.plot().get_figure() is not None and not len(card.table())


def test_the_class_of_a_card_is_named_as_the_classes_are_listed() -> None:
    """By a number, where the target is one; the message that names it was not heeded otherwise."""
    learner = RuleFitClassifier(n_estimators=5, n_rounds=10, random_state=0)
    learner.fit(gates(FRAME, learner.published()))
    card = learner.scorecard(label=learner.classes_[1])
    assert str(card) == str(learner.scorecard(label="1")) == str(learner.scorecard())
    with pytest.raises(InputError, match="no score card of 0; write label = 1"):
        learner.scorecard(label=0)
