"""Many messages in one: what an engine carries to a client, and what it brings back.

Engines differ in what one message costs them, from a millisecond to seconds; so a round's questions
to a client travel together, split only where they would not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from privfed.questions import wire
from privfed.tables.schema import Schema

#: Most bytes of messages, or of replies, that go together; one that is larger goes alone. Engines
#: take larger ones, but keep them in memory several times over.
TOGETHER = 16 * 2**20
#: Largest batch that is decoded, in bytes.
LIMIT = wire.LIMIT


@dataclass(frozen=True)
class Batch:
    """Messages to one client, to be answered in order.

    Args:
        id: comes back with the replies, so that a late reply is not taken for another one's.
        schema: digest of the schema that the asking side goes by; an owner whose records are clipped
            to another one answers nothing.
        messages: encoded requests and inquiries; none asks who is there.
    """

    id: str
    schema: str
    messages: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Replies:
    """A client's replies, to the first messages of a batch.

    Args:
        id: of the batch.
        client: who answers.
        schema: digest of the schema that the records are clipped to.
        envelopes: encoded envelopes, one for each of the first messages; what was left over for its
            size is to be asked in another batch.
    """

    id: str
    client: str
    schema: str
    envelopes: tuple[bytes, ...] = ()


def schema_digest(schema: Schema) -> str:
    """SHA-256 of a schema's public contents, hexadecimal."""
    return wire.digest(wire.encode(schema.to_dict()))


def first_that_fit(messages: Sequence[bytes], size: int) -> tuple[bytes, ...]:
    """The first of some messages, up to ``size`` bytes together, but one at least."""
    totals: Iterable[int] = accumulate(map(len, messages))
    fitting = sum(total <= size for total in totals)
    return tuple(messages[: max(1, fitting)])
