"""Answers combined: repeats average, differences isolate, and the rest stays undetermined."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.attacks.least_squares import combined, nested
from privfed.errors import InputError


def test_repeats_of_unequal_noise_are_weighed() -> None:
    """Two answers of deviations 1 and 2 give the weighted mean, of variance 4/5."""
    found = combined(np.ones((2, 1)), np.array([10.0, 15.0]), deviations=np.array([1.0, 2.0]))
    assert found.estimate == pytest.approx([11.0])
    assert found.deviation == pytest.approx([np.sqrt(0.8)])


def test_overlapping_predicates_isolate_a_cell() -> None:
    """All and all but one: the one follows exactly, the others only together."""
    design = np.array([[1, 1, 1], [0, 1, 1]])
    found = combined(design, np.array([7.0, 5.0]), deviations=np.zeros(2))
    assert found.determined.tolist() == [True, False, False]
    assert found.estimate[0] == pytest.approx(2) and found.deviation[0] == 0


def test_an_exact_answer_beside_a_noisy_one_counts_as_exact() -> None:
    """The noisy one hardly moves it."""
    found = combined(np.ones((2, 1)), np.array([4.0, 9.0]), deviations=np.array([0.0, 1.0]))
    assert found.estimate == pytest.approx([4.0], abs=1e-6)
    assert found.deviation[0] < 1e-4


def test_the_stated_deviation_is_the_real_one() -> None:
    """Over 4,000 draws of noise on five overlapping answers."""
    rng, design = np.random.default_rng(0), np.array([[1, 1], [1, 0], [0, 1], [1, 1], [1, 0.0]])
    spread, true = np.array([1.0, 2, 1, 3, 1]), np.array([3.0, 8.0])
    draws = np.array(
        [
            combined(design, design @ true + rng.normal(0, spread), deviations=spread).estimate
            for _ in range(4000)
        ]
    )
    stated = combined(design, design @ true, deviations=spread).deviation
    assert draws.std(axis=0) == pytest.approx(stated, rel=0.05)
    assert draws.mean(axis=0) == pytest.approx(true, abs=0.05)


def test_nested_predicates_are_found() -> None:
    """A rule and a narrower one; equal, empty and overlapping ones are no pairs."""
    sets = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]], bool)
    assert list(zip(*nested(sets), strict=True)) == [(0, 1), (0, 2)]


@pytest.mark.parametrize(
    ("answers", "deviations"),
    [
        (np.array([np.nan]), np.zeros(1)),
        (np.zeros(2), np.zeros(1)),
        (np.zeros(1), np.array([-1.0])),
    ],
)
def test_foreign_answers(answers: np.ndarray, deviations: np.ndarray) -> None:
    """One clear error."""
    with pytest.raises(InputError):
        combined(np.ones((1, 1)), answers, deviations=deviations)
