"""Partitions that noisy sums choose: sums by them, ends with few records, and what noise alone chooses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed import Column, LocalDisclosure, Schema
from privfed.learners import FuzzyTreeRegressor
from privfed.learners.fuzzy_tree.fuzzy import Memberships
from privfed.learners.fuzzy_tree.growth import FuzzySums, LevelSums
from privfed.learners.fuzzy_tree.linear import Coordinates, Residuals
from privfed.learners.fuzzy_tree.partitions import Partition, Partitions
from privfed.learners.fuzzy_tree.queries import Level
from privfed.learners.fuzzy_tree.rounds import _moments_of
from privfed.learners.fuzzy_tree.settings import SETTINGS
from privfed.questions.query import View
from privfed.tables.records import Records

FRACTIONS = (0.01, 0.02, 0.04, 0.07)
ENDS = np.array(FRACTIONS)
#: Of two uniform features; the second has no order.
QUANTILES = np.stack([np.column_stack([own, np.full(4, np.nan)]) for own in (ENDS, 1 - ENDS)])


def sums_of(
    u: np.ndarray, y: np.ndarray, partitions: Partitions, noise: float = 0.0, seed: int = 0
) -> LevelSums:
    """Sums of all records by the finest sets, with noise in every cell of the weights and of the targets."""
    rng, finest = np.random.default_rng(seed), partitions.finest
    most = max(map(len, finest))
    weights, linear = np.zeros((2, 1, len(finest), most))
    members = Memberships.from_peaks(u, finest)
    for feature in range(len(finest)):
        for own in range(len(finest[feature])):
            degree = members.degree(np.arange(len(u)), feature, own)
            weights[0, feature, own] = degree.sum() + rng.normal(0, noise)
            linear[0, feature, own] = degree @ y + rng.normal(0, noise)
    nodes = FuzzySums(*(np.array([own]) for own in (len(u), y.sum(), y @ y)))
    none, spread = np.zeros(weights.shape, bool), np.array(noise)
    cells = FuzzySums(weights, linear, linear)
    return LevelSums(cells, nodes, ~none, np.ones(1), none, (spread, spread))


def steps(records: int = 4_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two uniform features, and a target that is far lower where the first is below its 3 % quantile."""
    u = np.random.default_rng(seed).uniform(size=(records, 2))
    return u, np.where(u[:, 0] < 0.03, -0.5, 0.3)


def test_sums_by_coarser_sets_are_those_of_their_own_memberships() -> None:
    """For uniform sets and both ends, from the finest sums."""
    u, y = steps(200)
    partitions = Partitions.uniform((5, 3)).with_ends(FRACTIONS, QUANTILES)
    assert [len(own) for own in partitions.possible] == [7, 1]
    sums = sums_of(u, y, partitions)
    for partition in partitions.possible[0]:
        own = replace(partition, share=0.0).sums(partitions.finest[0], sums, 0)
        members = Memberships.from_peaks(u[:, :1], (partition.peaks,))
        for number in range(len(partition.peaks)):
            degree = members.degree(np.arange(len(u)), 0, number)
            assert own.cells.weights[0, 0, number] == pytest.approx(degree.sum())
            assert own.cells.linear[0, 0, number] == pytest.approx(degree @ y)


def test_an_end_has_the_records_that_are_expected_of_it() -> None:
    """Below or above the middle of its peaks, as many as its quantiles say."""
    u = np.random.default_rng(1).uniform(size=(100_000, 1))
    for partition in (
        Partitions.uniform((5,)).with_ends(FRACTIONS, QUANTILES[:, :, :1]).possible[0][1:]
    ):
        members = Memberships.from_peaks(u, (partition.peaks,))
        share = members.degree(np.arange(len(u)), 0, partition.end).mean()
        assert share == pytest.approx(partition.share, rel=0.1)


def test_equal_quantiles_are_no_ends() -> None:
    """As where most records have one value."""
    assert Partitions.uniform((5,)).with_ends(FRACTIONS, np.zeros((2, 4, 1))).peaks == ()


def test_no_feature_has_more_sets_than_a_query_may_name() -> None:
    """Ends are left out where uniform sets are as many."""
    assert Partitions.uniform((99,)).with_ends(FRACTIONS, QUANTILES[:, :, :1]).peaks == ()
    found = Partitions.uniform((95,)).with_ends(FRACTIONS, QUANTILES[:, :, :1])
    assert 95 < len(found.finest[0]) <= 99


