"""What left is taken apart: every container, every encoding, no copy of an array, nothing loaded."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import logging
import lzma
import pickle
import sqlite3
import sys
import tarfile
import warnings
import zipfile
import zlib
from collections import OrderedDict, namedtuple
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.tree import DecisionTreeRegressor

from privfed.testing import RawValueLeft, assert_no_raw, flatten

#: What every container below holds.
VALUE = 47.31234567890123
ROW = np.array([VALUE, 1.5, -2.25])
PAIR = namedtuple("PAIR", "first second")


class Level(Enum):
    """A number under a name."""

    HIGH = VALUE


@dataclass
class Update:
    """What a client may send."""

    weights: object
    name: str = "update"


class Slotted:
    """An object without a dictionary."""

    __slots__ = ("kept",)

    def __init__(self, kept: object) -> None:
        self.kept = kept


def closure() -> Any:
    """A function that carries a value."""
    kept = VALUE
    return lambda: kept


def zipped() -> bytes:
    """An archive with one array in it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.bin", pickle.dumps([VALUE]))
    return file.getvalue()


def tarred() -> bytes:
    """A tape archive with a text in it."""
    file, data = io.BytesIO(), repr(VALUE).encode()
    with tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo("a.txt")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def saved(**arrays: np.ndarray) -> bytes:
    """NumPy's own file formats."""
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    """One array as a file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


CONTAINERS: dict[str, Any] = {
    "number": VALUE,
    "list": [1, "a", VALUE],
    "tuple": (VALUE, None),
    "set": {VALUE, 1.0},
    "dictionary": {"a": {"b": VALUE}},
    "key": {VALUE: "a"},
    "ordered": OrderedDict(a=VALUE),
    "named tuple": PAIR(1, VALUE),
    "records": [{"a": VALUE, "b": "x"}, {"a": 2.5, "b": "y"}],
    "rows": [[VALUE, 1.0], [2.0, 3.0]],
    "dataclass": Update(ROW),
    "slots": Slotted(ROW),
    "namespace": SimpleNamespace(a=[SimpleNamespace(b=VALUE)]),
    "closure": closure(),
    "partial": partial(print, VALUE),
    "default": lambda x=VALUE: x,
    "method": [VALUE].append,
    "enum": Level.HIGH,
    "decimal": Decimal(repr(VALUE)),
    "fraction": Fraction(VALUE),
    "complex": complex(1, VALUE),
    "complex array": np.array([1 + VALUE * 1j]),
    "array": ROW,
    "scalar": np.float64(VALUE),
    "object array": np.array([VALUE, "a", None], dtype=object),
    "structured": np.array([(VALUE, 1)], dtype=[("a", "f8"), ("b", "i4")]),
    "masked": np.ma.masked_array(ROW, mask=[True, True, True]),
    "reversed": ROW[::-1],
    "frame": pd.DataFrame({"a": ROW, "b": list("xyz")}),
    "index": pd.DataFrame({"a": [1]}, index=[VALUE]),
    "columns": pd.DataFrame([[1]], columns=[VALUE]),
    "series": pd.Series(ROW),
    "nullable": pd.Series([VALUE, None], dtype="Float64"),
    "categories": pd.Series([VALUE, 1.0]).astype("category"),
    "attributes": pd.DataFrame({"a": [1]}).assign(b=VALUE),
    "sparse": sparse.csr_matrix(np.diag(ROW)),
    "generator": (value for value in ROW.tolist()),
    "text": f"the value is {VALUE!r}.",
    "bytes of text": f"[{VALUE!r}]".encode(),
    "utf-16": repr(VALUE).encode("utf-16"),
    "utf-16 without a mark": f"x={VALUE!r}".encode("utf-16-le"),
    "utf-16, big end first, without a mark": f"x={VALUE!r}".encode("utf-16-be"),
    "utf-32": repr(VALUE).encode("utf-32"),
    "Latin-1": f"für Müller: {VALUE!r}".encode("latin-1"),
    "one letter of Latin-1 in UTF-8": b"caf\xe9\n" + f"für Müller: {VALUE!r}".encode(),
    "a log that was cut": f"x={VALUE!r} für Mü".encode()[:-1],
    "a colour": f"\x1b[1;36m{VALUE!r}\x1b[0m",
    "a log in colour": f"\x1b[32mINFO\x1b[0m x=\x1b[1;36m{VALUE!r}\x1b[0m".encode(),
    "a picture's comment": b"\x89PNG\r\n\x1a\n\0\0\0\rtEXtComment\0x="
    + repr(VALUE).encode()
    + b"\x9a\1",
    "mail": b"bei M=C3=BCller: " + f"{VALUE!r}".encode()[:9] + b"=\r\n" + f"{VALUE!r}".encode()[9:],
    "escaped": "M\\xfcller: " + "".join(f"\\x{ord(letter):02x}" for letter in repr(VALUE)),
    "hexadecimal pairs": npy(ROW).hex(" "),
    "zeros between": f"HOME=/root\0x={VALUE!r}\0y=1\0".encode(),
    "PDF of wide letters": "".join(
        ["BT [ ", *(f"(\0{letter}) -0.5 " for letter in repr(VALUE)), "]\nTJ ET"]
    ).encode(),
    "PDF": f"BT [ ({repr(VALUE)[:3]}) -0.5 ({repr(VALUE)[3:]}) ]\nTJ ET",
    "pickle of protocol 0": pickle.dumps({"a": [VALUE]}, protocol=0),
    "pickle of protocol 1": pickle.dumps({"a": [VALUE]}, protocol=1),
    "array in protocol 0": pickle.dumps(ROW, protocol=0),
    "JSON": json.dumps({"a": [{"b": VALUE}]}),
    "JSON lines": "\n".join(json.dumps({"a": value}) for value in ROW),
    "hexadecimal float": f"x={VALUE.hex()}",
    "pickle": pickle.dumps({"a": [VALUE]}),
    "pickled array": pickle.dumps(ROW),
    "old pickle": pickle.dumps(ROW, protocol=2),
    "pickled frame": pickle.dumps(pd.DataFrame({"a": ROW})),
    "npy": npy(ROW),
    "two npy": npy(np.arange(3.0)) + npy(ROW),
    "big end first": npy(ROW.astype(">f8")),
    "fortran": npy(np.asfortranarray(np.outer(ROW, [1, 1]))),
    "npz": saved(a=ROW),
    "zip": zipped(),
    "tar": tarred(),
    "gzip": gzip.compress(repr(VALUE).encode()),
    "bz2": bz2.compress(repr(VALUE).encode()),
    "lzma": lzma.compress(repr(VALUE).encode()),
    "deflate": zlib.compress(json.dumps([VALUE] * 9).encode())[2:-4],
    "MessagePack": msgspec.msgpack.encode({"a": VALUE}),
    "hexadecimal": npy(ROW).hex(),
    "base64": base64.b64encode(zlib.compress(repr(VALUE).encode())).decode(),
    "base64, lines": base64.encodebytes(gzip.compress(json.dumps(ROW.tolist() * 20).encode())),
    "urlsafe": base64.urlsafe_b64encode(npy(ROW)).decode().rstrip("="),
    "base32": base64.b32encode(npy(ROW)).decode(),
    "base85": base64.b85encode(npy(ROW)).decode(),
    "inside": b"\x00\x01head" + zlib.compress(repr(VALUE).encode()) + b"\x02\xfftail",
    "quoted bytes": f"got {npy(ROW)!r}",
    "URL": "https://example.org/?q=%5B" + repr(VALUE) + "%5D",
    "exception": ValueError("bad", ROW),
    "stream": io.BytesIO(npy(ROW)),
    "text stream": io.StringIO(repr(VALUE)),
    "tree": DecisionTreeRegressor().fit(np.eye(3), ROW),
    "warning": warnings.WarningMessage(UserWarning(repr(VALUE)), UserWarning, "file", 1),
    "bytearray": bytearray(npy(ROW)),
    "view": memoryview(npy(ROW)),
}


def numbers(left: object) -> np.ndarray:
    """Every number that was found."""
    arrays = [leaf.value for leaf in flatten(left) if isinstance(leaf.value, np.ndarray)]
    return np.concatenate([np.empty(0), *(array.ravel().astype(float) for array in arrays)])


@pytest.mark.parametrize("name", sorted(set(CONTAINERS) - {"method"}))
def test_a_value_is_found_in(name: str) -> None:
    """Each container and encoding gives its number back, to the last bit."""
    assert VALUE in np.abs(numbers(CONTAINERS[name]))


@given(
    st.recursive(
        st.just(VALUE) | st.text(max_size=5) | st.integers(-9, 9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=12,
    )
)
def test_any_nesting(left: Any) -> None:
    """As often as the value stands in a nesting, it is found; in records, by columns once more."""
    wanted = repr(left).count(repr(VALUE))
    assert wanted <= (numbers(left) == VALUE).sum() <= 2 * wanted


def test_arrays_are_not_copied() -> None:
    """What is handed on is a view of what left."""
    array = np.arange(6.0).reshape(2, 3)
    leaf = next(flatten({"a": array[:, 1:]}))
    assert isinstance(leaf.value, np.ndarray)
    assert np.shares_memory(leaf.value, array)
    assert leaf.element(2) == "left['a'][1, 0]"


def test_paths_name_the_way_down() -> None:
    """As one would write it; a number that is a key is named by its place, for it may be raw."""
    left = {"a": [1.5, {"b": Update(2.5)}], VALUE: 3.5}
    leaves = [leaf for leaf in flatten(left) if isinstance(leaf.value, np.ndarray)]
    found = {leaf.element(at) for leaf in leaves for at in range(leaf.value.size)}  # type: ignore[union-attr]
    assert {"left['a'][0]", "left['a'][1]['b'].weights", "left[key number 1]"} <= found
    assert not [path for path in found if repr(VALUE) in path]


def test_numbers_in_texts_are_told_by_line() -> None:
    """A log of many lines is no place to search by hand."""
    (leaf,) = [one for one in flatten("a\nb\nc 47.3") if isinstance(one.value, np.ndarray)]
    assert leaf.element(0) == "left, line 3"


class Trap:
    """A pickle that would do something."""

    sprung = False

    def __reduce__(self) -> tuple[Any, ...]:
        return spring, (VALUE,)


def spring(value: float) -> float:
    """What must not be called."""
    Trap.sprung = True
    return value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickled_matrix_has_its_shape(protocol: int) -> None:
    """In either order, beside others whose types and orders the pickle says once."""
    rows = np.arange(0.5, 12.5).reshape(3, 4)
    held = [rows, np.asfortranarray(rows + 0.25), np.asfortranarray(rows + 0.5), rows + 0.75]
    found = [
        leaf.value.tolist()
        for leaf in flatten(pickle.dumps(held, protocol=protocol))
        if isinstance(leaf.value, np.ndarray) and leaf.value.ndim == 2
    ]
    assert found == [held[0].tolist(), held[1].T.tolist(), held[2].T.tolist(), held[3].tolist()]


def test_no_pickle_is_loaded() -> None:
    """Its opcodes are read: the argument is found, the call is never made."""
    assert VALUE in numbers(pickle.dumps([Trap()]))
    assert VALUE in numbers(base64.b64encode(gzip.compress(pickle.dumps(Trap()))))
    assert not Trap.sprung


def test_circles_end() -> None:
    """An object that holds itself is read once."""
    left: dict[str, Any] = {"a": VALUE}
    left["self"] = [left]
    assert (numbers(left) == VALUE).sum() == 1


def test_files_and_folders(tmp_path: Path) -> None:
    """Files are read from their paths, folders whole; an open file keeps its position."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.npy").write_bytes(npy(ROW))
    assert VALUE in numbers(tmp_path)
    assert VALUE in numbers([tmp_path / "deep" / "a.npy"])
    with open(tmp_path / "log.txt", "w+", encoding="utf-8") as file:
        file.write(f"x={VALUE!r}\n")
        before = file.tell()
        assert VALUE in numbers(file)
        assert file.tell() == before


