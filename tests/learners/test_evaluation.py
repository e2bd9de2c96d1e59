"""Questions about a model's errors: what one record can move, whatever the model does."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.errors import QueryError
from privfed.learners import FuzzyTreeRegressor, RuleFitClassifier, RuleFitRegressor
from privfed.learners.base import FederatedLearner
from privfed.learners.baselines import CentralTreeClassifier, CentralTreeRegressor, FedAvgLogistic
from privfed.learners.evaluation import (
    LEAST,
    UNIT,
    ClassScores,
    RegressionErrors,
    classes_of,
    middle_and_half,
    question_about,
)
from privfed.questions.part import Part
from privfed.questions.query import View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing.check_query import check_query
from privfed.testing.hospitals import BINARY, NUMERIC, gates, patients

THREE = Schema(BINARY.features, Column("ward", "category", categories=("a", "b", "c")))
MODELS = (
    "constant evaluation.errors",
    "constant evaluation.scores",
    "constant of three evaluation.scores",
    "leaves evaluation.errors",
    "linear evaluation.scores",
    "rules evaluation.errors",
    "rules evaluation.scores",
    "tree evaluation.errors",
    "tree evaluation.scores",
)


def fitted(model: FederatedLearner, schema: Schema) -> FederatedLearner:
    """A model of three hospitals' exact releases."""
    federation = gates(patients(120), model.published(), schema)
    made: FederatedLearner = model.fit(federation)
    return made


@pytest.fixture(scope="module")
def asked() -> dict[str, tuple[Any, Schema]]:
    """A question about a regressor, and one about a classifier."""
    regressor, classifier = (RuleFitRegressor(n_estimators=3), RuleFitClassifier(n_estimators=3))
    return {
        "errors": (RegressionErrors.about(fitted(regressor, NUMERIC)), NUMERIC),
        "scores": (ClassScores.about(fitted(classifier, BINARY)), BINARY),
    }


@pytest.fixture(scope="module")
def models(asked: dict[str, tuple[Any, Schema]]) -> dict[str, tuple[Any, Schema]]:
    """Questions about models of every shape: a constant, rules, a tree, a linear one, linear leaves."""
    regressors = {"tree": CentralTreeRegressor(), "leaves": FuzzyTreeRegressor(max_depth=1)}
    classifiers = {"tree": CentralTreeClassifier(), "linear": FedAvgLogistic(n_rounds=3)}
    trained = [
        (f"{name} {kind.kind}", (kind.about(fitted(model, schema)), schema))
        for kind, schema, chosen in (
            (RegressionErrors, NUMERIC, regressors),
            (ClassScores, BINARY, classifiers),
        )
        for name, model in chosen.items()
    ]
    return {
        **{f"rules {query.kind}": (query, schema) for query, schema in asked.values()},
        "constant evaluation.errors": (RegressionErrors(b""), NUMERIC),
        "constant evaluation.scores": (ClassScores(b""), BINARY),
        "constant of three evaluation.scores": (ClassScores(b""), THREE),
        **dict(trained),
    }


def views(schema: Schema, rows: np.ndarray) -> View:
    """What the question sees of rows in [0, 1], scaled to the schema's bounds, target last."""
    columns = schema.columns
    low, high = (np.array([column.bounds[k] for column in columns]) for k in (0, 1))
    scaled = low + np.asarray(rows, float).reshape(-1, len(columns)) * (high - low)
    kinds = [not column.numeric or column.kind == "integer" for column in columns]
    scaled[:, kinds] = np.rint(scaled[:, kinds])
    return View(Records(schema, scaled[:, :-1], scaled[:, -1]), schema)


def moved(part: Part, before: np.ndarray, now: np.ndarray, *, replaced: bool) -> bool:
    """Whether an answer moved within its declared bounds."""
    assert part.sensitivity is not None
    bound = part.sensitivity.replace_one if replaced else part.sensitivity.add_or_remove
    change = np.abs(now - before).astype(object)
    assert bound is not None
    return bool(change.sum() <= bound.l1 and (change**2).sum() <= bound.l2_squared)


