"""The base of every accountant: it composes losses under one relation and unit, and refuses.

An accountant turns a loss into an exact *amount*, a tuple of fractions that simply add up. Such a
sum, compared with a fixed ceiling before each release, is a valid filter: the order, the number and
the size of the charges may depend on earlier releases (Rogers et al. 2016 for pure epsilon,
Feldman and Zrnic 2021 and Whitehouse et al. 2023 for zCDP).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from privfed.errors import PolicyError
from privfed.exact import Number, exact, text
from privfed.loss import Loss

Amount = tuple[Fraction, ...]
#: The delta at which a total is stated where no budget names one.
STATED = Fraction(1, 10**5)


@dataclass(frozen=True)
class Budget:
    """A ceiling: (epsilon, delta); no ceiling is spelled as no budget at all."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if not (_is_fraction(self.epsilon) and _is_fraction(self.delta)):
            raise PolicyError('a budget needs exact numbers; write Budget.of("0.5", "1e-5")')
        if not self.epsilon > 0 or not 0 <= self.delta < 1:
            raise PolicyError("a budget needs epsilon above 0 and delta from 0 to below 1")

    @classmethod
    def of(cls, epsilon: Number, delta: Number = 0) -> Budget:
        """Read exact numbers from text; errors say which one is wrong."""
        return cls(exact(epsilon, "budget epsilon"), exact(delta, "budget delta", zero=True))

    def to_dict(self) -> dict[str, Any]:
        """Give the budget as plain data."""
        return {"epsilon": text(self.epsilon), "delta": text(self.delta)}


def _is_fraction(value: object) -> bool:
    return isinstance(value, Fraction)


class Accountant(ABC):
    """Composes losses by adding exact amounts, component by component."""

    #: What policies call it.
    name: ClassVar[str]
    #: What the components of an amount are, such as ``("rho", "delta")``.
    components: ClassVar[tuple[str, ...]]

    @abstractmethod
    def amount(self, loss: Loss) -> Amount:
        """Turn a loss into what it adds.

        Raises:
            UnsupportedLoss: the loss has no finite statement that this accountant composes.
        """

    @abstractmethod
    def ceiling(self, budget: Budget) -> Amount:
        """The largest total that still guarantees the budget, rounded down."""

    @abstractmethod
    def guarantee(self, total: Amount, delta: Fraction) -> tuple[Fraction, Fraction]:
        """Give (epsilon, delta) of a total, rounded up; ``delta`` is the one asked for."""

    def odometer(self, total: Amount, delta: Fraction) -> tuple[Fraction, Fraction]:
        """Give (epsilon, delta) of a running total that no ceiling bounds, at any moment.

        The moment may depend on all releases so far; where that makes a difference to
        :meth:`guarantee`, an accountant says so by its own method.
        """
        return self.guarantee(total, delta)

    def stated(self, total: Amount, budget: Budget | None) -> tuple[Fraction, Fraction]:
        """Give the (epsilon, delta) to tell of a total: every statement and report takes it here.

        Under a budget that is the guarantee at its delta; without one only the odometer holds, told
        at :data:`STATED`.
        """
        if budget is None:
            return self.odometer(total, STATED)
        return self.guarantee(total, budget.delta)

    @property
    def nothing(self) -> Amount:
        """The total before any charge."""
        return (Fraction(0),) * len(self.components)

    def cost(self, loss: Loss) -> Amount:
        """What a loss adds to a total: unprotected ones add nothing here and are counted apart."""
        return self.amount(loss) if loss.finite else self.nothing

    def add(self, total: Amount, loss: Loss) -> Amount:
        """Compose one more loss."""
        return plus(total, self.cost(loss))

    def fits(self, total: Amount, ceiling: Amount) -> bool:
        """Whether a total stays within a ceiling in every component."""
        return all(a <= b for a, b in zip(total, ceiling, strict=True))


def plus(total: Amount, more: Amount, times: int = 1) -> Amount:
    """Add an amount, some number of times over."""
    return tuple(
        a + (b if times == 1 else b * times) if b else a for a, b in zip(total, more, strict=True)
    )
