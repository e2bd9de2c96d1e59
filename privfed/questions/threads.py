"""The number of threads used by linear algebra.

Protocols compute many products of small matrices: several BLAS threads are slower than one, and
occupy a shared machine.
"""

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[object]:
    """Return a context manager that limits BLAS to one thread, in the whole process."""
    limited: AbstractContextManager[object] = _libraries().limit(limits=1, user_api="blas")
    return limited


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
