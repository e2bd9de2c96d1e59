"""The data owner's side of any engine: an authenticated principal's bytes in, sealed bytes out.

Errors are not sent as text; the owner's log has counts and outcomes, but no values.
"""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Lock
from typing import Literal

from privfed.engines.batches import LIMIT, TOGETHER, Batch, Replies, schema_digest
from privfed.engines.owner_log import LedgerLog
from privfed.errors import WireError
from privfed.exchange.messages import Envelope, Refusal
from privfed.ledger.store import at_one_time
from privfed.owner.gate import Gate
from privfed.questions import wire
from privfed.questions.threads import one_thread

log = logging.getLogger("privfed.owner")
#: Definition of a round: the server's name for it, or a period of the owner's clock.
Rounds = Literal["asker", "minute", "hour", "day"]
_STRETCHES = {"minute": "%Y-%m-%dT%H:%M", "hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d"}


class OwnerSide:
    """One gate behind an engine.

    Args:
        gate: the owner's gate.
        rounds: definition of rounds for limits. The server's names prevent mistakes; periods of the owner's clock
            also bind a dishonest server.
        together: maximum bytes of replies in one batch.
        clock: returns the time (UTC).
    """

    def __init__(
        self,
        gate: Gate,
        *,
        rounds: Rounds = "asker",
        together: int = TOGETHER,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.gate = gate
        self._schema = schema_digest(gate.schema)
        self._stretch, self._clock = _STRETCHES.get(rounds, ""), clock
        self._together = together
        self._log = LedgerLog(gate.ledger, gate.policy.guards)
        #: Number of each principal's messages by outcome, from a closed set.
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self._counting = Lock()

    def answer(self, data: bytes, principal: str) -> bytes:
        """Answer an encoded :class:`.Batch` of an authenticated principal; never raises.

        Returns:
            encoded :class:`.Replies`; empty if the bytes are no batch, or the schemas differ.
        """
        try:
            batch = wire.decode(data, Batch, LIMIT)
        except WireError:
            log.warning("%s: sent an invalid batch", principal)
            return self._replies("", ())
        if not batch.messages:
            return self._replies(batch.id, ())
        if batch.schema != self._schema:
            log.warning("%s: has another schema; nothing was answered", principal)
            return self._replies(batch.id, ())
        return self._replies(batch.id, self._envelopes(batch, principal))

    def _envelopes(self, batch: Batch, principal: str) -> tuple[bytes, ...]:
        """Answer as many messages, in order, as fit into one batch."""
        envelopes: list[bytes] = []
        size, outcomes = 0, Counter[str]()
        now = self._clock()
        round = now.strftime(self._stretch) if self._stretch else ""
        with at_one_time(now):
            for message in batch.messages:
                envelope = self._one(message, principal, round)
                size += len(envelope)
                if envelopes and size > self._together:
                    break  # recorded; a retry gets the same bytes
                envelopes.append(envelope)
                outcomes[_outcome(envelope)] += 1
        with self._counting:
            self.outcomes.update({(principal, name): count for name, count in outcomes.items()})
        self._log.follow()
        facts = {"event": "batch", "principal": principal, "messages": len(batch.messages)}
        counts = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
        log.info(
            *("%s: %d of %d answered: %s", principal, len(envelopes), len(batch.messages), counts),
            extra={"facts": {**facts, "answered": dict(sorted(outcomes.items()))}},
        )
        return tuple(envelopes)

    def _one(self, message: bytes, principal: str, round: str) -> bytes:
        before = sum(self.gate.breaches.values())
        with one_thread():
            sealed = self.gate.serve(message, principal=principal, round=round)
        if sum(self.gate.breaches.values()) > before:
            log.error(
                "a protected query failed (%s): no epsilon covers what the failure revealed; the gate is closed "
                "until you have looked: privfed ledger reopen",
                ", ".join(sorted(self.gate.breaches)),
            )
        if self.gate.ledger_fault:
            log.error("nothing is answered that cannot be recorded: %s", self.gate.ledger_fault)
            self.gate.ledger_fault = ""
        return sealed

    def _replies(self, id: str, envelopes: tuple[bytes, ...]) -> bytes:
        return wire.encode(Replies(id, self.gate.owner, self._schema, envelopes))


def _outcome(data: bytes) -> str:
    envelope = wire.decode(data, Envelope)
    reply = envelope.open() if envelope.status == "refusal" else None
    return f"refused ({reply.reason})" if isinstance(reply, Refusal) else envelope.status
