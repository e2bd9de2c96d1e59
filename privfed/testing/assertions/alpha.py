"""One false-alarm rate for a whole suite, split over its statistical assertions.

The m tests of a suite that name the assertions get alpha / (2 m) each, the others share the other half,
and the i-th assertion of a test gets 1 / (i (i + 1)) of the test's, in all no more than alpha.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count

from privfed.errors import InputError

ALONE = 1e-3  #: What an assertion outside a suite gets
#: The shares of the running test's assertions.
_shares: ContextVar[Iterator[float] | None] = ContextVar("alpha of the running test", default=None)


@contextmanager
def spending(alpha: float) -> Iterator[None]:
    """Within it, assertions share this false-alarm rate."""
    rate = checked(alpha)
    token = _shares.set(rate / (at * (at + 1)) for at in count(1))
    try:
        yield
    finally:
        _shares.reset(token)


def share(alpha: float | None) -> float:
    """The alpha of one assertion: what was passed, the running test's next part, or ``ALONE``."""
    if alpha is not None:
        return checked(alpha)
    shares = _shares.get()
    return ALONE if shares is None else next(shares)


def checked(alpha: float) -> float:
    """The rate, if in (0, 1), else an InputError."""
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie between 0 and 1, and is {alpha!r}; write perhaps 1e-3")
    return alpha
