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
from privfed.learners.private.posterior import SCALE_FACTORS, NoisyMoments, estimation_error
from tests.learners.private.test_private_evidence import posterior

SCHEMA = Schema(
    tuple(Column(f"x{k}", "number", -1, 1) for k in range(4)), Column("y", "integer", 0, 1)
)
#: Whether all of a truth's functions are small or large is as likely as not.
CHANCES = np.isin(SCALE_FACTORS, [0.5, 2.0]) / 2
X = np.random.default_rng(9).uniform(-1, 1, (400, 4))


def test_it_is_the_error_of_scores_whose_truth_has_other_functions() -> None:
    """Weights by sums of a truth drawn from the prior, column by column of the noise and of the truth's functions."""
    rng = np.random.default_rng(1)
    own = posterior(rng.normal(size=(300, 4)), scale=0.8)
    told = NoisyMoments(np.zeros((4, 1)), np.array([9.0, 9.0, 4.0, 1.0])).along(np.eye(4))
    local, priors = own.at(np.zeros((4, 1))), [(0.3, own), (0.7, own.scaled(np.array([0.1])))]
    fitted, there, directions = (rng.normal(size=size) for size in ((300, 6), (5, 6), (5, 4)))
    variances = rng.uniform(0.1, 0.6, 6)
    error = estimation_error(priors, told, local, 1.0, fitted, (variances, CHANCES))
    found = error.squares(there, directions)

    def scores(sums: np.ndarray) -> np.ndarray:
        mean = [p * one.weights(replace(told, values=sums), local, 1.0) for p, one in priors]
        return np.asarray(directions @ sum(mean))[:, 0]

    truths = [
        scale * there[:, k] - scores(scale * own.leading.features.T @ fitted[:, [k]])
        for k, scale in enumerate(np.sqrt(variances))
    ]
    root = np.linalg.cholesky(local.curvatures[0] + told.noise)
    noise = [scores(root[:, [k]]) for k in range(4)]
    errors = np.square([*truths, *noise]).sum(axis=0)
    assert found == pytest.approx(errors, rel=1e-5)
    every, noisy = error.covariances(there, directions)
    stray = np.array([*truths, *noise])
    assert every == pytest.approx(stray.T @ stray, rel=1e-5)
    assert noisy == pytest.approx(np.array(noise).T @ np.array(noise), rel=1e-5)
    assert error.scaled(2.0).squares(there, directions) == pytest.approx(4 * errors, rel=1e-5)
    first, second = error.drawn(200_000, rng)
    draws = there @ first + directions @ second
    assert np.cov(draws, bias=True) == pytest.approx(every, abs=0.02 * np.diag(every).max())
    truth, heavy = ((there @ first) ** power for power in (2, 4))
    tails = np.mean([0.5**4, 2.0**4]) / np.mean([0.5**2, 2.0**2]) ** 2  # 1 if there is one scale
    assert heavy.mean(axis=1) / truth.mean(axis=1) ** 2 == pytest.approx(3 * tails, rel=0.1)


def score(x: np.ndarray, truth: str) -> np.ndarray:
    """Log-odds of records, shape (records, 4)."""
    if truth == "lines":
        return np.asarray(1.5 * x[:, 0] - x[:, 1])
    both, either = (x[:, 0] > 0) & (x[:, 1] > 0), (x[:, 2] < 0) & (x[:, 3] < 0.2)
    return np.asarray(3.0 * both - 2.5 * either)


@cache
def engine(truth: str, seed: int) -> PrivateModel:
    """The private engine on 3,000 made-up records, at an epsilon that adds little noise."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (3000, 4))
    frame = pd.DataFrame(x, columns=[own.name for own in SCHEMA.features]).assign(owner="a")
    frame["y"] = (rng.random(3000) < expit(score(x, truth))).astype(int)
    policy = private.private("50", "1e-5")
    held = LocalDisclosure.from_frame(
        frame, "y", client="owner", schema=SCHEMA, policy=policy, seed=seed
    )
    return private.learn(held, private.Outcome.of(SCHEMA, number=False), rng)


def covered(model: PrivateModel, truth: str) -> float:
    """Fraction of records whose 90 % interval holds the truth."""
    reach = ndtri(0.95) * model.score_deviations(X)[:, 0]
    return float((np.abs(model.scores(X)[:, 0] - score(X, truth)) < reach).mean())


def test_products_of_steps_are_covered() -> None:
    """Nearly nine tenths of them over two simulations; were all expressed, about three quarters."""
    models = [engine("products", seed) for seed in range(2)]
    found = np.mean([covered(own, "products") for own in models])
    alone = np.mean([covered(replace(own, unexpressed=np.zeros(1)), "products") for own in models])
    assert 0.84 < found < 0.95 and alone < 0.8, (found, alone)


def test_lines_have_hardly_wider_intervals() -> None:
    """The released sums tell a prior under which trees add little."""
    model = engine("lines", 0)
    wide = model.score_deviations(X).mean()
    assert 1 < wide / replace(model, unexpressed=np.zeros(1)).score_deviations(X).mean() < 1.15
    (few,), (many,) = model.unexpressed, engine("products", 0).unexpressed
    assert 0 < few < many / 10


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
    found, alone = [], []
    for seed in range(2):
        model = engine("products", seed)
        (error,) = model.errors
        expressed = replace(error, variances=np.zeros_like(error.variances))
        found.append(shapes_covered(model, "products"))
        alone.append(shapes_covered(replace(model, errors=(expressed,)), "products"))
    assert 0.82 < np.mean(found) < 0.95 and np.mean(alone) < 0.8, (found, alone)
