"""A private model leaves the public constant only as far as releases prove against their noise."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import FuzzyTreeRegressor, RuleFitClassifier, RuleFitRegressor
from privfed.learners.known_noise import NoisyMean, proven_share

COLUMNS = (Column("a", lower=0, upper=1), Column("b", lower=0, upper=1))
NUMBER = Schema(COLUMNS, Column("y", lower=0, upper=1000))
CLASS = Schema(COLUMNS, Column("y", "integer", 0, 1))


def told(total: float, records: float, noise: float) -> float:
    """A mean about the public constant 0."""
    sums, variances = np.array([total]), (noise**2, noise**2 / 4)
    return float(NoisyMean.told(sums, records, variances=variances, public=np.zeros(1)).values[0])


@pytest.mark.parametrize("records", [5, 20, 60, 150, 400])
@pytest.mark.parametrize("noise", [1.0, 10.0, 100.0, 1000.0])
@pytest.mark.parametrize("mean", [0.0, 0.1, 0.4])
def test_a_noisy_mean_is_hardly_ever_further_off_than_the_public_constant(
    records: int, noise: float, mean: float
) -> None:
    """Over a thousand draws its squared error is at most the constant's, and what a tenth of the width costs."""
    rng = np.random.default_rng(0)
    drawn = rng.normal(0, noise, (1000, 2)) * [1, 0.5] + [records, records * mean]
    errors = [(told(total, count, noise) - mean) ** 2 for count, total in drawn]
    assert np.mean(errors) <= mean**2 + 0.1**2


def test_without_noise_the_mean_is_itself() -> None:
    """And with more noise than records by far, next to nothing of it is left."""
    assert told(30.0, 100.0, 1e-6) == pytest.approx(0.3)
    assert told(30.0, 100.0, 1e4) == 0


def test_a_share_is_where_the_loss_is_least() -> None:
    """By the slope: none of what noise explains, all of what exceeds the departure's own square."""
    assert proven_share(lambda share: 4 * share, 3.0, 1.0) == pytest.approx(0.5)
    assert proven_share(lambda share: 4 * share, 9.0, 1.0) == 1
    assert proven_share(lambda share: 4 * share, 1.0, 2.0) == 0


def fitted(model: Any, y: np.ndarray, x: np.ndarray, schema: Schema, epsilon: str) -> np.ndarray:
    """Predictions of a private model of two owners for a thousand rows."""
    frame = pd.DataFrame(x, columns=["a", "b"]).assign(y=y)
    frame["owner"] = np.where(np.arange(len(y)) % 2, "north", "south")
    gates = LocalDisclosure.from_frame(
        frame,
        "y",
        client="owner",
        schema=schema,
        policy=model.private(epsilon),
        seed=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(gates)
    test = np.random.default_rng(99).uniform(0, 1, (1000, 2))
    inputs = pd.DataFrame(test, columns=["a", "b"])
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(inputs)[:, 1])
    return np.asarray(model.predict(inputs))


@pytest.mark.parametrize("learner", [FuzzyTreeRegressor, RuleFitRegressor])
@pytest.mark.parametrize(("rows", "epsilon"), [(5, "0.1"), (20, "1"), (60, "0.5"), (150, "0.1")])
def test_a_private_regressor_is_no_worse_than_the_public_constant(
    learner: type[FuzzyTreeRegressor], rows: int, epsilon: str
) -> None:
    """A number of no structure, aside of the middle of its bounds: mean RMSE over seeds, within the spread."""
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        y = rng.normal(350, 80, rows).clip(0, 1000)
        predicted = fitted(
            learner(random_state=seed), y, rng.uniform(0, 1, (rows, 2)), NUMBER, epsilon
        )
        found.append(np.sqrt(np.mean((predicted - 350) ** 2) + 80**2))
    assert np.mean(found) <= np.hypot(150, 80) + np.std(found)


@pytest.mark.parametrize(("rows", "epsilon"), [(5, "0.1"), (20, "0.5"), (60, "0.1"), (150, "1")])
def test_a_private_classifier_of_a_fair_coin_stays_near_one_half(rows: int, epsilon: str) -> None:
    """Mean log loss exceeds equal shares' by a few hundredths at most; five seeds."""
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        y, x = rng.integers(0, 2, rows), rng.uniform(0, 1, (rows, 2))
        chance = fitted(RuleFitClassifier(random_state=seed), y, x, CLASS, epsilon)
        found.append(-np.mean(np.log(chance) + np.log(1 - chance)) / 2 - np.log(2))
    assert np.mean(found) <= 0.05


def test_a_target_that_is_the_same_for_all_is_told_where_there_is_budget() -> None:
    """One constant column, one owner's class absent: predictions stay close, and finite."""
    x = np.random.default_rng(0).uniform(0, 1, (300, 2))
    x[:, 1] = 0.5
    predicted = fitted(FuzzyTreeRegressor(), np.full(300, 700.0), x, NUMBER, "8")
    assert np.abs(predicted - 700).max() < 100
    y = np.where(np.arange(300) % 2, 1, 0)
    chance = fitted(RuleFitClassifier(random_state=0), y, x, CLASS, "8")
    assert np.isfinite(chance).all() and abs(chance.mean() - 0.5) < 0.15
