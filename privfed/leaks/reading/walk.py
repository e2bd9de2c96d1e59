"""Flattens any nesting of objects to arrays, texts and bytes.

Arrays are yielded unmodified. Numbers of one container (a list, the values of a dictionary, the fields of a
record) are yielded together, in order, because a leaked record is recognised by its neighbouring values.
Generators are consumed; files are read from their paths.
"""

import dataclasses
import io
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from itertools import chain, islice
from numbers import Number
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from privfed.leaks.reading.encodings import LIKELY, decoded, streams_inside, texts_inside
from privfed.leaks.reading.leaf import CELLS, ROWS, Leaf, RowText, Unread
from privfed.leaks.reading.package_objects import reader_of
from privfed.leaks.reading.texts import JSON, LONG, encoded_in, numbers_in

DEPTH = 60  #: Deepest nesting of objects, including encodings
NESTED = 6  #: Deepest nesting of encodings
MOST = 10_000_000  #: Most items of an iterator or a range that are read
_PARTS = ("pickle", "joblib", "SQLite", LIKELY)  #: Encodings that are decoded only in part
OPAQUE = 64  #: Longest unknown byte string that may be a digest, which is compared undecoded
OPAQUELY = "string of bytes of no known form (pixels, HDF5, Parquet without pyarrow), looked through for floats and texts as they lie"
SHORT = 4  #: Byte strings up to this length are not decoded
_PLAIN = (bool, int, float, np.bool_, np.integer, np.floating, Decimal, Fraction)
_CELL = (str, int, float, np.number, Decimal, date)
_NO_DATA = (type, types.ModuleType, types.BuiltinFunctionType, types.MethodWrapperType, property)


def flatten(outputs: object, path: str = "left", *, rows: bool = False) -> Iterator[Leaf]:
    """Yield everything that an object holds, with its path.

    Args:
        outputs: containers, arrays, tables, tensors, models, texts, bytes, pickles, paths of files,
            log records, exceptions, HTTP responses, messages of other frameworks, in any nesting.
        path: name of the object in paths.
        rows: whether to also yield the cells of each short container as one text.

    Yields:
        arrays of numbers (in any type and shape), texts, and bytes.
    """
    return _Walk(rows).leaves(path, outputs)


