"""One array, text or string of bytes that left, and the path to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

#: Most cells of a container, and most rows of a table, that are also read as lines of text.
CELLS, ROWS = 64, 5000
NAMED = 10_000  #: Most numbers of which each is looked at by its own name


class RowText(str):
    """The cells of a table, one row a line, beside the leaves that hold them."""


class Unread(str):
    """Why a part of something was not read."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """Something that left and that holds no further objects."""

    path: str  #: where it was, from ``left`` down, as one would write it in Python
    value: np.ndarray | str | bytes  #: numbers of any shape (never copied), a text, or bytes
    #: names of the elements along the last axis of ``value``; without them, positions
    labels: Sequence[str] | None = None
    #: whether it is a text made of the cells of one container, whose numbers are leaves too
    row: bool = False
    unread: str = ""  #: why it was not read, or not in full; empty where it was

    def element(self, position: int) -> str:
        """The path to one number, by its position in the flattened array."""
        if not isinstance(self.value, np.ndarray) or self.value.size == 1:
            return self.path if self.labels is None else f"{self.path}{self.labels[0]}"
        index = np.unravel_index(position, self.value.shape)
        if self.labels is None:
            return f"{self.path}[{', '.join(str(int(place)) for place in index)}]"
        rows = "".join(f"[{int(place)}]" for place in index[:-1])
        return f"{self.path}{rows}{self.labels[int(index[-1])]}"

    def less(self, patterns: Sequence[str]) -> Leaf | None:
        """What is left of it without the paths that fit one of the patterns; none if nothing is.

        Of numbers with names of their own each is looked at by itself, of a matrix each column that fits in its
        first and its last row.
        """
        if not patterns:
            return self
        if fits(self.path, patterns):
            return None
        if self.labels is None or not isinstance(self.value, np.ndarray) or not self.value.size:
            return self
        if self.value.ndim == 2:
            ends = self.value.size - len(self.labels)
            named = [
                place
                for place in range(len(self.labels))
                if not all(fits(self.element(place + row), patterns) for row in (0, ends))
            ]
            if len(named) == len(self.labels):
                return self
            labels = [self.labels[place] for place in named]
            return replace(self, value=self.value[:, named], labels=labels) if named else None
        if self.value.ndim != 1 or len(self.labels) > NAMED:
            return self
        kept = [
            place for place in range(self.value.size) if not fits(self.element(place), patterns)
        ]
        return Leaf(self.path, self.value[kept], [self.labels[at] for at in kept]) if kept else None


def fits(path: str, patterns: Sequence[str]) -> bool:
    """Whether a path is one of some patterns, in which a star stands for anything."""
    return any(_compiled(pattern).fullmatch(path) for pattern in patterns)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
