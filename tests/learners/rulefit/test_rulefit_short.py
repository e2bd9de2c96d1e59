"""Short private models: few terms, from releases alone, close to the engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from privfed import Column, LocalDisclosure, Schema
from privfed.errors import InputError
from privfed.exchange.disclosure import ReplayDisclosure
from privfed.learners import RuleFitClassifier, RuleFitRegressor, private
from privfed.learners.rulefit.refits import Refit
from privfed.learners.rulefit.selection import Selection
from privfed.learners.rulefit.short import SETTINGS, _Shortener, roundest, shortened
from privfed.learners.saved import load, save
from privfed.testing.hospitals import BINARY, NUMERIC, gates, patients

FRAME = patients(3000)


def disclosure(epsilon: str = "4") -> LocalDisclosure:
    """The same hospitals with the same noise."""
    return gates(FRAME, RuleFitClassifier().private(epsilon), seed=3)


@cache
def fitted(
    max_terms: int | None = 20, *, stable: bool = False, epsilon: str = "4"
) -> tuple[RuleFitClassifier, LocalDisclosure]:
    """One fit for each form."""
    model = RuleFitClassifier(max_terms=max_terms, stable=stable, random_state=0)
    federation = disclosure(epsilon)
    return model.fit(federation), federation


@cache
def whole() -> private.PrivateModel:
    """The engine's model, of which short forms are written."""
    outcome = private.Outcome.of(BINARY, number=False)
    return private.learn(disclosure(), outcome, np.random.default_rng(0))


def terms(model: RuleFitClassifier) -> int:
    """Rules and lines with a coefficient."""
    return int(np.count_nonzero(model.model_.weights[1:]))


def test_the_default_is_short_and_close_to_the_whole_engine() -> None:
    """At most twenty terms; the long model has many times as many and ranks hardly better."""
    test = patients(3000, seed=9)
    short, long = fitted()[0], fitted(None)[0]
    assert 0 < terms(short) <= 20 < terms(long) / 3
    areas = [roc_auc_score(test["died"], m.decision_function(test)) for m in (short, long)]
    assert areas[0] > areas[1] - 0.01


@pytest.mark.parametrize(("records", "epsilon"), [(250, "1"), (400, "0.5")])
def test_a_small_table_is_not_a_constant_where_the_engine_ranks_it(
    records: int, epsilon: str
) -> None:
    """The posterior is far wider than F varies, and F tells the records apart all the same."""
    federation = gates(patients(records), RuleFitClassifier().private(epsilon), seed=3)
    long = RuleFitClassifier(max_terms=None, random_state=0).fit(federation)
    replay = ReplayDisclosure(federation.schema, federation.transcript())
    short, test = RuleFitClassifier(random_state=0).fit(replay), patients(3000, seed=9)
    areas = [roc_auc_score(test["died"], m.decision_function(test)) for m in (short, long)]
    assert areas[0] > areas[1] - 0.025 > 0.65


def test_what_is_negligible_gets_no_term() -> None:
    """Outcomes dealt out at random: an empty list, or a few small terms."""
    frame = patients(600)
    frame["died"] = np.random.default_rng(0).permutation(frame["died"].to_numpy())
    model = RuleFitClassifier(random_state=0).fit(
        gates(frame, RuleFitClassifier().private(2), seed=3)
    )
    assert terms(model) <= 3 and np.abs(model.model_.weights[1:]).max(initial=0.0) < 0.2


def test_no_more_terms_than_asked_for() -> None:
    """Rules and lines together, and a table that has them all."""
    model = clone(fitted()[0]).set_params(max_terms=3)
    model.fit(ReplayDisclosure(disclosure().schema, fitted()[1].transcript()))
    assert 0 < terms(model) <= 3
    assert len(model.table()) == terms(model)


