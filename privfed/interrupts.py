"""Ctrl-C, noted beside being raised: libraries that are just imported make other errors of it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

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


def interrupted() -> bool:
    """Whether one came, whatever became of it."""
    return bool(_noted)