@pytest.mark.parametrize("name", MODELS)
def test_neighbours_move_an_answer_within_its_bounds(
    models: dict[str, tuple[Any, Schema]], name: str
) -> None:
    """Brute force: a record more or less, and another in its place, in tables of any size."""
    query, schema = models[name]
    parts, width = query.parts(schema), len(schema.columns)
    row = st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=width, max_size=width)

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(st.lists(row, max_size=4), row, row)
    def hold(rest: list[list[float]], one: list[float], other: list[float]) -> None:
        without, having, exchanged = (
            query.evaluate(views(schema, np.array(rows)))
            for rows in (rest, [*rest, one], [other, *rest])
        )
        for part, declared in parts.items():
            assert moved(declared, without[part], having[part], replaced=False)
            assert moved(declared, having[part], exchanged[part], replaced=True)

    hold()


@pytest.mark.parametrize("name", ["errors", "scores"])
def test_the_kit_convicts_a_bound_that_is_too_small(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question itself passes; with errors of twice their weight it does not."""
    query: Any = RegressionErrors(b"") if name == "errors" else ClassScores(b"")
    schema = NUMERIC if name == "errors" else BINARY
    honest = type(query)._units
    monkeypatch.setattr(type(query), "_units", lambda self, values: 2 * honest(self, values))
    with pytest.raises(AssertionError):
        check_query(query, schema, examples=5)


def test_the_sums_are_those_of_the_predictions(asked: dict[str, tuple[Any, Schema]]) -> None:
    """Of a regressor's errors and a classifier's probabilities, up to the grid."""
    for name, (query, schema) in asked.items():
        view = views(schema, np.random.default_rng(1).random((40, len(schema.columns))))
        model, table = query._fitted_model, view.table
        told = query.evaluate(view)["sums"] * float(UNIT)
        if name == "errors":
            middle, half = middle_and_half(schema.columns[-1])
            error = np.abs(np.clip((model.predict(table) - table.target) / half, -1, 1))
            t = (table.target - middle) / half
            wanted = [40, error.sum(), (error**2).sum(), t.sum(), (t**2).sum()]
        else:
            chances, truth = model.predict_proba(table), table.target.astype(int)
            given_ = np.maximum(chances[np.arange(40), truth], LEAST)
            loss = np.log(given_) / np.log(LEAST)
            wanted = [40, (chances.argmax(axis=1) != truth).sum(), loss.sum()]
            assert query.evaluate(view)["scores"].sum() == 40 * UNIT.denominator
        assert told == pytest.approx(wanted, abs=40 * float(UNIT))


def test_a_model_that_fails_for_some_records_tells_nothing_by_it(
    asked: dict[str, tuple[Any, Schema]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its prediction there is a constant, and the answer a sum as any other."""
    query, schema = asked["errors"]
    sound: Any = type(query)._raw_prediction

    def raw(self: Any, row: np.ndarray) -> np.ndarray:
        if row[0] > schema.lower[0]:
            raise ZeroDivisionError
        return np.asarray(sound(self, row))

    monkeypatch.setattr(type(query), "_raw_prediction", raw)
    rows = np.random.default_rng(2).random((5, len(schema.columns)))
    whole = query.evaluate(views(schema, rows))
    alone = [query.evaluate(views(schema, rows[k : k + 1])) for k in range(5)]
    for part, total in whole.items():
        assert (total == np.sum([one[part] for one in alone], axis=0)).all()
    assert whole["sums"][0] == 5 * UNIT.denominator


def test_strange_models_are_refused_before_anything_is_read(
    asked: dict[str, tuple[Any, Schema]],
) -> None:
    """No JSON, no model, another schema's, a classifier's for a regressor's."""
    query, schema = asked["errors"]
    plain = json.loads(query.model)
    strange = [b"{", b"[]", b'{"learner": "os.system"}', b"[" * 100_000]
    strange += [json.dumps({**plain, "state": {}}).encode(), asked["scores"][0].model]
    with pytest.raises(QueryError):
        RegressionErrors(b" " * 2**25 + query.model).parts(schema)
    other = Schema((*schema.features[:-1], Column("z", lower=0, upper=1)), schema.target)
    for model in strange:
        with pytest.raises(QueryError):
            RegressionErrors(model).parts(schema)
    with pytest.raises(QueryError):
        query.parts(other)
    with pytest.raises(QueryError):
        ClassScores(query.model).parts(BINARY)
    with pytest.raises(QueryError):
        classes_of(schema)


def test_who_is_asked_about() -> None:
    """Regressors, classifiers, and no learner whose clients have models of their own."""
    from privfed.learners import GeneticTreeRegressor

    assert question_about(RuleFitRegressor()) is RegressionErrors
    assert question_about(RuleFitClassifier()) is ClassScores
    assert question_about(GeneticTreeRegressor()) is None
