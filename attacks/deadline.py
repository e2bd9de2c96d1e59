"""The bounds on an attack: counted work, and optionally seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import TypeVar

T = TypeVar("T")
#: Default work of an attack, in array operations; a tenth of one in a matrix product.
MAX_WORK = 1.5e11


class Deadline:
    """Work and time that an attack may spend from now on; counted work makes findings repeatable on any machine.

    Args:
        time_limit: seconds after which nothing new is begun; None for no limit.
        max_work: multiply-adds (or as much other work) after which nothing new is begun.
    """

    def __init__(self, time_limit: float | None = None, max_work: float = math.inf) -> None:
        self.time_limit = math.inf if time_limit is None else time_limit
        self.max_work, self.work = max_work, 0.0
        self._end = monotonic() + self.time_limit

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return monotonic() >= self._end

    @property
    def over(self) -> bool:
        """Whether the time is up or the work is spent."""
        return self.work > self.max_work or self.late

    @property
    def remaining(self) -> float:
        """Seconds, at least a tenth, which a solver needs."""
        return max(self._end - monotonic(), 0.1)

    def spend(self, work: float) -> bool:
        """Count work before it is done; whether it may be done."""
        self.work += work
        return not self.over

    def part(self, fraction: float) -> Deadline:
        """The bounds on a fraction of the remaining work; add its work here when it is done."""
        return Deadline(self.remaining, fraction * max(self.max_work - self.work, 0.0))

    def range(self, number: int) -> Iterator[int]:
        """The integers from 0, ``number`` of them, until the deadline."""
        return self.each(range(number))

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items until the time is up or the work is spent."""
        for item in items:
            if self.over:
                return
            yield item

    def partial(self, done: int, total: int, what: str) -> str:
        """How far an attack got; empty if it got to the end."""
        return "" if done >= total else f"{done} of {total} {what} {self}"

    def __str__(self) -> str:
        spent = self.work > self.max_work and not self.late
        return f"within {self.max_work:.2g} operations" if spent else f"in {self.time_limit:g} s"
