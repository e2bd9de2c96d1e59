"""Dual averaging: its fixed point is the L1-regularised optimum, and its sign is the right one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse.linalg import ArpackNoConvergence
from scipy.special import expit

from privfed.learners.rulefit.averaging import (
    Centred,
    LocalStepParams,
    largest_eigenvalue,
    local_steps,
    losses,
    primal,
    residuals,
    stable_step,
)
from privfed.learners.rulefit.estimation import optimum


def problem(seed: int = 0, records: int = 300) -> tuple[Centred, np.ndarray]:
    """A small logistic problem with an intercept and twelve columns, four of them informative."""
    rng = np.random.default_rng(seed)
    x = (rng.random((records, 12)) < 0.4).astype(float)
    chance = expit(x[:, :4] @ np.array([2.0, -2, 1.5, -1]))
    matrix = np.column_stack([np.ones(records), x])
    means = np.concatenate([[0.0], x.mean(axis=0)])
    return Centred(matrix, means), (rng.random(records) < chance).astype(float)


def objective(design: Centred, target: np.ndarray, weights: np.ndarray, penalty: float) -> float:
    """Mean loss plus penalty."""
    mean = losses(target, design.scores(weights), True).mean()
    return float(mean + penalty * np.abs(weights[1:]).sum())


def best(design: Centred, target: np.ndarray, penalty: float) -> np.ndarray:
    """The proximal-gradient optimum."""
    step = stable_step(1 + float(design.matrix.var(axis=0)[1:].sum()), True) / 2
    return optimum(
        lambda w: design.slope(residuals(target, design.scores(w), True)) / len(target),
        np.zeros(13),
        step,
        penalty,
    )


def run(
    clients: list[tuple[Centred, np.ndarray]], rounds: int, steps: int, sign: int
) -> np.ndarray:
    """The server's loop, by hand, over equal clients."""
    step = stable_step(1 + float(clients[0][0].matrix.var(axis=0)[1:].sum()), True)
    dual, elapsed = np.zeros(13), 0.0
    for _ in range(rounds):
        order = LocalStepParams(step, elapsed, steps, 0.02)
        moves = [local_steps(design, target, dual, order, True) for design, target in clients]
        dual = dual + sign * np.mean(moves, axis=0)
        elapsed += step * steps
    return primal(dual, elapsed * 0.02)


def test_each_local_step_shrinks_by_the_time_that_has_passed() -> None:
    """Algorithm 3, line 5: the threshold is (eta_s eta_c r G + eta_c g) lambda, g from 1 to G."""
    matrix, means, target = np.ones((4, 2)), np.zeros(2), np.full(4, 0.75)
    order = LocalStepParams(client_step=0.5, elapsed=2.0, steps=3, penalty=0.1)
    dual = np.array([0.0, 1.0])
    own = dual.copy()
    for threshold in ((2.0 + 0.5) * 0.1, (2.0 + 1.0) * 0.1, (2.0 + 1.5) * 0.1):
        slope = 0.75 - (own[0] + max(own[1] - threshold, 0.0))
        own = own + 0.5 * slope
    moved = local_steps(Centred(matrix, means), target, dual, order, logistic=False)
    assert moved == pytest.approx(own - dual)


def test_dual_averaging_reaches_the_proximal_gradient_optimum() -> None:
    """Two clients, five local steps: the pooled objective is within 0.001 of the optimum."""
    design, target = problem()
    halves = [(Centred(design.matrix[k::2], design.means), target[k::2]) for k in (0, 1)]
    reached = objective(design, target, run(halves, 300, 5, +1), 0.02)
    least = objective(design, target, best(design, target, 0.02), 0.02)
    assert least <= reached <= least + 1e-3


def test_the_printed_sign_goes_the_wrong_way() -> None:
    """Algorithm 2, line 14 as printed raises the objective: the power twin of the test above."""
    design, target = problem()
    start = objective(design, target, np.zeros(13), 0.02)
    assert objective(design, target, run([(design, target)], 20, 5, -1), 0.02) > start + 0.1


def test_centring_moves_only_the_intercept() -> None:
    """The same weights give the same scores, once the intercept is moved back."""
    design, target = problem()
    weights = np.random.default_rng(1).normal(size=13)
    moved = weights.copy()
    moved[0] -= design.means @ weights
    assert design.scores(weights) == pytest.approx(design.matrix @ moved)
    naive = (design.matrix - design.means).T @ target
    assert design.slope(target) == pytest.approx(naive)


def test_the_stable_step_is_stable_and_a_larger_one_need_not_be() -> None:
    """Below two over the curvature; one column that is always the same leaves no slack."""
    assert stable_step(5.0, True) * 0.25 * 5.0 == pytest.approx(1.8)
    assert stable_step(5.0, False) * 5.0 == pytest.approx(1.8)


def test_a_step_is_stable_at_every_client_too() -> None:
    """One client far from the others is what counts, and those near them change nothing."""
    assert stable_step(5.0, False, [5.0, 5.4]) == stable_step(5.0, False)
    assert stable_step(5.0, False, [5.0, 20.0]) * 20.0 == pytest.approx(1.95)


@pytest.mark.parametrize(("records", "columns"), [(1, 3), (2, 40), (50, 12), (300, 60)])
def test_the_steepest_direction_is_the_largest_eigenvalue(records: int, columns: int) -> None:
    """Of the second moments about the given means, by numpy: in the whole matrix, and by products."""
    rng = np.random.default_rng(records)
    matrix = np.column_stack([np.ones(records), rng.random((records, columns)) < 0.3])
    means = np.concatenate([[0.0], rng.random(columns)])
    centred = matrix - means
    wanted = np.linalg.eigvalsh(centred.T @ centred / records)[-1]
    found = largest_eigenvalue(Centred(matrix, means), records, 1 + columns)
    assert found == pytest.approx(wanted, rel=0.01)


def test_an_eigenvalue_that_is_not_found_is_bounded_by_the_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client's records decide whether Lanczos steps converge: no failure may tell."""

    def failing(*_: object, **__: object) -> None:
        raise ArpackNoConvergence("no convergence", np.empty(0), np.empty((0, 0)))

    monkeypatch.setattr("privfed.learners.rulefit.averaging.eigsh", failing)
    matrix = np.column_stack([np.ones(50), np.random.default_rng(0).normal(size=(50, 30))])
    found = largest_eigenvalue(Centred(matrix, np.zeros(31)), 50, 31)
    assert found == pytest.approx(float((matrix**2).sum() / 50))


@pytest.mark.parametrize(("share", "bounded"), [(1.95, True), (2.05, False)])
def test_twice_the_inverse_curvature_is_where_steps_begin_to_diverge(
    share: float, bounded: bool
) -> None:
    """Squared loss without penalty: many local steps stay bounded below it, and grow beyond."""
    design, target = problem()
    records, terms = design.matrix.shape
    step = share / largest_eigenvalue(design, records, terms)
    moved = local_steps(
        design, target, 1e-3 * np.ones(terms), LocalStepParams(step, 0.0, 500, 0.0), logistic=False
    )
    assert bool(np.abs(moved).max() < 10) == bounded


def test_losses_and_residuals_agree() -> None:
    """The residual is minus the loss's derivative, for both losses."""
    scores, target, eps = np.linspace(-3, 3, 13), np.linspace(0, 1, 13), 1e-6
    for logistic in (True, False):
        ahead, behind = (losses(target, scores + d, logistic) for d in (eps, -eps))
        slope = (ahead - behind) / (2 * eps)
        assert residuals(target, scores, logistic) == pytest.approx(-slope, abs=1e-6)
