"""The durable store of local effects, next to the ledger; each effect is applied once."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from privfed.errors import LedgerError
from privfed.ledger.secret import beside
from privfed.ledger.sqlite_store import make_private
from privfed.questions import wire

ENDING = ".shelf"  #: Ending of a shelf's file beside its ledger
#: Maximum number and total bytes of stored values: effects cost no budget, so that only these limit
#: what a server can make an owner store.
MOST_THINGS = 10_000
MOST_BYTES = 2**28
NAME_LIMIT = 200  #: Maximum length of a value's name, in characters
#: Seconds to wait for another study's effect in another gate of the ledger: training may take minutes.
PATIENCE = 3600.0

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS owner (dataset TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS things (name TEXT PRIMARY KEY, value BLOB NOT NULL)",
    """CREATE TABLE IF NOT EXISTS effects (
    principal TEXT NOT NULL, request TEXT NOT NULL, kind TEXT NOT NULL, done INTEGER NOT NULL,
    PRIMARY KEY (principal, request)) WITHOUT ROWID""",
    "CREATE TABLE IF NOT EXISTS faults (kind TEXT NOT NULL, acknowledged INTEGER NOT NULL)",
)


class LocalStore(MutableMapping[str, Any]):
    """Named plain values of one data owner, kept in an SQLite file that is opened at first use.

    Values are anything that :mod:`privfed.questions.wire` encodes, read as plain data and arrays. Effects store values
    in a :class:`Compartment` by study and principal; here, a bare name finds a value if only one compartment has it.
    Without a path, values are in memory.

    Raises:
        LedgerError: on every use, if the file cannot be opened or written, or is another owner's.
    """

    def __init__(self, path: str | Path | None = None, dataset: str = "") -> None:
        self.path, self.dataset = None if path is None else Path(path), dataset
        self._lock = threading.RLock()
        self._opened: sqlite3.Connection | None = None

    @classmethod
    def beside(cls, ledger: Path | None, dataset: str) -> LocalStore:
        """Return the store next to a ledger's file."""
        return cls(None if ledger is None else beside(ledger, ENDING), dataset)

    # --- for the owner and local effects ---------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        with suppress(KeyError):
            return self._value(name, name)
        inside = [each for each in map(_address, self) if len(each) == 3 and each[-1] == name]
        if len(inside) != 1:
            raise KeyError(name)
        return self.of(*inside[0][:2])[name]

    def _value(self, stored: str, name: str) -> Any:
        rows = self._rows("SELECT value FROM things WHERE name = ?", stored)
        if not rows:
            raise KeyError(name)
        return wire.decode_plain(rows[0][0])

    def __setitem__(self, name: str, value: Any) -> None:
        self._keep(_checked(name), value)

    def _keep(self, stored: str, value: Any) -> None:
        sql = "INSERT OR REPLACE INTO things VALUES (?, ?)"
        self._rows(sql, stored, wire.encode(value))

    def __delitem__(self, name: str) -> None:
        if not self._rows("DELETE FROM things WHERE name = ? RETURNING name", name):
            raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for (name,) in self._rows("SELECT name FROM things ORDER BY name"))

    def __len__(self) -> int:
        return int(self._rows("SELECT COUNT(*) FROM things")[0][0])

    def of(self, study: str, principal: str) -> Compartment:
        """Return the compartment of one study's and one principal's effects."""
        return Compartment(self, study, principal)

    def of_study(self, study: str) -> StudyThings:
        """Return one study's values, by name."""
        return StudyThings(self, study)

    @property
    def faults(self) -> dict[str, int]:
        """Return failures of protected queries by kind, since the owner last reopened the gate."""
        return self._faults("WHERE acknowledged = 0")

    @property
    def faults_ever(self) -> dict[str, int]:
        """Return all failures of protected queries by kind; for the owner only."""
        return self._faults("")

    def _faults(self, where: str) -> dict[str, int]:
        if self._opened is None and self.path is not None and not self.path.exists():
            return {}
        sql = f"SELECT kind, COUNT(*) FROM faults {where} GROUP BY kind ORDER BY kind"
        return dict(self._rows(sql))

    def add_fault(self, kind: str) -> None:
        """Record a failure of a protected query."""
        self._rows("INSERT INTO faults VALUES (?, 0)", kind)

    def clear_faults(self) -> None:
        """Let the gate answer again, by the owner's decision; :attr:`faults_ever` still counts the failures."""
        self._rows("UPDATE faults SET acknowledged = 1")

    def revise(self, name: str, change: Callable[[Any], Any]) -> None:
        """Replace a value by a function of it (of None if absent), atomically."""
        with self._transaction():
            self[name] = change(self.get(name))

    @property
    def failed(self) -> dict[str, int]:
        """Return failed effects by kind; for the owner only."""
        sql = "SELECT kind, COUNT(*) FROM effects WHERE NOT done GROUP BY kind ORDER BY kind"
        return dict(self._rows(sql))

    def open(self) -> None:
        """Open the file now instead of at first use."""
        with self._lock:
            self._connection()

    # --- for the gate ---------------------------------------------------------------------

    def apply(self, principal: str, request: str, kind: str, effect: Callable[[], None]) -> bool:
        """Apply a request's effect and mark it as done, atomically and once; False if it failed now.

        A failed effect stores nothing and is marked as failed, for the owner only. LedgerError: the file cannot be
        written; there was no effect.
        """
        with self._transaction() as db:
            sql = "SELECT 1 FROM effects WHERE principal = ? AND request = ?"
            if db.execute(sql, (principal, request)).fetchone() is None:
                done = self._tried(db, effect)
                db.execute(
                    "INSERT INTO effects VALUES (?, ?, ?, ?)", (principal, request, kind, done)
                )
                return done
        return True

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            db = self._connection()
            try:
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
            except sqlite3.Error as error:
                raise LedgerError(f"{self}: {error}") from None
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    def _tried(self, db: sqlite3.Connection, effect: Callable[[], None]) -> bool:
        db.execute("SAVEPOINT effect")
        try:
            effect()
            ((things, size),) = self._rows("SELECT COUNT(*), TOTAL(LENGTH(value)) FROM things")
            if things > MOST_THINGS or size > MOST_BYTES:
                raise ValueError("the shelf is full")
        except Exception:
            db.execute("ROLLBACK TO effect")
            return False
        return True

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    # --- the file --------------------------------------------------------------------------------

    def __str__(self) -> str:
        what = "shelf" if self.path is None or self.path.suffix == ENDING else "sums of noise"
        return f"{what} {self.path or '(in memory)'}"

    def __repr__(self) -> str:
        return f"<{self}>"

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._connection().execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise LedgerError(f"{self}: {error}") from None

    def _connection(self) -> sqlite3.Connection:
        if self._opened is None:
            try:
                self._opened = self._connect()
            except sqlite3.OperationalError as error:
                raise LedgerError(f"{self}: {error}; give a file that can be written") from None
            except sqlite3.Error as error:
                raise LedgerError(
                    f"{self}: is damaged, or not a shelf ({error}); restore it from a backup, or name another "
                    "file"
                ) from None
            except OSError as error:
                raise LedgerError(f"{self}: {error}; give a file that can be written") from None
        return self._opened

    def _connect(self) -> sqlite3.Connection:
        if self.path is not None:
            make_private(self.path)
        address = ":memory:" if self.path is None else str(self.path)
        db = sqlite3.connect(
            address, isolation_level=None, check_same_thread=False, timeout=PATIENCE
        )
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        # the last table created; a file that has it is complete, even while others write
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'faults'").fetchone():
            db.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                db.execute(statement)
            db.execute(
                "INSERT INTO owner SELECT ? WHERE NOT EXISTS (SELECT 1 FROM owner)", (self.dataset,)
            )
            db.execute("COMMIT")
        (owner,) = db.execute("SELECT dataset FROM owner").fetchone()
        if owner != self.dataset:
            db.close()
            raise LedgerError(f"{self}: belongs to data set {owner!r}, not {self.dataset!r}")
        return db


