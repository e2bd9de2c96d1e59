"""Models from noisy sums: never far worse than a constant, and nearly exact where noise is small."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import FuzzyTreeRegressor
from privfed.learners.fuzzy_tree.linear import Coordinates
from privfed.learners.fuzzy_tree.shrinkage import (
    Count,
    DesignEstimate,
    LeafEstimate,
    ResidualSums,
    SecondMoments,
    Target,
    _main_effects,
    _with_main_effects,
    departures,
    leaf_random_effects,
)

FEATURES = 5
PUBLIC = Coordinates.public(tuple(range(FEATURES)))
KNOWN = Count(2000.0, 0.0)


def unit(rows: int, seed: int) -> np.ndarray:
    """Features in [0, 1] that depend on one another."""
    rng = np.random.default_rng(seed)
    shared = rng.uniform(0, 1, (rows, 1))
    return 0.6 * shared + 0.4 * rng.uniform(0, 1, (rows, FEATURES))


def learned(u: np.ndarray, y: np.ndarray, noise: float, seed: int) -> np.ndarray:
    """Predictions after one round, of sums with noise of their own in each cell."""
    rng = np.random.default_rng(seed)
    z, shrunk = PUBLIC.clipped(u)
    told = z.T @ z + rng.normal(0, noise, (PUBLIC.width, PUBLIC.width))
    shape = DesignEstimate.from_moments(
        SecondMoments.from_sums(told, noise, KNOWN, PUBLIC.lead), PUBLIC.lead
    )
    mean, spread = float(y.mean()), float(y.var()) + 1e-6
    sums = z.T @ ((y - mean) * shrunk) + rng.normal(0, noise, PUBLIC.width)
    target = Target(mean, 1e-6, spread)
    rounds = [ResidualSums(sums, noise**2 * np.eye(PUBLIC.width))]
    away, error = departures(shape, rounds, target, spread)
    assert error >= 0
    return np.asarray(mean + PUBLIC.of(u) @ away)


@pytest.mark.parametrize("noise", [0.01, 0.1, 1, 3, 10, 100, 1000])
@pytest.mark.parametrize("slope", [0.0, 0.05, 0.8])
def test_a_model_is_no_worse_than_a_constant_whatever_the_noise(noise: float, slope: float) -> None:
    """Over twenty draws of noise, and close to least squares where there is little."""
    u = unit(2000, 0)
    y = slope * (u[:, 0] - u[:, 1]) + np.random.default_rng(1).normal(0, 0.05, 2000)
    x = np.column_stack([np.ones(2000), u])
    best = np.mean((y - x @ np.linalg.lstsq(x, y, rcond=None)[0]) ** 2)
    errors = [np.mean((y - learned(u, y, noise, seed)) ** 2) for seed in range(20)]
    assert np.mean(errors) <= 1.1 * y.var()
    if noise <= 0.1:
        assert np.mean(errors) <= 1.05 * best


def test_less_noise_is_never_worse() -> None:
    """Mean errors over draws fall with the noise, and do not cross by more than a hundredth."""
    u = unit(2000, 0)
    y = 0.5 * u[:, 1] + np.random.default_rng(1).normal(0, 0.1, 2000)
    errors = [
        np.mean([np.mean((y - learned(u, y, noise, seed)) ** 2) for seed in range(20)])
        for noise in (100, 30, 10, 3, 1, 0.3)
    ]
    assert all(after <= 1.01 * before for before, after in pairwise(errors))


def test_eigenvalues_that_noise_could_feign_are_one() -> None:
    """Of noise alone nothing stands out, and what stands out is kept."""
    rng = np.random.default_rng(0)
    u = unit(2000, 0)
    z, _ = PUBLIC.clipped(u)
    for noise, alike in ((400.0, True), (1.0, False)):
        told = z.T @ z + rng.normal(0, noise, (PUBLIC.width, PUBLIC.width))
        shape = DesignEstimate.from_moments(
            SecondMoments.from_sums(told, noise, KNOWN, PUBLIC.lead), PUBLIC.lead
        )
        values = np.linalg.eigvalsh(shape.covariance)
        assert values[0] > 0
        assert (values[-1] < 1.6 * values[0]) == alike


def test_rounds_are_joined_by_their_noise() -> None:
    """A second, sharper round moves the posterior to itself; departures taken far off weigh less."""
    u = unit(2000, 0)
    z, _ = PUBLIC.clipped(u)
    shape = DesignEstimate.from_moments(
        SecondMoments.from_sums(z.T @ z, 1.0, KNOWN, PUBLIC.lead), PUBLIC.lead
    )
    truth = np.array([0.0, 0.5, -0.5, 0.2, 0.0, 0.1])
    sums, eye = shape.gram @ truth, np.eye(PUBLIC.width)
    target, blunt = Target(0.0, 1e-6, 0.05), ResidualSums(-sums, 900.0 * eye, 0.0)
    alone, _ = departures(shape, [blunt], target, 0.01)
    both, _ = departures(shape, [blunt, ResidualSums(sums, eye, 0.0)], target, 0.01)
    assert np.linalg.norm(both - truth) < 0.3 * np.linalg.norm(alone - truth)
    far, _ = departures(shape, [blunt, ResidualSums(sums, eye, 1e6)], target, 0.01)
    assert np.linalg.norm(far - truth) > np.linalg.norm(both - truth)


def test_leaves_depart_only_where_they_seem_to_differ() -> None:
    """Leaves with slopes of their own are told from leaves that have none, by what is released."""
    u = unit(4000, 0)
    z, _ = PUBLIC.clipped(u)
    shape = DesignEstimate.from_moments(
        SecondMoments.from_sums(z.T @ z, 1.0, Count(4000.0, 0.0), PUBLIC.lead), PUBLIC.lead
    )
    leaves, target = [LeafEstimate(shape, 2000.0)] * 2, Target(0.0, 1e-6, 0.02)
    slopes = np.array([0.0, 0.4, 0.0, 0.0, 0.0, 0.0])
    differ = np.array([shape.gram @ slopes, -shape.gram @ slopes]) / 2
    away, likely = leaf_random_effects(shape, differ, leaves, 1.0, target, 0.0)
    assert likely > 0.99 and np.allclose(away, [slopes, -slopes], atol=0.05)
    chances = [
        leaf_random_effects(
            shape,
            np.random.default_rng(seed).normal(0, 30, (2, 6)),
            leaves,
            900.0,
            target,
        )[1]
        for seed in range(20)
    ]
    assert np.mean(chances) < 0.5


def _crossed(shape: DesignEstimate) -> list[LeafEstimate]:
    """Nine leaves: three sets of each of two features."""
    middles, variances = [-0.3, 0.0, 0.3], np.full(2, 0.01)
    return [
        LeafEstimate(
            shape.within([0, 1], np.array([middles[a], middles[b]]), variances),
            400.0,
            [(0, middles[a], 0.01), (1, middles[b], 0.01)],
            [a, b],
        )
        for a in range(3)
        for b in range(3)
    ]


def test_effects_common_to_a_set_are_shared_by_its_leaves() -> None:
    """Where effects add up over two features, leaves borrow from each other: less error than from their own sums alone."""
    shape = DesignEstimate(1.0, np.zeros(3), 0.08 * np.eye(3), 3600.0, 0.0)
    leaves, errors = _crossed(shape), np.zeros(2)
    alone = [replace(leaf, branch=(), sets=()) for leaf in leaves]
    grams = [leaf.design.gram * leaf.weight / shape.count for leaf in leaves]
    means = np.array([np.append(1.0, leaf.design.means) for leaf in leaves])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows, columns = rng.normal(0, 0.1, (2, 3))
        levels = np.array([rows[a] + columns[b] for a, b in (leaf.branch for leaf in leaves)])
        exact = np.array([gram[:, 0] * level for gram, level in zip(grams, levels, strict=True)])
        sums = exact + rng.normal(0, 40, exact.shape)
        for number, known in enumerate((leaves, alone)):
            found, _ = leaf_random_effects(shape, sums, known, 1600.0, Target(0.0, 1e-6, 0.02))
            errors[number] += (((found * means).sum(axis=1) - levels) ** 2).mean()
    assert errors[0] < 0.8 * errors[1]


def test_main_effects_are_eliminated_exactly() -> None:
    """Posterior mean and likelihood are those of the dense normal model of all leaves' sums."""
    shape = DesignEstimate(1.0, np.zeros(3), 0.08 * np.eye(3), 3600.0, 0.0)
    leaves, rng = _crossed(shape), np.random.default_rng(1)
    grams = np.array([shape.gram * leaf.weight / shape.count for leaf in leaves])
    mains, units = _main_effects(leaves, shape)
    prior, sums = shape.prior(0.01, 0.01), rng.normal(0, 30, (9, 4))
    system = grams @ prior @ grams + 0.02 * grams + 900 * np.eye(4)
    found, likelihood = _with_main_effects(grams, prior, system, sums, mains, 0.005 * units)
    blocks = block_diag(*grams)
    spread = mains.reshape(len(mains), -1).T
    covariance = block_diag(*[prior] * 9) + spread @ np.diag(0.005 * units) @ spread.T
    whole = blocks @ covariance @ blocks + block_diag(*(0.02 * grams + 900 * np.eye(4)))
    dense = covariance @ blocks @ np.linalg.solve(whole, sums.ravel())
    assert np.allclose(found.ravel(), dense, atol=1e-9)
    expected = multivariate_normal(np.zeros(36), whole).logpdf(sums.ravel())
    assert likelihood - 18 * math.log(2 * math.pi) == pytest.approx(expected, abs=1e-6)


