"""A list of candidates, and everything that a transcript says of them, solved together.

Every released number that adds up over records is an equation in who was there: the sum over the
candidates of ``h_i a_i`` is what was released, with ``h_i`` the times that candidate i was there and
``a_i`` what the question would release about it alone. All equations of one client are solved jointly
for ``0 <= h``, exact and noisy ones together, each divided by the deviation of its noise, by
least squares within a box with a weak prior. No equation needs to give
anybody away: five hundred candidates need five hundred sums, and a tree's levels have thousands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.stats import beta

from privfed.attacks.base import Attack, PublicSchema, Truth, question_of
from privfed.attacks.boxed import boxed
from privfed.attacks.clock import SECONDS, Clock
from privfed.attacks.expected import Curve
from privfed.attacks.finding import Finding, Severity
from privfed.attacks.linear import Told, drawn_of, known_schema, told_of
from privfed.attacks.membership import between_draws
from privfed.errors import InputError
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.questions.query import Query, View

#: Most candidates of one list; most unknowns where each comes with every value of a column.
MOST, TRIED = 2000, 900
#: Most values that are tried for an unknown column of numbers, and fewest.
VALUES, FEWEST = 9, 3
#: Most samples of a client's records that are solved for, and how often each may repeat a record.
SAMPLES, REPEATED = 6, 8
#: What is thought of a candidate beforehand: mean and deviation of how often it was there.
PRIOR, SPREAD = 0.3, 0.5
#: False positives at which members count as found, and how many outsiders such a rate needs.
RATE, NEEDED = 0.01, 100
#: How near, as a share of its range, a number has to be told to count as recovered.
NEAR = 0.02
#: Share of the members beyond its baseline from which people count as identified.
MANY = 0.1
#: Confidence of intervals.
CONFIDENCE = 0.95
#: The name of the schema's target, whatever it is called there.
TARGET = "target"


@dataclass(frozen=True, eq=False)
class Candidates:
    """A list of people who may have been at one client, equal records told once.

    Args:
        x: features, shape (candidates, features).
        y: targets, shape (candidates,), or none.
        often: how many records are alike, shape (candidates,).
        member: who was there, which only scores the attack, shape (candidates,).
    """

    x: np.ndarray
    y: np.ndarray | None
    often: np.ndarray
    member: np.ndarray

    @classmethod
    def of(cls, truth: Truth, client: str, most: int, rng: np.random.Generator) -> Candidates:
        """The client's own records among those of others, at most so many in all."""
        names = [client, *(name for name in truth if name != client)]
        tables = [truth[name] for name in names if len(truth[name].x)]
        target = all(table.y is not None for table in tables)
        rows = [
            np.column_stack([table.x, table.y]) if target and table.y is not None else table.x
            for table in tables
        ]
        own = len(truth[client].x)
        whole = np.concatenate(rows) if rows else np.zeros((0, 1))
        others = rng.permutation(np.arange(own, len(whole)))[: max(0, most - own)]
        kept = np.concatenate([np.arange(own), np.sort(others)]).astype(int)
        alike, at, often = np.unique(whole[kept], axis=0, return_inverse=True, return_counts=True)
        member = np.bincount(at.ravel()[:own], minlength=len(alike)) > 0
        x, y = (alike[:, :-1], alike[:, -1]) if target else (alike, None)
        return cls(x, y, often.astype(float), member)

    def __len__(self) -> int:
        return len(self.often)

    @property
    def usable(self) -> bool:
        """Whether there are members to find, and others to take for them."""
        return bool(self.member.any() and not self.member.all())


@dataclass
class System:
    """The normal equations of everything that a client said about candidates.

    Args:
        often: most times that each unknown can count, shape (unknowns,).
    """

    often: np.ndarray
    gram: np.ndarray = field(init=False)
    right: np.ndarray = field(init=False)
    equations: int = 0
    exact: int = 0
    kinds: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.gram, self.right = np.zeros((len(self.often),) * 2), np.zeros(len(self.often))

    def add(self, told: Told, kind: str) -> None:
        """Add what a release of some kind says."""
        self.gram += told.added @ told.added.T
        self.right += told.added @ told.told
        self.equations += len(told.told)
        self.exact += len(told.told) * told.exact
        self.kinds.add(kind)

    @cached_property
    def rank(self) -> int:
        """In how many directions the equations say more than the prior does."""
        return int((np.linalg.eigvalsh(self.gram) > 1 / SPREAD**2).sum())

    def solve(self, clock: Clock) -> np.ndarray:
        """How often each was there, shape (unknowns,).

        Least squares with a Gaussian prior, within what is possible.
        """
        gram = self.gram + np.eye(len(self.often)) / SPREAD**2
        return boxed(gram, self.right + PRIOR / SPREAD**2, self.often, clock)


