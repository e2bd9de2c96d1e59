"""The canonical form of a ledger's rows, and the hash that chains them.

The hash of a row is SHA-256 over, in this order: the previous row's hash (32 bytes; zeros before the
first), the row's number and the byte lengths of its six other columns (seven unsigned 64-bit
integers, big-endian), and the columns themselves (time, event, principal, request, body, payload;
text as UTF-8). Lengths come first, so that no two rows have one form. A body is JSON with its keys
sorted and no white space.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from operator import methodcaller
from typing import Any

import msgspec

from privfed.errors import LedgerError
from privfed.exchange.messages import Head

#: Number of the canonical form, and those that are still read: in format 3 laws were lists.
FORMAT, READABLE = 4, (3, 4)
GENESIS = "0" * 64
#: Words for rows that only the ledger itself writes.
OWN_EVENTS = frozenset(
    ["begun", "policy", "counted", "reserved", "block", "drawn", "released", "failed", "refused"]
)
#: The columns of a row in order, without its hash.
COLUMNS = ("seq", "time", "event", "principal", "request", "body", "payload")
Row = tuple[int, str, str, str, str, bytes, bytes]

_LENGTHS = struct.Struct(">7Q")
_TYPES = (int, str, str, str, str, bytes, bytes, str)


#: Writes public facts in their canonical form; objects by their ``to_plain``.
encode_body: Callable[[Any], bytes] = msgspec.json.Encoder(
    order="sorted", enc_hook=methodcaller("to_plain")
).encode


@dataclass(frozen=True)
class Entry:
    """One row of the ledger.

    Args:
        seq: its number, from 1.
        time: when it was written, ISO 8601 in UTC; never before its predecessor's.
        event: ``begun``, ``policy``, ``reserved``, ``block``, ``drawn``, ``released``, ``failed``,
            ``refused``, or a note's own word.
        principal: who asked.
        request: the request's id.
        body: public facts.
        payload: the question's public values, or the bytes that left.
        hash: SHA-256 of all this and of the row before.
    """

    seq: int
    time: str
    event: str
    principal: str
    request: str
    body: dict[str, Any]
    payload: bytes
    hash: str

    @property
    def head(self) -> Head:
        """The chain's head after this entry."""
        return Head(self.seq, self.hash)

    @classmethod
    def of(cls, columns: tuple[Any, ...]) -> Entry:
        """Read a stored row: its columns and its hash."""
        seq, time, event, principal, request, body, payload, digest = columns
        try:
            facts = msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.MsgspecError, TypeError) as error:
            raise LedgerError(f"entry {seq} of the ledger cannot be read: {error}") from None
        return cls(seq, time, event, principal, request, facts, payload, digest)


def link(previous: str, row: Row) -> str:
    """Give the hash of a row after the one whose hash is ``previous``."""
    seq, *texts, body, payload = row
    columns = [str(text).encode() for text in texts]
    columns += [body, payload]
    lengths = _LENGTHS.pack(seq, *map(len, columns))
    return sha256(b"".join((bytes.fromhex(previous), lengths, *columns))).hexdigest()


def fits(previous: str, stored: tuple[Any, ...]) -> bool:
    """Whether a stored row (columns and hash) follows the one whose hash is ``previous``.

    Types are held to exactly: text that became a blob of the same bytes is another row.
    """
    if tuple(map(type, stored)) != _TYPES or stored[0] < 0:
        return False
    try:
        return bool(link(previous, stored[:7]) == stored[7])
    except ValueError:  # the hash before is none, or a text has no form in bytes
        return False
