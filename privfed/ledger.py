"""The durable, append-only, hash-chained record of every charge, release and refusal.

One SQLite file for one data set. A charge is durable before the data are read, a release's bytes
before they are sent; nothing is ever refunded. Rows hold public fields and released bytes only.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from privfed.accountant import Accountant, Amount
from privfed.errors import LedgerError
from privfed.loss import Loss
from privfed.release import Disclosed, Envelope, Head, Reason, Release

FORMAT = 1
_GENESIS = "0" * 64
_TABLE = """
CREATE TABLE IF NOT EXISTS entries (
    seq INTEGER PRIMARY KEY, time TEXT NOT NULL, event TEXT NOT NULL, principal TEXT NOT NULL,
    request TEXT NOT NULL, body BLOB NOT NULL, payload BLOB NOT NULL, hash TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_request ON entries (principal, request);
"""


@dataclass(frozen=True)
class Charge:
    """What is reserved before the data are read: public facts only."""

    principal: str
    request: str
    kind: str
    query: str
    loss: Loss
    study: str = ""
    policy: str = ""
    secure: bool = True
    facts: dict[str, Any] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """The charge as the plain data of a ledger row."""
        return {
            "kind": self.kind,
            "query": self.query,
            "loss": self.loss.to_dict(),
            "study": self.study,
            "policy": self.policy,
            "secure": self.secure,
            **self.facts,
        }


@dataclass(frozen=True)
class Entry:
    """One row of the ledger."""

    seq: int
    time: str
    event: str
    principal: str
    request: str
    body: dict[str, Any]
    payload: bytes
    hash: str

    @property
    def head(self) -> Head:
        """The chain's head after this entry."""
        return Head(self.seq, self.hash)


@dataclass
class Spent:
    """What has been charged so far, under one accountant."""

    total: Amount
    unprotected: int = 0
    times: dict[str, int] = field(default_factory=dict)


class Ledger:
    """An open ledger.

    Args:
        path: the file, or none for one in memory (tests and throw-away simulations).
        dataset: names the data set; a ledger of another one is refused.
        clock: gives the time written into rows.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        dataset: str = "",
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self.path = None if path is None else Path(path)
        self._clock = clock or (lambda: datetime.now(UTC))
        self._lock = threading.RLock()
        self._spent: dict[str, tuple[int, Spent]] = {}
        try:
            self._db = sqlite3.connect(
                ":memory:" if path is None else str(path),
                isolation_level=None,
                check_same_thread=False,
                timeout=60,
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_TABLE)
        except sqlite3.Error as error:
            raise LedgerError(f"ledger {path}: {error}; give a file that can be written") from None
        self._begin_or_check(dataset)

    def _begin_or_check(self, dataset: str) -> None:
        with self._exclusive():
            first = self._db.execute("SELECT body FROM entries WHERE seq = 1").fetchone()
            if first is None:
                self._append("begun", "", "", {"dataset": dataset, "format": FORMAT})
                return
        begun = json.loads(first[0])
        if begun.get("format") != FORMAT:
            raise LedgerError(f"ledger {self.path}: written by a newer privfed; update privfed")
        if begun.get("dataset") != dataset:
            raise LedgerError(
                f"ledger {self.path}: belongs to data set {begun.get('dataset')!r}, not {dataset!r}; "
                "give each data set a ledger of its own"
            )

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                self._rollback()
                raise LedgerError(f"ledger {self.path}: {error}") from None
            except BaseException:
                self._rollback()
                raise

    def _rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _append(
        self, event: str, principal: str, request: str, body: dict[str, Any], payload: bytes = b""
    ) -> Head:
        last = self._db.execute(
            "SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        seq, previous = (last[0] + 1, last[1]) if last else (1, _GENESIS)
        time = self._clock().isoformat(timespec="microseconds")
        text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        row = (seq, time, event, principal, request, text, payload)
        digest = _chain(previous, row)
        self._db.execute("INSERT INTO entries VALUES (?,?,?,?,?,?,?,?)", (*row, digest))
        return Head(seq, digest)

    # --- what the gate calls -------------------------------------------------------------------

    def reserve(
        self,
        charge: Charge,
        accountant: Accountant,
        refuse: Callable[[Spent], Reason | None],
        payload: bytes = b"",
    ) -> Reason | None:
        """Check every budget and reserve the charge, in one exclusive transaction.

        Args:
            charge: what the release would cost.
            accountant: how losses add up.
            refuse: gives the reason why a charge on top of what is spent is refused, or none.
            payload: the query's public values, for the transcript.

        Returns:
            None if the charge is now durable, else the reason, which is recorded.
        """
        with self._exclusive():
            reason = refuse(self._sum(accountant))
            if reason is not None:
                self._append(
                    "refused", charge.principal, charge.request, {**charge.body(), "reason": reason}
                )
                return reason
            self._append("reserved", charge.principal, charge.request, charge.body(), payload)
        return None

    def release(self, charge: Charge, payload: bytes) -> Head:
        """Make a reply's bytes durable; only then may they be sent."""
        with self._exclusive():
            return self._append(
                "released", charge.principal, charge.request, {"query": charge.query}, payload
            )

    def fail(self, charge: Charge, payload: bytes) -> Head:
        """Record that a charged request came to nothing."""
        with self._exclusive():
            return self._append(
                "failed", charge.principal, charge.request, {"query": charge.query}, payload
            )

    def refuse(self, principal: str, request: str, reason: Reason, body: dict[str, Any]) -> Head:
        """Record a refusal; nothing was charged."""
        with self._exclusive():
            return self._append("refused", principal, request, {**body, "reason": reason})

    def note(self, event: str, body: dict[str, Any]) -> Head:
        """Record a public fact: a policy adopted, a study begun."""
        with self._exclusive():
            return self._append(event, "", "", body)

    def find(self, principal: str, request: str) -> Entry | None:
        """The latest entry of a request that was charged, or none."""
        row = self._db.execute(
            "SELECT * FROM entries WHERE principal = ? AND request = ? "
            "AND event IN ('reserved', 'released', 'failed') ORDER BY seq DESC LIMIT 1",
            (principal, request),
        ).fetchone()
        return None if row is None else _entry(row)

    # --- what reports read ---------------------------------------------------------------------

    def spent(self, accountant: Accountant) -> Spent:
        """What has been charged so far, reservations included."""
        with self._lock:
            return self._sum(accountant)

    def _sum(self, accountant: Accountant) -> Spent:
        seen, spent = self._spent.get(accountant.name, (0, Spent(accountant.nothing)))
        rows = self._db.execute(
            "SELECT seq, event, body FROM entries WHERE seq > ? ORDER BY seq", (seen,)
        )
        for seq, event, body in rows:
            seen = seq
            if event == "reserved":
                _charge(spent, json.loads(body), accountant)
        self._spent[accountant.name] = (seen, spent)
        return spent

    def entries(self) -> Iterator[Entry]:
        """All rows in order."""
        for row in self._db.execute("SELECT * FROM entries ORDER BY seq"):
            yield _entry(row)

    def disclosed(self) -> Iterator[tuple[str, Disclosed]]:
        """What left, in order, with its time: the transcript of this data owner."""
        asked: dict[tuple[str, str], Entry] = {}
        for entry in self.entries():
            if entry.event == "reserved":
                asked[entry.principal, entry.request] = entry
            elif entry.event == "released":
                question = asked[entry.principal, entry.request]
                reply = Envelope("release", entry.payload).open()
                assert isinstance(reply, Release)
                yield entry.time, Disclosed(reply.client, reply.kind, question.payload, reply)

    @property
    def head(self) -> Head:
        """The end of the chain."""
        row = self._db.execute("SELECT seq, hash FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
        return Head(row[0], row[1])

    def verify(self, head: Head | None = None) -> Head:
        """Recompute the whole chain.

        Args:
            head: a head published earlier; the chain must still pass through it.

        Raises:
            LedgerError: a row was changed, removed, added or reordered, or the head is not on it.
        """
        previous, expected = _GENESIS, 1
        met = head is None
        for row in self._db.execute("SELECT * FROM entries ORDER BY seq"):
            if row[0] != expected or _chain(previous, row[:7]) != row[7]:
                raise LedgerError(f"ledger {self.path}: entry {expected} does not fit the chain")
            previous, expected = row[7], expected + 1
            met = met or (head is not None and head == Head(row[0], row[7]))
        if not met:
            raise LedgerError(f"ledger {self.path}: the published head {head} is not on the chain")
        return Head(expected - 1, previous)

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _charge(spent: Spent, body: dict[str, Any], accountant: Accountant) -> None:
    loss = Loss.from_dict(body["loss"])
    spent.total = accountant.add(spent.total, loss)
    spent.unprotected += not loss.finite
    spent.times[body["kind"]] = spent.times.get(body["kind"], 0) + 1


def _chain(previous: str, row: tuple[Any, ...]) -> str:
    """SHA-256 over the previous hash and the length-prefixed columns."""
    hasher = sha256(previous.encode())
    for value in row:
        data = value if isinstance(value, bytes) else str(value).encode()
        hasher.update(len(data).to_bytes(8, "big"))
        hasher.update(data)
    return hasher.hexdigest()


def _entry(row: tuple[Any, ...]) -> Entry:
    return Entry(row[0], row[1], row[2], row[3], row[4], json.loads(row[5]), bytes(row[6]), row[7])
