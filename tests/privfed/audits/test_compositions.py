"""What an accountant of another package states is compared with exact composition."""

from __future__ import annotations

from fractions import Fraction

import pytest

from privfed import Budget, Policy
from privfed.audits.compositions import audit_composition, composed_delta, stopped_delta
from privfed.extend import Accountant, Amount, Loss
from privfed.privacy.conversion import gaussian_delta
from tests.own_accountant import PureAndRho, PureOnly


class Forgetful(PureOnly):
    """A planted fault: a thousandth of each charge."""

    def amount(self, loss: Loss) -> Amount:
        """Nearly nothing."""
        return (super().amount(loss)[0] / 1000,)


class Shy(PureOnly):
    """A planted fault: is wrong of one large loss alone."""

    def amount(self, loss: Loss) -> Amount:
        """Half of what is above one."""
        (epsilon,) = super().amount(loss)
        return (epsilon if epsilon <= 1 else epsilon / 2,)


def audited(accountant: Accountant, *losses: Loss) -> tuple[str, str]:
    """Severity, and why it is incomplete."""
    (found,) = audit_composition(
        Policy({}, budget=Budget.of(2, "1e-5"), accountant=accountant), losses
    )
    assert (found.value > 0) == (found.severity == "breach") and not found.simulation
    return found.severity, found.partial


@pytest.mark.parametrize("honest", [PureOnly(), PureAndRho()])
def test_an_honest_composition_is_not_contradicted(honest: Accountant) -> None:
    """Of a plan's losses neither, though their own rho is smaller than the worst of their epsilon."""
    assert audited(honest, Loss(Fraction(3), Fraction(1, 2))) == ("none", "")


def test_a_false_composition_is_disproved() -> None:
    """At once, or by a loss of the plan."""
    assert audited(Forgetful()) == ("breach", "")
    assert audited(Shy()) == ("none", "")
    assert audited(Shy(), Loss.pure(4)) == ("breach", "")


def test_ours_are_proven() -> None:
    """No audit of what is derived here."""
    assert audit_composition(Policy({}, budget=Budget.of(2), accountant="pure")) == []


def test_the_yardsticks() -> None:
    """One response alone: e^0.7 tells at most p - q; Gaussian noise of rho 1/2 at epsilon 1; both; a delta."""
    one, noise = [(Loss.pure("0.7"), 1)], [(Loss.zcdp("0.5"), 1)]
    assert composed_delta(one, 0.7) == pytest.approx(0, abs=1e-15)
    assert composed_delta(one, 0) == pytest.approx(0.3363755, abs=1e-6)
    assert gaussian_delta(1.0, 1.0) == pytest.approx(0.1269367, abs=1e-6)
    assert composed_delta(noise, 1.0) == pytest.approx(gaussian_delta(1.0, 1.0))
    assert gaussian_delta(1.0, 1.0) < composed_delta([*one, *noise], 1.0) < gaussian_delta(1.0, 0.3)
    assert composed_delta([(Loss(Fraction(1), delta=Fraction(1, 10)), 2)], 2) == pytest.approx(0.19)
    assert stopped_delta(0.7, [0, 0.7]) == pytest.approx(composed_delta(one, 0))
    assert stopped_delta(0.7, [0.7, 1.4]) == 0
