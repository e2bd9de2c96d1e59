"""What a private model's functions cannot express of the truth: by a naive twin, and over known truths."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, ndtri

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import private
from privfed.learners.private.model import PrivateModel
from privfed.learners.private.posterior import EstimationError, NoisyMoments, estimation_error
from privfed.learners.private.settings import SETTINGS
from tests.learners.private.test_private_evidence import posterior

SCHEMA = Schema(
    tuple(Column(f"x{k}", "number", -1, 1) for k in range(4)), Column("y", "integer", 0, 1)
)
X = np.random.default_rng(9).uniform(-1, 1, (400, 4))


def test_it_is_the_error_of_scores_whose_truth_has_other_functions() -> None:
    """Weights by sums of a truth drawn from the prior, column by column of the noise and of the truth's functions."""
    rng = np.random.default_rng(1)
    own = posterior(rng.normal(size=(300, 4)), scale=0.8)
    told = NoisyMoments(np.zeros((4, 1)), np.array([9.0, 9.0, 4.0, 1.0])).along(np.eye(4))
    local, priors = own.at(np.zeros((4, 1))), [(0.3, own), (0.7, own.scaled(np.array([0.1])))]
    fitted, there, directions = (rng.normal(size=size) for size in ((300, 6), (5, 6), (5, 4)))
    variances = rng.uniform(0.1, 0.6, 6)
    error = estimation_error(priors, told, local, 1.0, fitted, variances)
    found = error.squares(there, directions)

    def scores(sums: np.ndarray) -> np.ndarray:
        mean = [p * one.weights(replace(told, values=sums), local, 1.0) for p, one in priors]
        return np.asarray(directions @ sum(mean))[:, 0]

    def errors_of(factor: float) -> np.ndarray:
        truths = [
            scale * there[:, k] - factor * scores(scale * own.leading.features.T @ fitted[:, [k]])
            for k, scale in enumerate(np.sqrt(variances))
        ]
        root = np.linalg.cholesky(SETTINGS.noise_factor * (local.curvatures[0] + told.noise))
        return np.array([*truths, *(-factor * scores(root[:, [k]]) for k in range(4))])

    stray = errors_of(1.0)
    assert found == pytest.approx(np.square(stray).sum(axis=0), rel=1e-5)
    every, noisy = error.covariances(there, directions)
    assert every == pytest.approx(stray.T @ stray, rel=1e-5)
    assert noisy == pytest.approx(stray[6:].T @ stray[6:], rel=1e-5)
    again = error.calibrated(1.5).squares(there, directions)
    assert again == pytest.approx(np.square(errors_of(1.5)).sum(axis=0), rel=1e-5)
    first, second = error.drawn(200_000, rng)
    draws = there @ first + directions @ second
    assert np.cov(draws, bias=True) == pytest.approx(every, abs=0.02 * np.diag(every).max())


@pytest.mark.parametrize("calibrated", [False, True])
def test_errors_against_a_refit_are_differences_of_two_regressions(calibrated: bool) -> None:
    """Of one truth and one sampling, with noise in the first alone: simulated record by record.

    The second's scores are regressed on the target they were fitted to; few records, for a factor well above one.
    """
    rng = np.random.default_rng(2)
    own = posterior(rng.normal(size=(300, 4)), scale=0.8)
    told = NoisyMoments(np.zeros((4, 1)), np.full(4, 9.0)).along(np.eye(4))
    local, sampling = own.at(np.zeros((4, 1))), 0.7
    truths, further = (rng.normal(size=(300, 5)) for _ in range(2))
    variances = rng.uniform(0.001, 0.01, 5)
    error = estimation_error([(1.0, own)], told, local, sampling, truths, variances)
    phi = own.leading.features
    found = error.calibrated(1.3).of_refit(
        phi, truths, further, np.ones(300), calibrated=calibrated
    )
    places = rng.normal(size=(3, 4)), rng.normal(size=(3, 5))
    squares = found.squares(np.zeros((1, 1)), np.column_stack([places[0], -places[1]]))
    prior = own.prior.covariance
    rest = sampling * phi.T @ phi + told.noise
    gain = 1.3 * prior @ phi.T @ phi @ np.linalg.inv(phi.T @ phi @ prior @ phi.T @ phi + rest)
    without = np.linalg.inv(further.T @ further + sampling * np.diag(1 / variances))
    sizes = (20_000, 5), (20_000, 300), (20_000, 4)
    drawn, sampled, noise = (rng.normal(size=size) for size in sizes)
    factor = 1.0
    if calibrated:
        sums = (drawn * np.sqrt(variances) @ further.T + np.sqrt(sampling) * sampled) @ further
        fits = sums @ without
        factor = (sums * fits).sum() / np.square(fits @ further.T).sum()
        assert factor > 1.2
    sampled *= np.sqrt(sampling * SETTINGS.noise_factor)
    target = drawn * np.sqrt(variances) @ truths.T + sampled
    noise *= np.sqrt(9.0 * SETTINGS.noise_factor)
    learned = (target @ phi + noise) @ gain.T @ places[0].T
    refitted = factor * target @ further @ without @ places[1].T
    wanted = np.square(learned - refitted).mean(axis=0)
    assert squares == pytest.approx(wanted, rel=0.05)


