"""Sums told at several weights, by naive twins; and steps that go by them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import private
from privfed.learners.private.posterior import (
    NoisyMoments,
    Prior,
    ProjectedMoments,
    Subspace,
    WeightPosterior,
    mixed,
)
from privfed.learners.private.rounds import (
    FACTORS,
    GradientRounds,
    SyntheticHessian,
    usual_misspecification,
)
from privfed.learners.private.settings import SETTINGS
from privfed.learners.private.target_link import Outcome
from privfed.learners.private.weight_updates import WeightUpdates


def posterior(functions: np.ndarray, scale: float = 1.0) -> WeightPosterior:
    """Of a number, over made-up records whose leading directions are their functions themselves."""
    size = functions.shape[1]
    prior = Prior(np.array([np.eye(size)]), np.array([scale]), np.full(size, 0.1), 0.1)
    leading = Subspace(np.eye(size), functions, functions.astype(np.float32))
    even, outcome = np.ones(len(functions)), Outcome("number")
    return WeightPosterior(
        leading, even, outcome, np.zeros(1), np.zeros(1), float(len(even)), prior
    )


def told(seed: int, rounds: int = 3, functions: int = 4, outputs: int = 2) -> GradientRounds:
    """Sums of no model at all; nothing is known of the second function's first round."""
    rng = np.random.default_rng(seed)
    found = GradientRounds()
    for number in range(rounds):
        variance = rng.uniform(0.1, 5, functions)
        if number == 0:
            variance[1] = np.inf
        sums = NoisyMoments(rng.normal(size=(functions, outputs)), variance)
        found = found.joined(sums, rng.normal(size=(functions, outputs)))
    return found


def curvature(seed: int, size: int = 4, records: float = 50.0) -> SyntheticHessian:
    """Of some functions."""
    functions = np.random.default_rng(seed).normal(size=(int(records), size))
    whole = functions.T @ functions
    return SyntheticHessian(np.diag(whole).copy(), whole, records)


def covariance(
    rounds: GradientRounds,
    jacobian: SyntheticHessian,
    at: np.ndarray,
    m: float,
    place: tuple[int, int],
) -> np.ndarray:
    """Of one function's sums by the formula, entry by entry."""
    (i, output), count = place, len(rounds.sums)
    found = np.diag([own.variance[i] for own in rounds.sums])
    for k in range(count):
        for other in range(count):
            own, its = rounds.weights[k] - at, rounds.weights[other] - at
            product = own[:, output] @ jacobian.matrix @ its[:, output]
            found[k, other] += m * jacobian.diagonal[i] * product / jacobian.records
    return found


@given(st.integers(0, 1000), st.sampled_from([0.0, 0.3, 20.0]))
def test_the_estimate_is_the_best_linear_unbiased_one(seed: int, misspecification: float) -> None:
    """By a naive inverse for each function; a round that told nothing of one has no part in it."""
    rounds, jacobian = told(seed), curvature(seed)
    at = np.random.default_rng(seed + 1).normal(size=(4, 2))
    found = rounds.at(at, jacobian, misspecification)
    for i in range(4):
        kept = [k for k, own in enumerate(rounds.sums) if np.isfinite(own.variance[i])]
        one = GradientRounds(
            tuple(rounds.sums[k] for k in kept), tuple(rounds.weights[k] for k in kept)
        )
        variances = []
        for output in range(2):
            inverse = np.linalg.inv(covariance(one, jacobian, at, misspecification, (i, output)))
            shares = inverse.sum(axis=0) / inverse.sum()
            wanted = sum(s * own.values[i, output] for s, own in zip(shares, one.sums, strict=True))
            assert found.values[i, output] == pytest.approx(wanted, rel=1e-5, abs=1e-7)
            variances.append(1 / inverse.sum())
        assert found.variance[i] == pytest.approx(np.mean(variances), rel=1e-5)


@given(st.integers(0, 1000))
def test_slopes_are_what_the_estimate_changes_by(seed: int) -> None:
    """The estimate is linear in the weights: its difference anywhere is the slope times the way there."""
    rounds, jacobian, rng = told(seed), curvature(seed), np.random.default_rng(seed + 2)
    at, step = rng.normal(size=(2, 4, 2))
    slopes = rounds.slopes(at, jacobian, 3.0, np.eye(4))
    moved = rounds.at(at + step, jacobian, 3.0).values - rounds.at(at, jacobian, 3.0).values
    assert np.einsum("oij,jo->io", slopes, step) == pytest.approx(moved, rel=1e-4, abs=1e-6)


