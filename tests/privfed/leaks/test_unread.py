"""What is not read, or not in full, is told; and what only hid is read."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import socket
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import numpy as np
import pandas as pd
import pytest

from privfed.leaks.artefact import Released
from privfed.leaks.reading import walk
from privfed.leaks.reading.encodings import LARGEST, _entry
from privfed.testing import RawValueLeft, assert_no_raw, flatten

SECRET = "Vogelsang-Adler 4711"
NUMBERS = np.random.default_rng(9).integers(10**8, 10**9, 60)
TABLE = pd.DataFrame({"name": [f"Vogelsang-Adler {at}" for at in NUMBERS]})


class Refuses:
    """Whatever is asked of it raises."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(SECRET)

    def __iter__(self) -> Iterator[int]:
        raise RuntimeError(SECRET)

    def __len__(self) -> int:
        return 3


class Broken(Mapping[str, int]):
    """A mapping without the key that it names."""

    def __getitem__(self, key: str) -> int:
        raise KeyError(SECRET)

    def __iter__(self) -> Iterator[str]:
        return iter("a")

    def __len__(self) -> int:
        return 1


def nested(depth: int) -> list[Any]:
    """Lists in lists."""
    outer: list[Any] = []
    for _ in range(depth):
        outer = [outer, 1]
    return outer


def packed(times: int) -> bytes:
    """Compressed again and again."""
    data = NUMBERS.tobytes()
    for _ in range(times):
        data = gzip.compress(data)
    return data


def locked() -> bytes:
    """A zip file of two entries, of which the second says that it is encrypted."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "nothing")
        archive.writestr("b.txt", SECRET)
    data = bytearray(file.getvalue())
    place = data.rindex(b"PK\x01\x02")
    data[place + 8] |= 1
    return bytes(data)


UNREAD: dict[str, tuple[object, str]] = {
    "too deep": (nested(100), "nested more than 60 deep"),
    "refuses": ([1.5, Refuses()], "Refuses that raised RuntimeError"),
    "broken": ({"a": Broken()}, "Broken that raised KeyError"),
    "socket": (socket.socket(), "socket, which shows nothing of itself"),
    "stream": (sys.__stdout__, "TextIOWrapper, a stream without a file"),
    "encrypted": (locked(), "entry of a zip file, too large, encrypted or broken"),
    "encoded too often": (packed(8), "string of bytes of no known form"),
    "a long text": ("x" * (1 << 20) + " 1", "text longer than 1 MiB"),
    "pixels": (bytes(range(128, 256)) * 2, "string of bytes of no known form"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_it_is_told(name: str) -> None:
    """By what it is, and why; never by its content."""
    left, why = UNREAD[name]
    unread = Released.of(flatten(left, rows=True)).unread
    assert [one for one in unread if one.startswith(why)]
    assert not [one for one in unread if SECRET in one]


def test_what_was_read_is_not_told() -> None:
    """Neither code, nor random numbers' generators, nor a file."""
    left = [
        np,
        dict,
        len,
        np.random.default_rng(0),
        TABLE,
        {"a": [1.5]},
        range(5),
        Path(__file__),
    ]
    assert Released.of(flatten(left, rows=True)).unread == Counter()


def test_an_assertion_that_read_nothing_says_so() -> None:
    """It fails, though an empty release were fine."""
    with pytest.raises(
        AssertionError, match=r"nothing left at all.*1 x Refuses that raised RuntimeError"
    ):
        assert_no_raw(Refuses(), TABLE, may_be_empty=True)


