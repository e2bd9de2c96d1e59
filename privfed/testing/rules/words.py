"""Raw texts in texts and bytes; digits of raw values without their points; digests of values."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from privfed.testing.rules.match import Match
from privfed.testing.rules.precision import NO_GRADE, decimals_of
from privfed.testing.rules.released import Released
from privfed.testing.rules.table import SHORTEST, RawTable

#: How many digits in a row are compared.
WINDOW = 12
#: Longest text in which digits without points are looked for.
LONGEST = 20_000_000
#: Most values and texts of which digests are computed.
DIGESTED = 100_000
_DIGEST = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{32,128}(?![0-9a-fA-F])")
_LENGTHS = (32, 40, 56, 64, 96, 128)
_WORD = re.compile(r"\S+")
_HASHES = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "blake2s")


def words_in(table: RawTable, released: Released) -> Iterator[Match | None]:
    """All rules about texts, a match or none for each test."""
    texts = released.texts + [(path, data.decode("latin-1")) for path, data in released.strings]
    yield from _names(table, texts)
    yield _digits(table, released.texts)
    yield from _digests(table, texts)


def _names(table: RawTable, texts: list[tuple[str, str]]) -> Iterator[Match | None]:
    """Texts that name single records, anywhere in what left."""
    for column, values in table.texts.items():
        wanted = {value: row for row, value in enumerate(values) if len(value) >= SHORTEST}
        spaced = [value for value in wanted if len(value.split()) > 1]
        for path, text in texts:
            row = _first_name(wanted, spaced, text)
            if row is not None:
                yield Match(
                    "a raw text",
                    partial(str, path),
                    table.place(row, column),
                    0.0,
                    value=repr(values[row]),
                    mend="leave out what names a record, or use a key that says nothing of it",
                    main=True,
                )
                return


def _first_name(wanted: dict[str, int], spaced: list[str], text: str) -> int | None:
    if len(wanted) * len(text) <= 50_000_000:
        return next((row for value, row in wanted.items() if value in text), None)
    for word in _WORD.findall(text):
        for shape in (word, word.strip("\"'.,;:()[]{}<>")):
            if shape in wanted:
                return wanted[shape]
    return next((wanted[value] for value in spaced if value in text), None)


def _digits(table: RawTable, texts: list[tuple[str, str]]) -> Match | None:
    """Twelve digits of a raw value in a row, points left out, as where numbers were run together."""
    sizes = table.cells.sizes
    long = np.flatnonzero(decimals_of(sizes) == NO_GRADE) if len(sizes) else np.empty(0, int)
    if not len(long):
        return None
    texts = [(path, text) for path, text in texts if WINDOW <= len(text) <= LONGEST]
    keys = _leading(sizes[long]) if texts else np.empty(0, np.int64)
    order = np.argsort(keys)
    ordered = keys[order]
    for path, text in texts:
        found = _windows(text, ordered)
        if found is not None:
            cell = int(table.cells.first[long[order[found]]])
            return Match(
                "the digits of a raw value",
                partial(str, path),
                table.where(cell),
                min(1.0, len(text) * len(ordered) * 10.0**-WINDOW),
                value=repr(float(table.numbers.ravel()[cell])),
                mend="write no raw value into a text, an error or a log",
                main=True,
            )
    return None


def _leading(values: np.ndarray) -> np.ndarray:
    """The first twelve digits that are written for each number, but for a slip in the last."""
    exponent = np.floor(np.log10(values))
    scaled = np.floor(values * 10.0 ** (WINDOW - 1 - exponent))
    return np.asarray(scaled.astype(np.int64))


def _windows(text: str, ordered: np.ndarray) -> int | None:
    """The position among the keys of the first run of digits that is one of them."""
    plain = np.frombuffer(text.encode("latin-1", "replace"), np.uint8)
    digits = plain[plain != ord(".")].astype(np.int64) - ord("0")
    if len(digits) < WINDOW:
        return None
    count = len(digits) - WINDOW + 1
    key = np.zeros(count, dtype=np.int64)
    whole = np.ones(count, dtype=bool)
    for place in range(WINDOW):
        part = digits[place : place + count]
        whole &= (part >= 0) & (part <= 9)
        key = key * 10 + part
    key = key[whole & (key >= 10 ** (WINDOW - 1))]
    if not len(key):
        return None
    place = np.minimum(np.searchsorted(ordered, key), len(ordered) - 1)
    hit = np.flatnonzero(ordered[place] == key)
    return int(place[hit[0]]) if len(hit) else None


def _digests(table: RawTable, texts: list[tuple[str, str]]) -> Iterator[Match | None]:
    """Digests of raw values: whoever can list the values can undo them."""
    seen: dict[str, str] = {}
    for path, text in texts:
        for token in _DIGEST.findall(text):
            if len(token) in _LENGTHS:
                seen.setdefault(token.lower(), path)
    if not seen:
        return
    lengths = {len(token) for token in seen}
    names = [name for name in _HASHES if 2 * hashlib.new(name).digest_size in lengths]
    for written, where in _written(table):
        for name in names:
            digest = hashlib.new(name, written).hexdigest()
            if digest in seen:
                yield Match(
                    f"the {name} digest of a raw value",
                    partial(str, seen[digest]),
                    where(),
                    0.0,
                    mend="whoever can list the possible values can undo a digest; leave it out",
                )
                return
    yield None


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
    for column, values in table.texts.items():
        for row, text in enumerate(values[:DIGESTED]):
            yield text.encode(), partial(table.place, row, column)
