"""Rows that data sets are made of, for checks over neighbouring ones: awkward values by preference."""

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

#: Persons that rows of a table belong to, and most values of a column to try.
PERSONS, MOST_VALUES = 4, 40
MOST_WHOLE = 2000  #: Most integers of a column of which every one is tried
#: Values that no column holds: beyond all bounds, or no number.
BEYOND = (float("nan"), float("inf"), float("-inf"), 1e300, -1e300)


@dataclass(frozen=True)
class Rows:
    """Where data sets come from: single rows, and how rows become a client's records.

    Args:
        row: draws a row; neighbouring data sets differ in one.
        corners: rows between which the answers are likely to differ most, the first three above all.
        build: makes records of some rows, none included; their order is the table's.
        person: whose row it is, where slots of persons are fixed; none where they are not.
        instead: makes the row that takes a row's place out of another one, where not every row may.
        choices: of rows that are tuples, values to try in each place, in search of extremes.
        rare: rows that hardly any data set has, for each of which an answer is due.
    """

    row: st.SearchStrategy[Any]
    corners: Sequence[Any]
    build: Callable[[Sequence[Any]], Any]
    person: Callable[[Any], Hashable] | None = None
    instead: Callable[[Any, Any], Any] = lambda row, other: other
    choices: Sequence[Sequence[float]] = ()
    rare: Sequence[Any] = ()


def table_rows(schema: Schema, query: Query | None = None) -> Rows:
    """Rows of a table: features, then the target if there is one, then the person's number.

    Values lie on the bounds, beside them, between and far beyond them, are missing, or are numbers
    that the query itself names (edges, cut-offs) and their neighbours.
    """
    named = () if query is None else named_numbers(query)
    choices = [values_of(column, named) for column in schema.columns]
    places = [
        st.one_of(st.sampled_from(values), _between(column))
        for values, column in zip(choices, schema.columns, strict=True)
    ]
    whose = st.integers(0, PERSONS - 1).map(float)

    def build(rows: Sequence[tuple[float, ...]]) -> Records:
        table = np.array(rows, dtype=float).reshape(-1, len(schema.columns) + 1)
        features = len(schema.features)
        y = None if schema.target is None else table[:, features]
        return Records(schema, table[:, :features], y, table[:, -1].astype(np.int64))

    corners = corners_of(schema)
    return Rows(
        st.one_of(st.tuples(*places, whose), st.sampled_from(corners)),
        corners,
        build,
        person=lambda row: row[-1],
        choices=choices,
        rare=_rare(schema, query, corners),
    )


def _rare(
    schema: Schema, query: Query | None, corners: Sequence[tuple[float, ...]]
) -> list[tuple[float, ...]]:
    """Rows with one odd value each: every category and integer, and numbers that query or code name."""
    named = [] if query is None else [*named_numbers(query), *code_numbers(type(query).evaluate)]
    rows = []
    for place, column in enumerate(schema.columns):
        low, high = column.bounds
        values = values_of(column, sorted(set(named)))
        if column.kind != "number" and high - low <= MOST_WHOLE:
            values = [*values, *np.arange(np.ceil(low), np.floor(high) + 1).tolist()]
        middle = corners[2]
        rows += [(*middle[:place], float(v), *middle[place + 1 :]) for v in dict.fromkeys(values)]
    return rows


def code_numbers(function: Any) -> list[float]:
    """The numbers in a function's code, and in that of functions beside it that it calls."""
    numbers: set[float] = set()
    waiting, seen = [getattr(function, "__code__", None)], set()
    beside = getattr(function, "__globals__", {})
    while waiting:
        code = waiting.pop()
        if not isinstance(code, CodeType) or code in seen:
            continue
        seen.add(code)
        numbers |= {float(x) for x in code.co_consts if type(x) in (int, float)}
        called = (beside.get(name) for name in code.co_names)
        waiting += [each.__code__ for each in called if isinstance(each, FunctionType)]
        waiting += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    return sorted(filter(math.isfinite, numbers))


def corners_of(schema: Schema) -> list[tuple[float, ...]]:
    """Rows on the bounds: all low, all high, in the middle, in turns, missing, far beyond."""
    low, high = np.array([column.bounds for column in schema.columns]).T
    odd = np.arange(len(low)) % 2 == 1
    last = np.arange(len(low)) == len(low) - 1
    rows = [
        *(low, high, (low + high) / 2, np.where(odd, low, high), np.where(odd, high, low)),
        *(np.where(last, low, high), np.where(last, high, low)),
        *(np.full(len(low), value) for value in (BEYOND[0], BEYOND[3])),
    ]
    return [(*map(float, row), float(number % PERSONS)) for number, row in enumerate(rows)]


def values_of(column: Column, named: Iterable[float] = ()) -> list[float]:
    """Values of a column to try: awkward ones, and those that are named and lie within its bounds."""
    low, high = column.bounds
    if not column.numeric:
        return [*np.arange(min(high, MOST_VALUES) + 1).tolist(), high, high + 1, -1.0, *BEYOND]
    inside = [value for value in named if low <= value <= high][:MOST_VALUES]
    beside = [float(np.nextafter(value, -np.inf)) for value in inside]
    quarters = np.linspace(low, high, 5).tolist()
    ends = [float(np.nextafter(low, high)), float(np.nextafter(high, low))]
    whole = [low + 1, high - 1] if column.kind == "integer" else []
    return [*quarters, *ends, *whole, *inside, *beside, *BEYOND]


def named_numbers(query: Query) -> list[float]:
    """The numbers among a query's public values, each once."""
    numbers: set[float] = set()
    waiting = [msgspec.msgpack.decode(query.fields)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict) and set(value) == {"kind", "shape", "data"}:
            array = wire.convert(value, np.ndarray)
            numbers |= set(array.astype(float).ravel().tolist() if array.dtype.kind == "f" else ())
        elif isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
        elif type(value) in (int, float):
            numbers.add(float(value))
    return sorted(filter(math.isfinite, numbers))


def _between(column: Column) -> st.SearchStrategy[float]:
    low, high = column.bounds
    if column.kind == "number":
        return st.floats(low, high)
    return st.integers(int(np.ceil(low)), int(np.floor(high))).map(float)


# --- a query's public values, changed for the worse: what a stranger might send under its kind

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
