"""A federation behind an engine: all queries of a round to one client are sent together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from time import monotonic, sleep
from typing import Any

from privfed.engines.batches import (
    LIMIT,
    TOGETHER,
    Batch,
    Carrier,
    Replies,
    first_that_fit,
    schema_digest,
)
from privfed.engines.journal import Journal, JournalLine
from privfed.engines.progress import Progress
from privfed.errors import ChannelError, InputError, SchemaError, WireError
from privfed.exchange.channel import ChannelDisclosure, Opened, RetryLimits, check_follows
from privfed.exchange.messages import (
    EXPLANATIONS,
    Absent,
    DryRunReply,
    Envelope,
    Head,
    Reason,
    Reply,
)
from privfed.questions import wire
from privfed.questions.query import Query
from privfed.tables.schema import Schema

#: Carries each client's batch and returns the replies that arrive within some seconds, by client.
Carry = Callable[[Mapping[str, bytes], float], Mapping[str, bytes]]
#: Checks a client's reply against the last head of its ledger, and returns the next head.
Trusted = Callable[[str, Head | None, Opened], Head | None]
#: Default retry limits: engines notice late that a client is gone.
PATIENCE = RetryLimits(deadline=120.0, first=0.05, longest=5.0)
#: Maximum seconds to wait in a round for a client that missed an earlier deadline.
SECOND_CHANCE = 30.0


class RemoteDisclosure(ChannelDisclosure):
    """A federation behind an engine.

    Args:
        schema: the public data dictionary (SchemaError: a client has another one).
        carry: the engine.
        patience: retry limits; a try waits for at most half of the remaining time. A client
            that missed a deadline is tried once in each later round, until it answers.
        journal: replies of an earlier, interrupted run of this study, and of this one. A reply that did not come in
            time enters it as missing once the next query goes out, which may depend on that. A resumed study so
            repeats the same queries, and asks anew only for what no later query depends on.
        together: maximum bytes of messages in one batch.
        tell: called with a line for each round, and for each silent owner.
        privacy: what :meth:`privacy` returns; by default it is not known.
        rest: see :class:`.ChannelDisclosure`: principal, keys, heads.
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
        tell: Callable[[str], None] | None = None,
        privacy: Callable[[], dict[str, Any] | None] | None = None,
        **options: Any,
    ) -> None:
        self._carrier = carry if isinstance(carry, Carrier) else Carrier()
        self._progress = (
            None if tell is None else Progress(tell, first_answer=self._carrier.first_answer)
        )
        if self._progress is not None:
            self._carrier.heard, self._carrier.missed = self._progress.heard, self._progress.missed
        self.journal = Journal() if journal is None else journal
        self._privacy = privacy
        channels = {client: partial(_alone, client) for client in clients}
        super().__init__(
            schema, channels, patience=patience, session=self.journal.session, **options
        )
        self._carry, self._together = carry, together
        self._digest, self._batches = schema_digest(schema), 0
        self._gone: set[str] = set()  # clients that missed their last deadline
        # clients without a complete answer in the last exchange, in this run or an earlier one
        self._missing: set[str] = set()
        # those whose gates last refused because they cannot write their ledgers
        self._unwritten: set[str] = set()
        #: By client, the rounds with messages to it, and those without a complete answer.
        self.reached: Counter[str] = Counter()
        self.silent: Counter[str] = Counter()
        #: By client, the queries that others offered to answer but its gate did not.
        self.declined: Counter[str] = Counter()
        #: Messages without a reply in time, since which no further query went out.
        self.pending: list[JournalLine] = []
        envelopes = [(x.client, wire.decode(x.envelope, Envelope)) for x in self.journal.replies]
        self._passed = {(client, str(envelope.head)) for client, envelope in envelopes}

    def privacy(self) -> dict[str, Any] | None:
        """See the base."""
        return None if self._privacy is None else self._privacy()

    def _ask(
        self, questions: Mapping[str, Sequence[Query]], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        self._keep_missing()
        return super()._ask(questions, spend)

    def _keep_missing(self) -> None:
        """Record the missing replies, durably, before a query that may depend on their absence."""
        self.journal.keep(self.pending)
        self.pending = []

    def _reach(self, sent: Mapping[str, Sequence[bytes]]) -> dict[str, list[Opened | None]]:
        waiting = {
            client: _Waiting(client, messages, self.heads.get(client))
            for client, messages in sent.items()
        }
        for one in waiting.values():
            one.recall(self.journal)
        unanswered = [client for client, one in waiting.items() if one.left]
        if self._progress is not None and not unanswered:
            self._progress.recalled()
        with (
            nullcontext()
            if self._progress is None or not unanswered
            else self._progress.round(unanswered)
        ):
            gone = [one for one in waiting.values() if one.left and one.client in self._gone]
            if gone:
                self._try(gone, min(SECOND_CHANCE, self._patience.deadline / 4))
            self._insist([one for one in waiting.values() if one not in gone or any(one.opened)])
        self._gone -= set(waiting)
        self._gone |= {client for client, one in waiting.items() if one.left}
        self.pending += [
            JournalLine(one.client, _id(one.messages[number]), one.messages[number], b"")
            for one in waiting.values()
            for number in one.left
            if _id(one.messages[number]) != self._key_check
        ]
        self.reached.update(list(waiting))
        self._unwritten = {client for client, one in waiting.items() if one.unwritten}
        self._missing = {client for client, one in waiting.items() if None in one.opened}
        self.silent.update(self._missing)
        return {client: one.opened for client, one in waiting.items()}

    def _all_offers(
        self, queries: Sequence[Query], clients: Sequence[str], spend: Fraction | None
    ) -> Sequence[Sequence[str]]:
        self._keep_missing()
        offered = super()._all_offers(queries, clients, spend)
        for each in filter(None, offered):
            self.declined.update(set(clients) - self._missing - set(each))
        return offered

    def _survivors(self, id: str, owners: tuple[str, ...]) -> tuple[str, ...]:
        """Return the owners whose shares are added up; those of an earlier run, if owners agreed to its list."""
        noted = self.journal.find("", id)
        if noted is None:
            self.journal.keep([JournalLine("", id, wire.encode(owners), b"")])
            return owners
        return wire.decode(noted.message, tuple[str, ...])

    def _insist(self, waiting: Sequence[_Waiting]) -> None:
        latest, pause = monotonic() + self._patience.deadline, self._patience.first
        lost = self._carrier.lost
        while (unanswered := [one for one in waiting if one.left]) and monotonic() < latest:
            seconds, lost = min((latest - monotonic()) / 2, lost), 2 * lost
            if not self._try(unanswered, max(self._patience.first, seconds)):
                sleep(min(pause, max(0.0, latest - monotonic())))
                pause = min(2 * pause, self._patience.longest)

    def _try(self, waiting: Sequence[_Waiting], seconds: float) -> bool:
        """Send the remaining messages once; return whether every client replied."""
        batches = {one.client: self._batch(one) for one in waiting}
        encoded = {client: wire.encode(batch) for client, batch in batches.items()}
        replies = self._carry(encoded, seconds)
        received = {
            one.client: lines
            for one in waiting
            if (lines := self._read(one, batches[one.client], replies.get(one.client, b"")))
        }
        if self._progress is not None:
            self._progress.unwritten([one.client for one in waiting if one.unwritten])
        self.journal.keep([line for lines in received.values() for line in lines])
        return len(received) == len(waiting)

    def _batch(self, waiting: _Waiting) -> Batch:
        self._batches += 1
        messages = first_that_fit([waiting.messages[n] for n in waiting.left], self._together)
        return Batch(f"{self.session}-{self._batches}", self._digest, messages)

    def _read(self, waiting: _Waiting, batch: Batch, data: bytes) -> list[JournalLine]:
        """Read the replies to a batch; unreadable ones, or to another batch, count as none."""
        try:
            replies = wire.decode(data, Replies, LIMIT)
        except WireError:
            return []
        if replies.id != batch.id or replies.client != waiting.client:
            return []
        if replies.schema != self._digest:
            raise SchemaError(
                f"client {waiting.client!r} has another schema than the study; "
                "give both sides the same schema.toml"
            )
        return waiting.take(replies.envelopes, self._trusted)

    def _trusted(self, client: str, last: Head | None, opened: Opened) -> Head | None:
        """Check a reply before it enters the journal; return its ledger's last head (WireError: it is none)."""
        self._check_signed(client, opened)
        if not self._fits(client, opened[0]):
            raise WireError(f"client {client!r}: another form than the question's")
        head = opened[1].head
        if head is None or (client, str(head)) in self._passed:
            return last
        check_follows(client, last, head)
        return head

    def _accept(self, client: str, request: str, opened: Opened | None) -> Reply:
        reply = super()._accept(client, request, opened)
        if isinstance(reply, Absent) and client in self._unwritten:
            return replace(reply, text=EXPLANATIONS[Reason.LEDGER])
        return reply

    def _check(self, client: str, head: Head) -> None:
        """Accept heads that the study saw before it was interrupted."""
        if (client, str(head)) not in self._passed:
            super()._check(client, head)


@dataclass(eq=False)
class _Waiting:
    """One client's messages of a round, its replies, and the last head of its ledger."""

    client: str
    messages: Sequence[bytes]
    last: Head | None
    opened: list[Opened | None] = field(init=False)
    #: messages without which an earlier run went on
    given_up: set[int] = field(default_factory=set)
    unwritten: bool = False  #: whether its gate last refused because it cannot write its ledger

    def __post_init__(self) -> None:
        self.opened = [None] * len(self.messages)

    @property
    def left(self) -> list[int]:
        """Indices of the messages that still wait for a reply."""
        return [
            number
            for number, opened in enumerate(self.opened)
            if opened is None and number not in self.given_up
        ]

    def recall(self, journal: Journal) -> None:
        """Take earlier replies from the journal (InputError: they are to another query)."""
        for number, message in enumerate(self.messages) if len(journal) else ():
            line = journal.find(self.client, _id(message))
            if line is None:
                continue
            if _query_of(line.message) != _query_of(message):
                raise InputError(
                    f"the journal has another query than this run's under id {_id(message)}, so the study cannot go "
                    "on from it; run it again with the versions of privfed and its libraries that began it, or name "
                    "a new folder"
                )
            if line.envelope:
                self.opened[number] = _opened(line.envelope)
            else:
                self.given_up.add(number)

    def take(self, envelopes: Sequence[bytes], trusted: Trusted) -> list[JournalLine]:
        """Take replies to the first remaining messages, up to an unreadable one.

        A gate that cannot write its ledger has answered nothing yet: it is asked again, now or by a later run.
        """
        lines = []
        self.unwritten = False
        for number, envelope in zip(self.left, envelopes, strict=False):
            message = self.messages[number]
            try:
                opened = _opened(envelope)
                if opened[0].request not in (_id(message), ""):
                    break
                self.last = trusted(self.client, self.last, opened)
            except WireError:
                break
            self.unwritten = _unwritten(opened[0])
            if self.unwritten:
                break
            self.opened[number] = opened
            lines.append(JournalLine(self.client, _id(message), message, envelope))
        return lines


def _opened(envelope: bytes) -> Opened:
    sealed = wire.decode(envelope, Envelope)
    return sealed.open(), sealed


def _unwritten(reply: Reply | DryRunReply) -> bool:
    """Whether a gate refuses because it cannot write its ledger, for example on a full disk."""
    refused = reply.refused if isinstance(reply, DryRunReply) else getattr(reply, "reason", None)
    return refused == Reason.LEDGER


@dataclass(frozen=True)
class _Named:
    """The id and the query of a request."""

    id: str = ""
    kind: str = ""
    fields: bytes = b""


@dataclass(frozen=True)
class _About(_Named):
    """The same of a request or a dry run."""

    about: _Named | None = None


def _named(message: bytes) -> _Named:
    named = wire.decode(message, _About)
    return named if named.about is None else named.about


def _id(message: bytes) -> str:
    return _named(message).id


def _query_of(message: bytes) -> tuple[str, bytes]:
    named = _named(message)
    return named.kind, named.fields


def _alone(client: str, data: bytes) -> bytes:
    """Refuse a single message, as messages are sent in batches."""
    raise ChannelError(f"client {client!r} is asked in batches")