def test_log_records(caplog: pytest.LogCaptureFixture) -> None:
    """The message, its arguments, extras and exceptions; no clocks and line numbers."""
    logger = logging.getLogger("left")
    with caplog.at_level(logging.INFO):
        logger.info("row %s", ROW)
        logger.info("plain", extra={"loss": VALUE + 1})
        try:
            raise KeyError(VALUE + 2)
        except KeyError:
            logger.exception("failed")
    found = numbers(caplog)
    assert {VALUE, VALUE + 1, VALUE + 2} <= set(found)
    assert not (found > 1e6).any()


def test_exceptions_with_causes_and_notes() -> None:
    """Whatever was raised together is looked at together."""
    inner = ValueError(VALUE)
    inner.add_note(repr(VALUE + 1))
    outer = ExceptionGroup("several", [RuntimeError(VALUE + 2)])
    outer.__cause__ = inner
    assert {VALUE, VALUE + 1, VALUE + 2} <= set(numbers(outer))


def test_moments_are_seconds() -> None:
    """In whatever type they come, and as text."""
    moment = datetime(2024, 5, 17, 12, 30, 1, tzinfo=UTC)
    seconds = moment.timestamp()
    for left in (
        moment,
        pd.Timestamp(moment),
        np.datetime64("2024-05-17T12:30:01"),
        np.array(["2024-05-17T12:30:01"], dtype="M8[ms]"),
        pd.DataFrame({"t": [pd.Timestamp(moment)]}),
        "at 2024-05-17T12:30:01",
        pd.Timestamp(moment).tz_convert("Asia/Tokyo"),
    ):
        assert seconds in numbers(left)
    assert numbers(timedelta(hours=2)) == 7200
    assert numbers(date(1970, 1, 2)) == 86400
    assert np.isnan(numbers(np.datetime64("NaT"))).all()