def test_sums_that_change_in_a_line_go_on_along_it() -> None:
    """Hardly any noise: what two rounds told is carried on to a third place beyond them."""
    rng, jacobian = np.random.default_rng(0), curvature(0)
    begin, direction, rest, slope = rng.normal(size=(4, 4, 1))
    rounds = GradientRounds()
    for length in (0.0, 1.0):
        sums = NoisyMoments(rest + length * slope, np.full(4, 1e-9))
        rounds = rounds.joined(sums, begin + length * direction)
    beyond = rounds.at(begin + 1.5 * direction, jacobian, 100.0)
    assert beyond.values == pytest.approx(rest + 1.5 * slope, abs=1e-3)


def test_sums_are_the_less_certain_the_farther_away() -> None:
    """By m c times the step's energy."""
    jacobian, at = curvature(1), np.zeros((4, 1))
    rounds = GradientRounds().joined(NoisyMoments(np.ones((4, 1)), np.ones(4)), at)
    step = np.full((4, 1), 0.5)
    found = rounds.at(at + step, jacobian, 3.0)
    assert found.values == pytest.approx(np.ones((4, 1)))
    assert found.variance == pytest.approx(1 + 3.0 * jacobian.diagonal * jacobian.mean_square(step))
    assert jacobian.mean_square(step) == pytest.approx(
        float(step[:, 0] @ jacobian.matrix @ step[:, 0]) / 50
    )


@pytest.mark.parametrize("wrong", [0.03, 0.3, 1.0])
def test_what_rounds_differ_by_tells_the_mismatch(wrong: float) -> None:
    """Sums drawn by the formula: m within a factor of three; and little where noise explains them."""
    rng, jacobian = np.random.default_rng(2), curvature(2, 60, 500.0)
    true = wrong**2 * jacobian.records
    off = rng.normal(size=(60, 60)) * np.sqrt(true / jacobian.records * jacobian.diagonal)[:, None]
    values, vectors = np.linalg.eigh(jacobian.matrix)
    root = (vectors * np.sqrt(values)) @ vectors.T
    rounds, silent = GradientRounds(), GradientRounds()
    for _ in range(4):
        at = rng.normal(size=(60, 1))
        noise = rng.normal(size=(60, 1))
        rounds = rounds.joined(NoisyMoments(off @ root @ at + noise, np.ones(60)), at)
        silent = silent.joined(NoisyMoments(noise, np.ones(60)), at)
    assert true / 3.2 <= rounds.misspecification(jacobian) <= true * 3.2
    assert silent.misspecification(jacobian) <= 0.1 * usual_misspecification(jacobian.records)


def begun(own: WeightPosterior) -> WeightUpdates:
    """Before the first step."""
    return WeightUpdates.begun(own, GradientRounds(), 1.0, 1.0)


def test_steps_come_to_the_weights_where_made_up_records_are_right() -> None:
    """Sums of a known model, of hardly any noise: two steps find it."""
    rng = np.random.default_rng(3)
    functions = rng.normal(size=(2000, 5))
    own, true = posterior(functions, 3.0), rng.normal(size=(5, 1))
    sums = NoisyMoments(functions.T @ (functions @ true), np.full(5, 1.0))
    steps = begun(own)
    for _ in range(3):
        steps = steps.further(sums, 1e-3)
    assert steps.weights == pytest.approx(true, abs=0.02)
    assert steps.taken == 3


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_steps_shrink_whatever_is_told(seed: int) -> None:
    """Sums that contradict each other: each step has half of the last one's energy at most, the second twice."""
    rng = np.random.default_rng(seed)
    functions = rng.normal(size=(300, 5))
    steps = begun(posterior(functions))
    for _ in range(4):
        sums = NoisyMoments(rng.normal(0, 1000, (5, 1)), np.full(5, 1.0))
        after = steps.further(sums, 1.0)
        jacobian = SyntheticHessian.at(steps.posterior, steps.posterior.at(steps.weights))
        mean_square = jacobian.mean_square(after.weights - steps.weights)
        assert mean_square == pytest.approx(after.mean_square)
        if steps.taken:
            most = SETTINGS.max_second_step if steps.taken == 1 else SETTINGS.max_step
            assert mean_square <= most * steps.mean_square * (1 + 1e-9)
        steps = after


def test_made_up_records_that_mislead_do_not_lead_away() -> None:
    """Two columns that made-up records hold for nearly the same: real sums at each step's own weights."""
    rng = np.random.default_rng(4)
    both = rng.normal(size=(4000, 1))
    synthetic_records = both + 0.1 * rng.normal(size=(4000, 2))
    real = rng.normal(size=(4000, 2))
    true = np.array([[1.0], [-1.0]])
    own = posterior(synthetic_records, 3.0)
    steps = begun(own)
    for _ in range(12):
        gradient = real.T @ (real @ (true - steps.weights))
        sums = NoisyMoments(gradient + own.moments(own.predictions(steps.weights)), np.full(2, 1.0))
        steps = steps.further(sums, 1.0)
    assert steps.weights == pytest.approx(true, abs=0.25)
    plain = np.zeros((2, 1))
    for _ in range(12):
        gradient = real.T @ (real @ (true - plain))
        sums = NoisyMoments(gradient + own.moments(own.predictions(plain)), np.full(2, 1.0))
        plain = own.weights(sums.along(np.eye(2)), own.at(plain), 1.0)
    assert np.abs(plain - true).max() > 10  # what steps that trust made-up records come to


