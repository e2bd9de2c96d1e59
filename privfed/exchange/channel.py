"""Asking clients over byte channels: ids, retries with a deadline, and published heads.

A channel carries an encoded request to one client and returns its encoded reply: a function call,
a socket, or an engine's message.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import msgspec
import tenacity

from privfed.errors import InputError, LedgerError, PrivfedError, WireError
from privfed.exchange.disclosure import Disclosure, distinct, places
from privfed.exchange.messages import (
    Absent,
    DryRun,
    DryRunReply,
    Envelope,
    Head,
    Refusal,
    Reply,
    Request,
)
from privfed.exchange.signing import Identity
from privfed.questions import wire
from privfed.questions.query import Query
from privfed.tables.schema import Schema

#: Carries one encoded request to a client and gives the encoded envelope.
Channel = Callable[[bytes], bytes]


#: What a client's envelope held, and the envelope itself with head and signature.
Opened = tuple[Reply | DryRunReply, Envelope]


class ChannelError(PrivfedError):
    """The client could not be reached this time; the same request may be sent again."""


#: What a request is sent again after.
UNREACHED = (ChannelError, WireError, OSError, TimeoutError)


@dataclass(frozen=True)
class RetryLimits:
    """How long to retry a client that cannot be reached; all in seconds.

    Args:
        deadline: after which it counts as absent.
        first: before the second try; doubled for each further one.
        longest: the longest pause between two tries.
    """

    deadline: float = 30.0
    first: float = 0.05
    longest: float = 5.0

    def ask(self, channel: Channel, data: bytes) -> Opened | None:
        """Send the same bytes until a readable reply comes or the deadline is over."""
        began = monotonic()
        try:
            return _exchange(channel, data)
        except UNREACHED:
            return self._again(channel, data, self.deadline - (monotonic() - began))

    def _again(self, channel: Channel, data: bytes, rest: float) -> Opened | None:
        """Send once more after a while, and again, for so many seconds."""
        if rest <= self.first:
            return None
        sleep(self.first)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(UNREACHED),
            wait=tenacity.wait_exponential(2 * self.first, self.longest)
            + tenacity.wait_random(0, self.first),
            stop=tenacity.stop_after_delay(rest - self.first),
        )
        try:
            return retrying(_exchange, channel, data)
        except tenacity.RetryError:
            return None


def _exchange(channel: Channel, data: bytes) -> Opened:
    envelope = wire.decode(channel(data), Envelope)
    return envelope.open(), envelope


class HeadStore(MutableMapping[str, Head]):
    """Stores each ledger's last head on the server, across runs.

    A ledger restored from an older copy is sound in itself, and its budget looks unspent: only a later
    head shows it. Two runs may share one file: neither overwrites what the other has seen.

    Args:
        path: a JSON file, written whole after every change; ``None``: in memory.

    Raises:
        InputError: the file holds something else.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._path = None if path is None else Path(path)
        self._heads: dict[str, Head] = {}
        if self._path is not None and self._path.exists():
            self._heads = _read(self._path)

    def __getitem__(self, client: str) -> Head:
        return self._heads[client]

    def __setitem__(self, client: str, head: Head) -> None:
        self._heads[client] = head
        self._write(self._latest())

    def __delitem__(self, client: str) -> None:
        del self._heads[client]
        self._write({other: head for other, head in self._latest().items() if other != client})

    def __iter__(self) -> Iterator[str]:
        return iter(self._heads)

    def __len__(self) -> int:
        return len(self._heads)

    def _latest(self) -> dict[str, Head]:
        """The later head of each ledger, of this run and the file."""
        if self._path is None or not self._path.exists():
            return self._heads
        latest = dict(self._heads)
        for client, head in _read(self._path).items():
            if client not in latest or latest[client].seq < head.seq:
                latest[client] = head
        return latest

    def _write(self, heads: Mapping[str, Head]) -> None:
        """Put a new file in the old one's place, so that there is always a whole one."""
        if self._path is None:
            return
        plain = {client: [str(head), head.signature] for client, head in heads.items()}
        partial = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(plain)) + b"\n")
        partial.replace(self._path)


def _read(path: Path) -> dict[str, Head]:
    try:
        plain: Mapping[str, Any] = msgspec.json.decode(
            path.read_bytes(), type=dict[str, tuple[str, str]]
        )
        heads = {client: Head.parse(text) for client, (text, _) in plain.items()}
    except (OSError, msgspec.MsgspecError, InputError):
        raise InputError(
            f"file of heads {path}: cannot be read; put it back from a copy, or ask the owners for "
            "their ledgers' heads"
        ) from None
    return {c: Head(h.seq, h.hash, plain[c][1]) for c, h in heads.items()}


