"""How much a number says: its digits, its simplicity, its cell; fast code beside naive twins."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.leaks.precision import (
    BRAIN,
    DOUBLE,
    HALF,
    NO_GRADE,
    SINGLE,
    decimals_of,
    precisions_of,
    simplicity,
    split_by_grid,
)

RNG = np.random.default_rng(0)


def naive_decimals(value: float) -> int:
    """From the number's shortest text."""
    shown = Decimal(repr(value)).normalize()
    sign, digits, exponent = shown.as_tuple()
    assert isinstance(exponent, int) and sign == 0
    return NO_GRADE if len(digits) > 12 else -exponent


@given(st.integers(1, 10**11), st.integers(-6, 9))
def test_decimals_are_those_of_the_text(whole: int, shift: int) -> None:
    """Whatever is written with at most twelve digits is graded by them."""
    value = float(f"{whole}e{-shift}")
    assert decimals_of(np.array([value]))[0] == naive_decimals(value)


@given(st.floats(1e-6, 1e6))
def test_decimals_of_any_double(value: float) -> None:
    """Long numbers have no grade; rounding on the way may give one to a few with thirteen digits."""
    got, wanted = int(decimals_of(np.array([value]))[0]), naive_decimals(value)
    assert got == wanted or (wanted == NO_GRADE and abs(round(value, got) - value) < 1e-11 * value)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (47.3, 473),
        (1200.0, 12),
        (0.5, 1),
        (0.25, 1),
        (0.375, 3),
        (1 / 3, 3),
        (44 / 97, 44 * 97),
        (2.0, 1),
    ],
)
def test_simplicity_is_what_it_takes_to_write_a_number(value: float, written: int) -> None:
    """Decimal digits, binary digits or a fraction, whichever is shortest."""
    assert simplicity(np.array([value]))[0] == pytest.approx(1 / (1 + written))


def test_long_numbers_are_not_simple() -> None:
    """No random double has a short form."""
    assert simplicity(RNG.normal(size=10_000)).max() < 1e-6
    assert simplicity(np.array([0.0, np.inf, np.nan])).tolist() == [1.0, 0.0, 0.0]


@given(st.integers(1, 400), st.integers(1, 400))
def test_fractions_are_recognised(top: int, bottom: int) -> None:
    """A quotient of small whole numbers is at least as simple as its reduced form."""
    reduced = Fraction(top, bottom)
    least = 1 / (1 + reduced.numerator * reduced.denominator)
    assert simplicity(np.array([top / bottom]))[0] >= least * (1 - 1e-9)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (np.pi, {DOUBLE}),
        (float(np.float32(np.pi)), {SINGLE}),
        (float(np.float16(1 / 3)), {HALF}),
        (float(np.float16(0.3125)), {HALF, BRAIN}),
    ],
)
def test_numbers_are_sorted_by_the_type_that_holds_them(value: float, wanted: set[object]) -> None:
    """A double, or what a shorter float became."""
    found = {one for one, at in precisions_of(np.array([value])) if len(at) and one.step is None}
    assert found >= wanted
    assert (DOUBLE in found) == (DOUBLE in wanted)


def test_cells_and_keys() -> None:
    """Numbers are equal by key exactly if they round to the same."""
    values = RNG.normal(50, 10, 1000)
    for precision, rounded in (
        (SINGLE, values.astype(np.float32)),
        (HALF, values.astype(np.float16)),
    ):
        keys = precision.keys(values)
        assert np.array_equal(keys, precision.keys(rounded.astype(float)))
        assert np.all(np.abs(values - rounded) <= precision.spacing(values) / 2 * (1 + 1e-12))
    assert HALF.spacing(np.array([50.0]))[0] == np.spacing(np.float16(50))


def test_fixed_point_is_found_by_block() -> None:
    """Multiples of 2^-20 share their grid; one long number in a block says that it has none."""
    coarse = np.floor(RNG.uniform(0, 1, 50) * 2**30 + 1) / 2**30
    values = np.concatenate([coarse, coarse, [np.pi]])
    blocks = np.repeat([0, 1, 1], [50, 50, 1])
    found = {one.name: set(owners.tolist()) for one, _, owners in split_by_grid(values, blocks)}
    assert found["all its digits"] == {1}
    (grid,) = [owners for name, owners in found.items() if "2^-30" in name]
    assert grid == {0}


def test_days_are_of_one_precision_however_many_zeros_they_end_with() -> None:
    """1973-03-11, 1974-05-11 and 1986-01-01 in seconds; the second is a multiple of 100 only."""
    days = np.array([100656000.0, 137462400.0, 504921600.0])
    (each,) = [(one, at) for one, at in precisions_of(days) if len(at)]
    assert each[0].step == 100 and each[1].tolist() == [0, 1, 2]
    others = [at.tolist() for _, at in precisions_of(days + 40000) if len(at)]
    assert sorted(others) != [[0, 1, 2]]