def test_endless_iterators_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After many items; a range of as many is none but its end."""
    monkeypatch.setattr(walk, "MOST", 1000)
    assert Released.of(flatten(count())).unread == Counter(["iterator of more than 999 items"])
    assert Released.of(flatten(range(10**12))).unread == Counter(
        ["iterator of more than 999 items"]
    )
    assert next(flatten(range(3, 9, 2))).value.tolist() == [3, 5, 7]  # type: ignore[union-attr]


def test_what_is_tested_may_raise() -> None:
    """A generator runs the code under test, whose errors are no fault of reading."""
    with pytest.raises(ZeroDivisionError):
        list(flatten(1 / at for at in (1, 0)))


def test_too_large_an_entry_is_told() -> None:
    """It is not even opened."""
    ((_, found),) = _entry("zip", "a", LARGEST + 1, lambda: pytest.fail("opened"))
    assert str(found).startswith("entry of a zip file")


def test_numbers_that_no_float_holds() -> None:
    """Great ones are infinite, signalling ones are none."""
    left = {"a": 10**5000, "b": Decimal("sNaN"), "c": Fraction(10**400, 3), "d": 1.5}
    found = np.concatenate(
        [one.value.ravel() for one in flatten(left) if isinstance(one.value, np.ndarray)]
    )
    assert np.isinf(found).sum() == 2 and np.isnan(found).sum() == 1 and 1.5 in found


def called(mock: Any) -> Any:
    """Calls a mock, as code under test does."""
    mock.info("sent to %s", SECRET)
    mock.send(to=[SECRET])
    return mock


def archive(kind: str) -> bytes:
    """An archive whose entry's name, or whose comment, tells."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr(f"{SECRET}.txt" if kind == "name" else "a.txt", "nothing")
        made.comment = SECRET.encode() if kind == "comment" else b""
    return file.getvalue()


HIDDEN: dict[str, object] = {
    "mock": called(Mock()),
    "magic mock": called(MagicMock()),
    "arguments of a call": called(Mock()).send.call_args,
    "calls": called(MagicMock()).info.call_args_list,
    "behind gzip": gzip.compress(b"nothing at all") + SECRET.encode(),
    "behind zlib": zlib.compress(b"nothing at all") + SECRET.encode(),
    "a second bz2": bz2.compress(b"nothing at all") + bz2.compress(SECRET.encode()),
    "behind bz2": bz2.compress(b"nothing at all") + SECRET.encode(),
    "a second xz": lzma.compress(b"nothing at all") + lzma.compress(SECRET.encode()),
    "an entry's name": archive("name"),
    "a comment": archive("comment"),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_hid_is_read(name: str) -> None:
    """Each holds one text that names a record."""
    assert [leaf for leaf in flatten(HIDDEN[name]) if SECRET in str(leaf.value)]


def test_the_names_of_files_in_a_folder(tmp_path: Path) -> None:
    """And of folders in it."""
    (tmp_path / "out" / SECRET).mkdir(parents=True)
    assert [leaf for leaf in flatten(tmp_path / "out") if SECRET in str(leaf.value)]


X = np.random.default_rng(0).normal(size=(60, 2))
#: Raw tables, and what leaves of each.
TABLES: dict[str, tuple[object, object]] = {
    "columns of one name": (pd.DataFrame(X, columns=["a", "a"]), X[3, 0]),
    "an index of texts": (
        pd.DataFrame({"x": X[:, 0]}, index=TABLE["name"].to_numpy()),
        f"no bed for {TABLE['name'][3]}",
    ),
    "a named index": (
        pd.DataFrame({"x": np.arange(60)}, index=pd.Index(X[:, 0], name="y")),
        X[3, 0],
    ),
    "two indices": (
        TABLE.assign(x=X[:, 0], y=X[:, 1]).set_index(["name", "x"]),
        f"no bed for {TABLE['name'][3]}",
    ),
    "complex": (pd.DataFrame({"z": X[:, 0] + 1j * X[:, 1]}), X[3, 1]),
    "structured": (np.array([tuple(row) for row in X], dtype=[("a", "f8"), ("b", "f8")]), X[3, 1]),
}


@pytest.mark.parametrize("name", TABLES)
def test_all_of_a_raw_table_is_raw(name: str) -> None:
    """Whatever its columns are called, and what stands in its index."""
    table, left = TABLES[name]
    with pytest.raises(RawValueLeft, match="record 3,"):
        assert_no_raw(left, table, alpha=1e-3)


def test_an_index_that_counts_is_no_column() -> None:
    """Row numbers of a part of a table are nobody's."""
    table = pd.DataFrame({"x": X[:, 0]}, index=np.random.default_rng(1).permutation(10**6)[:60])
    assert_no_raw(table.index.to_numpy(), table, alpha=1e-3)
