"""Membership by replaying queries with and without a record.

A tree, a rule, a chosen depth or a score of refitted candidates is no sum over records. But an attacker
who knows all other records can evaluate the query on them, with the record in question and without it,
and compare both answers with the release; that applies to any learner.

If an answer depends on a client's secret coins (a bootstrap, a part held out for scoring), the
coins are simulated several times, and the release is scored by Fisher's linear discriminant (1936) along
the mean effect of the record, in the covariance of the answers over the coins.
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
    declared_parts,
    exact_parts,
    fitting_parts,
    question_of,
    sound_parts,
)
from privfed.attacks.finding import Finding, Risk
from privfed.attacks.linear import known_schema
from privfed.attacks.membership import DRAWS, compare_scores
from privfed.attacks.roc import FOUND_AT
from privfed.errors import number_of
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.questions.part import PartType
from privfed.questions.query import CohortQuery, LocalEffect, Query, View

#: Most queries of a kind that are replayed at a client, evenly spaced; fewer if these take too much work.
QUESTIONS = (12, 6, 3, 1)
#: Most members of a client that are tested, and as many outsiders; fewest for a test at all.
DOUBTED, FEWEST = 24, 3
IMAGINED = 4  #: Simulated secrets for each tested record, half to learn from and half to check
CELLS = 2000  #: Most numbers compared of an answer that depends on coins


class LeaveOneOut(Attack):
    """Distinguishes members from outsiders by answers that are no sums, replayed with and without each.

    The attacker knows every other record of the client, and not its secret. A member's score is
    compared with those of outsiders at other clients, since all scores at one client share its coins.
    """

    name: ClassVar[str] = "leave_one_out"
    risk: ClassVar[Risk] = "singling out"
    harm: ClassVar[str] = "someone who knows all other records can tell whether a record was used"
    question: ClassVar[str] = (
        "Knowing all other records, do trees, rules and scores show whether a record was used?"
    )

    def reads(self, entry: TranscriptEntry) -> bool:
        """Whether it has exact parts that are no sums, of a query that can be replayed."""
        return bool(_replayed_parts(entry))

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: one finding; none without the truth, which this attacker knows."""
        if not truth:
            return []
        deadline = self.deadline()
        tests = [
            LeaveOneOutTest.of(client, replayable, truth, known)
            for client in transcript.clients
            if client in truth and len(truth[client].x)
            if (known := known_schema(schema, truth[client]))
            if (replayable := _replayable(transcript.of(client=client), known))
        ]
        for max_queries in QUESTIONS:
            for test in tests:
                test.ask(max_queries)
            round_work = sum(test.work for test in tests)
            affordable = int(self.max_work / max(round_work, 1.0))
            if affordable >= FEWEST:
                break
        else:
            deadline.spend(FEWEST * round_work)
            return []
        n_tested = min(DOUBTED, affordable)
        turns = [(turn, test) for turn in range(n_tested) for test in tests if turn < test.n_rounds]
        done = 0
        for turn, test in deadline.each(turns):
            if not deadline.spend(test.work):
                break
            test.run_round(turn)
            done += 1
        return self._finding(tests, deadline.partial(done, len(turns), "rounds"))

    def _finding(self, tests: Sequence[LeaveOneOutTest], partial: str) -> list[Finding]:
        scored = [test.scores() for test in tests]
        members, outsiders = ([scores[side] for scores in scored] for side in (0, 1))
        drawn = any(test.drawn for test in tests)
        result = compare_scores(members, outsiders, drawn=drawn)
        if result is None:
            return [self.incomparable(drawn=drawn)] if tests else []
        detail: dict[str, Any] = {
            "the attacker knows": "every other record of the client, and no secret of its",
            "members in doubt": result.members,
            "outsiders in doubt": result.outsiders,
            FOUND_AT: result.points,
            "records without which the answers differ, for any possible secret": sum(
                test.proven for test in tests
            ),
            "queries recomputed at a client": max(len(test.queries) for test in tests),
        }
        if result.clients < DRAWS:
            detail["note"] = f"{number_of(result.clients, 'client')}: a rate at 1 % needs {DRAWS}"
        return [
            self.finding(
                "share of pairs of a used and an unused record told apart by answers that are no sums",
                **result.figures,
                releases=tuple(sorted({q.query.kind for test in tests for q in test.queries})),
                severity="some" if result.low > 0.5 else "none",
                detail=detail,
                partial=partial,
                exposed={
                    test.client: test.at_members(rates)
                    for test, rates in zip(tests, result.exposed, strict=True)
                },
            )
        ]


