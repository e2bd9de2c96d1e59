"""Deterministic bytes: equal values give equal bytes, so that a digest means something.

Typed MessagePack by msgspec. Decoding builds only the type it was asked for, never a class named in
the data; sizes are bounded before anything is built.
"""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from typing import Any, TypeVar

import msgspec
import numpy as np

from privfed.errors import InputError, WireError
from privfed.exact import exact, text

T = TypeVar("T")
#: Largest message that is decoded, in bytes.
LIMIT = 256 * 2**20
_KINDS = {"i": np.dtype("<i8"), "f": np.dtype("<f8"), "b": np.dtype(bool), "u": np.dtype("u1")}


def encode(value: object) -> bytes:
    """Write dataclasses, mappings, sequences, numbers, fractions and arrays as bytes.

    Arrays may hold int64, float64, uint8 or bool (bools are packed, eight to the byte).
    """
    return _ENCODER.encode(value)


def decode(data: bytes, type_: type[T], limit: int = LIMIT) -> T:
    """Read bytes as a value of one known type.

    Raises:
        WireError: too large, truncated, or not of that type; the message holds no value.
    """
    if len(data) > limit:
        raise WireError(f"message of {len(data)} bytes is over the limit of {limit}")
    try:
        return msgspec.msgpack.decode(data, type=type_, dec_hook=_decode_hook)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise WireError(f"not a {type_.__name__}: {type(error).__name__}") from None


def convert(plain: object, type_: type[T]) -> T:
    """Turn plain decoded data into a value of one known type.

    Raises:
        WireError: a field is missing, unknown or of another type; the message holds no value.
    """
    try:
        return msgspec.convert(plain, type_, dec_hook=_decode_hook)
    except (msgspec.MsgspecError, RecursionError, OverflowError) as error:
        raise WireError(f"not a {type_.__name__}: {type(error).__name__}") from None


def digest(data: bytes) -> str:
    """SHA-256 of bytes, as hexadecimal text."""
    return hashlib.sha256(data).hexdigest()


def _encode_hook(value: object) -> Any:
    if isinstance(value, np.ndarray):
        kind = value.dtype.kind
        if kind not in _KINDS or (kind == "u" and value.dtype != np.uint8):
            raise TypeError(
                f"arrays of {value.dtype} have no wire form; use int64, float64, uint8 or bool"
            )
        plain = np.ascontiguousarray(value, dtype=_KINDS[kind])
        data = np.packbits(plain.astype(bool)) if kind == "b" else plain
        return {"kind": kind, "shape": list(value.shape), "data": data.tobytes()}
    if isinstance(value, np.integer | np.floating | np.bool_):
        return value.item()
    if isinstance(value, Fraction):
        return text(value)
    raise TypeError(f"{type(value).__name__} has no wire form")


def _decode_hook(type_: type, plain: Any) -> Any:
    if type_ is np.ndarray:
        return _array(plain)
    if type_ is Fraction:
        if not isinstance(plain, str) or len(plain) > 4096:
            raise ValueError("a fraction is written as text")
        try:
            return exact(plain, zero=True)
        except InputError:
            raise ValueError("a fraction is written as text") from None
    raise NotImplementedError


def _array(plain: Any) -> np.ndarray:
    if not isinstance(plain, dict) or set(plain) != {"kind", "shape", "data"}:
        raise ValueError("an array needs kind, shape and data")
    kind, shape, data = plain["kind"], plain["shape"], plain["data"]
    if kind not in _KINDS or not isinstance(data, bytes) or not isinstance(shape, list):
        raise ValueError("an array needs a known kind")
    if len(shape) > 8 or not all(isinstance(size, int) and 0 <= size < 2**40 for size in shape):
        raise ValueError("an array needs sizes")
    count, dtype = math.prod(shape), _KINDS[kind]
    if len(data) != ((count + 7) // 8 if kind == "b" else count * dtype.itemsize):
        raise ValueError("an array's data must fill its shape")
    if kind == "b":
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=count)
        return bits.astype(bool).reshape(shape)
    return np.frombuffer(data, dtype).reshape(shape)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode_hook, order="deterministic")
