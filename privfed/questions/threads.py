"""How many threads linear algebra takes.

A protocol's matrices are small and its products many: BLAS threads that wait for one another take
several times what one takes, and all of a shared machine.
"""

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[object]:
    """Let BLAS take one thread inside, in the whole process; afterwards as many as before."""
    limited: AbstractContextManager[object] = _libraries().limit(limits=1, user_api="blas")
    return limited


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