def _replayed_parts(entry: TranscriptEntry) -> dict[str, ReleasedPart]:
    """Exact parts that no linear equation reads."""
    query = question_of(entry)
    if query is None or isinstance(query, CohortQuery | LocalEffect):
        return {}
    kind = type(query)
    if kind.equations is not Query.equations or kind.drawn is not Query.drawn:
        return {}
    sound = sound_parts(entry)
    return {
        name: part
        for name, part in exact_parts(entry).items()
        if name in sound and not (query.linear and part.type.adds_up)
    }


@dataclass(frozen=True, eq=False)
class ReplayableQuery:
    """A query and its exact parts that are no sums; those in ``listed`` are lists of any length."""

    query: Query
    parts: Mapping[str, ReleasedPart]
    listed: frozenset[str]

    def alike(self, answer: Mapping[str, np.ndarray]) -> np.ndarray:
        """An answer as numbers; for a list, which released entries it has and how many others."""
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
        known, given = _list_entries(part.units), set(_list_entries(np.asarray(answer)))
        return np.array([*(row in given for row in known), len(given - set(known))], dtype=float)


def _list_entries(listed: np.ndarray) -> list[tuple[Any, ...]]:
    """The rows of a table, or the positions of a vector with their entries."""
    if listed.ndim == 1:
        return list(enumerate(listed.tolist()))
    return [tuple(row.ravel().tolist()) for row in listed]


def _replayable(transcript: Transcript, schema: Any) -> dict[str, list[ReplayableQuery]]:
    """The queries that can be replayed, by kind."""
    by_kind: dict[str, list[ReplayableQuery]] = {}
    for entry in transcript:
        query, parts = question_of(entry), _replayed_parts(entry)
        declared = declared_parts(query, schema)
        if query is not None and parts and len(fitting_parts(parts, declared)) == len(parts):
            listed = (
                n for n in parts if declared[n].type is PartType.ARTIFACT or -1 in declared[n].shape
            )
            by_kind.setdefault(entry.kind, []).append(
                ReplayableQuery(query, parts, frozenset(listed))
            )
    return by_kind


