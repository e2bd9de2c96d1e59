"""Would the same answers have left without this record? Queries are evaluated with it and without.

A tree, a rule, a chosen depth or a score of refitted candidates is no sum over records. But whoever
knows all other records can evaluate the query on them, with the one in doubt and without it, and
compare both answers with the release; that reads any learner.

If an answer depends on a client's secret coins (a bootstrap, a part held out for scoring), the
coins are simulated several times, and the mean effect of the record is held to the release by the
linear discriminant (Fisher 1936), in the covariance that the coins give the answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from privfed.attacks.base import (
    Attack,
    PublicSchema,
    Table,
    Truth,
    exact_parts,
    question_of,
    sound_parts,
)
from privfed.attacks.finding import Finding, Risk
from privfed.attacks.linear import known_schema
from privfed.attacks.membership import DRAWS, judged
from privfed.attacks.roc import FOUND_AT
from privfed.errors import PrivfedError, number_of
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.questions.part import PartType
from privfed.questions.query import CohortQuery, LocalEffect, Query, View

#: Most queries of a kind that are evaluated again at a client, evenly spaced; fewer where these take too much work.
QUESTIONS = (12, 6, 3, 1)
#: Most members of a client that are doubted, and as many outsiders; fewest for a look at all.
DOUBTED, FEWEST = 24, 3
IMAGINED = 4  #: Simulated secrets for each record in doubt, half to learn by and half to check
CELLS = 2000  #: Most numbers of an answer that are compared where coins were tossed


class LeaveOneOut(Attack):
    """Tells members from outsiders by answers that are no sums, evaluated with and without each.

    The attacker knows every other record of the client, and not its secret. A member's score is
    compared with those of outsiders at other clients, for all scores at one client share its coins.
    """

    name: ClassVar[str] = "leave_one_out"
    risk: ClassVar[Risk] = "singling out"
    harm: ClassVar[str] = "someone who knows all other records can tell whether a record was used"
    question: ClassVar[str] = (
        "Knowing all other records, do trees, rules and scores show whether a record was used?"
    )

    def reads(self, entry: TranscriptEntry) -> bool:
        """Whether something left exactly that is no sum, of a query that can be evaluated again."""
        return bool(_compared(entry))

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: one finding; none without the truth, which this attacker knows."""
        if not truth:
            return []
        deadline = self.deadline()
        doubts = [
            LeaveOneOutTest.of(client, asked, truth, known)
            for client in transcript.clients
            if client in truth and len(truth[client].x)
            if (known := known_schema(schema, truth[client]))
            if (asked := _asked(transcript.of(client=client), known))
        ]
        for most in QUESTIONS:
            for each in doubts:
                each.ask(most)
            round_work = sum(each.work for each in doubts)
            affordable = int(self.max_work / max(round_work, 1.0))
            if affordable >= FEWEST:
                break
        else:
            deadline.spend(FEWEST * round_work)
            return []
        doubted = min(DOUBTED, affordable)
        turns = [(turn, each) for turn in range(doubted) for each in doubts if turn < each.turns]
        done = 0
        for place in deadline.range(len(turns)):
            turn, each = turns[place]
            if not deadline.spend(each.work):
                break
            each.doubt(turn)
            done += 1
        return self._told(doubts, deadline.partial(done, len(turns), "rounds"))

    def _told(self, doubts: Sequence[LeaveOneOutTest], partial: str) -> list[Finding]:
        scored = [each.scores() for each in doubts]
        members, outsiders = ([each[side] for each in scored] for side in (0, 1))
        drawn = any(each.drawn for each in doubts)
        told = judged(members, outsiders, drawn=drawn)
        if told is None:
            return [self.incomparable(drawn=drawn)] if doubts else []
        detail: dict[str, Any] = {
            "the attacker knows": "every other record of the client, and no secret of its",
            "members in doubt": told.members,
            "outsiders in doubt": told.outsiders,
            FOUND_AT: told.points,
            "records without which other answers leave, whatever secret is imagined": sum(
                each.proven for each in doubts
            ),
            "questions put again at a client": max(len(each.asked) for each in doubts),
        }
        if told.clients < DRAWS:
            detail["note"] = f"{number_of(told.clients, 'client')}: a rate at 1 % needs {DRAWS}"
        return [
            self.finding(
                "share of pairs of a used and an unused record told apart by answers that are no sums",
                **told.figures,
                releases=tuple(sorted({one.query.kind for each in doubts for one in each.asked})),
                severity="some" if told.low > 0.5 else "none",
                detail=detail,
                partial=partial,
                exposed={
                    each.client: each.placed(found)
                    for each, found in zip(doubts, told.exposed, strict=True)
                },
            )
        ]


