"""A private forest in forest form: the same predictions, tree by tree and as scikit-learn has them."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit, softmax
from sklearn.tree import DecisionTreeRegressor

from privfed import Column, LocalDisclosure, Schema
from privfed.errors import InputError, SchemaError
from privfed.learners import FedForestClassifier, FedForestRegressor
from privfed.learners.forest import private_way
from privfed.learners.forest.additive import trees_of
from privfed.learners.forest.private_way import PrivateForest
from privfed.learners.plain import plain, restored
from privfed.questions.tree import Tree, digits_text
from privfed.tables.records import Records
from privfed.testing.hospitals import BINARY, FEATURES, NUMERIC, patients

CLASSES = Schema(FEATURES, Column("grade", "category", categories=("a", "b", "c")))
SCHEMAS = {"binary": BINARY, "number": NUMERIC, "classes": CLASSES}
FRAME = patients(3000).assign(
    grade=lambda f: np.select([f["GCS"] < 7, f["age"] > 60], ["a", "b"], "c")
)


@cache
def fitted(name: str) -> FedForestClassifier | FedForestRegressor:
    """One private forest for each kind of target."""
    schema = SCHEMAS[name]
    kind = FedForestRegressor if name == "number" else FedForestClassifier
    learner = kind(random_state=0)
    target = schema.columns[-1].name
    held = FRAME[[*schema.names, "hospital", target]]
    policy = learner.private("4")
    return learner.fit(
        LocalDisclosure.from_frame(
            held, target, client="hospital", schema=schema, policy=policy, seed=1
        )
    )


def encoded(frame: pd.DataFrame = FRAME) -> np.ndarray:
    """Rows as queries see them."""
    return Records.from_frame(frame, Schema(FEATURES)).x


def engine(name: str) -> PrivateForest:
    """The engine's model below a forest."""
    model = fitted(name).model_
    assert isinstance(model, PrivateForest)
    return model


@pytest.mark.parametrize("name", SCHEMAS)
def test_trees_add_up_to_the_scores(name: str) -> None:
    """A tree for each column, and the random ones; at thresholds and just below them, too."""
    model = engine(name).model
    cuts = [np.array(own) for own in model.basis.grid.cuts]
    most = max(len(own) for own in cuts)
    edges = np.column_stack([np.resize(own, most) for own in cuts])
    x = np.concatenate([encoded(), edges, np.nextafter(edges, -np.inf)])
    trees = trees_of(model)
    assert len(trees) == len(FEATURES) + sum(own.count for own in model.basis.trees)
    assert all(set(own.tree.feature) <= {-1, j} for j, own in enumerate(trees[: len(FEATURES)]))
    total = sum(own.values[own.tree.reach(x)] for own in trees)
    assert np.allclose(total, model.scores(x), atol=1e-10)


@pytest.mark.parametrize("name", SCHEMAS)
def test_scikit_learn_s_form_predicts_alike(name: str) -> None:
    """Probabilities, classes and numbers, by real trees of scikit-learn's."""
    learner = fitted(name)
    theirs = learner.to_sklearn()
    if isinstance(learner, FedForestClassifier):
        assert np.allclose(theirs.predict_proba(encoded()), learner.predict_proba(FRAME), atol=1e-9)
        assert np.array_equal(theirs.predict(encoded()), learner.predict(FRAME))
        assert theirs.classes_.tolist() == learner.classes_.tolist()
    else:
        low, high = (getattr(engine(name).model.outcome, end) for end in ("lower", "upper"))
        told = np.clip(theirs.predict(encoded()), low, high)
        assert np.allclose(told, learner.predict(FRAME), atol=1e-6)
    first = learner.estimators_[0][0]
    assert isinstance(first, DecisionTreeRegressor) and first.get_n_leaves() > 1
    assert np.allclose(theirs.feature_importances_, learner.feature_importances_)


