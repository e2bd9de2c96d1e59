"""Numbers in a text that match ``NUMBER`` and that ``float`` parses."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

#: A number not preceded by a letter or digit, nor followed by letters and a digit: ``E11.9``, ``v2.1`` and
#: ``4f2a`` are labels, ``12.5kg`` is not. Matching the first character before the lookbehind skips other
#: text quickly.
NUMBER = re.compile(
    r"[-+.\d](?<![A-Za-z_\d].)(?<!\d\..)(?:(?<=[-+])(?:\d++\.?+\d*+|\.\d++)|(?<=\d)\d*+\.?+\d*+|(?<=\.)\d++)"
    r"(?:[eE][-+]?\d++)?+(?![A-Za-z_]+\d)"
)
CHUNK = 1 << 20  #: Characters read at a time


def plain_numbers(text: str) -> np.ndarray:
    """The numbers of a text, in order."""
    return np.concatenate([np.empty(0), *map(_numbers, _pieces(text))])


def _pieces(text: str) -> Iterator[str]:
    """Yield pieces of about ``CHUNK`` characters that end with a line or word."""
    start = 0
    while start < len(text):
        end = start + CHUNK
        if end < len(text):
            end = max(text.rfind(mark, start, end) for mark in "\n ,") + 1 or len(text)
        yield text[start:end]
        start = end


def _numbers(text: str) -> np.ndarray:
    numbers = NUMBER.findall(text)
    return np.fromiter(map(float, numbers), float, len(numbers))