def _compared(entry: TranscriptEntry) -> dict[str, ReleasedPart]:
    """Parts that left exactly and that no equation reads."""
    asked = question_of(entry)
    if asked is None or isinstance(asked, CohortQuery | LocalEffect):
        return {}
    kind = type(asked)
    if kind.equations is not Query.equations or kind.drawn is not Query.drawn:
        return {}
    sound = sound_parts(entry)
    return {
        name: part
        for name, part in exact_parts(entry).items()
        if name in sound and not (asked.linear and part.type.adds_up)
    }


@dataclass(frozen=True, eq=False)
class ReplayableQuery:
    """A query and its exact parts that are no sums; those in ``listed`` are lists of any length."""

    query: Query
    parts: Mapping[str, ReleasedPart]
    listed: frozenset[str]

    def alike(self, answer: Mapping[str, np.ndarray]) -> np.ndarray:
        """An answer as numbers; of a list, which released entries it has and how many others."""
        return np.concatenate([self._part(name, answer[name]) for name in self.parts])

    @property
    def released(self) -> np.ndarray:
        """The release as such numbers."""
        return self.alike({name: part.units for name, part in self.parts.items()})

    def _part(self, name: str, answer: np.ndarray) -> np.ndarray:
        part = self.parts[name]
        if name not in self.listed:
            seen = answer.ravel() if part.mask is None else answer[~part.mask]
            return np.asarray(seen, dtype=float)
        known, given = _entries(part.units), set(_entries(np.asarray(answer)))
        return np.array([*(each in given for each in known), len(given - set(known))], dtype=float)


def _entries(listed: np.ndarray) -> list[tuple[Any, ...]]:
    """The rows of a table, or the positions of a vector with their entries."""
    if listed.ndim == 1:
        return list(enumerate(listed.tolist()))
    return [tuple(row.ravel().tolist()) for row in listed]


def _asked(transcript: Transcript, schema: Any) -> dict[str, list[ReplayableQuery]]:
    """The queries that can be evaluated again, by kind."""
    by_kind: dict[str, list[ReplayableQuery]] = {}
    for entry in transcript:
        query, parts = question_of(entry), _compared(entry)
        if query is None or not parts:
            continue
        try:
            declared = query.parts(schema)
        except PrivfedError:  # written for another schema
            continue
        if all(
            name in declared and declared[name].admits(p.units.shape) for name, p in parts.items()
        ):
            listed = (
                n for n in parts if declared[n].type is PartType.ARTIFACT or -1 in declared[n].shape
            )
            by_kind.setdefault(entry.kind, []).append(
                ReplayableQuery(query, parts, frozenset(listed))
            )
    return by_kind