@dataclass(eq=False)
class LeaveOneOutTest:
    """The test at one client: tested members, by index, and tested outsiders.

    ``queries`` are chosen by :meth:`ask` among all that can be replayed.
    """

    client: str
    all_queries: Mapping[str, Sequence[ReplayableQuery]]
    records: RecordArrays
    members: np.ndarray
    others: RecordArrays
    schema: Any
    queries: list[ReplayableQuery] = field(default_factory=list)
    _inside: Side = field(default_factory=lambda: Side(1.0))
    _outside: Side = field(default_factory=lambda: Side(-1.0))

    _steady: list[ReplayableQuery] = field(default_factory=list)
    _drawn: list[ReplayableQuery] = field(default_factory=list)
    _released: list[np.ndarray] = field(default_factory=list)

    def _split_queries(self) -> None:
        """Split the queries: answers constant over all simulated secrets, and those that depend on coins."""
        imagined = [
            self._answers(self.records, f"imagined {n}", self.queries) for n in range(IMAGINED)
        ]
        releases = [q.released for q in self.queries]
        same = [
            all(_same(answer, released) for answer in answers)
            for answers, released in zip(zip(*imagined, strict=True), releases, strict=True)
        ]
        self._steady = [q for q, steady in zip(self.queries, same, strict=True) if steady]
        self._drawn = [q for q, steady in zip(self.queries, same, strict=True) if not steady]
        self._released = [r for r, steady in zip(releases, same, strict=True) if steady]

    @classmethod
    def of(
        cls,
        client: str,
        all_queries: Mapping[str, Sequence[ReplayableQuery]],
        truth: Truth,
        schema: Any,
    ) -> LeaveOneOutTest:
        """Prepare; the tested records are drawn from a fixed seed."""
        rng, records = np.random.default_rng(0), RecordArrays.of([truth[client]])
        others = RecordArrays.of(
            [*(truth[name] for name in truth if name != client), truth[client]]
        )
        outside = rng.permutation(len(others) - len(records))[:DOUBTED]
        members = rng.permutation(len(records))[:DOUBTED]
        return cls(client, all_queries, records, members, others.take(outside), schema)

    def ask(self, max_queries: int) -> None:
        """Choose at most ``max_queries`` of each kind, evenly spaced, including the first and the last."""
        indices = {
            kind: np.linspace(0, len(alike) - 1, min(max_queries, len(alike)))
            for kind, alike in self.all_queries.items()
        }
        self.queries = [self.all_queries[kind][int(i)] for kind in indices for i in indices[kind]]

    @property
    def drawn(self) -> bool:
        """Whether an answer depends on the client's secret coins."""
        return bool(self._drawn)

    @property
    def n_rounds(self) -> int:
        """Number of rounds."""
        return max(len(self.members), len(self.others))

    @property
    def work(self) -> float:
        """Multiply-adds of one round: one member and one outsider, under every simulated secret."""
        return 6 * IMAGINED * sum(query.query.work(len(self.records)) for query in self.queries)

    @property
    def proven(self) -> int:
        """Number of members without whom an answer changes under every simulated secret."""
        return sum(self._inside.proven)

    def run_round(self, turn: int) -> None:
        """Evaluate the queries with and without one member, and one outsider."""
        if turn == 0:
            self._split_queries()
        if turn < len(self.members):
            self._compare(self._inside, self.records.without(int(self.members[turn])))
        if turn < len(self.others):
            self._compare(self._outside, self.records.with_one(self.others, turn))

    def _compare(self, side: Side, changed: RecordArrays) -> None:
        answers = [self._answers(changed, f"imagined {n}", self._steady) for n in range(IMAGINED)]
        pairs = []
        for number in range(IMAGINED if self._drawn else 0):
            secret = f"imagined {side.sign} {len(side.proven)} {number}"
            drawn = (self._answers(rows, secret, self._drawn) for rows in (self.records, changed))
            pairs.append([_thin_out(np.concatenate(answers)) for answers in drawn])
        side.simulated.append(np.array(pairs))
        differs = (
            not any(_same(answer, released) for answer in replayed)
            for replayed, released in zip(zip(*answers, strict=True), self._released, strict=True)
        )
        side.proven.append(any(differs))

    def _answers(
        self, rows: RecordArrays, secret: str, queries: Sequence[ReplayableQuery]
    ) -> list[np.ndarray]:
        """The answers on some records under a simulated secret, query by query."""
        encoded = View.of(self.schema, rows.x, rows.y)
        view = View(encoded.records, self.schema, f"{self.client} {secret}".encode())
        return [query.alike(query.query.evaluate(view)) for query in queries]

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores of members and of outsiders: steady answers first, then the discriminant.

        A steady answer that changes without a record proves that it is a member (and one that changes
        with it, that it is not): such scores lie beyond all others.
        """
        return self._scored(self._inside), self._scored(self._outside)

    def at_members(self, rates: np.ndarray) -> np.ndarray:
        """The tested members' FPR, at their indices among all records; NaN elsewhere."""
        all_rates = np.full(len(self.records), np.nan)
        all_rates[self.members[: len(rates)]] = rates
        return all_rates

    def _scored(self, side: Side) -> np.ndarray:
        log_ratio = self._log_ratio(side) if self._drawn and side.simulated else 0.0
        # Compressed into (-1/2, 1/2) in the same order, so that steady answers always come first.
        return np.asarray(side.sign * np.array(side.proven, float) + np.arctan(log_ratio) / 4)

    def _log_ratio(self, side: Side) -> np.ndarray:
        """Log likelihood ratio of the answers with each record against without, as if normal.

        The record's effect is estimated from each half of the simulated secrets; its squared length is the
        product of the two, whose errors are independent.
        """
        draws = np.concatenate([*self._inside.simulated, *self._outside.simulated])[:, 0]
        centre, std = draws.mean(axis=0), draws.std(axis=0)
        kept = std > 1e-12 * (1 + np.abs(centre))
        if not kept.any():
            return np.zeros(len(side.simulated))
        released = _thin_out(np.concatenate([query.released for query in self._drawn]))
        noise, released = ((rows - centre)[:, kept] / std[kept] for rows in (draws, released[None]))
        both = (np.array(side.simulated) - centre)[..., kept] / std[kept]
        usual, effect = both[:, :, 0], side.sign * (both[:, :, 0] - both[:, :, 1])
        # The mean without the record's own secrets, whose error would be in both terms.
        expected = -usual.sum(axis=1) / max(len(noise) - IMAGINED, 1)
        first, second = effect[:, ::2].mean(axis=1), effect[:, 1::2].mean(axis=1)
        squared = np.einsum("ik,ik->i", _whitened(first, noise), second)
        linear = np.einsum("ik,ik->i", _whitened((first + second) / 2, noise), released - expected)
        return np.asarray(linear + side.sign * squared / 2)