class _Walk:
    """One pass over an object; repeated objects, and repeated sets of keys, are read once."""

    def __init__(self, rows: bool) -> None:
        self._rows = rows
        self._seen: dict[int, object] = {}
        self._keys: set[str] = set()

    def leaves(self, path: str, thing: object, depth: int = 0, nested: int = 0) -> Iterator[Leaf]:
        """Yield the leaves of one object."""
        if thing is None or isinstance(thing, _NO_DATA):
            return
        if depth > DEPTH:
            yield Leaf(path, b"", unread=f"nested more than {DEPTH} deep")
        elif isinstance(thing, Unread):
            yield Leaf(path, b"", unread=str(thing))
        elif isinstance(thing, RowText):
            if self._rows:
                yield Leaf(path, str(thing), row=True)
        elif isinstance(thing, str):
            yield from self._text(path, thing, depth, nested)
        elif isinstance(thing, bytes | bytearray | memoryview):
            yield from self._bytes(path, bytes(thing), depth, nested)
        elif isinstance(thing, np.ndarray):
            yield from self._array(path, thing, depth, nested)
        elif (numbers := numbers_of(thing)) is not None:
            yield Leaf(path, np.array(numbers, dtype=float))
        elif isinstance(thing, np.generic):
            yield from self._array(path, np.asanyarray(thing), depth, nested)
        elif id(thing) not in self._seen:
            self._seen[id(thing)] = thing  # kept alive, so that no other object gets its id
            try:
                yield from self._object(path, thing, depth, nested)
            except Exception as error:
                if isinstance(thing, Iterator) and not isinstance(thing, io.IOBase):
                    raise  # the code under test runs in it
                yield Leaf(path, b"", unread=f"{_kind(thing)} that raised {_kind(error)}")

    def _object(self, path: str, thing: Any, depth: int, nested: int) -> Iterator[Leaf]:
        reader = reader_of(thing)
        if reader is not None:
            yield from self._named(path, reader(thing), depth, nested)
        elif isinstance(thing, Mapping):
            yield from self._mapping(path, thing, depth, nested)
        elif isinstance(thing, PurePath):
            yield from self._file(path, Path(thing), depth, nested)
        elif isinstance(thing, io.IOBase) or hasattr(type(thing), "getvalue"):
            yield from self._stream(path, thing, depth, nested)
        elif isinstance(thing, range) and len(thing) <= MOST:
            yield from self._array(path, np.array(thing), depth, nested)
        elif isinstance(thing, Sequence | set | frozenset | Iterator):
            yield from self._items(path, thing, depth, nested)
        elif hasattr(type(thing), "tocoo"):
            coo = thing.tocoo()
            yield from self._named(path, [(".data", coo.data)], depth, nested)
        elif hasattr(type(thing), "__array__"):
            yield from self._named(path, [("", np.asarray(thing))], depth, nested)
        elif hasattr(type(thing), "__iter__") and hasattr(type(thing), "__len__"):
            yield from self._items(path, thing, depth, nested)
        else:
            yield from self._named(path, _state(thing), depth, nested)

    def _named(
        self, path: str, parts: Iterable[tuple[str, object]], depth: int, nested: int
    ) -> Iterator[Leaf]:
        """Yield the named parts of an object: its numbers together, other parts one by one."""
        yield from self._grouped(
            ((f"{path}{name}", name, part) for name, part in parts), path, depth, nested
        )

    def _grouped(
        self, parts: Iterable[tuple[str, str, object]], path: str, depth: int, nested: int
    ) -> Iterator[Leaf]:
        numbers: list[float] = []
        labels: list[str] = []
        texts: list[str] = []
        cells: list[str] = []
        for full_path, label, part in parts:
            if isinstance(part, RowText):
                yield from self.leaves(full_path, part, depth + 1, nested)
                continue
            if self._rows and len(cells) <= CELLS and isinstance(part, _CELL):
                cells.append(_cell(label, part))
            values = None if isinstance(part, np.ndarray) else numbers_of(part)
            if values is not None:
                numbers += values
                labels += [label] * len(values)
            elif isinstance(part, str) and len(part) < 16:
                texts.append(part)
            else:
                yield from self.leaves(full_path, part, depth + 1, nested)
        if numbers:
            yield Leaf(path, np.array(numbers, dtype=float), labels)
        if texts:
            yield from self._text(path, "\n".join(texts), depth, nested)
        if 1 < len(cells) <= CELLS:
            yield Leaf(path, "; ".join(cells), row=True)

    def _mapping(
        self, path: str, mapping: Mapping[Any, object], depth: int, nested: int
    ) -> Iterator[Leaf]:
        items = list(mapping.items())
        names = [_key(key, index) for index, (key, _) in enumerate(items)]
        parts = (
            (f"{path}{name}", name, value) for name, (_, value) in zip(names, items, strict=True)
        )
        yield from self._grouped(parts, path, depth, nested)
        if self._rows and (columns := _as_columns(dict(zip(names, mapping.values(), strict=True)))):
            values = np.column_stack([_floats(column) for column in columns.values()])
            yield Leaf(path, values, list(columns), row=True)
        keys = [key for key, _ in items]
        if (key_text := str(keys)) not in self._keys:
            self._keys.add(key_text)
            yield from self._items(f"{path}, its keys", keys, depth, nested)

    def _items(self, path: str, items: Iterable[object], depth: int, nested: int) -> Iterator[Leaf]:
        listed = items if isinstance(items, list | tuple) else list(islice(items, MOST))
        if len(listed) == MOST:
            yield Leaf(path, b"", unread=f"iterator of more than {MOST - 1} items")
        kinds = set(map(type, listed))
        if listed and kinds <= {int, float, bool}:
            yield from self._array(path, _floats(listed), depth, nested)
            return
        if kinds == {str}:
            yield from self._text(path, "\n".join(listed), depth, nested)  # type: ignore[arg-type]
            return
        table = _as_table(listed, kinds)
        if table is not None:
            values, labels = table
            yield Leaf(f"{path}[rows]" if labels else path, values, labels)
            if labels is None:
                yield from _rows_of(path, values) if self._rows else ()
                return
            if len(listed) > CELLS:
                yield from self._columns(f"{path}[rows]", listed, labels, depth, nested)
                return
        parts = ((f"{path}[{index}]", f"[{index}]", part) for index, part in enumerate(listed))
        yield from self._grouped(parts, path, depth, nested)

    def _columns(
        self, path: str, records: Sequence[Any], matrix: list[str], depth: int, nested: int
    ) -> Iterator[Leaf]:
        """Yield records with the same keys: columns outside the matrix one by one, the first records as lines."""
        keys = {key: _key(key, index) for index, key in enumerate(records[0])}
        yield from self._items(f"{path}, its keys", list(keys), depth, nested)
        for key, name in keys.items():
            if name not in matrix:
                column = [record[key] for record in records]
                yield from self._items(f"{path}{name}", column, depth + 1, nested)
        if self._rows and 1 < len(keys) <= CELLS:
            first = records[:ROWS]
            cells = [_cells(name, [row[key] for row in first]) for key, name in keys.items()]
            lines = ("; ".join(filter(None, line)) for line in zip(*cells, strict=True))
            yield Leaf(path, "\n".join(lines), row=True)

    def _array(self, path: str, array: np.ndarray, depth: int, nested: int) -> Iterator[Leaf]:
        if isinstance(array, np.ma.MaskedArray):
            array = array.data  # masked values are still in the array
        kind = array.dtype.kind
        if array.size == 0:
            return
        if kind in "fiub":
            yield Leaf(path, np.asarray(array))
            if self._rows and kind != "b":
                yield from _rows_of(path, np.asarray(array))
            if array.dtype.itemsize == 1 and kind != "b" and array.size > SHORT:
                yield from self._bytes(f"{path} as bytes", array.tobytes(), depth, nested)
        elif kind == "c":
            yield Leaf(f"{path}.real", array.real)
            yield Leaf(f"{path}.imag", array.imag)
        elif kind in "mM":
            yield Leaf(path, _seconds(array))
        elif kind == "V" and array.dtype.names:
            for name in array.dtype.names:
                yield from self._array(f"{path}[{name!r}]", array[name], depth + 1, nested)
        elif kind in "SV":
            yield from self._bytes(path, array.tobytes(), depth, nested)
        else:
            yield from self._items(path, array.ravel().tolist(), depth + 1, nested)

    def _text(self, path: str, text: str, depth: int, nested: int) -> Iterator[Leaf]:
        if not text:
            return
        yield Leaf(path, text)
        encoded = encoded_in(text)
        first = list(islice(encoded, 1))
        if first and nested >= NESTED:
            yield Leaf(path, b"", unread=f"encoded more than {NESTED} times over")
            first, encoded = [], iter(())
        if len(text) > LONG:
            yield Leaf(
                path,
                b"",
                unread=f"text longer than {LONG >> 20} MiB, read for plain numbers and texts alone",
            )
        if len(text) <= LONG or not (first and first[0][0] in JSON):  # JSON's numbers follow
            yield from numbers_in(path, text)
        for codec, content in chain(first, encoded):
            yield from self.leaves(f"{path} as {codec}", content, depth + 1, nested + 1)

    def _bytes(self, path: str, data: bytes, depth: int, nested: int) -> Iterator[Leaf]:
        is_whole, is_known, is_parted = False, False, False
        if len(data) > SHORT and nested < NESTED:
            for codec, content in decoded(data):
                is_known = is_parted = True
                for leaf in self.leaves(f"{path} as {codec}", content, depth + 1, nested + 1):
                    is_whole = not codec.startswith(_PARTS)
                    yield leaf
            if not is_whole:
                for codec, content in streams_inside(data):
                    is_known = True
                    yield from self.leaves(f"{path}, {codec}", content, depth + 1, nested + 1)
            if not is_parted:
                for codec, content in texts_inside(data):
                    yield from self.leaves(f"{path}, {codec}", content, depth + 1, nested + 1)
        if data and not is_whole:
            # arrays of a pickle were read by the last type named
            is_known |= path.endswith(" as pickle")
            yield Leaf(path, data, unread="" if is_known or len(data) <= OPAQUE else OPAQUELY)

    def _file(self, path: str, file: Path, depth: int, nested: int) -> Iterator[Leaf]:
        if file.is_dir():
            names = [entry.relative_to(file) for entry in sorted(file.rglob("*"))]
            yield from self._text(f"{path}, its names", "\n".join(map(str, names)), depth, nested)
            for name in names:
                if (entry := file / name).is_file():
                    yield from self._bytes(
                        f"{path} {str(name)!r}", entry.read_bytes(), depth, nested
                    )
        elif file.is_file():
            yield from self._bytes(f"{path}, its content", file.read_bytes(), depth, nested)
        yield from self._text(f"{path}, its name", file.name, depth, nested)

    def _stream(self, path: str, stream: Any, depth: int, nested: int) -> Iterator[Leaf]:
        """Yield the whole content of a file object; its position is kept."""
        if hasattr(type(stream), "getvalue"):
            yield from self.leaves(f"{path}.getvalue()", stream.getvalue(), depth + 1, nested)
        elif isinstance(getattr(stream, "name", None), str) and Path(stream.name).is_file():
            if not stream.closed and stream.writable():
                stream.flush()
            yield from self._file(path, Path(stream.name), depth, nested)
        else:
            yield Leaf(path, b"", unread=f"{_kind(stream)}, a stream without a file")