def score(x: np.ndarray, truth: str) -> np.ndarray:
    """Log-odds of records, shape (records, 4)."""
    if truth == "lines":
        return np.asarray(1.5 * x[:, 0] - x[:, 1])
    both, either = (x[:, 0] > 0) & (x[:, 1] > 0), (x[:, 2] < 0) & (x[:, 3] < 0.2)
    return np.asarray(3.0 * both - 2.5 * either)


@cache
def engine(truth: str, seed: int, epsilon: str = "50") -> PrivateModel:
    """The private engine on 3,000 made-up records, by default at an epsilon that adds little noise."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (3000, 4))
    frame = pd.DataFrame(x, columns=[own.name for own in SCHEMA.features]).assign(owner="a")
    frame["y"] = (rng.random(3000) < expit(score(x, truth))).astype(int)
    policy = private.private(epsilon, "1e-5")
    held = LocalDisclosure.from_frame(
        frame, "y", client="owner", schema=SCHEMA, policy=policy, seed=seed
    )
    return private.learn(held, private.Outcome.of(SCHEMA, number=False), rng)


def covered(model: PrivateModel, truth: str) -> float:
    """Fraction of records whose 90 % interval holds the truth."""
    reach = ndtri(0.95) * model.score_deviations(X)[:, 0]
    return float((np.abs(model.scores(X)[:, 0] - score(X, truth)) < reach).mean())


def alone(model: PrivateModel, *, noise: bool) -> PrivateModel:
    """The same with errors by noise and sampling, each once, or by misspecification alone."""
    (error,) = model.errors
    assert isinstance(error, EstimationError)
    if noise:
        once = error.noise / SETTINGS.noise_factor
        return replace(model, errors=(replace(error, noise=once, variances=0 * error.variances),))
    return replace(model, errors=(replace(error, noise=0 * error.noise),))


def test_products_of_steps_are_covered() -> None:
    """Nearly nine tenths of them over two simulations; by noise and sampling alone, far fewer."""
    models = [engine("products", seed) for seed in range(2)]
    found = np.mean([covered(own, "products") for own in models])
    less = np.mean([covered(alone(own, noise=True), "products") for own in models])
    assert 0.84 < found < 0.95 and less < 0.8, (found, less)


def test_lines_have_hardly_wider_intervals() -> None:
    """The released sums tell a prior under which trees add little."""
    few, many = (
        np.mean(alone(own, noise=False).score_deviations(X) ** 2)
        for own in (engine("lines", 0), engine("products", 0))
    )
    assert 0 < few < many / 8, (few, many)


def shapes_covered(model: PrivateModel, truth: str) -> float:
    """Fraction of records whose columns' 90 % bands hold the truth's partial dependence, by bin."""
    found = []
    for j in range(X.shape[1]):
        places = np.tile(X, (len(X), 1, 1))
        places[:, :, j] = X[:, j, None]
        wanted = score(places.reshape(-1, X.shape[1]), truth).reshape(len(X), -1).mean(axis=1)
        heights, deviations = model.partial_dependence(j)
        codes = model.basis.grid.codes(X)[j]
        count = np.bincount(codes, minlength=len(heights))
        means = np.bincount(codes, wanted - wanted.mean(), len(heights)) / np.maximum(count, 1)
        held = np.abs(heights - means) < ndtri(0.95) * deviations
        found.append(held[codes].mean())
    return float(np.mean(found))


def test_shapes_of_products_of_steps_are_covered() -> None:
    """Nearly nine tenths over two simulations; by noise and sampling alone, three quarters."""
    found, less = [], []
    for seed in range(2):
        model = engine("products", seed)
        found.append(shapes_covered(model, "products"))
        less.append(shapes_covered(alone(model, noise=True), "products"))
    assert 0.82 < np.mean(found) < 0.95 and np.mean(less) < 0.8, (found, less)


def test_the_model_without_noise_is_in_intervals_that_are_of_it() -> None:
    """About nine tenths of its scores over two simulations of epsilon 2; of half the width, far fewer."""
    found, halved, wide = [], [], []
    for seed in range(2):
        noisy, free = engine("products", seed, "2"), engine("products", seed, "300")
        stray = np.abs(noisy.scores(X) - free.scores(X))
        reach = ndtri(0.95) * noisy.score_deviations(X, "same")
        found.append((stray < reach).mean())
        halved.append((stray < reach / 2).mean())
        wide.append(reach.mean() / (ndtri(0.95) * noisy.score_deviations(X)).mean())
    assert np.mean(found) > 0.8 and np.mean(halved) < 0.75, (found, halved)
    assert np.mean(wide) < 0.9, wide
