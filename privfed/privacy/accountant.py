"""Base class of accountants: compose losses under one relation and unit, and check a ceiling.

A loss becomes an exact *amount*, a tuple of fractions that add up. Such a sum, compared with a
fixed ceiling before each release, is a valid filter: order, number and size of the charges may
depend on earlier releases (Rogers et al. 2016 for pure epsilon, Feldman and Zrnic 2021 and
Whitehouse et al. 2023 for zCDP).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from privfed.errors import InputError, PluginError, PolicyError, PrivfedError
from privfed.privacy.loss import Loss
from privfed.questions.exact import Number, at_delta, readable, shown, shown_delta, text

Amount = tuple[Fraction, ...]
STATED = Fraction(1, 10**5)  #: Delta of a stated total if there is no budget
LARGEST = 10**6  #: Maximum epsilon of a budget; conversions stay exact far beyond it


@dataclass(frozen=True)
class Budget:
    """An (epsilon, delta) ceiling; for no ceiling, use no budget."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if not all(isinstance(each, Fraction) for each in (self.epsilon, self.delta)):
            raise PolicyError('a budget needs exact numbers; write Budget.of("0.5", "1e-5")')
        if not self.epsilon > 0 or not 0 <= float(self.delta) < 1:  # as a float it is converted
            raise PolicyError(
                'a budget needs epsilon above 0 and delta from 0 to below 1; write delta = "1e-5"'
            )

    @classmethod
    def of(cls, epsilon: Number, delta: Number = 0) -> Budget:
        """Build a budget from exact numbers or text; errors name the wrong one."""
        return cls(
            written_epsilon(epsilon, "budget epsilon"), readable(delta, "budget delta", zero=True)
        )

    def __str__(self) -> str:
        return f"epsilon {shown(self.epsilon)} at delta {shown_delta(self.delta)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the budget as plain data."""
        return {"epsilon": text(self.epsilon), "delta": text(self.delta)}


def written_epsilon(epsilon: Number, name: str) -> Fraction:
    """Read a user's epsilon exactly (InputError: above :data:`LARGEST`)."""
    read = readable(epsilon, name)
    if read > LARGEST:
        raise InputError(
            f"{name} must be at most {LARGEST}, because a larger one guarantees nothing; write for example '1'"
        )
    return read


@dataclass(frozen=True)
class PrivacyStatement:
    """The guarantee proven for a running total at the time it is stated.

    The filter's ceiling bounds the whole exchange, whatever is still queried. The odometer bounds the releases so far,
    at a time that may depend on them. The smaller one is stated as spent. Each holds at ``delta`` by itself, and any
    two together at twice ``delta``: the ceiling is not one of the odometer's checkpoints, which would widen it by a
    share of delta.
    """

    epsilon: Fraction  #: spent so far, nats, rounded up
    delta: Fraction  #: of both epsilons
    ceiling: Fraction | None = None  #: epsilon certified for the whole exchange, or None


