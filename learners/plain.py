"""Fitted state as plain data and back, exact to the bit: what JSON can hold; tuples come back as lists."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from privfed.errors import InputError

ARRAY = {"dtype", "shape", "values"}  #: The keys of an array's table
NUMBER = {"number"}  #: The key of the table of a number that is not finite
KINDS = "biufU"  #: Kinds of array that can be saved: truth values, whole numbers, floats, text


def plain(value: Any) -> Any:
    """Give a value as plain data; InputError if its type cannot be."""
    if isinstance(value, np.ndarray) and value.dtype.kind in KINDS:
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
        f"an object of class {type(value).__name__} is no plain data; write state() and restore(state) for it"
    )


def _shortest(value: np.ndarray) -> np.ndarray:
    """Of narrower floats the doubles with the fewest digits (0.1 for 0.10000000149011612), where they stand for the same."""
    if value.dtype.kind != "f" or value.dtype == float:
        return value
    shortest = value.astype(str).astype(float)
    return np.where(shortest.astype(value.dtype) == value, shortest, value)


def restored(data: Any) -> Any:
    """Give the value that :func:`plain` wrote; ValueError or TypeError if an array makes no sense."""
    if isinstance(data, Mapping) and set(data) == ARRAY:
        return _array(**data)
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