@pytest.mark.parametrize("own", [{"max_depth": 2}, {"features": []}, {"n_fuzzy_sets": 99}], ids=str)
def test_other_trees_find_ends_or_do_without(own: dict[str, Any]) -> None:
    """Deeper ones, with a partition of each feature for all nodes; without candidates; with as many sets as there may be."""
    learner, frame = FuzzyTreeRegressor(**own), table(3_000, 4)
    owners = np.where(np.arange(len(frame)) < 2_999, "many", "one")
    policy = learner.private(100, schema=SCHEMA)
    fed = LocalDisclosure.from_frame(
        frame.assign(client=owners), "y", client="client", schema=SCHEMA, policy=policy, seed=0
    )
    model, new = learner.fit(fed), table(2_000, 5)
    error = np.sqrt(np.mean((new["y"] - model.predict(new)) ** 2)) / new["y"].std()
    assert error < (0.6 if "max_depth" in own else 1.0)
    assert all(len(model.sets_[f]) > k for leaf in model.leaves_ for f, k in leaf.path)


def test_a_noisy_weight_is_combined_with_the_expected_one_by_precision() -> None:
    """Halfway where both are as uncertain, the released one if exact, the expected one under any noise."""
    partition = Partition((0.02, 0.04), 0, share=0.03)
    for noise, weight in ((0.0, 60.0), (30 * SETTINGS.end_error, 45.0), (1e6, 30.0)):
        told = FuzzySums(*np.array([[[[60.0, 940.0]]]] * 3))
        nodes = FuzzySums(*(np.array([own]) for own in (1000.0, 0.0, 1.0)))
        none = np.zeros((1, 1, 2), bool)
        spread = np.array(noise)
        whole = LevelSums(told, nodes, ~none, np.ones(1), none, (spread, spread))
        own = partition.sums(partition.peaks, whole, 0)
        assert own.cells.weights[0, 0] == pytest.approx([weight, 1000 - weight], abs=0.01)


def test_a_step_at_an_end_is_chosen_and_a_slope_is_not() -> None:
    """By sums whose noise is far below the step, on either side; uniform sets explain a slope better."""
    u, y = steps()
    partitions = Partitions.uniform((5, 5)).with_ends(FRACTIONS, QUANTILES)
    for end in (0, 1):
        side = np.abs(end - u)
        _, chosen = partitions.chosen(sums_of(side, y, partitions, 3.0), (0, 1), "told")
        own = chosen.possible[0][0]
        assert (own.end, own.share) == (end, pytest.approx(0.03)) and not chosen.possible[1][
            0
        ].share
    _, sloped = partitions.chosen(sums_of(u, u[:, 0] - 0.5, partitions, 3.0), (0, 1), "told")
    assert sloped.peaks == ()


def test_noise_alone_seldom_gains() -> None:
    """A constant target, under noise that is a tenth of the records, in six ends of a hundred draws."""
    u, _ = steps(2_000)
    partitions = Partitions.uniform((5, 5)).with_ends(FRACTIONS, QUANTILES)
    out = 0
    for seed in range(100):
        sums = sums_of(u, np.full(len(u), 0.2), partitions, 200.0, seed)
        own = [p.sums(partitions.finest[0], sums, 0) for p in partitions.possible[0][1:]]
        out += sum(each.gains("told")[0, 0] > 0 for each in own)
    assert out < 0.03 * 600


def test_sets_of_features_without_a_split_stay_uniform() -> None:
    """Only a split's feature keeps what was chosen."""
    u, y = steps()
    partitions = Partitions.uniform((5, 5)).with_ends(FRACTIONS, QUANTILES)
    _, chosen = partitions.chosen(sums_of(u, y, partitions, 3.0), (0, 1), "told")
    assert partitions.fixed({0}, chosen).settled({0}).peaks == (
        chosen.possible[0][0].peaks,
        (0.0, 0.25, 0.5, 0.75, 1.0),
    )
    assert partitions.fixed(set(), chosen).settled(set()).peaks == ()


