"""What follows from the population needs no release."""

from __future__ import annotations

import numpy as np

from privfed.attacks.population import NEIGHBOURS, infer_by_neighbours


def test_a_number_that_hangs_on_the_others_is_inferred() -> None:
    """And one that does not is not; scales of columns do not matter."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(600, 2)) * [1, 1e6]
    told = x[:, 0] + x[:, 1] / 1e6
    guess = infer_by_neighbours(x[:100], x[100:], told[100:], category=False)
    assert np.corrcoef(guess, told[:100])[0, 1] > 0.95
    chance = infer_by_neighbours(x[:100], x[100:], rng.permutation(told)[100:], category=False)
    assert abs(np.corrcoef(chance, told[:100])[0, 1]) < 0.4


def test_neighbours_are_those_of_a_search_by_hand() -> None:
    """The mean, or the most frequent code, of the nearest ten."""
    rng = np.random.default_rng(1)
    people, known = rng.normal(size=(80, 3)), rng.normal(size=(7, 3))
    told, codes = rng.normal(size=80), rng.integers(0, 2, 80) * 5.0
    spread = people.std(axis=0)
    for row, record in enumerate(known):
        near = np.argsort((((people - record) / spread) ** 2).sum(axis=1))[:NEIGHBOURS]
        numbers = infer_by_neighbours(known, people, told, category=False)
        assert np.isclose(numbers[row], told[near].mean())
        votes = 5.0 * ((codes[near] == 5).sum() > NEIGHBOURS / 2)
        assert infer_by_neighbours(known, people, codes, category=True)[row] == votes


def test_few_people_and_constant_columns_are_asked_too() -> None:
    """One person's value is everybody's."""
    assert (
        infer_by_neighbours(
            np.zeros((3, 1)), np.ones((1, 1)), np.array([4.0]), category=False
        ).tolist()
        == [4.0] * 3
    )
