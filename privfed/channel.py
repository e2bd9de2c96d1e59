"""Asking clients over byte channels: ids, retries with a deadline, and published heads.

A channel carries one encoded request to one client and brings its encoded reply back: a function
call in one process, a socket or an engine's message elsewhere.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from threading import Thread
from time import monotonic

import tenacity

from privfed import wire
from privfed.disclosure import Disclosure
from privfed.errors import LedgerError, PrivfedError, WireError
from privfed.query import Query
from privfed.release import Absent, Envelope, Head, Reply, Request
from privfed.schema import Schema
from privfed.signing import Identity

#: Carries one encoded request to a client and gives the encoded envelope.
Channel = Callable[[bytes], bytes]


class ChannelError(PrivfedError):
    """The client could not be reached this time; the same request may be sent again."""


@dataclass(frozen=True)
class Patience:
    """How long to go on asking a client that cannot be reached.

    Args:
        deadline: seconds after which it counts as absent.
        first: seconds before the second try; doubled for each further one.
        longest: most seconds between two tries.
    """

    deadline: float = 30.0
    first: float = 0.05
    longest: float = 5.0

    def ask(self, channel: Channel, data: bytes) -> Envelope | None:
        """Send until a reply comes or the deadline is over; the same bytes each time.

        A reply that cannot be read is no reply: the client sends its stored bytes again.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(
                (ChannelError, WireError, OSError, TimeoutError)
            ),
            wait=tenacity.wait_exponential(self.first, self.longest)
            + tenacity.wait_random(0, self.first),
            stop=tenacity.stop_after_delay(self.deadline),
        )
        try:
            return retrying(_exchange, channel, data)
        except tenacity.RetryError:
            return None


def _exchange(channel: Channel, data: bytes) -> Envelope:
    envelope = wire.decode(channel(data), Envelope)
    envelope.open()
    return envelope


class ChannelDisclosure(Disclosure):
    """A federation reached over channels.

    Args:
        schema: the public data dictionary.
        channels: how to reach each client.
        principal: who asks; a gate keeps request ids apart by it.
        patience: how long to go on asking.
        keys: whose signature each client's heads must bear, where they are signed.
        parallel: whether to ask the clients at the same time, each in a thread of its own; one that
            is merely slow then counts as absent when the deadline is over, without holding up the
            others. In turn, a call that hangs is waited for.

    Raises:
        LedgerError: by :meth:`ask`, a client's published head went back, contradicts an earlier
            one, or is not signed: its ledger was rewritten.
    """

    def __init__(
        self,
        schema: Schema,
        channels: Mapping[str, Channel],
        principal: str = "server",
        patience: Patience | None = None,
        keys: Mapping[str, Identity] | None = None,
        parallel: bool = False,
    ) -> None:
        self.schema = schema
        self.clients = tuple(channels)
        self.principal = principal
        #: The last published head of each client's ledger.
        self.heads: dict[str, Head] = {}
        self._channels = dict(channels)
        self._patience = patience or Patience()
        self._session = secrets.token_hex(8)
        self._keys, self._parallel = dict(keys or {}), parallel
        self._asked = self._round = 0

    def _ask(
        self, queries: Sequence[Query], clients: Sequence[str], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        self._round += 1
        where = f"{self._session}-{self._round}"
        requests = [Request.of(self._next_id(), q, self.principal, spend, where) for q in queries]
        encoded = [wire.encode(request) for request in requests]
        envelopes = self._at_once(clients, encoded) if self._parallel else {}
        return {
            client: [
                self._accept(client, request.id, envelope)
                for request, envelope in zip(
                    requests, envelopes.get(client) or self._send(client, encoded), strict=True
                )
            ]
            for client in clients
        }

    def _next_id(self) -> str:
        self._asked += 1
        return f"{self._session}-{self._asked:06d}"

    def _send(self, client: str, encoded: Sequence[bytes]) -> list[Envelope | None]:
        return [self._patience.ask(self._channels[client], data) for data in encoded]

    def _at_once(
        self, clients: Sequence[str], encoded: Sequence[bytes]
    ) -> dict[str, list[Envelope | None]]:
        """Ask every client in its own thread; whoever is late has not answered."""
        done: dict[str, list[Envelope | None]] = {}

        def ask(client: str) -> None:
            done[client] = self._send(client, encoded)

        threads = [Thread(target=ask, args=(client,), daemon=True) for client in clients]
        for thread in threads:
            thread.start()
        latest = monotonic() + self._patience.deadline * len(encoded)
        for thread in threads:
            thread.join(max(0.0, latest - monotonic()))
        return {client: done.get(client, [None] * len(encoded)) for client in clients}

    def _accept(self, client: str, request: str, envelope: Envelope | None) -> Reply:
        if envelope is None:
            return Absent(client, request)
        if envelope.head is not None:
            self._check(client, envelope.head)
        return envelope.open()

    def _check(self, client: str, head: Head) -> None:
        """A client's ledger only grows, and every question is asked and answered in turn."""
        if client in self._keys:
            self._keys[client].check(head)
        last = self.heads.get(client)
        if last is not None and (head.seq < last.seq or (head.seq == last.seq and head != last)):
            raise LedgerError(
                f"client {client!r} published head {head} after {last}: its ledger was rewritten; "
                "ask its owner to verify it against both"
            )
        self.heads[client] = head
