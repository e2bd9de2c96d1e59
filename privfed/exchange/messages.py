"""Messages: requests, replies, and the envelope of a reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from privfed.errors import InputError, WireError
from privfed.privacy.laws import Law
from privfed.questions import wire
from privfed.questions.part import PartType
from privfed.questions.query import REMEMBERED, Query


class Reason(StrEnum):
    """Why a gate refused. The set is closed; each but ``closed`` depends on public state only."""

    UNREADABLE = "unreadable"
    UNKNOWN_KIND = "unknown-kind"
    MALFORMED = "malformed"
    FALSE_PARTITION = "false-partition"
    OVERSIZED = "oversized"
    UNSUPPORTED = "unsupported"
    TIMES = "times"
    BUDGET = "budget"
    UNSOUND = "unsound-cost"
    FAULTY = "faulty"
    CLOSED = "closed"
    SUPERSEDED = "policy-superseded"
    MISMATCH = "mismatch"
    INTERRUPTED = "interrupted"
    REWRITTEN = "rewritten"
    LEDGER = "ledger"


#: Constant text of each refusal.
EXPLANATIONS: Mapping[Reason, str] = {
    Reason.UNREADABLE: "the bytes are not a request",
    Reason.UNKNOWN_KIND: "the owner's policy does not name this kind of query",
    Reason.MALFORMED: "the query's values do not fit its kind or the schema",
    Reason.FALSE_PARTITION: "cells that were declared disjoint overlap",
    Reason.OVERSIZED: "the answer would have more cells than the policy allows",
    Reason.UNSUPPORTED: "the policy's mechanism cannot protect what the query asks for",
    Reason.TIMES: "this kind of query has been answered in this study as often as the policy allows",
    Reason.BUDGET: "the charge does not fit what is left of the budget, or of one of its limits",
    Reason.UNSOUND: "the policy's mechanism or accountant states a cost that cannot be right",
    Reason.FAULTY: "this kind of query has failed too often; its author must correct it",
    Reason.CLOSED: "the gate is closed: a protected query failed inside it, and the owner must examine why",
    Reason.SUPERSEDED: "the owner has put another policy in force since this gate was opened",
    Reason.MISMATCH: "the request's id was used for another query",
    Reason.INTERRUPTED: "an earlier try was charged but never answered, and its charge allows no answer now; ask "
    "again under a new id",
    Reason.REWRITTEN: "the ledger does not pass through the head that the server saw before: it was restored "
    "from an older copy, or rewritten",
    Reason.LEDGER: "the ledger cannot be written",
}


@dataclass(frozen=True)
class Request:
    """A query with an id; repeated unchanged, it gets the same bytes.

    Only ``kind`` and ``fields`` are part of the query's digest.
    """

    id: str  #: chosen by the server, unique for each new query
    kind: str  #: the kind of query
    fields: bytes  #: the query's public values, encoded
    principal: str = "server"  #: the server's name
    spend: Fraction | None = None  #: proposed by the server; the owner's policy caps it
    round: str = ""  #: the round's name, for the owner's limits
    #: the last head of this ledger that the server saw in an earlier run, or empty; a ledger that
    #: does not contain it answers nothing
    seen: str = ""

    @classmethod
    def of(
        cls,
        id: str,
        query: Query,
        principal: str = "server",
        spend: Fraction | None = None,
        round: str = "",
    ) -> Request:
        """Build a request from a query."""
        return cls(id, query.kind, query.fields, principal, spend, round)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the kind and the query's values, equal to the query's own digest."""
        small = len(self.fields) <= REMEMBERED
        return (_digest if small else wire.query_digest)(self.kind, self.fields)


#: Caches the last two: in one process every client gets the same query.
_digest = lru_cache(maxsize=2)(wire.query_digest)


