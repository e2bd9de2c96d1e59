"""Rows with extreme values, for checks over neighbouring data sets."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from privfed.questions import wire
from privfed.questions.query import Query
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

#: Individuals that rows belong to, and most values of a column that are tried.
PERSONS, MOST_VALUES = 4, 40
MOST_WHOLE = 2000  #: Most integers of a column that are all tried
#: Values outside all bounds, or not numbers.
BEYOND = (float("nan"), float("inf"), float("-inf"), 1e300, -1e300)


@dataclass(frozen=True)
class Rows:
    """A source of data sets: single rows, and their conversion to a client's records.

    Args:
        row: strategy for a row; neighbouring data sets differ in one.
        corners: rows between which the answers are likely to differ most, the first three above all.
        build: converts rows, possibly none, to records in the same order.
        person: individual of a row, if individuals have fixed slots; otherwise None.
        instead: converts a row to one that may replace another, if not every row may.
        choices: for rows that are tuples, values to try at each position, in search of extremes.
        rare: rows that occur in few data sets but must be answered too.
    """

    row: st.SearchStrategy[Any]
    corners: Sequence[Any]
    build: Callable[[Sequence[Any]], Any]
    person: Callable[[Any], Hashable] | None = None
    instead: Callable[[Any, Any], Any] = lambda row, other: other
    choices: Sequence[Sequence[float]] = ()
    rare: Sequence[Any] = ()


def table_rows(schema: Schema, query: Query | None = None) -> Rows:
    """Rows of a table: features, then the target if there is one, then the individual's number.

    Values are at, next to, between and far outside the bounds, missing, or constants of the query (edges,
    thresholds) and their neighbours.
    """
    numbers = () if query is None else named_numbers(query)
    choices = [values_of(column, numbers) for column in schema.columns]
    cells = [
        st.one_of(st.sampled_from(values), _between(column))
        for values, column in zip(choices, schema.columns, strict=True)
    ]
    person = st.integers(0, PERSONS - 1).map(float)

    def build(rows: Sequence[tuple[float, ...]]) -> Records:
        table = np.array(rows, dtype=float).reshape(-1, len(schema.columns) + 1)
        features = len(schema.features)
        y = None if schema.target is None else table[:, features]
        return Records(schema, table[:, :features], y, table[:, -1].astype(np.int64))

    corners = corners_of(schema)
    return Rows(
        st.one_of(st.tuples(*cells, person), st.sampled_from(corners)),
        corners,
        build,
        person=lambda row: row[-1],
        choices=choices,
        rare=_rare(schema, query, corners),
    )


def _rare(
    schema: Schema, query: Query | None, corners: Sequence[tuple[float, ...]]
) -> list[tuple[float, ...]]:
    """Rows with one unusual value each: every category and integer, and constants of the query and its code."""
    numbers = [] if query is None else [*named_numbers(query), *code_numbers(type(query).evaluate)]
    rows = []
    for i, column in enumerate(schema.columns):
        low, high = column.bounds
        values = values_of(column, sorted(set(numbers)))
        if column.kind != "number" and high - low <= MOST_WHOLE:
            values = [*values, *np.arange(np.ceil(low), np.floor(high) + 1).tolist()]
        middle = corners[2]
        rows += [(*middle[:i], float(v), *middle[i + 1 :]) for v in dict.fromkeys(values)]
    return rows


def code_numbers(function: Any) -> list[float]:
    """Return the numbers in a function's code, and in that of functions of its module that it calls."""
    numbers: set[float] = set()
    pending, seen = [getattr(function, "__code__", None)], set()
    namespace = getattr(function, "__globals__", {})
    while pending:
        code = pending.pop()
        if not isinstance(code, CodeType) or code in seen:
            continue
        seen.add(code)
        numbers |= {float(value) for value in code.co_consts if type(value) in (int, float)}
        called = (namespace.get(name) for name in code.co_names)
        pending += [f.__code__ for f in called if isinstance(f, FunctionType)]
        pending += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return sorted(filter(math.isfinite, numbers))


def corners_of(schema: Schema) -> list[tuple[float, ...]]:
    """Return rows at the bounds: all low, all high, midpoints, alternating, missing, far outside."""
    low, high = np.array([column.bounds for column in schema.columns]).T
    odd = np.arange(len(low)) % 2 == 1
    last = np.arange(len(low)) == len(low) - 1
    rows = [
        *(low, high, (low + high) / 2, np.where(odd, low, high), np.where(odd, high, low)),
        *(np.where(last, low, high), np.where(last, high, low)),
        *(np.full(len(low), value) for value in (BEYOND[0], BEYOND[3])),
    ]
    return [(*map(float, row), float(number % PERSONS)) for number, row in enumerate(rows)]


def values_of(column: Column, numbers: Iterable[float] = ()) -> list[float]:
    """Return values of a column to try: extreme ones, and the given numbers within its bounds."""
    low, high = column.bounds
    if not column.numeric:
        return [*np.arange(min(high, MOST_VALUES) + 1).tolist(), high, high + 1, -1.0, *BEYOND]
    inside = [value for value in numbers if low <= value <= high][:MOST_VALUES]
    below = [float(np.nextafter(value, -np.inf)) for value in inside]
    quarters = np.linspace(low, high, 5).tolist()
    ends = [float(np.nextafter(low, high)), float(np.nextafter(high, low))]
    whole = [low + 1, high - 1] if column.kind == "integer" else []
    return [*quarters, *ends, *whole, *inside, *below, *BEYOND]


def named_numbers(query: Query) -> list[float]:
    """Return the distinct numbers among a query's public values."""
    numbers: set[float] = set()
    pending = [msgspec.msgpack.decode(query.fields)]
    while pending:
        value = pending.pop()
        if isinstance(value, dict) and set(value) == {"kind", "shape", "data"}:
            array = wire.convert(value, np.ndarray)
            numbers |= set(array.astype(float).ravel().tolist() if array.dtype.kind == "f" else ())
        elif isinstance(value, dict | list):
            pending += value.values() if isinstance(value, dict) else value
        elif type(value) in (int, float):
            numbers.add(float(value))
    return sorted(filter(math.isfinite, numbers))


def _between(column: Column) -> st.SearchStrategy[float]:
    low, high = column.bounds
    if column.kind == "number":
        return st.floats(low, high)
    return st.integers(int(np.ceil(low)), int(np.floor(high))).map(float)


# --- hostile values of a query's public fields

WHOLE = (0, -1, 2, 2**20, 2**31, 2**62, -(2**62))
ENDS = (2**64 - 1, -(2**63))  #: Greatest and smallest integer of a message
BROKEN = (0.0, -1.0, 2.0, 1e-300, 1e300, -1e300, float("inf"), float("-inf"), float("nan"))


def hostile_fields(query: Query) -> Iterator[bytes]:
    """Yield the fields with one value changed at a time.

    Numbers become huge, negative, zero, infinite or missing; lists and arrays empty, longer, shorter,
    reversed or repeated; arrays also of another type or number of axes.
    """
    changed = _changed(msgspec.msgpack.decode(query.fields))
    yield from (fields for fields in map(msgspec.msgpack.encode, changed) if fields != query.fields)


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
        for i in {0, len(value) - 1}:
            yield from ([*value[:i], new, *value[i + 1 :]] for new in _changed(value[i]))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (other for other in (*WHOLE, *ENDS, value + 1, -value) if other != value)
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
            for i in {0, array.size - 1}:
                changed = array.copy()
                changed.flat[i] = filling
                yield changed
