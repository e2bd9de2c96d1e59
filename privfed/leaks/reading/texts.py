"""What a text holds: numbers, dates, and bytes that were encoded as text."""

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
#: Thousands set apart by commas, points, quotes or spaces; the other mark of the two is decimal.
_MARKS = "'\u2019 \u00a0\u2009\u202f_"
_GROUPED = re.compile(
    rf"(?<![\d,.])\d{{1,3}}(?:(?:,\d{{3}})+(?:\.\d+)?|(?:\.\d{{3}})+(?:,\d+)?|([{_MARKS}])\d{{3}}(?:\1\d{{3}})*(?:[.,]\d+)?)(?![\d,])"
)
COMMA = re.compile(r"(?<![\w,.])\d+,\d+(?![\d,]|\.\d)")  #: A comma that may be a decimal one
_GROUPED_HINT = re.compile(rf"\d[{_MARKS},.]\d{{3}}")
#: A number that is all that stands between two separators or wide gaps: not the 17 of ``Room 17``.
_CELL = re.compile(
    rf"(?:^|(?<=[,;|:=()\[\]{{}}'\"\t])|(?<=  )) *+{NUMBER.pattern}(?=  | *+(?:[,;|:=()\[\]{{}}'\"\t\r]|$))",
    re.MULTILINE,
)
_HEXFLOAT = re.compile(r"[-+]?0x[01]\.[0-9a-f]+p[-+]?\d+")
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{16,}(?:\r?\n[A-Za-z0-9+/_-]{16,})*={0,6}")
_ALPHABET = f"{string.ascii_letters}{string.digits}+/_-"
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
COLOUR = re.compile(r"\x1b\[[\d;:]*[A-Za-z]")  #: What a terminal takes for a colour, or for a place
#: What only mail has: a letter of several bytes, each by its number, or a line that goes on behind its end.
_QUOTED = re.compile(r"=[C-F][\dA-F]=[89AB][\dA-F]|^.{60,75}=\r?$", re.MULTILINE)
_PAIRS = re.compile(r"\b[\da-fA-F]{2}(?:([ :-])[\da-fA-F]{2})(?:\1[\da-fA-F]{2}){6,}\b")
#: A text of a PDF, whose letters stand apart for the space between them, and the letters.
_SHOWN = re.compile(r"\[((?:[^\\\[\]]|\\.)*)\]\s*TJ\b")
_LETTERS = re.compile(r"\(((?:[^\\()]|\\.)*)\)")
_BASE85 = re.compile(r"[!-~]{20,}")
_LITERAL = re.compile(r"""(?<![\w'])b'(?:[^'\\]|\\.)*'|(?<![\w"])b"(?:[^"\\]|\\.)*\"""")
#: Longest text in which every sort of notation is tried; longer ones are read for plain numbers,
#: and as a whole for the encodings.
LONG = 1 << 20
JSON = ("JSON", "JSON lines")


def numbers_in(path: str, text: str) -> Iterator[Leaf]:
    """The numbers that are written in a text, in order, one leaf for each way of reading them."""
    if not DIGIT.search(text):
        return
    if len(values := plain_numbers(text)):
        yield Leaf(path, values, _Places(text, NUMBER, len(values)))
    if len(text) <= LONG:
        # a record's own, whatever its texts hold
        if 1 < len(cells := _CELL.findall(text)) < len(values):
            found = np.fromiter(map(float, cells), float, len(cells))
            yield Leaf(path, found, _Places(text, _CELL, len(found)))
        if _GROUPED_HINT.search(text):
            yield from _read(path, text, _GROUPED, ungrouped)
        if "," in text:
            yield from _read(path, text, COMMA, lambda t: float(t.replace(",", ".")))
        if "0x" in text:
            yield from _read(path, text, _HEXFLOAT, float.fromhex)
        if may_be_dated(text):
            dates = list(dates_in(text))
            if dates:
                places = _Places(text, [start for start, *_ in dates])
                yield Leaf(path, np.array([seconds for *_, seconds, _ in dates]), places)


def ungrouped(text: str) -> float:
    """A number whose thousands are set apart; the last mark is decimal if it stands once alone."""
    plain = re.sub(rf"[{_MARKS}]", "", text)
    comma, point = plain.rfind(","), plain.rfind(".")
    if comma > point >= 0 or (point < 0 and plain.count(",") == 1 and plain != text):
        return float(plain.replace(".", "").replace(",", "."))
    if point >= 0 and plain.count(".") > 1:
        return float(plain.replace(".", ""))
    if comma < 0 and plain == text and "e" not in text.lower():  # 46.838 may be forty-six thousand
        return float(plain.replace(".", ""))
    return float(plain.replace(",", ""))


def _read(
    path: str, text: str, pattern: re.Pattern[str], convert: Callable[[str], float]
) -> Iterator[Leaf]:
    found = [one[0] for one in pattern.finditer(text)] if pattern.groups else pattern.findall(text)
    if found:
        values = np.fromiter(map(convert, found), float, len(found))
        yield Leaf(path, values, _Places(text, pattern, len(found)))