def test_it_is_post_processing() -> None:
    """Both forms ask for the same, byte by byte; recorded releases give the same model."""
    (model, federation), (_, other) = fitted(), fitted(None)
    digests = [[e.release.query for e in f.transcript()] for f in (federation, other)]
    assert digests[0] == digests[1]
    replay = ReplayDisclosure(federation.schema, federation.transcript())
    again = clone(model).fit(replay)
    assert np.array_equal(again.model_.weights, model.model_.weights)
    assert np.array_equal(again.model_.terms.boxes, model.model_.terms.boxes)
    assert again.model_.alternatives == model.model_.alternatives is not None


def test_stable_rules_have_one_column_each() -> None:
    """Steps of single columns and lines."""
    model = fitted(10, stable=True)[0]
    assert model.rules_
    assert all(len(rule.conditions) == 1 for rule in model.rules_)


def monotone(
    scores: Callable[[np.ndarray], np.ndarray], schema: Schema, name: str, sign: int
) -> bool:
    """Whether scores never go against the sign along one column, every other column at random."""
    rng, j = np.random.default_rng(0), schema.names.index(name)
    x = np.floor(rng.uniform(schema.lower, schema.upper, (30, 1, len(schema.names))))
    moved = np.repeat(x, 60, axis=1)
    moved[..., j] = np.linspace(schema.lower[j], schema.upper[j], 60)
    along = scores(moved.reshape(-1, x.shape[2])).reshape(30, 60)
    return bool((sign * np.diff(along, axis=1) >= -1e-9).all())


def test_a_model_and_its_card_rise_and_fall_where_they_are_asked_to() -> None:
    """Against what the records say, too; a free model does not."""
    asked = {"age": -1, "GCS": -1, "noise": 1}
    replay = ReplayDisclosure(disclosure().schema, fitted()[1].transcript())
    learner = clone(fitted()[0]).set_params(monotonic_cst=asked).fit(replay)
    model, free = learner.model_, fitted()[0].model_
    for name, sign in asked.items():
        for scores in (model.scores, learner.scorecard().totals):
            assert monotone(scores, model.schema, name, sign)
    assert not all(monotone(free.scores, free.schema, *each) for each in asked.items())
    assert np.count_nonzero(model.weights[1:]) > 2


@settings(max_examples=2, deadline=None)
@given(
    st.fixed_dictionaries({name: st.sampled_from([-1, 0, 1]) for name in ("age", "GCS", "noise")})
)
def test_any_directions_are_kept(asked: dict[str, int]) -> None:
    """Of one engine's short forms; where a direction is 0 nothing is asked."""
    signs = [asked.get(name, 0) for name in BINARY.names]
    (model,) = shortened(whole(), 6, np.random.default_rng(0), monotonic=signs)
    for name, sign in asked.items():
        assert monotone(model.scores, model.schema, name, sign)


def test_without_directions_nothing_changes() -> None:
    """Zeros are the model of none."""
    replay = ReplayDisclosure(disclosure().schema, fitted()[1].transcript())
    still = clone(fitted()[0]).set_params(monotonic_cst={"age": 0}).fit(replay)
    assert np.array_equal(still.model_.weights, fitted()[0].model_.weights)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"aeg": 1}, "did you mean 'age'"),
        ({"sex": 1}, "category"),
        ([1], "a number for each"),
        ({"age": 2}, "rises"),
        ("age", "rises"),
    ],
)
def test_directions_are_of_numbers(given: object, match: str) -> None:
    """One line says what to write."""
    replay = ReplayDisclosure(disclosure().schema, fitted()[1].transcript())
    with pytest.raises(InputError, match=match):
        clone(fitted()[0]).set_params(monotonic_cst=given).fit(replay)


def test_directions_are_of_short_private_models() -> None:
    """The published protocol and the long model say so before they ask."""
    model = RuleFitClassifier(monotonic_cst={"age": 1})
    with pytest.raises(InputError, match="monotonic_cst"):
        model.fit(gates(FRAME, model.published()))
    with pytest.raises(InputError, match="max_terms"):
        model.set_params(max_terms=None).fit(disclosure())


