"""Bent and random bytes at every door: the owner's side, its socket, the server's reading of replies, a relay, and
what an engine's node sends in place of bytes.

``python benchmarks/engine_fuzz.py [100000]`` prints what became of the messages, and memory before and after.
"""

from __future__ import annotations

import logging
import random
import resource
import socket
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
from engine_trials import Hospital, batch_of, gate_of, question
from ledger_trials import SMALL
from result_rows import arguments

from privfed.engines.batches import LIMIT, Batch, Carrier, Replies
from privfed.engines.directory import Directory
from privfed.engines.owner_side import OwnerSide
from privfed.engines.relay import RelayReply, RelayRequest
from privfed.engines.remote import Carry, RemoteDisclosure
from privfed.engines.sockets import SocketServer
from privfed.errors import PrivfedError, WireError
from privfed.exchange.channel import RetryLimits
from privfed.exchange.messages import DryRun, Envelope, Request
from privfed.exchange.signing import Identity, Signer
from privfed.questions import wire

Bend = Callable[[bytes, random.Random], bytes]
NESTED = msgspec.msgpack.encode([[[{"id": "x", "messages": [b"", 1, None, {"": [2.5] * 9}]}]]])


def _flip(data: bytes, rng: random.Random) -> bytes:
    bent = bytearray(data or b"\x00")
    for _ in range(rng.randint(1, 4)):
        bent[rng.randrange(len(bent))] ^= 1 << rng.randrange(8)
    return bytes(bent)


def _splice(data: bytes, rng: random.Random) -> bytes:
    at, end = sorted(rng.randint(0, len(data)) for _ in range(2))
    return data[:at] + rng.randbytes(rng.randint(0, 40)) + data[end:]


#: Ways to bend valid bytes, and bytes that never were.
BENDS: Mapping[str, Bend] = {
    "flipped": _flip,
    "spliced": _splice,
    "cut": lambda data, rng: data[: rng.randint(0, len(data))],
    "longer": lambda data, rng: data + rng.randbytes(rng.randint(1, 40)),
    "doubled": lambda data, rng: data + data,
    "random": lambda data, rng: rng.randbytes(rng.randint(0, 200)),
    "nested": lambda data, rng: _flip(NESTED * rng.randint(1, 20), rng),
    "huge sizes": lambda data, rng: bytes([rng.choice((0xC6, 0xDB, 0xDD, 0xDF))]) + b"\xff" * 4,
}


