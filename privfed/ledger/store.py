"""Base class of a ledger's storage: chained rows, a state derived from them, transactions.

The hash of a row is SHA-256 over, in this order: the previous row's hash (32 bytes; zeros before the first), the row's
number and the byte lengths of its six other columns (seven unsigned 64-bit integers, big-endian), and the columns
themselves (time, event, principal, request, body, payload; text as UTF-8). Lengths come first, so that no two rows have
the same encoding. A body is JSON with sorted keys and no white space.

The *state* is a table of named values (totals, the policy in force, the end of the chain), so that opening a ledger and
checking a budget read few rows. :mod:`privfed.testing.check_store` checks an implementation.
"""

from __future__ import annotations

import os
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256, sha512
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec

from privfed.errors import LedgerError
from privfed.exchange.messages import Head

#: Number of the canonical form, and all that can be read: in format 3 laws were lists.
FORMAT, READABLE = 4, (3, 4)
GENESIS = "0" * 64
#: Events that only the ledger itself writes.
OWN_EVENTS = frozenset(
    [
        *("begun", "secret", "key", "policy", "counted", "share", "sealed", "reserved", "block"),
        *("drawn", "released", "failed", "refused"),
    ]
)
#: Events whose rows have the digest of the state after them.
STATEFUL = ("reserved", "block", "counted", "policy", "share", "sealed", "failed")
#: State values that are not in the digest: the end of the chain, and the ledger's commitments.
UNSPOKEN = frozenset(["tip", "secret", "key"])
#: The columns of a row in order, without its hash.
COLUMNS = ("seq", "time", "event", "principal", "request", "body", "payload")
Row = tuple[int, str, str, str, str, bytes, bytes]

_LENGTHS = struct.Struct(">7Q")
_TYPES = (int, str, str, str, str, bytes, bytes, str)

#: The time of all rows written inside :func:`at_one_time`.
_BEGUN: ContextVar[datetime | None] = ContextVar("_BEGUN", default=None)

#: Encodes public facts in their canonical form.
encode_body: Callable[[Any], bytes] = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True)
class Entry:
    """One row of the ledger."""

    seq: int  #: its number, from 1
    time: str  #: when it was written, ISO 8601 in UTC; not decreasing
    event: str  #: one of :data:`OWN_EVENTS`, or a note's event
    principal: str  #: the server that sent the request
    request: str  #: the request's id
    body: dict[str, Any]  #: public facts
    payload: bytes  #: the query's public values, or the released bytes
    hash: str  #: SHA-256 of these fields and of the previous row's hash

    @property
    def head(self) -> Head:
        """The head of the chain after this entry."""
        return Head(self.seq, self.hash)

    @classmethod
    def of(cls, columns: tuple[Any, ...]) -> Entry:
        """Decode a stored row: its columns and its hash."""
        seq, time, event, principal, request, body, payload, digest = columns
        try:
            facts = msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.MsgspecError, TypeError) as error:
            raise LedgerError(f"entry {seq} of the ledger cannot be read: {error}") from None
        return cls(seq, time, event, principal, request, facts, payload, digest)


class Tip(NamedTuple):
    """The end of the chain: the last row's number, hash and time."""

    seq: int
    hash: str
    time: str


NO_ROWS = Tip(0, GENESIS, "")


