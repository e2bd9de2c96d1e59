"""Raw values as the bytes of floats, at any offset of bytes of unknown structure.

A table of hashes of every value's bytes, in both byte orders, drops nearly all offsets at once; what
is left is compared in full.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from privfed.testing.rules.chance import densities, tail
from privfed.testing.rules.match import Match
from privfed.testing.rules.precision import NO_GRADE, decimals_of
from privfed.testing.rules.released import Released
from privfed.testing.rules.table import RawTable

#: How values may be written, as types of NumPy.
FORMATS = ("<f8", ">f8", "<f4", ">f4")
#: Logarithm of the size of the table of hashes.
HASH = 26
_SPREAD = np.uint32(0x9E3779B1)
_MEND = "raw values stand in these bytes as they lie in memory; never serialise the data themselves"


def bytes_in(table: RawTable, released: Released) -> Iterator[Match | None]:
    """A match or none for each string of bytes."""
    cells = table.cells
    if not len(cells):
        return
    long = np.flatnonzero(decimals_of(cells.sizes) == NO_GRADE)
    signed = table.numbers.ravel()[cells.first[long]]
    if not len(signed):
        return
    patterns = {kind: _patterns(signed, kind) for kind in FORMATS}
    strings = [(path, data) for path, data in released.strings if len(data) >= 4]
    if not strings:
        return
    marked = _marked(patterns) if sum(len(data) for _, data in strings) > 1 << 16 else None
    for path, data in strings:
        likely = None if marked is None else _likely(data, marked)
        for kind, (ordered, origin) in patterns.items():
            yield _scan(table, path, data, kind, ordered, long[origin], likely)


def _patterns(values: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Values as whole numbers that a little-endian reader would see, ascending, and whose they are."""
    with np.errstate(over="ignore"):
        written = np.concatenate([values, -values]).astype(kind)
    seen = written.view(np.uint64 if kind[2] == "8" else np.uint32)
    order = np.argsort(seen, kind="stable")
    return seen[order], order % len(values)


def _marked(patterns: dict[str, tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Which hashes belong to the four bytes that tell a pattern best."""
    marked = np.zeros(1 << HASH, dtype=bool)
    for kind, (seen, _) in patterns.items():
        marked[_hash(_telling(seen, kind))] = True
    return marked


def _telling(seen: np.ndarray, kind: str) -> np.ndarray:
    """The four bytes of lowest order of the number itself, as a little-endian reader sees them."""
    if kind[2] == "4":
        return seen.astype(np.uint32)
    shift = np.uint64(32 if kind[0] == ">" else 0)
    return (seen >> shift).astype(np.uint32)


def _hash(words: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray((words * _SPREAD) >> np.uint32(32 - HASH))


def _likely(data: bytes, marked: np.ndarray) -> np.ndarray:
    """Offsets of four bytes that belong to a pattern, going by their hash."""
    found = []
    for phase in range(4):
        words = np.frombuffer(data, "<u4", count=(len(data) - phase) // 4, offset=phase)
        found.append(np.flatnonzero(marked[_hash(words)]) * 4 + phase)
    return np.concatenate(found)


def _offsets(data: bytes, kind: str, likely: np.ndarray | None) -> np.ndarray:
    """Offsets at which a pattern may begin."""
    count = len(data) - int(kind[2]) + 1
    if likely is None:
        return np.arange(max(count, 0))
    offsets = likely - (4 if kind == ">f8" else 0)
    return np.asarray(offsets[(offsets >= 0) & (offsets < count)])


def _scan(
    table: RawTable,
    path: str,
    data: bytes,
    kind: str,
    ordered: np.ndarray,
    origin: np.ndarray,
    likely: np.ndarray | None,
) -> Match | None:
    width = int(kind[2])
    offsets = _offsets(data, kind, likely)
    if not len(offsets):
        return None
    octets = np.frombuffer(data, np.uint8)
    whole = np.zeros(len(offsets), dtype=ordered.dtype)
    for byte in range(width):
        whole |= octets[offsets + byte].astype(ordered.dtype) << ordered.dtype.type(8 * byte)
    place = np.minimum(np.searchsorted(ordered, whole), len(ordered) - 1)
    hit = np.flatnonzero(ordered[place] == whole)
    if not len(hit):
        return None
    sizes = table.cells.sizes
    at = origin[place[hit]]
    values = sizes[at]
    cell = np.spacing(values) if width == 8 else np.spacing(values.astype(np.float32)).astype(float)
    chance = np.minimum(densities(sizes, at) * cell, 1.0)
    _, first = np.unique(at, return_index=True)
    by_chance = tail(chance[first], len(data))
    if by_chance > 0.05:
        return None
    cell_at = int(table.cells.first[at[0]])
    return Match(
        "a raw value, as the bytes of a float",
        lambda: f"{path}, byte {int(offsets[hit[0]])}",
        table.where(cell_at),
        by_chance,
        len(first),
        f"{8 * width} bits, {'little' if kind[0] == '<' else 'big'} end first",
        repr(float(table.numbers.ravel()[cell_at])),
        _MEND,
        main=True,
    )
