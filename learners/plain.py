"""Exact conversion of fitted state to JSON-compatible data and back; tuples become lists.

Arrays are dictionaries of ``dtype``, ``shape`` and ``values`` in row-major order. Large ones have, instead of values,
their little-endian bytes as text (``base64``), symmetric matrices only their lower triangles' (``triangle``), which take
a quarter of the time and half of the space, or less.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from privfed.errors import InputError

ARRAY = {"dtype", "shape", "values"}  #: Keys of an array's dictionary
#: Those of a large array, and of large symmetric matrices
BYTES, TRIANGLE = {"dtype", "shape", "base64"}, {"dtype", "shape", "triangle"}
LARGE = 4096  #: Number of values from which an array of these types is large
PACKED = tuple(np.dtype(code) for code in "efdbBhHiIqQ")  #: Floats of 16, 32 and 64 bits, integers
NUMBER = {"number"}  #: Key of the dictionary of a number that is not finite
KINDS = "biufU"  #: NumPy kinds of arrays that can be saved: booleans, integers, floats, text
DIGEST = "digest"  #: Key of :func:`digest` in a saved model


def digest(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a saved model's other entries, in hexadecimal (ValueError: NaN or an infinity).

    It shows damage and edits by chance; whoever edits a file on purpose can write its digest, too.
    """
    others = json.loads(json.dumps({name: data[name] for name in data if name != DIGEST}))
    return hashlib.sha256(json.dumps(others, sort_keys=True, allow_nan=False).encode()).hexdigest()


def unchanged(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a saved model that has its own digest or none (InputError: another's; ValueError: NaN, an infinity)."""
    own = digest(data)
    if data.get(DIGEST, own) != own:
        raise InputError("the model was changed after it was saved; save it again")
    return data


def plain(value: Any) -> Any:
    """Convert a value to JSON-compatible data (InputError: unsupported type)."""
    if isinstance(value, np.ndarray) and value.dtype.kind in KINDS:
        if value.size >= LARGE and value.dtype.newbyteorder("=") in PACKED:
            return _packed(value)
        dtype = "str" if value.dtype.kind == "U" else value.dtype.name
        values = [plain(item) for item in _shortest(value.ravel()).tolist()]
        return {"dtype": dtype, "shape": list(value.shape), "values": values}
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(item) for key, item in value.items()}
    raise InputError(
        f"an object of class {type(value).__name__} is not plain data; write state() and restore(state) for it"
    )


def _packed(value: np.ndarray) -> dict[str, Any]:
    """Return a large array of numbers as text of its bytes."""
    name, content, shape = "base64", value, value.shape
    square = len(shape) > 1 and shape[-1] == shape[-2]
    if square and value.tobytes() == value.swapaxes(-1, -2).tobytes():
        name, content = "triangle", value[(..., *np.tril_indices(shape[-1]))]
    stored = content.astype(value.dtype.newbyteorder("<")).tobytes()
    text = base64.b64encode(stored).decode()
    return {"dtype": value.dtype.name, "shape": list(shape), name: text}


def _shortest(value: np.ndarray) -> np.ndarray:
    """Return doubles with the fewest digits that round to the same narrower floats (0.1 for 0.10000000149011612)."""
    if value.dtype.kind != "f" or value.dtype == float:
        return value
    shortest = value.astype(str).astype(float)
    return np.where(shortest.astype(value.dtype) == value, shortest, value)


def restored(data: Any) -> Any:
    """Return the value from the output of :func:`plain` (ValueError, TypeError: an invalid array)."""
    if isinstance(data, Mapping) and set(data) == ARRAY:
        return _array(**data)
    if isinstance(data, Mapping) and set(data) in (BYTES, TRIANGLE):
        return _unpacked(**data)
    if isinstance(data, Mapping) and set(data) == NUMBER:
        return float(data["number"])
    if isinstance(data, Mapping):
        return {key: restored(item) for key, item in data.items()}
    return [restored(item) for item in data] if isinstance(data, list) else data


def _array(dtype: str, shape: list[int], values: list[Any]) -> np.ndarray:
    kind = np.dtype(dtype)
    if kind.kind not in KINDS:
        raise TypeError(f"no array of {dtype} is plain data")
    if kind.kind == "f":
        values = [float(restored(value)) for value in values]
    return np.array(values, dtype=kind).reshape(shape)


def _unpacked(dtype: str, shape: list[int], **packed: str) -> np.ndarray:
    ((name, text),) = packed.items()
    kind = np.dtype(dtype)
    if kind not in PACKED:
        raise TypeError(f"no array of {dtype} is plain data")
    stored = np.frombuffer(base64.b64decode(text, validate=True), kind.newbyteorder("<"))
    values = stored.astype(kind)
    if name == "base64":
        return values.reshape(shape)
    *outer, rows, size = shape
    if rows != size:  # or a few bytes could ask for the indices of a huge matrix
        raise ValueError(f"a triangle is of a square matrix, not of {rows} rows and {size} columns")
    values = values.reshape(*outer, rows * (size + 1) // 2)
    lower, upper = np.tril_indices(size)
    matrices = np.empty((*outer, size, size), kind)
    matrices[..., lower, upper] = matrices[..., upper, lower] = values
    return matrices
