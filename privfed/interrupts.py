"""Ctrl-C, noted beside being raised: libraries that are just imported make other errors of it."""

import os
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

from privfed.errors import PrivfedError

_noted: list[int] = []


@contextmanager
def noting() -> Iterator[None]:
    """Note each SIGINT from here on, where Python's own handler would raise KeyboardInterrupt alone."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        _noted.append(number)
        signal.default_int_handler(number, frame)

    _noted.clear()
    before = signal.getsignal(signal.SIGINT)
    ours = before is signal.default_int_handler and current_thread() is main_thread()
    if ours:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)


def survived(error: Exception) -> str:
    """Say what error a plugin ended with, where all others go on: its kind, for only ours hold no data in their text."""
    if interrupted():
        raise error
    if os.environ.get("PRIVFED_TRACEBACK"):
        traceback.print_exc()
    return str(error) if isinstance(error, PrivfedError) else type(error).__name__


def interrupted() -> bool:
    """Whether one came, whatever became of it."""
    return bool(_noted)
