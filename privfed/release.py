"""What goes over the wire: requests and replies, the answers of many clients, the transcript."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np

from privfed import wire
from privfed.errors import InputError, WireError
from privfed.mechanism import Noised
from privfed.part import PartType
from privfed.query import Query


class Reason(StrEnum):
    """Why a gate refused. The set is closed, and each depends on public state alone."""

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
    SUPERSEDED = "policy-superseded"
    MISMATCH = "mismatch"
    INTERRUPTED = "interrupted"
    LEDGER = "ledger"


#: What each refusal says; constant texts.
EXPLANATIONS: Mapping[Reason, str] = {
    Reason.UNREADABLE: "the bytes are no request",
    Reason.UNKNOWN_KIND: "the owner's policy does not name this kind of query",
    Reason.MALFORMED: "the query's values do not fit its kind or the schema",
    Reason.FALSE_PARTITION: "cells that were declared disjoint overlap",
    Reason.OVERSIZED: "the answer would have more cells than the policy allows",
    Reason.UNSUPPORTED: "the policy's mechanism cannot protect what the query asks for",
    Reason.TIMES: "this kind of query has been answered as often as the policy allows",
    Reason.BUDGET: "the charge does not fit what is left of the budget, or of one of its limits",
    Reason.UNSOUND: "the policy's mechanism states a cost that cannot be right",
    Reason.FAULTY: "this kind of query has failed too often; whoever wrote it must mend it",
    Reason.SUPERSEDED: "the owner has put another policy in force since this gate was opened",
    Reason.MISMATCH: "the request's id was used for another query",
    Reason.INTERRUPTED: "an earlier try was charged but never released; ask again under a new id",
    Reason.LEDGER: "the ledger cannot be written",
}


@dataclass(frozen=True)
class Request:
    """A question under an id; sent again unchanged, it gets the same bytes.

    Args:
        id: chosen by the asking side, unique for each new question.
        kind: the kind of query.
        fields: the query's public values, encoded.
        principal: who asks.
        spend: what the asking side proposes to spend; the owner's policy caps it. It is no part of
            the query's digest.
        round: names the round in which it is asked, for the owner's books; no part of the digest.
    """

    id: str
    kind: str
    fields: bytes
    principal: str = "server"
    spend: Fraction | None = None
    round: str = ""

    @classmethod
    def of(
        cls,
        id: str,
        query: Query,
        principal: str = "server",
        spend: Fraction | None = None,
        round: str = "",
    ) -> Request:
        """Wrap a query."""
        return cls(id, query.kind, query.fields, principal, spend, round)

    @property
    def digest(self) -> str:
        """SHA-256 of the kind and the query's values; equal to the query's own digest."""
        return wire.digest(wire.encode({"kind": self.kind, "fields": self.fields}))


@dataclass(frozen=True, eq=False)
class ReleasedPart:
    """One named array as it left: integers on a grid, or floats.

    Args:
        type: what the numbers are.
        axes: names of the axes.
        units: whole grid units (int64, or bool for bits), or floats for values.
        mask: which cells are suppressed, or none.
        grid: value of one unit.
        mechanism: what protected it.
        noise: the law of the noise on each cell; none where nothing was added.
    """

    type: PartType
    axes: tuple[str, ...]
    units: np.ndarray
    mask: np.ndarray | None = None
    grid: Fraction = Fraction(1)
    mechanism: str = ""
    noise: Noised | None = None

    @property
    def values(self) -> np.ma.MaskedArray:
        """The released values, suppressed cells masked."""
        units = self.units
        plain = units if units.dtype == bool or self.grid == 1 else units * float(self.grid)
        mask = np.zeros(units.shape, bool) if self.mask is None else self.mask
        return np.ma.MaskedArray(plain, mask=mask)


@dataclass(frozen=True, eq=False)
class Release:
    """What a client disclosed in answer to one request: released and charged."""

    client: str
    request: str
    kind: str
    query: str
    parts: dict[str, ReleasedPart]
    secure: bool = True

    def __contains__(self, part: str) -> bool:
        return part in self.parts

    def __getitem__(self, part: str) -> np.ma.MaskedArray:
        """The values of a part, suppressed cells masked."""
        return self.parts[part].values


@dataclass(frozen=True)
class Refusal:
    """Nothing was read and nothing charged, and why."""

    client: str
    request: str
    reason: Reason

    @property
    def text(self) -> str:
        """The reason in words."""
        return EXPLANATIONS[self.reason]


@dataclass(frozen=True)
class Failure:
    """Charged, and nothing came of it; the text is constant."""

    client: str
    request: str
    text: str = "the client could not evaluate the query"


@dataclass(frozen=True)
class Absent:
    """No reply in time."""

    client: str
    request: str


Reply = Release | Refusal | Failure | Absent
_REPLIES: Mapping[str, type[Any]] = {"release": Release, "refusal": Refusal, "failure": Failure}


@dataclass(frozen=True)
class Head:
    """The end of a ledger's chain after an entry: its number and its hash.

    Written ``seq:hash``; two heads are equal where these are, signed or not.

    Args:
        seq: number of the entry.
        hash: its hash, 64 hexadecimal digits.
        signature: of the data owner's key over both, hexadecimal, or empty.
    """

    seq: int
    hash: str
    signature: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read ``seq:hash``, or ``seq:hash:signature``.

        Raises:
            InputError: the text is no head.
        """
        number, _, rest = text.strip().partition(":")
        digest, _, signature = rest.partition(":")
        if not (
            number.isdecimal() and len(digest) == 64 and set(digest) <= set("0123456789abcdef")
        ):
            raise InputError(f"{text!r} is no head; write seq:hash as it was published")
        return cls(int(number), digest, signature)


