"""Reads files of joblib (arrays between a pickle's opcodes), SQLite, Parquet, Arrow and Stata (tables).

Nothing in them is executed: a pickle's opcodes are only parsed, and views and functions of a database's
schema are not used.
"""

import io
import math
import pickletools
import re
import struct
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
#: Types of SQLite's pages, and sizes of their headers
_LEAVES = {0x0D: 8, 0x0A: 8, 0x05: 12, 0x02: 12}
#: Bytes of a value by its type: missing, integers, a float, 0, 1
_WIDTHS = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
_FLOAT = 7  #: Type of a float
_OLD_STATA = re.compile(rb"[\x71-\x73][\x01\x02]\x01\0")  #: Head of Stata's formats 113 to 115
_SCANNED = 1 << 22  #: Most bytes of deleted rows in which records are searched
_PAGED = 1 << 28  #: Most bytes of an Arrow file that are unpacked
#: The first major version of pyarrow after those that run code in a file (CVE-2023-47248, mended in 14.0.1)
_SAFE_ARROW = 15
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
    deleted = b"\n".join(_unallocated(data))
    yield "SQLite, its deleted rows", [deleted, *_records(deleted[:_SCANNED])]


def _unallocated(data: bytes) -> Iterator[bytes]:
    """Yield an SQLite file's bytes outside all cells, in which deleted rows remain (sqlite.org/fileformat2.html)."""
    size = int.from_bytes(data[16:18], "big")
    size = 65536 if size == 1 else size
    free = set(_freelist(data, size))
    for number in range(1, len(data) // size + 1):
        page = data[(number - 1) * size : number * size]
        head = 100 if number == 1 else 0
        if number in free:
            yield page
        elif header := _LEAVES.get(page[head]):
            first, cells, content = (
                int.from_bytes(page[head + at : head + at + 2], "big") for at in (1, 3, 5)
            )
            yield page[head + header + 2 * cells : content or 65536]
            while 0 < first <= size - 4:  # blocks between cells, in ascending order
                following, length = (
                    int.from_bytes(page[first + at : first + at + 2], "big") for at in (0, 2)
                )
                yield page[first + 4 : first + length]
                first = following if following > first else 0


def _records(data: bytes) -> Iterator[list[float]]:
    """Yield the numbers of each run of bytes that may be a record of SQLite: types of one byte, then the values."""
    for start, width in enumerate(data):
        types = data[start + 1 : start + width]
        if not 2 < width < 40 or any(kind in (10, 11) or kind > 127 for kind in types):
            continue
        at, numbers = start + width, []
        for kind in types:
            size = (kind - 12) // 2 if kind > 11 else _WIDTHS[kind]
            value = data[at : at + size]
            at += size
            if kind == _FLOAT and len(value) == size:
                numbers.append(struct.unpack(">d", value)[0])
            elif size and kind < _FLOAT:
                numbers.append(float(int.from_bytes(value, "big", signed=True)))
        if at <= len(data) and all(n == 0 or _SANE[0] < abs(n) < _SANE[1] for n in numbers):
            yield numbers


def _freelist(data: bytes, size: int) -> Iterator[int]:
    """Yield the numbers of an SQLite file's unused pages: each trunk page lists others."""
    trunk, most = int.from_bytes(data[32:36], "big"), len(data) // size
    for _ in range(most):
        if not 0 < trunk <= most:
            return
        page = data[(trunk - 1) * size : trunk * size]
        yield trunk
        count = min(int.from_bytes(page[4:8], "big"), size // 4 - 2)
        yield from np.frombuffer(page, ">u4", count, 8).tolist()
        trunk = int.from_bytes(page[:4], "big")


def arrow_tables(data: bytes) -> Iterator[tuple[str, object]]:
    """Yield the table of a Parquet or an Arrow (Feather) file, and its metadata, if pyarrow is installed."""
    if not ((data.startswith(b"PAR1") and data.endswith(b"PAR1")) or data.startswith(b"ARROW1")):
        return
    import pyarrow  # if missing, the bytes are searched undecoded

    if int(pyarrow.__version__.split(".")[0]) < _SAFE_ARROW:
        return
    if data.startswith(b"PAR1"):
        from pyarrow import parquet

        file = parquet.ParquetFile(io.BytesIO(data))
        groups = range(file.metadata.num_row_groups)
        if sum(file.metadata.row_group(group).total_byte_size for group in groups) > _PAGED:
            return
        table = file.read()
    else:
        from pyarrow import feather

        table = feather.read_table(io.BytesIO(data))
    yield "Arrow table", table.to_pandas(ignore_metadata=True)
    yield "Arrow table, its metadata", dict(table.schema.metadata or {})


def stata_tables(data: bytes) -> Iterator[tuple[str, object]]:
    """Yield the table of a Stata file, and its labels."""
    if data.startswith(b"<stata_dta>") or _OLD_STATA.match(data):
        import pandas as pd

        yield "Stata file", pd.read_stata(io.BytesIO(data), convert_categoricals=False)
        with pd.read_stata(io.BytesIO(data), iterator=True) as reader:
            labels = [reader.data_label, reader.variable_labels(), reader.value_labels()]
            yield "Stata file, its labels", labels
