"""A query's public values, changed for the worse: what a stranger might send under its kind."""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from privfed.questions import wire
from privfed.questions.query import Query

WHOLE = (0, -1, 2, 2**20, 2**31, 2**62, -(2**62))
BROKEN = (0.0, -1.0, 2.0, 1e-300, 1e300, -1e300, float("inf"), float("-inf"), float("nan"))


def hostile_fields(query: Query) -> Iterator[bytes]:
    """Give the fields with one value changed, in turn, each change once.

    Numbers become huge, negative, zero, infinite or missing; lists and arrays empty, longer, shorter,
    turned round or repeated; arrays also of another type and another number of axes.
    """
    changed = _changed(msgspec.msgpack.decode(query.fields))
    yield from (each for each in map(msgspec.msgpack.encode, changed) if each != query.fields)


def _changed(value: Any) -> Iterator[Any]:
    if isinstance(value, dict) and set(value) == {"kind", "shape", "data"}:
        for array in _arrays(wire.convert(value, np.ndarray)):
            yield msgspec.msgpack.decode(wire.encode(array))
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from ({**value, name: changed} for changed in _changed(inner))
    elif isinstance(value, list) and not value:
        yield from ([0], [0.0], [[]])
    elif isinstance(value, list):
        yield from ([], value[:-1], [*value, value[-1]], value[::-1], value * 40)
        for at in {0, len(value) - 1}:
            yield from ([*value[:at], new, *value[at + 1 :]] for new in _changed(value[at]))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (other for other in (*WHOLE, value + 1, -value) if other != value)
    elif isinstance(value, float):
        yield from (other for other in (*BROKEN, -value) if other != value)
    elif isinstance(value, str):
        yield from ("", "x" * 1000, "\x00")
    elif value is None:
        yield from (0, 0.0, "", [])


def _arrays(array: np.ndarray) -> Iterator[np.ndarray]:
    yield from (array[:0], array[None], array.astype(float), array.astype(np.int64))
    if array.ndim and len(array):
        yield from (array[:-1], array[::-1], np.repeat(array, 2, axis=0), array[0])
    if array.ndim > 1:
        yield from (array.reshape(-1), array[..., :0])
    if array.dtype.kind == "b":
        yield ~array
        return
    for filling in {"f": BROKEN, "u": (0, 1, 255)}.get(array.dtype.kind, WHOLE):
        yield np.full_like(array, filling)
        if array.size:
            for at in {0, array.size - 1}:
                changed = array.copy()
                changed.flat[at] = filling
                yield changed