def test_a_leaf_s_design_is_that_of_records_weighted_by_its_sets() -> None:
    """Means and covariances of normal records, some features weighted by triangles: to a tenth of a deviation."""
    rng = np.random.default_rng(0)
    mixing = rng.normal(0, 1, (3, 3))
    covariance = mixing @ mixing.T
    x = rng.multivariate_normal([0.1, -0.2, 0.3], covariance, 400_000)
    shape = DesignEstimate(1.0, np.array([0.1, -0.2, 0.3]), covariance, 400_000.0, 0.0)
    peaks, reach = np.array([1.0, -0.5]), 1.5
    weight = np.maximum(1 - np.abs(x[:, [2, 0]] - peaks) / reach, 0).prod(axis=1)
    own = shape.within([2, 0], peaks, np.full(2, reach**2 / 6))
    mean = np.average(x, axis=0, weights=weight)
    spread = np.cov(x.T, aweights=weight)
    units = np.sqrt(shape.variances)
    assert np.allclose(own.means / units, mean / units, atol=0.1)
    assert np.allclose(
        own.covariance / np.outer(units, units), spread / np.outer(units, units), atol=0.1
    )
    alone = shape.within([1], np.array([2.0]), np.zeros(1))
    assert alone.means[1] == pytest.approx(2.0, abs=1e-4) and alone.variances[1] < 1e-4