def table(records: int, seed: int) -> pd.DataFrame:
    """Where most of the variance is a step at a 3 % quantile."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(10, 60, (records, 3))
    y = np.where(x[:, 0] < 11.5, 0.0, 80 + 0.2 * (x[:, 1] - 35) + rng.normal(0, 4, records))
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": np.clip(y, 0, 100)})


SCHEMA = Schema(
    tuple(Column(name, "number", 10, 60) for name in "abc"), Column("y", "number", 0, 100)
)


@pytest.fixture(scope="module")
def fitted() -> tuple[FuzzyTreeRegressor, LocalDisclosure]:
    """A private tree of that table at epsilon 8, and its federation."""
    learner, frame = FuzzyTreeRegressor(), table(5_000, 0)
    held = frame.assign(client=np.arange(len(frame)) % 3)
    fed = LocalDisclosure.from_frame(
        held, "y", client="client", schema=SCHEMA, policy=learner.private(8), seed=0
    )
    return learner.fit(fed), fed


def test_a_private_tree_learns_a_step_at_a_3_percent_quantile(
    fitted: tuple[FuzzyTreeRegressor, LocalDisclosure],
) -> None:
    """Its error is far below a constant's, which uniform sets hardly reduce."""
    model, test = fitted[0], table(5_000, 1)
    error = np.sqrt(np.mean((test["y"] - model.predict(test)) ** 2)) / test["y"].std()
    assert error < 0.6 and model.n_leaves_ == 2
    assert {leaf.path[0][0] for leaf in model.leaves_} == {0}


def test_such_a_tree_is_described_and_saved(
    fitted: tuple[FuzzyTreeRegressor, LocalDisclosure],
) -> None:
    """Its peaks are in the text and in the plain data, and predictions stay the same."""
    model, frame = fitted[0], table(100, 2)
    low, high = model.readable()["peaks"]["a"]
    assert 10 < low < 11.5 < high < 15
    assert "IF a is Low THEN" in model.describe()
    assert "which overlap between them (beyond, a degree is 1): Low at 1" in model.describe()
    again = FuzzyTreeRegressor.from_dict(model.to_dict())
    assert np.array_equal(again.predict(frame), model.predict(frame))
    again.privacy_ = model.privacy_
    assert again.describe() == model.describe()


def test_residuals_of_leaves_far_apart_are_hardly_clipped(
    fitted: tuple[FuzzyTreeRegressor, LocalDisclosure],
) -> None:
    """The leaves' query reaches as far as their means differ; the target's width is 1."""
    asked = [entry.query for entry in fitted[1].transcript() if "clip" in entry.query]
    last = asked[-1]
    assert len(last["nodes"]) == 2 and float(last["clip"]) > 0.7


def test_levels_and_residuals_use_the_same_sets() -> None:
    """A finer level adds up to the chosen sets' memberships, record by record, as the leaves' residuals weigh them."""
    frame = table(200, 3)
    view = View(Records.from_frame(frame, SCHEMA), SCHEMA)
    finest, chosen = (0.0, 0.02, 0.04, 1.0), (0.02, 0.04)
    scale = (SCHEMA.lower, SCHEMA.upper)
    level = Level(((),), 4, *scale, (0,), peaks=(finest,) * 3)
    nodes = (((0, 0),), ((0, 1),))
    still = (np.zeros(0), np.zeros(0))
    residuals = Residuals(
        nodes,
        2,
        *scale,
        Coordinates((), *still, 1.0),
        np.zeros(1),
        1.0,
        partition=(2,) * 3,
        peaks=(chosen,) * 3,
    )
    whole = level.evaluate(view)["linear"][0, 0]
    among = np.array([np.interp(finest, chosen, row) for row in np.eye(2)])
    assert np.allclose(residuals.evaluate(view)["residuals"][:, 0], among @ whole, rtol=1e-6)


def test_an_end_has_the_middle_and_variance_of_even_records_up_to_its_boundary() -> None:
    """Halfway between both peaks; a triangle has its peak and h^2 / 6."""
    for number, low, high in ((0, 0.0, 0.2), (1, 0.2, 1.0)):
        even = np.linspace(low, high, 100_001)
        assert _moments_of((0.1, 0.3), number) == pytest.approx((even.mean(), even.var()), rel=1e-3)
    assert _moments_of((0.0, 0.5, 1.0), 1) == pytest.approx((0.5, 0.25 / 6))
