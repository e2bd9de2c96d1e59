"""The interface of learners to a federation, its answers, and two implementations without data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, overload

import numpy as np

from privfed.errors import NobodyAnswered, unknown
from privfed.exchange.masked_totals import with_totals
from privfed.exchange.messages import Absent, Reason, Refusal, Release, ReleasedPart, Reply
from privfed.exchange.transcript import Transcript, in_one_line, several
from privfed.questions.query import Query
from privfed.tables.schema import Schema

#: Identifies a client's query in a round: its digest, and the number of earlier equal queries.
Place = tuple[str, int]


def places(queries: Sequence[Query]) -> list[Place]:
    """Return identifiers of one client's queries in a round; equal ones are numbered."""
    before: Counter[str] = Counter()
    result = []
    for query in queries:
        result.append((query.digest, before[query.digest]))
        before[query.digest] += 1
    return result


def distinct(questions: Mapping[str, Sequence[Query]]) -> dict[Place, Query]:
    """Return the distinct queries of a round, in order of first appearance."""
    queries_by_place: dict[Place, Query] = {}
    for queries in questions.values():
        for place, query in zip(places(queries), queries, strict=True):
            queries_by_place.setdefault(place, query)
    return queries_by_place


@dataclass(frozen=True, eq=False)
class Answer:
    """The replies to one query, of the clients that were queried."""

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
        """Return the values of a part, by client that released it."""
        return {
            client: release[part] for client, release in self.releases.items() if part in release
        }

    def units(self, part: str) -> np.ndarray:
        """Return the exact sum over clients in integer grid units; suppressed cells count as zero."""
        arrays = [release.parts[part] for release in self.releases.values() if part in release]
        if not arrays:
            raise KeyError(
                f"no client released part {part!r} of {self.query.kind}: is it in a guard's parts?"
            )
        first, *rest = (_filled(array) for array in arrays)
        total = first.copy()
        for array in rest:
            total += array
        return total

    def total(self, part: str) -> np.ndarray:
        """Return the sum over clients; exact on the grid, so that any partition has the same sum."""
        units = self.units(part)
        return units * float(next(r.parts[part].grid for r in self.releases.values() if part in r))

    def deviation(self, part: str) -> float:
        """Return the standard deviation of the noise in :meth:`total`, in the part's unit.

        Zero for exact releases, and for noise of no known law, as a measurement of OpenDP's draws it.
        """
        squares = 0.0
        for release in self.releases.values():
            if part in release:
                released = release.parts[part]
                std = released.noise.std if released.noise else 0.0
                squares += (std * float(released.grid)) ** 2
        return float(np.sqrt(squares))


def _filled(part: ReleasedPart) -> np.ndarray:
    units = part.units.astype(np.int64) if part.units.dtype == bool else part.units
    return units if part.mask is None else np.where(part.mask, 0, units)


@dataclass(frozen=True, eq=False)
class Answers(Sequence[Answer]):
    """The answers to the queries of one ``ask``, in order; a single answer's methods can be called directly."""

    answers: tuple[Answer, ...]

    @classmethod
    def grouped(
        cls, questions: Mapping[str, Sequence[Query]], replies: Mapping[str, Sequence[Reply]]
    ) -> Answers:
        """Group clients' equal queries with their replies, in order of first appearance."""
        distinct_queries = distinct(questions)
        replies_by_place: dict[Place, dict[str, Reply]] = {place: {} for place in distinct_queries}
        for client, queries in questions.items():
            for place, reply in zip(places(queries), replies[client], strict=True):
                replies_by_place[place][client] = reply
        shared = any(
            getattr(reply, "view", "")
            for client_replies in replies.values()
            for reply in client_replies
        )
        each = (
            {
                place: with_totals(client_replies)
                for place, client_replies in replies_by_place.items()
            }
            if shared
            else replies_by_place
        )
        return cls(tuple(Answer(query, each[place]) for place, query in distinct_queries.items()))

    def of(self, queries: Sequence[Query]) -> Answers:
        """Return the answers to some queries in their order; one that was not sent has no replies."""
        queries_here = [answer.query for answer in self.answers]
        answers_by_place = dict(zip(places(queries_here), self.answers, strict=True))
        return Answers(
            tuple(
                answers_by_place.get(place, Answer(query, {}))
                for place, query in zip(places(queries), queries, strict=True)
            )
        )

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


