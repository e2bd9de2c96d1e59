"""One false-alarm rate for a whole suite, split over its statistical assertions.

The m tests of a suite that name the assertions get alpha / (2 m) each, the others share the other half. The
i-th assertion of a test gets 1 / (i (i + 1)) of the test's part, so that the total is at most alpha.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count

from privfed.errors import InputError

ALONE = 1e-3  #: Alpha of an assertion outside a suite
#: Alpha of each assertion of the running test.
_shares: ContextVar[Iterator[float] | None] = ContextVar("alpha of the running test", default=None)


@contextmanager
def spending(alpha: float) -> Iterator[None]:
    """Context in which assertions share this false-alarm rate."""
    rate = checked(alpha)
    token = _shares.set(rate / (i * (i + 1)) for i in count(1))
    try:
        yield
    finally:
        _shares.reset(token)


def share(alpha: float | None) -> float:
    """Return the alpha of one assertion: the argument, the running test's next part, or ``ALONE``."""
    if alpha is not None:
        return checked(alpha)
    fractions = _shares.get()
    return ALONE if fractions is None else next(fractions)


def checked(alpha: float) -> float:
    """Return the rate; InputError if it is not in (0, 1)."""
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie between 0 and 1, and is {alpha!r}; write perhaps 1e-3")
    return alpha
