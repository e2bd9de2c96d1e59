"""The odometer's levels: a total is read at the next one above it, whatever lies in between."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.accountants.zcdp import FINEST, LEVEL, ZeroConcentrated, checkpoints, odometer
from privfed.questions.exact import RESOLUTION

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


BUDGET, SHARE = Fraction(123, 100), Fraction(3, 4)


def weights(count: int = 4000) -> float:
    """What the shares of delta of a first block and of all levels around a ceiling add up to."""
    found: dict[float, float] = {}
    for number in range(-count, count + 1):
        total = Fraction(float(BUDGET) * LEVEL ** (number / 10))
        found |= dict(checkpoints(total, 1.0, (SHARE, BUDGET)))
    return sum(found.values())


def test_all_checkpoints_together_have_one_delta() -> None:
    """One half for the first block's share, the other for the levels around the first ceiling."""
    assert 0.99 < weights() <= 1


@given(st.floats(1e-6, 50))
def test_every_checkpoint_that_is_read_holds_the_total(rho: float) -> None:
    """A figure below the total's own tail would be nobody's: no checkpoint below a total is read."""
    read_at = checkpoints(Fraction(rho), 1e-5, (SHARE, BUDGET))
    assert all(level >= rho * (1 - 1e-12) for level, _ in read_at)
    figure = float(odometer(Fraction(rho), DELTA, (SHARE, BUDGET))[0])
    assert figure >= rho + 2 * math.sqrt(rho * math.log(1e5))


@given(st.fractions(Fraction(1, 10**6), 50), st.fractions(Fraction(1, 10**6), 50))
def test_a_fixed_total_reads_itself_and_is_never_rounded_down(
    one: Fraction, more: Fraction
) -> None:
    """No float holds a third: at the first share and at the ceiling there is a checkpoint just above, of their own."""
    for rho in (one, one + more):
        levels = [Fraction(level) for level, _ in checkpoints(rho, 1e-5, (one, one + more))]
        assert all(level >= rho for level in levels)
        assert min(levels) <= rho * (1 + Fraction(1, 10**15))
    epsilon, _ = odometer(one, DELTA, (one, one + more))
    assert (epsilon * RESOLUTION).denominator == 1
    best = min(
        c + 2 * math.sqrt(c * math.log(1 / d)) for c, d in checkpoints(one, 1e-5, (one, one + more))
    )
    assert epsilon > Fraction(best)


def test_a_first_block_and_an_amended_budget_read_nearer_than_by_the_plain_levels() -> None:
    """A study of 6 under 8 reads 6.83 and not 8; a budget of 12 put in force later, 11.8 and not 13.5."""
    fixed = (Fraction("0.754626427"), Fraction("1.229714525"))
    once, later = fixed[0], Fraction("1.501")
    assert float(odometer(once, DELTA, fixed)[0]) == pytest.approx(6.825, abs=1e-3)
    assert float(odometer(later, DELTA, fixed)[0]) == pytest.approx(11.8, abs=0.05)
    assert float(odometer(later, DELTA)[0]) == pytest.approx(13.54, abs=0.05)


def test_a_server_that_stops_at_will_exceeds_the_figures_by_their_delta_at_most() -> None:
    """By simulation: blocks chosen by what was seen, and stopped where the loss is worst for its figure.

    The figure that was promised for fixed moments fails, so that the stopping has power.
    """
    rng, steps, delta = np.random.default_rng(7), 200, Fraction(1, 20)
    fixed = (Fraction(1, 4), Fraction(1))
    totals = [Fraction(2 * (n + 1), steps) for n in range(steps)]
    told = np.array([float(odometer(total, delta, fixed)[0]) for total in totals])
    naive = np.array([t + 2 * math.sqrt(t * math.log(20)) for t in map(float, totals)])
    losses = np.cumsum(rng.normal(2 / steps, math.sqrt(4 / steps), (20_000, steps)), axis=1)
    assert (losses > told).any(axis=1).mean() < 0.05
    tight = np.array([t + math.sqrt(2 * t) * 1.6449 for t in map(float, totals)])
    assert (losses > tight).any(axis=1).mean() > 0.1
    assert (losses > naive).any(axis=1).mean() > (losses > told).any(axis=1).mean()
