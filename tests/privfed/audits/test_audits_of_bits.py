"""Audits of mechanisms of bits: on as many bits as one unit can change, all turned at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

from privfed.audits.mechanisms import (
    MOST_BITS,
    SEEN_BITS,
    audit,
    claim_of,
    is_for_bits,
    of_bits,
    outputs,
)
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.privacy.conversion import to_epsilon
from privfed.privacy.loss import Loss
from privfed.privacy.mechanism import BoundedPart, Mechanism, Protection
from privfed.privacy.noise import SecureNoise, TestNoise
from privfed.testing.faulty import OpenBitResponse, UnsharedResponse, YesLeaningResponse

#: One audit in a million may convict an innocent mechanism.
ALPHA = 1e-6
TRIALS = 20_000
USES = pytest.mark.parametrize(
    ("bits", "spend"), [(2, "1"), (3, "0.3"), (8, "2"), (40, "1"), (40, "4"), (1000, "1")]
)


@USES
@pytest.mark.parametrize("secure", [True, False])
def test_the_right_response_is_acquitted(bits: int, spend: str, secure: bool) -> None:
    """Each of m bits at an m-th of epsilon: together they prove something, and no more than it."""
    noise = SecureNoise() if secure else TestNoise(7)
    found = audit(RandomizedResponse(), spend, steps=bits, trials=TRIALS, alpha=ALPHA, noise=noise)
    assert found.severity == "none"
    assert found.of == float(spend)
    assert 0 <= found.value <= found.of


@USES
def test_a_spend_that_is_not_shared_is_convicted(bits: int, spend: str) -> None:
    """The planted fault: each bit at the whole of epsilon proves more than epsilon."""
    found = audit(
        UnsharedResponse(), spend, steps=bits, trials=TRIALS, alpha=ALPHA, noise=TestNoise(7)
    )
    assert found.severity == "breach"
    assert found.of == float(spend)
    assert found.value > 1.1 * found.of


def test_one_bit_has_nothing_to_share() -> None:
    """On a single bit the same mechanism is right, and is acquitted."""
    found = audit(UnsharedResponse(), "1", steps=1, trials=TRIALS, alpha=ALPHA, noise=TestNoise(7))
    assert found.severity == "none"
    assert found.value > 0.8


@pytest.mark.parametrize("bits", [1, 2, 9])
@pytest.mark.parametrize("mechanism", [OpenBitResponse(), YesLeaningResponse()])
def test_other_faults_are_convicted_on_several_bits(mechanism: Mechanism, bits: int) -> None:
    """A bit that leaves as it is, and answers that lean to yes."""
    found = audit(mechanism, "1", steps=bits, trials=TRIALS, alpha=ALPHA, noise=TestNoise(7))
    assert found.severity == "breach"


def test_two_bits_prove_most_of_what_they_cost() -> None:
    """The audit is not idle: of epsilon 2 over two bits it proves nine tenths."""
    found = audit(
        RandomizedResponse(), "2", steps=2, trials=100_000, alpha=ALPHA, noise=TestNoise(3)
    )
    assert 0.9 * 2 < found.value <= 2


@pytest.mark.parametrize("bits", [2, SEEN_BITS, 40, 5000])
def test_outputs_are_the_number_of_yes_answers_and_the_first_of_them(bits: int) -> None:
    """Hardly flipped, a unit that holds everything says yes to everything, and the other to nothing."""
    seen, turned = min(bits, SEEN_BITS), min(bits, MOST_BITS)
    for value in (0, 1):
        found = outputs(RandomizedResponse(), value, 7, Fraction(40 * bits), TestNoise(1), bits)
        assert found.shape == (7, 1 + seen)
        assert (found[:, 0] == value * turned).all()
        assert (found[:, 1:] == value).all()


def test_a_single_bit_is_its_own_output() -> None:
    """One bit a run, as a bit."""
    found = outputs(RandomizedResponse(), 1, 9, Fraction(40), TestNoise(1))
    assert found.dtype == bool
    assert found.tolist() == [True] * 9


class ConcentratedResponse(RandomizedResponse):
    """Randomized response that is charged in rho: m bits at epsilon each are m epsilon^2 / 2-zCDP."""

    name: ClassVar[str] = "randomized-in-rho"
    currency: ClassVar[str | None] = "rho"

    def price(self, group: Mapping[str, BoundedPart], spend: Fraction) -> Protection:
        """Zero-concentrated alone, with the flips of that much epsilon."""
        return replace(super().price(group, spend), stated=Loss.zcdp(spend))


def test_a_claim_in_rho_on_bits_is_no_gaussians() -> None:
    """It is stated by zCDP's own conversion, and the number of bits is not widened."""
    mechanism = ConcentratedResponse()
    assert is_for_bits(mechanism, 3)
    assert claim_of(mechanism.price(of_bits(3), Fraction(1, 2)), 1e-5).epsilon == to_epsilon(
        0.5, 1e-5
    )
    found = audit(
        mechanism, "0.5", delta=1e-5, steps=3, trials=TRIALS, alpha=ALPHA, noise=TestNoise(1)
    )
    assert found.severity == "none"
    assert found.of == to_epsilon(0.5, 1e-5)
    assert np.isfinite(found.value)
