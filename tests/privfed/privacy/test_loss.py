"""What a release costs: several true statements at once, added up one by one."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.errors import InputError
from privfed.mechanisms.gaussian import Gaussian
from privfed.mechanisms.laplace import Laplace
from privfed.privacy.laws import BitFlips, Charged, DiscreteGaussian, DiscreteLaplace
from privfed.privacy.loss import Loss, covers, pure_to_zcdp
from privfed.questions.part import Bound

LOSSES = st.one_of(
    st.fractions(0, 5).map(Loss.pure),
    st.fractions(0, 5).map(Loss.zcdp),
    st.just(Loss.open("exact")),
    st.just(Loss.free()),
)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"delta": Fraction(1, 10)},
        {"epsilon": Fraction(-1)},
        {"epsilon": float("nan")},
        {"rho": 0.5},
        {"rho": Fraction(1), "delta": Fraction(1)},
    ],
)
def test_contradictory_losses(fields: dict[str, object]) -> None:
    """A loss is bounded by exact numbers or unprotected, never both or neither."""
    with pytest.raises(InputError):
        Loss(**fields)  # type: ignore[arg-type]


@given(LOSSES, LOSSES)
def test_addition(one: Loss, other: Loss) -> None:
    """Statements add up, order does not matter, and one open loss opens the sum."""
    total = one + other
    assert total.to_dict() == (other + one).to_dict()
    assert total.finite == (one.finite and other.finite)
    if total.epsilon is not None:
        assert total.epsilon == (one.epsilon or 0) + (other.epsilon or 0)


def test_a_statement_that_one_lacks_is_lost() -> None:
    """Gaussian noise has no pure epsilon, and neither has a sum with it."""
    total = Loss.pure("0.5") + Loss.zcdp("0.1")
    assert total.epsilon is None
    assert total.rho == pure_to_zcdp(Fraction(1, 2)) + Fraction(1, 10)


@given(LOSSES)
def test_plain_data_round_trip(loss: Loss) -> None:
    """What the ledger stores is read back exactly."""
    assert Loss.from_dict(loss.to_dict()) == loss


def divergence(epsilon: float, alpha: float) -> float:
    """Renyi divergence of order alpha between the two laws of randomized response, in nats."""
    truth = 1 / (1 + math.exp(-epsilon))
    lie = 1 - truth
    total = truth**alpha * lie ** (1 - alpha) + lie**alpha * truth ** (1 - alpha)
    return math.log(total) / (alpha - 1)


@given(st.floats(0.01, 8), st.floats(1.001, 60))
def test_zcdp_of_a_pure_loss(epsilon: float, alpha: float) -> None:
    """The rho of a pure loss bounds randomized response at every order (the worst case)."""
    rho = float(pure_to_zcdp(Fraction(epsilon)))
    assert divergence(epsilon, alpha) <= rho * alpha * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_zcdp_of_a_pure_loss_is_tight(epsilon: float) -> None:
    """A rho smaller by a thousandth would be false, close to order one."""
    rho = float(pure_to_zcdp(Fraction(epsilon)))
    assert divergence(epsilon, 1 + 1e-5) > rho * 0.999


def test_an_open_part_beside_a_protected_one_keeps_what_that_costs() -> None:
    """No finite guarantee in all, and the protected part's cost counts against a budget still."""
    mixed = Loss.open("exact") + Loss.pure("0.5") + Loss.pure("0.25") + Loss.open("again")
    assert (mixed.finite, mixed.counted, mixed.unprotected) == (False, True, "exact")
    assert mixed.epsilon == Fraction(3, 4)
    assert Loss.from_dict(mixed.to_dict()) == mixed
    assert (Loss.open("a") + Loss.open("b")).counted is False


@pytest.mark.parametrize(
    ("loss", "sound"),
    [
        (Loss.pure("0.1", Charged(DiscreteLaplace("10.0"), 1)), True),
        (Loss.pure("0.001", Charged(DiscreteLaplace("1.0"), 1)), False),
        (Loss.zcdp("0.5", Charged(DiscreteGaussian("2.0"), 4)), True),
        (Loss.zcdp("0.4", Charged(DiscreteGaussian("2.0"), 4)), False),
        (Loss(Fraction(2), laws=(Charged(BitFlips("1/4"), 1),)), True),
        (Loss(Fraction(1), laws=(Charged(BitFlips("1/4"), 1),)), False),
        (Loss.pure("0.1"), True),
        (Loss.open("why"), True),
    ],
)
def test_a_loss_is_held_against_the_laws_of_its_noise(loss: Loss, sound: bool) -> None:
    """What is stated is at least what the noise loses by its own law."""
    assert covers(loss) == sound


@given(st.fractions(Fraction(1, 1000), Fraction(20), max_denominator=10**6), st.integers(1, 2**40))
def test_an_honest_price_is_never_below_its_own_law(spend: Fraction, units: int) -> None:
    """A scale's text names a float; read as a decimal, half of all honest losses would fall short."""
    for mechanism in (Laplace(), Gaussian()):
        bound = Bound(units, units)
        scale = mechanism.scale(bound, spend)
        assert covers(mechanism.loss(bound, spend, scale))