@dataclass
class Side:
    """The results for members, who are removed (sign 1), or outsiders, who are added (-1).

    ``proven``: whether a steady answer changes under every simulated secret; ``simulated``: the answers that
    depend on coins, on the client's records and on the changed ones, shape (secrets, 2, cells).
    """

    sign: float
    proven: list[bool] = field(default_factory=list)
    simulated: list[np.ndarray] = field(default_factory=list)


def _whitened(rows: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Rows times the inverse of the noise's covariance, shrunk towards independence.

    Source: Ledoit and Wolf 2004, with the weight of :mod:`privfed.audits.test_statistics`. The
    noise is centred, of std 1 in each cell, shape (draws, cells).
    """
    draws, cells = noise.shape
    shrunk = cells / (cells + draws)
    _, values, axes = np.linalg.svd(noise, full_matrices=False)
    variances = (1 - shrunk) * values**2 / max(draws, 1)
    weights = 1 / (variances + shrunk) - 1 / shrunk
    return np.asarray(rows / shrunk + (rows @ axes.T * weights) @ axes)


def _thin_out(numbers: np.ndarray) -> np.ndarray:
    """At most :data:`CELLS` of the numbers, evenly spaced."""
    if len(numbers) <= CELLS:
        return numbers
    return np.asarray(numbers[np.linspace(0, len(numbers) - 1, CELLS).astype(int)])


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and bool(np.allclose(first, second, rtol=1e-9, atol=1e-12))


@dataclass(frozen=True, eq=False)
class RecordArrays:
    """Records as arrays: x, shape (records, features), and y, shape (records,), or None."""

    x: np.ndarray
    y: np.ndarray | None

    @classmethod
    def of(cls, tables: Sequence[Table]) -> RecordArrays:
        """Those of all tables; without targets if one has none."""
        X = np.concatenate([table.x for table in tables])
        ys = [table.y for table in tables if table.y is not None]
        return cls(X, np.concatenate(ys) if len(ys) == len(tables) else None)

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
