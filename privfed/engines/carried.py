"""A federation that an engine carries messages to: a round's questions to a client travel together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, sleep
from typing import Any

from privfed.engines.batches import LIMIT, TOGETHER, Batch, Replies, first_that_fit, schema_digest
from privfed.engines.journal import Journal, JournalLine
from privfed.errors import SchemaError, WireError
from privfed.exchange.channel import (
    ChannelDisclosure,
    ChannelError,
    Opened,
    RetryLimits,
    check_follows,
)
from privfed.exchange.messages import Envelope, Head
from privfed.questions import wire
from privfed.tables.schema import Schema

#: Carries each client's batch and gives the replies that came within some seconds, by client.
Carry = Callable[[Mapping[str, bytes], float], Mapping[str, bytes]]
#: Holds a client's reply against the last head of its ledger, and gives the head after it.
Trusted = Callable[[str, Head | None, Opened], Head | None]
#: How long to go on asking a client, by default: engines notice late that somebody is gone.
PATIENCE = RetryLimits(deadline=120.0, first=0.05, longest=5.0)


#: Most seconds to wait in a round for a client that was silent until a deadline.
SECOND_CHANCE = 30.0


class CarriedDisclosure(ChannelDisclosure):
    """A federation behind an engine.

    Args:
        schema: the public data dictionary; a client that goes by another one ends the study.
        clients: their names.
        carry: the engine.
        patience: how long to go on asking; a try waits for at most half of what is left. A client that
            was silent until the deadline is tried once in each later round, until it answers.
        journal: what an earlier try of this study was told, and what this one will be.
        together: most bytes of messages in one batch.
        rest: see :class:`.ChannelDisclosure`: principal, keys, heads.

    Raises:
        SchemaError: by :meth:`ask`, a client's records are clipped to another schema.
    """

    def __init__(
        self,
        schema: Schema,
        clients: Sequence[str],
        carry: Carry,
        *,
        patience: RetryLimits = PATIENCE,
        journal: Journal | None = None,
        together: int = TOGETHER,
        **rest: Any,
    ) -> None:
        self.journal = Journal() if journal is None else journal
        channels = {client: partial(_alone, client) for client in clients}
        super().__init__(schema, channels, patience=patience, session=self.journal.session, **rest)
        self._carry, self._together = carry, together
        self._digest, self._batches = schema_digest(schema), 0
        self._gone: set[str] = set()  # who was silent until the last deadline
        envelopes = [(line.client, wire.decode(line.envelope, Envelope)) for line in self.journal]
        self._passed = {(client, str(envelope.head)) for client, envelope in envelopes}

    def _reach(self, sent: Mapping[str, Sequence[bytes]]) -> dict[str, list[Opened | None]]:
        waiting = {
            client: _Waiting(client, messages, self.heads.get(client))
            for client, messages in sent.items()
        }
        for one in waiting.values():
            one.recall(self.journal)
        gone = [one for one in waiting.values() if one.left and one.client in self._gone]
        if gone:
            self._try(gone, min(SECOND_CHANCE, self._patience.deadline / 4))
        self._insist([one for one in waiting.values() if one not in gone or not self._silent(one)])
        self._gone = (self._gone - set(waiting)) | {c for c, one in waiting.items() if one.left}
        return {client: one.opened for client, one in waiting.items()}

    @staticmethod
    def _silent(one: _Waiting) -> bool:
        """Whether a client has said nothing at all."""
        return all(opened is None for opened in one.opened)

    def _insist(self, waiting: Sequence[_Waiting]) -> None:
        """Send what is left again and again until the deadline."""
        latest, pause = monotonic() + self._patience.deadline, self._patience.first
        while (left := [one for one in waiting if one.left]) and monotonic() < latest:
            if not self._try(left, max(self._patience.first, (latest - monotonic()) / 2)):
                sleep(min(pause, max(0.0, latest - monotonic())))
                pause = min(2 * pause, self._patience.longest)

    def _try(self, waiting: Sequence[_Waiting], seconds: float) -> bool:
        """Send what is left once; say whether everybody who was asked said something."""
        batches = {one.client: self._batch(one) for one in waiting}
        encoded = {client: wire.encode(batch) for client, batch in batches.items()}
        brought = self._carry(encoded, seconds)
        told = {
            one.client: lines
            for one in waiting
            if (lines := self._read(one, batches[one.client], brought.get(one.client, b"")))
        }
        self.journal.keep([line for lines in told.values() for line in lines])
        return len(told) == len(waiting)

    def _batch(self, waiting: _Waiting) -> Batch:
        self._batches += 1
        messages = first_that_fit([waiting.messages[n] for n in waiting.left], self._together)
        return Batch(f"{self.session}-{self._batches}", self._digest, messages)

    def _read(self, waiting: _Waiting, batch: Batch, data: bytes) -> list[JournalLine]:
        """Take the replies to a batch; what cannot be read, or answers something else, is none."""
        try:
            replies = wire.decode(data, Replies, LIMIT)
        except WireError:
            return []
        if replies.id != batch.id or replies.client != waiting.client:
            return []
        if replies.schema != self._digest:
            raise SchemaError(
                f"client {waiting.client!r} clips its records to another schema than the study's; "
                "give both sides the same schema.toml"
            )
        return waiting.take(replies.envelopes, self._trusted)

    def _trusted(self, client: str, last: Head | None, opened: Opened) -> Head | None:
        """Check a reply before it is written down, or a study could never go on without it.

        Returns:
            the last head of the client's ledger.

        Raises:
            LedgerError: it is not signed by its owner, or the ledger was rewritten.
        """
        self._check_signed(client, opened)
        head = opened[1].head
        if head is None or (client, str(head)) in self._passed:
            return last
        check_follows(client, last, head)
        return head

    def _check(self, client: str, head: Head) -> None:
        """Heads that this study saw before it was cut off are no step back."""
        if (client, str(head)) not in self._passed:
            super()._check(client, head)


@dataclass(eq=False)
class _Waiting:
    """What one client is asked in a round, what it has said, and the last head of its ledger."""

    client: str
    messages: Sequence[bytes]
    last: Head | None
    opened: list[Opened | None] = field(init=False)

    def __post_init__(self) -> None:
        self.opened = [None] * len(self.messages)

    @property
    def left(self) -> list[int]:
        """Positions of the messages that have no reply."""
        return [number for number, opened in enumerate(self.opened) if opened is None]

    def recall(self, journal: Journal) -> None:
        """Take from the journal what the client has said before."""
        for number, message in enumerate(self.messages) if len(journal) else ():
            line = journal.find(self.client, _id(message))
            if line is not None:
                self.opened[number] = _opened(line.envelope)

    def take(self, envelopes: Sequence[bytes], trusted: Trusted) -> list[JournalLine]:
        """Take replies to the first messages that are left, up to one that cannot be read."""
        lines = []
        for number, envelope in zip(self.left, envelopes, strict=False):
            message = self.messages[number]
            try:
                opened = _opened(envelope)
            except WireError:
                break
            if opened[0].request not in (_id(message), ""):
                break
            self.last = trusted(self.client, self.last, opened)
            self.opened[number] = opened
            lines.append(JournalLine(self.client, _id(message), message, envelope))
        return lines


def _opened(envelope: bytes) -> Opened:
    sealed = wire.decode(envelope, Envelope)
    return sealed.open(), sealed


@dataclass(frozen=True)
class _Named:
    """As much of a request as tells its id."""

    id: str = ""


@dataclass(frozen=True)
class _About(_Named):
    """As much of a request or an inquiry as tells its id."""

    about: _Named | None = None


def _id(message: bytes) -> str:
    named = wire.decode(message, _About)
    return named.id if named.about is None else named.about.id


def _alone(client: str, data: bytes) -> bytes:
    """Messages go in batches alone."""
    raise ChannelError(f"client {client!r} is asked in batches")
