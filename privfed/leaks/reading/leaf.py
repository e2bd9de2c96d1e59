"""One released array, text or byte string, and its path."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

#: Most cells of a container, and most rows of a table, that are also read as lines of text.
CELLS, ROWS = 64, 5000
NAMED = 10_000  #: Most labelled numbers that are filtered by label


class RowText(str):
    """The cells of a table as text, one row per line, in addition to their leaves."""


class Unread(str):
    """Reason why something was not read."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """A released value that holds no further objects."""

    path: str  #: Python expression that reaches it, from ``left``
    value: np.ndarray | str | bytes  #: numbers of any shape (never copied), a text, or bytes
    #: names of the elements along the last axis of ``value``; None for positions
    labels: Sequence[str] | None = None
    #: whether it is a text joined from the cells of one container, whose numbers are leaves too
    row: bool = False
    unread: str = ""  #: reason why it was not read in full; empty if it was

    def element(self, position: int) -> str:
        """Return the path to one number, by its position in the flattened array."""
        if not isinstance(self.value, np.ndarray) or self.value.size == 1:
            return self.path if self.labels is None else f"{self.path}{self.labels[0]}"
        index = np.unravel_index(position, self.value.shape)
        if self.labels is None:
            return f"{self.path}[{', '.join(str(int(i)) for i in index)}]"
        rows = "".join(f"[{int(i)}]" for i in index[:-1])
        return f"{self.path}{rows}{self.labels[int(index[-1])]}"

    def less(self, patterns: Sequence[str]) -> Leaf | None:
        """Return the leaf without the paths that match a pattern; None if nothing remains.

        Labelled numbers are matched one by one; a matrix column is dropped if its first and last row match.
        """
        if not patterns:
            return self
        if fits(self.path, patterns):
            return None
        if self.labels is None or not isinstance(self.value, np.ndarray) or not self.value.size:
            return self
        if self.value.ndim == 2:
            ends = self.value.size - len(self.labels)
            columns = [
                index
                for index in range(len(self.labels))
                if not all(fits(self.element(index + row), patterns) for row in (0, ends))
            ]
            if len(columns) == len(self.labels):
                return self
            labels = [self.labels[index] for index in columns]
            return replace(self, value=self.value[:, columns], labels=labels) if columns else None
        if self.value.ndim != 1 or len(self.labels) > NAMED:
            return self
        kept = [
            index for index in range(self.value.size) if not fits(self.element(index), patterns)
        ]
        return Leaf(self.path, self.value[kept], [self.labels[i] for i in kept]) if kept else None


def fits(path: str, patterns: Sequence[str]) -> bool:
    """Whether a path matches one of some patterns, in which a star matches anything."""
    return any(_compiled(pattern).fullmatch(path) for pattern in patterns)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