class ChannelDisclosure(Disclosure):
    """A federation reached over channels.

    Args:
        schema: the public data dictionary.
        channels: how to reach each client.
        principal: the server's name; a gate keeps request ids apart by it.
        patience: how long to retry.
        keys: whose signature each client's replies must bear.
        parallel: whether to ask all clients at once, each in a thread; a slow one then counts as
            absent at the deadline without delaying the others.
        heads: the last head seen of each client's ledger; a ledger that does not contain it answers
            nothing.
        session: prefix of every request's id, random unless given. The same queries asked again in
            the same session get the stored bytes, uncharged.

    Raises:
        LedgerError: by :meth:`ask`, a client's head went back or contradicts an earlier one, or a
            reply is not signed: its ledger was rewritten, or another party answers.
    """

    def __init__(
        self,
        schema: Schema,
        channels: Mapping[str, Channel],
        *,
        principal: str = "server",
        patience: RetryLimits | None = None,
        keys: Mapping[str, Identity] | None = None,
        parallel: bool = False,
        heads: HeadStore | None = None,
        session: str = "",
    ) -> None:
        self.schema = schema
        self.clients = tuple(channels)
        self.principal = principal
        #: The last published head of each client's ledger.
        self.heads = HeadStore() if heads is None else heads
        self._earlier = {client: str(head) for client, head in self.heads.items()}
        self._channels = dict(channels)
        self._patience = patience or RetryLimits()
        #: What the ids of all its requests begin with.
        self.session = session or secrets.token_hex(8)
        self._keys, self._parallel = dict(keys or {}), parallel
        self._asked = self._round = 0

    def _ask(
        self, questions: Mapping[str, Sequence[Query]], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        requests = {place: self._request(q, spend) for place, q in distinct(questions).items()}
        self._round += 1
        encoded = {place: wire.encode(request) for place, request in requests.items()}
        asked = {client: places(queries) for client, queries in questions.items()}
        sent = {
            client: [self._reminding(client, requests[p]) or encoded[p] for p in own]
            for client, own in asked.items()
        }
        return {
            client: [
                self._accept(client, requests[place].id, opened)
                for place, opened in zip(asked[client], brought, strict=True)
            ]
            for client, brought in self._reach(sent).items()
        }

    def _offers(
        self, query: Query, clients: Sequence[str], spend: Fraction | None
    ) -> Sequence[str]:
        return self._all_offers([query], clients, spend)[0]

    def _all_offers(
        self, queries: Sequence[Query], clients: Sequence[str], spend: Fraction | None
    ) -> Sequence[Sequence[str]]:
        inquiries = [wire.encode(DryRun(self._request(query, spend))) for query in queries]
        said = self._reach(dict.fromkeys(clients, inquiries))
        return [
            [client for client in clients if _offered(said[client][number])]
            for number in range(len(queries))
        ]

    def _request(self, query: Query, spend: Fraction | None) -> Request:
        """A query of the next round, under a new id."""
        self._asked += 1
        where = f"{self.session}-{self._round + 1}"
        return Request.of(f"{self.session}-{self._asked:06d}", query, self.principal, spend, where)

    def _reminding(self, client: str, request: Request) -> bytes:
        """The request with the head that an earlier run saw; empty if this run saw a later one."""
        seen = self._earlier.get(client, "")
        return wire.encode(replace(request, seen=seen)) if seen else b""

    def _reach(self, sent: Mapping[str, Sequence[bytes]]) -> dict[str, list[Opened | None]]:
        """Send each client its messages, in parallel or in turn; ``None`` without a reply."""
        if self._parallel:
            return self._at_once(sent)
        return {client: self._send(client, data) for client, data in sent.items()}

    def _send(self, client: str, encoded: Sequence[bytes]) -> list[Opened | None]:
        return [self._patience.ask(self._channels[client], data) for data in encoded]

    def _at_once(self, sent: Mapping[str, Sequence[bytes]]) -> dict[str, list[Opened | None]]:
        """Ask every client in its own thread; late ones have not answered."""
        done: dict[str, list[Opened | None]] = {}

        def ask(client: str) -> None:
            done[client] = self._send(client, sent[client])

        threads = [Thread(target=ask, args=(client,), daemon=True) for client in sent]
        for thread in threads:
            thread.start()
        latest = monotonic() + self._patience.deadline * max(map(len, sent.values()), default=0)
        for thread in threads:
            thread.join(max(0.0, latest - monotonic()))
        return {client: done.get(client, [None] * len(data)) for client, data in sent.items()}

    def _accept(self, client: str, request: str, opened: Opened | None) -> Reply:
        if opened is None:
            return Absent(client, request)
        reply, envelope = opened
        if isinstance(reply, DryRunReply) or reply.request not in (request, ""):
            return Absent(client, request)
        self._check_signed(client, opened)
        if envelope.head is not None:
            self._check(client, envelope.head)
        return reply

    def _check_signed(self, client: str, opened: Opened) -> None:
        """Check a release against its owner's key, if that is known."""
        reply, envelope = opened
        if client in self._keys and not isinstance(reply, Refusal | DryRunReply):
            self._keys[client].check(envelope)

    def _check(self, client: str, head: Head) -> None:
        last = self.heads.get(client)
        check_follows(client, last, head)
        if head != last:
            self.heads[client] = head
            self._earlier.pop(client, None)


def check_follows(client: str, last: Head | None, head: Head) -> None:
    """A client's ledger only grows.

    Raises:
        LedgerError: the head is behind the last one, or contradicts it.
    """
    if last is not None and (head.seq < last.seq or (head.seq == last.seq and head != last)):
        raise LedgerError(
            f"client {client!r} published head {head} after {last}: its ledger was rewritten; "
            "ask its owner to verify it against both"
        )


def _offered(opened: Opened | None) -> bool:
    reply = None if opened is None else opened[0]
    return isinstance(reply, DryRunReply) and reply.refused is None
