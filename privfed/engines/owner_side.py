"""The data owner's side, whatever the engine: bytes of an authenticated asker in, sealed bytes out.

Whatever goes wrong inside, nothing leaves as text; the owner's log tells what was asked how often and
how it ended, and no value.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from privfed.engines.batches import LIMIT, TOGETHER, Batch, Replies, schema_digest
from privfed.errors import WireError
from privfed.exchange.messages import Envelope, Refusal
from privfed.owner.gate import Gate
from privfed.questions import wire
from privfed.questions.threads import one_thread

log = logging.getLogger("privfed.owner")
#: What a round is: what the asking side names so, or a stretch of the owner's own time.
Rounds = Literal["asker", "minute", "hour", "day"]
_STRETCHES = {"minute": "%Y-%m-%dT%H:%M", "hour": "%Y-%m-%dT%H", "day": "%Y-%m-%d"}


class OwnerSide:
    """One gate behind an engine.

    Args:
        gate: the owner's gate.
        rounds: what limits per round count by. The asking side's own names stop mistakes; stretches of
            the owner's time hold against a dishonest one as well.
        together: most bytes of replies in one batch.
        clock: tells the time (UTC).
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

    def answer(self, data: bytes, principal: str) -> bytes:
        """Answer a batch; never raises.

        Args:
            data: an encoded :class:`.Batch`.
            principal: who asks, as the engine or the owner's own door has made sure of.

        Returns:
            encoded :class:`.Replies`; without any where the bytes are no batch, or the asking side
            goes by another schema.
        """
        try:
            batch = wire.decode(data, Batch, LIMIT)
        except WireError:
            log.warning("%s: sent bytes that are no batch", principal)
            return self._replies("", ())
        if not batch.messages:
            return self._replies(batch.id, ())
        if batch.schema != self._schema:
            log.warning("%s: goes by another schema; nothing was answered", principal)
            return self._replies(batch.id, ())
        return self._replies(batch.id, self._envelopes(batch, principal))

    def _envelopes(self, batch: Batch, principal: str) -> tuple[bytes, ...]:
        """Replies to the first messages, as many as may go together."""
        found: list[bytes] = []
        size, outcomes = 0, Counter[str]()
        for message in batch.messages:
            envelope = self._one(message, principal)
            size += len(envelope)
            if found and size > self._together:
                break  # it is recorded, and the same bytes go when it is asked again
            found.append(envelope)
            outcomes[_outcome(envelope)] += 1
        told = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items()))
        log.info("%s: %d of %d answered: %s", principal, len(found), len(batch.messages), told)
        return tuple(found)

    def _one(self, message: bytes, principal: str) -> bytes:
        round = self._clock().strftime(self._stretch) if self._stretch else ""
        with one_thread():
            return self.gate.serve(message, principal=principal, round=round)

    def _replies(self, id: str, envelopes: tuple[bytes, ...]) -> bytes:
        return wire.encode(Replies(id, self.gate.owner, self._schema, envelopes))


def _outcome(data: bytes) -> str:
    """How a reply ended, in words of a closed set."""
    envelope = wire.decode(data, Envelope)
    reply = envelope.open() if envelope.status == "refusal" else None
    return f"refused ({reply.reason})" if isinstance(reply, Refusal) else envelope.status
