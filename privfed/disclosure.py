"""The abstract interface a learner is written against, and two that need no data.

A learner never holds a gate: it asks, and gets releases.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from privfed.errors import NobodyAnswered
from privfed.query import Query
from privfed.release import (
    Absent,
    Answer,
    Answers,
    Release,
    ReleasedPart,
    Reply,
    Transcript,
)
from privfed.schema import Schema


class Disclosure(ABC):
    """All that a learner sees of a federation."""

    clients: Sequence[str]
    schema: Schema

    def ask(
        self, *queries: Query, clients: Sequence[str] | None = None, spend: Fraction | None = None
    ) -> Answers:
        """Ask some clients (all unless named) one or many queries at once.

        Args:
            queries: the questions; each client answers them in order.
            clients: whom to ask.
            spend: what to propose spending on each query; every owner's policy caps it.

        Raises:
            NobodyAnswered: no client released an answer to any of the queries.
        """
        asked = list(self.clients if clients is None else clients)
        unknown = [client for client in asked if client not in self.clients]
        if unknown:
            raise ValueError(f"no client {unknown[0]!r}; the clients are {', '.join(self.clients)}")
        replies = self._ask(queries, asked, spend)
        answers = Answers(
            tuple(
                Answer(query, {client: replies[client][i] for client in asked})
                for i, query in enumerate(queries)
            )
        )
        if not any(answer.releases for answer in answers):
            raise NobodyAnswered(_silence(answers))
        return answers

    @abstractmethod
    def _ask(
        self, queries: Sequence[Query], clients: Sequence[str], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        """Give each client's replies, one for each query, in order."""


def _silence(answers: Answers) -> str:
    reasons = sorted(
        {
            getattr(reply, "text", "no reply in time")
            for answer in answers
            for reply in answer.replies.values()
        }
    )
    kinds = ", ".join(sorted({answer.query.kind for answer in answers}))
    return f"no client answered {kinds}: {'; '.join(reasons) or 'nobody was asked'}"


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
        self, queries: Sequence[Query], clients: Sequence[str], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        self.asked.extend(queries)
        return {client: [self._reply(client, query) for query in queries] for client in clients}

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
        self, queries: Sequence[Query], clients: Sequence[str], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        return {client: [self._next(client, query) for query in queries] for client in clients}

    def _next(self, client: str, query: Query) -> Reply:
        recorded = self._left.get((client, query.digest))
        return recorded.pop(0) if recorded else Absent(client, "replay")
