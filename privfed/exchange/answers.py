"""What the asking side makes of many clients' replies: exact totals, and the noise in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privfed.exchange.messages import Release, ReleasedPart, Reply
from privfed.questions.query import Query

#: Tells a client's questions apart: a question's digest, and how often it was asked before in the
#: same round.
Place = tuple[str, int]


def places(queries: Sequence[Query]) -> list[Place]:
    """Tell one client's questions of a round apart; equal ones by their order."""
    before: Counter[str] = Counter()
    found = []
    for query in queries:
        found.append((query.digest, before[query.digest]))
        before[query.digest] += 1
    return found


def distinct(questions: Mapping[str, Sequence[Query]]) -> dict[Place, Query]:
    """The different questions of a round to several clients, in the order of first appearance."""
    found: dict[Place, Query] = {}
    for queries in questions.values():
        for place, query in zip(places(queries), queries, strict=True):
            found.setdefault(place, query)
    return found


@dataclass(frozen=True, eq=False)
class Answer:
    """The replies to one query, of the clients that were asked it."""

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
                spread = released.noise.std if released.noise else 0.0
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

    @classmethod
    def grouped(
        cls, questions: Mapping[str, Sequence[Query]], replies: Mapping[str, Sequence[Reply]]
    ) -> Answers:
        """Put equal questions of several clients together, in the order of first appearance.

        Args:
            questions: what each client was asked.
            replies: each client's replies, in the same order.
        """
        asked = distinct(questions)
        said: dict[Place, dict[str, Reply]] = {place: {} for place in asked}
        for client, queries in questions.items():
            for place, reply in zip(places(queries), replies[client], strict=True):
                said[place][client] = reply
        return cls(tuple(Answer(query, said[place]) for place, query in asked.items()))

    def of(self, queries: Sequence[Query]) -> Answers:
        """The answers to some questions in their order; one that was not asked has no replies."""
        asked = [answer.query for answer in self.answers]
        found = dict(zip(places(asked), self.answers, strict=True))
        return Answers(
            tuple(
                found.get(place, Answer(query, {}))
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
