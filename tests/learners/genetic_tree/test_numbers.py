"""A numeric target's mass is found wherever its bounds are, and noise far from it moves no mean."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed import LocalDisclosure
from privfed.errors import Note
from privfed.learners import GeneticTreeRegressor
from privfed.learners.genetic_tree.numbers import Bins, TargetDistribution, spike_slab
from privfed.learners.genetic_tree.queries import KeepBelow
from privfed.learners.genetic_tree.top import NoisyNode, NoisyTreeGrower
from privfed.tables.schema import Column, Schema

CELLS, ROUNDS = 32, 4
FEATURES = (Column("a", "number", -4, 4), Column("b", "number", -4, 4))
Target = Callable[[np.random.Generator, pd.DataFrame], np.ndarray]


def _found(y: np.ndarray, column: Column, deviation: float, seed: int) -> TargetDistribution:
    """All rounds, with Gaussian noise of a deviation."""
    rng, mass = np.random.default_rng(seed), TargetDistribution.blank(column, CELLS)
    for number in range(ROUNDS):
        mass = mass.closer(CELLS) if number else mass
        cell = np.searchsorted(mass.edges[1:-1], y, side="right")
        counts = np.bincount(cell, minlength=len(mass.shares))
        noisy = counts + rng.normal(0, deviation, len(counts))
        mass = mass.updated(noisy, deviation**2, float(len(y)))
    return mass


@pytest.mark.parametrize("times", [1, 11, 1000])
def test_bounds_that_are_too_wide_cost_nothing(times: int) -> None:
    """The mean to a seventh of a deviation, and ends that hold most records, up to 1,000 times."""
    y = np.random.default_rng(0).normal(1, 1, 3000)
    column = Column("y", "number", -8 * times, 8 * times)
    found = [_found(y, column, 40.0, seed) for seed in range(12)]
    off = [mass.bins(8).mean - y.mean() for mass in found]
    assert np.sqrt(np.mean(np.square(off))) < 1 / 7
    inside = [np.mean((y >= mass.edges[0]) & (y <= mass.edges[-1])) for mass in found]
    assert np.mean(inside) > 0.9
    assert max(mass.width for mass in found) < 16


def test_what_is_unknown_of_the_mean_is_told() -> None:
    """Errors are about as large as is said, whatever the noise."""
    y = np.random.default_rng(1).normal(1, 1, 2000)
    column = Column("y", "number", -8, 8)
    for deviation in (20.0, 60.0):
        bins = [_found(y, column, deviation, seed).bins(8) for seed in range(40)]
        off = np.mean([(own.mean - y.mean()) ** 2 / own.uncertain for own in bins])
        assert 0.4 < off < 2.5


def test_a_number_in_the_lowest_hundredth_of_its_bounds_is_found_under_noise() -> None:
    """400 records, noise of 60 in each of 32 cells: the mean to three deviations on average, not fourteen by cells that noise fills."""
    y = np.exp(np.random.default_rng(2).normal(0, 0.5, 400))
    means = [_found(y, Column("y", "number", 0, 100), 60.0, s).bins(8).mean for s in range(20)]
    assert np.mean(np.abs(np.array(means) - y.mean())) < 3 * y.std()


def test_noise_alone_narrows_nothing_down() -> None:
    """Where it drowns all records, the mean stays near the middle of the bounds."""
    y = np.full(50, 7.0)
    means = [_found(y, Column("y", "number", -8, 8), 500.0, s).bins(8).mean for s in range(20)]
    assert np.abs(np.mean(means)) < 4 and np.max(np.abs(means)) <= 8


def test_few_whole_numbers_are_bins_of_their_own() -> None:
    """Each is worth itself; one alone too."""
    y = np.array([1.0] * 400 + [2.0] * 300 + [3.0] * 300)
    bins = _found(y, Column("y", "integer", 1, 3), 1e-3, 0).bins(8)
    assert bins.means == pytest.approx([1, 2, 3], abs=1e-3)
    assert bins.mean == pytest.approx(y.mean(), abs=1e-2)
    alone = _found(np.full(500, 4.0), Column("y", "integer", 0, 20), 1.0, 0).bins(8)
    assert alone.mean == pytest.approx(4, abs=0.2)
    assert alone.means == pytest.approx(np.rint(alone.means)) and 4 in np.rint(alone.means)
    single = TargetDistribution(np.array([3.5, 4.5]), np.ones(1), 4.0, 0.01, whole=True).bins(8)
    assert single.means == pytest.approx([4, 4])


@given(
    departure=st.floats(-5, 5),
    noise=st.floats(1e-6, 1e6),
    variance=st.floats(1e-6, 1e3),
)
def test_a_departure_is_drawn_to_none(departure: float, noise: float, variance: float) -> None:
    """Never beyond what was told, never to the other side, and the less the more noise there is."""
    drawn = spike_slab(departure, noise, variance)
    assert abs(drawn) <= abs(departure) * (1 + 1e-9) and drawn * departure >= 0
    assert abs(spike_slab(departure, 1e9 * variance, variance)) <= 1e-6 * abs(departure)


def test_exact_counts_tell_exact_means_and_noisy_ones_their_parents() -> None:
    """Two children far apart, without noise and with too much of it."""
    bins = Bins(np.array([0.5]), np.array([0.0, 1.0]), 0.5, 1e-9, 0.25)
    nodes = [NoisyNode(np.zeros(2), 0.0, sound=False, children=(1, 2))]
    counts = np.array([9000.0, 1000.0])
    exact = NoisyTreeGrower(
        2, [*nodes, *(NoisyNode(own, 0.0, True) for own in (counts, counts[::-1]))]
    )
    assert bins.values(exact)[:, 0] == pytest.approx([0.5, 0.1, 0.9], abs=1e-2)
    noisy = NoisyTreeGrower(
        2, [*nodes, *(NoisyNode(own, 1e12, True) for own in (counts, counts[::-1]))]
    )
    assert bins.values(noisy)[:, 0] == pytest.approx([0.5, 0.5, 0.5], abs=1e-2)


# --- whole learners ------------------------------------------------------------------------------


def _ratio(target: Target, bounds: tuple[float, float], epsilon: str, records: int) -> float:
    """RMSE of the shared tree beside that of the true mean, on fresh records; a mean over draws."""
    rng, found = np.random.default_rng(records), []
    schema = Schema(FEATURES, Column("y", "number", *bounds))
    for seed in range(3):
        tables = [pd.DataFrame(rng.normal(size=(records, 2)), columns=list("ab")) for _ in "12"]
        learn, fresh = (table.assign(y=np.clip(target(rng, table), *bounds)) for table in tables)
        policy = GeneticTreeRegressor().private(epsilon)
        guards = {kind: own for kind, own in policy.guards.items() if kind != KeepBelow.kind}
        gates = LocalDisclosure.from_frame(
            learn.assign(client="one"),
            target="y",
            client="client",
            schema=schema,
            policy=replace(policy, guards=guards),
            seed=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Note)
            said = GeneticTreeRegressor().fit(gates).predict(fresh[["a", "b"]])
        constant = np.mean((fresh["y"] - learn["y"].mean()) ** 2)
        found.append(np.mean((fresh["y"] - said) ** 2) / max(constant, 1e-12))
    return float(np.sqrt(np.mean(found)))


def _steps(rng: np.random.Generator, table: pd.DataFrame) -> np.ndarray:
    return np.asarray(table["a"] + 2 * (table["b"] > 0) + rng.normal(0, 0.3, len(table)))


def _heavy(rng: np.random.Generator, table: pd.DataFrame) -> np.ndarray:
    return np.asarray(np.exp(2 * rng.normal(size=len(table))) + table["a"])


def _noise(rng: np.random.Generator, table: pd.DataFrame) -> np.ndarray:
    return rng.normal(size=len(table))


def test_a_tree_does_not_mind_how_wide_the_targets_bounds_are() -> None:
    """Its error at 1, 11 and 1,000 times the width is alike, and far below a constant's."""
    ratios = [_ratio(_steps, (-8.0 * k, 8.0 * k), "2", 3000) for k in (1, 11, 1000)]
    assert max(ratios) < 0.75
    assert max(ratios) - min(ratios) < 0.15


