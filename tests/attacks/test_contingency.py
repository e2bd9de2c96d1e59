"""Tables follow from their margins where counts are few, and ranges hold the truth everywhere."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from privfed.attacks.contingency import ranges
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
