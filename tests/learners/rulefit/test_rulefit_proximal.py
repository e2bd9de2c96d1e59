"""Accelerated proximal gradient: its recursion, its step, and where it ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from privfed.learners.rulefit.estimation import Iterate, descending_step, optimum


def problem(seed: int, columns: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Correlated columns with an intercept, and numbers that some of them tell."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(80, columns)) @ rng.normal(size=(columns, columns))
    matrix = np.column_stack([np.ones(80), x - x.mean(axis=0)])
    return matrix, matrix[:, 1] - matrix[:, 2] + rng.normal(size=80)


def slope(matrix: np.ndarray, target: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Minus the gradient of half the mean squared error."""
    return np.asarray(matrix.T @ (target - matrix @ weights) / len(target))


def objective(matrix: np.ndarray, target: np.ndarray, weights: np.ndarray, penalty: float) -> float:
    """Half the mean squared error and the penalty."""
    fitted = float(np.mean((target - matrix @ weights) ** 2)) / 2
    return fitted + penalty * float(np.abs(weights[1:]).sum())


def curvature(matrix: np.ndarray) -> float:
    """The largest eigenvalue of the second moments, by numpy."""
    return float(np.linalg.eigvalsh(matrix.T @ matrix / len(matrix))[-1])


def test_iterates_are_those_of_the_recursion() -> None:
    """Beck and Teboulle 2009, Eqs. 4.1 to 4.3, with the intercept not penalised, by hand."""
    matrix, target = problem(0)
    step, penalty = 0.5 / curvature(matrix), 0.05
    at = Iterate.at(np.zeros(13))
    x, y, t = np.zeros(13), np.zeros(13), 1.0
    for _ in range(4):
        z = y + step * slope(matrix, target, y)
        new = np.sign(z) * np.maximum(np.abs(z) - step * penalty, 0)
        new[0] = z[0]
        assert (y - new) @ (new - x) <= 0  # momentum leads downhill still
        following = (1 + np.sqrt(1 + 4 * t**2)) / 2
        y, x, t = new + (t - 1) / following * (new - x), new, following
        at = at.after(slope(matrix, target, at.ahead), step, penalty)
        assert at.weights == pytest.approx(x)
        assert at.ahead == pytest.approx(y)
    assert t > 2


def test_momentum_that_leads_uphill_begins_anew() -> None:
    """One number, far too fast: the next point ahead is where the step itself has led."""
    at = Iterate(np.array([0.0]), np.array([3.0]), 10.0)
    after = at.after(np.array([-2.0]), 1.0, 0.0)
    assert after.weights == pytest.approx([1.0])
    assert after.ahead == pytest.approx([1.0])
    assert after.momentum == pytest.approx((1 + np.sqrt(5)) / 2)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 0.3))
def test_the_objective_falls_as_fast_as_the_theorem_says(seed: int, penalty: float) -> None:
    """At most 2 L R^2 / (k + 1)^2 above the optimum after k steps (Theorem 4.4); restarts keep it here."""
    matrix, target = problem(seed)
    step = descending_step(curvature(matrix), logistic=False)
    least = optimum(lambda w: slope(matrix, target, w), np.zeros(13), step, penalty, 20_000)
    bottom, at = objective(matrix, target, least, penalty), Iterate.at(np.zeros(13))
    for k in range(1, 30):
        at = at.after(slope(matrix, target, at.ahead), step, penalty)
        bound = 2 / step * float(least @ least) / (k + 1) ** 2
        assert objective(matrix, target, at.weights, penalty) <= bottom + bound + 1e-9


def test_the_optimum_satisfies_its_optimality_conditions() -> None:
    """Zero weights have slopes within the penalty, others exactly at it."""
    matrix, target = problem(1)
    step = descending_step(curvature(matrix), logistic=False)
    weights = optimum(lambda w: slope(matrix, target, w), np.zeros(13), step, 0.5, 50_000)
    left, zero = slope(matrix, target, weights), weights[1:] == 0
    assert zero.any()
    assert not zero.all()
    assert (np.abs(left[1:][zero]) <= 0.5 + 1e-4).all()
    assert left[1:][~zero] == pytest.approx(0.5 * np.sign(weights[1:][~zero]), abs=1e-4)
    assert left[0] == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("logistic", [True, False])
def test_a_descending_step_is_the_inverse_of_the_lipschitz_constant(logistic: bool) -> None:
    """No gradient changes by more than one over the step, times how far weights moved."""
    matrix, _ = problem(2)
    constant = 1 / descending_step(curvature(matrix), logistic)
    rng, most = np.random.default_rng(0), 0.0
    steepest = np.linalg.eigh(matrix.T @ matrix)[1][:, -1]
    for scale in (1e-4, 1e-2, 1.0):
        for direction in (*rng.normal(size=(20, 13)), steepest):
            scores = matrix @ (scale * direction)
            change = expit(scores) - 0.5 if logistic else scores
            moved = float(np.linalg.norm(matrix.T @ change / len(matrix)))
            most = max(most, moved / float(np.linalg.norm(scale * direction)))
    assert 0.9 * constant < most <= constant
