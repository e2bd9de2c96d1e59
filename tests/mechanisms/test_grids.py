"""One guard over parts of different grids: the spend is divided by grid, and nothing drowns."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.accountants.pld import epsilon_at
from privfed.mechanisms.additive import AdditiveNoise
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.privacy.laws import Charged
from privfed.privacy.mechanism import BoundedPart, shares
from privfed.privacy.noise import TestNoise
from privfed.questions.part import GRID, Bound, Part, PartType

UNIT = 2**30
SPENDS = st.fractions(Fraction(1, 100), Fraction(20), max_denominator=10**4)
GRIDS = st.sampled_from([Fraction(1), GRID, Fraction(1, 3)])
PARTS = st.lists(st.tuples(GRIDS, st.integers(0, 2**20)), min_size=1, max_size=4)


def part(grid: Fraction, l1: int, l2_squared: int | None = None) -> BoundedPart:
    """A part of four cells on a grid."""
    cells = Part(PartType.SUMS, ("cell",), (4,), grid=grid)
    return BoundedPart(cells, Bound(l1, l1**2 if l2_squared is None else l2_squared))


COUNT_AND_SUM = {"counts": part(Fraction(1), 1), "sums": part(GRID, UNIT)}


def test_a_count_beside_a_sum_is_not_drowned() -> None:
    """Of 4,096 records, at epsilon 1, four cells are told within a few dozen."""
    exact = {"counts": np.full(4, 4096), "sums": np.full(4, 4096 * UNIT // 2)}
    priced = Laplace().price(COUNT_AND_SUM, Fraction(1))
    released = priced.protect(exact, TestNoise(1))
    assert np.abs(released["counts"] - 4096).max() < 40
    assert np.abs(released["sums"] * float(GRID) - 2048).max() < 40
    assert priced.laws["counts"].parameter == 2.0
    assert priced.laws["sums"].parameter == 2.0 * UNIT
    assert priced.loss.epsilon == 1 and len(priced.loss.laws) == 2


@given(PARTS, SPENDS)
def test_each_grid_gets_an_equal_share_and_all_of_it_is_spent(
    sizes: list[tuple[Fraction, int]], spend: Fraction
) -> None:
    """In exact fractions; a grid on which nothing moves takes no share."""
    group = {f"part {i}": part(grid, l1) for i, (grid, l1) in enumerate(sizes)}
    moving = {grid for grid, l1 in sizes if l1}
    divided = list(shares(group, spend))
    assert {group[names[0]].part.grid for names, *_ in divided} == moving
    assert sum(share for *_, share in divided) == (spend if moving else 0)
    for names, bound, share in divided:
        assert share == spend / len(moving)
        bounds = [group[name].bound for name in names]
        assert bound.l1 == sum(one.l1 for one in bounds if one is not None)


@settings(max_examples=60)
@given(PARTS, SPENDS, st.data())
@pytest.mark.parametrize("mechanism", [Laplace(), Gaussian()])
def test_no_neighbour_tells_more_than_the_spend(
    mechanism: AdditiveNoise,
    sizes: list[tuple[Fraction, int]],
    spend: Fraction,
    data: st.DataObject,
) -> None:
    """Brute force: move every part as far as its bound allows, over its cells in any way.

    Laplace noise tells at most the sum over cells of shift / scale; Gaussian noise the sum of
    shift^2 / (2 sigma^2). Neither exceeds the spend, in exact fractions.
    """
    group = {f"part {i}": part(grid, l1) for i, (grid, l1) in enumerate(sizes)}
    priced = mechanism.price(group, spend)
    told = Fraction(0)
    for (_, l1), (name, bounded) in zip(sizes, group.items(), strict=True):
        if not l1:
            assert name not in priced.laws or bounded.part.grid in {g for g, n in sizes if n}
            continue
        cuts = sorted(data.draw(st.lists(st.integers(0, l1), min_size=3, max_size=3)))
        moves = np.diff([0, *cuts, l1])
        scale = Fraction(priced.laws[name].parameter)
        for move in map(int, moves):
            laplace = isinstance(mechanism, Laplace)
            told += move / scale if laplace else move**2 / (2 * scale**2)
    assert told <= spend
    charged = priced.loss.epsilon if isinstance(mechanism, Laplace) else priced.loss.rho
    assert charged == (spend if any(l1 for _, l1 in sizes) else 0)


@pytest.mark.parametrize("mechanism", [Laplace(), Gaussian()])
def test_restating_a_grid_changes_no_noise(mechanism: AdditiveNoise) -> None:
    """A sum in finer units has noise of the same size, and so has the count beside it."""
    finer = {"counts": COUNT_AND_SUM["counts"], "sums": part(GRID / 1024, UNIT * 1024)}
    one, other = (mechanism.price(group, Fraction(1)).laws for group in (COUNT_AND_SUM, finer))
    assert other["counts"] == one["counts"]
    assert other["sums"].parameter == pytest.approx(1024 * one["sums"].parameter, rel=1e-12)


@pytest.mark.parametrize("mechanism", [Laplace(), Gaussian()])
@pytest.mark.parametrize("grid", [Fraction(1), GRID])
def test_parts_of_one_grid_are_as_they_were(mechanism: AdditiveNoise, grid: Fraction) -> None:
    """One scale and one law for all of them, joint over the parts, drawn in their order."""
    group = {"a": part(grid, 3, 9), "b": part(grid, 5, 7)}
    priced = mechanism.price(group, Fraction(1, 2))
    scale = 16.0 if isinstance(mechanism, Laplace) else 4.0
    norm = 8 if isinstance(mechanism, Laplace) else 16
    assert priced.loss.laws == (Charged(mechanism.law(scale), norm),)
    released = priced.protect({"a": np.zeros(4, int), "b": np.zeros(4, int)}, TestNoise(3))
    source = TestNoise(3)
    for name in group:
        assert np.array_equal(released[name].data, mechanism.law(scale).draw(source, 4))


def test_a_distribution_of_privacy_losses_composes_both_laws() -> None:
    """The tight accountant gives no more than the sum, and more than either half."""
    loss = Laplace().price(COUNT_AND_SUM, Fraction(1)).loss
    half = Laplace().price({"counts": COUNT_AND_SUM["counts"]}, Fraction(1, 2)).loss
    both, one = (epsilon_at([each], 1e-6) for each in (loss, half))
    assert 0.5 * (1 - 1e-3) < one < 0.5 * (1 + 1e-3) < both < 1 + 1e-3