@dataclass
class Systems:
    """All that a client said: of its records, and of samples that it drew from them by secret coins.

    A sample's equations say how often each candidate was drawn; who was in none was hardly there.

    Args:
        often: most times that each unknown can count, shape (unknowns,).
    """

    often: np.ndarray
    _all: dict[str, System] = field(default_factory=dict)

    def read(self, entry: TranscriptEntry, view: View) -> None:
        """Add what a release says; of samples the first few."""
        for told in told_of(entry, view):
            self._all.setdefault("", System(self.often)).add(told, entry.kind)
        for draw, told in drawn_of(entry, view):
            if draw not in self._all and len(self._all) > SAMPLES:
                break
            self._all.setdefault(draw, System(self.often * REPEATED)).add(told, entry.kind)

    def solve(self, clock: Clock) -> np.ndarray:
        """How often each was there, over all systems, shape (unknowns,)."""
        total = np.zeros(len(self.often))
        for each in self._all.values():
            if total.any() and clock.over:
                break
            total += each.solve(clock)
        return total

    @property
    def rank(self) -> int:
        """Of the system that says most."""
        return max(each.rank for each in self._all.values())

    @property
    def equations(self) -> int:
        """How many there are."""
        return sum(each.equations for each in self._all.values())

    @property
    def exact(self) -> int:
        """How many of them left without noise."""
        return sum(each.exact for each in self._all.values())

    @property
    def kinds(self) -> set[str]:
        """The kinds of release that they are of."""
        return set().union(*(each.kinds for each in self._all.values()))


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of one client's list.

    Args:
        members: how many were there.
        outsiders: how many were not.
        found: share of the members above all but 1 % of the outsiders.
        area: how often a member came out above an outsider.
        recovered: members whose unknown column was told, or how many were found.
        guessed: the same by the best single guess, or as often as others on the list are told: what
            follows from the population alone.
        error: median error of a number as a share of its range, or none.
        system: what was solved.
    """

    members: int
    outsiders: int
    found: float
    area: float
    recovered: float
    guessed: float
    error: float | None
    system: Systems


class Pool(Attack):
    """Finds the members in a list of candidates, and what of them the list does not say.

    The attacker has a list in which all of a client's records stand among others, with all their
    columns, or all but one; not who was there, and nothing of the other clients. The prior over an
    unknown column is even over its public range or categories.

    Where clients differ, members differ from others on the list, and even a private release tells
    clients apart: no guarantee for a record bounds what is found so, and the finding has no limit.

    Args:
        seconds: when to stop and report what was found so far.
        unknown: what the list leaves out, a round of the attack for each: nothing (``""``), the
            target (``"target"``), or a feature by its name.
        candidates: most people on a list; a client with more records is left out, and told so.
        unknowns: most unknowns where a column is left out: candidates times the values that are
            tried; more tell numbers more finely, and take longer (with their third power).
    """

    name: ClassVar[str] = "pool"
    question: ClassVar[str] = (
        "Who on a list of candidates was there, and what of them is not on it?"
    )

    def __init__(
        self,
        *,
        seconds: float = SECONDS,
        unknown: Sequence[str] = ("", TARGET),
        candidates: int = MOST,
        unknowns: int = TRIED,
    ) -> None:
        super().__init__(seconds=seconds)
        if candidates < 2:
            raise InputError("attack 'pool': a list needs candidates = 2 or more")
        self.unknown, self.candidates, self.unknowns = tuple(unknown), candidates, unknowns

    def reads(self, entry: TranscriptEntry) -> bool:
        """Whether the question says what an answer tells of who was there."""
        asked = question_of(entry)
        if asked is None:
            return False
        summed = asked.linear and any(p.type.adds_up for p in entry.release.parts.values())
        kind = type(asked)
        return summed or kind.equations is not Query.equations or kind.drawn is not Query.drawn

    def attackable(self, transcript: Transcript) -> bool:
        """Whether anything in it is linear in who was there."""
        return any(self.reads(entry) for entry in transcript)

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: a finding for each column that may be unknown.

        There are none without the truth, of which the lists are made.
        """
        if not truth:
            return []
        clock = Clock(self.seconds)
        found = [self._round(unknown, transcript, truth, schema, clock) for unknown in self.unknown]
        return [finding for finding in found if finding is not None]

    def _round(
        self,
        unknown: str,
        transcript: Transcript,
        truth: Truth,
        schema: PublicSchema | None,
        clock: Clock,
    ) -> Finding | None:
        """One list for each client, with one column left out."""
        clients = [client for client in transcript.clients if client in truth]
        outcomes: list[Outcome] = []
        read, large = 0, 0
        for client in clients:
            if clock.over:
                break
            entries = [entry for entry in transcript.of(client=client) if self.reads(entry)]
            known = known_schema(schema, truth[client])
            column = Unknown.of(unknown, known)
            if entries and column is not None:
                listed, values = self._listed(client, column, truth)
                if listed is None:
                    large += 1
                elif listed.usable and (column.place is not None or listed.y is not None):
                    outcomes += self._at(entries, column, listed, values, known, clock)
            read += not clock.over
        partial = _partial(clock.partial(read, len(clients), "clients"), large, len(clients))
        if outcomes:
            return self._told(unknown, outcomes, partial)
        return self._nobody(unknown, partial) if large else None

    def _listed(
        self, client: str, column: Unknown, truth: Truth
    ) -> tuple[Candidates | None, np.ndarray]:
        """The client's list, and what is tried of an unknown column; none where it would be too long."""
        values = column.tried(self.unknowns // max(2 * len(truth[client].x), 1))
        most = self.candidates if column.place is None else self.unknowns // len(values)
        most = min(self.candidates, most)
        listed = Candidates.of(truth, client, most, np.random.default_rng(0))
        return (listed if len(listed) <= most else None), values

    def _at(
        self,
        entries: Sequence[TranscriptEntry],
        column: Unknown,
        listed: Candidates,
        values: np.ndarray,
        schema: Any,
        clock: Clock,
    ) -> Iterator[Outcome]:
        """The outcome at one client; none where nothing that it said could be read."""
        x, y = column.filled(listed, values)
        view, system = View.of(schema, x, y), Systems(np.repeat(listed.often, len(values)))
        for entry in entries:
            if clock.over:
                break
            system.read(entry, view)
        if system.equations:
            weights = system.solve(clock).reshape(len(listed), len(values))
            yield column.scored(listed, values, weights, system)

    def _nobody(self, unknown: str, partial: str) -> Finding:
        """Nobody was attacked, and that is no pass."""
        return self.finding(_metric(unknown), 0.0, of=1.0, partial=partial, simulation=False)

    def _told(self, unknown: str, outcomes: Sequence[Outcome], partial: str) -> Finding:
        members = sum(each.members for each in outcomes)
        exact = all(2 * each.system.exact >= each.system.equations for each in outcomes)
        recovered = sum(each.recovered for each in outcomes)
        guessed = sum(each.guessed for each in outcomes) / members
        share = recovered / members
        low, high = interval(recovered, members)
        if not exact:
            half = between_draws(np.array([each.recovered / each.members for each in outcomes]))
            low, high = max(0.0, min(low, share - half)), min(1.0, max(high, share + half))
        return self.finding(
            _metric(unknown),
            share,
            of=1.0,
            low=low,
            high=high,
            baseline=guessed,
            releases=tuple(sorted(set().union(*(each.system.kinds for each in outcomes)))),
            severity=_severity(share, low, guessed, exact),
            detail=_detail(unknown, outcomes),
            partial=partial,
        )


def _metric(unknown: str) -> str:
    what = f"whose {unknown} came out" if unknown else "found at 1 % false positives"
    return f"share of members on a list of candidates {what}"


def _partial(late: str, large: int, clients: int) -> str:
    """Why clients were left out: no time, or more records than a list holds."""
    long = f"{large} of {clients} clients have more records than a list takes" if large else ""
    return "; ".join(filter(None, (late, long)))


def _severity(share: float, low: float, guessed: float, exact: bool) -> Severity:
    """Red where numbers that left as they were identify more than a few."""
    if low <= guessed:
        return Severity.NONE
    return Severity.BREACH if exact and share >= guessed + MANY else Severity.SOME


def _detail(unknown: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What the attacker knew, how much it was told, and how well the list was told apart."""
    weights = [each.members for each in outcomes]
    detail: dict[str, Any] = {
        "the attacker knows": "a list on which all the client's records stand among others"
        + (f", without their {unknown}" if unknown else ""),
        "lists": len(outcomes),
        "unknowns": max(len(each.system.often) for each in outcomes),
        "rank of the equations": [each.system.rank for each in outcomes],
        "equations": sum(each.system.equations for each in outcomes),
        "of these exact": sum(each.system.exact for each in outcomes),
        "members": sum(weights),
        "outsiders": sum(each.outsiders for each in outcomes),
        "members found at 1 % false positives": _mean([o.found for o in outcomes], weights),
        "area under the curve": _mean([o.area for o in outcomes], weights),
    }
    errors = [each.error for each in outcomes if each.error is not None]
    if errors:
        detail["median error as a share of the range"] = float(np.median(errors))
    fewest = min(each.outsiders for each in outcomes)
    if fewest < NEEDED:
        detail["note"] = f"{fewest} outsiders on a list: fewer than the {NEEDED} that 1 % needs"
    return detail


def _mean(figures: Sequence[float], weights: Sequence[int]) -> float:
    return float(np.average(figures, weights=weights))


def interval(found: float, of: int) -> tuple[float, float]:
    """The interval of a share of independent tries (Clopper and Pearson 1934)."""
    tail, count = (1 - CONFIDENCE) / 2, min(round(found), of)
    low = float(beta.ppf(tail, count, of - count + 1)) if count else 0.0
    return low, float(beta.ppf(1 - tail, count + 1, of - count)) if count < of else 1.0


@dataclass(frozen=True)
class Unknown:
    """The column that a list leaves out.

    Args:
        place: number of the feature, -1 for the target; none where nothing is left out.
        kind: of the column.
        bounds: the public interval of its encoded values.
    """

    place: int | None
    kind: str = ""
    bounds: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def of(cls, name: str, schema: PublicSchema) -> Unknown | None:
        """Look a column up; none where there is no target to be unknown.

        Raises:
            InputError: no feature of that name.
        """
        if not name:
            return cls(None)
        if name == TARGET:
            target = schema.target
            return None if target is None else cls(-1, target.kind, target.bounds)
        for place, column in enumerate(schema.features):
            if column.name == name:
                return cls(place, column.kind, column.bounds)
        known = ", ".join(column.name for column in schema.features)
        raise InputError(f"attack 'pool': no column {name!r}; write {TARGET!r} or one of {known}")

    def tried(self, most: int) -> np.ndarray:
        """The values that the column may have: all of few, or about so many."""
        if self.place is None:
            return np.zeros(1)
        low, high = self.bounds
        if self.kind != "number" and high - low < VALUES:
            return np.arange(low, high + 1)
        return np.linspace(low, high, min(max(most, FEWEST), VALUES))

    def filled(
        self, listed: Candidates, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Every candidate with every value, shape (candidates * values, ...)."""
        x = np.repeat(listed.x, len(values), axis=0)
        y = None if listed.y is None else np.repeat(listed.y, len(values))
        if self.place == -1:
            y = np.tile(values, len(listed))
        elif self.place is not None:
            x[:, self.place] = np.tile(values, len(listed))
        return x, y

    def scored(
        self, listed: Candidates, values: np.ndarray, weights: np.ndarray, system: Systems
    ) -> Outcome:
        """Hold the weights, shape (candidates, values), to who was there and what they had."""
        often = weights.sum(axis=1)
        curve = Curve.of(often[listed.member], often[~listed.member])
        members = int(listed.member.sum())
        sizes = (members, len(listed) - members, curve.at(RATE), curve.area)
        if self.place is None:
            return Outcome(*sizes, curve.at(RATE) * members, RATE * members, None, system)
        truth = listed.y if self.place == -1 else listed.x[:, self.place]
        assert truth is not None
        inside, outside = (
            self._told(truth[who], weights[who], values) for who in (listed.member, ~listed.member)
        )
        right, single, error = inside
        control = outside[0] / (len(listed) - members) * members
        return Outcome(*sizes, right, max(single, control), error, system)

    def _told(
        self, truth: np.ndarray, weights: np.ndarray, values: np.ndarray
    ) -> tuple[float, float, float | None]:
        """How many are told right, how many by the best single guess, and a number's median error."""
        if self.kind == "category" or len(values) == self.bounds[1] - self.bounds[0] + 1:
            told = values[weights.argmax(axis=1)]
            _, counts = np.unique(truth, return_counts=True)
            return float((told == truth).sum()), float(counts.max()), None
        total = weights.sum(axis=1)
        mean = np.where(total > 0, weights @ values / np.maximum(total, 1e-12), values.mean())
        width = self.bounds[1] - self.bounds[0]
        error = np.abs(mean - truth) / width
        near = np.abs(truth[:, None] - truth) <= NEAR * width
        return float((error <= NEAR).sum()), float(near.sum(axis=1).max()), float(np.median(error))