@dataclass(frozen=True)
class Envelope:
    """A reply's bytes with the ledger head that covers them."""

    status: str
    body: bytes
    head: Head | None = None

    @classmethod
    def seal(cls, reply: Reply, head: Head | None = None) -> Envelope:
        """Wrap a reply."""
        return cls(type(reply).__name__.lower(), wire.encode(reply), head)

    def open(self) -> Reply:
        """Read the reply; an unknown status is a WireError."""
        if self.status not in _REPLIES:
            raise WireError("not a reply: unknown status")
        reply: Reply = wire.decode(self.body, _REPLIES[self.status])
        return reply


@dataclass(frozen=True, eq=False)
class Answer:
    """All clients' replies to one query."""

    query: Query
    replies: Mapping[str, Reply]

    @property
    def releases(self) -> Mapping[str, Release]:
        """The replies that are releases, by client."""
        return {
            client: reply for client, reply in self.replies.items() if isinstance(reply, Release)
        }

    def __contains__(self, part: str) -> bool:
        return any(part in release for release in self.releases.values())

    def each(self, part: str) -> Mapping[str, np.ma.MaskedArray]:
        """The values of a part, by client that released it."""
        return {
            client: release[part] for client, release in self.releases.items() if part in release
        }

    def units(self, part: str) -> np.ndarray:
        """The exact sum over clients in whole grid units; suppressed cells count as zero."""
        arrays = [release.parts[part] for release in self.releases.values() if part in release]
        if not arrays:
            raise KeyError(f"no client released part {part!r}")
        first, *rest = (_filled(array) for array in arrays)
        total = first.copy()
        for array in rest:
            total += array
        return total

    def total(self, part: str) -> np.ndarray:
        """The sum over clients; exact on the grid, so that any split over clients adds up alike."""
        grid = next(r.parts[part].grid for r in self.releases.values() if part in r)
        return self.units(part) * float(grid)

    def deviation(self, part: str) -> float:
        """Standard deviation of the noise in :meth:`total`; zero where every release is exact."""
        squares = 0.0
        for release in self.releases.values():
            if part in release:
                released = release.parts[part]
                spread = released.noise.deviation if released.noise else 0.0
                squares += (spread * float(released.grid)) ** 2
        return float(np.sqrt(squares))


def _filled(part: ReleasedPart) -> np.ndarray:
    units = part.units.astype(np.int64) if part.units.dtype == bool else part.units
    return units if part.mask is None else np.where(part.mask, 0, units)


@dataclass(frozen=True, eq=False)
class Answers(Sequence[Answer]):
    """The answers to the queries of one ``ask``, in their order.

    Where one query was asked, its answer's methods can be called directly.
    """

    answers: tuple[Answer, ...]

    def __getitem__(self, index: Any) -> Any:
        return self.answers[index]

    def __len__(self) -> int:
        return len(self.answers)

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)

    def __contains__(self, part: object) -> bool:
        return isinstance(part, str) and any(part in answer for answer in self.answers)

    @property
    def only(self) -> Answer:
        """The single answer."""
        if len(self.answers) != 1:
            raise ValueError(
                f"{len(self.answers)} queries were asked; pick one answer by its index"
            )
        return self.answers[0]

    def total(self, part: str) -> np.ndarray:
        """See :meth:`Answer.total`."""
        return self.only.total(part)

    def each(self, part: str) -> Mapping[str, np.ma.MaskedArray]:
        """See :meth:`Answer.each`."""
        return self.only.each(part)

    def deviation(self, part: str) -> float:
        """See :meth:`Answer.deviation`."""
        return self.only.deviation(part)

    def releases(self) -> tuple[Release, ...]:
        """Every release of every client, in order."""
        return tuple(release for answer in self.answers for release in answer.releases.values())


@dataclass(frozen=True, eq=False)
class Disclosed:
    """One line of a transcript: the question's public values and what was released."""

    client: str
    kind: str
    fields: bytes
    release: Release

    @property
    def query(self) -> Mapping[str, Any]:
        """The query's public values as plain data; arrays stay arrays."""
        plain = msgspec.msgpack.decode(self.fields)
        return {name: _plain(value) for name, value in plain.items()}


def _plain(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if set(value) == {"kind", "shape", "data"}:
        return wire.convert(value, np.ndarray)
    return {name: _plain(inner) for name, inner in value.items()}


@dataclass(frozen=True, eq=False)
class Transcript:
    """What left, in order: all that an attack may read."""

    entries: tuple[Disclosed, ...] = field(default=())

    def __iter__(self) -> Iterator[Disclosed]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def of(self, kind: str | None = None, client: str | None = None) -> Transcript:
        """The entries of one kind, of one client, or both."""
        return Transcript(
            tuple(e for e in self.entries if kind in (None, e.kind) and client in (None, e.client))
        )

    @property
    def clients(self) -> tuple[str, ...]:
        """The clients that released something, in order of first release."""
        return tuple(dict.fromkeys(entry.client for entry in self.entries))
