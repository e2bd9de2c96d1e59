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
#: In longer bytes the model's probability is not checked against redrawn tables.
SCANNED = 1 << 23
#: Digits compared at a time, and the longest text that is searched for them.
WINDOW, LONGEST = 12, 20_000_000
DIGESTED = 100_000  #: Most values and texts of which digests are computed
COUNTED = 10_000  #: Smaller integers may also be counts
#: Prior fraction of digests that are of numbers or names, not of files; the model's probability is not checked
#: against redrawn tables for more cells than DRAWN, nor for at most ALONE digests.
OTHERS, DRAWN, ALONE = 0.001, 4000, 2
CHECKED = 10_000  #: Shorter texts are searched for a run of digits first
_LONG = re.compile(rf"(?:\d\.?){{{WINDOW}}}")
_SPREAD = np.uint32(0x9E3779B1)
_BYTES = (
    "raw values stand in these bytes as they lie in memory; never serialise the data themselves"
)
_DIGEST = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{16,128}(?![0-9a-fA-F])")
#: Fewest digits of a full and of a truncated digest, and the longest text that is searched for the latter.
WHOLE, CUT, CUT_IN = 32, 16, 1 << 20
_HASHES = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "blake2s")


def bytes_in(released: Released, table: RawTable) -> Evidence | None:
    """Evidence from the byte string that contains raw values most surprisingly."""
    floats = table.memoised("floats", lambda: _Floats.of(table))
    if floats is None:
        return None
    matches = []
    for path, data in released.strings:
        offsets = _candidate_offsets(data, floats.marked, floats.bits)
        for kind in FORMATS if len(offsets) else ():
            begins = offsets - 4 * _low_word(kind)
            width = np.dtype(kind).itemsize
            begins = begins[(begins >= 0) & (begins <= len(data) - width)]
            matches.append(_matches_at(table, path, data, kind, floats, begins))
    return max((match for match in matches if match), key=lambda match: match.nats, default=None)


@dataclass(frozen=True, eq=False)
class _Floats:
    """Raw values with all their digits, in each float format: their bits as integers, ascending, the cell of
    each, and a table of the hashes of their four low-order bytes."""

    ordered: dict[str, np.ndarray]
    cells: dict[str, np.ndarray]
    marked: np.ndarray
    bits: int

    @classmethod
    def of(cls, table: RawTable) -> _Floats | None:
        """Encode a table's cells and their negatives; None if no cell has all its digits."""
        long = np.flatnonzero(decimals_of(table.cells.sizes) == NO_GRADE)
        signed = table.numbers.ravel()[table.cells.first[long]]
        if not len(signed):
            return None
        with np.errstate(over="ignore"):
            encoded = {kind: np.r_[signed, -signed].astype(kind) for kind in FORMATS}
        low_words = [
            values.view("<u4").reshape(len(values), -1)[:, _low_word(kind)]
            for kind, values in encoded.items()
        ]
        ordered, cells = {}, {}
        for kind, values in encoded.items():
            integers = values.view(f"u{values.itemsize}")
            order = np.argsort(integers, kind="stable")
            ordered[kind], cells[kind] = integers[order], np.tile(long, 2)[order]
        return cls(ordered, cells, *_marked(low_words))


def _low_word(kind: str) -> int:
    """Index of the four low-order bytes, which distinguish values best."""
    return 1 if kind == ">f8" else 0


def _marked(words: list[np.ndarray]) -> tuple[np.ndarray, int]:
    """Hash table of some words, sparse enough to reject nearly all others, and its bits."""
    bits = min(26, int(np.log2(64 * sum(map(len, words)))) + 1)
    marked = np.zeros(1 << bits, dtype=bool)
    for values in words:
        marked[_hash(values, bits)] = True
    return marked, bits


