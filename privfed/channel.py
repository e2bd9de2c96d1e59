"""Asking clients over byte channels: ids, retries with a deadline, and published heads.

A channel carries one encoded request to one client and brings its encoded reply back: a function
call in one process, a socket or an engine's message elsewhere.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import tenacity

from privfed import wire
from privfed.disclosure import Disclosure
from privfed.errors import PrivfedError, WireError
from privfed.query import Query
from privfed.release import Absent, Envelope, Head, Reply, Request
from privfed.schema import Schema

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

    def ask(self, channel: Channel, data: bytes) -> bytes | None:
        """Send until a reply comes or the deadline is over; the same bytes each time."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(
                (ChannelError, WireError, OSError, TimeoutError)
            ),
            wait=tenacity.wait_exponential_jitter(multiplier=self.first, max=self.longest),
            stop=tenacity.stop_after_delay(self.deadline),
        )
        try:
            return retrying(channel, data)
        except tenacity.RetryError:
            return None


class ChannelDisclosure(Disclosure):
    """A federation reached over channels.

    Args:
        schema: the public data dictionary.
        channels: how to reach each client.
        principal: who asks; a gate keeps request ids apart by it.
        patience: how long to go on asking.
    """

    def __init__(
        self,
        schema: Schema,
        channels: Mapping[str, Channel],
        principal: str = "server",
        patience: Patience | None = None,
    ) -> None:
        self.schema = schema
        self.clients = tuple(channels)
        self.principal = principal
        #: The last published head of each client's ledger.
        self.heads: dict[str, Head] = {}
        self._channels = dict(channels)
        self._patience = patience or Patience()
        self._session = secrets.token_hex(8)
        self._asked = 0

    def _ask(
        self, queries: Sequence[Query], clients: Sequence[str], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        requests = [Request.of(self._next_id(), query, self.principal, spend) for query in queries]
        encoded = [(request.id, wire.encode(request)) for request in requests]
        return {client: [self._reply(client, *one) for one in encoded] for client in clients}

    def _next_id(self) -> str:
        self._asked += 1
        return f"{self._session}-{self._asked:06d}"

    def _reply(self, client: str, request: str, data: bytes) -> Reply:
        answered = self._patience.ask(self._channels[client], data)
        if answered is None:
            return Absent(client, request)
        envelope = wire.decode(answered, Envelope)
        if envelope.head is not None:
            self._check(client, envelope.head)
        return envelope.open()

    def _check(self, client: str, head: Head) -> None:
        """A client's ledger only grows; an older head is that of a resent reply."""
        last = self.heads.get(client)
        if last is None or head.seq > last.seq:
            self.heads[client] = head