def test_replies_over_http() -> None:
    """A body is bytes like any others."""
    requests = pytest.importorskip("requests")
    reply = requests.Response()
    reply._content = json.dumps({"a": VALUE}).encode()
    reply.headers["X-Rows"] = "3.25"
    assert {VALUE, 3.25} <= set(numbers(reply))


def test_tensors() -> None:
    """On any device, with a gradient or in bfloat16."""
    torch = pytest.importorskip("torch")
    left = [torch.tensor(ROW, requires_grad=True), torch.tensor([1.5]).to(torch.bfloat16)]
    assert {VALUE, 1.5} <= set(numbers(left))


def test_messages_of_flower() -> None:
    """Its records hold arrays as bytes."""
    flwr = pytest.importorskip("flwr.common")
    record = flwr.RecordDict({"a": flwr.ArrayRecord([ROW])})
    assert VALUE in numbers(record)
    assert VALUE in numbers(flwr.ndarrays_to_parameters([ROW]))


@pytest.mark.parametrize(
    "data", [b"", b"\x80\x04", b"PK\x03\x04", b"\x93NUMPY\x01", b"\x1f\x8b\x08\x00"]
)
def test_broken_files_are_bytes(data: bytes) -> None:
    """What begins like a format and is none is handed on as it is."""
    assert [leaf.value for leaf in flatten(data) if isinstance(leaf.value, bytes)] == [data] * bool(
        data
    )


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    """No bytes make it fail, and none are lost without a decoder that fits."""
    assert list(flatten(data)) or not data


