"""The abstract interface a learner is written against, and two that need no data.

A learner never holds a gate: it asks, and gets releases.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import overload

import numpy as np

from privfed.errors import NobodyAnswered
from privfed.exchange.answers import Answers, distinct
from privfed.exchange.messages import Absent, Release, ReleasedPart, Reply
from privfed.exchange.transcript import Transcript, in_one_line, several
from privfed.questions.query import Query
from privfed.tables.schema import Schema


class Disclosure(ABC):
    """All that a learner sees of a federation."""

    clients: Sequence[str]
    schema: Schema
    #: How many releases it has brought so far.
    released: int = 0

    def __repr__(self) -> str:
        target, size = self.schema.target, len(self.schema.features)
        predicted = "no target" if target is None else f"target {target.name}"
        features = f"{size} feature{'s' * (size != 1)}"
        told = f"{several(self.clients, 'client')}; {features}, {predicted}"
        return in_one_line(f"{type(self).__name__}({told})")

    @overload
    def ask(
        self,
        *queries: Query,
        clients: Sequence[str] | None = None,
        spend: Fraction | None = None,
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
        """Ask one or many queries at once: some clients (all unless named) the same, or each its own.

        Args:
            queries: the questions; each client answers them in order. Or one mapping, each client's
                own questions by its name.
            clients: whom to ask the same questions.
            spend: what to propose spending on each query; every owner's policy caps it.

        Returns:
            one answer for each question, in the order of first appearance: where several clients were
            asked an equal one, it is theirs together; where a client was asked it twice, there are
            two. An answer's replies are of the clients that were asked it. (Equal questions about
            different things, two trees say, need a field that tells them apart.)

        Raises:
            NobodyAnswered: no client released an answer to any of the queries.
            ValueError: a client that does not exist.
        """
        answers = self._answers(self._questions(queries, clients), spend)
        if not answers.releases():
            raise NobodyAnswered(_silence(answers))
        return answers

    def offers(
        self, query: Query, clients: Sequence[str] | None = None, *, spend: Fraction | None = None
    ) -> tuple[str, ...]:
        """Say who would answer a question now: nothing is asked, read, charged or recorded.

        An offer is no promise: budgets may be spent before the question comes.

        Args:
            query: the question.
            clients: of whom to say so; of all unless named.
            spend: what would be proposed.

        Returns:
            the clients whose policy, times and budget allow it, in their order.
        """
        asked = self._known(self.clients if clients is None else clients)
        return tuple(self._offers(query, asked, spend))

    def ask_offered(
        self,
        *queries: Query,
        clients: Sequence[str] | None = None,
        spend: Fraction | None = None,
    ) -> Answers:
        """Ask each client for what it offers, so that no refusal is provoked; see :meth:`ask`.

        Returns:
            one answer for each query, in their order; an answer that nobody offered, or that did
            not come, has no releases, and that is no error.
        """
        whom = self._known(self.clients if clients is None else clients)
        willing = [frozenset(offered) for offered in self._all_offers(queries, whom, spend)]
        own = {
            client: [q for q, offered in zip(queries, willing, strict=True) if client in offered]
            for client in whom
        }
        answers = self._answers({client: asked for client, asked in own.items() if asked}, spend)
        return answers.of(queries)

    def _answers(self, questions: Mapping[str, Sequence[Query]], spend: Fraction | None) -> Answers:
        self._known(questions)
        answers = Answers.grouped(questions, self._ask(questions, spend) if questions else {})
        self.released += len(answers.releases())
        return answers

    def _known(self, clients: Iterable[str]) -> list[str]:
        asked = list(clients)
        for client in asked:
            if client not in self.clients:
                raise ValueError(f"no client {client!r}; the clients are {', '.join(self.clients)}")
        return asked

    def _questions(
        self,
        queries: Sequence[Query | Mapping[str, Sequence[Query]]],
        clients: Sequence[str] | None,
    ) -> Mapping[str, Sequence[Query]]:
        """Each client's questions, however they were given."""
        own = [given for given in queries if isinstance(given, Mapping)]
        same = [given for given in queries if not isinstance(given, Mapping)]
        if not own:
            return dict.fromkeys(self.clients if clients is None else clients, same)
        if len(own) > 1 or same or clients is not None:
            raise ValueError("a mapping says whom each question is for; give it alone")
        return own[0]

    @abstractmethod
    def _ask(
        self, questions: Mapping[str, Sequence[Query]], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        """Give each client's replies, one for each of its questions, in order."""

    @abstractmethod
    def _offers(
        self, query: Query, clients: Sequence[str], spend: Fraction | None
    ) -> Iterable[str]:
        """Give the clients that would answer; see :meth:`offers`."""

    def _all_offers(
        self, queries: Sequence[Query], clients: Sequence[str], spend: Fraction | None
    ) -> Sequence[Iterable[str]]:
        """Give the clients that would answer each of several questions, together where that helps."""
        return [self._offers(query, clients, spend) for query in queries]


def _silence(answers: Answers) -> str:
    reasons = sorted(
        {
            getattr(reply, "text", "no reply in time")
            for answer in answers
            for reply in answer.replies.values()
        }
    )
    kinds = ", ".join(sorted({answer.query.kind for answer in answers}))
    return f"no client answered {kinds}: {'; '.join(reasons)}" if reasons else "nobody was asked"


#: Computes one client's exact parts from a query; what a scripted client says.
Script = Callable[[str, Query], Mapping[str, np.ndarray]]


class ScriptedDisclosure(Disclosure):
    """Answers from a script instead of data: for a learner's own tests.

    Args:
        schema: the public data dictionary.
        script: gives the parts of one client's answer; raising ``KeyError`` is no reply.
        clients: names of the clients.
    """

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
        return {
            client: [self._reply(client, query) for query in queries]
            for client, queries in questions.items()
        }

    def _offers(
        self, query: Query, clients: Sequence[str], spend: Fraction | None
    ) -> Iterable[str]:
        return [c for c in clients if not isinstance(self._reply(c, query), Absent)]

    def _reply(self, client: str, query: Query) -> Reply:
        try:
            said = self._script(client, query)
        except KeyError:
            return Absent(client, "scripted")
        declared = query.parts(self.schema)
        parts = {
            name: ReleasedPart(
                declared[name].type,
                declared[name].axes,
                np.asarray(array),
                grid=declared[name].grid,
            )
            for name, array in said.items()
        }
        return Release(client, "scripted", query.kind, query.digest, parts, secure=False)


class ReplayDisclosure(Disclosure):
    """The same learner over recorded answers: nothing is asked of anybody.

    Each question is answered by the next recorded release of the same client to the same question.

    Args:
        schema: the public data dictionary.
        transcript: what left.
        clients: the clients that could be asked, in their order then (a learner that draws some of
            them draws the same again); those that released something unless given.
    """

    def __init__(
        self, schema: Schema, transcript: Transcript, clients: Sequence[str] | None = None
    ) -> None:
        self.schema = schema
        self.clients = transcript.clients if clients is None else tuple(clients)
        self._left: dict[tuple[str, str], list[Release]] = {}
        for entry in transcript:
            self._left.setdefault((entry.client, entry.release.query), []).append(entry.release)

    def _ask(
        self, questions: Mapping[str, Sequence[Query]], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        return {
            client: [self._next(client, query) for query in queries]
            for client, queries in questions.items()
        }

    def _offers(
        self, query: Query, clients: Sequence[str], spend: Fraction | None
    ) -> Iterable[str]:
        return [client for client in clients if self._left.get((client, query.digest))]

    def _next(self, client: str, query: Query) -> Reply:
        recorded = self._left.get((client, query.digest))
        return recorded.pop(0) if recorded else Absent(client, "replay")
