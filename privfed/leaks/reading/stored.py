"""What files of joblib and of SQLite hold: arrays between a pickle's opcodes, and tables.

Nothing in them is run: of the former bytes are looked up, of the latter plain tables are read, no view
and no function that the file's schema names.
"""

import re
from collections.abc import Iterator
from contextlib import closing

import numpy as np

#: What joblib writes before an array's bytes, after the opcode of its wrapper: how long the padding is, and it.
_ARRAY = re.compile(rb"b([\x01-\x10])(\xff{1,16})")
_KIND = re.compile(rb"[\x02\x03]([fiuV][0-9]{1,2})")
_TEXT = re.compile(rb"[\x20-\x7e]{4,}")
_SANE = (1e-9, 1e15)  #: Sizes between which eight or four bytes are taken for a number
_MAGIC = b"SQLite format 3\0"
_JOURNAL = 18  #: Where the header says that a log stands beside the file, which is not there


def joblib_arrays(data: bytes) -> Iterator[tuple[str, object]]:
    """Arrays that joblib wrote as they lie in memory, of every type that was named before, and the texts between.

    What stands behind an array's end, up to the next one, is read with it; few of those opcodes are sane numbers.
    """
    if data[:1] != b"\x80" or b"joblib.numpy_pickle" not in data:
        return
    found = [m for m in _ARRAY.finditer(data) if len(m[2]) >= m[1][0]]
    begins = [one.start(2) + one[1][0] for one in found]
    ends = [*(one.start() for one in found[1:]), len(data)]
    kinds: list[str] = []
    for at, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        header = data[ends[at - 1] - 512 if at else 0 : found[at].start()]
        named = [kind.decode() for kind in _KIND.findall(header)]
        kinds = list(dict.fromkeys([*named, *kinds]))
        for kind in kinds:
            yield from _array(data[begin:end], kind)
    yield "joblib file", b"\n".join(_TEXT.findall(data)).decode("ascii")


def _array(data: bytes, kind: str) -> Iterator[tuple[str, np.ndarray]]:
    """Sane numbers of a type; of records of a fixed width, as a tree's nodes are, those of each field of eight bytes."""
    width = int(kind[1:])
    records = kind[0] == "V" and width % 8 == 0 and width > 0
    if not records and (kind[0] == "V" or width not in (2, 4, 8) or kind == "f2"):
        return
    whole = data[: len(data) // width * width]
    numbers = np.frombuffer(whole, "<f8" if records else f"<{kind}").astype(float)
    fields = numbers.reshape(-1, width // 8).T if records else numbers[None]
    for field in fields:
        size = np.abs(field)
        sane = field[(size == 0) | ((size > _SANE[0]) & (size < _SANE[1]))]
        if len(sane):
            yield "joblib file", sane


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
