"""A ledger's rows and state in one SQLite file: the only place with SQL.

Large payloads are stored compressed (Zstandard, fastest level); hashes and exports are of the
original. At most :data:`MOST` bytes are decompressed, whatever a tampered payload claims.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from backports import zstd

from privfed.errors import LedgerError
from privfed.ledger.secret import give_to_owner
from privfed.ledger.store import NO_ROWS, STATEFUL, Row, Store, Tip
from privfed.questions import wire

LEAST = 1024  #: Smaller payloads, in bytes, are not compressed
MOST = wire.LIMIT + 2**20  #: Maximum payload, in bytes: a message and its envelope


def _any_of(events: tuple[str, ...]) -> str:
    return f"event IN ({', '.join(repr(event) for event in events)})"


def _index(events: tuple[str, ...]) -> str:
    return f"""CREATE INDEX stateful ON entries (seq)
    WHERE {_any_of(events)}"""


SCHEMA = (
    """CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, time TEXT NOT NULL, event TEXT NOT NULL, principal TEXT NOT NULL,
    request TEXT NOT NULL, body BLOB NOT NULL, payload BLOB NOT NULL, hash TEXT NOT NULL,
    packed INTEGER NOT NULL)""",
    """CREATE UNIQUE INDEX once ON entries (principal, request, event)
    WHERE request != '' AND event != 'refused'""",
    _index(STATEFUL),
    "CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
)
#: The index of rows with a digest in earlier versions; replaced when next written.
EARLIER = _index(("reserved", "block", "counted", "policy", "failed"))
#: Advice for a damaged file.
NEWEST = "restore its newest copy: privfed ledger restore"
#: Charges and replies of one request, by the index ``once``.
_OF_REQUEST = "principal = ? AND request = ? AND request != '' AND event != 'refused'"
_COLUMNS = "seq, time, event, principal, request, body, payload, hash, packed"


class SqliteStore(Store):
    """A store in an SQLite file; ``reading`` opens an existing one and never writes. See :class:`.Store`."""

    faults = (OSError, sqlite3.Error)

    def __init__(
        self,
        path: str | Path | None = None,
        clock: Callable[[], datetime] | None = None,
        *,
        reading: bool = False,
    ) -> None:
        super().__init__(path, clock)
        self._reading = reading
        self._real = os.path.realpath(str(path))
        if path is not None and any(map(self._inherits, _OPEN.valuerefs())):
            raise LedgerError(
                f"{self}: was opened before a fork and not closed, so that SQLite's locks would be wrong; close "
                "it before the fork, or start new processes (spawn)"
            )
        self._db = self._connect()
        _OPEN[id(self)] = self
        self._opened = [] if path is None or reading else self._files()

    def _inherits(self, open_store: Callable[[], SqliteStore | None]) -> bool:
        """Whether a store is of this file and was opened by a parent process."""
        other = open_store()
        return other is not None and other._real == self._real and other._process != self._process

    def _connect(self) -> sqlite3.Connection:
        try:
            if self.path is not None and not self._reading:
                make_private(self.path)
            if self._reading:
                self._roll_back()
            db = sqlite3.connect(
                self._address(),
                isolation_level=None,
                check_same_thread=False,
                timeout=60,
                uri=self._reading,
            )
            if not self._reading:
                db.execute("PRAGMA journal_mode=WAL")
                db.execute("PRAGMA synchronous=FULL")
                self._create(db)
            db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
            return db
        except (sqlite3.Error, OSError) as error:
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(
                error, sqlite3.OperationalError
            ):
                raise LedgerError(f"{self}: the file is damaged ({error}); {NEWEST}") from None
            mode = "read" if self._reading else "written"
            raise LedgerError(f"{self}: {error}; give a file that can be {mode}") from None

    def _roll_back(self) -> None:
        """Roll back the transaction of a killed writer, which a read-only connection cannot do."""
        if self.path is not None and Path(f"{self.path}-journal").exists():
            with closing(sqlite3.connect(self.path, timeout=60)) as db:
                db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()

    def _address(self) -> str:
        if self.path is None:
            return ":memory:"
        return f"{self.path.resolve().as_uri()}?mode=ro" if self._reading else str(self.path)

    def _create(self, db: sqlite3.Connection) -> None:
        """Create the tables of a new file, once, by whichever process is first."""
        db.execute("BEGIN IMMEDIATE")
        tables = dict(db.execute("SELECT name, sql FROM sqlite_master"))
        if tables and "entries" not in tables:
            raise LedgerError(f"{self}: is another kind of database; give a file of its own")
        for statement in () if tables else SCHEMA:
            db.execute(statement)
        if tables.get("stateful") == EARLIER:
            db.execute("DROP INDEX stateful")
            db.execute(_index(STATEFUL))
        db.execute("COMMIT")

    # --- writing -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Take SQLite's write lock."""
        self._db.execute("BEGIN IMMEDIATE")

    def insert(self, row: Row, digest: str) -> None:
        """Add a row; the index ``once`` prevents charging or answering twice."""
        stored, packed = pack(row[6])
        self._db.execute(
            "INSERT INTO entries VALUES (?,?,?,?,?,?,?,?,?)", (*row[:6], stored, digest, packed)
        )

    def commit(self, state: Mapping[str, bytes]) -> None:
        """Write the state, synchronise the write-ahead log with the disk, and check that the file still exists."""
        if state:
            self._db.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", state.items())
        self._db.execute("COMMIT")
        if self._opened and self._files() != self._opened:
            raise LedgerError(
                f"{self}: its file, or its -wal or -shm file, was replaced or removed while it was open, so "
                "that nothing more is recorded; stop every process that uses it, and restore its newest copy: "
                "privfed ledger restore"
            )

    def _files(self) -> list[tuple[int, int]]:
        """Return what is at the paths of the file and its write-ahead log (device and inode)."""
        identities = []
        for ending in ("", "-wal", "-shm"):
            with suppress(OSError):
                status = os.stat(f"{self._real}{ending}")
                identities.append((status.st_dev, status.st_ino))
        return identities

    def rollback(self) -> None:
        """Undo the transaction, if one is open."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def remove(self, names: Iterable[str]) -> None:
        """Remove values of the state."""
        self._db.executemany("DELETE FROM state WHERE name = ?", [(name,) for name in names])

    # --- reading -------------------------------------------------------------------------------

    def last(self) -> Tip:
        """Return the last row, by the primary key."""
        rows = self._query("SELECT seq, hash, time FROM entries ORDER BY seq DESC LIMIT 1")
        return Tip(*rows[0]) if rows else NO_ROWS

    def select(
        self,
        *,
        at: int = 0,
        after: int = 0,
        events: tuple[str, ...] = (),
        request: tuple[str, str] | None = None,
        newest: int = 0,
    ) -> Iterator[tuple[Any, ...]]:
        """See :meth:`Store.select`; requests and :data:`STATEFUL` rows are found by an index."""
        terms = [_any_of(events)] if events else []
        if request is not None:
            terms.append(_OF_REQUEST)
        terms += [f"seq = {at:d}"] * (at > 0) + [f"seq > {after:d}"] * (after > 0)
        order = f"DESC LIMIT {newest:d}" if newest else ""
        where = f"WHERE {' AND '.join(terms)}" if terms else ""
        sql = f"SELECT {_COLUMNS} FROM entries {where} ORDER BY seq {order}"
        try:
            cursor = self._db.execute(sql, request or ())
            while rows := cursor.fetchmany(512):
                for *columns, payload, digest, packed in rows:
                    yield (*columns, unpack(columns[0], payload, packed), digest)
        except sqlite3.Error as error:
            raise self._fault(error) from None

    def charged(self, principal: str, request: str) -> bool:
        """Whether a request was charged or answered before, by the index only."""
        sql = f"SELECT 1 FROM entries WHERE {_OF_REQUEST} LIMIT 1"
        return bool(self._query(sql, principal, request))

    def stored(self, *names: str) -> dict[str, bytes]:
        """Return values of the state, with one query."""
        where = f" WHERE name IN ({', '.join('?' * len(names))})" if names else ""
        return dict(self._query(f"SELECT name, value FROM state{where}", *names))

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Open a read transaction of SQLite."""
        with self._lock:
            self.check_process()
            self._query("BEGIN")
            try:
                yield
            finally:
                self._query("ROLLBACK")

    def _query(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._fault(error) from None

    def _fault(self, error: sqlite3.Error) -> LedgerError:
        if "no such table" in str(error):
            return LedgerError(
                f"{self}: is not a ledger, or was copied while its gate ran; copy it by privfed ledger backup"
            )
        return LedgerError(f"{self}: {error}")

    @property
    def empty(self) -> bool:
        """Whether it has no tables yet, or neither rows nor state."""
        if not self._query("SELECT 1 FROM sqlite_master LIMIT 1"):
            return True
        return not (self._query("SELECT 1 FROM entries LIMIT 1") or self.stored())

    def check_form(self) -> None:
        """Check that the file is sound, and has exactly the tables and indices written here."""
        tables = {
            sql for (sql,) in self._query("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
        }
        if tables - {EARLIER} | {_index(STATEFUL)} != set(SCHEMA):
            raise LedgerError(f"{self}: its tables are not those of a ledger")
        if self._query("PRAGMA integrity_check(1)") != [("ok",)]:
            raise LedgerError(f"{self}: the file is damaged; {NEWEST}")

    def close(self) -> None:
        """Close the file; the last connection to close leaves a single file."""
        if not self._reading and self.path is not None:
            with suppress(sqlite3.Error):  # another process has it open, or it is gone
                self._db.execute("PRAGMA busy_timeout = 0")
                self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()
        _OPEN.pop(id(self), None)


#: Open stores, including those that a parent process opened.
_OPEN: WeakValueDictionary[int, SqliteStore] = WeakValueDictionary()
_MAKING = threading.Lock()


def make_private(path: Path) -> None:
    """Create an empty file that only its owner can access, unless it exists (OSError: it cannot be written).

    An existing file is not opened: closing it would release all locks of this process on it, including other
    connections' (POSIX), and another process could remove the log that they write to.
    """
    with _MAKING, suppress(FileExistsError):
        made = os.open(path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with closing(os.fdopen(made)):
            give_to_owner(made, path.resolve().parent)
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def copy_database(source: Path, to: Path) -> None:
    """Copy a database as of one point in time into a new plain file, despite concurrent writes.

    LedgerError: the source cannot be read, or the copy not written.
    """
    try:
        os.close(os.open(to, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        address = f"{source.resolve().as_uri()}?mode=ro"
        with (
            closing(sqlite3.connect(address, timeout=60, uri=True)) as opened,
            closing(sqlite3.connect(to)) as copy,
        ):
            opened.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(f"{source}: cannot be copied to {to} ({error})") from None


@lru_cache(maxsize=2)
def pack(payload: bytes) -> tuple[bytes, int]:
    """Return a payload's stored form, and 1 if compressed, else 0; the last two results are cached."""
    if not LEAST <= len(payload) <= MOST:
        return payload, 0
    packed = zstd.compress(payload, 1)
    return (packed, 1) if len(packed) < len(payload) else (payload, 0)


def unpack(seq: int, stored: bytes, packed: int) -> bytes:
    """Return the payload of entry ``seq`` (LedgerError: it is damaged, or above :data:`MOST`)."""
    if packed == 0:
        return stored
    reader = zstd.ZstdDecompressor()
    try:
        payload = reader.decompress(stored, max_length=MOST)
    except (zstd.ZstdError, TypeError):
        payload = b""
    if packed != 1 or not reader.eof or reader.unused_data:
        raise LedgerError(f"entry {seq} of the ledger cannot be read: its payload was damaged")
    return payload
