"""What a release costs: several true statements at once, added up one by one."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.errors import InputError
from privfed.loss import Loss, pure_to_zcdp

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
        {"epsilon": Fraction(1), "unprotected": "exact"},
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