def test_a_bomb_stays_small() -> None:
    """What unpacks to more than the limit is cut there."""
    nested = b"\x00" * (1 << 20)
    for _ in range(3):
        nested = zlib.compress(nested)
    assert (
        sum(len(leaf.value) for leaf in flatten(nested) if isinstance(leaf.value, bytes)) <= 1 << 20
    )


def test_many_records_of_the_same_keys_are_a_table() -> None:
    """Numbers as a matrix, other keys one by one, what is nested too, and the first records as lines."""
    made = [{"at": at, "note": f"text {at}", "more": {"mean": at + 0.25}} for at in range(6000)]
    leaves = list(flatten(json.dumps(made), rows=True))
    blocks = {leaf.path: leaf.value for leaf in leaves if isinstance(leaf.value, np.ndarray)}
    assert blocks["left as JSON[rows]"].ravel().tolist() == list(range(6000))
    assert blocks["left as JSON[rows]['more'][rows]"][5999, 0] == 5999.25
    texts = {leaf.path: leaf.value for leaf in leaves if isinstance(leaf.value, str)}
    notes = texts["left as JSON[rows]['note']"]
    assert str(notes).split("\n")[5999] == "text 5999"
    lines = [leaf.value for leaf in leaves if leaf.row and leaf.path == "left as JSON[rows]"]
    assert str(lines[0]).split("\n")[7] == "'at'=7; 'note'=text 7"


NO_TEXTS: dict[str, bytes] = {
    "small whole numbers": np.arange(32, 200, dtype="<i2").tobytes(),
    "digest": bytes(range(0x60, 0x70)) + bytes(range(0xF0, 0x100)),
    "accents alone": bytes(range(0xC0, 0x100)) * 4,
}


