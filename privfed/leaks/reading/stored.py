"""What files of joblib and of SQLite hold: arrays between a pickle's opcodes, and tables.

Nothing in them is run: of the former bytes are looked up, of the latter plain tables are read, no view
and no function that the file's schema names.
"""

import io
import math
import pickletools
import re
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import numpy as np

#: The keys of what joblib writes in front of an array's bytes, and how it names a type.
_WRAPPED = {"shape", "order", "dtype", "allow_mmap"}
_PADDED = "numpy_array_alignment_bytes"
_TYPE = re.compile(r"[<>|=]?([fiucbSUV][0-9]{1,4})")
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_SANE = (1e-9, 1e15)  #: Sizes between which eight bytes of a tree's node are taken for a number
_MAGIC = b"SQLite format 3\0"
_JOURNAL = 18  #: Where the header says that a log stands beside the file, which is not there


def joblib_arrays(data: bytes) -> Iterator[tuple[str, object]]:
    """What joblib wrote: arrays, as they lie in memory between a pickle's opcodes, the numbers and the texts.

    Columns of one table, each a matrix of one row, are put together.
    """
    if data[:1] != b"\x80" or b"joblib.numpy_pickle" not in data:
        return
    stream, rows, told = io.BytesIO(data), [], _Opcodes()
    while stream.tell() < len(data):  # an array of objects is a pickle of its own
        with suppress(ValueError):
            for opcode, argument, _ in pickletools.genops(stream):
                told.read(opcode.name, argument)
                if opcode.name == "BUILD" and set(told.said) >= _WRAPPED:
                    for array in told.arrays(stream):
                        one = array.ndim == 2 and len(array) == 1
                        rows += [array] * one
                        yield from [("joblib file", array)] * (not one)
                    told.said.clear()
            continue
        break
    for width in {row.size for row in rows}:
        yield "joblib file", np.vstack([row for row in rows if row.size == width])
    yield "joblib file", told.numbers
    yield "joblib file", "\n".join(told.texts)


class _Opcodes:
    """What a pickle's opcodes say: numbers, texts, and since the last array what is said of the next one."""

    def __init__(self) -> None:
        self.numbers: list[float] = []
        self.texts: list[str] = []
        self.said: list[Any] = []
        self._memos: list[dict[int, Any]] = [{}]  # of a pickle, and of one inside it

    def read(self, name: str, argument: Any) -> None:
        """Read one opcode: put a value down, make a shape of whole numbers, or look up what was put down before."""
        memo = self._memos[-1]
        if name == "PROTO":
            self._memos.append({})
        elif name == "STOP":
            self._memos.pop()
        elif name == "MEMOIZE" or name.endswith("PUT"):
            memo[len(memo) if argument is None else int(argument)] = (
                self.said[-1] if self.said else None
            )
        elif name.endswith("GET"):
            self.said.append(memo.get(int(argument)))
        elif name == "MARK":
            self.said.append(_Opcodes)
        elif name == "STACK_GLOBAL":
            self.said[-2:] = [None]
        elif name.endswith("TUPLE") or name in _TUPLES:
            self._together(_TUPLES.get(name))
        elif isinstance(argument, str):
            self.texts.append(argument)
            self.said.append(argument)
        elif type(argument) in (int, float) and name != "FRAME":
            self.numbers.append(argument)
            self.said.append(argument)

    def _together(self, count: int | None) -> None:
        """Make so many whole numbers, or all since the last mark, one tuple; other tuples are left as they are."""
        begin = len(self.said) - (count or 0)
        if count is None:
            begin = max((at for at, one in enumerate(self.said) if one is _Opcodes), default=0)
            del self.said[begin : begin + 1]
        if begin >= 0 and all(type(one) is int for one in self.said[begin:]):
            self.said[begin:] = [tuple(self.said[begin:])]

    def arrays(self, stream: io.BytesIO) -> Iterator[np.ndarray]:
        """The array whose bytes follow; of records of a fixed width, as a tree's nodes are, those of each field."""
        after = {
            one: self.said[at + 1 :] for at, one in enumerate(self.said) if isinstance(one, str)
        }
        shape, order = after["shape"][0], after["order"][0]
        kinds = [one for one in after["dtype"] if isinstance(one, str) and _TYPE.fullmatch(one)]
        if not kinds or not isinstance(shape, tuple):
            return
        swapped = ">" in after["dtype"]
        dtype = np.dtype(f"{'>' if swapped else '<'}{kinds[0].lstrip('<>|=')}")
        if _PADDED in after:
            stream.seek(stream.read(1)[0], io.SEEK_CUR)
        count = math.prod(shape)
        whole = stream.read(count * dtype.itemsize)
        if dtype.kind == "V":
            yield from _fields(whole, dtype.itemsize)
        elif dtype.kind in "fiucb" and len(whole) == count * dtype.itemsize:
            yield np.frombuffer(whole, dtype).reshape(shape, order="F" if order == "F" else "C")


def _fields(data: bytes, width: int) -> Iterator[np.ndarray]:
    """The sane numbers of each field of eight bytes."""
    if width % 8 or not width:
        return
    for field in np.frombuffer(data[: len(data) // width * width], "<f8").reshape(-1, width // 8).T:
        size = np.abs(field)
        sane = field[(size == 0) | ((size > _SANE[0]) & (size < _SANE[1]))]
        if len(sane):
            yield sane


def sqlite_tables(data: bytes) -> Iterator[tuple[str, object]]:
    """Every plain table of an SQLite file, a list of values for each column."""
    if not data.startswith(_MAGIC):
        return
    import sqlite3  # which few builds of Python lack: these bytes are then looked through as they are

    with closing(sqlite3.connect(":memory:")) as opened:
        opened.deserialize(data[:_JOURNAL] + b"\x01\x01" + data[_JOURNAL + 2 :])
        opened.execute("PRAGMA trusted_schema = OFF")
        kept = (
            "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        )
        for (name,) in opened.execute(kept).fetchall():
            rows = opened.execute('SELECT * FROM "{}"'.format(name.replace('"', '""')))
            columns = [column for column, *_ in rows.description]
            values = zip(*rows.fetchall(), strict=True)
            yield f"SQLite table {name!r}", dict(zip(columns, map(list, values), strict=False))
