"""Raw values as the bytes of floats, as digits run together, and as digests.

A table of hashes of every value's bytes, in both byte orders, drops nearly all offsets at once; what
is left is compared in full.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from privfed.leaks.artefact import Released
from privfed.leaks.chance import densities, surprise
from privfed.leaks.evidence import Evidence
from privfed.leaks.precision import NO_GRADE, decimals_of
from privfed.leaks.table import RawTable

#: How values may be written, as types of NumPy.
FORMATS = ("<f8", ">f8", "<f4", ">f4")
#: Logarithm of the size of the table of hashes.
HASH = 26
#: Bytes beyond which re-drawn tables are not tried: the model's chance stands alone.
SCANNED = 1 << 23
#: How many digits in a row are compared, and in how long a text.
WINDOW, LONGEST = 12, 20_000_000
#: Most values and texts of which digests are computed.
DIGESTED = 100_000
_SPREAD = np.uint32(0x9E3779B1)
_BYTES = (
    "raw values stand in these bytes as they lie in memory; never serialise the data themselves"
)
_DIGEST = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{32,128}(?![0-9a-fA-F])")
_HASHES = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "blake2s")


def bytes_in(released: Released, table: RawTable) -> Evidence | None:
    """The most surprising string of bytes in which raw values stand."""
    cells = table.cells
    long = np.flatnonzero(decimals_of(cells.sizes) == NO_GRADE)
    signed = table.numbers.ravel()[cells.first[long]]
    strings = [(path, data) for path, data in released.strings if len(data) >= 4]
    if not len(signed) or not strings:
        return None
    patterns = {kind: _patterns(signed, kind) for kind in FORMATS}
    total = sum(len(data) for _, data in strings)
    marked = _marked(patterns) if total > 1 << 16 else None
    found = []
    for path, data in strings:
        likely = None if marked is None else _likely(data, marked)
        for kind, (ordered, origin) in patterns.items():
            one = _scan(table, path, data, kind, ordered, long[origin], likely)
            found += [] if one is None else [one]
    return max(found, key=lambda one: one.nats, default=None)


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
) -> Evidence | None:
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
    cell_at = int(table.cells.first[at[0]])
    return Evidence(
        "bytes",
        "a raw value, as the bytes of a float",
        surprise(chance[first], len(data)) - np.log(len(FORMATS)),
        lambda: f"{path}, byte {int(offsets[hit[0]])}",
        partial(table.where, cell_at),
        len(first),
        f"{8 * width} bits, {'little' if kind[0] == '<' else 'big'} end first",
        partial(table.shown, cell_at),
        _BYTES,
        plain=1,
        certain=width == 8 or len(data) > SCANNED,
    )


def digits_in(windows: list[tuple[str, np.ndarray]], table: RawTable) -> Evidence | None:
    """Twelve digits of a raw value in a row, points left out, as where numbers were run together."""
    sizes = table.cells.sizes
    long = np.flatnonzero(decimals_of(sizes) == NO_GRADE) if len(sizes) else np.empty(0, int)
    if not len(long):
        return None
    keys = _leading(sizes[long])
    order = np.argsort(keys)
    ordered = keys[order]
    for path, seen in windows:
        place = np.minimum(np.searchsorted(ordered, seen), len(ordered) - 1)
        hit = np.flatnonzero(ordered[place] == seen)
        if len(hit):
            cell = int(table.cells.first[long[order[place[hit[0]]]]])
            return Evidence(
                "digits",
                "the digits of a raw value",
                -float(np.log(len(seen) * len(ordered)) - WINDOW * np.log(10)),
                partial(str, path),
                partial(table.where, cell),
                value=partial(table.shown, cell),
                mend="write no raw value into a text, an error or a log",
                plain=2,
            )
    return None


def _leading(values: np.ndarray) -> np.ndarray:
    """The first twelve digits that are written for each number, but for a slip in the last."""
    exponent = np.floor(np.log10(values))
    scaled = np.floor(values * 10.0 ** (WINDOW - 1 - exponent))
    return np.asarray(scaled.astype(np.int64))


def windows_of(released: Released) -> list[tuple[str, np.ndarray]]:
    """Every twelve digits in a row of each text, as whole numbers."""
    fit = [(path, text) for path, text in released.texts if WINDOW <= len(text) <= LONGEST]
    found = [(path, _windows(text)) for path, text in fit]
    return [(path, keys) for path, keys in found if len(keys)]


def _windows(text: str) -> np.ndarray:
    plain = np.frombuffer(text.encode("latin-1", "replace"), np.uint8)
    digits = plain[plain != ord(".")].astype(np.int8) - ord("0")
    whole = (digits >= 0) & (digits <= 9)
    runs = np.cumsum(np.r_[0, ~whole])
    starts = np.flatnonzero(runs[WINDOW:] == runs[:-WINDOW])
    key = np.zeros(len(starts), dtype=np.int64)
    for place in range(WINDOW):
        key = key * 10 + digits[starts + place]
    return np.asarray(key[key >= 10 ** (WINDOW - 1)])


def digests_of(released: Released) -> dict[str, str]:
    """What may be digests in the texts that left, and where each stood."""
    seen: dict[str, str] = {}
    for path, text in released.worded:
        for token in _DIGEST.findall(text):
            seen.setdefault(token.lower(), path)
    return seen


def digests_in(seen: dict[str, str], table: RawTable) -> Evidence | None:
    """Digests of raw values: whoever can list the values can undo them."""
    lengths = {len(token) for token in seen}
    names = [name for name in _HASHES if 2 * hashlib.new(name).digest_size in lengths]
    for written, where in _written(table) if names else ():
        for name in names:
            digest = hashlib.new(name, written).hexdigest()
            if digest in seen:
                return Evidence(
                    "digests",
                    f"the {name} digest of a raw value",
                    100.0,
                    partial(str, seen[digest]),
                    where,
                    mend="whoever can list the possible values can undo a digest; leave it out",
                    plain=2,
                    certain=True,
                )
    return None


def _written(table: RawTable) -> Iterator[tuple[bytes, Callable[[], str]]]:
    """Raw values and texts as programs write them before they hash them."""
    flat = table.numbers.ravel()
    for cell in table.cells.first[:DIGESTED]:
        value = float(flat[cell])
        forms = {repr(value), str(value), f"{value:g}", f"{value:.2f}"}
        if value.is_integer():
            forms.add(str(int(value)))
        for form in forms:
            yield form.encode(), partial(table.where, int(cell))
        yield np.float64(value).tobytes(), partial(table.where, int(cell))
    for column in table.texts:
        for at, text in enumerate(column.values[:DIGESTED]) if column.naming else ():
            where = partial(table.place, column.record(at), column.name)
            for form in {text, text.strip().lower(), text.strip().upper()} - {""}:
                yield form.encode(), where
