"""All plain numbers of a long text at once, as ``NUMBER`` finds them and ``float`` reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

#: A number that no letter or digit touches in front, nor letters and a digit behind: ``E11.9``, ``v2.1``
#: and ``4f2a`` are labels, ``12.5kg`` is none. Its first character is looked for before what stands in
#: front of it, which passes over other text quickly.
NUMBER = re.compile(
    r"[-+.\d](?<![A-Za-z_\d].)(?<!\d\..)(?:(?<=[-+])(?:\d++\.?+\d*+|\.\d++)|(?<=\d)\d*+\.?+\d*+|(?<=\.)\d++)"
    r"(?:[eE][-+]?\d++)?+(?![A-Za-z_]+\d)"
)
SHORT, CHUNK = (
    2048,
    1 << 20,
)  #: Shorter texts are read number by number, longer ones so much at a time
EXACT = 15  #: Digits of a whole number that a double holds, whatever they are
MANY = 0.25  #: With more odd ones among them, all are read one by one
_OTHER, _DIGIT, _POINT, _SIGN, _LETTER = range(5)
_KINDS = np.zeros(256, np.uint8)
for _kind, _characters in (
    (_DIGIT, b"0123456789"),
    (_POINT, b"."),
    (_SIGN, b"+-"),
    (_LETTER, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"),
):
    _KINDS[list(_characters)] = _kind
_TENS = 10.0 ** np.arange(EXACT + 1)
_EDGE = b"\n" * 16  # what a digit is read of lies within this on either side


def plain_numbers(text: str) -> np.ndarray:
    """The numbers of a text, in order."""
    parts = [np.empty(0), *map(_numbers, _pieces(text))]
    return np.concatenate(parts)


def _pieces(text: str) -> Iterator[str]:
    """Of about a length, each ending where a line or a word does."""
    start = 0
    while start < len(text):
        end = start + CHUNK
        if end < len(text):
            end = max(text.rfind(mark, start, end) for mark in "\n ,") + 1 or len(text)
        yield text[start:end]
        start = end


def _one_by_one(text: str) -> np.ndarray:
    found = NUMBER.findall(text)
    return np.fromiter(map(float, found), float, len(found))


def _numbers(text: str) -> np.ndarray:
    """Runs of digits, of which two with a point between make one number; what is near letters, or has more
    points or digits, as the expression says."""
    try:
        octets = np.frombuffer(b"".join([_EDGE, text.encode("latin-1"), _EDGE]), np.uint8)
    except UnicodeEncodeError:  # other scripts have digits of their own
        octets = np.empty(0, np.uint8)
    if len(text) < SHORT or not len(octets):
        return _one_by_one(text)
    kinds = _KINDS[octets]
    edges = np.flatnonzero(np.diff(kinds == _DIGIT)) + 1
    starts, ends = edges[::2], edges[1::2]
    if not len(starts):
        return np.empty(0)
    joined = np.r_[(kinds[ends[:-1]] == _POINT) & (starts[1:] == ends[:-1] + 1), False]
    later = np.r_[False, joined[:-1]]
    first = np.flatnonzero(~later)
    two = joined[first]
    last = first + two
    start, end, middle = starts[first], ends[last], ends[first]
    before, ahead, behind = kinds[start - 1], kinds[start - 2], kinds[end]
    odd = joined[last] | (before == _POINT) | (behind == _LETTER)
    odd |= ~two & (behind == _POINT) & (kinds[end + 1] == _LETTER)
    odd |= (before == _SIGN) & (ahead == _POINT)
    odd |= end - start - two > EXACT
    if odd.mean() > MANY:
        return _one_by_one(text)
    kept = before != _LETTER
    values = np.empty(0)
    if odd.any():
        values, places, plain = _odd(octets, kinds, start, odd)
        kept &= plain
    kept = np.flatnonzero(kept)
    behind_point = np.where(two, end - middle - 1, 0)[kept]
    whole = _digits(octets, start[kept], middle[kept]) * _TENS[behind_point]
    broken = np.flatnonzero(behind_point)
    whole[broken] += _digits(octets, middle[kept][broken] + 1, end[kept][broken])
    whole /= _TENS[behind_point]
    signed = (octets[start - 1] == ord("-")) & (ahead != _DIGIT) & (ahead != _LETTER)
    plain_values = np.asarray(np.where(signed[kept], -whole, whole))
    if not len(values):
        return plain_values
    order = np.argsort(np.r_[start[kept], places], kind="stable")
    return np.asarray(np.r_[plain_values, values][order])


def _digits(octets: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The whole numbers that some runs of at most fifteen digits are."""
    low = _eight(octets, np.maximum(starts, ends - 8), ends)
    long = np.flatnonzero(ends - starts > 8)
    low[long] += 1e8 * _eight(octets, starts[long], ends[long] - 8)
    return low


def _eight(octets: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Of runs of at most eight digits, whose bytes are added up pair by pair in one word."""
    word = octets[ends[:, None] + np.arange(-8, 0)].view("<u8").ravel()
    other = (8 * (8 - (ends - starts))).astype(np.uint64)
    word = (word & np.uint64(0x0F0F0F0F0F0F0F0F)) >> other << other
    for bits, factor in ((8, 10), (16, 100), (32, 10_000)):
        mask = np.uint64(sum(((1 << bits) - 1) << at for at in range(0, 64, 2 * bits)))
        word = (word & mask) * np.uint64(factor) + (word >> np.uint64(bits) & mask)
    return np.asarray(word.astype(float))


def _odd(
    octets: np.ndarray, kinds: np.ndarray, start: np.ndarray, odd: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The numbers of words that have an odd run of digits, one by one; where they begin, and which runs are
    in none of these words."""
    edges = np.flatnonzero(np.diff(kinds != _OTHER)) + 1
    word = np.searchsorted(edges[::2], start, side="right") - 1
    read = np.unique(word[odd])
    plain = np.isin(word, read, invert=True)
    first, last = edges[::2][read], edges[1::2][read]
    data = octets.tobytes()
    words = [data[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)]
    found = list(NUMBER.finditer(b" ".join(words).decode("latin-1")))
    begins = np.array([one.start() for one in found], dtype=np.int64)
    shift = np.cumsum(last - first + 1) - (last - first + 1)
    at = np.searchsorted(shift, begins, side="right") - 1
    values = np.array([float(one[0]) for one in found])
    return values, begins - shift[at] + first[at], plain