def test_counts_are_joined_by_their_precision() -> None:
    """The mean's deviation is less than either's; what noise could feign counts as more."""
    joined = Count(100, 3).joined(Count(110, 4))
    assert (joined.records, joined.std) == pytest.approx((103.6, 2.4))
    assert Count(5, 30.0).joined(Count(0.0, math.inf)).records == 60


def test_what_noise_could_feign_is_known_after_any_number_of_answers() -> None:
    """Each answer raised the number, which then seemed to stand out from the noise of all."""
    count = Count(0.0, math.inf)
    for answer in (5.0, 60.0, 40.0, 10.0):
        count = count.joined(Count(answer, 30.0))
    assert count.of_noise and count.records > 1.3 * count.noise
    assert not Count(500.0, 30.0).joined(Count(480.0, 30.0)).of_noise


def test_coordinates_have_a_norm_of_one_on_average() -> None:
    """And the same model in plain coordinates predicts the same."""
    rng = np.random.default_rng(0)
    u = rng.uniform(0, 1, (5000, FEATURES))
    assert np.mean(np.linalg.norm(PUBLIC.of(u), axis=1) ** 2) == pytest.approx(1, abs=0.02)
    held, shrunk = PUBLIC.clipped(u)
    assert (np.linalg.norm(held, axis=1) <= 1).all() and (shrunk < 1).mean() > 0.2
    other = Coordinates.about(
        PUBLIC.features,
        rng.normal(0, 0.1, FEATURES),
        rng.uniform(1, 9, FEATURES),
        np.ones(FEATURES),
    )
    assert np.allclose(PUBLIC.of(u) @ PUBLIC.into(other).T, other.of(u))
    model = rng.normal(0, 1, PUBLIC.width)
    plain = other.plain(model)
    assert np.allclose(other.of(u) @ model, plain[0] + (u - 0.5) @ plain[1:])