def _kind(thing: object) -> str:
    return type(thing).__name__


def _cell(label: str, part: object) -> str:
    """A cell with its name."""
    shown = f"{part!s}"[:200].replace("\n", " ")
    return f"{label.strip('.[]')}={shown}"


def _cells(label: str, parts: Sequence[object]) -> list[str]:
    """Cells of a column with the column's name; an empty string for other objects."""
    if set(map(type, parts)) <= {int, float}:
        return [f"{label.strip('.[]')}={part}" for part in parts]
    return [_cell(label, part) if isinstance(part, _CELL) else "" for part in parts]


def _rows_of(path: str, values: np.ndarray) -> Iterator[Leaf]:
    """Yield the rows of a small array as lines of text."""
    rows = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values.reshape(1, -1)
    if 1 < rows.shape[1] <= CELLS and len(rows) <= ROWS:
        cells = rows.tolist() if values.dtype.itemsize == 8 else rows.astype(str)
        lines = ["; ".join(map(str, row)) for row in cells]
        yield Leaf(path, "\n".join(lines), row=True)


def _as_table(
    items: Sequence[object], kinds: set[type]
) -> tuple[np.ndarray, list[str] | None] | None:
    """Rows of equal length as a matrix; for records, the fields that are always numbers, and their names."""
    if len(items) < 2 or len(kinds) != 1:
        return None
    first: Any = items[0]
    rows: Any = items
    if isinstance(first, list | tuple) and not hasattr(first, "_fields"):
        flat = set(map(type, chain.from_iterable(rows)))
        if flat and flat <= {int, float, bool} and len(set(map(len, rows))) == 1:
            return _floats([*chain.from_iterable(rows)]).reshape(len(rows), -1), None
    if isinstance(first, dict) and (
        len(set(map(tuple, rows))) == 1 or all(row.keys() == first.keys() for row in rows)
    ):
        columns = {}
        for index, key in enumerate(first):
            column = [row[key] for row in rows]
            if set(map(type, column)) <= {int, float}:
                columns[_key(key, index)] = _floats(column)
        if columns:
            return np.column_stack(list(columns.values())), list(columns)
    return None


