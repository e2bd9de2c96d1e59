"""Large payloads lie compressed; what was tampered with is told, and no bomb goes off."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from privfed.errors import LedgerError
from privfed.ledger import Ledger, sqlite_store
from privfed.ledger.sqlite_store import LEAST, SqliteStore, pack, unpack
from privfed.ledger.store import Entry


@given(st.binary(max_size=300), st.integers(0, 40))
def test_what_was_packed_comes_back(payload: bytes, repeats: int) -> None:
    """Whatever the bytes, and never longer than they were."""
    whole = payload * repeats
    stored, packed = pack(whole)
    assert unpack(1, stored, packed) == whole
    assert len(stored) <= len(whole)
    assert packed == 0 or len(whole) >= LEAST


def test_large_payloads_are_smaller_in_the_file_and_whole_outside(tmp_path: Path) -> None:
    """The file is compressed; entries, hashes and a second opening see what was written."""
    path, payload = tmp_path / "ledger.db", b"seven times eight " * 50_000
    file = SqliteStore(path)
    with file.exclusive():
        head = file.append("noted", "", "", {}, payload)
    assert path.stat().st_size + (tmp_path / "ledger.db-wal").stat().st_size < len(payload) / 4
    file.close()
    (entry,) = map(Entry.of, SqliteStore(path, reading=True).select())
    assert entry.payload == payload and entry.head == head


def test_a_bomb_is_told_and_not_set_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes that claim to be more than any payload are refused; those just below are read."""
    monkeypatch.setattr(sqlite_store, "MOST", 10_000)
    pack.cache_clear()
    assert unpack(1, zstd.compress(bytes(10_000)), 1) == bytes(10_000)
    with pytest.raises(LedgerError, match="entry 7"):
        unpack(7, zstd.compress(bytes(10_001)), 1)


@pytest.mark.parametrize(
    ("stored", "packed"),
    [
        (b"no frame at all", 1),
        (zstd.compress(b"x" * 5000)[:-1], 1),
        (zstd.compress(b"x" * 5000) + b"more", 1),
        (zstd.compress(b"x" * 5000), 2),
        ("text", 1),
    ],
)
def test_damage_is_told(stored: bytes, packed: int) -> None:
    """Cut off, longer, of another kind: one error, without the bytes."""
    with pytest.raises(LedgerError, match="damaged"):
        unpack(3, stored, packed)


def test_a_rewritten_flag_breaks_the_chain(tmp_path: Path) -> None:
    """The flag is in no hash, but the payload that it makes is."""
    path = tmp_path / "ledger.db"
    file = SqliteStore(path)
    with file.exclusive():
        file.append("noted", "", "", {}, b"x" * 5000)
    file.close()
    edited = sqlite3.connect(path)
    edited.execute("UPDATE entries SET packed = 0")
    edited.commit()
    edited.close()
    with pytest.raises(LedgerError, match=r"does not fit the chain|its last entry"):
        SqliteStore(path).check_last()


def _die_while_making(path: Path) -> None:
    """Write pages of a new file beside their journal, and die before it is done."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA cache_size = 1")
    db.execute("BEGIN IMMEDIATE")
    db.execute("CREATE TABLE made (rows)")
    db.executemany("INSERT INTO made VALUES (?)", [("x" * 1000,)] * 100)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_file_whose_maker_was_killed_is_read_and_begun(tmp_path: Path) -> None:
    """What its journal undoes is undone, though a reader may not write."""
    maker = get_context("fork").Process(target=_die_while_making, args=(tmp_path / "ledger.db",))
    maker.start()
    maker.join()
    assert (tmp_path / "ledger.db-journal").stat().st_size
    assert not Ledger.begun(tmp_path / "ledger.db")
    with closing(Ledger(tmp_path / "ledger.db", "north")) as ledger:
        assert ledger.head.seq == 1
