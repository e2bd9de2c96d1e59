"""Batches of messages to a client, and of replies: a round's messages travel together, split by size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from privfed.questions import wire

if TYPE_CHECKING:
    from privfed.tables.schema import Schema

#: Maximum bytes of messages, or of replies, in one batch; a larger message goes alone. Engines copy a
#: batch several times in memory.
TOGETHER = 16 * 2**20
LIMIT = wire.LIMIT  #: Maximum size of a batch that is decoded, in bytes


@dataclass(frozen=True)
class Batch:
    """Messages to one client, answered in order."""

    id: str  #: returned with the replies, so that late replies are recognised
    schema: str  #: digest of the server's schema; an owner with another schema does not answer
    #: encoded requests and inquiries; empty to ask for the client's name
    messages: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Replies:
    """A client's replies to the first messages of a batch."""

    id: str  #: the batch's
    client: str  #: the replying client
    schema: str  #: digest of the schema that its records are clipped to
    #: encoded envelopes of the first messages; the rest need another batch
    envelopes: tuple[bytes, ...] = ()


class Carrier:
    """Base class of engines' transport of batches, which reports each client's reply or absence."""

    heard: Callable[[str], None] = staticmethod(lambda client: None)  #: Called on a reply
    missed: Callable[[str], None] = staticmethod(lambda client: None)  #: Called if none comes
    #: Seconds after which a batch without a reply is sent again, as it may be lost; doubled each time.
    lost: float = math.inf
    #: Seconds to wait for an owner's first answer before reporting silence.
    first_answer: float = 0.0


def schema_digest(schema: Schema) -> str:
    """Return the SHA-256 of a schema's public contents, hexadecimal."""
    return wire.digest(wire.encode(schema.to_dict()))


def first_that_fit(messages: Sequence[bytes], size: int) -> tuple[bytes, ...]:
    """Return the first messages, up to `size` bytes together, but at least one."""
    totals: Iterable[int] = accumulate(map(len, messages))
    fitting = sum(total <= size for total in totals)
    return tuple(messages[: max(1, fitting)])
