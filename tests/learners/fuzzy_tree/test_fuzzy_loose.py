"""Far outliers and loose public bounds: what they cost a fuzzy tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import FuzzyTreeRegressor
from privfed.privacy.policy import Policy

NAMES = ["a", "b"]


def table(rows: int, seed: int = 0) -> pd.DataFrame:
    """A target that bends with one feature and rises with another, at four clients."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=rows), rng.uniform(-3, 3, rows)
    y = np.clip(a + 2 * (b > 0) + rng.normal(0, 0.3, rows), -8, 8)
    return pd.DataFrame({"a": a, "b": b, "y": y, "client": np.arange(rows) % 4})


def fitted(
    frame: pd.DataFrame, policy: Policy, feature: float = 4.5, target: float = 8.0
) -> FuzzyTreeRegressor:
    """A tree under a policy; the first feature's and the target's bounds lie so far from nought."""
    schema = Schema(
        (Column("a", lower=-feature, upper=feature), Column("b", lower=-3, upper=3)),
        Column("y", lower=-target, upper=target),
    )
    federation = LocalDisclosure.from_frame(
        frame, "y", client="client", schema=schema, policy=policy, seed=0
    )
    return FuzzyTreeRegressor().fit(federation)


def error(model: FuzzyTreeRegressor, frame: pd.DataFrame) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((model.predict(frame[NAMES]) - frame["y"]) ** 2)))


def policy_of(strict: bool) -> Policy:
    """What the paper releases, or its strict form."""
    return FuzzyTreeRegressor().published(strict=strict)


@settings(max_examples=4)
@given(magnitude=st.floats(0.7, 12))
def test_a_far_outlier_costs_the_others_nothing(magnitude: float) -> None:
    """A feature's largest value, and the public bounds with it, up to 1e12: the error stays."""
    frame, far = table(600), 10**magnitude
    largest = int(frame["a"].argmax())
    pushed = frame.copy()
    pushed.loc[largest, "a"] = far
    rest = frame.drop(index=largest)
    near = error(fitted(frame, policy_of(strict=False)), rest)
    assert error(fitted(pushed, policy_of(strict=False), feature=far), rest) < 1.05 * near


@pytest.mark.parametrize(
    "bounds", [{"feature": 1e4}, {"feature": 1e12}, {"target": 1e3}, {"target": 1e9}], ids=str
)
def test_loose_bounds_cost_nothing(bounds: dict[str, Any]) -> None:
    """Of a feature, and of the target, whose gains are held against what it varies."""
    frame = table(600)
    tight = error(fitted(frame, policy_of(strict=False)), frame)
    assert error(fitted(frame, policy_of(strict=False), **bounds), frame) < 1.05 * tight


def test_a_far_target_costs_the_others_little() -> None:
    """One record's target is a million, and so is the bound."""
    frame = table(600)
    far = frame.copy()
    far.loc[5, "y"] = 1e6
    rest = frame.drop(index=5)
    near = error(fitted(frame, policy_of(strict=False)), rest)
    assert error(fitted(far, policy_of(strict=False), target=1e6), rest) < 1.3 * near


@pytest.mark.parametrize("strict", [False, True], ids=["published", "strict"])
def test_no_prediction_lies_outside_the_public_bounds(strict: bool) -> None:
    """A slope that points beyond them is cut off there."""
    rng = np.random.default_rng(0)
    frame = table(400).assign(y=lambda f: np.clip(4 * f["a"] + rng.normal(0, 1, 400), -2, 2))
    model = fitted(frame, policy_of(strict), target=2.0)
    corners = pd.DataFrame({"a": [-4.5, 4.5, -4.5, 4.5], "b": [-3.0, 3, 3, -3]})
    predicted = model.predict(corners)
    assert (np.abs(predicted) <= 2).all()
    design = np.abs(model.models_.coefficients).sum(axis=1)
    assert (design > 0.5).any()