@pytest.mark.parametrize("name", SCHEMAS)
def test_onnx_predicts_alike(name: str) -> None:
    """By its own runtime, at thresholds too; whole numbers lie on them."""
    pytest.importorskip("skl2onnx")
    runtime = pytest.importorskip("onnxruntime")
    learner, x = fitted(name), encoded()
    session = runtime.InferenceSession(learner.to_onnx().SerializeToString())
    told = session.run(None, {session.get_inputs()[0].name: x.astype(np.float32)})
    notes = session.get_modelmeta().custom_metadata_map
    assert Schema.from_dict(json.loads(notes["schema"])) == SCHEMAS[name]
    assert (
        notes["privacy"] == learner.describe().splitlines()[-1] and "epsilon 4" in notes["privacy"]
    )
    assert "by its index" in notes["rows"]
    if isinstance(learner, FedForestClassifier):
        assert np.array_equal(np.array(told[0], str), learner.predict(FRAME).astype(str))
        chances = np.array([[row[c] for c in learner.classes_.tolist()] for row in told[1]])
        assert np.allclose(chances, learner.predict_proba(FRAME), atol=1e-5)
    else:
        low, high = learner.prediction_limits_
        assert np.allclose(
            np.clip(told[0].ravel(), low, high), learner.predict(FRAME), atol=1e-5 * (high - low)
        )


@cache
def far(low: float) -> FedForestRegressor:
    """A private forest of two numbers, one of whose bounds begin there."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": low + 0.9 * rng.random(2000), "b": rng.random(2000), "c": "one"})
    frame["y"] = (frame["a"] - low > 0.45) + 0.2 * rng.random(2000)
    schema = Schema(
        (Column("a", "number", low, low + 0.9), Column("b", "number", 0, 1)),
        Column("y", "number", 0, 1.2),
    )
    learner = FedForestRegressor(random_state=0)
    policy = learner.private("16")
    return learner.fit(
        LocalDisclosure.from_frame(frame, "y", client="c", schema=schema, policy=policy, seed=1)
    )


def test_exported_trees_send_a_number_at_a_threshold_or_just_below_it_where_ours_do() -> None:
    """Though their thresholds and values meet as 32-bit floats, by scikit-learn and by ONNX."""
    learner = far(0.0)
    model = learner.model_
    assert isinstance(model, PrivateForest)
    cuts = np.array(model.model.basis.grid.cuts[0])
    near = np.concatenate([cuts, np.nextafter(cuts, -np.inf), cuts - 1e-9, cuts + 1e-9])
    frame = pd.DataFrame({"a": near, "b": 0.5})
    x, ours = learner.encode(frame), learner.predict(frame)
    assert np.allclose(x[:, 0], near, rtol=1e-6)
    low, high = learner.prediction_limits_
    told = learner.to_sklearn().predict(x)
    assert np.allclose(np.clip(told, low, high), ours, rtol=0, atol=1e-9)
    pytest.importorskip("skl2onnx")
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(learner.to_onnx().SerializeToString())
    onnx = session.run(None, {session.get_inputs()[0].name: x.astype(np.float32)})[0].ravel()
    assert np.allclose(np.clip(onnx, low, high), ours, rtol=0, atol=1e-5)


def test_thresholds_between_which_no_32_bit_float_lies_are_not_exported() -> None:
    """The message says what to subtract; our own trees are read and predict all the same."""
    learner = far(1e8)
    with pytest.raises(
        InputError, match="two thresholds of 'a'; subtract a public number first, 100000000 say"
    ):
        learner.to_sklearn()
    assert not hasattr(learner, "estimators_")
    assert "a < 100000000.4" in learner.describe(tree=0)


def test_a_tree_s_variance_goes_to_its_splits() -> None:
    """By hand, of one tree: the variance of its values over the made-up records, split by split."""
    own = trees_of(engine("binary").model)[-1]
    leaves = own.tree.feature < 0
    shares, values = own.shares[leaves], own.values[leaves, 0]
    mean = shares @ values
    assert np.isclose(shares.sum(), 1) and np.isclose(own.shares[0], 1)
    assert np.isclose(own.explained(len(FEATURES)).sum(), shares @ (values - mean) ** 2)
    assert not own.explained(len(FEATURES))[
        [j for j in range(len(FEATURES)) if j not in own.tree.feature]
    ].any()


def test_a_printed_tree_has_the_leaves_of_the_exported_one_and_says_of_what() -> None:
    """A number's in its own unit; picture and text have one heading."""
    for kind, of in (("binary", "the log-odds of died = 1"), ("number", "days")):
        learner = fitted(kind)
        heading, *lines = learner.describe(tree=5).splitlines()
        assert heading.endswith(f"; the leaves of all add up to {of}:")
        assert learner.plot(tree=5).get_title(loc="left").split() == heading[:-1].split()
        exported = learner.estimators_[5][0].tree_
        leaves = exported.value[exported.children_left < 0].ravel()
        told = [
            float(line.rpartition(": ")[2])
            for line in lines
            if ": " in line and "Privacy: " not in line
        ]
        assert np.allclose(sorted(told), sorted(leaves), rtol=0.006)


