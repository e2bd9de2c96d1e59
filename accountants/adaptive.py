"""Budget allocation: proposed spends, computed from past releases only.

Allocators run on the server: amounts may be adaptive, and the owners' filters stay valid. A
proposal is not a charge: every owner's policy caps it, and every ledger checks it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction

from privfed.errors import BudgetError, InputError
from privfed.exchange.messages import Release
from privfed.questions.exact import Number, exact


class Allocator(ABC):
    """Proposes amounts that never exceed a total, in a mechanism's currency (epsilon or rho)."""

    def __init__(self, total: Number) -> None:
        self.total = exact(total, "an allocator's total")
        self.proposed: tuple[Fraction, ...] = ()

    @abstractmethod
    def amount(self, past: Sequence[Release]) -> Fraction:
        """Return the next amount by this allocator's rule, before the cap at the remaining total."""

    def next(self, past: Sequence[Release] = ()) -> Fraction:
        """Propose an amount for the next round, from past releases (BudgetError: nothing remains)."""
        remaining = self.total - sum(self.proposed)
        if remaining <= 0:
            raise BudgetError("all of the allocator's total has been proposed; plan fewer rounds")
        amount = min(remaining, self.amount(past))
        if amount <= 0:
            raise BudgetError("an allocator's rule must propose an amount above 0")
        self.proposed = (*self.proposed, amount)
        return amount


class Uniform(Allocator):
    """The same amount in every round: total / rounds, exactly."""

    def __init__(self, total: Number, rounds: int) -> None:
        super().__init__(total)
        self.rounds = _rounds(rounds)

    def amount(self, past: Sequence[Release]) -> Fraction:
        """See the class."""
        return self.total / self.rounds


class Geometric(Allocator):
    """Amounts in geometric progression that add up to the total over the rounds, exactly.

    With a ``ratio`` of successive amounts below 1 it spends early, above 1 late.
    """

    def __init__(self, total: Number, rounds: int, ratio: Number) -> None:
        super().__init__(total)
        self.rounds, self.ratio = _rounds(rounds), exact(ratio, "ratio")

    def amount(self, past: Sequence[Release]) -> Fraction:
        """See the class."""
        weights = [self.ratio**number for number in range(self.rounds)]
        return self.total * weights[min(len(self.proposed), self.rounds - 1)] / sum(weights)


class Scheduled(Allocator):
    """Amounts fixed in advance."""

    def __init__(self, amounts: Sequence[Number]) -> None:
        self.amounts = tuple(exact(amount, "a scheduled amount") for amount in amounts)
        if not self.amounts:
            raise InputError("a schedule needs amounts, one for each round")
        super().__init__(sum(self.amounts, Fraction(0)))

    def amount(self, past: Sequence[Release]) -> Fraction:
        """See the class."""
        return self.amounts[len(self.proposed)]


class ByRule(Allocator):
    """Amounts by a function of past releases and the remaining total, such as DP-RuL's Section 3.6."""

    def __init__(
        self, total: Number, rule: Callable[[Sequence[Release], Fraction], Number]
    ) -> None:
        super().__init__(total)
        self.rule = rule

    def amount(self, past: Sequence[Release]) -> Fraction:
        """See the class."""
        remaining = self.total - sum(self.proposed)
        return exact(self.rule(past, remaining), "the rule's amount")


def _rounds(rounds: int) -> int:
    if rounds < 1:
        raise InputError("an allocator needs at least 1 round")
    return rounds
