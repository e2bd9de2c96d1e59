"""Hard trials of the ledger, used by its tests at small size and by the benchmark at full size.

Each returns what it counted, for the caller to hold against what must be.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sqlite3
import struct
import threading
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from privfed.accountants.pure import PureEpsilon
from privfed.errors import LedgerError
from privfed.exchange.messages import (
    Envelope,
    Head,
    Reason,
    Refusal,
    Release,
    ReleasedPart,
    Request,
)
from privfed.ledger import Ledger
from privfed.ledger.charge import Charge
from privfed.ledger.store import COLUMNS, GENESIS, fits
from privfed.owner.gate import Gate
from privfed.privacy.accountant import Budget
from privfed.privacy.laws import Charged, DiscreteLaplace
from privfed.privacy.loss import Loss
from privfed.privacy.policy import Guard, Policy
from privfed.questions import wire
from privfed.questions.part import PartType
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing.queries import Histogram

#: What one answer costs in these trials.
SPEND = Fraction(1, 10)
SMALL = Schema((Column("age", lower=0.0, upper=100.0),))
QUERY = Histogram(0, (0.0, 50.0, 100.0))


def small_gate(ledger: Ledger, budget: str | None = None, block: int = 1) -> Gate:
    """A gate over ten records that answers histograms under Laplace noise."""
    guards = {"small.histogram": (Guard.of("laplace", spend=SPEND),)}
    policy = Policy(guards, budget=None if budget is None else Budget.of(budget))
    records = Records(SMALL, np.arange(0.0, 100.0, 10.0)[:, None])
    return Gate("clinic", records, policy, ledger, queries=(Histogram,), block=block)


def charge(number: int, principal: str = "server") -> Charge:
    """A charge like that of a small gate's answer."""
    return Charge(principal, f"r{number}", "k", f"{number:064x}", _LOSS, "study", client="clinic")


_LOSS = Loss.pure(SPEND, Charged(DiscreteLaplace(10.0), 1))


def reply(one: Charge, salt: int = 0) -> bytes:
    """What a gate would release for such a charge: a count under its noise."""
    part = ReleasedPart(
        PartType.COUNTS,
        ("bin",),
        np.array([salt]),
        None,
        Fraction(1),
        "laplace",
        DiscreteLaplace(10.0),
    )
    return wire.encode(Release(one.client, one.request, one.kind, one.query, {"counts": part}))


