"""Large payloads lie compressed; what was tampered with is told, and no bomb goes off."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
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


@pytest.mark.parametrize("dataset", ["d", "another"])
def test_a_second_opening_here_leaves_the_first_one_s_log_to_it(
    tmp_path: Path, dataset: str
) -> None:
    """Had its locks gone with a descriptor (POSIX), any other process that closes would remove what it writes to."""
    path = tmp_path / "ledger.db"
    first = Ledger(path, "d")
    with suppress(LedgerError):
        Ledger(path, dataset)
    closes = (
        "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA journal_mode = DELETE')"
    )
    ran = subprocess.run(
        [sys.executable, "-c", closes, str(path)], check=False, capture_output=True
    )
    assert b"locked" in ran.stderr
    head = first.note("noted", {})
    looks = "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute('SELECT max(seq) FROM entries'))"
    told = subprocess.run([sys.executable, "-c", looks, str(path)], check=True, capture_output=True)
    assert told.stdout == b"(%d,)\n" % head.seq


@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
def test_a_file_that_was_replaced_while_it_was_open_takes_nothing_more(
    tmp_path: Path, ending: str
) -> None:
    """SQLite goes on writing to what has no name any more, and it would be answered all the same."""
    path = tmp_path / "ledger.db"
    ledger = Ledger(path, "d")
    ledger.note("noted", {})
    held = Path(f"{path}{ending}")
    held.rename(tmp_path / "away")
    held.write_bytes((tmp_path / "away").read_bytes())
    with pytest.raises(LedgerError, match="replaced or removed while it was open"):
        ledger.note("noted", {})


def test_what_is_made_through_a_link_is_its_owner_s_alone(tmp_path: Path) -> None:
    """As without one."""
    (tmp_path / "link.db").symlink_to(tmp_path / "ledger.db")
    Ledger(tmp_path / "link.db", "d").close()
    assert (tmp_path / "ledger.db").stat().st_mode & 0o777 == 0o600