def test_little_budget_leaves_fewer_terms_to_tell() -> None:
    """What the posterior variance covers is not written down."""
    assert terms(fitted(40, epsilon="0.3")[0]) < terms(fitted(40, epsilon="8")[0])


def test_thresholds_are_numbers_that_a_person_would_say() -> None:
    """Ages to the year or half of it, whole scores; never more than three digits here."""
    cutoffs = fitted()[0].model_.terms.cutoffs.cuts
    for cut in (cut for own in cutoffs for cut in own):
        assert float(f"{cut:.3g}") == cut


def test_a_saved_short_model_predicts_alike(tmp_path: Path) -> None:
    """To the last bit."""
    model = fitted()[0]
    save(model, tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert isinstance(again, RuleFitClassifier)
    assert np.array_equal(again.decision_function(FRAME), model.decision_function(FRAME))
    assert np.array_equal(again.confidence_interval(FRAME), model.confidence_interval(FRAME))
    assert again.scorecard().risks().equals(model.scorecard().risks())


def test_a_number_is_predicted_by_few_terms_too() -> None:
    """Within a tenth of the long model's error, a constant column and lone categories included."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.uniform(0, 10, 3000), "c": rng.choice(["u", "v"], 3000)})
    table["still"] = 3.0
    table["y"] = 2 * table["a"] + 5 * (table["c"] == "v") + 6 * (table["a"] > 7)
    features = (
        Column("a", "number", 0, 10),
        Column("c", "category", categories=("u", "v", "w")),
        Column("still", "number", 0, 5),
    )
    schema = Schema(features, Column("y", "number", 0, 40))
    table["owner"] = np.arange(3000) % 3
    errors = []
    for most in (20, None):
        model = RuleFitRegressor(max_terms=most, random_state=0)
        policy = model.private("8")
        held = LocalDisclosure.from_frame(
            table, "y", client="owner", schema=schema, policy=policy, seed=1
        )
        told = model.fit(held).predict(table.drop(columns=["y", "owner"]))
        errors.append(float(np.sqrt(np.mean((told - table["y"]) ** 2))))
    assert errors[0] < 1.1 * errors[1] + 0.1 < float(table["y"].std()) / 2


@given(st.floats(-1e16, 1e16), st.floats(1e-6, 1e4))
def test_the_roundest_number_is_inside(low: float, width: float) -> None:
    """However far from zero; and nothing but the number itself where the interval is empty."""
    high = low + width
    near = (low + high) / 2
    found = roundest(low, high, near)
    assert low <= found <= high
    assert roundest(near, near, near) == near
    assert math.isfinite(found)


def test_what_is_roundest() -> None:
    """Fewest digits first, then the nearest."""
    assert [roundest(*ends) for ends in ((38.2, 41.3, 39), (0.118, 0.133, 0.12), (-3, 4, 1), (0.003, 2, 0.02))] == [
        40, 0.12, 0, 1,
    ]  # fmt: skip


def test_thresholds_between_few_values_are_round() -> None:
    """Of a number that is 0, 1, 2 or 3: two digits, most often a half or a whole one, wherever noise puts cut-offs."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"grade": rng.integers(0, 4, 3000) * 1.0, "x": rng.normal(0, 1, 3000)})
    chance = 1 / (1 + np.exp(2.0 - 3.0 * (table["grade"] >= 2) - (table["grade"] >= 3)))
    table["y"], table["owner"] = (rng.random(3000) < chance).astype(int), "a"
    features = Column("grade", "number", 0, 3), Column("x", "number", -4, 4)
    schema = Schema(features, Column("y", "integer", 0, 1))
    found = []
    for seed in range(3):
        model = RuleFitClassifier(random_state=seed)
        held = LocalDisclosure.from_frame(
            table, "y", client="owner", schema=schema, policy=model.private("2"), seed=seed
        )
        cuts = model.fit(held).models_[0].terms.cutoffs.cuts[0]
        assert list(cuts) == sorted(set(cuts))
        found += list(cuts)
    assert all(cut == float(f"{cut:.2g}") for cut in found)
    assert np.mean([2 * cut % 1 == 0 for cut in found]) > 0.8


def test_thresholds_of_whole_numbers_are_floats_like_all_others() -> None:
    """Saved and restored they are the same: a whole one was written without its point, and came back with it."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"grade": rng.integers(0, 4, 3000), "owner": "a"})
    table["y"] = (rng.random(3000) < 0.1 + 0.7 * (table["grade"] >= 2)).astype(int)
    schema = Schema((Column("grade", "integer", 0, 3),), Column("y", "integer", 0, 1))
    model = RuleFitClassifier(random_state=0)
    held = LocalDisclosure.from_frame(
        table, "y", client="owner", schema=schema, policy=model.private("4"), seed=0
    )
    cuts = model.fit(held).models_[0].terms.cutoffs.cuts[0]
    assert cuts and {type(cut) for cut in cuts} == {float}


def test_coefficients_move_with_the_scores_as_their_errors_say() -> None:
    """The errors' root, added to the engine's weights column by column, moves the refit by its image."""
    engine = whole()
    (error,) = engine.errors
    engine = replace(engine, errors=(replace(error, variances=np.zeros_like(error.variances)),))
    root = np.linalg.cholesky(error.noise + 1e-9 * np.eye(len(error.noise)))
    held = _Shortener(engine, np.random.default_rng(1), stable=False)
    design = np.column_stack([held.codes[0] > 4, held.codes[1] > 4, held.codes[0] > 8]).astype(
        float
    )

    def refit() -> Refit:
        return Refit([design], held.scores[:, 0], held.mass, SETTINGS.ridge, logistic=True)

    centre = refit().weights[0]
    along = refit().influence @ held.directions
    noise = along @ error.noise @ along.T
    known = engine, held.codes, held.directions, SETTINGS.selection
    ((covariance, selected, _),) = refit().errors(*known)
    assert np.allclose(noise, covariance)
    assert np.allclose(SETTINGS.selection**2 * noise, selected)
    scores, moved = held.scores, []
    for own in (held.directions @ root).T:
        held.scores = scores + 1e-3 * own[:, None]
        moved.append((refit().weights[0] - centre) / 1e-3)
    assert np.allclose(np.array(moved).T @ np.array(moved), covariance, rtol=1e-3, atol=1e-6)


def test_errors_against_the_same_terms_without_noise_are_those_of_two_fits() -> None:
    """Of one sampling of the records, record by record: in the engine's sums, and in the terms' own fit to the records."""
    engine = whole()
    (error,) = engine.errors
    held = _Shortener(engine, np.random.default_rng(2), stable=False)
    design = np.column_stack([held.codes[0] > 4, held.codes[1] > 4]).astype(float)
    refit = Refit([design], held.scores[:, 0], held.mass, SETTINGS.ridge, logistic=True)
    influence, rates = refit.influence, refit.rates
    residuals = np.sqrt(error.sampling * engine.records * rates)[:, None]  # one record's at a time
    sampled = (residuals * held.directions) @ error.gain.T  # the engine's weights move
    none = 0 * error.variances
    known = replace(error, variances=none, noise=sampled.T @ sampled)
    engine = replace(engine, errors=(known,))
    learned = sampled @ (influence @ held.directions).T
    refitted = residuals * (influence / rates).T / engine.records
    wanted = (learned - refitted).T @ (learned - refitted) * SETTINGS.selection**2
    ((_, _, found),) = refit.errors(engine, held.codes, held.directions, SETTINGS.selection)
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-9)


def test_predictions_hold_what_the_engine_cannot_express() -> None:
    """Beside what the terms miss of the engine; the terms stay."""
    engine = whole()
    (error,) = engine.errors
    more = replace(engine, errors=(replace(error, variances=4 * error.variances),))
    (one,), (other,) = (shortened(own, 20, np.random.default_rng(1)) for own in (engine, more))
    assert other.residual_variance > one.residual_variance > 0
    assert np.array_equal(one.weights, other.weights)


def test_intervals_hold_what_they_are_of() -> None:
    """Coefficients, and predictions; less budget, wider ones; a higher level, too."""
    model, vague = fitted()[0], fitted(40, epsilon="0.3")[0]
    table = model.table()
    assert (table["low"] < table["coefficient"]).all() and (
        table["coefficient"] < table["high"]
    ).all()
    told = model.importance_intervals()
    assert np.array_equal(told["importance"], model.feature_importances_)
    assert ((told["low"] <= told["importance"]) & (told["importance"] <= told["high"])).all()
    assert (told["low"] >= 0).all() and (
        told["high"] <= model.importance_intervals(0.99)["high"]
    ).all()
    chances = model.predict_proba(FRAME)[:, 1]
    low, high = model.confidence_interval(FRAME).T
    assert ((low < chances) & (chances < high)).all()
    wide = [
        np.ptp(one.model_.score_intervals(one._encode(FRAME)), axis=1).mean()
        for one in (model, vague)
    ]
    assert wide[0] < wide[1]
    assert (model.confidence_interval(FRAME, level=0.99)[:, 0] < low).all()
    risks = model.scorecard().risks()
    assert (risks["low"] < risks["risk"]).all() and (risks["risk"] < risks["high"]).all()


def test_a_long_model_has_no_intervals() -> None:
    """It says how to have some; so does a level that is none."""
    with pytest.raises(InputError, match="max_terms = 20"):
        fitted(None)[0].confidence_interval(FRAME)
    with pytest.raises(InputError, match="max_terms = 20"):
        fitted(None)[0].importance_intervals()
    with pytest.raises(InputError, match=r"level = 0\.9"):
        fitted()[0].confidence_interval(FRAME, level=90)
    assert "low" not in fitted(None)[0].table()


def test_a_numbers_interval_is_of_its_mean() -> None:
    """In the target's unit, around the prediction and within the limits."""
    model = RuleFitRegressor(random_state=0)
    model.fit(gates(FRAME, model.private("4"), NUMERIC, seed=3))
    low, high = model.confidence_interval(FRAME).T
    told = model.predict(FRAME)
    assert ((low <= told) & (told <= high)).all() and (low < high).any()
    truth = 20 + 6 * (4.0 * (FRAME["GCS"] < 7) + 2.0 * (FRAME["age"] >= 60) - 2.5)
    assert ((low <= truth) & (truth <= high)).mean() > 0.6


def test_swapping_ends_where_rounding_leaves_less_than_nothing() -> None:
    """Terms that explain all of the scores, and by rounding a little more, are swapped no further."""
    selection = Selection(np.eye(3), np.array([1.0, 1.0, 0.0]), 2 - 1e-7, np.zeros(3))
    assert selection.lack([0, 1]) < 0
    assert sorted(selection.run(3, 0.0)) == [0, 1]


def test_a_line_through_two_integers_ends_at_them() -> None:
    """Not at 0.05 and 1; a line through three, or of a number, keeps ends between them."""
    columns = (
        Column("flag", "integer", 0, 1),
        Column("rooms", "integer", 0, 9),
        Column("share", "number", 0, 1),
        Column("ward", "integer", 3, 5),
    )
    shortener = object.__new__(_Shortener)
    limits = np.array([[0.05, 0.98], [1.2, 6.6], [0.05, 0.98], [3.3, 3.9]])
    shortener.fitted = SimpleNamespace(schema=Schema(columns), limits=limits)  # type: ignore[assignment]
    found = shortener._limits()
    assert found[[0, 3]].tolist() == [[0, 1], [3, 4]] and found[2].tolist() == [0.05, 0.98]
    assert 1 < found[1, 0] < found[1, 1] < 7