def bent(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Some bytes made of valid ones, and how."""
    name = rng.choice(sorted(BENDS))
    return name, BENDS[name](data, rng)


def at_the_owner(folder: Path, count: int, seed: int = 0) -> Counter[str]:
    """Bend batches, and messages inside sound batches; what cannot be read is never charged.

    Returns:
        outcomes, and how many charges there are; AssertionError: something else than replies came back.
    """
    rng, found = random.Random(seed), Counter[str]()
    gate = gate_of(Hospital(folder, "fuzzed"))
    side = OwnerSide(gate)
    asked = [Request.of(f"r{number}", question(number % 50)) for number in range(50)]
    messages = [wire.encode(x) for x in (*asked, *map(DryRun, asked[:5]))]
    for _ in range(count):
        message = rng.choice(messages)
        if rng.random() < 0.5:
            _, data = bent(batch_of(message), rng)
        else:
            data = batch_of(bent(message, rng)[1])
        replies = wire.decode(side.answer(data, "server"), Replies)
        assert replies.client in ("fuzzed",)
        for envelope in replies.envelopes:
            found[wire.decode(envelope, Envelope).status] += 1
        found["no reply"] += not replies.envelopes
    found["charges"] = sum(gate.ledger.spent(gate.accountant).times.values())
    gate.ledger.verify()
    with closing(gate.ledger):
        rows = list(gate.ledger.entries(events=("reserved", "drawn")))
    assert len(rows) == found["charges"] == len({row.request for row in rows})
    return found


def at_the_server(folder: Path, count: int, seed: int = 0) -> Counter[str]:
    """Bend an owner's signed replies on their way; what is believed is what she signed, or nothing is.

    Returns:
        outcomes of rounds; AssertionError: a bent reply was believed.
    """
    rng, found = random.Random(seed), Counter[str]()
    key = bytes(range(32))
    hospital = Hospital(folder, "bent", key=key)
    gate = gate_of(hospital)
    side = OwnerSide(gate)
    keys = {"bent": Identity("bent", Signer(key, "bent").public)}

    class Bending(Carrier):
        honest = True

        def __call__(self, batches: Mapping[str, bytes], seconds: float) -> Mapping[str, bytes]:
            replies = {client: side.answer(data, "server") for client, data in batches.items()}
            if self.honest:
                return replies
            return {client: bent(data, rng)[1] for client, data in replies.items()}

    carry = Bending()
    asking = RemoteDisclosure(
        SMALL, ["bent"], carry, keys=keys, patience=RetryLimits(0.001, 0.001, 0.001)
    )
    asking.ask(question(0))
    carry.honest = False
    for number in range(count):
        try:
            releases = asking.ask(question(number % 50)).only.releases
        except PrivfedError as error:
            found[type(error).__name__] += 1
            continue
        found["believed"] += len(releases)
        for release in releases.values():
            stored = gate.ledger.find("server", release.request)
            assert stored is not None and stored.payload == wire.encode(release)
    gate.ledger.close()
    return found


def at_small_doors(count: int, seed: int = 0) -> Counter[str]:
    """Bend what a relay, a directory of nodes and a wire's reader are told: a typed error, or a value."""
    rng, found = random.Random(seed), Counter[str]()
    valid = {
        RelayRequest: wire.encode(RelayRequest({"a": b"batch"}, 1.0)),
        RelayReply: wire.encode(RelayReply({"a": b"replies"})),
        Replies: wire.encode(Replies("1", "a", "digest", (b"envelope",))),
        Batch: wire.encode(Batch("1", "digest", (b"message",))),
    }
    for _ in range(count):
        kind = rng.choice(list(valid))
        data = bent(valid[kind], rng)[1]
        try:
            wire.decode(data, kind, LIMIT)
            found["read"] += 1
        except WireError:
            found["a typed error"] += 1
        spoken = Directory(["a"], nodes=lambda: ["n"], send=partial(_said, data))
        assert set(spoken({"a": b"batch"}, 0.01)) <= {"a"}
    return found


def _said(data: bytes, batches: Mapping[str, bytes], _: float) -> list[tuple[str, bytes]]:
    return [(node, data) for node in batches]


def at_the_engines(folder: Path, count: int, seed: int = 0) -> Counter[str]:
    """Nodes of Flower, and sites of FLARE where it is installed, that reply with anything: silence, or a typed error."""
    rng, found = random.Random(seed), Counter[str]()
    side = OwnerSide(gate_of(Hospital(folder, "node")))
    asked = [adapter(side, rng) for stack, adapter in ADAPTERS.items() if find_spec(stack)]
    for number in range(count):
        try:
            replies = asked[number % len(asked)]({"node": batch_of()}, 0.01)
        except PrivfedError as error:
            found[type(error).__name__] += 1
            continue
        assert all(type(data) is bytes for data in replies.values())
        found["read" if replies else "silence"] += 1
    side.gate.ledger.close()
    return found


def anything(data: bytes, rng: random.Random) -> object:
    """A reply, or what could be sent instead of one."""
    odd: tuple[object, ...] = (None, 1, 2.5, True, "text", [b"bytes"], [], {"batch": data})
    return rng.choice((data, bent(data, rng)[1], rng.choice(odd)))


def _flower(side: OwnerSide, rng: random.Random) -> Carry:
    from flower_grid import InProcess
    from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

    from privfed.engines.flower import FlowerDisclosure

    class Odd(InProcess):
        def push_messages(self, messages: Any) -> list[str]:
            return list(super().push_messages(messages))

        def pull_messages(self, message_ids: Any) -> Any:
            for reply in (replies := super().pull_messages(message_ids)):
                sent = anything(side.answer(batch_of(), "server"), rng)
                records = [ArrayRecord(), MetricRecord({"batch": 1}), ConfigRecord({})]
                if isinstance(sent, bytes | int | float | str | list):
                    records += 3 * [ConfigRecord({"batch": sent})]
                named = {rng.choice(("privfed", "privfed", "other")): rng.choice(records)}
                reply.content = RecordDict(rng.choice((named, named, {})))
            return replies

    return FlowerDisclosure(Odd({1: Path("nobody")}), SMALL, ["node"])._carry


def _flare(side: OwnerSide, rng: random.Random) -> Carry:
    from privfed.engines import flare

    class Site:
        name = "site"

        def __call__(self, **_: Any) -> Site:
            return self

        def ask(self, batch: bytes) -> object:
            if rng.random() < 0.1:
                raise RuntimeError("at the site")
            return anything(side.answer(batch, "server"), rng)

    with mock.patch.object(flare, "collab", SimpleNamespace(clients=[Site()])):
        return flare.sites(["node"])


ADAPTERS = {"flwr": _flower, "nvflare": _flare}


def at_the_socket(folder: Path, count: int, seed: int = 0) -> Counter[str]:
    """Break off, announce too much, send half: each visitor gets a whole reply or nothing."""
    rng, found = random.Random(seed), Counter[str]()
    with SocketServer(folder / "socket", lambda data: data[::-1]):
        for _ in range(count):
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(30)
                link.connect(str(folder / "socket"))
                data = rng.randbytes(rng.randint(0, 50))
                size = rng.choice((len(data), len(data), rng.randint(0, 60), rng.getrandbits(64)))
                try:
                    link.sendall((struct.pack(">Q", size) + data)[: rng.randint(0, 70)])
                    link.shutdown(socket.SHUT_WR)
                    reply = b"".join(iter(lambda: link.recv(2**16), b""))
                except OSError:
                    reply = b""
            assert reply in (b"", struct.pack(">Q", size) + data[:size][::-1])
            found["answered" if reply else "closed"] += 1
    return found


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("messages", type=int, nargs="?", default=100_000)
    number = parser.parse_args().messages
    logging.disable()
    with TemporaryDirectory() as made:
        at = Path(made)
        trials: dict[str, tuple[Callable[[int], Counter[str]], int]] = {
            "the owner's side": (partial(at_the_owner, at), number * 4 // 10),
            "engines' nodes": (partial(at_the_engines, at), number // 10),
            "the server's reading": (partial(at_the_server, at), number // 10),
            "relays and directories": (at_small_doors, number * 3 // 10),
            "sockets": (partial(at_the_socket, at), number // 10),
        }
        for name, (trial, times) in trials.items():
            before, began = _memory(), perf_counter()
            outcomes = ", ".join(f"{n} {name}" for name, n in sorted(trial(times).items()))
            print(
                f"{name}: {times} messages in {perf_counter() - began:.0f} s: {outcomes}; memory at most "
                f"{before:.0f} MB before, {_memory():.0f} MB after",
                flush=True,
            )
