"""Utility on held-out records: beside the best constant answer, for numbers and for classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from sklearn.base import ClassifierMixin

from privfed import LocalDisclosure
from privfed.errors import Note
from privfed.learners import RuleFitRegressor
from privfed.learners.base import FederatedLearner
from privfed.study.metrics import LEAST, beyond, measure, probability_scores
from privfed.tables.schema import Column, Schema

FEATURE = Column("x", lower=0, upper=1)
TRAIN = pd.DataFrame({"x": [0.1, 0.2, 0.9], "y": [1.0, 1.0, 4.0], "c": ["no", "no", "yes"]})
TEST = pd.DataFrame({"x": [0.1, 0.9], "y": [1.0, 3.0], "c": ["no", "yes"]})


class _Fitted:
    """Answers what a test scripts."""

    def __init__(self, script: Callable[[pd.DataFrame], Any]) -> None:
        self.script = script

    def predict(self, x: pd.DataFrame, client: str | None = None) -> Any:
        """What the script says."""
        return self.script(x)


def _measured(predict: Callable[[pd.DataFrame], Any], target: Column) -> dict[str, Any]:
    schema = Schema((FEATURE,), target)
    return measure(cast(FederatedLearner, _Fitted(predict)), TRAIN, TEST, schema)


def test_numbers_are_scored_by_their_error() -> None:
    """Errors of one and zero make a root mean square of sqrt(1/2); the constant answers two."""
    found = _measured(lambda _: np.array([2.0, 3.0]), Column("y", lower=0, upper=5))
    assert found["better"] == "lower"
    assert np.isclose(found["value"], np.sqrt(0.5))
    assert np.isclose(found["baseline"], 1.0)
    assert found["held_out"] == 2


@pytest.mark.parametrize("answers", [["no", "no"], [0, 0], [0.0, 0.0]])
def test_classes_may_be_labels_or_codes(answers: list[Any]) -> None:
    """Either way one of two is right, as often as the commonest class."""
    column = Column("c", "category", categories=("no", "yes"))
    found = _measured(lambda _: np.array(answers), column)
    assert (found["value"], found["baseline"], found["better"]) == (0.5, 0.5, "higher")


def test_classes_that_are_numbers_are_labels_first() -> None:
    """Categories "1" and "2" predicted as 1 and 2 are labels, no codes."""
    schema = Schema((FEATURE,), Column("c", "category", categories=("1", "2")))
    train = TRAIN.assign(c=[1, 1, 2])
    test = TEST.assign(c=[1, 2])
    model = cast(FederatedLearner, _Fitted(lambda _: np.array([1.0, 2.0])))
    assert measure(model, train, test, schema)["value"] == 1.0


class _FittedClassifier(ClassifierMixin, _Fitted):  # type: ignore[misc]
    """A classifier, so that a target of zeros and ones has classes and no errors."""

    def predict_proba(self, x: pd.DataFrame, client: str | None = None) -> np.ndarray:
        """Chances that rank both records rightly."""
        return np.column_stack([1 - x["x"], x["x"]])


@pytest.mark.parametrize("zero", [0, 0.0])
def test_a_classifiers_zeros_and_ones_are_classes(zero: float) -> None:
    """Accuracy and the area under the curve, no root mean squared error."""
    schema = Schema((FEATURE,), Column("y", "integer", 0, 1))
    train, test = TRAIN.assign(y=[zero, zero, zero + 1]), TEST.assign(y=[zero, zero + 1])
    model = cast(FederatedLearner, _FittedClassifier(lambda _: np.array([0, 0])))
    found = measure(model, train, test, schema)
    assert (found["measure"], found["value"]) == ("accuracy", 0.5)
    assert found["scores"]["area under the curve"] == 1.0


def test_without_a_target_nothing_is_scored() -> None:
    """A mining task has no utility of this kind."""
    model = cast(FederatedLearner, _Fitted(lambda _: 1 / 0))
    assert measure(model, TRAIN, TEST, Schema((FEATURE,))) == {"held_out": 2}


def test_the_constant_is_what_the_clipped_target_makes_it() -> None:
    """Counts cut to 0 and 1 have the commonest class 1, though 0 is the commonest count."""
    schema = Schema((FEATURE,), Column("y", "integer", 0, 1))
    counts = [0, 0, 1, 2, 3]
    table = pd.DataFrame({"x": np.linspace(0, 1, 5), "y": counts})
    model = cast(FederatedLearner, _FittedClassifier(lambda _: np.zeros(5, dtype=int)))
    found = measure(model, table, table, schema)
    assert (found["value"], found["baseline"]) == (0.4, 0.6)


def test_numbers_are_scored_within_the_schema_s_bounds() -> None:
    """A held-out value beyond the bounds counts as the bound, for the model and the constant alike."""
    column = Column("y", lower=0, upper=5)
    train, test = TRAIN.assign(y=[1.0, 1.0, 40.0]), TEST.assign(y=[1.0, 500.0])
    model = cast(FederatedLearner, _Fitted(lambda _: np.array([1.0, 4.0])))
    found = measure(model, train, test, Schema((FEATURE,), column))
    constant = 7 / 3
    assert np.isclose(found["value"], np.sqrt(0.5))
    assert np.isclose(found["baseline"], np.sqrt(((constant - 1) ** 2 + (constant - 5) ** 2) / 2))
    assert set(found["constants"]) == set(found["scores"]) == {"mean absolute error", "R squared"}


@pytest.mark.filterwarnings("error")
def test_a_single_held_out_record_has_no_r_squared() -> None:
    """It has no variance: the score is left out where it would be no number, silently."""
    model = cast(FederatedLearner, _Fitted(lambda x: np.full(len(x), 2.0)))
    found = measure(model, TRAIN, TEST[:1], Schema((FEATURE,), Column("y", lower=0, upper=5)))
    assert found["scores"] == {"mean absolute error": 1.0}
    assert set(found["constants"]) == set(found["score_better"]) == set(found["scores"])


def test_probabilities_are_scored_beside_the_classes_shares() -> None:
    """Log loss, Brier score and area of two classes, by hand."""
    schema = Schema((FEATURE,), Column("c", "category", categories=("no", "yes")))
    model = cast(FederatedLearner, _FittedClassifier(lambda _: np.array(["no", "yes"])))
    found = measure(model, TRAIN, TEST, schema)
    scores, constants = found["scores"], found["constants"]
    assert scores["area under the curve"] == 1.0 and constants["area under the curve"] == 0.5
    assert np.isclose(scores["log loss"], -np.log(0.9))
    assert np.isclose(constants["log loss"], -(np.log(2 / 3) + np.log(1 / 3)) / 2)
    assert np.isclose(scores["Brier score"], 0.01)
    assert np.isclose(constants["Brier score"], (1 / 9 + 4 / 9) / 2)


def test_several_classes_have_the_mean_area_of_each_against_the_rest() -> None:
    """Of three classes, one that no record has counts for nothing in the area."""
    wanted = np.array([0, 0, 1, 1])
    chances = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.3, 0.6, 0.1], [0.1, 0.8, 0.1]])
    found = probability_scores(chances, wanted)
    assert np.isclose(found["area under the curve"], (3 / 4 + 3 / 4) / 2)
    own = (0.4**2 + 0.3**2, 0.8**2 + 0.7**2, 0.3**2 + 0.4**2, 0.1**2 + 0.2**2)
    assert np.isclose(found["Brier score"], np.mean(own) + 0.01)


def test_one_class_alone_has_no_area_and_certain_mistakes_a_finite_loss() -> None:
    """A probability of nothing for what happened is taken for the smallest there is."""
    found = probability_scores(np.array([[1.0, 0.0]]), np.array([1]))
    assert "area under the curve" not in found
    assert found["log loss"] == -np.log(LEAST)


def test_what_lies_beyond_a_model_s_limits_is_scored_apart() -> None:
    """A giant has nearly all of the variance; within the limits the model is right."""
    wanted = np.array([1.0, 2.0, 3.0, 4.0, 1000.0])
    told = np.array([1.0, 2.0, 3.0, 5.0, 10.0])
    (found,) = beyond(told, wanted, wanted, (0.0, 10.0)).values()
    assert found["limits"] == [0.0, 10.0] and found["records"] == pytest.approx(0.2)
    squares = (wanted - wanted.mean()) ** 2
    assert found["variance"] == pytest.approx(squares[-1] / squares.sum())
    assert found["outside"] == 990.0 and found["inside"] == 0.5
    assert found["constant"] == pytest.approx(np.std([1, 2, 3, 4]))
    assert found["r2"] == pytest.approx(1 - 1 / 5)


def test_targets_just_below_a_limit_are_none_beyond_it() -> None:
    """Of skewed numbers a fifth lies below a lower limit just above 0, and says nothing of heavy tails."""
    wanted = np.array([0.1, 0.2, 0.3, 50.0, 1000.0])
    (found,) = beyond(np.full(5, 50.0), wanted, wanted, (1.0, 100.0)).values()
    assert found["records"] == pytest.approx(0.2) and found["limits"] == [1.0, 100.0]


@pytest.mark.parametrize(
    ("limits", "wanted"),
    [((0.0, 10.0), [1.0, 2.0, 9.0]), ((0.0, 1e4), [1.0, 2.0, 1000.0]), ((5.0, 6.0), [1.0, 2.0])],
)
def test_nothing_is_told_apart_where_little_lies_beyond(
    limits: tuple[float, float], wanted: list[float]
) -> None:
    """Or where nothing lies within."""
    values = np.array(wanted)
    assert beyond(values, values, values, limits) == {}


def test_a_study_s_score_tells_of_heavy_tails_by_the_model_s_own_limits() -> None:
    """Of a private regressor whose limits are narrower than the bounds; fitting says so, too."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=3000).clip(-4, 4)})
    table["y"] = 2 * table["x"]
    table.loc[::400, "y"] = 3000.0
    table["owner"] = np.arange(3000) % 2
    schema = Schema((Column("x", "number", -4, 4),), Column("y", "number", -10, 3000))
    learner = RuleFitRegressor(random_state=0)
    held = LocalDisclosure.from_frame(
        table, "y", client="owner", schema=schema, policy=learner.private("8"), seed=1
    )
    with pytest.warns(Note, match="of the public bounds"):
        learner.fit(held)
    assert learner.prediction_limits_[1] < 600
    found = measure(learner, table, table, schema)
    assert found["scores"]["R squared"] < 0.1 and found["beyond"]["variance"] > 0.9
    assert found["beyond"]["inside"] < found["beyond"]["constant"] < found["beyond"]["outside"]