@pytest.mark.parametrize("epsilon", ["0.1", "1", "8"])
@pytest.mark.parametrize("heavy", [False, True], ids=["even", "heavy-tailed"])
def test_a_private_tree_is_no_worse_than_a_constant(epsilon: str, heavy: bool) -> None:
    """400 rows, three clients: beside what the noise of a mean costs, nothing is lost."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (400, 3))
    y = 4 * x[:, 0] + rng.normal(0, 1, 400)
    y = np.clip(np.exp(2 * y), 0, 5e6) if heavy else np.clip(y, -6, 10)
    bounds = (0, 5e6) if heavy else (-6, 10)
    ratios = [ratio(x, y, bounds, epsilon, seed) for seed in range(3)]
    if epsilon == "8":
        assert np.mean(ratios) < (1.2 if heavy else 0.7)
    elif epsilon == "1" and not heavy:
        assert np.mean(ratios) < 1.2  # the mean's own noise is about .3 deviations here


def ratio(
    x: np.ndarray, y: np.ndarray, bounds: tuple[float, float], epsilon: str, seed: int
) -> float:
    """Error of a private tree over three clients, over the target's deviation where it has one."""
    names = [f"x{k}" for k in range(x.shape[1])]
    frame = pd.DataFrame(x, columns=names).assign(y=y, client=np.arange(len(y)) % 3)
    columns = tuple(Column(name, "number", 0, 1) for name in names)
    schema = Schema(columns, Column("y", "number", *bounds))
    learner = FuzzyTreeRegressor()
    policy = learner.private(epsilon, "1e-5")
    fed = LocalDisclosure.from_frame(
        frame, "y", client="client", schema=schema, seed=seed, policy=policy
    )
    predicted = learner.fit(fed).predict(frame)
    assert (fed.budget()["spent"] <= float(epsilon)).all()
    assert bounds[0] <= predicted.min() and predicted.max() <= bounds[1]
    return float(np.sqrt(np.mean((predicted - y) ** 2)) / (y.std() or bounds[1] - bounds[0]))


def test_odd_tables_are_learned_without_fuss() -> None:
    """A constant target, one of two values, thirty columns of noise, fifty rows, one column."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (1000, 30))
    assert ratio(x[:, :3], np.full(1000, 3.0), (0, 10), "4", 0) < 0.05
    assert ratio(x[:, :3], (x[:, 0] > 0.5).astype(float), (0, 1), "4", 0) < 0.8
    assert ratio(x, rng.normal(5, 1, 1000).clip(0, 10), (0, 10), "4", 0) < 1.1
    assert ratio(x[:50, :2], x[:50, 0], (0, 1), "8", 0) < 1.5
    assert ratio(x[:, :1], x[:, 0], (0, 1), "8", 0) < 0.2


def test_leaves_help_where_hardly_any_noise_is_left() -> None:
    """Columns that split leaves vary little within them; a model of all records' moments there erred by more than a line."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.integers(0, 3, 3000) / 2, rng.uniform(0, 1, (3000, 2))])
    y = 0.4 * (x[:, 0] == 0.5) + 0.3 * (x[:, 1] > 0.6) + 0.3 * x[:, 2] + rng.normal(0, 0.05, 3000)
    line = np.column_stack([np.ones(3000), x])
    rest = y - line @ np.linalg.lstsq(line, y, rcond=None)[0]
    assert ratio(x, y, (-0.5, 1.5), "100", 0) < 0.8 * rest.std() / y.std()


def test_a_told_round_may_be_exact() -> None:
    """Noise of nothing is no fault."""
    shape = DesignEstimate.from_moments(
        SecondMoments.from_sums(np.eye(6) * 300, 0.0, KNOWN, PUBLIC.lead), PUBLIC.lead
    )
    told = replace(ResidualSums(np.ones(6), np.zeros((6, 6))), departure=0.0)
    away, _ = departures(shape, [told], Target(), 0.01)
    assert np.isfinite(away).all()


def test_an_unknown_number_of_records_leaves_the_known_one() -> None:
    """On either side, as where no level was released."""
    known, unknown = Count(500.0, 3.0), Count(0.0, math.inf)
    assert known.joined(unknown) == unknown.joined(known) == known
