"""Gaussian noise: the charge beside OpenDP's own map, and a deviation that is never too small."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.mechanisms.gaussian import Gaussian
from privfed.privacy.laws import Charged, DiscreteGaussian
from privfed.privacy.mechanism import BoundedPart, joint
from privfed.privacy.noise import TestNoise
from privfed.questions.part import Bound, Part, PartType

SPENDS = st.fractions(Fraction(1, 10_000), Fraction(20), max_denominator=10**6)


def counts(*squares: int) -> dict[str, BoundedPart]:
    """Parts of counts with squared L2 norms."""
    part = Part(PartType.COUNTS, ("bin",), (4,))
    return {
        f"part {i}": BoundedPart(part, Bound(square, square)) for i, square in enumerate(squares)
    }


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=3), SPENDS)
def test_deviation_is_never_too_small(squares: list[int], spend: Fraction) -> None:
    """D^2 / (2 sigma^2) is at most the charge, in exact fractions, and sigma is nearly the least."""
    total = sum(squares)
    if total == 0:
        return
    sigma = Fraction(Gaussian().scale(joint(counts(*squares)), spend))
    assert total / (2 * sigma**2) <= spend
    assert total / (2 * (sigma * (1 - Fraction(1, 10**15))) ** 2) > spend


@settings(max_examples=50)
@given(st.integers(1, 2**20), SPENDS)
def test_charge_beside_opendp(norm: int, spend: Fraction) -> None:
    """OpenDP's map of the same measurement exceeds our charge by its outward rounding at most."""
    group = counts(norm**2)
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    mapped = dp.m.make_gaussian(*space, scale=Gaussian().scale(joint(group), spend)).map(
        float(norm)
    )
    charge = Gaussian().price(group, spend).loss.rho
    assert charge == spend
    assert abs(mapped / float(charge) - 1) <= 1e-6


def test_a_part_that_no_record_moves_is_free() -> None:
    """Zero sensitivity: the exact values, free, and no noise is claimed."""
    group = counts(0)
    assert Gaussian().price(group, Fraction(1)).loss.rho == 0
    assert Gaussian().price(group, Fraction(1)).laws == {}
    protected = (
        Gaussian().price(group, Fraction(1)).protect({"part 0": np.arange(4)}, TestNoise(1), {})
    )
    assert protected["part 0"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("spend", [Fraction(1, 2**102), Fraction(1, 10**300)])
def test_noise_that_integers_cannot_hold(spend: Fraction) -> None:
    """Too small a spend is refused before anything is released."""
    with pytest.raises(ValueError, match="64-bit"):
        Gaussian().price(counts(1), spend)


def test_no_pure_epsilon() -> None:
    """Gaussian noise has no finite pure epsilon, and claims none."""
    loss = Gaussian().price(counts(1), Fraction(1, 2)).loss
    assert loss.epsilon is None
    assert loss.laws == (Charged(DiscreteGaussian(1.0), 1),)


@pytest.mark.parametrize("part_type", [PartType.BITS, PartType.VALUES, PartType.ARTIFACT])
def test_not_supported(part_type: PartType) -> None:
    """Bits are for randomized response; parts off the grid have no bound."""
    group = {"part": BoundedPart(Part(part_type, ("bin",), (4,)), Bound(1, 1))}
    assert not Gaussian().supports(group)
