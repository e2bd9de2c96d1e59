"""Secret pseudorandom coins per record, by vectorized SipHash-2-4 (Aumasson and Bernstein 2012).

1. a record's content is hashed to 128 bits under the client's secret; 2. equal records are numbered
0, 1, 2, ... and each gets its own key from content and number; 3. a label is hashed under that
key to 64 bits.

So a coin is a function of secret, content, number and label only. Adding or removing a record
changes no other record's coin: n equal records have coins 0 to n - 1, n + 1 have 0 to n, and no
statistic depends on which of them has which. Without the secret, coins are independent and uniform,
provided that SipHash is a pseudorandom function and no hashes collide.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from privfed.tables.records import Records

_BLOCK = 2**14  #: Records hashed at a time, to fit the processor's cache
#: Initial state, "somepseudorandomlygeneratedbytes".
_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
#: Left and right shifts of each rotation, as arrays, which are twice as fast as numbers for short tables.
_SHIFTS = {
    bits: (np.array(bits, np.uint64), np.array(64 - bits, np.uint64))
    for bits in (13, 16, 17, 21, 32)
}

Keys = tuple[np.ndarray, np.ndarray]  #: Two 64-bit words per record, or one pair for all


def record_keys(records: Records, secret: bytes) -> Keys:
    """Derive each record's key from its content (features, target and person), shape (records,)."""
    return _numbered(_hashed(_content(records), secret, len(records)))


def table_keys(table: pd.DataFrame, secret: bytes, person: str | None = None) -> Keys:
    """Derive each row's key from all its cells, or one key per person from the ``person`` column.

    A row's key depends neither on other rows nor on which columns the schema names. Equal rows are numbered among those
    with the same text: "01" and "1" may be two categories, or two owners.
    """
    columns = table.columns if person is None else [person]
    hashed = _hashed([_cells(table[name]) for name in columns], secret, len(table))
    if person is not None:
        return hashed
    same = _hashed([_cells(table[name], texts=True) for name in columns], secret, len(table))
    return _numbered(hashed, same)


def toss(keys: Keys, label: str) -> np.ndarray:
    """Draw one coin per record: uint64, uniform over all 2^64 values, shape (records,)."""
    text = hashlib.blake2b(label.encode(), digest_size=8).digest()
    word = np.frombuffer(text, "<u8").astype(np.uint64)
    coins = np.empty(len(keys[0]), np.uint64)
    for start in range(0, len(coins), _BLOCK):
        piece = slice(start, start + _BLOCK)
        (coins[piece],) = siphash((keys[0][piece], keys[1][piece]), [word], 1)
    return coins


def held_out(keys: Keys, fraction: float) -> np.ndarray:
    """Select each record with probability ``fraction`` by its coin, bool, shape (records,)."""
    return np.asarray(toss(keys, "held out") < np.uint64(int(fraction * 2.0**64)))


def siphash(keys: Keys, words: Sequence[np.ndarray], outputs: int) -> tuple[np.ndarray, ...]:
    """Compute SipHash-2-4 of many messages of uint64 words; keys are broadcast.

    ``outputs`` is 1 for the 64-bit function, 2 for the 128-bit one (low word first).
    """
    wide = outputs == 2
    shape = np.broadcast_shapes(keys[0].shape, *(word.shape for word in words))
    # numpy changes a single number in place in twice the time of two
    state = list(np.empty((4, *((2,) if shape == (1,) else shape)), np.uint64))
    for at, start in enumerate(_START):
        np.bitwise_xor(keys[at % 2], np.uint64(start), state[at])
    if wide:
        state[1] ^= np.uint64(0xEE)
    length = np.array((8 * len(words) % 256) << 56, np.uint64)
    for word in (*words, length):
        state[3] ^= word
        _rounds(state, 2)
        state[0] ^= word
    state[2] ^= np.uint64(0xEE if wide else 0xFF)
    _rounds(state, 4)
    hashed = [state[0] ^ state[1] ^ state[2] ^ state[3]]
    if wide:
        state[1] ^= np.uint64(0xDD)
        _rounds(state, 4)
        hashed.append(state[0] ^ state[1] ^ state[2] ^ state[3])
    return tuple(word[:1] if shape == (1,) else word for word in hashed)


