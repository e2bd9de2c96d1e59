"""Accountants of one's own, as a plugin would bring them: an honest one and planted faults."""

from fractions import Fraction
from typing import Any, ClassVar

from privfed.extend import (
    Accountant,
    Amount,
    Budget,
    Loss,
    PolicyError,
    UnsupportedLoss,
    largest_rho,
    odometer,
    pure_to_zcdp,
    round_up,
    to_epsilon,
)


class PureOnly(Accountant):
    """Adds epsilons, and has no component for a delta."""

    name: ClassVar[str] = "pure_only"
    components: ClassVar[tuple[str, ...]] = ("epsilon",)

    def amount(self, loss: Loss) -> Amount:
        """The epsilon."""
        if loss.epsilon is None or loss.delta:
            raise UnsupportedLoss("this loss is not pure")
        return (loss.epsilon,)

    def ceiling(self, budget: Budget) -> Amount:
        """The budget's."""
        return (budget.epsilon,)

    def guarantee(self, total: Amount, delta: Fraction) -> tuple[Fraction, Fraction]:
        """The total."""
        return total[0], Fraction(0)


class PureAndRho(PureOnly):
    """Adds epsilons and rhos, in an order of its own; the better of both is the guarantee."""

    name: ClassVar[str] = "pure_and_rho"
    components: ClassVar[tuple[str, ...]] = ("epsilon", "rho")

    def amount(self, loss: Loss) -> Amount:
        """Both."""
        (epsilon,) = super().amount(loss)
        return epsilon, pure_to_zcdp(epsilon)

    def ceiling(self, budget: Budget) -> Amount:
        """Both, of one budget."""
        if not budget.delta:
            raise PolicyError("pure_and_rho needs a delta")
        return budget.epsilon, largest_rho(budget.epsilon, budget.delta)

    def guarantee(self, total: Amount, delta: Fraction) -> tuple[Fraction, Fraction]:
        """The better of both."""
        if not delta:
            return super().guarantee(total, delta)
        converted = round_up(to_epsilon(float(total[1]), float(delta)))
        return (converted, delta) if converted < total[0] else (total[0], Fraction(0))

    def odometer(
        self, total: Amount, delta: Fraction, fixed: Any = ()
    ) -> tuple[Fraction, Fraction]:
        """The better of both, at any moment."""
        told, at = odometer(total[1], delta, [one[1] for one in fixed])
        return (told, at) if told < total[0] else (total[0], Fraction(0))


class Misstated(PureOnly):
    """A planted fault: one method gives what it is told to."""

    name: ClassVar[str] = "misstated"

    def __init__(self, method: str, told: Any) -> None:
        self.method, self.told = method, told

    def _or(self, method: str, sound: Any) -> Any:
        if method != self.method:
            return sound
        if isinstance(self.told, Exception):
            raise self.told
        return self.told

    def amount(self, loss: Loss) -> Amount:
        """The epsilon, or what it is told to."""
        return self._or("amount", super().amount(loss))  # type: ignore[no-any-return]

    def ceiling(self, budget: Budget) -> Amount:
        """The budget's, or what it is told to."""
        return self._or("ceiling", super().ceiling(budget))  # type: ignore[no-any-return]

    def guarantee(self, total: Amount, delta: Fraction) -> tuple[Fraction, Fraction]:
        """The total, or what it is told to."""
        return self._or("guarantee", super().guarantee(total, delta))  # type: ignore[no-any-return]