def _as_columns(parts: Mapping[str, object]) -> dict[str, list[Any]]:
    """At least two columns of numbers of equal length, as lists or dicts by record, as pandas writes a table."""
    columns: dict[str, list[Any]] = {}
    for name, part in parts.items():
        if isinstance(part, np.ndarray) and part.ndim == 1 and part.dtype.kind in "iuf":
            columns[name] = part.tolist()
        elif isinstance(part, dict | list | tuple):
            cells = list(part.values() if isinstance(part, dict) else part)
            columns |= {name: cells} if set(map(type, cells)) <= {int, float} else {}
    sizes = {len(column) for column in columns.values()}
    return columns if len(columns) > 1 and len(sizes) == 1 and min(sizes) > 1 else {}


def _floats(numbers: Iterable[Any]) -> np.ndarray:
    """Python numbers as floats; integers that overflow become infinite."""
    values = list(numbers)
    try:
        return np.array(values, dtype=float)
    except OverflowError:
        return np.array([_float(value) for value in values])


def numbers_of(thing: object) -> list[float] | None:
    """A number, time or duration as a list of floats (two for complex); None for other objects."""
    if isinstance(thing, Enum):
        thing = thing.value
    if isinstance(thing, _PLAIN):
        return [_float(thing)]
    if isinstance(thing, complex | np.complexfloating):
        return [float(thing.real), float(thing.imag)]
    if isinstance(thing, datetime):
        moment = thing if thing.tzinfo else thing.replace(tzinfo=UTC)
        return [moment.timestamp()] if str(thing) != "NaT" else [float("nan")]
    if isinstance(thing, date):
        return [datetime(thing.year, thing.month, thing.day, tzinfo=UTC).timestamp()]
    if isinstance(thing, clock):
        return [((thing.hour * 60 + thing.minute) * 60 + thing.second) + thing.microsecond / 1e6]
    if isinstance(thing, timedelta):
        return [thing.total_seconds()]
    if isinstance(thing, np.datetime64 | np.timedelta64):
        return [float(value) for value in _seconds(np.array([thing]))]
    if isinstance(thing, Number) and hasattr(thing, "__float__"):
        return [_float(thing)]
    return None