def _rounds(state: Sequence[np.ndarray], number: int) -> None:
    a, b, c, d = state
    spare = np.empty_like(a)
    for _ in range(number):
        for first, second, left, right in ((a, c, 13, 16), (c, a, 17, 21)):
            first += b
            second += d
            _rotate(b, left, spare)
            _rotate(d, right, spare)
            b ^= first
            d ^= second
            _rotate(first, 32, spare)


def _rotate(word: np.ndarray, bits: int, spare: np.ndarray) -> None:
    left, right = _SHIFTS[bits]
    np.left_shift(word, left, spare)
    np.right_shift(word, right, word)
    np.bitwise_or(word, spare, word)


def _content(records: Records) -> list[np.ndarray]:
    """Return the records' content as words; equal numbers have equal words, including -0.0 and 0.0."""
    numbers = [*records.x.T, *([] if records.y is None else [records.y])]
    words = [(np.ascontiguousarray(column) + 0.0).view(np.uint64) for column in numbers]
    if records.individual is not None:
        words.append(np.ascontiguousarray(records.individual, np.int64).view(np.uint64))
    return words


def _cells(column: pd.Series[Any], *, texts: bool = False) -> np.ndarray:
    """Return a column's cells as words; numbers and their texts are equal, unless ``texts`` is True."""
    if column.dtype.kind in "iuf":
        cells = column.to_numpy(dtype=float) + 0.0
        cells[np.isnan(cells)] = np.nan
        return cells.view(np.uint64)
    if column.dtype == object and pd.api.types.infer_dtype(column) != "string":  # True equals 1
        column = column.map(lambda cell: str(cell) if isinstance(cell, bool | np.bool_) else cell)
    indices, values = pd.factorize(column)
    words = [
        *(_text(v) if texts and isinstance(v, str) else _cell(v) for v in values),
        struct.pack("<d", np.nan),
    ]
    return np.frombuffer(b"".join(words), "<u8").astype(np.uint64)[indices]


def _cell(value: Any) -> bytes:
    try:
        number = np.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isnan(number):
        return struct.pack("<d", number + 0.0)
    return _text(str(value))


def _text(value: str) -> bytes:
    return hashlib.blake2b(value.encode(), digest_size=8).digest()


def _hashed(words: Sequence[np.ndarray], secret: bytes, records: int) -> Keys:
    key = np.frombuffer(hashlib.blake2b(secret, digest_size=16).digest(), "<u8")
    return _long_hash((key[:1], key[1:]), words, records)


def _numbered(hashed: Keys, same: Keys | None = None) -> Keys:
    """Derive keys from hashes, numbering equal records (those with the ``same`` hash, if given)."""
    return _long_hash(hashed, [_number_equals(same or hashed)], len(hashed[0]))


def _long_hash(keys: Keys, words: Sequence[np.ndarray], records: int) -> Keys:
    """Compute the 128-bit hash of all records in blocks, with a key per record or one for all."""
    low, high = np.empty(records, np.uint64), np.empty(records, np.uint64)
    for start in range(0, records, _BLOCK):
        piece = slice(start, start + _BLOCK)
        key_words = keys if len(keys[0]) == 1 else (keys[0][piece], keys[1][piece])
        low[piece], high[piece] = siphash(key_words, [word[piece] for word in words], 2)
    return low, high


def _number_equals(hashed: Keys) -> np.ndarray:
    """Number equal records 0, 1, 2, ... in the table's order, uint64, shape (records,)."""
    order = np.lexsort(hashed)
    same = np.ones(len(order), bool)
    for word in hashed:
        same[1:] &= word[order[1:]] == word[order[:-1]]
    index = np.arange(len(order))
    same[:1] = False
    first = np.maximum.accumulate(np.where(same, 0, index))
    number = np.empty(len(order), np.uint64)
    number[order] = index - first
    return number
