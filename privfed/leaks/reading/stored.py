"""Reads files of joblib (arrays between a pickle's opcodes) and SQLite (tables).

Nothing in them is executed: a pickle's opcodes are only parsed, and views and functions of a database's
schema are not used.
"""

import io
import math
import pickletools
import re
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import numpy as np

#: Keys that joblib writes before an array's bytes, and names of types.
_WRAPPED = {"shape", "order", "dtype", "allow_mmap"}
_PADDED = "numpy_array_alignment_bytes"
_TYPE = re.compile(r"[<>|=]?([fiucbSUV][0-9]{1,4})")
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_SANE = (1e-9, 1e15)  #: Sizes between which eight bytes of a tree's node count as a number
_MAGIC = b"SQLite format 3\0"
_JOURNAL = 18  #: Offset of the header's flags for a separate write-ahead log, which is missing here


def joblib_arrays(data: bytes) -> Iterator[tuple[str, object]]:
    """Yield the arrays of a joblib file, in memory order between a pickle's opcodes, its numbers and texts.

    Columns of one table, each a matrix of one row, are stacked.
    """
    if data[:1] != b"\x80" or b"joblib.numpy_pickle" not in data:
        return
    stream, rows, opcodes = io.BytesIO(data), [], _Opcodes()
    while stream.tell() < len(data):  # an array of objects is a separate pickle
        with suppress(ValueError):
            for opcode, argument, _ in pickletools.genops(stream):
                opcodes.read(opcode.name, argument)
                if opcode.name == "BUILD" and set(opcodes.stack) >= _WRAPPED:
                    for array in opcodes.arrays(stream):
                        is_row = array.ndim == 2 and len(array) == 1
                        rows += [array] * is_row
                        yield from [("joblib file", array)] * (not is_row)
                    opcodes.stack.clear()
            continue
        break
    for width in {row.size for row in rows}:
        yield "joblib file", np.vstack([row for row in rows if row.size == width])
    yield "joblib file", opcodes.numbers
    yield "joblib file", "\n".join(opcodes.texts)


class _Opcodes:
    """Numbers and texts of a pickle's opcodes, and the values since the last array, which describe the next."""

    def __init__(self) -> None:
        self.numbers: list[float] = []
        self.texts: list[str] = []
        self.stack: list[Any] = []
        self._memos: list[dict[int, Any]] = [{}]  # of a pickle and those nested in it

    def read(self, name: str, argument: Any) -> None:
        """Read one opcode: push a value, make a tuple of integers, or fetch a value from the memo."""
        memo = self._memos[-1]
        if name == "PROTO":
            self._memos.append({})
        elif name == "STOP":
            self._memos.pop()
        elif name == "MEMOIZE" or name.endswith("PUT"):
            memo[len(memo) if argument is None else int(argument)] = (
                self.stack[-1] if self.stack else None
            )
        elif name.endswith("GET"):
            self.stack.append(memo.get(int(argument)))
        elif name == "MARK":
            self.stack.append(_Opcodes)
        elif name == "STACK_GLOBAL":
            self.stack[-2:] = [None]
        elif name.endswith("TUPLE") or name in _TUPLES:
            self._make_tuple(_TUPLES.get(name))
        elif isinstance(argument, str):
            self.texts.append(argument)
            self.stack.append(argument)
        elif type(argument) in (int, float) and name != "FRAME":
            self.numbers.append(argument)
            self.stack.append(argument)

    def _make_tuple(self, count: int | None) -> None:
        """Replace the last ``count`` integers, or all since the last mark, by one tuple; other tuples are ignored."""
        begin = len(self.stack) - (count or 0)
        if count is None:
            begin = max((i for i, item in enumerate(self.stack) if item is _Opcodes), default=0)
            del self.stack[begin : begin + 1]
        if begin >= 0 and all(type(item) is int for item in self.stack[begin:]):
            self.stack[begin:] = [tuple(self.stack[begin:])]

    def arrays(self, stream: io.BytesIO) -> Iterator[np.ndarray]:
        """Yield the array whose bytes follow; for fixed-width records, such as a tree's nodes, one per field."""
        after = {
            item: self.stack[i + 1 :] for i, item in enumerate(self.stack) if isinstance(item, str)
        }
        shape, order = after["shape"][0], after["order"][0]
        kinds = [item for item in after["dtype"] if isinstance(item, str) and _TYPE.fullmatch(item)]
        if not kinds or not isinstance(shape, tuple):
            return
        swapped = ">" in after["dtype"]
        dtype = np.dtype(f"{'>' if swapped else '<'}{kinds[0].lstrip('<>|=')}")
        if _PADDED in after:
            stream.seek(stream.read(1)[0], io.SEEK_CUR)
        count = math.prod(shape)
        buffer = stream.read(count * dtype.itemsize)
        if dtype.kind == "V":
            yield from _fields(buffer, dtype.itemsize)
        elif dtype.kind in "fiucb" and len(buffer) == count * dtype.itemsize:
            yield np.frombuffer(buffer, dtype).reshape(shape, order="F" if order == "F" else "C")


def _fields(data: bytes, width: int) -> Iterator[np.ndarray]:
    """Yield the plausible numbers of each field of eight bytes."""
    if width % 8 or not width:
        return
    for field in np.frombuffer(data[: len(data) // width * width], "<f8").reshape(-1, width // 8).T:
        size = np.abs(field)
        sane = field[(size == 0) | ((size > _SANE[0]) & (size < _SANE[1]))]
        if len(sane):
            yield sane


def sqlite_tables(data: bytes) -> Iterator[tuple[str, object]]:
    """Yield every ordinary table of an SQLite file, as a dict of columns."""
    if not data.startswith(_MAGIC):
        return
    import sqlite3  # missing in some builds of Python; the bytes are then searched undecoded

    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(data[:_JOURNAL] + b"\x01\x01" + data[_JOURNAL + 2 :])
        database.execute("PRAGMA trusted_schema = OFF")
        query = (
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        )
        for (name,) in database.execute(query).fetchall():
            rows = database.execute('SELECT * FROM "{}"'.format(name.replace('"', '""')))
            columns = [column for column, *_ in rows.description]
            values = zip(*rows.fetchall(), strict=True)
            yield f"SQLite table {name!r}", dict(zip(columns, map(list, values), strict=False))
