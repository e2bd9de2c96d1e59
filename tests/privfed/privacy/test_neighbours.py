"""Group privacy: guarantees restated by theorem, and refused where none leads."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from privfed.accountants import pld
from privfed.errors import UnsupportedLoss
from privfed.privacy.laws import BitFlips, Charged, DiscreteGaussian, DiscreteLaplace
from privfed.privacy.loss import Loss
from privfed.privacy.neighbours import Neighbours, convert, group

RECORD = Neighbours()
REPLACED = Neighbours("replace-one")
PERSON = Neighbours("add-or-remove", "individual", 5)


def test_replacing_is_two_steps() -> None:
    """Pure epsilon doubles, zCDP quadruples."""
    assert convert(Loss.pure("0.3"), RECORD, REPLACED).epsilon == Fraction(6, 10)
    assert convert(Loss.zcdp("0.3"), RECORD, REPLACED).rho == Fraction(12, 10)


def test_a_person_is_as_many_steps_as_records() -> None:
    """Five records: five times epsilon; replacing a person, ten times."""
    assert convert(Loss.pure("0.1"), RECORD, PERSON).epsilon == Fraction(1, 2)
    both = Neighbours("replace-one", "individual", 5)
    assert convert(Loss.pure("0.1"), RECORD, both).epsilon == 1
    assert convert(Loss.pure("0.1"), PERSON, both).epsilon == Fraction(2, 10)


@pytest.mark.parametrize(
    ("have", "want"),
    [
        (REPLACED, RECORD),
        (REPLACED, Neighbours("replace-one", "individual", 5)),
        (PERSON, RECORD),
        (RECORD, Neighbours(unit="individual")),
        (RECORD, Neighbours(unit="rule")),
        (PERSON, Neighbours(unit="client", cap=9)),
        (PERSON, Neighbours(unit="individual", cap=6)),
    ],
)
def test_what_no_theorem_gives_is_refused(have: Neighbours, want: Neighbours) -> None:
    """From replacing to adding, or to persons, who differ in number of records; from persons to records, without a cap: no."""
    with pytest.raises(UnsupportedLoss):
        convert(Loss.pure("0.1"), have, want)


@given(st.integers(1, 6), st.floats(0.01, 2), st.floats(1e-9, 1e-4))
def test_delta_grows_as_the_chain_of_inequalities_does(
    steps: int, epsilon: float, delta: float
) -> None:
    """P_k <= e^eps P_(k-1) + delta, applied step by step."""
    loss = Loss(epsilon=Fraction(epsilon), delta=Fraction(delta))
    chained = sum(math.exp(epsilon * i) * delta for i in range(steps))
    try:
        grown = group(loss, steps)
    except UnsupportedLoss:
        assert chained >= 0.99
        return
    assert float(grown.delta) == pytest.approx(chained, rel=1e-9)
    assert float(grown.delta) >= chained * (1 - 1e-12)
    assert grown.epsilon == Fraction(epsilon) * steps


@given(st.integers(2, 10**6), st.fractions(0, 10**4), st.integers(0, 300))
@example(100, Fraction(8), 6)
@example(2, Fraction(400), 300)
def test_no_epsilon_is_too_large_for_a_group(steps: int, epsilon: Fraction, power: int) -> None:
    """e^800 is no float: a page of two policies ended with Python's error after both had been paid for."""
    loss, grows = Loss(epsilon, delta=Fraction(1, 10**power) / 2), (steps - 1) * float(epsilon)
    try:
        grown = group(loss, steps).delta
        assert loss.delta < grown < 1 and grows < math.log(2) + power * math.log(10)
    except UnsupportedLoss:
        assert grows + math.log(steps) > power * math.log(10) - 1


def test_laws_are_shifted_with_the_group() -> None:
    """The same noise under a greater shift gives the greater loss."""
    loss = Loss.pure("0.1", Charged(DiscreteLaplace("100.0"), 10)) + Loss.pure(
        "0.2", Charged(BitFlips("1/4"), 1)
    )
    shifted = (Charged(DiscreteLaplace(100.0), 30), Charged(BitFlips("1/4"), 3))
    assert group(loss, 3).laws == shifted
    gaussian = Loss.zcdp("0.5", Charged(DiscreteGaussian("2.0"), 4))
    assert group(gaussian, 3).laws == (Charged(DiscreteGaussian("2.0"), 36),)
    assert (
        pld.epsilon_at([group(Loss.pure("0.1", Charged(DiscreteLaplace("10.0"), 1)), 3)], 0.0)
        <= 0.3 * 1.02
    )


def test_unprotected_stays_unprotected() -> None:
    """No theorem makes a guarantee of none."""
    assert not group(Loss.open("why"), 3).finite
    with pytest.raises(UnsupportedLoss):
        group(Loss(rho=Fraction(1), delta=Fraction(1, 100)), 2)