@pytest.mark.parametrize("seed", range(12))
def test_the_mismatch_is_the_likeliest_by_differences_of_two_rounds(seed: int) -> None:
    """Of two rounds nothing but the difference tells: its own normal density, and the prior's."""
    rng, jacobian = np.random.default_rng(seed), curvature(seed, 3, 30.0)
    rounds = GradientRounds()
    for _ in range(2):
        sums = NoisyMoments(rng.normal(0, 8, (3, 1)), rng.uniform(1, 9, 3))
        rounds = rounds.joined(sums, rng.normal(size=(3, 1)))
    first, second = rounds.sums
    mean_square = jacobian.mean_square(rounds.weights[1] - rounds.weights[0])
    usual = usual_misspecification(30.0)

    def density(factor: float) -> float:
        spread = first.variance + second.variance + factor * usual * jacobian.diagonal * mean_square
        own = norm.logpdf((first.values - second.values)[:, 0], 0, np.sqrt(spread)).sum()
        return float(own + norm.logpdf(np.log(factor), 0, SETTINGS.log_misspecification_std))

    best = max(FACTORS, key=density)
    assert rounds.misspecification(jacobian) == pytest.approx(usual * best)


def test_sums_without_noise_at_the_same_weights_can_be_joined() -> None:
    """Their mean, where there is nothing to weigh them by."""
    rounds = GradientRounds()
    for value in (1.0, 3.0):
        rounds = rounds.joined(NoisyMoments(np.full((4, 1), value), np.zeros(4)), np.zeros((4, 1)))
    assert rounds.at(np.zeros((4, 1)), curvature(0), 1.0).values == pytest.approx(
        np.full((4, 1), 2)
    )


def test_more_rounds_than_directions_without_noise_can_be_joined() -> None:
    """Six rounds along one line, sums that change with the weights exactly: the line itself."""
    jacobian, rounds = curvature(0, 1), GradientRounds()
    for place in np.linspace(0, 1000, 6):
        at = np.full((1, 1), place)
        rounds = rounds.joined(NoisyMoments(3 + 2 * at, np.zeros(1)), at)
    found = rounds.at(np.full((1, 1), 50.0), jacobian, 1e6)
    assert found.values == pytest.approx(np.full((1, 1), 103.0), rel=1e-3)
    assert rounds.misspecification(jacobian) > 0


def test_a_first_step_is_between_what_a_guess_leads_to_and_what_goes_with_that() -> None:
    """Both by hand: as uncertain as the expected energy makes the sums, and as where that ends."""
    rng = np.random.default_rng(5)
    own = posterior(rng.normal(size=(500, 3)))
    sums, start = NoisyMoments(rng.normal(0, 200, (3, 1)), np.full(3, 4.0)), np.zeros((3, 1))
    found = replace(begun(own), mean_square=2.0).further(sums, 1.0).weights
    local = own.at(start)
    jacobian = SyntheticHessian.at(own, local)
    mean_square, ends, priors = SETTINGS.expected_step * 2.0, [], None
    for _ in range(2):
        doubt = sums.variance + usual_misspecification(500) * mean_square * jacobian.diagonal
        told_ = NoisyMoments(sums.values, doubt).along(np.eye(3))
        priors = priors or own.smaller(own.evidence(told_, local, 1.0))
        at = mixed(priors, told_, local, 1.0)
        mean_square = jacobian.mean_square(at)
        ends.append(at)
    assert found == pytest.approx((ends[0] + ends[1]) / 2, rel=1e-6)
    assert found != pytest.approx(ends[0], rel=1e-3)