class Disclosure(ABC):
    """A learner's only access to a federation."""

    clients: Sequence[str]
    schema: Schema
    released: int = 0  #: Number of releases so far
    questions: int = 0  #: Number of distinct queries
    rounds: int = 0  #: Number of rounds
    people: int | None = None  #: Number of individuals, of a known cohort
    progress: Callable[[int], object] | None = None  #: Called with each round's number of queries

    def __repr__(self) -> str:
        target, size = self.schema.target, len(self.schema.features)
        predicted = "no target" if target is None else f"target {target.name}"
        features = f"{size} feature{'s' * (size != 1)}"
        summary = f"{several(self.clients, 'client')}; {features}, {predicted}"
        return in_one_line(f"{type(self).__name__}({summary})")

    def privacy(self) -> dict[str, Any] | None:
        """Return what all releases so far cost, if it is known and the owners promise alike; None: see the owners' ledgers.

        Returns:
            ``epsilon`` (proven for the owner with the largest; None: some release is unprotected), ``delta``, ``unit``,
            ``relation``, ``basis`` (assumptions not derived here, in words, or empty), ``noise`` (``"test"`` if seeded), ``unmasked``, the epsilon if the masks of sums fail, if
            there are any, and ``by`` = ``"owners"`` if it follows from this study's replies on the owners' word,
            without their ledgers.
        """
        return None

    @overload
    def ask(
        self, *queries: Query, clients: Sequence[str] | None = None, spend: Fraction | None = None
    ) -> Answers: ...

    @overload
    def ask(
        self, queries: Mapping[str, Sequence[Query]], /, *, spend: Fraction | None = None
    ) -> Answers: ...

    def ask(
        self,
        *queries: Query | Mapping[str, Sequence[Query]],
        clients: Sequence[str] | None = None,
        spend: Fraction | None = None,
    ) -> Answers:
        """Send one or many queries at once: the same to some clients, or each client its own.

        Args:
            queries: answered in order; or one mapping from clients to their own queries.
            clients: clients that get the same queries; default all.
            spend: proposed for each query; every owner's policy caps it.

        Returns:
            one answer per distinct query, in order of first appearance, with all replies to it. Equal queries about
            different objects, such as two trees, need a field that distinguishes them.

        Raises:
            NobodyAnswered: no client released an answer to any query.
            ValueError: a client that does not exist.
        """
        answers = self._answers(self._questions(queries, clients), spend)
        if not answers.releases():
            raise _silence(answers)
        return answers

    def offers(
        self, query: Query, clients: Sequence[str] | None = None, *, spend: Fraction | None = None
    ) -> tuple[str, ...]:
        """Return the clients that would answer a query now, without guarantee; nothing is read or charged."""
        known_clients = self._known(self.clients if clients is None else clients)
        return tuple(self._offers(query, known_clients, spend))

    def ask_offered(
        self, *queries: Query, clients: Sequence[str] | None = None, spend: Fraction | None = None
    ) -> Answers:
        """Like :meth:`ask`, but send each client only queries that it offers; answers may have no releases."""
        whom = self._known(self.clients if clients is None else clients)
        willing = [frozenset(offered) for offered in self._all_offers(queries, whom, spend)]
        by_client = {
            client: [q for q, offered in zip(queries, willing, strict=True) if client in offered]
            for client in whom
        }
        answers = self._answers(
            {
                client: client_queries
                for client, client_queries in by_client.items()
                if client_queries
            },
            spend,
        )
        return answers.of(queries)

    def _answers(self, questions: Mapping[str, Sequence[Query]], spend: Fraction | None) -> Answers:
        self._known(questions)
        replies = self._ask(questions, spend) if questions else {}
        if n_distinct := len(distinct(questions)):
            self.questions, self.rounds = self.questions + n_distinct, self.rounds + 1
            if self.progress is not None:
                self.progress(n_distinct)
        answers = Answers.grouped(questions, replies)
        self.released += len(answers.releases())
        return answers

    def _known(self, clients: Iterable[str]) -> list[str]:
        names = list(clients)
        for client in names:
            if client not in self.clients:
                raise ValueError(unknown("client", client, self.clients))
        return names

    def _questions(
        self,
        queries: Sequence[Query | Mapping[str, Sequence[Query]]],
        clients: Sequence[str] | None,
    ) -> Mapping[str, Sequence[Query]]:
        """Return each client's queries, for either form of arguments."""
        mappings = [given for given in queries if isinstance(given, Mapping)]
        same = [given for given in queries if not isinstance(given, Mapping)]
        if not mappings:
            return dict.fromkeys(self.clients if clients is None else clients, same)
        if len(mappings) > 1 or same or clients is not None:
            raise ValueError("a mapping says whom each question is for; give it alone")
        return mappings[0]

    @abstractmethod
    def _ask(
        self, questions: Mapping[str, Sequence[Query]], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        """Return each client's replies, one per query, in order."""

    @abstractmethod
    def _offers(
        self, query: Query, clients: Sequence[str], spend: Fraction | None
    ) -> Iterable[str]:
        """Return the clients that would answer; see :meth:`offers`."""

    def _all_offers(
        self, queries: Sequence[Query], clients: Sequence[str], spend: Fraction | None
    ) -> Sequence[Iterable[str]]:
        """Return the clients that would answer each of several queries; override to ask in one message."""
        return [self._offers(query, clients, spend) for query in queries]


MOST_NAMED = 5  #: Maximum owners that an error names for one cause


def _silence(answers: Answers) -> NobodyAnswered:
    replies = [reply for answer in answers for reply in answer.replies.values()]
    if not replies:
        return NobodyAnswered("nobody was asked")
    owners: dict[str, dict[str, None]] = {}
    for reply in replies:
        owners.setdefault(getattr(reply, "text", ""), {})[reply.client] = None
    reasons = "; ".join(f"{text} ({_few(list(names))})" for text, names in sorted(owners.items()))
    kinds = ", ".join(sorted({answer.query.kind for answer in answers}))
    refused = [reply.reason for reply in replies if isinstance(reply, Refusal)]
    return NobodyAnswered(
        f"no client answered {kinds}: {reasons}", refused if len(refused) == len(replies) else ()
    )


def _few(names: Sequence[str]) -> str:
    """Return the first names of a list, and the number of the others."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def nothing_released(name: str, silence: NobodyAnswered | None = None) -> NobodyAnswered:
    """Return the error of a ``fit`` without releases, with a remedy by the gates' reasons."""
    reasons = frozenset() if silence is None else silence.reasons
    if reasons and reasons <= {Reason.TIMES, Reason.BUDGET}:
        advice = (
            "what the policy allows is used up; a learner's own policy is for one fit: make another federation for "
            "the next, and see federation.budget()"
        )
    elif reasons == {Reason.UNKNOWN_KIND}:
        advice = (
            f"the policy is not for this learner's queries: give one of its own, such as {name}().private(1) or "
            f"{name}().published()"
        )
    else:
        advice = (
            "the policies name none of its questions, their budgets are spent, or no client could be reached; see "
            f"federation.budget(), or give a policy such as {name}().published()"
        )
    because = "" if silence is None else f" ({silence})"
    return NobodyAnswered(f"nothing at all was released to {name}{because}: {advice}", reasons)


#: A scripted client: returns its exact parts for a query.
Script = Callable[[str, Query], Mapping[str, np.ndarray]]


class DirectDisclosure(Disclosure):
    """Base class that answers one query of one client at a time and ignores proposed spends."""

    def _ask(
        self, questions: Mapping[str, Sequence[Query]], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        return {
            client: [self._reply(client, query) for query in queries]
            for client, queries in questions.items()
        }

    @abstractmethod
    def _reply(self, client: str, query: Query) -> Reply:
        """Return one client's reply to one query."""


def unprotected(
    client: str, request: str, query: Query, schema: Schema, exact: Mapping[str, np.ndarray]
) -> Release:
    """Return a release of exact parts without noise; it protects no record."""
    declared = query.parts(schema)
    parts = {
        name: ReleasedPart(
            declared[name].type, declared[name].axes, np.asarray(array), grid=declared[name].grid
        )
        for name, array in exact.items()
    }
    return Release(client, request, query.kind, query.digest, parts, secure=False)


class ScriptedDisclosure(DirectDisclosure):
    """Answers from a script instead of data, for tests of learners (KeyError: no reply)."""

    def __init__(
        self, schema: Schema, script: Script, clients: Sequence[str] = ("client",)
    ) -> None:
        self.schema = schema
        self.clients = tuple(clients)
        self.asked: list[Query] = []
        self._script = script

    def _ask(
        self, questions: Mapping[str, Sequence[Query]], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        self.asked.extend(distinct(questions).values())
        return super()._ask(questions, spend)

    def _offers(
        self, query: Query, clients: Sequence[str], spend: Fraction | None
    ) -> Iterable[str]:
        return [c for c in clients if not isinstance(self._reply(c, query), Absent)]

    def _reply(self, client: str, query: Query) -> Reply:
        try:
            values = self._script(client, query)
        except KeyError:
            return Absent(client, "scripted")
        return unprotected(client, "scripted", query, self.schema, values)


class ReplayDisclosure(DirectDisclosure):
    """Answers each query by the next recorded release of the same client to the same query.

    ``clients`` are the available clients, in the same order (a learner that samples them repeats its sample); by
    default those with releases. A masked sum's total answers for all of its owners.
    """

    def __init__(
        self, schema: Schema, transcript: Transcript, clients: Sequence[str] | None = None
    ) -> None:
        self.schema = schema
        owners = (owner for e in transcript for owner in e.release.owners or (e.client,))
        self.clients = tuple(dict.fromkeys(owners if clients is None else clients))
        self._left: dict[tuple[str, str], list[Release]] = {}
        for entry in transcript:
            self._left.setdefault((entry.client, entry.release.query), []).append(entry.release)
        known = set(self.clients)
        self._totals: dict[str, tuple[str, ...]] = {}
        for entry in transcript:
            if entry.client not in known:  # another total of as many may have other owners
                owners_of_total = (*self._totals.get(entry.client, ()), *entry.release.owners)
                self._totals[entry.client] = tuple(dict.fromkeys(owners_of_total))

    def _answers(self, questions: Mapping[str, Sequence[Query]], spend: Fraction | None) -> Answers:
        addressed: dict[str, list[Query]] = {}
        for client, queries in questions.items():
            for query in queries:
                total = self._total_of(client, query)
                if total is None or client == self._totals[total][0]:  # once for all of its owners
                    addressed.setdefault(total or client, []).append(query)
        return super()._answers(addressed, spend).of(list(distinct(questions).values()))

    def _known(self, clients: Iterable[str]) -> list[str]:
        return super()._known(client for client in clients if client not in self._totals)

    def _total_of(self, client: str, query: Query) -> str | None:
        """Return the recorded total that includes a client's share of a masked sum."""
        totals = (name for name, owners in self._totals.items() if client in owners)
        return next((name for name in totals if self._left.get((name, query.digest))), None)

    def _offers(
        self, query: Query, clients: Sequence[str], spend: Fraction | None
    ) -> Iterable[str]:
        return [
            client
            for client in clients
            if self._left.get((client, query.digest)) or self._total_of(client, query)
        ]

    def _reply(self, client: str, query: Query) -> Reply:
        recorded = self._left.get((client, query.digest))
        return recorded.pop(0) if recorded else Absent(client, "replay")
