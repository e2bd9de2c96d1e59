"""What a text holds: numbers, dates, and bytes that were encoded as text."""

from __future__ import annotations

import ast
import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import unquote

import numpy as np

from privfed.testing.left.encodings import decoded
from privfed.testing.left.leaf import Leaf

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_GROUPED = re.compile(r"(?<![\d,.])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d,])")
_COMMA = re.compile(r"(?<![\d,.])\d+,\d+(?![\d,])")
_HEXFLOAT = re.compile(r"[-+]?0x[01]\.[0-9a-f]+p[-+]?\d+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?")
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{16,}(?:\r?\n[A-Za-z0-9+/_-]{16,})*={0,6}")
_BASE85 = re.compile(r"[!-~]{20,}")
_LITERAL = re.compile(r"""b'(?:[^'\\]|\\.)*'|b"(?:[^"\\]|\\.)*\"""")
#: Longest text in which every sort of notation is tried; longer ones are read for plain numbers,
#: and as a whole for the encodings.
LONG = 1 << 20


def numbers_in(path: str, text: str) -> Iterator[Leaf]:
    """The numbers that are written in a text, in order, one leaf for each way of reading them."""
    yield from _read(path, text, _NUMBER, float)
    if len(text) <= LONG:
        if "," in text:
            yield from _read(path, text, _GROUPED, lambda t: float(t.replace(",", "")))
            yield from _read(path, text, _COMMA, lambda t: float(t.replace(",", ".")))
        if "0x" in text:
            yield from _read(path, text, _HEXFLOAT, float.fromhex)
        if "-" in text:
            yield from _read(path, text, _DATE, seconds_of)


def seconds_of(text: str) -> float:
    """Seconds since 1970 of a date and time in the ISO format, read as UTC; NaN where it is none."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return float("nan")


def _read(
    path: str, text: str, pattern: re.Pattern[str], convert: Callable[[str], float]
) -> Iterator[Leaf]:
    found = pattern.findall(text)
    if not found:
        return
    values = np.array([convert(one) for one in found], dtype=float)
    yield Leaf(path, values, _Places(text, pattern, len(found)))


class _Places(Sequence[str]):
    """Where numbers stood in a text, worked out when somebody asks."""

    def __init__(self, text: str, pattern: re.Pattern[str], count: int) -> None:
        self._text, self._pattern, self._count = text, pattern, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> str:  # type: ignore[override]
        text = self._text
        found = next(islice(self._pattern.finditer(text), index, None), None)
        if found is None:
            raise IndexError(index)
        line = text.count("\n", 0, found.start())
        return f", line {line + 1}" if "\n" in text else f", character {found.start()}"


def encoded_in(text: str) -> Iterator[tuple[str, object]]:
    """What a text may be in another notation: JSON, base64, hexadecimal, escapes, quoted bytes."""
    whole = text.strip()
    if whole[:1] in ("{", "[", '"') and whole[-1:] in ("}", "]", '"'):
        yield from _json(whole)
    if "%" in text and len(text) <= LONG and unquote(text) != text:
        yield "URL-decoded", unquote(text)
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
        yield "JSON", json.loads(text)
    except (ValueError, RecursionError):
        lines = text.splitlines()
        if len(lines) > 1:
            yield from _attempt("JSON lines", lambda: [json.loads(line) for line in lines if line])


def _tokens(text: str) -> Iterator[str]:
    """Runs of letters and digits that may be encoded bytes: no words, no plain numbers."""
    for token in _ENCODED.findall(text):
        if not token.isdigit() and (len(token) >= 32 or not token.isalpha()):
            yield token


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