class Accountant(ABC):
    """Composes losses by adding exact amounts, component by component."""

    name: ClassVar[str]  #: Its name in policies
    components: ClassVar[tuple[str, ...]]  #: Units of an amount, such as ``("rho", "delta")``

    @abstractmethod
    def amount(self, loss: Loss) -> Amount:
        """Return what a loss adds to a total (UnsupportedLoss: no finite statement to compose)."""

    @abstractmethod
    def ceiling(self, budget: Budget) -> Amount:
        """Return the largest total that still guarantees the budget, rounded down."""

    @abstractmethod
    def guarantee(self, total: Amount, delta: Fraction) -> tuple[Fraction, Fraction]:
        """Return (epsilon, delta) of a total at the requested ``delta``, rounded up."""

    def odometer(
        self, total: Amount, delta: Fraction, fixed: Sequence[Amount] = ()
    ) -> tuple[Fraction, Fraction]:
        """Return (epsilon, delta) of a running total at any time, which may depend on all releases.

        ``fixed`` are totals chosen before the first charge, a budget's ceiling last. The returned delta exceeds the
        requested one if the losses' own deltas do.
        """
        return self.guarantee(total, delta)

    def stated(
        self,
        total: Amount,
        budget: Budget | None,
        *,
        amended: bool = False,
        fixed: Sequence[Amount] = (),
    ) -> PrivacyStatement:
        """Return the guarantee proven for a total, as used by every statement, report and risk.

        A filter certifies the ceiling that was set before the first charge, and nothing smaller:
        the server may stop because of what it saw. A ceiling that was raised later (``amended``),
        or that the total exceeds, certifies nothing. Without a ceiling the odometer is stated at
        :data:`STATED`; for ``fixed`` totals see :meth:`odometer`.
        """
        delta = STATED if budget is None else budget.delta
        if budget is None or amended or not self.fits(total, self.ceiling(budget)):
            epsilon, delta = self.odometer(total, delta or STATED, fixed)
            if fixed and self.fits(total, fixed[-1]):
                with suppress(PolicyError):  # an amended delta may be below the total's own
                    epsilon = min(epsilon, self.guarantee(fixed[-1], delta)[0])
            return PrivacyStatement(epsilon, delta)  # the first ceiling bounds the releases so far
        so_far, at = self.odometer(total, delta, fixed)
        epsilon_spent = min(so_far, budget.epsilon) if at <= delta else budget.epsilon
        return PrivacyStatement(epsilon_spent, delta, budget.epsilon)

    def left(self, total: Amount, budget: Budget) -> Fraction:
        """Return the epsilon, rounded down, that one more study may spend at the budget's delta.

        For concentrated losses it exceeds the difference of the epsilons. A remainder below 0.001 % of the budget, such
        as the rounding of shares leaves, counts as 0.
        """
        if total == self.nothing:
            return budget.epsilon
        ceiling = self.ceiling(budget)
        remaining, shrink = ceiling[0] - total[0], Fraction(1, 10**12)
        if remaining < ceiling[0] / 100_000 or remaining <= 0:
            return Fraction(0)
        epsilon = self.guarantee((remaining, *ceiling[1:]), budget.delta)[0]
        while self._needs(epsilon, budget.delta) > remaining:
            epsilon, shrink = epsilon * (1 - shrink), 2 * shrink
        return epsilon

    def _needs(self, epsilon: Fraction, delta: Fraction) -> Fraction:
        try:
            return self.ceiling(Budget(epsilon, delta))[0] if epsilon else Fraction(0)
        except PolicyError:  # too small for any noise
            return Fraction(0)

    @property
    def nothing(self) -> Amount:
        """The total before any charge."""
        return (Fraction(0),) * len(self.components)

    def cost(self, loss: Loss) -> Amount:
        """Return what a loss's bounded part adds to a total; unprotected parts are not counted.

        UnsupportedLoss: it cannot compose this loss; PluginError: it gives no exact amount.
        """
        return self._exact(self.amount, loss) if loss.counted else self.nothing

    def check(self, budget: Budget) -> None:
        """Check its ceiling and guarantee against a budget (PluginError; PolicyError: an unsupported budget)."""
        full = self._exact(self.ceiling, budget)
        stated = self._exact(self.guarantee, full, budget.delta, of=("epsilon", "delta"))
        if stated[0] > budget.epsilon or stated[1] > budget.delta:
            raise PluginError(
                f"accountant {self.name!r}: its ceiling for epsilon {shown(budget.epsilon)}{at_delta(budget.delta)} "
                f"guarantees epsilon {shown(stated[0])}{at_delta(stated[1])}"
            )

    def _exact(
        self, method: Callable[..., Amount], *arguments: Any, of: Sequence[str] = ()
    ) -> Amount:
        """Return a method's amount, an exact number for each component (else PluginError)."""
        try:
            amount = method(*arguments)
        except PrivfedError:
            raise
        except Exception as error:
            why = f"raises {type(error).__name__}"
        else:
            names = of or self.components
            exact = type(amount) is tuple and len(amount) == len(names)
            if exact and all(isinstance(part, Fraction) and part >= 0 for part in amount):
                return amount
            why = f"gives no tuple of an exact number of at least 0 for each of {', '.join(names)}"
        raise PluginError(f"accountant {self.name!r}: {method.__name__} {why}")

    def add(self, total: Amount, loss: Loss) -> Amount:
        """Return the total after one more loss."""
        return plus(total, self.cost(loss))

    def fits(self, total: Amount, ceiling: Amount) -> bool:
        """Whether a total stays within a ceiling in every component."""
        return all(a <= b for a, b in zip(total, ceiling, strict=True))


def fraction_of(part: Amount, whole: Amount) -> Fraction:
    """Return the largest fraction of a total that a part takes, over all components."""
    return max((a / b for a, b in zip(part, whole, strict=True) if b), default=Fraction(0))


def plus(total: Amount, more: Amount, times: int = 1) -> Amount:
    """Add an amount to a total ``times`` times."""
    return tuple(
        a + (b if times == 1 else b * times) if b else a for a, b in zip(total, more, strict=True)
    )
