"""Raw values as the bytes of floats, as digits run together, and as digests."""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from privfed.leaks.artefact import Released
from privfed.leaks.chance import DULL, chernoff, densities, surprise, surprises
from privfed.leaks.evidence import Evidence
from privfed.leaks.precision import NO_GRADE, decimals_of, simplicity, widths_of
from privfed.leaks.reading.texts import long_words
from privfed.leaks.shape import spacings_of
from privfed.leaks.table import RawTable, RedrawnTexts
from privfed.leaks.texts import TextColumn

FORMATS = ("<f8", ">f8", "<f4", ">f4")  #: How values may be written, as types of NumPy
#: Bytes beyond which re-drawn tables are not tried: the model's chance stands alone.
SCANNED = 1 << 23
WINDOW, LONGEST = 12, 20_000_000  #: How many digits in a row are compared, and in how long a text
DIGESTED = 100_000  #: Most values and texts of which digests are computed
COUNTED = 10_000  #: Whole numbers below it are also those of a count
#: Share of digests that are of numbers or names at all, not of files; cells and texts beyond which, and digests up
#: to which the model's chance stands alone.
OTHERS, DRAWN, ALONE = 0.001, 4000, 2
CHECKED = 10_000  #: Up to this length a text is searched for a run of digits first
_LONG = re.compile(rf"(?:\d\.?){{{WINDOW}}}")
_SPREAD = np.uint32(0x9E3779B1)
_BYTES = (
    "raw values stand in these bytes as they lie in memory; never serialise the data themselves"
)
_DIGEST = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{16,128}(?![0-9a-fA-F])")
#: Fewest digits that a digest has, and to which one is cut, the latter looked for in texts up to a length.
WHOLE, CUT, CUT_IN = 32, 16, 1 << 20
_HASHES = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "blake2s")


def bytes_in(released: Released, table: RawTable) -> Evidence | None:
    """The most surprising string of bytes in which raw values stand."""
    floats = table.memoised("floats", lambda: _Floats.of(table))
    if floats is None:
        return None
    found = []
    for path, data in released.strings:
        likely = _likely(data, floats.marked, floats.bits)
        for kind in FORMATS if len(likely) else ():
            begins = likely - 4 * _telling(kind)
            width = np.dtype(kind).itemsize
            begins = begins[(begins >= 0) & (begins <= len(data) - width)]
            found.append(_standing(table, path, data, kind, floats, begins))
    return max((one for one in found if one), key=lambda one: one.nats, default=None)


@dataclass(frozen=True, eq=False)
class _Floats:
    """Raw values that have all their digits, as the bytes of floats of each format: what they are as whole
    numbers, ascending, the cell of each, and which hashes four telling bytes of any have."""

    ordered: dict[str, np.ndarray]
    cells: dict[str, np.ndarray]
    marked: np.ndarray
    bits: int

    @classmethod
    def of(cls, table: RawTable) -> _Floats | None:
        """Of a table's cells, and of their negatives."""
        long = np.flatnonzero(decimals_of(table.cells.sizes) == NO_GRADE)
        signed = table.numbers.ravel()[table.cells.first[long]]
        if not len(signed):
            return None
        with np.errstate(over="ignore"):
            written = {kind: np.r_[signed, -signed].astype(kind) for kind in FORMATS}
        telling = [
            one.view("<u4").reshape(len(one), -1)[:, _telling(kind)]
            for kind, one in written.items()
        ]
        ordered, cells = {}, {}
        for kind, one in written.items():
            whole = one.view(f"u{one.itemsize}")
            order = np.argsort(whole, kind="stable")
            ordered[kind], cells[kind] = whole[order], np.tile(long, 2)[order]
        return cls(ordered, cells, *_marked(telling))


def _telling(kind: str) -> int:
    """Which four bytes tell a value best: those of lowest order."""
    return 1 if kind == ">f8" else 0


def _marked(words: list[np.ndarray]) -> tuple[np.ndarray, int]:
    """A table of the hashes of some words, sparse enough to drop nearly all others."""
    bits = min(26, int(np.log2(64 * sum(map(len, words)))) + 1)
    marked = np.zeros(1 << bits, dtype=bool)
    for one in words:
        marked[_hash(one, bits)] = True
    return marked, bits


