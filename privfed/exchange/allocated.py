"""Disclosure with allocators, which propose spends: adaptive budgets for any learner.

It runs on the server and uses only releases. A proposal is not a charge: every owner's policy caps
it.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from fractions import Fraction
from typing import Protocol

from privfed.errors import BudgetError, NobodyAnswered
from privfed.exchange.disclosure import Disclosure, Place, places
from privfed.exchange.messages import Release, Reply
from privfed.questions.query import Query


class Proposes(Protocol):
    """Interface of an allocator (see :mod:`privfed.accountants.adaptive`)."""

    def next(self, past: Sequence[Release] = ()) -> Fraction:
        """Propose an amount for the next round, from past releases."""


class AllocatedDisclosure(Disclosure):
    """A disclosure that spends by allocators, one for each kind of query.

    Queries of one kind to one client in one round share its amount equally (by the largest number
    over clients). Other kinds, and queries with a spend proposed by the learner, are passed on
    unchanged. NobodyAnswered: an allocator has proposed its whole total; no query was sent.
    """

    def __init__(self, inner: Disclosure, allocators: Mapping[str, Proposes]) -> None:
        self.clients, self.schema = inner.clients, inner.schema
        self._inner, self._allocators = inner, dict(allocators)
        self._past: list[Release] = []

    def _ask(
        self, questions: Mapping[str, Sequence[Query]], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        shared: dict[str, dict[str, list[Query]]] = {}  # by kind, each client's queries
        for client, queries in questions.items():
            for query in queries:
                shared.setdefault(query.kind, {}).setdefault(client, []).append(query)
        amounts = {
            kind: self._amount(kind, max(map(len, client_queries.values())))
            if spend is None
            else spend
            for kind, client_queries in shared.items()
        }
        by_place: dict[str, dict[Place, Reply]] = {client: {} for client in questions}
        for kind, client_queries in shared.items():
            for client, replies in self._inner._ask(client_queries, amounts[kind]).items():
                by_place[client] |= dict(zip(places(client_queries[client]), replies, strict=True))
        replies_by_client = {
            client: [by_place[client][p] for p in places(q)] for client, q in questions.items()
        }
        self._past += [
            r for each in replies_by_client.values() for r in each if isinstance(r, Release)
        ]
        return replies_by_client

    def _offers(
        self, query: Query, clients: Sequence[str], spend: Fraction | None
    ) -> Sequence[str]:
        if spend is None and query.kind in self._allocators:
            try:
                spend = deepcopy(self._allocators[query.kind]).next(tuple(self._past))
            except BudgetError:
                return ()
        return self._inner.offers(query, clients, spend=spend)

    def _amount(self, kind: str, questions: int) -> Fraction | None:
        if kind not in self._allocators:
            return None
        try:
            return self._allocators[kind].next(tuple(self._past)) / questions
        except BudgetError as error:
            raise NobodyAnswered(f"{kind}: {error}") from None
