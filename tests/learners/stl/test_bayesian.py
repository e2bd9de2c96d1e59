"""Bayesian optimisation beats random points, and repeats itself."""

from __future__ import annotations

import numpy as np

from privfed.learners.stl.learner import maximise


def _bump(point: np.ndarray) -> float:
    return float(np.exp(-20 * ((point - [0.3, 0.8]) ** 2).sum()))


def test_it_comes_near_the_maximum_where_random_points_do_not() -> None:
    """Twenty evaluations in the unit square, five seeds."""
    start = np.array([0.9, 0.1])
    found = [
        maximise(_bump, start, evaluations=20, rng=np.random.default_rng(seed))[1]
        for seed in range(5)
    ]
    drawn = [
        max(_bump(point) for point in np.random.default_rng(seed).random((20, 2)))
        for seed in range(5)
    ]
    assert min(found) > 0.97 > np.median(drawn)


def test_it_repeats_itself_and_tells_the_value_of_its_point() -> None:
    """The same seed gives the same point; one evaluation is the start."""
    start = np.array([0.5, 0.5])
    once, again = (
        maximise(_bump, start, evaluations=9, rng=np.random.default_rng(3)) for _ in "12"
    )
    assert np.array_equal(once[0], again[0])
    assert once[1] == _bump(once[0])
    only = maximise(_bump, start, evaluations=1, rng=np.random.default_rng(3))
    assert np.array_equal(only[0], start)