@pytest.mark.parametrize("name", ["binary", "number"])
@pytest.mark.parametrize("feature", ["age", "GCS", "sex"])
def test_a_tree_of_one_column_is_printed_by_its_ranges(name: str, feature: str) -> None:
    """Each value's one line has what the exported tree adds, rounded; fewer lines than leaves have a note."""
    learner = fitted(name)
    number = learner.feature_names_in_.tolist().index(feature)
    exported = learner.estimators_[number][0]
    _, *lines = learner.describe(tree=number).splitlines()
    ranges = [
        line.rpartition(": ")[::2] for line in lines if line.startswith(feature) or "<=" in line
    ]
    column = FEATURES[number]
    places = np.arange(column.bounds[0], column.bounds[1] + 1)
    if column.kind == "number":  # between cut-offs, which are printed with few digits
        cuts = np.sort(exported.tree_.threshold[exported.tree_.children_left >= 0])
        ends = np.concatenate([column.bounds[:1], cuts, column.bounds[1:]])
        places = (ends[1:] + ends[:-1]) / 2
    leaves = exported.tree_.value[exported.tree_.children_left < 0].ravel()
    for place in places.tolist():
        row = np.zeros((1, len(FEATURES)))
        row[0, number] = place
        held = [value for text, value in ranges if holds(text, feature, place, column)]
        assert len(held) == 1
        assert abs(float(held[0]) - exported.predict(row)[0]) <= np.ptp(leaves) / 19
    assert (len(ranges) < len(leaves)) == (private_way.RANGES in lines)


def holds(text: str, feature: str, place: float, column: Column) -> bool:
    """Whether a printed condition holds for a value."""
    if column.kind == "category":
        return text == f"{feature} = {column.categories[int(place)]}"
    equal = text.replace(f"{feature} = ", f"{feature} == ")
    return bool(eval(equal, {feature: place}))


def test_a_tree_without_splits_is_any_value() -> None:
    """One line, without a note."""
    single = Tree.binary(np.array([-1]), np.zeros(1), np.array([-1]), np.array([-1]))
    column = Column("age", lower=0, upper=100)
    assert private_way._ranges(single, np.array([[0.25]]), column) == ["any age: +0.25"]


def test_neighbours_of_equal_printed_values_are_one_line() -> None:
    """Of a number only neighbours; of categories all; of several outputs, where all are equal."""
    tree = Tree.binary(
        np.array([0, -1, 0, -1, 0, -1, -1]),
        np.array([0.5, 0, 1.5, 0, 2.5, 0, 0]),
        np.array([1, -1, 3, -1, 5, -1, -1]),
        np.array([2, -1, 4, -1, 6, -1, -1]),
    )
    heights = np.array([0, 1.0, 0, 1.02, 0, 5.0, 1.04])[:, None]
    beds = Column("beds", "integer", lower=0, upper=9)
    ranges = ["beds <= 1: +1.0", "beds = 2: +5.0", "beds >= 3: +1.0", private_way.RANGES]
    assert private_way._ranges(tree, heights, beds) == ranges
    ward = Column("ward", "category", categories=("a", "b", "c", "d"))
    told = ["ward not in {c}: +1.0", "ward = c: +5.0", private_way.RANGES]
    assert private_way._ranges(tree, heights, ward) == told
    both = np.column_stack([heights, [0, 0.0, 0, 4.0, 0, 0.0, 0.0]])
    assert private_way._ranges(tree, both, beds)[:2] == [
        "beds = 0: +1.0, +0.0",
        "beds = 1: +1.0, +4.0",
    ]


def test_importances_are_told_with_the_interval_of_the_truth() -> None:
    """Not of the model without noise, whose intervals are others."""
    learner = fitted("binary")
    said, truth = learner.describe(), learner.importance_intervals()
    assert "with the 90 % interval of the true change" in said
    first = str(truth["importance"].idxmax())
    ends = [digits_text(each, 3) for each in truth.T[first].tolist()]
    assert "{}: {} ({} to {})".format(first, *ends) in said
    assert not np.allclose(truth, learner.importance_intervals(of="same"), rtol=0.01)


