"""One SQLite file of chained rows: durable appends, exclusive transactions, nothing ever changed.

It knows nothing of charges. Beside the rows it keeps a table of *state*: named values that follow
from the rows (running totals, the policy in force, the chain's tip), so that opening and checking a
budget never reads the whole file. Verification computes the state again from the rows.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256, sha512
from pathlib import Path
from typing import Any

import msgspec

from privfed.errors import LedgerError
from privfed.exchange.messages import Head
from privfed.ledger.chain import GENESIS, Entry, Row, encode_body, fits, link
from privfed.ledger.packing import pack, unpack

SCHEMA = (
    """CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, time TEXT NOT NULL, event TEXT NOT NULL, principal TEXT NOT NULL,
    request TEXT NOT NULL, body BLOB NOT NULL, payload BLOB NOT NULL, hash TEXT NOT NULL,
    packed INTEGER NOT NULL)""",
    """CREATE UNIQUE INDEX once ON entries (principal, request, event)
    WHERE request != '' AND event != 'refused'""",
    """CREATE INDEX stateful ON entries (seq)
    WHERE event IN ('reserved', 'block', 'counted', 'policy', 'failed')""",
    "CREATE TABLE state (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
)
#: Finds the last row that changed the state, by the index above.
LAST_STATEFUL = (
    "WHERE event IN ('reserved', 'block', 'counted', 'policy', 'failed') ORDER BY seq DESC LIMIT 1"
)
#: What of the state no row speaks for: the end of the chain.
UNSPOKEN = frozenset(["tip"])
#: Finds what was done for a request; the index above sees to it that nothing is done twice.
BY_REQUEST = (
    "WHERE principal = ? AND request = ? AND request != '' AND event != 'refused' "
    "ORDER BY seq DESC LIMIT 1"
)
_COLUMNS = "seq, time, event, principal, request, body, payload, hash, packed"
_LAST = "SELECT seq, hash, time FROM entries ORDER BY seq DESC LIMIT 1"
_NO_ROWS: tuple[int, str, str] = (0, GENESIS, "")


class ChainFile:
    """An open file of chained rows.

    One connection, used by one thread at a time (a lock sees to it) and by one process; other
    processes open the file themselves.

    Args:
        path: the file, or none for one in memory.
        clock: gives the time written into rows.
        reading: whether to open an existing file and never write.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        clock: Callable[[], datetime] | None = None,
        *,
        reading: bool = False,
    ) -> None:
        self.path = None if path is None else Path(path)
        self._clock = clock or (lambda: datetime.now(UTC))
        self._reading = reading
        #: Called when a transaction was undone, for whoever remembers what it had written.
        self.undone: Callable[[], None] = lambda: None
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._depth, self._broken = 0, False
        self._last = self._durable = _NO_ROWS
        self._state: dict[str, Any] = {}
        self._changed: set[str] = set()
        self._sum: int | None = None  # of the hashes of the state's values
        self._hashes: dict[str, int] = {}
        self._stale: set[str] = set()  # names whose hash is to be computed anew
        self._db = self._connect()

    def _connect(self) -> sqlite3.Connection:
        try:
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
        except sqlite3.Error as error:
            wanted = "read" if self._reading else "written"
            raise LedgerError(f"{self}: {error}; give a file that can be {wanted}") from None

    def _address(self) -> str:
        if self.path is None:
            return ":memory:"
        return f"{self.path.resolve().as_uri()}?mode=ro" if self._reading else str(self.path)

    def __str__(self) -> str:
        return f"ledger {self.path or '(in memory)'}"

    # --- transactions --------------------------------------------------------------------------

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """One exclusive transaction, durable when it ends; inner ones join the outermost.

        If anything inside fails, nothing of it has happened, even where the outer code goes on.

        Raises:
            LedgerError: the file cannot be written (full, read-only, gone), or was rolled back.
        """
        with self._lock:
            self._check_process()
            outermost = self._depth == 0
            self._depth += 1
            try:
                if outermost:
                    self._begin()
                yield
                if outermost:
                    self._commit()
            except BaseException as error:
                self._broken = True
                if outermost:
                    self._rollback()
                if isinstance(error, sqlite3.Error | OSError):
                    raise LedgerError(f"{self}: {error}") from None
                raise
            finally:
                self._depth -= 1

    def _begin(self) -> None:
        self._broken = False
        self._db.execute("BEGIN IMMEDIATE")
        self._catch_up()

    def _catch_up(self) -> None:
        """Forget what was remembered of the state where another process has appended.

        A ledger in memory has one connection: nobody else can have appended to it.
        """
        if self.path is None and self._last[0]:
            return
        last = self._db.execute(_LAST).fetchone() or _NO_ROWS
        if last[:2] != self._last[:2]:
            self._check_grown(last[0])
            self._state.clear()
            self._forget_hashes()
            self._last = last

    def _check_grown(self, seq: int) -> None:
        """Another process may have appended; entries that this one saw may not be gone."""
        kept = self._db.execute("SELECT hash FROM entries WHERE seq = ?", (self._last[0],))
        if seq < self._last[0] or (self._last[0] and kept.fetchone() != (self._last[1],)):
            raise LedgerError(f"{self}: entries were removed or changed while it was open")

    def _commit(self) -> None:
        if self._broken:
            raise LedgerError(f"{self}: a write inside this transaction failed; nothing was kept")
        if self._changed:
            self.put("tip", list(self._last[:2]))
            values = [(name, encode_body(self._state[name])) for name in self._changed]
            self._db.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", values)
            self._changed.clear()
        self._db.execute("COMMIT")
        self._durable = self._last

    def _rollback(self) -> None:
        self.undone()
        self._state.clear()
        self._forget_hashes()
        self._changed.clear()
        self._last = self._durable
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise LedgerError(f"{self}: was opened before a fork; open it again in this process")

    # --- rows and state, inside a transaction --------------------------------------------------

    @property
    def following(self) -> int:
        """The number that the next row gets."""
        return self._last[0] + 1

    @property
    def last_time(self) -> str:
        """When the last row was written."""
        return self._last[2]

    def append_stateful(
        self,
        event: str,
        principal: str,
        request: str,
        body: dict[str, Any],
        payload: bytes = b"",
        time: str = "",
    ) -> Head:
        """Chain a row that the state changed with: it holds the digest of the state after it.

        Whatever the row stands for must be put before.
        """
        facts = {**body, "state": self._digest()}
        return self.append(event, principal, request, facts, payload, time)

    def _digest(self) -> str:
        """Digest of the state, hexadecimal; see :func:`digest_of`.

        Each value's own hash is kept, so that a change costs one hash and a sum.
        """
        if self._sum is None:
            self._hashes = {n: _hash(n, v) for n, v in self.state().items() if n not in UNSPOKEN}
            self._sum = sum(self._hashes.values())
            self._stale.clear()
        for name in self._stale:
            new = _hash(name, encode_body(self._state[name]))
            self._sum += new - self._hashes.get(name, 0)
            self._hashes[name] = new
        self._stale.clear()
        return _of_sum(self._sum)

    def append(
        self,
        event: str,
        principal: str,
        request: str,
        body: dict[str, Any],
        payload: bytes = b"",
        time: str = "",
    ) -> Head:
        """Chain one more row; its time is now unless :meth:`now` was asked before."""
        seq, previous, _ = self._last
        facts = encode_body(body)
        row: Row = (seq + 1, time or self.now(), event, principal, request, facts, payload)
        digest = link(previous, row)
        stored, packed = pack(payload)
        self._db.execute(
            "INSERT INTO entries VALUES (?,?,?,?,?,?,?,?,?)", (*row[:6], stored, digest, packed)
        )
        self._last = (seq + 1, digest, row[1])
        self._changed.add("tip")
        return Head(seq + 1, digest)

    def now(self) -> str:
        """The time for the next row: a clock that jumps back does not take the rows along."""
        time = self._clock().astimezone(UTC).isoformat(timespec="microseconds")
        return max(time, self._last[2])

    def charged(self, principal: str, request: str) -> bool:
        """Whether a request was charged before."""
        sql = f"SELECT 1 FROM entries {BY_REQUEST}"
        return self._db.execute(sql, (principal, request)).fetchone() is not None

    def get(self, name: str) -> Any:
        """A named value of the state, or none."""
        if name not in self._state:
            found = self._db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
            self._state[name] = None if found is None else self._decoded(name, found[0])
        return self._state[name]

    def put(self, name: str, value: Any) -> None:
        """Set a named value of the state; it is written when the transaction ends."""
        self._state[name] = value
        self._changed.add(name)
        if name not in UNSPOKEN:
            self._stale.add(name)

    def forget(self, prefix: str) -> None:
        """Remove the named values that begin so (they are about to be computed anew)."""
        for (name,) in self._db.execute("SELECT name FROM state").fetchall():
            if name.startswith(prefix):
                self._db.execute("DELETE FROM state WHERE name = ?", (name,))
        for name in [name for name in self._state if name.startswith(prefix)]:
            del self._state[name]
            self._changed.discard(name)
        self._forget_hashes()

    def _forget_hashes(self) -> None:
        self._sum, self._hashes = None, {}
        self._stale.clear()

    def _decoded(self, name: str, value: bytes) -> Any:
        try:
            return msgspec.json.decode(value)
        except (msgspec.MsgspecError, TypeError):
            raise LedgerError(
                f"{self}: its state {name!r} was damaged; verify the ledger"
            ) from None

    # --- reading -------------------------------------------------------------------------------

    @contextmanager
    def reading_lock(self) -> Iterator[None]:
        """Read while no other thread of this process writes, and what others have written."""
        with self._lock:
            if not self._depth:
                self._catch_up()
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read several things as of one moment, whatever other processes append."""
        with self._lock:
            self.query("BEGIN")
            try:
                yield
            finally:
                self.query("ROLLBACK")

    def select(self, where: str = "", values: tuple[Any, ...] = ()) -> Iterator[Entry]:
        """Stored rows, in order unless said otherwise."""
        for columns in self.raw(where or "ORDER BY seq", values):
            yield Entry.of(columns)

    def raw(self, where: str, values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """Stored columns with the hash, a few hundred rows at a time."""
        self._check_process()
        try:
            cursor = self._db.execute(f"SELECT {_COLUMNS} FROM entries {where}", values)
            while rows := cursor.fetchmany(512):
                yield from map(_unpacked, rows)
        except sqlite3.Error as error:
            raise LedgerError(f"{self}: {error}") from None

    def state(self) -> dict[str, bytes]:
        """The whole state as bytes, what this transaction has changed included."""
        changed = {name: encode_body(self._state[name]) for name in self._changed - {"tip"}}
        return {**dict(self.query("SELECT name, value FROM state")), **changed}

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a fixed statement."""
        self._check_process()
        try:
            return self._db.execute(sql).fetchall()
        except sqlite3.Error as error:
            raise LedgerError(f"{self}: {error}") from None

    @property
    def head(self) -> Head:
        """The end of the chain."""
        found = self.query(_LAST)
        if not found:
            raise LedgerError(f"{self}: it is empty")
        return Head(found[0][0], found[0][1])

    # --- opening -------------------------------------------------------------------------------

    def _create(self, db: sqlite3.Connection) -> None:
        """Make the tables of a new file, once, whichever process comes first."""
        db.execute("BEGIN IMMEDIATE")
        found = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        if found and "entries" not in found:
            raise LedgerError(f"{self}: is another kind of database; give a file of its own")
        for statement in () if found else SCHEMA:
            db.execute(statement)
        db.execute("COMMIT")

    @property
    def empty(self) -> bool:
        """Whether nothing was ever written."""
        return not (self.query("SELECT 1 FROM entries LIMIT 1") or self.state())

    def check_last(self) -> None:
        """Check the last row against its predecessor and the stored tip: the same time always.

        Raises:
            LedgerError: it does not fit.
        """
        rows = list(self.raw("ORDER BY seq DESC LIMIT 2"))
        if not rows:
            raise LedgerError(f"{self}: it is empty; a ledger begins with its data set")
        previous = rows[1][7] if len(rows) > 1 else GENESIS
        sound = self.get("tip") == [rows[0][0], rows[0][7]] and len(str(previous)) == 64
        if not (sound and fits(previous, rows[0][:8])):
            raise LedgerError(f"{self}: its last entry does not fit the chain; it was rewritten")

    def check_state(self) -> None:
        """Hold the stored state against the last row that it changed with: the same time always.

        Raises:
            LedgerError: something of it was removed, added or changed.
        """
        row = next(self.select(LAST_STATEFUL), None)
        told = None if row is None else row.body.get("state")
        if told != self._digest() if row is not None else set(self.state()) - UNSPOKEN:
            raise LedgerError(
                f"{self}: what it keeps of its totals does not follow from its entries; verify it, "
                "and put it back from a copy"
            )

    def close(self) -> None:
        """Close the file; the last one to do so leaves a single plain file behind."""
        if not self._reading and self.path is not None:
            with suppress(sqlite3.Error):  # somebody else has it open, or it is gone
                self._db.execute("PRAGMA busy_timeout = 0")
                self._db.execute("PRAGMA journal_mode = DELETE")
        self._db.close()


def digest_of(state: Mapping[str, bytes]) -> str:
    """Digest of a state, but for what no row speaks for, hexadecimal.

    SHA-256 of the sum of its values' own hashes, so that it can be kept up to date value by value.
    """
    return _of_sum(sum(_hash(name, value) for name, value in state.items() if name not in UNSPOKEN))


def _of_sum(total: int) -> str:
    return sha256((total % 2**512).to_bytes(64, "big")).hexdigest()


def _hash(name: str, value: bytes) -> int:
    """A value of the state with its name, as a number of 512 bits."""
    own = name.encode()
    told = value if isinstance(value, bytes) else repr(value).encode()  # an editor's text, say
    return int.from_bytes(sha512(len(own).to_bytes(8, "big") + own + told).digest(), "big")


def _unpacked(stored: tuple[Any, ...]) -> tuple[Any, ...]:
    """A stored row with its payload as it was hashed."""
    *columns, payload, digest, packed = stored
    return (*columns, unpack(columns[0], payload, packed), digest)