@pytest.mark.parametrize("epsilon", ["0.5", "1", "8"])
@pytest.mark.parametrize("target", [_heavy, _noise], ids=["heavy tail", "pure noise"])
def test_a_tree_is_never_far_worse_than_a_constant(target: Target, epsilon: str) -> None:
    """Where there is next to nothing to learn, at any budget; bounds are loose."""
    assert _ratio(target, (-10.0, 1000.0), epsilon, 2000) < 1.1


def test_a_constant_target_is_found() -> None:
    """All records at one value, in bounds a thousand times as wide as it is far from nought."""
    schema = Schema(FEATURES, Column("y", "number", -1000, 1000))
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(2000, 2)), columns=list("ab")).assign(y=2.0, client="c")
    gates = LocalDisclosure.from_frame(
        frame,
        target="y",
        client="client",
        schema=schema,
        policy=GeneticTreeRegressor().private(8),
        seed=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Note)
        model = GeneticTreeRegressor().fit(gates)
    assert model.predict(frame[["a", "b"]]) == pytest.approx(np.full(2000, 2.0), abs=0.5)


@settings(max_examples=30)
@given(
    counts=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=CELLS),
    variance=st.floats(0, 1e9),
    records=st.floats(10, 1e6),
)
def test_whatever_is_told_there_are_bins(
    counts: list[float], variance: float, records: float
) -> None:
    """Finite, rising, within the bounds: noise may say anything."""
    told = np.array(counts)
    blank = TargetDistribution.blank(Column("y", "number", -3, 7), len(told))
    bins = blank.updated(told, variance, records).closer(CELLS).bins(8)
    assert (np.diff(bins.edges) > 0).all() and len(bins.means) == len(bins.edges) + 1
    assert np.isfinite(bins.means).all() and -3 <= bins.mean <= 7
    assert bins.means.min() >= -3 - 1e-9 and bins.means.max() <= 7 + 1e-9
    assert np.isfinite(bins.class_values).all() and bins.variance > 0