class _Places(Sequence[str]):
    """Where numbers stood in a text, worked out when somebody asks."""

    def __init__(self, text: str, where: re.Pattern[str] | list[int], count: int = 0) -> None:
        self._text, self._where = text, where
        self._count = len(where) if isinstance(where, list) else count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        if isinstance(self._where, list):
            return place_in(self._text, self._where[index])
        found = next(islice(self._where.finditer(self._text), index, None), None)
        if found is None:
            raise IndexError(index)
        return place_in(self._text, found.start())


def place_in(text: str, start: int) -> str:
    """Where a position of a text is, in words."""
    line = text.count("\n", 0, start)
    return f", line {line + 1}" if "\n" in text else f", character {start}"


def encoded_in(text: str) -> Iterator[tuple[str, object]]:
    """What a text may be in another notation: JSON, HTML, mail, PDF, base64, hexadecimal, escapes, quoted bytes."""
    whole = text.strip()
    if whole[:1] in ("{", "[", '"') and whole[-1:] in ("}", "]", '"'):
        yield from _json(whole)
    if "%" in text and len(text) <= LONG and unquote(text) != text:
        yield "URL-decoded", unquote(text)
    if "&" in text and len(text) <= LONG and unescape(text) != text:
        yield "HTML", unescape(text)
    if len(text) <= LONG and _ESCAPE.search(text):
        bare = _LITERAL.sub("", text)
        yield "escapes", _ESCAPE.sub(lambda one: chr(int(one[1] or one[2], 16)), bare)
    if "\x1b[" in text:
        yield "text without colours", COLOUR.sub("", text)
    if "=" in text and len(text) <= LONG and _QUOTED.search(text):
        yield "quoted-printable", quopri.decodestring(text.encode(errors="replace"))
    if "TJ" in text and len(text) <= LONG:
        shown = ("".join(_LETTERS.findall(one)) for one in _SHOWN.findall(text))
        yield "PDF", "\n".join(one.replace("\n", "") for one in shown)  # zeros of wide letters
    for pairs in _PAIRS.finditer(text) if len(text) <= LONG else ():
        if re.search("[a-fA-F]", pairs[0]):  # or they are numbers
            yield "hexadecimal", bytes.fromhex(pairs[0].replace(pairs[1], ""))
    if "b'" in text or 'b"' in text:
        for literal in _LITERAL.findall(text):
            yield from _attempt("quoted bytes", partial(ast.literal_eval, literal))
    for token in _tokens(text):
        yield from _bytes_of(token)
    if 20 <= len(whole) <= LONG and _BASE85.fullmatch(whole) and not whole.isalnum():
        for name, decode in {"base85": base64.b85decode, "ascii85": base64.a85decode}.items():
            for how, found in _attempt(name, partial(decode, whole)):
                if any(decoded(found)):  # nearly any text is some bytes in these alphabets
                    yield how, found


def _json(text: str) -> Iterator[tuple[str, object]]:
    try:
        yield JSON[0], json.loads(text)
    except (ValueError, RecursionError):
        lines = text.splitlines()
        if len(lines) > 1:
            whole = f"[{','.join(filter(None, lines))}]"
            yield from _attempt(JSON[1], lambda: json.loads(whole))


def _tokens(text: str) -> Iterator[str]:
    """Runs of letters and digits that may be encoded bytes: no words, no plain numbers."""
    for token in long_words(_ENCODED, text, _ALPHABET, 16):
        if not token.isdigit() and (len(token) >= 32 or not token.isalpha()):
            yield token


def long_words(pattern: re.Pattern[str], text: str, letters: str, length: int) -> Iterator[str]:
    """What a pattern finds, all of whose matches begin with a run of at least so many of some letters.

    Runs are looked for first: most texts have none.
    """
    plain, run = text.encode("latin-1", "replace").translate(_marked(letters)), b"/" * length
    place = plain.find(run)
    while place >= 0 and (found := pattern.search(text, place)):
        yield found[0]
        place = plain.find(run, found.end())


@cache
def _marked(letters: str) -> bytes:
    """A table that makes slashes of some letters, and points of all else."""
    return bytes(46 + (chr(one) in letters) for one in range(256))


def _bytes_of(token: str) -> Iterator[tuple[str, object]]:
    joined = "".join(token.split())
    if len(joined) % 2 == 0 and re.fullmatch(r"[0-9a-fA-F]+", joined):
        yield "hexadecimal", bytes.fromhex(joined)
        return
    if re.fullmatch(r"[A-Z2-7]+=*", joined) and len(joined) % 8 == 0:
        yield from _attempt("base32", lambda: base64.b32decode(joined))
    plain = joined.rstrip("=").replace("-", "+").replace("_", "/")
    if len(plain) % 4 != 1:
        padded = plain + "=" * (-len(plain) % 4)
        yield from _attempt("base64", lambda: base64.b64decode(padded))


def _attempt(name: str, decode: Callable[[], Any]) -> Iterator[tuple[str, Any]]:
    try:
        yield name, decode()
    except (ValueError, SyntaxError, MemoryError, RecursionError, binascii.Error):
        return
