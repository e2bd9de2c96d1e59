"""Values come back from their power sums, and nothing is claimed where several would fit."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest

from privfed.attacks.power_sums import coefficients, small_group, values, whole_values
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


def test_whole_values_are_all_that_fit() -> None:
    """Against brute force over every multiset of four numbers from 0 to 6."""
    every = list(combinations_with_replacement(range(7), 4))
    for held in every[::7]:
        total, squares = sum(held), sum(value**2 for value in held)
        fits = [m for m in every if sum(m) == total and sum(v**2 for v in m) == squares]
        assert whole_values(4, total=total, squares=squares, low=0, high=6, most=99) == fits


def test_a_small_group_is_claimed_where_one_set_fits() -> None:
    """Two of any kind; three whole ones if unique; otherwise none."""
    found = small_group(2, [7.5, 28.25])
    assert found is not None and found == pytest.approx([3.5, 4.0])
    unique = small_group(3, [3, 9], whole=(0, 3))
    assert unique is not None and unique.tolist() == [0, 0, 3]
    assert small_group(3, [9, 41], whole=(-9, 9)) is None  # 1 2 6 and 0 4 5
    assert small_group(3, [3.0, 9.0]) is None and small_group(3, [3.3, 9], whole=(0, 3)) is None
