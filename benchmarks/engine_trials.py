"""Hard trials of federations of several processes: owners that die, engines that lose and repeat.

Used by tests at small size. Each owner is a process of its own behind a socket.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import monotonic, sleep
from typing import Any, ClassVar

import numpy as np
from ledger_trials import SMALL, SPEND

from privfed.accountants.pure import PureEpsilon
from privfed.engines.batches import Batch, schema_digest
from privfed.engines.journal import Journal
from privfed.engines.owner_side import OwnerSide
from privfed.engines.remote import Carry, RemoteDisclosure
from privfed.engines.sockets import SocketCarrier, SocketServer, call_socket
from privfed.errors import ChannelError
from privfed.exchange.channel import HeadStore, RetryLimits
from privfed.ledger import Ledger
from privfed.owner.gate import Gate
from privfed.privacy.accountant import Budget
from privfed.privacy.noise import TestNoise
from privfed.privacy.policy import Guard, Policy
from privfed.questions import wire
from privfed.questions.query import View
from privfed.tables.records import Records
from privfed.testing.queries import Histogram

FORK = get_context("fork")
QUICK = RetryLimits(deadline=8.0, first=0.01, longest=0.1)


class Deadly(Histogram):
    """A histogram whose first evaluation, wherever a mark says so, kills the owner's process."""

    kind: ClassVar[str] = "test.deadly"
    mark: ClassVar[Path] = Path("never")

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Die once, after the charge is durable."""
        if self.mark.exists():
            self.mark.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().evaluate(view)


class Telling(Histogram):
    """A histogram whose evaluation fails with a text that holds a record."""

    kind: ClassVar[str] = "test.telling"

    def evaluate(self, view: View) -> Mapping[str, np.ndarray]:
        """Fail, telling a value."""
        raise RuntimeError(f"SECRET={view.table.x[4, 0]}")


QUERIES = (Histogram, Deadly, Telling)


@dataclass
class Hospital:
    """An owner's process: one gate over ten records, behind one socket.

    Args:
        folder: where its ledger and its socket are.
        name: its public name.
        budget: its whole epsilon, or none.
        key: signs its heads, or none.
        seed: of its test noise; none for secure noise.
    """

    folder: Path
    name: str = "north"
    budget: str | None = None
    key: bytes | None = None
    seed: int | None = 0
    process: Any = field(default=None, repr=False)

    @property
    def ledger(self) -> Path:
        """Its ledger's file."""
        return self.folder / f"{self.name}.db"

    @property
    def socket(self) -> Path:
        """Its socket."""
        return self.folder / f"{self.name}.sock"

    def start(self) -> Hospital:
        """Start the process and wait until it answers."""
        self.process = FORK.Process(target=_serve, args=(self,), daemon=True)
        self.process.start()
        latest = monotonic() + 30
        while monotonic() < latest:
            with suppress(ChannelError):
                call_socket(self.socket, b"", seconds=1)
                return self
            sleep(0.01)
        raise TimeoutError("an owner's process did not open its socket")

    def kill(self) -> None:
        """End the process by SIGKILL, wherever it is."""
        self.process.kill()
        self.process.join()

    def charges(self) -> float:
        """How many charges its ledger holds, after a full verification."""
        ledger = Ledger.read(self.ledger)
        ledger.verify()
        charged = ledger.spent(PureEpsilon()).total[0] / SPEND
        ledger.close()
        return float(charged)


def gate_of(hospital: Hospital) -> Gate:
    """The gate that a hospital's process serves."""
    guards = {query.kind: (Guard.of("laplace", spend=SPEND),) for query in QUERIES}
    budget = None if hospital.budget is None else Budget.of(hospital.budget)
    return Gate(
        hospital.name,
        Records(SMALL, np.arange(0.0, 100.0, 10.0)[:, None]),
        Policy(guards, budget=budget),
        Ledger(hospital.ledger, hospital.name, key=hospital.key),
        noise=None if hospital.seed is None else TestNoise(hospital.seed),
        queries=QUERIES,
        secret=b"secret",
    )


def _serve(hospital: Hospital) -> None:
    side = OwnerSide(gate_of(hospital))
    with SocketServer(hospital.socket, partial(side.answer, principal="server")):
        while True:
            signal.pause()


def federation(*hospitals: Hospital, **rest: Any) -> RemoteDisclosure:
    """The asking side, over the hospitals' sockets unless another carrier is given."""
    carry = rest.pop("carry", SocketCarrier({each.name: each.socket for each in hospitals}))
    options = {"patience": QUICK, **rest}
    return RemoteDisclosure(SMALL, [each.name for each in hospitals], carry, **options)


def question(number: int) -> Histogram:
    """The questions of these trials, all different."""
    return Histogram(0, (0.0, 10.0 + number / 10, 100.0))


def batch_of(*messages: bytes, id: str = "b") -> bytes:
    """An encoded batch of messages."""
    return wire.encode(Batch(id, schema_digest(SMALL), messages))


class BadLine:
    """An engine's carrier that loses, delays, doubles and mixes up what it carries.

    Args:
        carry: the engine beneath.
        seed: of its chance.
    """

    def __init__(self, carry: Carry, seed: int) -> None:
        self._carry, self._draw = carry, random.Random(seed)
        self._late: dict[str, bytes] = {}
        self.counts = dict.fromkeys(("lost", "late", "doubled", "swapped", "garbled"), 0)

    def __call__(self, batches: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
        """Carry some of it somehow."""
        fate = self._draw.choice(("well", *self.counts))
        if fate in self.counts:
            self.counts[fate] += 1
        if fate == "lost" and self._draw.random() < 0.5:
            return {}  # on the way there
        replies = dict(self._carry(batches, seconds))
        if fate == "doubled":
            replies = dict(self._carry(batches, seconds))
        told = {"lost": {}, "late": self._late, "swapped": _swapped(replies)}.get(fate, replies)
        if fate == "garbled":
            told = {client: data[: len(data) // 2] for client, data in replies.items()}
        self._late = replies
        return told


def _swapped(replies: Mapping[str, bytes]) -> dict[str, bytes]:
    """Every client's reply under another one's name."""
    return dict(zip(replies, reversed(list(replies.values())), strict=True))


@dataclass
class Study:
    """An asking side that is a process of its own, and can be killed: thirty questions to all.

    Args:
        hospitals: who is asked.
        folder: where its journal, its heads and its model are.
        asked: how many questions.
    """

    hospitals: tuple[Hospital, ...]
    folder: Path
    asked: int = 30

    @property
    def model(self) -> Path:
        """What it learns: all that was released, in order."""
        return self.folder / "model"

    def run(self) -> None:
        """Ask and write the model."""
        journal = Journal(self.folder / "journal")
        heads = HeadStore(self.folder / "heads.json")
        asking = federation(*self.hospitals, journal=journal, heads=heads)
        told = [asking.ask(question(number)).total("counts") for number in range(self.asked)]
        self.model.write_bytes(wire.encode(told))

    def start(self) -> Any:
        """Run it in a process of its own."""
        process = FORK.Process(target=self.run, daemon=True)
        process.start()
        return process


def eight(ask: Callable[[int], bytes]) -> list[bytes]:
    """Do the same in eight threads at once; each is given its number."""
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    barrier = Barrier(8)

    def one(number: int) -> bytes:
        barrier.wait()
        return ask(number)

    with ThreadPoolExecutor(8) as threads:
        return list(threads.map(one, range(8)))