class Compartment(MutableMapping[str, Any]):
    """One study's and principal's values on an owner's shelf; other studies cannot replace them."""

    def __init__(self, store: LocalStore, study: str, principal: str) -> None:
        self._store, self._where = store, (study, principal)

    def _named(self, name: str) -> str:
        return msgspec.json.encode([*self._where, _checked(name)]).decode()

    def __getitem__(self, name: str) -> Any:
        return self._store._value(self._named(name), name)

    def __setitem__(self, name: str, value: Any) -> None:
        self._store._keep(self._named(name), value)

    def __delitem__(self, name: str) -> None:
        self[name]
        self._store._rows("DELETE FROM things WHERE name = ?", self._named(name))

    def __iter__(self) -> Iterator[str]:
        inside = map(_address, self._store)
        return (each[-1] for each in inside if tuple(each[:-1]) == self._where)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class StudyThings(Mapping[str, Any]):
    """One study's current values on an owner's shelf, without names that several principals use."""

    def __init__(self, store: LocalStore, study: str) -> None:
        self._store, self._study = store, study

    def _principals(self) -> dict[str, str]:
        inside = [each for each in map(_address, self._store) if len(each) == 3]
        named = [(name, principal) for study, principal, name in inside if study == self._study]
        names = [name for name, _ in named]
        return {name: principal for name, principal in named if names.count(name) == 1}

    def __getitem__(self, name: str) -> Any:
        return self._store.of(self._study, self._principals()[name])[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._principals())

    def __len__(self) -> int:
        return len(self._principals())


def _checked(name: str) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= NAME_LIMIT:
        raise ValueError(f"a thing's name is text of 1 to {NAME_LIMIT} characters")
    return name


def _address(name: str) -> list[str]:
    """Return study, principal and name of a value in a compartment, else the name only."""
    try:
        return msgspec.json.decode(name, type=list[str])
    except msgspec.MsgspecError:
        return [name]
