"""The plain numbers of a text, as ``NUMBER`` finds them and ``float`` reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

#: A number that no letter or digit touches in front, nor letters and a digit behind: ``E11.9``, ``v2.1``
#: and ``4f2a`` are labels, ``12.5kg`` is none. Its first character is looked for before what stands in
#: front of it, which passes over other text quickly.
NUMBER = re.compile(
    r"[-+.\d](?<![A-Za-z_\d].)(?<!\d\..)(?:(?<=[-+])(?:\d++\.?+\d*+|\.\d++)|(?<=\d)\d*+\.?+\d*+|(?<=\.)\d++)"
    r"(?:[eE][-+]?\d++)?+(?![A-Za-z_]+\d)"
)
CHUNK = 1 << 20  #: So much of a text is read at a time


def plain_numbers(text: str) -> np.ndarray:
    """The numbers of a text, in order."""
    return np.concatenate([np.empty(0), *map(_numbers, _pieces(text))])


def _pieces(text: str) -> Iterator[str]:
    """Of about a length, each ending where a line or a word does."""
    start = 0
    while start < len(text):
        end = start + CHUNK
        if end < len(text):
            end = max(text.rfind(mark, start, end) for mark in "\n ,") + 1 or len(text)
        yield text[start:end]
        start = end


def _numbers(text: str) -> np.ndarray:
    found = NUMBER.findall(text)
    return np.fromiter(map(float, found), float, len(found))
