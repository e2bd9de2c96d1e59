"""Rolling hashes (Rabin and Karp) of all windows of a stream at once."""

from functools import cache, cached_property

import numpy as np

#: An odd number whose powers spread keys over 64 bits, and its inverse modulo 2^64.
_BASE = np.uint64(0x9E3779B97F4A7C15)
_INVERSE = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
_MIX = np.uint64(0xBF58476D1CE4E5B9)
_SHORT = 1 << 16  #: Longest stream for which powers are kept


@cache
def _kept_powers() -> tuple[np.ndarray, np.ndarray]:
    return _powers(_SHORT)


def _powers(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Powers of the base, and of its inverse."""
    with np.errstate(over="ignore"):
        return np.cumprod(np.full(count, _BASE)), np.cumprod(np.full(count, _INVERSE))


class Windows:
    """Sums of a stream's keys k_i b^i modulo 2^64: two windows of equal keys have the same hash.

    Keys, integers of any type, are mixed first: floats' bit patterns end with zeros, which no power
    would ever fill.
    """

    def __init__(self, keys: np.ndarray) -> None:
        self._keys = keys.astype(np.int64, copy=False).view(np.uint64)

    @cached_property
    def _sums(self) -> tuple[np.ndarray, np.ndarray]:
        """Cumulative sums, and the factors that shift a window to the start."""
        count = len(self._keys)
        powers, back = _kept_powers() if count <= _SHORT else _powers(count)
        sums = np.zeros(count + 1, np.uint64)
        with np.errstate(over="ignore"):
            mixed = (self._keys ^ (self._keys >> np.uint64(29))) * _MIX
            mixed ^= mixed >> np.uint64(32)
            np.cumsum(mixed * powers[:count], out=sums[1:])
        return sums, back[:count]

    def hashes(self, first: np.ndarray | slice, last: np.ndarray | slice) -> np.ndarray:
        """Return the hashes of the windows with these starts and ends."""
        sums, back = self._sums
        with np.errstate(over="ignore"):
            return np.asarray((sums[last] - sums[first]) * back[first])


def each_of(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Concatenated positions of slices with these starts and lengths."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(total) + np.repeat(starts - ends + counts, counts))


def hashes_of(rows: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
    """Hash of each row of keys, or of its first ``lengths`` keys; equal to that of the window in a stream."""
    width = rows.shape[1]
    first = np.arange(len(rows)) * width
    return Windows(rows.reshape(-1)).hashes(first, first + (width if lengths is None else lengths))