@pytest.mark.parametrize("name", NO_TEXTS)
def test_what_may_be_a_text_is_looked_through_as_bytes_too(name: str) -> None:
    """Numbers in memory look like UTF-16 without a mark, and a digest like Latin-1."""
    assert NO_TEXTS[name] in [leaf.value for leaf in flatten(NO_TEXTS[name])]


@pytest.mark.parametrize(
    "text",
    [
        "I am. So are you.",
        "()N0N.",
        "ages 47 52 33 61 70 48 19 25 77",
        "name=\nmail=C\n",
        "[1, 2] TJAX [3]",
        "level=info salary=90000 code=4B=",
    ],
)
def test_everyday_texts_are_read_once(text: str) -> None:
    """None is taken for a pickle, for mail, for a PDF or for bytes in hexadecimal."""
    assert [leaf.value for leaf in flatten(text.encode()) if isinstance(leaf.value, str)] == [text]


def test_quoted_bytes_are_no_key_of_json() -> None:
    """What follows a key that ends in b is a number; the repr of bytes is read inside any text."""
    paths = [leaf.path for leaf in flatten('{"prob": 0.5, "b": "x", "mb": 3.25, "end": 1}')]
    assert not any("quoted bytes" in path for path in paths)
    assert any("quoted bytes" in leaf.path for leaf in flatten(f"got {bytes([200, 201, 7])!r}"))
    assert any("quoted bytes" in leaf.path for leaf in flatten(json.dumps("b'12.75'")))


def test_a_column_of_many_records_can_be_allowed() -> None:
    """A pattern that fits a column's first and last number takes the whole column out, others stay."""
    records = [{"id": float(row), "score": row / 7} for row in range(100)]
    (whole,) = (leaf for leaf in flatten(records, "left") if isinstance(leaf.value, np.ndarray))
    kept = whole.less(["left*['id']"])
    assert kept is not None and kept.labels is not None
    assert list(kept.labels) == ["['score']"] and np.shape(kept.value) == (100, 1)
    assert whole.less(["left[3]['id']"]) is whole
    assert whole.less(["left*"]) is None and whole.less(["left*['id']", "left*['score']"]) is None


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("compress", [0, 3, ("bz2", 3)])
def test_a_file_of_joblib_holds_its_arrays(compress: Any, protocol: int) -> None:
    """Which lie there as in memory, between a pickle's opcodes, in their shapes; what is said twice is a memo of the first."""
    joblib = pytest.importorskip("joblib")
    first, second = np.random.default_rng(0).normal(50, 9, (2, 40, 3)).round(2)
    left = {
        "objects": np.array(["ab", 7.25], dtype=object),
        "a": first,
        "b": second.astype("<f4"),
        "c": np.asfortranarray(second),
        "d": second.astype(">i2"),
        "e": first.reshape(2, 5, 4, 3),
        "f": first.reshape(-1),
        "g": {"x": 3.5},
    }
    stream = io.BytesIO()
    joblib.dump(left, stream, compress=compress, protocol=protocol)
    leaves = [leaf.value for leaf in flatten(stream.getvalue())]
    arrays = [one for one in leaves if isinstance(one, np.ndarray)]
    for name in "abcdef":
        whole = np.asarray(left[name])
        assert any(one.shape == whole.shape and (one == whole).all() for one in arrays), name
    assert {3.5, 7.25} <= set(np.concatenate([one.ravel() for one in arrays]).tolist())
    assert any("ab" in one for one in leaves if isinstance(one, str))


@pytest.mark.parametrize("compress", [0, 3])
def test_a_table_in_a_file_of_joblib_is_found(compress: int) -> None:
    """Small whole numbers, of which no value says anything by itself: they keep their places in rows and columns."""
    joblib = pytest.importorskip("joblib")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(18, 90, 12), "visits": rng.poisson(3, 12)})
    table = table.assign(score=rng.integers(0, 11, 12)).assign(ward=rng.integers(1, 9, 12))
    stream = io.BytesIO()
    joblib.dump(table, stream, compress=compress)
    with pytest.raises(RawValueLeft, match="joblib file"):
        assert_no_raw(stream.getvalue(), table)