@dataclass(eq=False)
class LeaveOneOutTest:
    """The test at one client: members in doubt, by index, and other records in doubt.

    ``asked`` is chosen by :meth:`ask` of all that can be evaluated again.
    """

    client: str
    everything: Mapping[str, Sequence[ReplayableQuery]]
    own: RecordArrays
    members: np.ndarray
    others: RecordArrays
    schema: Any
    asked: list[ReplayableQuery] = field(default_factory=list)
    _inside: Side = field(default_factory=lambda: Side(1.0))
    _outside: Side = field(default_factory=lambda: Side(-1.0))

    _steady: list[ReplayableQuery] = field(default_factory=list)
    _drawn: list[ReplayableQuery] = field(default_factory=list)
    _told: list[np.ndarray] = field(default_factory=list)

    def _begin(self) -> None:
        """Which answers are steady under all simulated secrets, and which depend on coins."""
        imagined = [self._answers(self.own, f"imagined {n}", self.asked) for n in range(IMAGINED)]
        told = [each.released for each in self.asked]
        same = [
            all(_same(answer, left) for answer in each)
            for each, left in zip(zip(*imagined, strict=True), told, strict=True)
        ]
        self._steady = [each for each, steady in zip(self.asked, same, strict=True) if steady]
        self._drawn = [each for each, steady in zip(self.asked, same, strict=True) if not steady]
        self._told = [left for left, steady in zip(told, same, strict=True) if steady]

    @classmethod
    def of(
        cls,
        client: str,
        everything: Mapping[str, Sequence[ReplayableQuery]],
        truth: Truth,
        schema: Any,
    ) -> LeaveOneOutTest:
        """Prepare; which records are in doubt is drawn from a fixed seed."""
        rng, own = np.random.default_rng(0), RecordArrays.of([truth[client]])
        others = RecordArrays.of(
            [*(truth[name] for name in truth if name != client), truth[client]]
        )
        outside = rng.permutation(len(others) - len(own))[:DOUBTED]
        members = rng.permutation(len(own))[:DOUBTED]
        return cls(client, everything, own, members, others.take(outside), schema)

    def ask(self, most: int) -> None:
        """Choose so many queries of each kind at most, evenly spaced, the first and the last among them."""
        places = {
            kind: np.linspace(0, len(alike) - 1, min(most, len(alike)))
            for kind, alike in self.everything.items()
        }
        self.asked = [self.everything[kind][int(at)] for kind in places for at in places[kind]]

    @property
    def drawn(self) -> bool:
        """Whether an answer depends on the client's secret coins."""
        return bool(self._drawn)

    @property
    def turns(self) -> int:
        """Number of rounds."""
        return max(len(self.members), len(self.others))

    @property
    def work(self) -> float:
        """Multiply-adds of one round: one member and one outsider, under every simulated secret."""
        return 6 * IMAGINED * sum(each.query.work(len(self.own)) for each in self.asked)

    @property
    def proven(self) -> int:
        """Number of members without whom an answer changes under every simulated secret."""
        return sum(self._inside.proven)

    def doubt(self, turn: int) -> None:
        """Evaluate the queries with and without one member, and one outsider."""
        if turn == 0:
            self._begin()
        if turn < len(self.members):
            self._compare(self._inside, self.own.without(int(self.members[turn])))
        if turn < len(self.others):
            self._compare(self._outside, self.own.with_one(self.others, turn))

    def _compare(self, side: Side, changed: RecordArrays) -> None:
        answers = [self._answers(changed, f"imagined {n}", self._steady) for n in range(IMAGINED)]
        pairs = []
        for number in range(IMAGINED if self._drawn else 0):
            secret = f"imagined {side.sign} {len(side.proven)} {number}"
            pairs.append([self._numbers(rows, secret) for rows in (self.own, changed)])
        side.imagined.append(np.array(pairs))
        differs = (
            not any(_same(answer, left) for answer in each)
            for each, left in zip(zip(*answers, strict=True), self._told, strict=True)
        )
        side.proven.append(any(differs))

    def _numbers(self, rows: RecordArrays, secret: str) -> np.ndarray:
        return _spread(np.concatenate(self._answers(rows, secret, self._drawn)))

    def _answers(
        self, rows: RecordArrays, secret: str, asked: Sequence[ReplayableQuery]
    ) -> list[np.ndarray]:
        """The answers about some records under a simulated secret, query by query."""
        plain = View.of(self.schema, rows.x, rows.y)
        view = View(plain.records, self.schema, f"{self.client} {secret}".encode())
        return [each.alike(each.query.evaluate(view)) for each in asked]

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores of members and of outsiders: steady answers first, then the discriminant.

        A steady answer that changes without a record says that it was there (and one that changes
        with it, that it was not): such scores lie beyond all others.
        """
        return self._scored(self._inside), self._scored(self._outside)

    def placed(self, found: np.ndarray) -> np.ndarray:
        """What was found of the members in doubt, at their places among all records; NaN elsewhere."""
        placed = np.full(len(self.own), np.nan)
        placed[self.members[: len(found)]] = found
        return placed

    def _scored(self, side: Side) -> np.ndarray:
        leaning = self._leaning(side) if self._drawn and side.imagined else 0.0
        # Drawn into (-1/2, 1/2) in the same order, so that steady answers always come first.
        return np.asarray(side.sign * np.array(side.proven, float) + np.arctan(leaning) / 4)

    def _leaning(self, side: Side) -> np.ndarray:
        """Log likelihood ratio of the answers with each record against without, as if normal.

        The record's effect is measured by both halves of the simulated secrets, each held to the
        other where it is held to itself: chance in the one is not that in the other.
        """
        everything = np.concatenate([*self._inside.imagined, *self._outside.imagined])[:, 0]
        centre, spread = everything.mean(axis=0), everything.std(axis=0)
        kept = spread > 1e-12 * (1 + np.abs(centre))
        if not kept.any():
            return np.zeros(len(side.imagined))
        left = _spread(np.concatenate([each.released for each in self._drawn]))
        noise, left = ((told - centre)[:, kept] / spread[kept] for told in (everything, left[None]))
        both = (np.array(side.imagined) - centre)[..., kept] / spread[kept]
        usual, moved = both[:, :, 0], side.sign * (both[:, :, 0] - both[:, :, 1])
        # What is expected without the record's own secrets: chance in both would count against it.
        expected = -usual.sum(axis=1) / max(len(noise) - IMAGINED, 1)
        one, other = moved[:, ::2].mean(axis=1), moved[:, 1::2].mean(axis=1)
        own = np.einsum("ik,ik->i", _whitened(one, noise), other)
        straight = np.einsum("ik,ik->i", _whitened((one + other) / 2, noise), left - expected)
        return np.asarray(straight + side.sign * own / 2)


@dataclass
class Side:
    """The results for members, who are removed (sign 1), or outsiders, who are added (-1).

    ``proven``: whether a steady answer changes under every simulated secret; ``imagined``: the
    answers that coins decide, to the client's own and to the changed records, shape (secrets, 2,
    cells).
    """

    sign: float
    proven: list[bool] = field(default_factory=list)
    imagined: list[np.ndarray] = field(default_factory=list)


def _whitened(rows: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Rows times the inverse of the noise's covariance, shrunk towards independence.

    Source: Ledoit and Wolf 2004, with the weight of :mod:`privfed.audits.test_statistics`. The
    noise is centred, of std 1 in each cell, shape (draws, cells).
    """
    draws, cells = noise.shape
    shrunk = cells / (cells + draws)
    _, values, axes = np.linalg.svd(noise, full_matrices=False)
    own = (1 - shrunk) * values**2 / max(draws, 1)
    weights = 1 / (own + shrunk) - 1 / shrunk
    return np.asarray(rows / shrunk + (rows @ axes.T * weights) @ axes)


