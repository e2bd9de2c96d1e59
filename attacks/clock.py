"""The bound on an attack's time: what it has found by then is its finding."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

#: How long an attack may take unless told otherwise.
SECONDS = 120.0


class Clock:
    """Time that an attack may take, from now on.

    Args:
        seconds: after which nothing new is begun.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds, self._end = seconds, monotonic() + seconds

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return monotonic() >= self._end

    @property
    def left(self) -> float:
        """Seconds that are left, a tenth at least: a solver needs some."""
        return max(self._end - monotonic(), 0.1)

    def timely(self, number: int) -> Iterator[int]:
        """The numbers from 0 on, as many as asked for, until the time is up."""
        for each in range(number):
            if self.over:
                return
            yield each

    def partial(self, done: int, all_: int, what: str) -> str:
        """How far an attack got before its time was up; empty where it got to the end."""
        return "" if done >= all_ else f"{done} of {all_} {what} in {self.seconds:g} seconds"