@pytest.mark.parametrize("log", [False, True])
def test_a_database_is_its_tables(tmp_path: Path, log: bool) -> None:
    """Numbers that are stored big end first, texts that stand without a gap, and a file whose log lies beside it."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as opened:
        opened.execute(f"PRAGMA journal_mode = {'WAL' if log else 'DELETE'}")
        opened.execute('CREATE TABLE "a ""b" (n REAL, t TEXT)')
        opened.execute("CREATE VIEW v AS SELECT load_extension('x')")
        opened.executemany('INSERT INTO "a ""b" VALUES (?, ?)', [(46838.6, "Ann"), (1.5, "Bo")])
        opened.commit()
    leaves = list(flatten(tmp_path / "a.db"))
    assert any(isinstance(leaf.value, np.ndarray) and 46838.6 in leaf.value for leaf in leaves)
    assert any("Ann" in str(leaf.value) for leaf in leaves if "SQLite table" in leaf.path)
    assert not any(" 'v'" in leaf.path for leaf in leaves)


@pytest.mark.parametrize(
    "statement", ["DELETE FROM t", "DELETE FROM t WHERE n > 50", "DROP TABLE t"]
)
def test_deleted_rows_of_a_database_are_read(tmp_path: Path, statement: str) -> None:
    """SQLite leaves them in the file, in free pages and between cells, unless it is told to erase them."""
    with closing(sqlite3.connect(tmp_path / "a.db")) as opened:
        opened.execute("PRAGMA secure_delete = OFF")
        opened.execute("CREATE TABLE t (n INTEGER, salary REAL, name TEXT)")
        rows = [(at, 46000.6 + at, f"Ann Number-{at}") for at in range(400)]
        opened.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        opened.commit()
        opened.execute(statement)
        opened.commit()
    leaves = [leaf for leaf in flatten(tmp_path / "a.db") if "deleted" in leaf.path]
    numbers = {
        number for leaf in leaves if isinstance(leaf.value, np.ndarray) for number in leaf.value
    }
    texts = "".join(str(leaf.value) for leaf in leaves if isinstance(leaf.value, str))
    # the block that a row leaves overwrites its head, so that its numbers are bytes at most
    assert sum(46000.6 + at in numbers for at in range(60, 400)) > 250
    assert sum(f"Ann Number-{at}" in texts for at in range(60, 400)) > 300


@pytest.mark.parametrize("version", [114, 118])
def test_tables_of_stata_are_read(version: int) -> None:
    """Numbers at their full width, and labels, which no cell holds."""
    written = io.BytesIO()
    table = pd.DataFrame({"n": np.arange(9, dtype=np.int8), "dose": np.arange(9) + 0.125})
    more: dict[str, Any] = {"version": version, "data_label": "Ann's doses"}
    table.to_stata(written, write_index=False, **more)
    leaves = list(flatten(written.getvalue()))
    assert any(isinstance(leaf.value, np.ndarray) and 7.125 in leaf.value for leaf in leaves)
    assert any("Ann's doses" in str(leaf.value) for leaf in leaves)


@pytest.mark.parametrize("form", ["parquet", "feather"])
def test_tables_of_arrow_are_read(form: str) -> None:
    """Compressed or in a dictionary, as no search of the bytes would find them."""
    pytest.importorskip("pyarrow")
    written = io.BytesIO()
    table = pd.DataFrame({"dose": np.repeat([7.125, 8.5], 40), "name": ["Ann Adler", "Bo"] * 40})
    getattr(table, f"to_{form}")(written)
    leaves = [leaf for leaf in flatten(written.getvalue()) if "Arrow table" in leaf.path]
    assert any(isinstance(leaf.value, np.ndarray) and 7.125 in leaf.value for leaf in leaves)
    assert any("Ann Adler" in str(leaf.value) for leaf in leaves)


@pytest.mark.parametrize(
    "left, unread",
    [
        (b"PAR1" + bytes(range(7, 255)), 1),
        (pickle.dumps(np.arange(99.0)), 0),
        (b"\x07" * 32, 0),
        (zlib.compress(b"text " * 50), 0),
    ],
)
def test_bytes_of_no_known_form_are_counted(left: bytes, unread: int) -> None:
    """Not those that were read as numbers or texts, nor what may be a digest."""
    assert sum(bool(leaf.unread) for leaf in flatten(left)) == unread


def test_files_of_arrow_are_not_decoded_by_versions_that_run_code_in_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those before 15 (CVE-2023-47248); the bytes are searched as they lie."""
    from privfed.leaks.reading.stored import arrow_tables

    monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace(__version__="14.0.0"))
    assert list(arrow_tables(b"PAR1 PAR1")) == [] == list(arrow_tables(b"ARROW1"))
