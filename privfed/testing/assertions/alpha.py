"""One false-alarm rate for a whole suite, split over its statistical assertions.

The m tests of a suite that name the assertions get alpha / (2 m) each, the others share the other half,
and the i-th assertion of a test gets 1 / (i (i + 1)) of the test's: whatever is asserted, in whatever
order, the shares add up to no more than alpha.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from privfed.errors import InputError

#: What an assertion outside a suite gets.
ALONE = 1e-3
#: What a suite gets unless it says otherwise.
SUITE = 0.05


@dataclass
class AlphaBudget:
    """The alpha that one test may spend, and how many assertions have taken their part."""

    alpha: float
    spent: int = 0

    def take(self) -> float:
        """The next assertion's share."""
        self.spent += 1
        return self.alpha / (self.spent * (self.spent + 1))


_budget: ContextVar[AlphaBudget | None] = ContextVar("alpha of the running test", default=None)


@contextmanager
def spending(alpha: float) -> Iterator[AlphaBudget]:
    """Within it, assertions share this false-alarm rate."""
    budget = AlphaBudget(checked(alpha))
    token = _budget.set(budget)
    try:
        yield budget
    finally:
        _budget.reset(token)


def share(alpha: float | None) -> float:
    """The alpha of one assertion: what was passed, the running test's next part, or ``ALONE``."""
    if alpha is not None:
        return checked(alpha)
    budget = _budget.get()
    return ALONE if budget is None else budget.take()


def checked(alpha: float) -> float:
    """The rate, if in (0, 1), else an InputError."""
    if not 0 < alpha < 1:
        raise InputError(
            f"alpha must lie between 0 and 1, and is {alpha!r}; write for example 1e-3"
        )
    return alpha