def _hash(words: np.ndarray, bits: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray((words * _SPREAD) >> np.uint32(32 - bits))


def _candidate_offsets(data: bytes, marked: np.ndarray, bits: int) -> np.ndarray:
    """Offsets of four bytes whose hash is in the table."""
    offsets = [np.empty(0, np.int64)]
    for phase in range(min(4, len(data) - 3)):
        words = np.frombuffer(data, "<u4", count=(len(data) - phase) // 4, offset=phase)
        offsets.append(np.flatnonzero(marked[_hash(words, bits)]) * 4 + phase)
    return np.concatenate(offsets)


def _matches_at(
    table: RawTable, path: str, data: bytes, kind: str, floats: _Floats, begins: np.ndarray
) -> Evidence | None:
    """Evidence from values of one format at the given offsets."""
    ordered = floats.ordered[kind]
    width = ordered.itemsize
    octets = np.frombuffer(data, np.uint8)
    candidates = octets[begins[:, None] + np.arange(width)].view(ordered.dtype).ravel()
    index = np.minimum(np.searchsorted(ordered, candidates), len(ordered) - 1)
    hits = np.flatnonzero(ordered[index] == candidates)
    if not len(hits):
        return None
    cells = floats.cells[kind][index[hits]]
    size = table.cells.sizes[cells]
    spacing = np.spacing(size.astype(f"f{width}")).astype(float)
    probability = np.minimum(densities(table.cells.sizes, cells) * spacing, 1.0)
    _, first = np.unique(cells, return_index=True)
    first_cell = int(table.cells.first[cells[0]])
    return Evidence(
        "bytes",
        "a raw value, as the bytes of a float",
        surprise(probability[first], len(data)) - np.log(len(FORMATS)),
        partial("{}, byte {}".format, path, int(begins[hits[0]])),
        partial(table.where, first_cell),
        len(first),
        f"{8 * width} bits, {'little' if kind[0] == '<' else 'big'} end first",
        partial(table.shown, first_cell),
        _BYTES,
        complexity=1,
        certain=len(data) > SCANNED,
    )


def digits_in(windows: list[tuple[str, np.ndarray]], table: RawTable) -> Evidence | None:
    """Evidence from twelve consecutive digits of a raw value, points ignored, as in concatenated numbers."""
    sizes = table.cells.sizes
    long = np.flatnonzero(decimals_of(sizes) == NO_GRADE) if len(sizes) else np.empty(0, int)
    if not len(long):
        return None
    exponent = np.floor(np.log10(sizes[long]))  # up to rounding in the last digit
    keys = np.floor(sizes[long] * 10.0 ** (WINDOW - 1 - exponent)).astype(np.int64)
    order = np.argsort(keys)
    ordered = keys[order]
    for path, released_keys in windows:
        index = np.minimum(np.searchsorted(ordered, released_keys), len(ordered) - 1)
        hits = np.flatnonzero(ordered[index] == released_keys)
        if len(hits):
            cell = int(table.cells.first[long[order[index[hits[0]]]]])
            return Evidence(
                "digits",
                "the digits of a raw value",
                -float(np.log(len(released_keys) * len(ordered)) - WINDOW * np.log(10)),
                partial(str, path),
                partial(table.where, cell),
                value=partial(table.shown, cell),
                remedy="write no raw value into a text, an error or a log",
                complexity=2,
            )
    return None


def windows_of(released: Released) -> list[tuple[str, np.ndarray]]:
    """All runs of twelve consecutive digits of each text, as integers."""
    texts = [
        (path, text)
        for path, text in released.texts
        if WINDOW <= len(text) <= LONGEST and (len(text) > CHECKED or _LONG.search(text))
    ]
    windows = [(path, _windows(text)) for path, text in texts]
    return [(path, keys) for path, keys in windows if len(keys)]


def _windows(text: str) -> np.ndarray:
    octets = np.frombuffer(text.encode("latin-1", "replace"), np.uint8)
    digits = octets[octets != ord(".")].astype(np.int8) - ord("0")
    is_digit = (digits >= 0) & (digits <= 9)
    breaks = np.cumsum(np.r_[0, ~is_digit])
    starts = np.flatnonzero(breaks[WINDOW:] == breaks[:-WINDOW])
    key = np.zeros(len(starts), dtype=np.int64)
    for offset in range(WINDOW):
        key = key * 10 + digits[starts + offset]
    return np.asarray(key[key >= 10 ** (WINDOW - 1)])


def digests_of(released: Released) -> dict[str, str]:
    """Possible digests in the released texts, with their paths."""
    digests: dict[str, str] = {}
    for path, text in released.all_texts:
        min_length = CUT if len(text) <= CUT_IN else WHOLE
        for token in long_words(_DIGEST, text, string.hexdigits, min_length):
            if min_length <= len(token) and (len(token) >= WHOLE or not token.isdigit()):
                digests.setdefault(token.lower(), path)
    return digests


def digests_in(tokens: dict[str, str], table: RawTable) -> Evidence | None:
    """Evidence from digests of raw values, which anyone who can enumerate the values can invert.

    Digests of small counts are scored as a group of their own.
    """
    # truncated digests are searched in small tables only
    small = len(table.cells) + table.codes.size <= DRAWN
    raw: dict[str, tuple[float, partial[str], str]] = {}
    count_tokens: set[str] = set()
    forms = cache(lambda: list(_written_forms(table)))
    for name in _HASHES:
        full_size = 2 * hashlib.new(name).digest_size
        for size in {
            len(t) for t in tokens if len(t) == full_size or (small and len(t) < full_size)
        }:
            digests = table.memoised((name, size), partial(_digests, name, size, table, forms))
            raw |= {t: (*digests[t], name) for t in sorted(digests.keys() & tokens.keys())}
            count_tokens |= _count_digests(name, size).intersection(tokens)
    if not raw:
        return None
    p = np.array([value for value, *_ in raw.values()])
    groups = np.array([t in count_tokens for t in raw], dtype=int)
    trials = np.maximum([len(tokens) - len(count_tokens), len(count_tokens)], 1)
    hits = np.bincount(groups, minlength=2)
    means = np.bincount(groups, p, minlength=2) / np.maximum(hits, 1)
    nats = np.r_[surprises(groups, p, trials), chernoff(hits, trials, means)[hits > 1]]
    score, digest = float(nats.max()), min(raw, key=lambda t: raw[t][0])
    return Evidence(
        "digests",
        f"the {raw[digest][2]} digest of a raw value",
        score - float(np.log(4 * OTHERS if score > DULL else 4)),
        partial(str, tokens[digest]),
        raw[digest][1],
        len(raw),
        remedy="anyone who can list the possible values can reverse a digest; leave it out",
        complexity=2,
        certain=raw[digest][1].func is _text_at or len(tokens) <= ALONE or len(table.cells) > DRAWN,
    )


@cache
def _count_digests(name: str, length: int) -> frozenset[str]:
    """Digests of the integers below ``COUNTED``, such as ids from 1 to n, truncated to ``length`` digits."""
    digests = (hashlib.new(name, str(number).encode()).hexdigest() for number in range(COUNTED))
    return frozenset(digest[:length] for digest in digests)


#: A raw value's written form, the probability that another value of its kind has it, and its location.
Written = tuple[bytes, float, partial[str]]


def _digests(
    name: str, length: int, table: RawTable, forms: Callable[[], list[Written]]
) -> dict[str, tuple[float, partial[str]]]:
    """For each digest of a raw value, the probability of another value with it, and the value's location."""
    hashed = getattr(hashlib, name)
    size = 2 * hashed().digest_size
    if length < size:
        full = table.memoised((name, size), partial(_digests, name, size, table, forms))
        return {digest[:length]: match for digest, match in full.items()}
    digests: dict[str, tuple[float, partial[str]]] = {}
    for form, probability, locate in forms():
        digest = hashed(form).hexdigest()
        if digest not in digests or digests[digest][0] < probability:
            digests[digest] = probability, locate
    return digests


def _written_forms(table: RawTable) -> Iterator[Written]:
    """Yield raw values and texts in the forms in which programs hash them."""
    sizes, flat = table.cells.sizes[:DIGESTED], table.numbers.ravel()
    cells, indices = table.cells.first[:DIGESTED], np.arange(len(sizes))
    density = densities(table.cells.sizes, indices, n_std=0)
    column_of = cells % max(1, len(table.names))
    step = np.maximum(widths_of(sizes), table.steps[column_of])
    for j in np.unique(column_of):
        rows = np.flatnonzero(column_of == j)
        step[rows] = np.maximum(step[rows], spacings_of(sizes[rows], table.numbers[:, j]))
    short = 10.0 ** (np.floor(np.log10(sizes)) - 5)  # six digits
    p = [
        np.clip(density * np.maximum(step, floor), simplicity(sizes), 1.0)
        for floor in (0, short, 0.01)
    ]
    for cell, *by_form in zip(cells.tolist(), *map(np.ndarray.tolist, p), strict=True):
        value, locate = float(flat[cell]), partial(table.where, cell)
        forms = [repr(value), f"{value:g}", f"{value:.2f}"]
        for form, probability in zip(forms, by_form, strict=True):
            yield form.encode(), probability, locate
        if value.is_integer():
            yield str(int(value)).encode(), by_form[0], locate
        yield np.float64(value).tobytes(), by_form[0], locate
    redrawn = isinstance(table.texts, RedrawnTexts)  # whose values are still the raw ones
    for column in () if redrawn else table.texts:
        of_texts = np.exp(np.minimum(np.log(len(column.keys)) - column.space, 0.0)).tolist()
        for index, text in enumerate(column.values[:DIGESTED]) if column.naming else ():
            locate = partial(_text_at, table, column, index)
            for form in {text, text.strip().lower(), text.strip().upper()} - {""}:
                yield form.encode(), of_texts[index], locate


def _text_at(table: RawTable, column: TextColumn, value: int) -> str:
    return table.location(column.record(value), column.name)
