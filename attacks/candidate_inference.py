"""Membership and attribute inference over a candidate list.

Each released sum gives a linear equation: sum_i h_i a_i = release - noise, where h_i is candidate
i's multiplicity and a_i its contribution to the query. Per client, all equations, exact and noisy,
each divided by its noise's std, are solved by bounded least squares, 0 <= h <= max, with a weak
Gaussian prior. Sums that are harmless alone identify members jointly: 500 candidates need 500 sums
as real numbers; as exact integers of many bits each, far fewer (:mod:`privfed.attacks.lattice`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import ndtri

from privfed.attacks.base import Attack, PublicSchema, Truth, question_of
from privfed.attacks.bounded_least_squares import CandidateSystem
from privfed.attacks.candidate_records import CandidateRecords, Named
from privfed.attacks.deadline import Deadline
from privfed.attacks.finding import HALF, POWER, Finding, Risk, Severity
from privfed.attacks.lattice import AVAILABLE, ExactSums
from privfed.attacks.linear import (
    LinearEquations,
    integer_sums,
    known_schema,
    linear_equations,
    sample_equations,
)
from privfed.attacks.membership import between_draws
from privfed.attacks.population import inferred
from privfed.attacks.roc import FOUND_AT, RocCurve, exposure, interval, mean_points
from privfed.errors import InputError
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.questions.query import Query, View

#: Most candidates of one list; most unknowns where each comes with every value of a column.
MOST, TRIED = 2000, 900
VALUES, FEWEST = 9, 3  #: Most values that are tried for an unknown column of numbers, and fewest
#: Most samples of a client's records that are solved for, and how often each may repeat a record.
SAMPLES, REPEATED = 6, 8
READING = 0.5  #: Share of the work for what is read; the rest is for solving
RATE, NEEDED = 0.01, 100  #: FPR at which members count as found, and the fewest outsiders for it
NEAR = 0.02  #: Largest error of a recovered number, as a fraction of its range
MANY = 0.1  #: Fraction of the members above the baseline from which the finding is a breach
SURE = 1e6  #: Score of whom exact sums name, beyond every estimate
#: What is measured of them.
NAMED = "share of the used records on a list that exact sums identify, without guessing"
TARGET = "target"  #: The name of the schema's target, whatever it is called there


@dataclass
class CandidateSystems:
    """One system for a client's records, and one for each sample that it drew by secret coins.

    A sample's equations say how often each candidate was drawn; who is in none is hardly a member.
    Beside them the number of equations, of exact ones among them, and the kinds of release.
    """

    often: np.ndarray
    equations: int = 0
    exact: int = 0
    kinds: set[str] = field(default_factory=set)
    sums: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    cut_short: bool = False  #: Whether there are releases that were not read, or systems not solved
    #: of the system that says most, known once they are put away; None where the work was spent before
    rank: int | None = None
    _all: dict[str, CandidateSystem] = field(default_factory=dict)

    def read(self, entry: TranscriptEntry, view: View, deadline: Deadline) -> None:
        """Add the equations of a release; of samples the first few."""
        for told in linear_equations(entry, view):
            self._add("", told, entry.kind, deadline)
        for draw, told in sample_equations(entry, view):
            if draw not in self._all and len(self._all) > SAMPLES:
                break
            self._add(draw, told, entry.kind, deadline)

    def _add(self, draw: str, told: LinearEquations, kind: str, deadline: Deadline) -> None:
        if not deadline.spend(len(told.told) * len(self.often) ** 2 / 10):
            self.cut_short = True
            return
        if draw not in self._all:
            self._all[draw] = CandidateSystem(self.often * (REPEATED if draw else 1))
        self._all[draw].add(told)
        self.equations += len(told.told)
        self.exact += len(told.told) * told.exact
        self.kinds.add(kind)

    def read_exactly(self, entry: TranscriptEntry, view: View) -> None:
        """Keep the integers of a release's exact sums."""
        self.sums += integer_sums(entry, view)

    def decide(self, estimate: np.ndarray, deadline: Deadline) -> ExactSums | None:
        """What the exact sums decide, each candidate as likely a member as estimates say on average."""
        if not self.sums:
            return None
        share = np.clip(estimate, 0, self.often).sum() / self.often.sum()
        added, released = (np.concatenate(each) for each in zip(*self.sums, strict=True))
        self.sums.clear()
        exact = ExactSums(added, released, self.often, np.full(len(self.often), share))
        exact.solve(deadline)
        return exact

    def solve(self, deadline: Deadline) -> np.ndarray:
        """Multiplicities summed over all systems, shape (unknowns,)."""
        total = np.zeros(len(self.often))
        for each in self._all.values():
            if not deadline.spend(float(len(self.often)) ** 3 / 2):
                self.cut_short = True
                if total.any():
                    break
            total += each.solve(deadline)
        return total

    @property
    def settled(self) -> bool:
        """Whether exact equations decide all unknowns of each system, so that no others say more."""
        return self.exact == self.equations and all(each.full for each in self._all.values())

    def put_away(self, deadline: Deadline) -> None:
        """Keep the rank alone: many clients' matrices would fill the memory."""
        most = max(self._all.values(), key=lambda each: float(np.trace(each.gram)))
        done = not deadline.over and deadline.spend(float(len(self.often)) ** 3 / 2)
        self.rank, self._all = most.rank if done else None, {}