def test_exported_trees_take_rows_that_are_filled_and_refused_as_predictions_are() -> None:
    """A missing number, an unknown category and one beyond the bounds."""
    fills: dict[str, float | str] = {"age": 50.0, "sex": "male"}
    columns = tuple(replace(one, fill=fills.get(one.name)) for one in FEATURES)
    learner = copy(fitted("binary"))
    learner.schema_ = Schema(columns, BINARY.target)
    odd = FRAME[list(BINARY.names)].head(3).astype({"age": float, "GCS": float})
    odd.loc[0, "age"], odd.loc[1, "sex"], odd.loc[2, "age"] = np.nan, "unseen", 1e9
    told = learner.to_sklearn().predict_proba(learner.encode(odd))
    assert isinstance(learner, FedForestClassifier)
    assert np.allclose(told, learner.predict_proba(odd), atol=1e-9)
    odd.loc[0, "GCS"] = np.nan
    for refused in (learner.encode, learner.predict):
        with pytest.raises(SchemaError, match="'GCS' has no value"):
            refused(odd)


def test_a_tree_is_printed_by_its_number() -> None:
    """Without one what weighs most; one that is none is an error."""
    learner = fitted("binary")
    head = learner.describe().splitlines()[0]
    count = int(head.split()[0])
    assert head.startswith(f"{count} trees, 4 of one column each")
    assert "age <" in learner.describe(tree=0) and "GCS" not in learner.describe(tree=0)
    with pytest.raises(InputError, match=f"the last is {count - 1}"):
        learner.describe(tree=count)


def test_intervals_hold_the_prediction_and_mostly_the_truth() -> None:
    """Of probabilities, and of numbers in their unit; wider at a higher level; the same after saving."""
    for name in ("binary", "number"):
        learner = fitted(name)
        low, high = learner.confidence_interval(FRAME).T
        told = learner.predict_proba(FRAME)[:, 1] if name == "binary" else learner.predict(FRAME)
        assert ((low <= told) & (told <= high)).all()
        score = 4.0 * (FRAME["GCS"] < 7) + 2.0 * (FRAME["age"] >= 60) - 2.5
        truth = 1 / (1 + np.exp(-score)) if name == "binary" else 20 + 6 * score
        assert ((low <= truth) & (truth <= high)).mean() > 0.8
        assert (learner.confidence_interval(FRAME, level=0.99)[:, 0] <= low).all()
        again = type(learner).from_dict(json.loads(json.dumps(learner.to_dict())))
        assert np.array_equal(again.confidence_interval(FRAME)[:, 0], low)


def test_intervals_of_several_classes_are_of_log_odds_against_the_rest() -> None:
    """As errors of the scores, drawn by class, move them; around the prediction, and the same after saving."""
    learner, model = fitted("classes"), engine("classes").model
    low, high = np.moveaxis(learner.confidence_interval(FRAME), 2, 0)
    told = learner.predict_proba(FRAME)
    assert ((low < told) & (told < high)).all()
    again = type(learner).from_dict(json.loads(json.dumps(learner.to_dict())))
    assert np.array_equal(again.confidence_interval(FRAME)[..., 0], low)
    x = encoded(FRAME.head(20))
    scores, deviations = model.scores(x), model.score_deviations(x)
    drawn = np.random.default_rng(0).normal(size=(20_000, *scores.shape)) * 1e-3 * deviations
    odds = logit(softmax(scores + drawn, axis=2))
    reach = np.diff(logit(learner.confidence_interval(FRAME.head(20), level=0.6826894921370859)))
    assert np.allclose(odds.std(axis=0) / 1e-3, reach[..., 0] / 2, rtol=0.03)


