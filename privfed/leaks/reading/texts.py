"""Reads texts: numbers, dates, and bytes encoded as text."""

from __future__ import annotations

import ast
import base64
import binascii
import json
import quopri
import re
import string
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from html import unescape
from itertools import islice
from typing import Any
from urllib.parse import unquote

import numpy as np

from privfed.leaks.reading.dates import dates_in, may_be_dated
from privfed.leaks.reading.digits import NUMBER, plain_numbers
from privfed.leaks.reading.encodings import decoded
from privfed.leaks.reading.leaf import Leaf

DIGIT = re.compile(r"\d")
#: Thousands separated by commas, points, quotes or spaces; of comma and point, the other is decimal.
_MARKS = "'\u2019 \u00a0\u2009\u202f_"
_GROUPED = re.compile(
    rf"(?<![\d,.])\d{{1,3}}(?:(?:,\d{{3}})+(?:\.\d+)?|(?:\.\d{{3}})+(?:,\d+)?|([{_MARKS}])\d{{3}}(?:\1\d{{3}})*(?:[.,]\d+)?)(?![\d,])"
)
COMMA = re.compile(r"(?<![\w,.])\d+,\d+(?![\d,]|\.\d)")  #: A comma that may be a decimal one
_GROUPED_HINT = re.compile(rf"\d[{_MARKS},.]\d{{3}}")
#: A number alone between two separators or wide gaps: not the 17 of ``Room 17``.
_CELL = re.compile(
    rf"(?:^|(?<=[,;|:=()\[\]{{}}'\"\t])|(?<=  )) *+{NUMBER.pattern}(?=  | *+(?:[,;|:=()\[\]{{}}'\"\t\r]|$))",
    re.MULTILINE,
)
_HEXFLOAT = re.compile(r"[-+]?0x[01]\.[0-9a-f]+p[-+]?\d+")
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{16,}(?:\r?\n[A-Za-z0-9+/_-]{16,})*={0,6}")
_ALPHABET = f"{string.ascii_letters}{string.digits}+/_-"
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
COLOUR = re.compile(r"\x1b\[[\d;:]*[A-Za-z]")  #: Terminal escape sequence
#: Marks of quoted-printable: a character of several encoded bytes, or a soft line break.
_QUOTED = re.compile(r"=[C-F][\dA-F]=[89AB][\dA-F]|^.{60,75}=\r?$", re.MULTILINE)
_PAIRS = re.compile(r"\b[\da-fA-F]{2}(?:([ :-])[\da-fA-F]{2})(?:\1[\da-fA-F]{2}){6,}\b")
#: A text operator of a PDF, with kerning between its strings, and the strings.
_SHOWN = re.compile(r"\[((?:[^\\\[\]]|\\.)*)\]\s*TJ\b")
_LETTERS = re.compile(r"\(((?:[^\\()]|\\.)*)\)")
_BASE85 = re.compile(r"[!-~]{20,}")
_LITERAL = re.compile(r"""(?<![\w'])b'(?:[^'\\]|\\.)*'|(?<![\w"])b"(?:[^"\\]|\\.)*\"""")
#: Longest text in which every notation is tried; longer texts are searched for plain numbers, and tried
#: as a whole for the encodings.
LONG = 1 << 20
JSON = ("JSON", "JSON lines")


def numbers_in(path: str, text: str) -> Iterator[Leaf]:
    """Yield the numbers of a text, in order, one leaf per notation."""
    if not DIGIT.search(text):
        return
    if len(values := plain_numbers(text)):
        yield Leaf(path, values, _Locations(text, NUMBER, len(values)))
    if len(text) <= LONG:
        # separate leaf of a record's cells, without the numbers inside its texts
        if 1 < len(cells := _CELL.findall(text)) < len(values):
            cell_values = np.fromiter(map(float, cells), float, len(cells))
            yield Leaf(path, cell_values, _Locations(text, _CELL, len(cell_values)))
        if _GROUPED_HINT.search(text):
            yield from _read(path, text, _GROUPED, ungrouped)
        if "," in text:
            yield from _read(path, text, COMMA, lambda t: float(t.replace(",", ".")))
        if "0x" in text:
            yield from _read(path, text, _HEXFLOAT, float.fromhex)
        if may_be_dated(text):
            dates = list(dates_in(text))
            if dates:
                locations = _Locations(text, [start for start, *_ in dates])
                yield Leaf(path, np.array([seconds for *_, seconds, _ in dates]), locations)


def ungrouped(text: str) -> float:
    """Parse a number with thousands separators; the last separator is decimal if it occurs once."""
    bare = re.sub(rf"[{_MARKS}]", "", text)
    comma, point = bare.rfind(","), bare.rfind(".")
    if comma > point >= 0 or (point < 0 and bare.count(",") == 1 and bare != text):
        return float(bare.replace(".", "").replace(",", "."))
    if point >= 0 and bare.count(".") > 1:
        return float(bare.replace(".", ""))
    if comma < 0 and bare == text and "e" not in text.lower():  # 46.838 may be forty-six thousand
        return float(bare.replace(".", ""))
    return float(bare.replace(",", ""))


def _read(
    path: str, text: str, pattern: re.Pattern[str], convert: Callable[[str], float]
) -> Iterator[Leaf]:
    matches = [m[0] for m in pattern.finditer(text)] if pattern.groups else pattern.findall(text)
    if matches:
        values = np.fromiter(map(convert, matches), float, len(matches))
        yield Leaf(path, values, _Locations(text, pattern, len(matches)))