@dataclass(frozen=True, eq=False)
class CandidateResult:
    """The inference for one client.

    ``curve`` tells members from outsiders; ``recovered`` and ``guessed`` count members whose unknown
    column is correct (or members found), by the attack and by the baseline; ``error`` is a number's
    median error as a fraction of its range, or None; ``exposed`` is the FPR at which each of the
    client's records is found; ``accused`` of ``controls``, its held-out records, are found or right too.
    All count people, of whom those alike share one fate: ``alike`` is how many, on average over members, outsiders
    and controls, so many fewer are independent (Kish 1965, the design effect).
    """

    members: int
    outsiders: int
    curve: RocCurve
    exposed: np.ndarray
    recovered: float
    guessed: float
    error: float | None
    accused: float
    controls: int
    system: CandidateSystems
    client: str = ""
    named: Named | None = None
    alike: tuple[float, float, float] = (1.0, 1.0, 1.0)


class CandidateInference(Attack):
    """Infers who on a list is a member, and optionally one unknown column.

    The attacker knows a list containing all of a client's records among others, with all columns or
    all but one, and nothing about other clients. The unknown column's prior is uniform over its
    public range. If clients' distributions differ, even a private release tells clients apart, which no
    record-level guarantee bounds: so findings state no limit, and nothing is found unless members are found
    more often than held-out records of the same clients, where the truth has them (``NAME, held out``): what is
    true of those is told by what the clients have in common, not by a member's being there.

    Args:
        unknown: columns to infer, one round each: ``""`` for membership only, ``"target"``, or a
            feature's name.
        max_candidates: longest list; clients with more records are left out and reported.
        max_unknowns: maximum of candidates times tried values; time grows cubically.
    """

    name: ClassVar[str] = "pool"
    controls: ClassVar[bool] = True
    max_work: float = 1e11
    risk: ClassVar[Risk] = "singling out"
    harm: ClassVar[str] = "someone with a list of candidates can tell whose record was used"
    question: ClassVar[str] = (
        "Which candidates on a list are in the data, and which of their values can be inferred?"
    )

    def __init__(
        self,
        *,
        time_limit: float | None = None,
        unknown: Sequence[str] = ("", TARGET),
        max_candidates: int = MOST,
        max_unknowns: int = TRIED,
    ) -> None:
        super().__init__(time_limit=time_limit)
        if max_candidates < 2:
            raise InputError("attack 'pool': a list needs max_candidates = 2 or more")
        self.unknown = tuple(unknown)
        self.max_candidates, self.max_unknowns = max_candidates, max_unknowns

    def reads(self, entry: TranscriptEntry) -> bool:
        """Whether the query says how an answer depends on who is a member."""
        asked = question_of(entry)
        if asked is None:
            return False
        summed = asked.linear and any(p.type.adds_up for p in entry.release.parts.values())
        kind = type(asked)
        return summed or kind.equations is not Query.equations or kind.drawn is not Query.drawn

    def check(self, schema: PublicSchema) -> None:
        """See the base: its unknown columns are there."""
        for name in self.unknown:
            UnknownColumn.of(name, schema)

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: a finding for each unknown column; none without the truth."""
        if not truth:
            return []
        deadline = self.deadline()
        found: list[Finding] = []
        for at in deadline.range(len(self.unknown)):
            share = deadline.part(1 / (len(self.unknown) - at))
            found += self._round(self.unknown[at], transcript, truth, schema, share)
            deadline.work += min(share.work, share.max_work)
        return found

    def _round(
        self,
        unknown: str,
        transcript: Transcript,
        truth: Truth,
        schema: PublicSchema | None,
        deadline: Deadline,
    ) -> list[Finding]:
        clients = [client for client in transcript.clients if client in truth]
        outcomes: list[CandidateResult] = []
        read, large, short, within = 0, 0, 0, ""
        for client in clients:
            if deadline.over:
                break
            entries = [entry for entry in transcript.of(client=client) if self.reads(entry)]
            known = known_schema(schema, truth[client])
            column = UnknownColumn.of(unknown, known)
            if entries and column is not None:
                listed, values = self._listed(client, column, truth)
                if listed is None:
                    large += 1
                elif listed.usable and (column.place is not None or listed.y is not None):
                    share = deadline.part(1 / (len(clients) - read))
                    told, cut = self._at(entries, column, listed, values, known, share)
                    outcomes += filter(None, [told])
                    if cut:
                        within = "time" if share.late else f"{share.max_work:.2g} operations each"
                        short += 1
                    deadline.work += min(share.work, share.max_work)
            read += not deadline.over
        number, partial = len(clients), deadline.partial(read, len(clients), "clients")
        if large:
            most = 2 * max(len(truth[client].x) for client in clients)
            tried = FEWEST if unknown else 1
            long = (
                f"{large} of {number} clients {'has' if large == 1 else 'have'} more records than fit a list; max_candidates = {most}"
                + (f" and max_unknowns = {most * tried}" if unknown else "")
                + f" would take about {(most * tried) ** 3:.0e} operations per client"
            )
            partial = "; ".join(filter(None, (partial, long)))
        if short:
            unread = f"at {short} of {number} clients, not all sums were read within {within}"
            partial = "; ".join(filter(None, (partial, unread)))
        if outcomes:
            named = [each.named for each in outcomes if each.named is not None]
            return [
                self._told(unknown, outcomes, partial),
                *([self._named(named, outcomes, partial)] if named else []),
            ]
        if not large and not short:
            return []
        return [self.finding(_metric(unknown), 0.0, of=1.0, partial=partial, simulation=False)]

    def _named(
        self, named: Sequence[Named], outcomes: Sequence[CandidateResult], partial: str
    ) -> Finding:
        """Who is a member beyond doubt: counted, not estimated."""
        members, right = sum(each.members for each in outcomes), sum(each.right for each in named)
        low, high = interval(right, members)
        wrong = sum(each.members for each in named) - right
        detail = {
            "the attacker knows": "a list on which all the client's records stand among others",
            "bits of the sums": [round(each.sums) for each in named],
            "bits of the list": [round(each.list) for each in named],
            "named, but no members": wrong,
            "decided, members or not": sum(each.decided for each in named),
            "solved by": "lattice reduction" if AVAILABLE else "linear algebra and bounds alone",
        }
        if not AVAILABLE and right < members:
            missing = "no lattices were reduced: pip install privfed[lattice]"
            partial = "; ".join(filter(None, (partial, missing)))
        if stopped := sum(each.cut_short for each in named):
            short = f"lattice reduction stopped at {stopped} of {len(named)} clients"
            partial = "; ".join(filter(None, (partial, short)))
        return self.finding(
            NAMED,
            right / members,
            of=1.0,
            low=low,
            high=high,
            baseline=0.0,
            releases=tuple(sorted(set().union(*(each.system.kinds for each in outcomes)))),
            severity=Severity.BREACH if right > 10 * wrong else Severity.NONE,
            detail=detail,
            partial=partial,
            detectable=1 / members,
        )

    def _listed(
        self, client: str, column: UnknownColumn, truth: Truth
    ) -> tuple[CandidateRecords | None, np.ndarray]:
        """The client's list, None if it has no room for others, and the values tried of the unknown column."""
        values = column.tried(self.max_unknowns // max(2 * len(truth[client].x), 1))
        most = self.max_candidates if column.place is None else self.max_unknowns // len(values)
        most = min(self.max_candidates, most)
        if len(truth[client].x) >= most:
            return None, values
        listed = CandidateRecords.of(truth, client, most, np.random.default_rng(0))
        return (listed if len(listed) <= most else None), values

    def _at(
        self,
        entries: Sequence[TranscriptEntry],
        column: UnknownColumn,
        listed: CandidateRecords,
        values: np.ndarray,
        schema: Any,
        deadline: Deadline,
    ) -> tuple[CandidateResult | None, bool]:
        """The client's result, None if no release is readable, and whether some were not read or solved."""
        x, y = column.filled(listed, values)
        view, system = View.of(schema, x, y), CandidateSystems(np.repeat(listed.often, len(values)))
        reading = deadline.part(READING)
        for entry in entries:
            cells = sum(part.units.size for part in entry.release.parts.values())
            if not reading.spend(cells * len(system.often)):
                system.cut_short = True
                break
            system.read(entry, view, reading)
            if column.place is None:
                system.read_exactly(entry, view)
        deadline.work += min(reading.work, reading.max_work)
        if not system.equations:
            return None, system.cut_short
        system.cut_short = system.cut_short and not system.settled
        weights = system.solve(deadline)
        exact = system.decide(weights, deadline)
        named = None
        if exact is not None and exact.consistent:
            named = Named.of(exact, listed, deadline)
            sure = np.equal(exact.low, listed.often).astype(float) - (exact.high == 0)
            weights = np.where(exact.decided, exact.low, weights) + SURE * listed.often * sure
        system.put_away(deadline)
        scored = column.scored(listed, values, weights.reshape(len(listed), -1), system)
        return replace(scored, named=named, client=entries[0].client), system.cut_short

    def _told(self, unknown: str, outcomes: Sequence[CandidateResult], partial: str) -> Finding:
        members = sum(each.members for each in outcomes)
        exact = all(2 * each.system.exact >= each.system.equations for each in outcomes)
        recovered = sum(each.recovered for each in outcomes)
        guessed = sum(each.guessed for each in outcomes) / members
        controls, accused = (
            sum(getattr(o, of) for o in outcomes) for of in ("controls", "accused")
        )
        by_luck = 0.0
        if controls:
            by_luck = _interval(outcomes, "controls", accused)[1]
            guessed = max(guessed, accused / controls)
        elif not unknown:
            # the outsiders on the list have set the threshold: what it may let through of others
            outsiders = sum(each.outsiders for each in outcomes)
            by_luck = _interval(outcomes, "outsiders", math.floor(RATE * outsiders))[1]
        share = recovered / members
        low, high = _interval(outcomes, "members", min(round(recovered), members))
        if not exact:
            sizes = np.array([each.members for each in outcomes], float)
            recovered_of = np.array([each.recovered for each in outcomes])
            half = between_draws(recovered_of / sizes, weights=sizes)
            low, high = max(0.0, min(low, share - half)), min(1.0, max(high, share + half))
        chance = max(guessed, by_luck)
        enough = chance + max(high - share, share - low) * (1 + float(ndtri(POWER)) / HALF)
        inferred: dict[str, Any] = {}
        if unknown:
            inferred = {"risk": "inference", "harm": f"someone can tell a person's {unknown}"}
        return self.finding(
            _metric(unknown),
            share,
            **inferred,
            of=1.0,
            low=low,
            high=high,
            baseline=guessed,
            measure="" if unknown else "found at 1 %",
            releases=tuple(sorted(set().union(*(each.system.kinds for each in outcomes)))),
            severity=_severity(share, low, chance, exact),
            detail=_detail(unknown, outcomes)
            | ({"found of the control, at most": by_luck} if controls else {}),
            detectable=enough if controls else None,
            partial=partial,
            exposed={each.client: each.exposed for each in outcomes},
        )


def _metric(unknown: str) -> str:
    what = (
        f"whose {unknown} was inferred"
        if unknown
        else "found while 1 % of the others are wrongly accused"
    )
    return f"share of the used records on a list {what}"


def _interval(
    outcomes: Sequence[CandidateResult],
    who: Literal["members", "outsiders", "controls"],
    hits: float,
) -> tuple[float, float]:
    """The exact interval of a share of such people, as if there were one of all who are alike."""
    place = ("members", "outsiders", "controls").index(who)
    everybody = sum(getattr(each, who) for each in outcomes)
    alike = sum(getattr(each, who) * each.alike[place] for each in outcomes) / everybody
    number = max(1, round(everybody / alike))
    return interval(min(hits / alike, number), number)


def _severity(share: float, low: float, guessed: float, exact: bool) -> Severity:
    """A breach where exact numbers identify more than a few."""
    if low <= guessed:
        return Severity.NONE
    return Severity.BREACH if exact and share >= guessed + MANY else Severity.SOME


def _detail(unknown: str, outcomes: Sequence[CandidateResult]) -> dict[str, Any]:
    weights = [each.members for each in outcomes]

    def mean(figures: Sequence[float]) -> float:
        return float(np.average(figures, weights=weights))

    detail: dict[str, Any] = {
        "the attacker knows": "a list on which all the client's records stand among others"
        + (f", without their {unknown}" if unknown else ""),
        "lists": len(outcomes),
        "unknowns": max(len(each.system.often) for each in outcomes),
        "rank of the equations": [
            "not computed" if each.system.rank is None else each.system.rank for each in outcomes
        ],
        "equations": sum(each.system.equations for each in outcomes),
        "of these exact": sum(each.system.exact for each in outcomes),
        "members": sum(weights),
        "outsiders": sum(each.outsiders for each in outcomes),
        "of these the same owners' held-out records, the control": sum(
            o.controls for o in outcomes
        ),
        FOUND_AT: mean_points([each.curve for each in outcomes], weights),
        "members found at 1 % false positives": mean([o.curve.at(RATE) for o in outcomes]),
        "area under the curve": mean([o.curve.auc for o in outcomes]),
    }
    errors = [each.error for each in outcomes if each.error is not None]
    if errors:
        detail["median error as a share of the range"] = float(np.median(errors))
    fewest = min(each.outsiders for each in outcomes)
    if fewest < NEEDED:
        detail["note"] = f"{fewest} outsiders on a list: a rate at 1 % needs {NEEDED}"
    return detail


@dataclass(frozen=True)
class UnknownColumn:
    """The column that a list leaves out: index (-1: the target, None: none), kind and bounds."""

    place: int | None
    kind: str = ""
    bounds: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def of(cls, name: str, schema: PublicSchema) -> UnknownColumn | None:
        """Look a column up; None if there is no target. InputError if there is no such feature."""
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
        """The values to try: all if few, else at most ``most``."""
        if self.place is None:
            return np.zeros(1)
        low, high = self.bounds
        if self.kind != "number" and high - low < VALUES:
            return np.arange(low, high + 1)
        return np.linspace(low, high, min(max(most, FEWEST), VALUES))

    def filled(
        self, listed: CandidateRecords, values: np.ndarray
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
        self,
        listed: CandidateRecords,
        values: np.ndarray,
        weights: np.ndarray,
        system: CandidateSystems,
    ) -> CandidateResult:
        """Compare the estimates, shape (candidates, values), with the truth."""
        members, outsiders = listed.members, listed.outsiders
        share = weights.sum(axis=1) / listed.often
        others, held = (np.repeat(share, who) for who in (outsiders, listed.controls))
        curve = RocCurve.of(np.repeat(share, members), others)
        sizes, number = (int(members.sum()), len(others), curve), len(held)
        if self.place is None:
            exposed = exposure(share, others)[listed.own]
            found, guessed = curve.at(RATE) * sizes[0], RATE * sizes[0]
            accused = RocCurve.of(held, others).at(RATE) * number if number else 0.0
            return CandidateResult(
                *sizes, exposed, found, guessed, None, accused, number, system, alike=listed.alike
            )
        truth = listed.y if self.place == -1 else listed.x[:, self.place]
        assert truth is not None
        told, sure = self._told(weights, values, truth)
        right = self._right(told, truth, values)
        known = self._others(listed)
        expected = inferred(
            known,
            np.repeat(known, outsiders, axis=0),
            np.repeat(truth, outsiders),
            category=self._listing(values),
        )
        without = (
            (
                members @ self._right(truth[:, None], truth[members > 0], values)
            ).max(),  # the best constant
            outsiders
            @ right
            / outsiders.sum()
            * members.sum(),  # the same attack, of who was not there
            members @ self._right(expected, truth, values),  # people alike
        )
        error = None if self._listing(values) else np.repeat(self._error(told, truth), members)
        return CandidateResult(
            *sizes,
            exposure(sure, np.repeat(sure, outsiders))[listed.own],
            float(members @ right),
            float(max(without)),
            None if error is None else float(np.median(error)),
            float(listed.controls @ right),
            number,
            system,
            alike=listed.alike,
        )

    def _listing(self, values: np.ndarray) -> bool:
        """Whether every value is tried, so that one of them is right."""
        return self.kind == "category" or len(values) == self.bounds[1] - self.bounds[0] + 1

    def _told(
        self, weights: np.ndarray, values: np.ndarray, truth: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The value inferred of each candidate, and how near the truth it is: larger is nearer."""
        total = weights.sum(axis=1)
        if self._listing(values):
            own = weights[np.arange(len(truth)), np.searchsorted(values[:-1], truth)]
            return values[weights.argmax(axis=1)], own / np.maximum(total, 1e-12)
        mean = np.where(total > 0, weights @ values / np.maximum(total, 1e-12), values.mean())
        return mean, -self._error(mean, truth)

    def _error(self, told: np.ndarray, truth: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(told - truth) / (self.bounds[1] - self.bounds[0]))

    def _right(self, told: np.ndarray, truth: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Whether a value is right, a number nearly."""
        exact = self._listing(values)
        return np.asarray(told == truth if exact else self._error(told, truth) <= NEAR)

    def _others(self, listed: CandidateRecords) -> np.ndarray:
        """All other columns of the list."""
        beside = [] if listed.y is None or self.place == -1 else [listed.y]
        x = listed.x if self.place in (None, -1) else np.delete(listed.x, self.place, axis=1)
        return np.column_stack([x, *beside])