def _spread(numbers: np.ndarray) -> np.ndarray:
    """At most :data:`CELLS` of the numbers, evenly spaced."""
    if len(numbers) <= CELLS:
        return numbers
    return np.asarray(numbers[np.linspace(0, len(numbers) - 1, CELLS).astype(int)])


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=1e-9, atol=1e-12))


@dataclass(frozen=True, eq=False)
class RecordArrays:
    """Records as arrays: x, shape (records, features), and y, shape (records,), or None."""

    x: np.ndarray
    y: np.ndarray | None

    @classmethod
    def of(cls, tables: Sequence[Table]) -> RecordArrays:
        """Those of all tables; without targets if one has none."""
        x = np.concatenate([table.x for table in tables])
        ys = [table.y for table in tables if table.y is not None]
        return cls(x, np.concatenate(ys) if len(ys) == len(tables) else None)

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: np.ndarray) -> RecordArrays:
        """Some of them."""
        return RecordArrays(self.x[rows], None if self.y is None else self.y[rows])

    def without(self, row: int) -> RecordArrays:
        """All but one."""
        return self.take(np.delete(np.arange(len(self)), row))

    def with_one(self, others: RecordArrays, row: int) -> RecordArrays:
        """One of others added at the end."""
        y = None
        if self.y is not None and others.y is not None:
            y = np.append(self.y, others.y[row])
        return RecordArrays(np.vstack([self.x, others.x[row]]), y)