def test_two_classes_that_are_no_zero_and_one_have_the_second_s_interval() -> None:
    """Of whole numbers 1 and 2, as of 0 and 1."""
    frame, learner = FRAME.assign(y=1 + (FRAME["GCS"] < 7)), FedForestClassifier(random_state=0)
    held = frame[[*BINARY.names, "hospital", "y"]]
    schema, policy = Schema(FEATURES, Column("y", "integer", 1, 2)), learner.private("4")
    learner.fit(
        LocalDisclosure.from_frame(held, "y", client="hospital", schema=schema, policy=policy)
    )
    (low, high), told = learner.confidence_interval(FRAME).T, learner.predict_proba(FRAME)[:, 1]
    assert ((low <= told) & (told <= high)).all() and (high - low).mean() < 0.5


def test_a_file_without_todays_errors_is_read() -> None:
    """As models were written before: predictions stay, and no interval is known."""
    learner = fitted("binary")
    saved = json.loads(json.dumps(learner.to_dict()))
    model, known = engine("binary").model, _state(saved)
    assert model.covariance is not None
    known |= {"covariance": plain(model.covariance[0]), "unexpressed": 0.1, "error": None}
    del known["errors"], known["further"]
    again = type(learner).from_dict(saved)
    assert np.array_equal(again.predict_proba(FRAME), learner.predict_proba(FRAME))
    with pytest.raises(InputError, match="nothing is known"):
        again.confidence_interval(FRAME)


def test_a_file_with_all_numbers_as_text_is_read() -> None:
    """As the first format had them; the new one is less than half as long."""
    learner = fitted("binary")
    saved = json.loads(json.dumps(learner.to_dict()))
    first = _as_text(saved) | {"format": "privfed model 1"}
    again = type(learner).from_dict(first)
    assert np.array_equal(again.predict_proba(FRAME), learner.predict_proba(FRAME))
    assert np.array_equal(again.confidence_interval(FRAME), learner.confidence_interval(FRAME))
    assert again.importance_intervals().equals(learner.importance_intervals())
    assert again.to_dict() == saved
    assert len(json.dumps(saved)) < 0.5 * len(json.dumps(first))


def _as_text(saved: Any) -> Any:
    """The same with every array as a list of numbers."""
    if isinstance(saved, list):
        return [_as_text(item) for item in saved]
    if not isinstance(saved, dict):
        return saved
    array = restored(saved)
    if isinstance(array, np.ndarray):
        shape, values = list(array.shape), array.astype(float).ravel().tolist()
        return {"dtype": array.dtype.name, "shape": shape, "values": values}
    return {name: _as_text(item) for name, item in saved.items()}


def _state(saved: Any) -> dict[str, Any]:
    """The engine's fields in a saved forest."""
    inner = list(saved.values()) if isinstance(saved, dict) else []
    found = saved.get("private") if isinstance(saved, dict) else None
    return found if isinstance(found, dict) else next(filter(None, map(_state, inner)), {})


def test_a_partial_dependence_is_the_mean_score_with_the_column_set() -> None:
    """Over the made-up records, by hand; a covariance of zero has no band."""
    model = engine("binary").model
    heights, deviations = model.partial_dependence(1)
    codes, weights, _ = model.source.draw(model.basis, 300, np.random.default_rng(0))
    means = []
    for code in range(len(heights)):
        codes[1] = code
        scores = model.basis.scores(model.basis.cells(codes), model.weights)[:, 0]
        means.append(np.average(scores, weights=weights))
    assert np.allclose(np.diff(heights), np.diff(means))
    assert (deviations > 0).all() and abs(
        np.average(heights, weights=model.shares[1, : len(heights)])
    ) < 1e-9


def test_bands_of_partial_dependence_are_in_the_targets_unit() -> None:
    """Twice as wide at a level of as many deviations, and as wide as a number's limits are apart."""
    for name in ("binary", "number"):
        own = engine(name)
        heights, deviations = own.model.partial_dependence(1)
        outcome = own.model.outcome
        unit = outcome.upper - outcome.lower if name == "number" else 1.0
        found, reach = own.partial_dependence(1, level=0.6826894921370859)
        assert np.allclose(found, unit * heights) and np.allclose(reach, unit * deviations)
        assert np.allclose(own.partial_dependence(1, level=0.9544997361036416)[1], 2 * reach)