def _float(number: Any) -> float:
    """A float; infinity on overflow, NaN if it is no number."""
    try:
        return float(number)
    except OverflowError:
        return float("inf")
    except ValueError:
        return float("nan")


def _seconds(moments: np.ndarray) -> np.ndarray:
    """Times as seconds since 1970, or durations in seconds; NaN for missing ones."""
    if np.datetime_data(moments.dtype)[0] in ("Y", "M", "generic"):
        moments = moments.astype(f"{moments.dtype.kind}8[s]")
    unit, count = np.datetime_data(moments.dtype)
    ticks = float(np.array(1, "m8[s]") / np.array(1, f"m8[{count}{unit}]"))
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / ticks)


def _key(key: object, index: int) -> str:
    """Form of a key in a path; a number may be data itself, so its position is used."""
    return f"[{key!r}]" if isinstance(key, str | bool) else f"[key number {index}]"


def _state(thing: Any) -> Iterator[tuple[str, object]]:
    """Yield the content of an object of unknown type: fields, slots, closures, or its pickled state."""
    if isinstance(thing, types.MethodType):
        yield ".__self__", thing.__self__
        thing = thing.__func__
    if isinstance(thing, types.FunctionType):
        yield ".__defaults__", [thing.__defaults__, thing.__kwdefaults__]
        yield ".__closure__", [_content(cell) for cell in thing.__closure__ or ()]
    if isinstance(thing, partial):
        yield ".args", [thing.args, thing.keywords]
    fields = getattr(thing, "__dict__", None)
    declared = dataclasses.fields(thing) if dataclasses.is_dataclass(thing) else ()
    names = [field.name for field in declared]
    for name in dict.fromkeys([*(fields or ()), *names, *_slots(thing)]):
        yield f".{name}", fields[name] if fields and name in fields else getattr(thing, name, None)
    if not fields and not names:
        yield from _pickled(thing)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # an unassigned variable
        return None


def _slots(thing: object) -> list[str]:
    slots = [vars(cls).get("__slots__", ()) for cls in type(thing).__mro__]
    flat = chain.from_iterable([names] if isinstance(names, str) else names for names in slots)
    return [name for name in flat if name not in ("__dict__", "__weakref__")]


def _pickled(thing: object) -> Iterator[tuple[str, object]]:
    """Yield the state that a pickle of an object without fields would hold; nothing is loaded."""
    try:
        reduced = thing.__reduce_ex__(4)
    except Exception:  # noqa: BLE001  # objects raise anything if they cannot be pickled
        yield "", Unread(f"{_kind(thing)}, which shows nothing of itself")
        return
    if isinstance(reduced, tuple):
        yield ", pickled", [part for part in reduced[1:] if part is not None]
