"""Models from noisy sums: never far worse than a constant, and nearly exact where noise is small."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import FuzzyTreeRegressor
from privfed.learners.fuzzy_tree.shrinkage import (
    NoisyEquations,
    Totals,
    leaf_models,
    linear_model,
    pays,
)

WIDTH = 6


def design(rows: int, seed: int) -> np.ndarray:
    """A column of ones, then features in [-1/2, 1/2] that depend on one another."""
    rng = np.random.default_rng(seed)
    shared = rng.uniform(-0.5, 0.5, (rows, 1))
    return np.column_stack(
        [np.ones(rows), 0.7 * shared + 0.3 * rng.uniform(-0.5, 0.5, (rows, WIDTH - 1))]
    )


def noisy(x: np.ndarray, y: np.ndarray, noise: float, seed: int) -> NoisyEquations:
    """Equations as they are released: each cell with noise of its own."""
    rng = np.random.default_rng(seed)
    gram = x.T @ x + rng.normal(0, noise, (WIDTH, WIDTH))
    moment = x.T @ y + rng.normal(0, noise, WIDTH)
    return NoisyEquations.released(gram[None], moment[None], (noise, noise))


@pytest.mark.parametrize("noise", [0.1, 3, 30, 100, 300, 3000])
@pytest.mark.parametrize("slope", [0.0, 0.1, 0.8])
def test_a_model_is_no_worse_than_a_constant_whatever_the_noise(noise: float, slope: float) -> None:
    """Over twenty draws of noise, and close to least squares where there is little."""
    x = design(2000, 0)
    rng = np.random.default_rng(1)
    y = np.clip(slope * x[:, 1:].sum(axis=1) / 3 + rng.normal(0, 0.05, 2000), -0.5, 0.5)
    best = np.mean((y - x @ np.linalg.lstsq(x, y, rcond=None)[0]) ** 2)
    errors, constants = [], []
    for seed in range(20):
        model, _ = linear_model(noisy(x, y, noise, seed), Totals())
        errors.append(np.mean((y - x @ model) ** 2))
        constants.append(np.mean((y - Totals(2000, y.sum(), (noise**2,) * 2).mean) ** 2))
    spread = np.std(errors) + np.std(constants) + noise**2 / 2000**2
    assert np.mean(errors) <= np.mean(constants) + spread
    if noise == 0.1:
        assert np.mean(errors) <= 1.05 * best


def test_less_noise_is_never_worse() -> None:
    """Mean errors over draws fall with the noise, and do not cross by more than a hundredth."""
    x = design(2000, 0)
    y = np.clip(0.5 * x[:, 1] + np.random.default_rng(1).normal(0, 0.1, 2000), -0.5, 0.5)
    errors = [
        np.mean(
            [
                np.mean((y - x @ linear_model(noisy(x, y, noise, seed), Totals())[0]) ** 2)
                for seed in range(30)
            ]
        )
        for noise in (300, 100, 30, 10, 3, 1)
    ]
    assert all(after <= 1.01 * before for before, after in pairwise(errors))


def test_leaves_depart_from_the_model_of_all_only_where_that_pays() -> None:
    """A leaf with slopes of its own keeps them at little noise; at much it stands by all the others."""
    x = design(4000, 2)
    above = np.zeros(WIDTH)
    y = 0.4 * x[:, 1] + 0.1
    (quiet,), (stands,) = leaf_models(noisy(x, y, 0.5, 0), above)
    assert not stands and np.mean((y - x @ quiet) ** 2) < 0.1 * np.mean(y**2)
    alike = [leaf_models(noisy(x, 0 * y, 100.0, seed), above)[1].all() for seed in range(40)]
    assert np.mean(alike) > 0.8


def test_two_releases_are_joined_by_their_precision() -> None:
    """The mean's noise is less than either's; the sharper of the two weighs more."""
    x, y = design(10, 0), np.zeros(10)
    sharp, blunt = noisy(x, y, 1.0, 0), noisy(x, y, 3.0, 1)
    joined = sharp.joined(blunt)
    assert joined.noise == pytest.approx((0.9**0.5, 0.9**0.5))
    assert np.allclose(joined.moment, 0.9 * sharp.moment + 0.1 * blunt.moment)
    one, other = Totals(10, 2, (1.0, 1.0)), Totals(20, 4, (1.0, 3.0))
    both = one.joined(other)
    assert (both.weight, both.linear) == (15, 2.5) and both.variances == (0.5, 0.75)
    assert Totals().joined(one) == one == one.joined(Totals())


def test_a_total_that_noise_could_feign_has_no_mean() -> None:
    """Below three deviations the middle of the interval; far above, the mean itself."""
    assert Totals(2.0, 1.0, (1.0, 1.0)).mean == 0
    assert Totals(1e6, 2e5, (1.0, 1.0)).mean == pytest.approx(0.2)
    assert 0 < Totals(10.0, 2.0, (1.0, 4.0)).mean < 0.2


def test_leaves_are_asked_for_only_where_their_slopes_can_stand_out() -> None:
    """More records pay, more leaves pay less."""
    x = design(1000, 0)
    assert pays(noisy(x, x[:, 0], 1.0, 0), 5)
    assert not pays(noisy(x, x[:, 0], 1.0, 0), 100)
    assert not pays(noisy(x, x[:, 0], 30.0, 0), 5)


@pytest.mark.parametrize("epsilon", ["0.1", "1", "8"])
@pytest.mark.parametrize("heavy", [False, True], ids=["even", "heavy-tailed"])
def test_a_private_tree_is_no_worse_than_a_constant(epsilon: str, heavy: bool) -> None:
    """400 rows, three clients: beside what the noise of a mean costs, nothing is lost."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (400, 3))
    y = 4 * x[:, 0] + rng.normal(0, 1, 400)
    y = np.clip(np.exp(2 * y), 0, 5e6) if heavy else np.clip(y, -6, 10)
    frame = pd.DataFrame(x, columns=list("abc")).assign(y=y, client=np.arange(400) % 3)
    bounds = (0, 5e6) if heavy else (-6, 10)
    schema = Schema(
        tuple(Column(name, "number", 0, 1) for name in "abc"), Column("y", "number", *bounds)
    )
    learner = FuzzyTreeRegressor()
    ratios = []
    for seed in range(3):
        fed = LocalDisclosure.from_frame(
            frame,
            "y",
            client="client",
            schema=schema,
            seed=seed,
            policy=learner.private(epsilon, "1e-5"),
        )
        predicted = learner.fit(fed).predict(frame)
        assert (fed.budget()["spent"] <= float(epsilon)).all()
        assert bounds[0] <= predicted.min() and predicted.max() <= bounds[1]
        ratios.append(np.sqrt(np.mean((predicted - y) ** 2)) / y.std())
    if epsilon == "8":
        assert np.mean(ratios) < (1.2 if heavy else 0.9)
    elif epsilon == "1" and not heavy:
        assert np.mean(ratios) < 1.2  # the mean's own noise is about .46 deviations here