def test_a_partial_dependence_of_several_classes_is_of_each_ones_log_odds() -> None:
    """Mean log-odds against the rest, by hand; errors of all scores are in its band, of the class's own the most."""
    own = engine("classes")
    heights, reach = own.partial_dependence(1)
    model = own.model
    codes, weights, _ = model.source.draw(model.basis, 300, np.random.default_rng(0))
    means = []
    for code in range(len(heights)):
        codes[1] = code
        scores = model.start + model.basis.scores(model.basis.cells(codes), model.weights)
        means.append(np.average(logit(softmax(scores, axis=1)), weights=weights, axis=0))
    assert heights.shape == reach.shape == (len(heights), 3)
    assert np.allclose(np.diff(heights, axis=0), np.diff(means, axis=0))
    quiet = replace(
        model.errors[1],
        noise=np.zeros_like(model.errors[1].noise),
        variances=np.zeros_like(model.errors[1].variances),
    )
    less = PrivateForest(
        replace(model, errors=(model.errors[0], quiet, model.errors[2]))
    ).partial_dependence(1)[1]
    assert (less < reach).all() and (less[:, 1] / reach[:, 1]).mean() < 0.8 < (less / reach)[
        :, 0
    ].mean()


def test_importances_with_intervals_tell_what_moves_a_prediction() -> None:
    """What is used has a low end above nought, what is not has none, and a higher level is wider."""
    for name in ("binary", "number", "classes"):
        learner = fitted(name)
        found = learner.importance_intervals()
        assert list(found.index) == list(BINARY.names)
        assert (found["low"] <= found["importance"]).all() and (
            found["importance"] <= found["high"]
        ).all()
        assert (found["low"] > 0).any() and (found["low"] >= 0).all()
        wider = learner.importance_intervals(0.99)
        assert (wider["low"] <= found["low"]).all() and (wider["high"] > found["high"]).all()


def test_an_importance_is_how_far_a_permuted_column_moves_the_score() -> None:
    """Of the records themselves instead of made-up ones: the root of half the mean square, of a number in its unit."""
    for name in ("binary", "number"):
        learner, model = fitted(name), engine(name).model
        found, x = learner.importance_intervals(), encoded()
        unit = model.outcome.upper - model.outcome.lower if name == "number" else 1.0
        for column, told in enumerate(found["importance"]):
            moved = x.copy()
            moved[:, column] = x[np.random.default_rng(0).permutation(len(x)), column]
            step = unit * (model.scores(x) - model.scores(moved))
            assert told == pytest.approx(np.sqrt(np.mean(step**2) / 2), rel=0.15, abs=0.02 * unit)


def test_what_is_known_of_private_models_alone_says_so() -> None:
    """Intervals and scikit-learn's form of a published forest."""
    learner = FedForestClassifier(n_estimators=2, max_depth=2)
    held = FRAME[[*BINARY.names, "hospital", "died"]]
    learner.fit(
        LocalDisclosure.from_frame(
            held, "died", client="hospital", schema=BINARY, policy=learner.published()
        )
    )
    with pytest.raises(InputError, match="private policy"):
        learner.confidence_interval(FRAME)
    with pytest.raises(InputError, match="private policy"):
        learner.importance_intervals()
    with pytest.raises(InputError, match="forest_"):
        learner.to_sklearn()
    assert len(fitted("number").plot("age").lines) == 2


def test_a_shape_function_of_several_classes_is_a_curve_with_a_band_for_each() -> None:
    """Named in the legend; of a category's values the intervals stand beside each other."""
    axes = fitted("classes").plot("age")
    assert [line.get_label() for line in axes.lines[:3]] == ["a", "b", "c"] and len(
        axes.collections
    ) == 3
    label = " ".join(axes.get_ylabel().split())
    assert label == "adds to log-odds of each class of grade, with 90 % band"


def test_a_published_forest_has_no_trees_of_scikit_learn() -> None:
    """What asks whether it has, as completion in a notebook does by ``dir``, is told no; whoever asks for them, why."""
    learner = FedForestRegressor(n_estimators=2, max_depth=2, random_state=0)
    held = FRAME.head(200)[[*NUMERIC.names, "hospital", "days"]]
    learner.fit(
        LocalDisclosure.from_frame(
            held, "days", client="hospital", schema=NUMERIC, policy="published", seed=1
        )
    )
    assert "forest_" in dir(learner) and not hasattr(learner, "estimators_")
    with pytest.raises(AttributeError, match="the trees of this one are in forest_"):
        _ = learner.estimators_
    assert "estimators_" in dir(fitted("number"))
