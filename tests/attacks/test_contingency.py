"""Tables follow from their margins where counts are few, and ranges hold the truth everywhere."""

from __future__ import annotations

from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from privfed.attacks.contingency import TANGENTS, likeliest, ranges
from privfed.errors import InputError


def margins(shape: tuple[int, ...]) -> np.ndarray:
    """All two-way margins of a table, a row each."""
    index = np.indices(shape).reshape(len(shape), -1)
    pairs = [(a, b) for a in range(len(shape)) for b in range(a)]
    return np.array(
        [
            (index[a] == i) & (index[b] == j)
            for a, b in pairs
            for i, j in product(range(shape[a]), range(shape[b]))
        ],
        dtype=float,
    )


def test_ranges_are_those_of_every_table_that_fits() -> None:
    """Against brute force: a 2 x 3 table of five people under its one-way margins."""
    index = np.indices((2, 3)).reshape(2, -1)
    design = np.array(
        [index[0] == 0, index[0] == 1, *(index[1] == j for j in range(3))], dtype=float
    )
    true = np.array([2, 0, 1, 0, 1, 1])
    told = design @ true
    fits = [t for t in product(range(6), repeat=6) if (design @ np.array(t) == told).all()]
    found = ranges(design, low=told, high=told)
    assert found is not None
    assert found.least.tolist() == np.min(fits, axis=0).tolist()
    assert found.greatest.tolist() == np.max(fits, axis=0).tolist()


def test_few_people_are_rebuilt_from_two_way_margins() -> None:
    """Six people in a 2 x 2 x 4 table are there whole; the ranges hold the truth of sixty."""
    rng, design = np.random.default_rng(1), margins((2, 2, 4))
    few, many = (np.bincount(rng.integers(0, 16, size), minlength=16) for size in (6, 60))
    found = ranges(design, low=design @ few, high=design @ few)
    assert found is not None and found.determined.all() and (found.least == few).all()
    found = ranges(design, low=design @ many, high=design @ many)
    assert found is not None and not found.determined.all()
    assert ((found.least <= many) & (many <= found.greatest)).all()


def test_noisy_totals_widen_the_ranges() -> None:
    """Intervals in the place of exact totals determine less."""
    design, true = margins((2, 2, 3)), np.arange(12) % 3
    told = design @ true
    exact, noisy = ranges(design, low=told, high=told), ranges(design, low=told - 1, high=told + 1)
    assert exact is not None and noisy is not None
    assert (noisy.greatest - noisy.least).sum() > (exact.greatest - exact.least).sum()


def test_contradictions_bad_input_and_no_time() -> None:
    """None where no table fits or no time is left; an InputError for what is no system."""
    assert ranges(np.ones((2, 2)), low=np.array([1.0, 2.0]), high=np.array([1.0, 2.0])) is None
    assert ranges(np.ones((1, 2)), low=np.ones(1), high=np.ones(1), time_limit=0.0) is None
    for told in (np.ones(2), np.array([np.nan])):
        with pytest.raises(InputError):
            ranges(np.ones((1, 2)), low=told, high=told)


@pytest.mark.parametrize("seed", [3, 4, 5])
@pytest.mark.parametrize("laplace", [0.0, 0.5, 1.0])
def test_the_likeliest_table_is_that_of_all_tables(laplace: float, seed: int) -> None:
    """Against brute force, of noise of both laws, or each, beside exact totals; a Gaussian's by its tangents."""
    rng, design = np.random.default_rng(seed), np.vstack([np.ones(8), margins((2, 2, 2))])
    true, deviations = np.bincount(rng.integers(0, 8, 5), minlength=8), np.full(13, 0.8)
    deviations[:3] = 0
    told = design @ true + np.rint(rng.normal(0, deviations))
    pure = np.random.default_rng(seed).random(len(design)) < laplace
    found = likeliest(design, told, deviations=deviations, laplace=pure)
    noisy = deviations > 0

    def loss(table: np.ndarray) -> np.ndarray:
        apart = np.abs(table @ design[noisy].T - told[noisy]) / deviations[noisy]
        steps = np.array(TANGENTS)
        tangents = (apart[..., None] * steps - steps**2 / 2).max(axis=-1)
        losses = np.where(pure[noisy], np.sqrt(2) * apart, np.maximum(tangents, 0))
        return np.asarray(losses.sum(axis=-1))

    whole = combinations_with_replacement(np.eye(8, dtype=int), 5)
    tables = np.array([np.sum(each, axis=0) for each in whole])
    fits = tables[(tables @ design[~noisy].T == told[~noisy]).all(axis=1)]
    assert found is not None and (design[~noisy] @ found == told[~noisy]).all()
    assert loss(found) == pytest.approx(loss(fits).min())


def test_no_table_has_totals_that_contradict_each_other() -> None:
    """Then nothing is claimed; without any noise a table is one that fits."""
    design, exact = np.ones((2, 3)), np.zeros(2)
    assert likeliest(design, np.array([2.0, 3.0]), deviations=exact) is None
    found = likeliest(design, np.array([2.0, 2.0]), deviations=exact)
    assert found is not None and found.sum() == 2


def test_cells_of_many_records_are_not_determined_by_a_solver_s_gap() -> None:
    """Of 67,088 records in a cell one more or fewer is a table too, however near the solver's first answer lies."""
    design = np.array(
        [
            [1, 1, 1, 0, 1, 0, 1],
            [0, 0, 1, 1, 1, 1, 0],
            [0, 1, 1, 1, 0, 0, 0],
            [1, 1, 1, 1, 0, 0, 0],
            [1, 0, 0, 0, 0, 1, 1],
        ],
        float,
    )
    true = np.array([46780, 11042, 1, 67088, 2, 0, 1])
    found = ranges(design, low=design @ true, high=design @ true)
    assert found is not None and ((found.least <= true) & (true <= found.greatest)).all()
    assert (found.least[3], found.greatest[3]) == (67085, 67088)
    assert not found.determined[3]


@pytest.mark.parametrize(("times", "count"), [(1, 12), (2, 32)])
def test_the_laws_of_noise_are_weighed_against_each_other(times: int, count: int) -> None:
    """A Gaussian answer of 0 and Laplace ones of 100, of deviation 10 each: as far as the slopes of both agree."""
    told, pure = np.array([0.0, *[100.0] * times]), np.array([False, *[True] * times])
    losses = [
        max(0.0, *(at * n / 10 - at**2 / 2 for at in TANGENTS))
        + times * np.sqrt(2) * (100 - n) / 10
        for n in range(101)
    ]
    assert int(np.argmin(losses)) == count
    spread = np.full(len(told), 10.0)
    found = likeliest(np.ones((len(told), 1)), told, deviations=spread, laplace=pure)
    assert found is not None and found.tolist() == [count]