def _hash(words: np.ndarray, bits: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray((words * _SPREAD) >> np.uint32(32 - bits))


def _likely(data: bytes, marked: np.ndarray, bits: int) -> np.ndarray:
    """Offsets of four bytes whose hash is marked."""
    found = [np.empty(0, np.int64)]
    for phase in range(min(4, len(data) - 3)):
        words = np.frombuffer(data, "<u4", count=(len(data) - phase) // 4, offset=phase)
        found.append(np.flatnonzero(marked[_hash(words, bits)]) * 4 + phase)
    return np.concatenate(found)


def _standing(
    table: RawTable, path: str, data: bytes, kind: str, floats: _Floats, begins: np.ndarray
) -> Evidence | None:
    """Values of one format that stand at some of the offsets."""
    ordered = floats.ordered[kind]
    width = ordered.itemsize
    octets = np.frombuffer(data, np.uint8)
    seen = octets[begins[:, None] + np.arange(width)].view(ordered.dtype).ravel()
    place = np.minimum(np.searchsorted(ordered, seen), len(ordered) - 1)
    hit = np.flatnonzero(ordered[place] == seen)
    if not len(hit):
        return None
    at = floats.cells[kind][place[hit]]
    size = table.cells.sizes[at]
    cell = np.spacing(size.astype(f"f{width}")).astype(float)
    chance = np.minimum(densities(table.cells.sizes, at) * cell, 1.0)
    _, first = np.unique(at, return_index=True)
    cell_at = int(table.cells.first[at[0]])
    return Evidence(
        "bytes",
        "a raw value, as the bytes of a float",
        surprise(chance[first], len(data)) - np.log(len(FORMATS)),
        partial("{}, byte {}".format, path, int(begins[hit[0]])),
        partial(table.where, cell_at),
        len(first),
        f"{8 * width} bits, {'little' if kind[0] == '<' else 'big'} end first",
        partial(table.shown, cell_at),
        _BYTES,
        plain=1,
        certain=len(data) > SCANNED,
    )


def digits_in(windows: list[tuple[str, np.ndarray]], table: RawTable) -> Evidence | None:
    """Twelve digits of a raw value in a row, points left out, as where numbers were run together."""
    sizes = table.cells.sizes
    long = np.flatnonzero(decimals_of(sizes) == NO_GRADE) if len(sizes) else np.empty(0, int)
    if not len(long):
        return None
    exponent = np.floor(np.log10(sizes[long]))  # but for a slip in the last digit
    keys = np.floor(sizes[long] * 10.0 ** (WINDOW - 1 - exponent)).astype(np.int64)
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


def windows_of(released: Released) -> list[tuple[str, np.ndarray]]:
    """Every twelve digits in a row of each text, as whole numbers."""
    fit = [
        (path, text)
        for path, text in released.texts
        if WINDOW <= len(text) <= LONGEST and (len(text) > CHECKED or _LONG.search(text))
    ]
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
        least = CUT if len(text) <= CUT_IN else WHOLE
        for token in long_words(_DIGEST, text, string.hexdigits, least):
            if least <= len(token) and (len(token) >= WHOLE or not token.isdigit()):
                seen.setdefault(token.lower(), path)
    return seen


def digests_in(seen: dict[str, str], table: RawTable) -> Evidence | None:
    """Digests of raw values: whoever can list the values can undo them.

    Of the digests that are none of a small count each might be of a value of the column's kind.
    """
    # of larger ones no cut digests are looked for
    small = len(table.cells) + table.codes.size <= DRAWN
    found: dict[str, tuple[float, partial[str], str]] = {}
    counted: set[str] = set()
    written = cache(lambda: list(_written(table)))
    for name in _HASHES:
        length = 2 * hashlib.new(name).digest_size
        for cut in {
            len(one) for one in seen if len(one) == length or (small and len(one) < length)
        }:
            digests = table.memoised((name, cut), partial(_digests, name, cut, table, written))
            found |= {one: (*digests[one], name) for one in sorted(digests.keys() & seen.keys())}
            counted |= _of_counts(name, cut).intersection(seen)
    if not found:
        return None
    chances = np.array([chance for chance, *_ in found.values()])
    groups = np.array([one in counted for one in found], dtype=int)
    trials = np.maximum([len(seen) - len(counted), len(counted)], 1)
    hits = np.bincount(groups, minlength=2)
    usual = np.bincount(groups, chances, minlength=2) / np.maximum(hits, 1)
    nats = np.r_[surprises(groups, chances, trials), chernoff(hits, trials, usual)[hits > 1]]
    told, digest = float(nats.max()), min(found, key=lambda one: found[one][0])
    return Evidence(
        "digests",
        f"the {found[digest][2]} digest of a raw value",
        told - float(np.log(4 * OTHERS if told > DULL else 4)),
        partial(str, seen[digest]),
        found[digest][1],
        len(found),
        mend="whoever can list the possible values can undo a digest; leave it out",
        plain=2,
        certain=found[digest][1].func is _of_text or len(seen) <= ALONE or len(table.cells) > DRAWN,
    )


@cache
def _of_counts(name: str, cut: int) -> frozenset[str]:
    """Digests of small whole numbers, as of ids from 1 to n, cut to so many digits."""
    made = (hashlib.new(name, str(at).encode()).hexdigest() for at in range(COUNTED))
    return frozenset(one[:cut] for one in made)


#: A raw value as it is written, how likely another of its kind is written so, and where it stands.
Written = tuple[bytes, float, partial[str]]


def _digests(
    name: str, cut: int, table: RawTable, written: Callable[[], list[Written]]
) -> dict[str, tuple[float, partial[str]]]:
    """Of each digest of a raw value how likely another value of its kind is that, and where it stands."""
    hashed = getattr(hashlib, name)
    size = 2 * hashed().digest_size
    if cut < size:
        whole = table.memoised((name, size), partial(_digests, name, size, table, written))
        return {digest[:cut]: told for digest, told in whole.items()}
    made: dict[str, tuple[float, partial[str]]] = {}
    for form, chance, where in written():
        digest = hashed(form).hexdigest()
        if digest not in made or made[digest][0] < chance:
            made[digest] = chance, where
    return made


def _written(table: RawTable) -> Iterator[Written]:
    """Raw values and texts as programs write them before they hash them."""
    sizes, flat = table.cells.sizes[:DIGESTED], table.numbers.ravel()
    cells, at = table.cells.first[:DIGESTED], np.arange(len(sizes))
    dense = densities(table.cells.sizes, at, deviations=0)
    held = cells % max(1, len(table.names))
    whole = np.maximum(widths_of(sizes), table.steps[held])
    for place in np.unique(held):
        of = np.flatnonzero(held == place)
        whole[of] = np.maximum(whole[of], spacings_of(sizes[of], table.numbers[:, place]))
    short = 10.0 ** (np.floor(np.log10(sizes)) - 5)  # six digits
    each = [
        np.clip(dense * np.maximum(whole, one), simplicity(sizes), 1.0) for one in (0, short, 0.01)
    ]
    for cell, *chances in zip(cells.tolist(), *map(np.ndarray.tolist, each), strict=True):
        value, where = float(flat[cell]), partial(table.where, cell)
        forms = [repr(value), f"{value:g}", f"{value:.2f}"]
        for form, chance in zip(forms, chances, strict=True):
            yield form.encode(), chance, where
        if value.is_integer():
            yield str(int(value)).encode(), chances[0], where
        yield np.float64(value).tobytes(), chances[0], where
    redrawn = isinstance(table.texts, RedrawnTexts)  # whose values are the raw ones still
    for column in () if redrawn else table.texts:
        likely = np.exp(np.minimum(np.log(len(column.keys)) - column.space, 0.0)).tolist()
        for place, text in enumerate(column.values[:DIGESTED]) if column.naming else ():
            where = partial(_of_text, table, column, place)
            for form in {text, text.strip().lower(), text.strip().upper()} - {""}:
                yield form.encode(), likely[place], where


def _of_text(table: RawTable, column: TextColumn, value: int) -> str:
    return table.place(column.record(value), column.name)
