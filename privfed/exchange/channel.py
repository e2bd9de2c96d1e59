"""Queries to clients over byte channels: ids, retries with a deadline, and published heads."""

import fcntl
import os
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any, ClassVar

import msgspec
import tenacity

from privfed.errors import ChannelError, InputError, LedgerError, Note, QueryError, WireError
from privfed.exchange.disclosure import Disclosure, distinct, places
from privfed.exchange.messages import (
    Absent,
    DryRun,
    DryRunReply,
    Envelope,
    Head,
    Release,
    ReleasedPart,
    Reply,
    Request,
)
from privfed.exchange.signing import Identity
from privfed.exchange.survivors import with_opened
from privfed.questions import wire
from privfed.questions.part import Part
from privfed.questions.query import Query
from privfed.tables.schema import Schema

#: Sends one encoded request to a client and returns the encoded envelope.
Channel = Callable[[bytes], bytes]
#: The content of a client's envelope, and the envelope with head and signature.
Opened = tuple[Reply | DryRunReply, Envelope]
UNREACHED = (ChannelError, WireError, OSError, TimeoutError)  #: Errors after which to send again


@dataclass(frozen=True)
class RetryLimits:
    """Retry limits for a client that cannot be reached; all in seconds."""

    deadline: float = 30.0  #: after which the client counts as absent
    first: float = 0.05  #: wait before the second try; doubled for each further one
    longest: float = 5.0  #: maximum wait between two tries

    def ask(self, channel: Channel, data: bytes) -> Opened | None:
        """Send the same bytes until a readable reply arrives or the deadline is over (None)."""
        began = monotonic()
        try:
            return _exchange(channel, data)
        except UNREACHED:
            return self._again(channel, data, self.deadline - (monotonic() - began))

    def _again(self, channel: Channel, data: bytes, remaining: float) -> Opened | None:
        """Retry with waits for ``rest`` seconds; None without a reply."""
        if remaining <= self.first:
            return None
        sleep(self.first)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(UNREACHED),
            wait=tenacity.wait_exponential(2 * self.first, self.longest)
            + tenacity.wait_random(0, self.first),
            stop=tenacity.stop_after_delay(remaining - self.first),
        )
        try:
            return retrying(_exchange, channel, data)
        except tenacity.RetryError:
            return None


def _exchange(channel: Channel, data: bytes) -> Opened:
    envelope = wire.decode(channel(data), Envelope)
    return envelope.open(), envelope


class HeadStore(MutableMapping[str, Head]):
    """Stores each ledger's last head on the server, across runs, in a JSON file or in memory.

    A ledger restored from an older copy is valid, and its budget looks unspent: only a later head reveals it. Only
    signed heads are stored and read, signed by the owners' ``keys`` if given. Two runs may share one file: neither
    overwrites the other's heads. InputError: the file has other content.
    """

    def __init__(
        self, path: str | Path | None = None, keys: Mapping[str, Identity] | None = None
    ) -> None:
        self._path, self._keys = None if path is None else Path(path), dict(keys or {})
        names = {self._name(client): client for client in self._keys}
        kept = {names.get(name, name): head for name, head in self._kept().items()}
        self._heads = {c: head for c, head in kept.items() if self._signed(c, head)}

    def _name(self, client: str) -> str:
        """Return a client's name in the file, with its key, as other clients may have the same name."""
        key = self._keys.get(client)
        return client if key is None else f"{client} {key.public.hex()}"

    def _signed(self, client: str, head: Head) -> bool:
        """Whether a head is signed, by its owner's key if keys are known."""
        if self._keys:
            return client in self._keys and self._keys[client].signed(head)
        return bool(head.signature)

    def __getitem__(self, client: str) -> Head:
        return self._heads[client]

    def __setitem__(self, client: str, head: Head) -> None:
        self._heads[client] = head
        if self._path is not None and self._signed(client, head):
            with _alone(self._path.parent):
                kept, name = self._kept(), self._name(client)
                if name not in kept or kept[name].seq < head.seq:
                    self._write(self._path, {**kept, name: head})

    def __delitem__(self, client: str) -> None:
        del self._heads[client]
        if self._path is not None:
            with _alone(self._path.parent):
                name = self._name(client)
                self._write(self._path, {n: head for n, head in self._kept().items() if n != name})

    def __iter__(self) -> Iterator[str]:
        return iter(self._heads)

    def __len__(self) -> int:
        return len(self._heads)

    def _kept(self) -> dict[str, Head]:
        return {} if self._path is None or not self._path.exists() else read_heads(self._path)

    @staticmethod
    def _write(path: Path, heads: Mapping[str, Head]) -> None:
        """Replace the file atomically."""
        data = {name: [str(head), head.signature] for name, head in heads.items()}
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(data)) + b"\n")
        partial.replace(path)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock a folder's files, so that no other run's heads are lost between reading and writing."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def read_heads(path: Path) -> dict[str, Head]:
    """Read a file of heads, signed or not (else InputError)."""
    try:
        data: Mapping[str, Any] = msgspec.json.decode(
            path.read_bytes(), type=dict[str, tuple[str, str]]
        )
        heads = {client: Head.parse(text) for client, (text, _) in data.items()}
    except (OSError, msgspec.MsgspecError, InputError):
        raise InputError(
            f"file of heads {path}: cannot be read; restore it from a copy, or ask the owners for their "
            "ledgers' heads"
        ) from None
    return {c: Head(h.seq, h.hash, data[c][1]) for c, h in heads.items()}


