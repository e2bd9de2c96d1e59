"""Laplace noise: the charge beside OpenDP's own map, and a scale that is never too small."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.mechanisms.laplace import Laplace
from privfed.privacy.laws import Charged, DiscreteLaplace
from privfed.privacy.mechanism import WIDEST, BoundedPart, joint
from privfed.privacy.noise import TestNoise
from privfed.questions.part import Bound, Part, PartType

SPENDS = st.fractions(Fraction(1, 1000), Fraction(20), max_denominator=10**6)
NORMS = st.lists(st.integers(0, 2**31), min_size=1, max_size=3)


def counts(*norms: int) -> dict[str, BoundedPart]:
    """Parts of counts with L1 norms."""
    part = Part(PartType.COUNTS, ("bin",), (4,))
    return {f"part {i}": BoundedPart(part, Bound(norm, norm**2)) for i, norm in enumerate(norms)}


@given(NORMS, SPENDS)
def test_scale_is_never_too_small(norms: list[int], spend: Fraction) -> None:
    """L1 over the scale is at most the charge, in exact fractions, and the scale is the least."""
    total = sum(norms)
    if total == 0:
        return
    scale = Laplace().scale(joint(counts(*norms)), spend)
    assert Fraction(total) / Fraction(scale) <= spend
    assert Fraction(total) / Fraction(float(np.nextafter(scale, 0))) > spend


@settings(max_examples=50)
@given(st.integers(1, 2**31), SPENDS)
def test_charge_beside_opendp(norm: int, spend: Fraction) -> None:
    """OpenDP's map of the same measurement exceeds our charge by its outward rounding at most."""
    group = counts(norm)
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    mapped = dp.m.make_laplace(*space, scale=Laplace().scale(joint(group), spend)).map(norm)
    charge = Laplace().price(group, spend).loss.epsilon
    assert charge == spend
    assert mapped <= float(charge) * (1 + 1e-6)
    assert mapped >= float(charge) * (1 - 1e-6)


def test_a_part_that_no_record_moves_is_free() -> None:
    """Zero sensitivity: the exact values, free, and no noise is claimed."""
    group = counts(0)
    exact = {"part 0": np.arange(4)}
    assert Laplace().price(group, Fraction(1)).loss.epsilon == 0
    assert Laplace().price(group, Fraction(1)).laws == {}
    protected = Laplace().price(group, Fraction(1)).protect(exact, TestNoise(1), {})
    assert protected["part 0"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("spend", [Fraction(1, 2**51), Fraction(1, 10**300)])
def test_noise_that_integers_cannot_hold(spend: Fraction) -> None:
    """Too small a spend is refused before anything is released."""
    with pytest.raises(ValueError, match="64-bit"):
        Laplace().price(counts(1), spend)
    assert Laplace().scale(Bound(1, 1), 1 / Fraction(WIDEST)) == WIDEST


@pytest.mark.parametrize(
    ("part_type", "bound", "supported"),
    [
        (PartType.COUNTS, Bound(1, 1), True),
        (PartType.SUMS, Bound(1, 1), True),
        (PartType.SCORES, Bound(1, 1), True),
        (PartType.BITS, Bound(1, 1), False),
        (PartType.VALUES, Bound(1, 1), False),
        (PartType.COUNTS, None, False),
    ],
)
def test_supports(part_type: PartType, bound: Bound | None, supported: bool) -> None:
    """Bounded parts on a grid, and no others."""
    group = {"part": BoundedPart(Part(part_type, ("bin",), (4,)), bound)}
    assert Laplace().supports(group) == supported


def test_the_published_law() -> None:
    """One scale for every part of the group, joint over them."""
    laws = Laplace().price(counts(1, 3), Fraction(1, 2)).laws
    assert laws == {"part 0": DiscreteLaplace(8.0), "part 1": DiscreteLaplace(8.0)}
    assert Laplace().price(counts(1, 3), Fraction(1, 2)).loss.laws == (
        Charged(DiscreteLaplace(8.0), 4),
    )
