"""Randomized response: a flip exact to the last of 64 bits, priced as OpenDP prices it."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privfed.mechanisms.randomized_response import (
    RandomizedResponse,
    flip_probability,
)
from privfed.owner.opendp_maps import checked
from privfed.privacy.laws import BitFlips
from privfed.privacy.mechanism import BoundedPart
from privfed.privacy.noise import TestNoise
from privfed.questions.part import Bound, Part, PartType

SPENDS = st.fractions(Fraction(1, 10**6), Fraction(40), max_denominator=10**9)


def bits(bound: int = 1, cells: int = 4) -> dict[str, BoundedPart]:
    """A part of bits, ``bound`` of which one unit can change."""
    return {
        "bits": BoundedPart(Part(PartType.BITS, ("individual",), (cells,)), Bound(bound, bound))
    }


@given(SPENDS)
def test_flip_is_exact(epsilon: Fraction) -> None:
    """The least multiple of 2^-64 that is at least 1 / (1 + e^epsilon), by 200 digits."""
    with localcontext() as context:
        context.prec = 200
        value = (Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp()
        share = Decimal(2**64) / (1 + value)
    threshold = int(flip_probability(epsilon) * 2**64)
    assert threshold - 1 < share <= threshold


@pytest.mark.parametrize("exponent", [15, 25, 40, 100, 300])
def test_a_tiny_epsilon_flips_half(exponent: int) -> None:
    """A flip above one half would give more away than it was charged for."""
    assert flip_probability(Fraction(1, 10**exponent)) <= Fraction(1, 2)
    assert flip_probability(Fraction(1, 10**exponent)) > Fraction(1, 2) - Fraction(1, 10**15)


def test_a_large_epsilon_still_flips() -> None:
    """However much is spent, a bit may be a lie."""
    assert flip_probability(Fraction(1000)) == Fraction(1, 2**64)


@settings(max_examples=50)
@given(st.fractions(Fraction(1, 100), Fraction(10), max_denominator=10**6))
def test_charge_beside_opendp(spend: Fraction) -> None:
    """OpenDP's map of the same flip exceeds our charge by its outward rounding at most."""
    flip = flip_probability(spend)
    mapped = dp.m.make_randomized_response_bool(prob=float(1 - flip)).map(1)
    charge = RandomizedResponse().price(bits(), spend).loss
    assert charge.epsilon == spend
    assert abs(mapped / float(spend) - 1) <= 1e-6


@given(
    st.fractions(1, 10**6) | st.fractions(30, 45) | st.fractions(0, Fraction(1, 1000)),
    st.integers(0, 18),
    st.sampled_from([1, 3, 1000]),
)
@example(Fraction(34), 0, 1)
@example(Fraction(40), 0, 1)
@example(Fraction(1, 10**5), 0, 1000)
def test_no_spend_is_too_large_or_too_small(spend: Fraction, power: int, bound: int) -> None:
    """Its own loss, and OpenDP's map, are of floats near 1 and near one half: above 33 and below 1e-4 it was found unsound."""
    spend = (spend or Fraction(1)) / 10**power
    loss = checked(RandomizedResponse(), bits(bound), spend * bound).loss
    assert loss.epsilon == spend * bound


@given(st.integers(1, 2**63 - 1) | st.integers(1, 62).map(lambda power: 2**63 - 2**power))
@example(1)
@example(2**63 - 1)
def test_a_flips_loss_is_known_to_twelve_digits(threshold: int) -> None:
    """ln((1 - q) / q), and never more, however near q is to one half: by sixty digits."""
    with localcontext() as context:
        context.prec = 60
        exactly = (Decimal(2**64 - threshold) / Decimal(threshold)).ln()
        lost = Decimal(float(BitFlips(Fraction(threshold, 2**64)).loses(1)))
        assert exactly * (1 - Decimal("2e-12")) <= lost <= exactly


@pytest.mark.parametrize("bound", [1, 3])
def test_bits_share_the_spend(bound: int) -> None:
    """A unit that can change three bits gets a third of the epsilon on each."""
    law = RandomizedResponse().price(bits(bound), Fraction(3)).laws["bits"]
    assert law == BitFlips(flip_probability(Fraction(3, bound)))


def test_no_number_of_bits_makes_a_total_too_long_to_read() -> None:
    """Of a small spend the exact rho was charged, whose denominator is as many bits as a question has templates."""
    each = [
        RandomizedResponse().price(bits(n), Fraction(1, 10**4)).loss.rho for n in range(1, 3000)
    ]
    assert None not in each and len(str(sum(filter(None, each)))) < 1000


def test_no_bit_that_moves_is_free() -> None:
    """Zero sensitivity: the exact bits, free."""
    group = bits(0)
    exact = {"bits": np.array([True, False, True, False])}
    assert RandomizedResponse().price(group, Fraction(1)).loss.epsilon == 0
    protected = RandomizedResponse().price(group, Fraction(1)).protect(exact, TestNoise(1), {})
    assert protected["bits"].tolist() == [True, False, True, False]


def test_estimate_is_unbiased() -> None:
    """Ten thousand answers give the count back within five standard errors."""
    truth = np.arange(10_000) < 3_000
    spend = Fraction(1)
    priced = RandomizedResponse().price(bits(cells=10_000), spend)
    protected = priced.protect({"bits": truth}, TestNoise(3))
    flip = float(flip_probability(spend))
    deviation = (10_000 * flip * (1 - flip)) ** 0.5 / (1 - 2 * flip)
    yes = int(protected["bits"].sum())
    assert abs((yes - 10_000 * flip) / (1 - 2 * flip) - 3_000) < 5 * deviation
    assert abs(yes - 3_000) > 5 * deviation * (1 - 2 * flip)  # uncorrected, it is far off


@pytest.mark.parametrize("part_type", [PartType.COUNTS, PartType.SUMS, PartType.VALUES])
def test_bits_only(part_type: PartType) -> None:
    """Nothing but bits can be flipped."""
    group = {"part": BoundedPart(Part(part_type, ("bin",), (4,)), Bound(1, 1))}
    assert not RandomizedResponse().supports(group)
    unbounded = {"bits": BoundedPart(Part(PartType.BITS, ("individual",), (4,)), None)}
    assert not RandomizedResponse().supports(unbounded)