class ChannelDisclosure(Disclosure):
    """A disclosure over byte channels.

    Args:
        principal: the server's name; request ids are unique per server.
        keys: by client, the key that must sign all its replies, checked first by a dry run.
        parallel: whether to query all clients at once, each in a thread; a slow one then counts as absent at the
            deadline without delaying the others.
        heads: the last head seen of each client's ledger; a ledger that does not contain it answers nothing.
        session: prefix of every request's id, by default random. The same queries repeated in the same session get
            the stored bytes, uncharged.

    Raises:
        LedgerError: by :meth:`ask`, a client's head went back or contradicts an earlier one (its ledger was
            rewritten), or a reply is not signed (another party answers).
    """

    #: Whether clients run the server's code, and so answer in the declared form
    _own_code: ClassVar[bool] = False

    def __init__(
        self,
        schema: Schema,
        channels: Mapping[str, Channel],
        *,
        principal: str = "server",
        patience: RetryLimits | None = None,
        keys: Mapping[str, Identity] | None = None,
        parallel: bool = False,
        heads: HeadStore | None = None,
        session: str = "",
    ) -> None:
        self.schema = schema
        self.clients = tuple(channels)
        self.principal = principal
        #: Last published head of each client's ledger.
        self.heads = HeadStore() if heads is None else heads
        self._earlier = {client: str(head) for client, head in self.heads.items()}
        self._channels = dict(channels)
        self._patience = patience or RetryLimits()
        #: Prefix of all its requests' ids.
        self.session = session or secrets.token_hex(8)
        self._keys, self._parallel = dict(keys or {}), parallel
        self._met: set[str] = set()  # clients whose key was checked
        self._asking: dict[str, Query] = {}  # this round's queries by request id
        self._misfits: set[str] = set()  # clients that answered in another form
        self._asked = self._round = 0

    def _ask(
        self, questions: Mapping[str, Sequence[Query]], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        self._meet(questions)
        different = distinct(questions)
        requests = {place: self._request(q, spend) for place, q in different.items()}
        self._asking = {requests[place].id: query for place, query in different.items()}
        self._round += 1
        encoded = {place: wire.encode(request) for place, request in requests.items()}
        places_by_client = {client: places(queries) for client, queries in questions.items()}
        sent = {
            client: [self._reminding(client, requests[p]) or encoded[p] for p in client_places]
            for client, client_places in places_by_client.items()
        }
        named = {
            client: [requests[place].id for place in client_places]
            for client, client_places in places_by_client.items()
        }
        replies = self._replies(sent, named)
        if not any(
            isinstance(x, Release) and x.least
            for client_places in replies.values()
            for x in client_places
        ):
            return replies
        return with_opened(replies, self.principal, self._step, self._survivors)

    def _replies(
        self, sent: Mapping[str, Sequence[bytes]], named: Mapping[str, Sequence[str]]
    ) -> dict[str, list[Reply]]:
        """Send each client its messages, and return its replies, accepted by id."""
        return {
            client: [
                self._accept(client, id, opened)
                for id, opened in zip(named[client], brought, strict=True)
            ]
            for client, brought in self._reach(sent).items()
        }

    def _step(self, requests: Mapping[str, Sequence[Request]]) -> Mapping[str, Sequence[Reply]]:
        """Send the requests that open masked sums despite dropouts."""
        sent = {
            client: [wire.encode(request) for request in client_requests]
            for client, client_requests in requests.items()
        }
        return self._replies(sent, {c: [request.id for request in x] for c, x in requests.items()})

    def _survivors(self, _id: str, owners: tuple[str, ...]) -> tuple[str, ...]:
        """Return whose shares of a sum are added up; a hook for results that must survive a restart."""
        return owners

    def _offers(
        self, query: Query, clients: Sequence[str], spend: Fraction | None
    ) -> Sequence[str]:
        return self._all_offers([query], clients, spend)[0]

    def _all_offers(
        self, queries: Sequence[Query], clients: Sequence[str], spend: Fraction | None
    ) -> Sequence[Sequence[str]]:
        inquiries = [wire.encode(DryRun(self._request(query, spend))) for query in queries]
        replies = self._reach(dict.fromkeys(clients, inquiries))
        for client, client_replies in replies.items():
            for opened in client_replies:
                if opened is not None:
                    self._check_signed(client, opened)
        return [
            [client for client in clients if _offered(replies[client][number])]
            for number in range(len(queries))
        ]

    def _meet(self, questions: Mapping[str, Sequence[Query]]) -> None:
        """Check new clients' keys by a dry run, before anything is charged."""
        new = {
            client: [wire.encode(DryRun(Request.of(self._key_check, queries[0], self.principal)))]
            for client, queries in questions.items()
            if client in self._keys and client not in self._met and queries
        }
        for client, (opened,) in self._reach(new).items() if new else ():
            if opened is not None:
                self._check_signed(client, opened)
                self._met.add(client)

    @property
    def _key_check(self) -> str:
        """The id of the dry run that checks a client's key; its reply affects no later query."""
        return f"{self.session}-key"

    def _request(self, query: Query, spend: Fraction | None) -> Request:
        """Return a query of the next round as a request with a new id."""
        self._asked += 1
        where = f"{self.session}-{self._round + 1}"
        return Request.of(f"{self.session}-{self._asked:06d}", query, self.principal, spend, where)

    def _reminding(self, client: str, request: Request) -> bytes:
        """Encode a request with the head from an earlier run, unless this run has seen a later one."""
        seen = self._earlier.get(client, "")
        return wire.encode(replace(request, seen=seen)) if seen else b""

    def _reach(self, sent: Mapping[str, Sequence[bytes]]) -> dict[str, list[Opened | None]]:
        """Send each client its messages, in parallel or in turn; None without a reply."""
        if self._parallel:
            return self._at_once(sent)
        return {client: self._send(client, data) for client, data in sent.items()}

    def _send(self, client: str, encoded: Sequence[bytes]) -> list[Opened | None]:
        return [self._patience.ask(self._channels[client], data) for data in encoded]

    def _at_once(self, sent: Mapping[str, Sequence[bytes]]) -> dict[str, list[Opened | None]]:
        """Query every client in its own thread; late ones count as absent."""
        done: dict[str, list[Opened | None]] = {}

        def ask(client: str) -> None:
            done[client] = self._send(client, sent[client])

        threads = [Thread(target=ask, args=(client,), daemon=True) for client in sent]
        for thread in threads:
            thread.start()
        latest = monotonic() + self._patience.deadline * max(map(len, sent.values()), default=0)
        for thread in threads:
            thread.join(max(0.0, latest - monotonic()))
        return {client: done.get(client, [None] * len(data)) for client, data in sent.items()}

    def _accept(self, client: str, request: str, opened: Opened | None) -> Reply:
        if opened is None:
            return Absent(client, request)
        reply, envelope = opened
        self._check_signed(client, opened)
        if isinstance(reply, DryRunReply) or reply.request not in (request, ""):
            return Absent(client, request)
        if not self._fits(client, reply):
            return Absent(client, request)
        if envelope.head is not None:
            self._check(client, envelope.head)
        return reply

    def _fits(self, client: str, reply: Reply | DryRunReply) -> bool:
        """Whether a release has the form that its query declares, without which it cannot be added up."""
        query = None if self._own_code else self._asking.get(reply.request)
        if not isinstance(reply, Release) or query is None or _answers(query, reply, self.schema):
            return True
        if client not in self._misfits:
            self._misfits.add(client)
            warnings.warn(
                f"client {client!r} answers {query.kind} in another form than the question has, and so counts as "
                "absent; give its side the version of privfed, and of plugins, that this one has",
                Note,
                stacklevel=2,
            )
        return False

    def _check_signed(self, client: str, opened: Opened) -> None:
        """Check a reply's signature against its owner's key, if that is known."""
        if client in self._keys:
            self._keys[client].check(opened[1])

    def _check(self, client: str, head: Head) -> None:
        last = self.heads.get(client)
        check_follows(client, last, head)
        if head != last:
            self.heads[client] = head
            self._earlier.pop(client, None)


def check_follows(client: str, last: Head | None, head: Head) -> None:
    """Check that a client's ledger only grows (LedgerError: the head is behind the last one, or contradicts it)."""
    if last is not None and (head.seq < last.seq or (head.seq == last.seq and head != last)):
        raise LedgerError(
            f"client {client!r} published head {head} after {last}: its ledger was rewritten"
            + (
                "; ask its owner to verify it against both"
                if head.signature and last.signature
                else ", or somebody on the way answered in its place, since not all of this is signed; ask its "
                "owner to verify the ledger against both, and for its public key"
            )
        )


def _answers(query: Query, release: Release, schema: Schema) -> bool:
    """Whether a release answers a query, by its digest and its declared parts."""
    try:
        declared = query.parts(schema)
    except QueryError:  # every gate refuses such a query
        return False
    return release.query == query.digest and all(
        name in declared and _formed(part, declared[name], masked=bool(release.view))
        for name, part in release.parts.items()
    )


def _formed(part: ReleasedPart, declared: Part, masked: bool) -> bool:
    """Whether a part has the form that its query declares; a masked share's grid may be finer."""
    steps = declared.grid / part.grid if part.grid > 0 else Fraction(0)
    same_grid = part.type == declared.type and (steps == 1 or (masked and steps.denominator == 1))
    whole = part.units.dtype.kind in "bi" or not declared.exact
    sizes = part.units.shape
    hidden = part.mask is None or (part.mask.dtype == bool and part.mask.shape == sizes)
    return same_grid and declared.admits(sizes) and whole and hidden


def _offered(opened: Opened | None) -> bool:
    reply = None if opened is None else opened[0]
    return isinstance(reply, DryRunReply) and reply.refused is None