class _Locations(Sequence[str]):
    """Locations of numbers in a text, computed on access."""

    def __init__(self, text: str, where: re.Pattern[str] | list[int], count: int = 0) -> None:
        self._text, self._where = text, where
        self._count = len(where) if isinstance(where, list) else count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        if isinstance(self._where, list):
            return location_in(self._text, self._where[index])
        match = next(islice(self._where.finditer(self._text), index, None), None)
        if match is None:
            raise IndexError(index)
        return location_in(self._text, match.start())


def location_in(text: str, start: int) -> str:
    """Return the line or character of a position in a text, in words."""
    line = text.count("\n", 0, start)
    return f", line {line + 1}" if "\n" in text else f", character {start}"


def encoded_in(text: str) -> Iterator[tuple[str, object]]:
    """Yield possible decodings of a text: JSON, HTML, mail, PDF, base64, hexadecimal, escapes, quoted bytes."""
    stripped = text.strip()
    if stripped[:1] in ("{", "[", '"') and stripped[-1:] in ("}", "]", '"'):
        yield from _json(stripped)
    if "%" in text and len(text) <= LONG and unquote(text) != text:
        yield "URL-decoded", unquote(text)
    if "&" in text and len(text) <= LONG and unescape(text) != text:
        yield "HTML", unescape(text)
    if len(text) <= LONG and _ESCAPE.search(text):
        bare = _LITERAL.sub("", text)
        yield "escapes", _ESCAPE.sub(lambda match: chr(int(match[1] or match[2], 16)), bare)
    if "\x1b[" in text:
        yield "text without colours", COLOUR.sub("", text)
    if "=" in text and len(text) <= LONG and _QUOTED.search(text):
        yield "quoted-printable", quopri.decodestring(text.encode(errors="replace"))
    if "TJ" in text and len(text) <= LONG:
        shown = ("".join(_LETTERS.findall(match)) for match in _SHOWN.findall(text))
        yield "PDF", "\n".join(match.replace("\n", "") for match in shown)  # zeros of wide letters
    for pairs in _PAIRS.finditer(text) if len(text) <= LONG else ():
        if re.search("[a-fA-F]", pairs[0]):  # otherwise they are numbers
            yield "hexadecimal", bytes.fromhex(pairs[0].replace(pairs[1], ""))
    if "b'" in text or 'b"' in text:
        for literal in _LITERAL.findall(text):
            yield from _attempt("quoted bytes", partial(ast.literal_eval, literal))
    for token in _tokens(text):
        yield from _bytes_of(token)
    if 20 <= len(stripped) <= LONG and _BASE85.fullmatch(stripped) and not stripped.isalnum():
        for name, decode in {"base85": base64.b85decode, "ascii85": base64.a85decode}.items():
            for codec, content in _attempt(name, partial(decode, stripped)):
                if any(decoded(content)):  # almost any text decodes in these alphabets
                    yield codec, content


def _json(text: str) -> Iterator[tuple[str, object]]:
    try:
        yield JSON[0], json.loads(text)
    except (ValueError, RecursionError):
        lines = text.splitlines()
        if len(lines) > 1:
            joined = f"[{','.join(filter(None, lines))}]"
            yield from _attempt(JSON[1], lambda: json.loads(joined))


def _tokens(text: str) -> Iterator[str]:
    """Yield runs of letters and digits that may be encoded bytes, not words or plain numbers."""
    for token in long_words(_ENCODED, text, _ALPHABET, 16):
        if not token.isdigit() and (len(token) >= 32 or not token.isalpha()):
            yield token


def long_words(pattern: re.Pattern[str], text: str, letters: str, length: int) -> Iterator[str]:
    """Yield the matches of a pattern that begin with a run of at least ``length`` of some letters.

    Runs are searched first: most texts have none.
    """
    marked, run = text.encode("latin-1", "replace").translate(_marked(letters)), b"/" * length
    offset = marked.find(run)
    while offset >= 0 and (match := pattern.search(text, offset)):
        yield match[0]
        offset = marked.find(run, match.end())


@cache
def _marked(letters: str) -> bytes:
    """Translation table that maps some letters to slashes and all others to points."""
    return bytes(46 + (chr(code) in letters) for code in range(256))


def _bytes_of(token: str) -> Iterator[tuple[str, object]]:
    joined = "".join(token.split())
    if len(joined) % 2 == 0 and re.fullmatch(r"[0-9a-fA-F]+", joined):
        yield "hexadecimal", bytes.fromhex(joined)
        return
    if re.fullmatch(r"[A-Z2-7]+=*", joined) and len(joined) % 8 == 0:
        yield from _attempt("base32", lambda: base64.b32decode(joined))
    standard = joined.rstrip("=").replace("-", "+").replace("_", "/")
    if len(standard) % 4 != 1:
        padded = standard + "=" * (-len(standard) % 4)
        yield from _attempt("base64", lambda: base64.b64decode(padded))


def _attempt(name: str, decode: Callable[[], Any]) -> Iterator[tuple[str, Any]]:
    try:
        yield name, decode()
    except (ValueError, SyntaxError, MemoryError, RecursionError, binascii.Error):
        return
