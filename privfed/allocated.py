"""Asking for amounts that allocators propose: adaptive budgets for any learner.

It stands on the asking side, and sees what a learner sees: releases. What it proposes is no charge;
every owner's policy caps it, and every ledger checks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Protocol

from privfed.disclosure import Disclosure
from privfed.errors import BudgetError, NobodyAnswered
from privfed.query import Query
from privfed.release import Release, Reply


class Proposes(Protocol):
    """What is needed of an allocator (see :mod:`privfed.accountants.adaptive`)."""

    def next(self, past: Sequence[Release] = ()) -> Fraction:
        """Propose an amount for the next round, from what has left so far."""


class AllocatedDisclosure(Disclosure):
    """A federation that is asked under allocators, one for each kind of query.

    Several questions of one kind in one round share its amount equally. A kind without an allocator,
    and a question for which the learner proposes an amount itself, goes out as it is.

    Args:
        inner: the federation.
        allocators: by kind of query.

    Raises:
        NobodyAnswered: by :meth:`ask`, an allocator has proposed its whole total; nobody was asked.
    """

    def __init__(self, inner: Disclosure, allocators: Mapping[str, Proposes]) -> None:
        self.clients, self.schema = inner.clients, inner.schema
        self._inner, self._allocators = inner, dict(allocators)
        self._past: list[Release] = []

    def _ask(
        self, queries: Sequence[Query], clients: Sequence[str], spend: Fraction | None
    ) -> Mapping[str, Sequence[Reply]]:
        kinds: dict[str, list[int]] = {}
        for place, query in enumerate(queries):
            kinds.setdefault(query.kind, []).append(place)
        amounts = {
            kind: self._amount(kind, len(places)) if spend is None else spend
            for kind, places in kinds.items()
        }
        said: dict[str, dict[int, Reply]] = {client: {} for client in clients}
        for kind, places in kinds.items():
            asked = [queries[place] for place in places]
            for client, replies in self._inner._ask(asked, clients, amounts[kind]).items():
                said[client] |= dict(zip(places, replies, strict=True))
        found = {client: [said[client][i] for i in range(len(queries))] for client in clients}
        self._past += [r for each in found.values() for r in each if isinstance(r, Release)]
        return found

    def _amount(self, kind: str, questions: int) -> Fraction | None:
        if kind not in self._allocators:
            return None
        try:
            return self._allocators[kind].next(tuple(self._past)) / questions
        except BudgetError as error:
            raise NobodyAnswered(f"{kind}: {error}") from None