class Store(ABC):
    """An open chain of rows and its state, at ``path`` or in memory; ``clock`` returns rows' times.

    It is used by one thread at a time (with a lock) in one process; other processes open their own.
    The abstract methods store bytes and are called under the lock; chaining, nested transactions,
    the state's digest and caching are implemented here.
    """

    #: Errors of the medium, raised as LedgerError.
    faults: ClassVar[tuple[type[Exception], ...]] = (OSError,)

    def __init__(
        self, path: str | Path | None = None, clock: Callable[[], datetime] | None = None
    ) -> None:
        self.path = None if path is None else Path(path)
        self._clock = clock or (lambda: datetime.now(UTC))
        #: Called when a transaction was undone, to clear caches of what it wrote.
        self.undone: Callable[[], None] = lambda: None
        #: Called with the end of the chain when rows are durable.
        self.written: Callable[[Head], None] = lambda head: None
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._depth, self._broken = 0, False
        self._last = self._durable = NO_ROWS
        self._now = ""
        self._state: dict[str, Any] = {}
        self._changed: set[str] = set()
        self._sum: int | None = None  # sum of the hashes of the state's values
        self._hashes: dict[str, int] = {}
        self._stale: set[str] = set()  # names whose hash must be recomputed

    def __str__(self) -> str:
        return f"ledger {self.path or '(in memory)'}"

    # --- abstract methods --------------------------------------------------------

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction that excludes all others, in all processes."""

    @abstractmethod
    def insert(self, row: Row, digest: str) -> None:
        """Add a row and its hash; fails for a second row of a charging event and request."""

    @abstractmethod
    def commit(self, state: Mapping[str, bytes]) -> None:
        """Set values of the state, and make the transaction durable before returning."""

    @abstractmethod
    def rollback(self) -> None:
        """Undo the transaction, if one is open."""

    @abstractmethod
    def last(self) -> Tip:
        """Return the last row; :data:`NO_ROWS` if there is none."""

    @abstractmethod
    def select(
        self,
        *,
        at: int = 0,
        after: int = 0,
        events: tuple[str, ...] = (),
        request: tuple[str, str] | None = None,
        newest: int = 0,
    ) -> Iterator[tuple[Any, ...]]:
        """Yield columns and hash of stored rows, reading a few hundred at a time.

        Args:
            at: only the row of this number.
            after: only rows with a greater number.
            events: only rows of these events.
            request: only charges and replies of one (principal, request).
            newest: 0 for all rows in order; ``n`` for the last n, latest first.
        """

    @abstractmethod
    def charged(self, principal: str, request: str) -> bool:
        """Whether a request was charged or answered before."""

    @abstractmethod
    def stored(self, *names: str) -> dict[str, bytes]:
        """Return the stored values of the state by name, all if no names are given."""

    @abstractmethod
    def remove(self, names: Iterable[str]) -> None:
        """Remove values of the state."""

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[None]:
        """Open a consistent read of one point in time, despite other processes' writes."""

    @abstractmethod
    def check_form(self) -> None:
        """Check that the medium has the form that this implementation writes (else LedgerError)."""

    @property
    @abstractmethod
    def empty(self) -> bool:
        """Whether nothing was written yet."""

    @abstractmethod
    def close(self) -> None:
        """Close the store."""

    # --- transactions --------------------------------------------------------------------------

    @contextmanager
    def exclusive(self) -> Iterator[Tip]:
        """Open an exclusive transaction, durable when it ends; inner ones join the outermost.

        If anything inside fails, all is undone, even if the outer code continues. Yields the end of the chain, with the
        time for rows written inside. LedgerError: the store cannot be written.
        """
        with self._lock:
            self.check_process()
            outermost = self._depth == 0
            self._depth += 1
            try:
                if outermost:
                    self._broken = False
                    self.begin()
                    self._catch_up()
                self._now = self._time()
                yield self._last._replace(time=self._now)
                if outermost:
                    self._commit()
            except BaseException as error:
                self._broken = True
                if outermost:
                    self._rollback()
                if isinstance(error, self.faults):
                    raise LedgerError(f"{self}: {error}") from None
                raise
            finally:
                self._depth -= 1

    def _time(self) -> str:
        """Return the time for the next row, never before the last row's."""
        now = _BEGUN.get() or self._clock()
        time = now.astimezone(UTC).isoformat(timespec="microseconds")
        return max(time, self._last.time)

    def _catch_up(self) -> None:
        """Drop the cached state if another process has appended (impossible in memory)."""
        if self.path is None and self._last.seq:
            return
        last, known = self.last(), self._last
        if last[:2] != known[:2]:
            if known.seq and (last.seq < known.seq or self.hash_at(known.seq) != known.hash):
                raise LedgerError(f"{self}: entries were removed or changed while it was open")
            self._state.clear()
            self._forget_hashes()
            self._last = last

    def _commit(self) -> None:
        if self._broken:
            raise LedgerError(f"{self}: a write inside this transaction failed; nothing was kept")
        if self._changed:
            self._put({"tip": list(self._last[:2])})
        self.commit({name: encode_body(self._state[name]) for name in self._changed})
        self._changed.clear()
        grown = self._durable != self._last
        self._durable = self._last
        if grown:
            self.written(Head(*self._last[:2]))

    def _rollback(self) -> None:
        self.undone()
        self._state.clear()
        self._forget_hashes()
        self._changed.clear()
        self._last = self._durable
        self.rollback()

    def check_process(self) -> None:
        """Raise LedgerError in a child of the process that opened the store."""
        if os.getpid() != self._process:
            raise LedgerError(
                f"{self}: was opened before a fork; close it before, and open it in the new process"
            )

    # --- rows and state, inside a transaction --------------------------------------------------

    def append(
        self,
        event: str,
        principal: str,
        request: str,
        body: dict[str, Any],
        payload: bytes = b"",
        *,
        state: Mapping[str, Any] | None = None,
        same_time: bool = False,
    ) -> Head:
        """Chain one more row.

        Args:
            event, principal, request, body, payload: see :class:`Entry`.
            state: values of the state that change with it; the row then has the whole state's digest.
            same_time: whether to use the time of the row before instead of now.
        """
        if state is not None:
            self._put(state)
            if event in STATEFUL:
                body = {**body, "state": self._digest()}
        time = self._last.time if same_time else self._now
        row = (self._last.seq + 1, time, event, principal, request, encode_body(body), payload)
        self._last = Tip(row[0], link(self._last.hash, row), time)
        self.insert(row, self._last.hash)
        self._changed.add("tip")
        return Head(*self._last[:2])

    def held(self, *names: str) -> list[Any]:
        """Return named values of the state, None if absent."""
        missing = [name for name in names if name not in self._state]
        if missing:
            rows = self.stored(*missing)
            for name in missing:
                self._state[name] = self._decoded(name, rows.get(name))
        return [self._state[name] for name in names]

    def _put(self, values: Mapping[str, Any]) -> None:
        self._state.update(values)
        self._changed.update(values)
        self._stale.update(values.keys() - UNSPOKEN)

    def forget(self, prefix: str) -> None:
        """Remove the values whose names have a prefix (before recomputing them)."""
        gone = {name for name in (*self.stored(), *self._state) if name.startswith(prefix)}
        self.remove(gone)
        self._state = {name: self._state[name] for name in self._state.keys() - gone}
        self._changed -= gone
        self._forget_hashes()

    def _forget_hashes(self) -> None:
        self._sum, self._hashes = None, {}
        self._stale.clear()

    def _digest(self) -> str:
        """Return the digest of the state; values' hashes are cached, so that a change costs one and a sum."""
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

    def _decoded(self, name: str, value: bytes | None) -> Any:
        try:
            return None if value is None else msgspec.json.decode(value)
        except (msgspec.MsgspecError, TypeError):
            raise LedgerError(
                f"{self}: its state {name!r} was damaged; verify the ledger"
            ) from None

    # --- reading -------------------------------------------------------------------------------

    def look(self, *names: str) -> list[Any]:
        """Return :meth:`held` outside of transactions, including other processes' writes."""
        with self._lock:
            self._refresh()
            return self.held(*names)

    def find(self, principal: str, request: str) -> Entry | None:
        """Return the latest entry of a charged request, or None."""
        with self._lock:
            self._refresh()
            for columns in self.select(request=(principal, request), newest=1):
                return Entry.of(columns)
        return None

    def hash_at(self, seq: int) -> str | None:
        """Return the hash of a row by its number, or None."""
        with self._lock:
            for columns in self.select(at=seq) if seq > 0 else ():
                return str(columns[7])
        return None

    def _refresh(self) -> None:
        self.check_process()
        if not self._depth:
            try:
                self._catch_up()
            except self.faults as error:
                raise LedgerError(f"{self}: {error}") from None

    @contextmanager
    def reading(self) -> Iterator[Tip]:
        """Read while no other thread writes; yields the chain's end and the time, as :meth:`exclusive`."""
        with self._lock:
            self._refresh()
            yield self._last._replace(time=self._time())

    def state(self) -> dict[str, bytes]:
        """Return the whole state as bytes, including this transaction's changes."""
        changed = {name: encode_body(self._state[name]) for name in self._changed - {"tip"}}
        return {**self.stored(), **changed}

    @property
    def head(self) -> Head:
        """The end of the chain."""
        self.check_process()
        last = self.last()
        if not last.seq:
            raise LedgerError(f"{self}: it is empty")
        return Head(last.seq, last.hash)

    # --- opening -------------------------------------------------------------------------------

    def check_last(self) -> None:
        """Check the last row against its predecessor and the tip (else LedgerError)."""
        rows = list(self.select(newest=2))
        if not rows:
            raise LedgerError(f"{self}: it is empty; a ledger begins with its data set")
        previous = rows[1][7] if len(rows) > 1 else GENESIS
        sound = self.held("tip") == [[rows[0][0], rows[0][7]]] and len(str(previous)) == 64
        if not (sound and fits(previous, rows[0][:8])):
            raise LedgerError(f"{self}: its last entry does not fit the chain; it was rewritten")

    def check_state(self) -> None:
        """Check the stored state against the digest in the last row that has one (else LedgerError)."""
        for columns in self.select(events=STATEFUL, newest=1):
            sound = Entry.of(columns).body.get("state") == self._digest()
            break
        else:
            sound = not set(self.state()) - UNSPOKEN
        if not sound:
            raise LedgerError(
                f"{self}: what it keeps of its totals does not follow from its entries; verify it, and restore "
                "it from a copy"
            )


