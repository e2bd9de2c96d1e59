"""Deterministic serialization: equal values give equal bytes, and so equal digests.

Typed MessagePack by msgspec. Decoding builds only the requested type, within a size limit.
"""

import hashlib
import math
import re
from fractions import Fraction
from typing import Any, TypeVar

import msgspec
import numpy as np

from privfed.errors import InputError, PrivfedError, WireError
from privfed.questions.exact import exact, text

T = TypeVar("T")
LIMIT = 256 * 2**20  #: Maximum size of a decoded message, in bytes
_WHOLE = {f"i{size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)}  #: Narrowest type first
_FLOATS = {f"f{size}": np.dtype(f"<f{size}") for size in (4, 8)}
_KINDS = {**_WHOLE, **_FLOATS, "b": np.dtype(bool), "u": np.dtype("u1")}

_COMMON = {"0": Fraction(0), "1": Fraction(1)}  #: The most frequent values


def encode(value: object) -> bytes:
    """Encode dataclasses, mappings, sequences, numbers, fractions and arrays as bytes.

    Arrays take the narrowest lossless type, and are decoded as int64, float64, uint8 or bool.
    """
    return _ENCODER.encode(value)


def decode(data: bytes, type_: type[T], limit: int = LIMIT) -> T:
    """Decode bytes as one known type (WireError: not of that type; the message has no values)."""
    if len(data) > limit:
        raise WireError(f"message of {len(data)} bytes is over the limit of {limit}")
    try:
        return msgspec.msgpack.decode(data, type=type_, dec_hook=_decode_hook)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise WireError(f"not a {type_.__name__}: {type(error).__name__}") from None


def canonical(value: T) -> bytes:
    """Encode a value in the types that its class declares (WireError: a field has another type)."""
    type_ = type(value)
    try:
        return _ENCODER.encode(decode(_ENCODER.encode(value), type_))
    except WireError as error:  # the text of its cause may hold a value
        where = re.search(r"`\$\.?(.+?)`$", str(error.__context__))
        if where is None:
            raise
        raise WireError(
            f"{type_.__name__}: field {where[1]} has another type than declared; convert the value, or correct the annotation"
        ) from None


def decode_canonical(data: bytes, type_: type[T]) -> T:
    """Decode bytes that are a value's canonical form (WireError: they are not)."""
    value = decode(data, type_)
    if _ENCODER.encode(value) != data:
        raise WireError(f"not the canonical form of a {type_.__name__}")
    return value


def convert(data: object, type_: type[T]) -> T:
    """Convert plain decoded data to one known type (WireError: the message has no values)."""
    try:
        return msgspec.convert(data, type_, dec_hook=_decode_hook)
    except (msgspec.MsgspecError, RecursionError, OverflowError) as error:
        raise WireError(f"not a {type_.__name__}: {type(error).__name__}") from None


def decode_plain(data: bytes) -> Any:
    """Decode bytes as plain data, with arrays (WireError: the message has no values)."""
    try:
        return _with_arrays(msgspec.msgpack.decode(data))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise WireError(f"not plain data: {type(error).__name__}") from None


def _with_arrays(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_arrays(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"kind", "shape", "data"}:
        return convert(value, np.ndarray)
    return {name: _with_arrays(inner) for name, inner in value.items()}


def query_digest(kind: str, fields: bytes) -> str:
    """Return SHA-256 of a query's kind and public values."""
    return digest(_ENCODER.encode({"kind": kind, "fields": fields}))


def digest(data: bytes) -> str:
    """Return SHA-256 of bytes, as hexadecimal text."""
    return hashlib.sha256(data).hexdigest()


def _encode_hook(value: object) -> Any:
    if isinstance(value, np.ndarray):
        kind = _kind(value)
        plain = np.ascontiguousarray(value, dtype=_KINDS[kind])
        data = np.packbits(plain) if kind == "b" else plain
        return {"kind": kind, "shape": list(value.shape), "data": data.tobytes()}
    if isinstance(value, np.integer | np.floating | np.bool_):
        return value.item()
    if isinstance(value, Fraction):
        return text(value)
    if hasattr(value, "to_wire"):
        return value.to_wire()
    raise TypeError(f"{type(value).__name__} has no wire form")


def _kind(array: np.ndarray) -> str:
    """Return the narrowest kind that holds an array's values, whatever its dtype."""
    if array.dtype == bool or array.dtype == np.uint8:
        return array.dtype.kind
    if array.dtype.kind == "f":
        return "f4" if _single(array) else "f8"
    if array.dtype.kind != "i":
        raise TypeError(
            f"arrays of {array.dtype} have no wire form; use signed integers, floats, uint8 or bool"
        )
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    fits = (
        kind
        for kind, type_ in _WHOLE.items()
        if np.iinfo(type_).min <= low and high <= np.iinfo(type_).max
    )
    return next(fits)


def _single(array: np.ndarray) -> bool:
    """Whether every float of an array is exact in 32 bits."""
    if array.dtype.itemsize <= 4:
        return True
    for part in (array.reshape(-1)[:64], array):  # the first few nearly always decide
        with np.errstate(over="ignore"):
            same = part.astype(np.float32) == part
            if not (same.all() or (same | np.isnan(part)).all()):
                return False
    return True


def _decode_hook(type_: type, data: Any) -> Any:
    if type_ is np.ndarray:
        return _array(data)
    if type_ is Fraction:
        if not isinstance(data, str) or len(data) > 4096:
            raise ValueError("a fraction is written as text")
        if data in _COMMON:
            return _COMMON[data]
        try:
            return exact(data, zero=True)
        except InputError:
            raise ValueError("a fraction is written as text") from None
    if hasattr(type_, "from_wire"):
        try:
            return type_.from_wire(data)
        except PrivfedError:
            raise ValueError(f"no {type_.__name__}") from None
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
    wide = {"i": np.int64, "f": np.float64}.get(kind[0], dtype)
    return np.frombuffer(data, dtype).astype(wide, copy=False).reshape(shape)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode_hook, order="deterministic")
