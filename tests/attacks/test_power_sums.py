"""Values come back from their power sums."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.attacks.power_sums import coefficients, values
from privfed.errors import InputError


def sums_of(held: np.ndarray) -> np.ndarray:
    """Power sums of orders 1 to n."""
    return np.array([(held**order).sum() for order in range(1, len(held) + 1)])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_newton_s_identities_give_the_values_back(count: int) -> None:
    """To a part in a million of their range, wherever they lie."""
    held = np.sort(np.random.default_rng(count).uniform(20, 80, count))
    found = values(sums_of(held))
    assert found is not None and np.abs(found - held).max() < 1e-6


def test_coefficients_are_the_polynomial_s() -> None:
    """As numpy multiplies the roots out."""
    held = np.array([1.0, -2.0, 0.5, 3.0])
    assert np.allclose(coefficients(sums_of(held)), np.poly(held))


def test_equal_values_and_impossible_sums() -> None:
    """Several alike are found; sums that no real numbers have are none."""
    assert np.allclose(values(np.array([9.0, 27.0, 81.0])), 3.0)  # type: ignore[arg-type]
    assert values(np.array([0.0, -1.0])) is None
    for wrong in (np.array([]), np.array([np.nan]), np.ones((2, 2))):
        with pytest.raises(InputError, match="power sums"):
            values(wrong)


def test_a_sum_and_a_sum_of_squares_are_two_values() -> None:
    """Of any kind."""
    assert values(np.array([7.5, 28.25])) == pytest.approx([3.5, 4.0])


def test_sums_of_no_real_numbers_give_none() -> None:
    """Of three numbers about 0 of deviation 1, a sum of cubes beyond its bound, by little or by much."""
    bound = 3 / np.sqrt(2)
    assert values(np.array([0.0, 3.0, 0.99 * bound])) is not None
    for beyond in (1.05, 1.5, 5.0):
        assert values(np.array([0.0, 3.0, beyond * bound])) is None