@dataclass(frozen=True, eq=False)
class ReleasedPart:
    """One named array of a release: integers on a grid, or floats."""

    type: PartType  #: the type of the numbers
    axes: tuple[str, ...]  #: names of the axes
    units: np.ndarray  #: integer grid units (int64, or bool for bits), or floats for values
    mask: np.ndarray | None = None  #: which cells are suppressed, or None
    grid: Fraction = Fraction(1)  #: value of one unit
    mechanism: str = ""  #: name of the mechanism
    #: the distribution of the noise on each cell; None without noise
    noise: Law | None = None

    def __post_init__(self) -> None:
        """Make the arrays read-only: all attacks, audits and the learner read the same ones."""
        for name in ("units", "mask"):
            if isinstance(array := getattr(self, name), np.ndarray):
                fixed = array.view()
                fixed.setflags(write=False)
                object.__setattr__(self, name, fixed)

    @property
    def values(self) -> np.ma.MaskedArray:
        """The released values, suppressed cells masked."""
        units = self.units
        data = units if units.dtype == bool or self.grid == 1 else units * float(self.grid)
        mask = np.zeros(units.shape, bool) if self.mask is None else self.mask
        return np.ma.MaskedArray(data, mask=mask)

    @property
    def visible(self) -> np.ndarray:
        """Which cells are not suppressed."""
        return np.ones(self.units.shape, bool) if self.mask is None else ~self.mask


@dataclass(frozen=True, eq=False)
class Release:
    """A client's charged answer to one request."""

    client: str
    request: str
    kind: str
    query: str
    parts: dict[str, ReleasedPart]
    secure: bool = True
    #: owners whose masked shares add up, if this is a share of a sum or its total
    owners: tuple[str, ...] = ()
    #: of a share: digest of what all owners agreed on, hexadecimal; see :mod:`.masked_totals`
    view: str = ""
    least: int = 0  #: of a share: minimum number of owners, or 0 if none may be missing
    #: of a share that allows dropouts: sealed seed shares by owner; see :mod:`.survivors`
    told: dict[str, bytes] = field(default_factory=dict)

    def __contains__(self, part: str) -> bool:
        return part in self.parts

    def __getitem__(self, part: str) -> np.ma.MaskedArray:
        """The values of a part, suppressed cells masked."""
        return self.parts[part].values


@dataclass(frozen=True)
class Refusal:
    """A refusal: nothing was read or charged; with the reason."""

    client: str
    request: str
    reason: Reason

    @property
    def text(self) -> str:
        """The reason in words."""
        return EXPLANATIONS[self.reason]


@dataclass(frozen=True)
class Failure:
    """A failure: charged, without a result; the text is constant."""

    client: str
    request: str
    text: str = "the client could not evaluate the query"


@dataclass(frozen=True)
class Absent:
    """No reply arrived in time."""

    client: str
    request: str
    text: str = "no reply in time"  #: what the server knows of the cause


Reply = Release | Refusal | Failure | Absent


@dataclass(frozen=True)
class DryRun:
    """Asks whether a request would be answered now; nothing is read, charged or recorded."""

    about: Request


@dataclass(frozen=True)
class DryRunReply:
    """The reason for which a request would be refused now; None if it would be answered."""

    client: str
    request: str
    refused: Reason | None = None


_SEALED: Mapping[str, type[Any]] = {
    "release": Release,
    "refusal": Refusal,
    "failure": Failure,
    "offer": DryRunReply,
}
_STATUS = {kind: status for status, kind in _SEALED.items()}


@dataclass(frozen=True)
class Head:
    """The end of a ledger's chain, written ``seq:hash``; equality ignores the signature."""

    seq: int  #: number of the last entry
    hash: str  #: its hash, 64 hexadecimal digits
    #: signature of the data owner's key over both, hexadecimal, or empty
    signature: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read ``seq:hash``, or ``seq:hash:signature`` (InputError: the text is no head)."""
        number, _, remainder = text.strip().partition(":")
        digest, _, signature = remainder.partition(":")
        sized = len(number) < 20 and len(digest) == 64
        if not (sized and number.isdecimal() and set(digest) <= set("0123456789abcdef")):
            raise InputError(f"{text[:100]!r} is not a head; write seq:hash as it was published")
        return cls(int(number), digest, signature)


@dataclass(frozen=True)
class Envelope:
    """A reply's bytes with the ledger head that covers them."""

    status: str  #: the kind of reply
    body: bytes  #: the reply, encoded
    head: Head | None = None  #: the head of the owner's ledger after it
    signature: str = ""  #: signature of the owner's key over all this, hexadecimal, or empty

    @classmethod
    def seal(cls, reply: Reply | DryRunReply, head: Head | None = None) -> Envelope:
        """Encode a reply into an envelope."""
        return cls(_STATUS[type(reply)], wire.encode(reply), head)

    def open(self) -> Reply | DryRunReply:
        """Decode the reply (WireError: unknown status)."""
        if self.status not in _SEALED:
            raise WireError("not a reply: unknown status")
        inside: Reply | DryRunReply = wire.decode(self.body, _SEALED[self.status])
        return inside