@contextmanager
def at_one_time(now: datetime) -> Iterator[None]:
    """Give all rows that this thread writes inside the same time, such as that of the request.

    Whoever knows the rest of a row can guess its time from the head after it, to the microsecond: its own time would
    reveal how long earlier work took.
    """
    token = _BEGUN.set(now)
    try:
        yield
    finally:
        _BEGUN.reset(token)


def link(previous: str, row: Row) -> str:
    """Return the hash of a row after the one whose hash is ``previous``."""
    seq, *texts, body, payload = row
    columns = [str(text).encode() for text in texts]
    columns += [body, payload]
    lengths = _LENGTHS.pack(seq, *map(len, columns))
    return sha256(b"".join((bytes.fromhex(previous), lengths, *columns))).hexdigest()


def fits(previous: str, stored: tuple[Any, ...]) -> bool:
    """Whether a stored row (columns and hash) follows the one whose hash is ``previous``.

    Types must match exactly: text that became a blob of the same bytes is a different row.
    """
    if tuple(map(type, stored)) != _TYPES or stored[0] < 0:
        return False
    try:
        return bool(link(previous, stored[:7]) == stored[7])
    except ValueError:  # an invalid previous hash, or text that cannot be encoded
        return False


def digest_of(state: Mapping[str, bytes]) -> str:
    """Return SHA-256 of the sum of a state's hashes, which is updated value by value, hexadecimal."""
    return _of_sum(sum(_hash(name, value) for name, value in state.items() if name not in UNSPOKEN))


def _of_sum(total: int) -> str:
    return sha256((total % 2**512).to_bytes(64, "big")).hexdigest()


def _hash(name: str, value: bytes) -> int:
    """Hash a value of the state with its name to a number of 512 bits."""
    encoded_name = name.encode()
    # an editor may have left text, say
    encoded_value = value if isinstance(value, bytes) else repr(value).encode()
    return int.from_bytes(
        sha512(len(encoded_name).to_bytes(8, "big") + encoded_name + encoded_value).digest(), "big"
    )