def fill(ledger: Ledger, rows: int, together: int = 1000) -> None:
    """Append rows, a charge and its release in turn, some of them in one durable write."""
    accountant = PureEpsilon()
    for start in range(0, rows // 2, together):
        with ledger.together():
            for number in range(start, min(start + together, rows // 2)):
                one = charge(number)
                ledger.reserve(one, accountant, lambda spent: None, b"fields")
                ledger.release(one, reply(one))


# --- killed at random points -----------------------------------------------------------------------


@dataclass
class Lives:
    """What came of a gate that is killed again and again.

    Args:
        kills: how often it was killed.
        released: different requests that were answered with a release.
        interrupted: requests that were charged before a kill, and refused afterwards (must stay 0).
        changed: requests answered twice with different bytes (must stay 0).
        short: restarts after which less was spent than had left (must stay 0).
    """

    kills: int = 0
    released: dict[str, bytes] = field(default_factory=dict)
    interrupted: int = 0
    changed: int = 0
    short: int = 0
    head: Head | None = None


def killed(path: Path, kills: int, seed: int, longest: float = 0.08) -> Lives:
    """Ask a gate in a process of its own, killing it by SIGKILL at random moments.

    After every kill the ledger is verified against the last published head, and what is spent is
    held against what left; then a new process goes on, and some old requests are asked again. On a
    slow machine lives grow longer, until on average each of them releases something.

    Raises:
        LedgerError: a ledger that does not verify after a kill.
    """
    small_gate(Ledger()).answer(Request.of("warm", QUERY))  # imports happen before the first life
    draw, lives, asked = random.Random(seed), Lives(), 0
    while lives.kills < kills:
        longest *= 1.25 if len(lives.released) < lives.kills else 1.0
        child, link = _start(path, draw.choice((1, 4)))
        timer = threading.Timer(draw.uniform(0, longest), os.kill, (child, signal.SIGKILL))
        timer.start()
        again = draw.sample(sorted(lives.released), min(3, len(lives.released)))
        with suppress(OSError, EOFError):
            for name in again:
                _ask(link, name, lives)
            while True:
                _ask(link, f"r{asked}", lives)
                asked += draw.random() < 0.9  # now and then the same request twice in a row
        timer.join()
        os.waitpid(child, 0)
        link.close()
        lives.kills += 1
        _audit(path, lives)
    return lives


def _start(path: Path, block: int) -> tuple[int, socket.socket]:
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            ours.close()
            _serve(path, theirs, block)
        finally:
            os._exit(0)
    theirs.close()
    return child, ours


def _serve(path: Path, link: socket.socket, block: int) -> None:
    gate = small_gate(Ledger(path, "d"), block=block)
    while True:
        _send(link, gate.serve(_receive(link)))


def _send(link: socket.socket, data: bytes) -> None:
    link.sendall(struct.pack(">I", len(data)) + data)


def _receive(link: socket.socket) -> bytes:
    (size,) = struct.unpack(">I", _exactly(link, 4))
    return _exactly(link, size)


def _exactly(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _ask(link: socket.socket, name: str, lives: Lives) -> None:
    _send(link, wire.encode(Request.of(name, QUERY)))
    envelope = wire.decode(_receive(link), Envelope)
    reply = envelope.open()
    if isinstance(reply, Release):
        lives.changed += lives.released.setdefault(name, envelope.body) != envelope.body
    elif isinstance(reply, Refusal):
        lives.interrupted += reply.reason == Reason.INTERRUPTED
        lives.changed += name in lives.released
    if envelope.head is not None and (lives.head is None or envelope.head.seq > lives.head.seq):
        lives.head = envelope.head


def _audit(path: Path, lives: Lives) -> None:
    if not path.exists():
        return
    ledger = Ledger(path, "d")
    ledger.verify(lives.head)
    spent = ledger.spent(PureEpsilon()).total[0]
    lives.short += spent < SPEND * len(lives.released)
    ledger.close()


# --- rewritten by a dishonest editor ----------------------------------------------------------------


def every_flip(path: Path) -> tuple[int, int]:
    """Flip every single bit of every stored value, one at a time, and check the row's place.

    Each changed row is held against the chain as the verifier's walk does it; a flip that leaves no
    readable text counts as found, for the database refuses to read it (:func:`some_flips` tries
    that, and the whole verifier).

    Returns:
        number of flips, and how many of them went unnoticed.
    """
    tried = unnoticed = 0
    ledger, previous = Ledger.read(path), GENESIS
    for row in list(ledger._store.select()):
        for column, value in enumerate(row):
            for bit in range(_bits(value)):
                changed = _flipped(value, bit)
                tried += 1
                if changed is not None:
                    unnoticed += fits(previous, (*row[:column], changed, *row[column + 1 :]))
        previous = row[7]
    ledger.close()
    return tried, unnoticed


def some_flips(path: Path, count: int, seed: int) -> tuple[int, int]:
    """Flip single bits of stored values in the file, at random, and verify the file each time.

    Returns:
        number of flips, and how many of them went unnoticed.
    """
    draw, unnoticed = random.Random(seed), 0
    db = sqlite3.connect(path, isolation_level=None)
    (rows,) = db.execute("SELECT max(seq) FROM entries").fetchone()
    for _ in range(count):
        seq, column = draw.randint(1, rows), draw.choice((*COLUMNS, "hash"))
        (value,) = db.execute(f"SELECT {column} FROM entries WHERE seq = ?", (seq,)).fetchone()
        if _bits(value):
            unnoticed += not _notices(path, db, seq, column, value, draw.randrange(_bits(value)))
    db.close()
    return count, unnoticed


def _notices(
    path: Path, db: sqlite3.Connection, seq: int, column: str, value: Any, bit: int
) -> bool:
    """Flip, verify, and put back; a number that is taken is refused by the database itself."""
    raw = _raw_flip(value, bit)
    target = "CAST(? AS TEXT)" if isinstance(value, str) else "?"
    try:
        db.execute(f"UPDATE entries SET {column} = {target} WHERE seq = ?", (raw, seq))
    except sqlite3.IntegrityError:
        return True
    noticed = objects(path)
    now = raw if column == "seq" else seq
    db.execute(f"UPDATE entries SET {column} = ? WHERE seq = ?", (value, now))
    return noticed


def _bits(value: Any) -> int:
    if isinstance(value, int):
        return 63
    return 8 * len(value.encode() if isinstance(value, str) else value)


def _raw_flip(value: Any, bit: int) -> Any:
    if isinstance(value, int):
        return value ^ (1 << bit)
    data = bytearray(value.encode() if isinstance(value, str) else value)
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def _flipped(value: Any, bit: int) -> Any:
    """The value with one bit changed; none where it is no text any more."""
    changed = _raw_flip(value, bit)
    if not isinstance(value, str):
        return changed
    try:
        return changed.decode()
    except UnicodeDecodeError:
        return None


def objects(path: Path, *heads: Head) -> bool:
    """Whether the verifier objects to a file, by a typed error; any other error comes through."""
    try:
        ledger = Ledger.read(path)
    except LedgerError:
        return True
    try:
        ledger.verify(heads)
    except LedgerError:
        return True
    finally:
        ledger.close()
    return False


def edited(path: Path, *statements: str) -> None:
    """Run an editor's statements on a ledger's file."""
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


# --- a crowd ----------------------------------------------------------------------------------------


def crowd(path: Path, processes: int, threads: int, each: int, budget: str) -> dict[str, int]:
    """Ask gates of many processes and threads on one ledger at once.

    Returns:
        how often each outcome came: ``release``, or the reason of the refusal.
    """
    with closing(Ledger(path, "d")) as ledger:  # imports, and the policy
        small_gate(ledger, budget).answer(Request.of("", QUERY))
    reading, writing = os.pipe()
    children = []
    for process in range(processes):
        child = os.fork()
        if child == 0:
            try:
                outcomes = _press(path, f"p{process}", threads, each, budget)
                os.write(writing, "".join(f"{outcome}\n" for outcome in outcomes).encode())
            finally:
                os._exit(0)
        children.append(child)
    os.close(writing)
    with os.fdopen(reading) as lines:
        outcomes = lines.read().split()
    for child in children:
        os.waitpid(child, 0)
    return dict(Counter(outcomes))


def _press(path: Path, name: str, threads: int, each: int, budget: str) -> list[str]:
    gate = small_gate(Ledger(path, "d"), budget)
    outcomes: list[str] = []

    def ask(thread: int) -> None:
        for number in range(each):
            reply = gate.answer(Request.of(f"{name}-{thread}-{number}", QUERY)).open()
            outcomes.append(reply.reason if isinstance(reply, Refusal) else type(reply).__name__)

    workers = [threading.Thread(target=ask, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [outcome.lower() for outcome in outcomes]
