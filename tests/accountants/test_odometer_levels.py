"""The odometer's levels: a total is read at the next one above it, whatever lies in between."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.accountants.zcdp import FINEST, LEVEL, ZeroConcentrated, odometer

DELTA = Fraction(1, 10**5)
NUMBERS = st.integers(0, 400)


def level(number: float) -> float:
    """A level of the grid, or a place between two."""
    return float(FINEST * LEVEL**number)


def at(number: int, delta: float = 1e-5) -> float:
    """What a filter at a level states with the share of delta that is its own."""
    share = delta * 6 / (math.pi * (number + 1)) ** 2
    return level(number) + 2 * math.sqrt(level(number) * math.log(1 / share))


def read(rho: float) -> float:
    """What the odometer states at a total."""
    return float(odometer(Fraction(rho), DELTA)[0])


@given(NUMBERS, st.floats(0.01, 0.99))
def test_between_two_levels_the_upper_one_is_read(number: int, place: float) -> None:
    """Anywhere between level n - 1 and level n the figure is level n's own, and no smaller."""
    assert read(level(number - 1 + place)) == pytest.approx(at(number), rel=1e-9)


@given(NUMBERS, st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99)))
def test_totals_of_one_level_read_alike(number: int, places: tuple[float, float]) -> None:
    """Only the levels have a share of delta, so a figure in between would be covered by none."""
    one, other = (read(level(number - 1 + place)) for place in places)
    assert one == other


@given(NUMBERS)
def test_a_level_itself_is_covered_by_a_filter_at_or_above_it(number: int) -> None:
    """At a level the figure is that level's or the next one's, and beyond it the next one's."""
    inside, exactly, beyond = (read(level(number) * factor) for factor in (1 - 1e-6, 1.0, 1 + 1e-6))
    assert inside == pytest.approx(at(number), rel=1e-9)
    assert beyond == pytest.approx(at(number + 1), rel=1e-9)
    assert inside <= exactly * (1 + 1e-12)
    assert exactly <= beyond
    assert exactly >= at(number) * (1 - 1e-12)


@pytest.mark.parametrize("rho", [FINEST * 0.99, FINEST / 1e3, 1e-12])
def test_the_finest_level_is_the_least_figure(rho: float) -> None:
    """Below the grid the finest level is read; nothing spent reads nothing."""
    assert read(rho) == pytest.approx(at(0), rel=1e-9)
    assert odometer(Fraction(0), DELTA)[0] == 0


@given(NUMBERS)
def test_figures_are_never_rounded_down(number: int) -> None:
    """The exact figure that the accountant states is at least its level's."""
    total = Fraction(level(number - 0.5))
    stated, delta = ZeroConcentrated().odometer((total, Fraction(0)), DELTA)
    assert float(stated) >= at(number) * (1 - 1e-12)
    assert delta == DELTA