def test_later_steps_go_by_what_rounds_differ_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is found holds from the second step on, and not before."""
    rng = np.random.default_rng(6)
    own, ends = posterior(rng.normal(size=(500, 3))), []
    told_ = [NoisyMoments(rng.normal(0, 200, (3, 1)), np.full(3, 4.0)) for _ in range(2)]
    for found in (1e-3, 1e3):
        monkeypatch.setattr(GradientRounds, "misspecification", lambda *_, found=found: found)
        first = begun(own).further(told_[0], 1.0)
        ends.append((first.weights, first.further(told_[1], 1.0).weights))
    assert ends[0][0] == pytest.approx(ends[1][0])
    assert ends[0][1] != pytest.approx(ends[1][1], rel=1e-3)


def test_told_sums_change_along_their_slope() -> None:
    """Each output with its own weights; and not at all where none is told."""
    rng = np.random.default_rng(7)
    values, step, slopes = (
        rng.normal(size=(3, 2)),
        rng.normal(size=(3, 2)),
        rng.normal(size=(2, 3, 3)),
    )
    found = ProjectedMoments(values, np.eye(3), slopes).at(step)
    for output in range(2):
        wanted = values[:, output] + slopes[output] @ step[:, output]
        assert found[:, output] == pytest.approx(wanted)
        assert ProjectedMoments(values, np.eye(3), slopes).jacobian(
            np.eye(3), output
        ) == pytest.approx(np.eye(3) - slopes[output])
    assert ProjectedMoments(values, np.eye(3)).at(step) is values
    assert ProjectedMoments(values, np.eye(3)).jacobian(step, 0) is step


@pytest.mark.parametrize(
    ("kind", "most"), [("number", SETTINGS.max_second_step), ("binary", SETTINGS.max_step)]
)
def test_a_number_s_second_step_may_be_larger(
    kind: Literal["number", "binary"], most: float
) -> None:
    """Hardly anything is told at first, and all of it then: the step is as large as it may be."""
    functions = np.random.default_rng(9).normal(size=(2000, 5))
    own = posterior(functions, 3.0)
    own = replace(own, outcome=Outcome(kind), means=np.array([0.5 if kind == "binary" else 0.0]))
    sums = functions.T @ (functions @ np.full((5, 1), 0.5))
    first = begun(own).further(NoisyMoments(sums, np.full(5, 1e9)), 1.0)
    second = first.further(NoisyMoments(sums, np.full(5, 1.0)), 1.0)
    assert second.mean_square == pytest.approx(most * first.mean_square)


def test_the_prior_is_told_where_predictions_are_not_yet_certain() -> None:
    """Classes that one function tells, at weights that leave little curvature: the others stay small."""
    rng = np.random.default_rng(8)
    functions = rng.normal(size=(400, 30)) / 4
    functions[:, 0] = rng.choice([-1.0, 1.0], 400)
    own = posterior(functions, 4.0)
    own = replace(own, outcome=Outcome("binary"), means=np.array([0.5]))
    exact = functions.T @ ((functions[:, :1] > 0) - 0.5)
    first, second = (
        NoisyMoments(exact + rng.normal(0, 6, (30, 1)), np.full(30, 36.0)) for _ in range(2)
    )
    weights = np.zeros((30, 1))
    certain = weights.copy()
    certain[0] = 4.0
    rounds = GradientRounds().joined(first, weights)
    steps = WeightUpdates.begun(own, rounds, 8.0, 4.0)
    steps = replace(steps, weights=certain, taken=1).further(second, 1.0)
    assert np.abs(steps.weights[1:]).max() < 1
    assert steps.weights[0] > 2


def test_kept_functions_are_directions_themselves() -> None:
    """However little they vary; the rest is orthogonal to them, and too many are not kept."""
    rng = np.random.default_rng(8)
    matrix = (rng.normal(size=(200, 30)) * np.append([1e-3, 1e-3], np.ones(28))).astype(np.float32)
    kept = np.array([0, 1])
    axes = Subspace.from_matrix(matrix, 10, rng, kept).axes
    assert axes.shape == (30, 10)
    assert axes.T @ axes == pytest.approx(np.eye(10), abs=1e-5)
    assert axes[:, :2] == pytest.approx(np.eye(30)[:, :2])
    least = Subspace.from_matrix(matrix, 3, rng, kept).axes
    assert least.shape == (30, 3) and np.abs(least[:2]).max() < 0.1


def test_a_line_over_many_columns_is_learned_whole() -> None:
    """With hardly any noise, no part of a linear truth falls outside of the directions."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 20)).clip(-4, 4)
    frame = pd.DataFrame(x, columns=[f"x{k}" for k in range(20)])
    frame = frame.assign(y=x @ np.linspace(1, 0, 20))
    columns = tuple(Column(name, lower=-4, upper=4) for name in frame.columns[:-1])
    schema = Schema(columns, Column("y", lower=-12, upper=12))
    policy = private.private("10000", "1e-5")
    train = frame[:2000].assign(owner="c")
    gates = LocalDisclosure.from_frame(
        train, "y", client="owner", schema=schema, policy=policy, seed=1
    )
    model = private.learn(gates, private.Outcome.of(schema, number=True), rng)
    rest = frame["y"][2000:] - model.outcome.values(model.predictions(x[2000:]))
    assert rest.std() < 0.15 * frame["y"].std()
