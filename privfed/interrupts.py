"""Recording of Ctrl-C: libraries may turn its exception into another one while they are imported."""

import os
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

_signals: list[int] = []


@contextmanager
def noting() -> Iterator[None]:
    """Record each SIGINT inside the block, and raise KeyboardInterrupt as Python's own handler does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        _signals.append(number)
        signal.default_int_handler(number, frame)

    _signals.clear()
    previous = signal.getsignal(signal.SIGINT)
    ours = previous is signal.default_int_handler and current_thread() is main_thread()
    if ours:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, previous)


def survived(error: Exception) -> str:
    """Describe a plugin's error that does not stop the study; see :func:`.plugins.described`."""
    from privfed.questions.plugins import described  # not for a command's help

    if interrupted():
        raise error
    if os.environ.get("PRIVFED_TRACEBACK"):
        traceback.print_exc()
    return described(error)


def interrupted() -> bool:
    """Whether a SIGINT was recorded, even if its exception was lost."""
    return bool(_signals)
