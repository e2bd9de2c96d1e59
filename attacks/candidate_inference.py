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
from privfed.attacks.population import infer_by_neighbours
from privfed.attacks.roc import FOUND_AT, RocCurve, exposure, interval, mean_points
from privfed.errors import InputError
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.questions.query import Query, View

#: Most candidates of one list; most unknowns if each candidate comes with every value of a column.
MOST, TRIED = 2000, 900
VALUES, FEWEST = 9, 3  #: Most values that are tried for an unknown column of numbers, and fewest
#: Most samples of a client's records that are solved for, and how often each may repeat a record.
SAMPLES, REPEATED = 6, 8
READING = 0.5  #: Fraction of the work for reading releases; the rest is for solving
RATE, NEEDED = 0.01, 100  #: FPR at which members count as found, and the fewest outsiders for it
NEAR = 0.02  #: Largest error of a recovered number, as a fraction of its range
MANY = 0.1  #: Fraction of the members above the baseline from which the finding is a breach
SURE = 1e6  #: Score of candidates that exact sums identify, beyond every estimate
#: The metric of them.
NAMED = "share of the used records on a list that exact sums identify, without guessing"
TARGET = "target"  #: The name of the schema's target, whatever it is called there


@dataclass
class CandidateSystems:
    """One system for a client's records, and one for each sample that it drew by secret coins.

    The unknowns of a sample are how often each candidate was drawn. Also the number of equations, of
    exact ones among them, and the kinds of release.
    """

    copies: np.ndarray
    equations: int = 0
    exact: int = 0
    kinds: set[str] = field(default_factory=set)
    sums: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    cut_short: bool = False  #: Whether there are releases that were not read, or systems not solved
    #: of the most informative system, after :meth:`keep_rank`; None if the work was spent before
    rank: int | None = None
    _systems: dict[str, CandidateSystem] = field(default_factory=dict)

    def read(self, entry: TranscriptEntry, view: View, deadline: Deadline) -> None:
        """Add the equations of a release, and of its first :data:`SAMPLES` samples."""
        for equations in linear_equations(entry, view):
            self._add("", equations, entry.kind, deadline)
        for draw, equations in sample_equations(entry, view):
            if draw not in self._systems and len(self._systems) > SAMPLES:
                break
            self._add(draw, equations, entry.kind, deadline)

    def _add(self, draw: str, equations: LinearEquations, kind: str, deadline: Deadline) -> None:
        if not deadline.spend(len(equations.released) * len(self.copies) ** 2 / 10):
            self.cut_short = True
            return
        if draw not in self._systems:
            self._systems[draw] = CandidateSystem(self.copies * (REPEATED if draw else 1))
        self._systems[draw].add(equations)
        self.equations += len(equations.released)
        self.exact += len(equations.released) * equations.exact
        self.kinds.add(kind)

    def decide(self, estimate: np.ndarray, deadline: Deadline) -> ExactSums | None:
        """Decide what the exact sums allow; the prior of each candidate is the estimates' mean."""
        if not self.sums:
            return None
        fraction = np.clip(estimate, 0, self.copies).sum() / self.copies.sum()
        added, released = (np.concatenate(arrays) for arrays in zip(*self.sums, strict=True))
        self.sums.clear()
        exact = ExactSums(added, released, self.copies, np.full(len(self.copies), fraction))
        exact.solve(deadline)
        return exact

    def solve(self, deadline: Deadline) -> np.ndarray:
        """Multiplicities summed over all systems, shape (unknowns,)."""
        total = np.zeros(len(self.copies))
        for system in self._systems.values():
            if not deadline.spend(float(len(self.copies)) ** 3 / 2):
                self.cut_short = True
                if total.any():
                    break
            total += system.solve(deadline)
        return total

    @property
    def determined(self) -> bool:
        """Whether exact equations decide all unknowns of each system, so that others add nothing."""
        return self.exact == self.equations and all(s.full for s in self._systems.values())

    def keep_rank(self, deadline: Deadline) -> None:
        """Keep the rank and drop the matrices: those of many clients would fill the memory."""
        strongest = max(self._systems.values(), key=lambda system: float(np.trace(system.gram)))
        done = not deadline.over and deadline.spend(float(len(self.copies)) ** 3 / 2)
        self.rank, self._systems = strongest.rank if done else None, {}


@dataclass(frozen=True, eq=False)
class CandidateResult:
    """The inference for one client.

    ``curve`` is that of members against outsiders; ``recovered`` and ``guessed`` count members whose unknown
    column is correct (or members found), by the attack and by the baseline; ``error`` is a number's
    median error as a fraction of its range, or None; ``exposed`` is the FPR at which each of the
    client's records is found; ``false_positives`` of ``controls``, its held-out records, are found or correct too.
    All count people, and equal records have equal results: ``repeats`` is how many are equal, on average
    over members, outsiders and controls, and divides the number of independent ones (Kish 1965, the design effect).
    """

    members: int
    outsiders: int
    curve: RocCurve
    exposed: np.ndarray
    recovered: float
    guessed: float
    error: float | None
    false_positives: float
    controls: int
    system: CandidateSystems
    client: str = ""
    named: Named | None = None
    repeats: tuple[float, float, float] = (1.0, 1.0, 1.0)


class CandidateInference(Attack):
    """Infers who on a list is a member, and optionally one unknown column.

    The attacker knows a list containing all of a client's records among others, with all columns or
    all but one, and nothing about other clients. The unknown column's prior is uniform over its
    public range. If clients' distributions differ, even a private release distinguishes clients, which no
    record-level guarantee bounds: so findings state no limit, and nothing is found unless members are found
    more often than held-out records of the same clients, if the truth has them (``NAME, held out``): those show
    what follows from the client's distribution alone.

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
        """Whether the query states how its answer depends on the members."""
        query = question_of(entry)
        if query is None:
            return False
        summed = query.linear and any(p.type.adds_up for p in entry.release.parts.values())
        kind = type(query)
        return summed or kind.equations is not Query.equations or kind.drawn is not Query.drawn

    def check(self, schema: PublicSchema) -> None:
        """See the base class: its unknown columns exist."""
        for name in self.unknown:
            UnknownColumn.of(name, schema)

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: a finding for each unknown column; none without the truth."""
        if not truth:
            return []
        deadline = self.deadline()
        findings: list[Finding] = []
        for index in deadline.range(len(self.unknown)):
            bounds = deadline.part(1 / (len(self.unknown) - index))
            findings += self._round(self.unknown[index], transcript, truth, schema, bounds)
            deadline.work += min(bounds.work, bounds.max_work)
        return findings

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
                records, values = self._candidates(client, column, truth)
                if records is None:
                    large += 1
                elif records.usable and (column.index is not None or records.y is not None):
                    bounds = deadline.part(1 / (len(clients) - read))
                    result, cut_short = self._result(
                        entries, column, records, values, known, bounds
                    )
                    outcomes += filter(None, [result])
                    if cut_short:
                        within = "time" if bounds.late else f"{bounds.max_work:.2g} operations each"
                        short += 1
                    deadline.work += min(bounds.work, bounds.max_work)
            read += not deadline.over
        number, partial = len(clients), deadline.partial(read, len(clients), "clients")
        if large:
            needed = 2 * max(len(truth[client].x) for client in clients)
            n_values = FEWEST if unknown else 1
            message = (
                f"{large} of {number} clients {'has' if large == 1 else 'have'} more records than fit a list; max_candidates = {needed}"
                + (f" and max_unknowns = {needed * n_values}" if unknown else "")
                + f" would take about {(needed * n_values) ** 3:.0e} operations per client"
            )
            partial = "; ".join(filter(None, (partial, message)))
        if short:
            unread = f"at {short} of {number} clients, not all sums were read within {within}"
            partial = "; ".join(filter(None, (partial, unread)))
        if outcomes:
            named = [outcome.named for outcome in outcomes if outcome.named is not None]
            return [
                self._finding(unknown, outcomes, partial),
                *([self._named_finding(named, outcomes, partial)] if named else []),
            ]
        if not large and not short:
            return []
        return [self.finding(_metric(unknown), 0.0, of=1.0, partial=partial, simulation=False)]

    def _named_finding(
        self, named: Sequence[Named], outcomes: Sequence[CandidateResult], partial: str
    ) -> Finding:
        """The finding of members that exact sums identify: counted, not estimated."""
        members, right = sum(r.members for r in outcomes), sum(r.correct for r in named)
        low, high = interval(right, members)
        wrong = sum(r.members for r in named) - right
        detail = {
            "the attacker knows": "a list on which all the client's records stand among others",
            "bits of the sums": [round(r.sums) for r in named],
            "bits of the list": [round(r.list) for r in named],
            "named, but no members": wrong,
            "decided, members or not": sum(r.decided for r in named),
            "solved by": "lattice reduction" if AVAILABLE else "linear algebra and bounds alone",
        }
        if not AVAILABLE and right < members:
            missing = "no lattices were reduced: pip install privfed[lattice]"
            partial = "; ".join(filter(None, (partial, missing)))
        if stopped := sum(r.cut_short for r in named):
            short = f"lattice reduction stopped at {stopped} of {len(named)} clients"
            partial = "; ".join(filter(None, (partial, short)))
        return self.finding(
            NAMED,
            right / members,
            of=1.0,
            low=low,
            high=high,
            baseline=0.0,
            releases=tuple(sorted(set().union(*(r.system.kinds for r in outcomes)))),
            severity=Severity.BREACH if right > 10 * wrong else Severity.NONE,
            detail=detail,
            partial=partial,
            detectable=1 / members,
        )

    def _candidates(
        self, client: str, column: UnknownColumn, truth: Truth
    ) -> tuple[CandidateRecords | None, np.ndarray]:
        """The client's list, None if it has no room for others, and the unknown column's trial values."""
        values = column.trial_values(self.max_unknowns // max(2 * len(truth[client].x), 1))
        size = self.max_candidates if column.index is None else self.max_unknowns // len(values)
        size = min(self.max_candidates, size)
        if len(truth[client].x) >= size:
            return None, values
        records = CandidateRecords.of(truth, client, size, np.random.default_rng(0))
        return (records if len(records) <= size else None), values

    def _result(
        self,
        entries: Sequence[TranscriptEntry],
        column: UnknownColumn,
        records: CandidateRecords,
        values: np.ndarray,
        schema: Any,
        deadline: Deadline,
    ) -> tuple[CandidateResult | None, bool]:
        """The client's result, None if no release is readable, and whether some were not read or solved."""
        X, y = column.fill(records, values)
        view = View.of(schema, X, y)
        system = CandidateSystems(np.repeat(records.copies, len(values)))
        reading = deadline.part(READING)
        for entry in entries:
            cells = sum(part.units.size for part in entry.release.parts.values())
            if not reading.spend(cells * len(system.copies)):
                system.cut_short = True
                break
            system.read(entry, view, reading)
            if column.index is None:
                system.sums += integer_sums(entry, view)
        deadline.work += min(reading.work, reading.max_work)
        if not system.equations:
            return None, system.cut_short
        system.cut_short = system.cut_short and not system.determined
        weights = system.solve(deadline)
        exact = system.decide(weights, deadline)
        named = None
        if exact is not None and exact.consistent:
            named = Named.of(exact, records, deadline)
            certain = np.equal(exact.low, records.copies).astype(float) - (exact.high == 0)
            weights = np.where(exact.decided, exact.low, weights) + SURE * records.copies * certain
        system.keep_rank(deadline)
        result = column.score(records, values, weights.reshape(len(records), -1), system)
        return replace(result, named=named, client=entries[0].client), system.cut_short

    def _finding(self, unknown: str, outcomes: Sequence[CandidateResult], partial: str) -> Finding:
        members = sum(r.members for r in outcomes)
        exact = all(2 * r.system.exact >= r.system.equations for r in outcomes)
        recovered = sum(r.recovered for r in outcomes)
        guessed = sum(r.guessed for r in outcomes) / members
        controls, false_positives = (
            sum(getattr(o, of) for o in outcomes) for of in ("controls", "false_positives")
        )
        by_luck = 0.0
        if controls:
            by_luck = _interval(outcomes, "controls", false_positives)[1]
            guessed = max(guessed, false_positives / controls)
        elif not unknown:
            # the list's outsiders have set the threshold: the rate that it may have among others
            outsiders = sum(r.outsiders for r in outcomes)
            by_luck = _interval(outcomes, "outsiders", math.floor(RATE * outsiders))[1]
        fraction = recovered / members
        low, high = _interval(outcomes, "members", min(round(recovered), members))
        if not exact:
            sizes = np.array([r.members for r in outcomes], float)
            recovered_of = np.array([r.recovered for r in outcomes])
            half = between_draws(recovered_of / sizes, weights=sizes)
            low, high = max(0.0, min(low, fraction - half)), min(1.0, max(high, fraction + half))
        by_chance = max(guessed, by_luck)
        enough = by_chance + max(high - fraction, fraction - low) * (1 + float(ndtri(POWER)) / HALF)
        extra: dict[str, Any] = {}
        if unknown:
            extra = {"risk": "inference", "harm": f"someone can tell a person's {unknown}"}
        return self.finding(
            _metric(unknown),
            fraction,
            **extra,
            of=1.0,
            low=low,
            high=high,
            baseline=guessed,
            measure="" if unknown else "found at 1 %",
            releases=tuple(sorted(set().union(*(r.system.kinds for r in outcomes)))),
            severity=_severity(fraction, low, by_chance, exact),
            detail=_detail(unknown, outcomes)
            | ({"found of the control, at most": by_luck} if controls else {}),
            detectable=enough if controls else None,
            partial=partial,
            exposed={r.client: r.exposed for r in outcomes},
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
    group: Literal["members", "outsiders", "controls"],
    hits: float,
) -> tuple[float, float]:
    """The exact interval of a fraction of a group, counting equal records once."""
    index = ("members", "outsiders", "controls").index(group)
    total = sum(getattr(r, group) for r in outcomes)
    repeats = sum(getattr(r, group) * r.repeats[index] for r in outcomes) / total
    n_effective = max(1, round(total / repeats))
    return interval(min(hits / repeats, n_effective), n_effective)


def _severity(fraction: float, low: float, guessed: float, exact: bool) -> Severity:
    """A breach if exact numbers identify more than a few."""
    if low <= guessed:
        return Severity.NONE
    return Severity.BREACH if exact and fraction >= guessed + MANY else Severity.SOME


def _detail(unknown: str, outcomes: Sequence[CandidateResult]) -> dict[str, Any]:
    weights = [r.members for r in outcomes]

    def mean(figures: Sequence[float]) -> float:
        return float(np.average(figures, weights=weights))

    detail: dict[str, Any] = {
        "the attacker knows": "a list on which all the client's records stand among others"
        + (f", without their {unknown}" if unknown else ""),
        "lists": len(outcomes),
        "unknowns": max(len(r.system.copies) for r in outcomes),
        "rank of the equations": [
            "not computed" if r.system.rank is None else r.system.rank for r in outcomes
        ],
        "equations": sum(r.system.equations for r in outcomes),
        "of these exact": sum(r.system.exact for r in outcomes),
        "members": sum(weights),
        "outsiders": sum(r.outsiders for r in outcomes),
        "of these the same owners' held-out records, the control": sum(
            o.controls for o in outcomes
        ),
        FOUND_AT: mean_points([r.curve for r in outcomes], weights),
        "members found at 1 % false positives": mean([o.curve.at(RATE) for o in outcomes]),
        "area under the curve": mean([o.curve.auc for o in outcomes]),
    }
    errors = [r.error for r in outcomes if r.error is not None]
    if errors:
        detail["median error as a share of the range"] = float(np.median(errors))
    fewest = min(r.outsiders for r in outcomes)
    if fewest < NEEDED:
        detail["note"] = f"{fewest} outsiders on a list: a rate at 1 % needs {NEEDED}"
    return detail


@dataclass(frozen=True)
class UnknownColumn:
    """The column missing from a list: index (-1: the target, None: none), kind and bounds."""

    index: int | None
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
        for index, column in enumerate(schema.features):
            if column.name == name:
                return cls(index, column.kind, column.bounds)
        known = ", ".join(column.name for column in schema.features)
        raise InputError(f"attack 'pool': no column {name!r}; write {TARGET!r} or one of {known}")

    def trial_values(self, max_values: int) -> np.ndarray:
        """The values to try: all if few, else at most ``max_values``."""
        if self.index is None:
            return np.zeros(1)
        low, high = self.bounds
        if self.kind != "number" and high - low < VALUES:
            return np.arange(low, high + 1)
        return np.linspace(low, high, min(max(max_values, FEWEST), VALUES))

    def fill(
        self, records: CandidateRecords, values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Every candidate with every value, shape (candidates * values, ...)."""
        X = np.repeat(records.x, len(values), axis=0)
        y = None if records.y is None else np.repeat(records.y, len(values))
        if self.index == -1:
            y = np.tile(values, len(records))
        elif self.index is not None:
            X[:, self.index] = np.tile(values, len(records))
        return X, y

    def score(
        self,
        records: CandidateRecords,
        values: np.ndarray,
        weights: np.ndarray,
        system: CandidateSystems,
    ) -> CandidateResult:
        """Compare the estimates, shape (candidates, values), with the truth."""
        members, outsiders = records.members, records.outsiders
        fraction = weights.sum(axis=1) / records.copies
        others, control = (np.repeat(fraction, count) for count in (outsiders, records.controls))
        curve = RocCurve.of(np.repeat(fraction, members), others)
        sizes, number = (int(members.sum()), len(others), curve), len(control)
        if self.index is None:
            exposed = exposure(fraction, others)[records.own_index]
            hits, guessed = curve.at(RATE) * sizes[0], RATE * sizes[0]
            fp = RocCurve.of(control, others).at(RATE) * number if number else 0.0
            return CandidateResult(
                *sizes, exposed, hits, guessed, None, fp, number, system, repeats=records.repeats
            )
        truth = records.y if self.index == -1 else records.x[:, self.index]
        assert truth is not None
        guess, confidence = self._infer(weights, values, truth)
        correct = self._correct(guess, truth, values)
        known = self._other_columns(records)
        expected = infer_by_neighbours(
            known,
            np.repeat(known, outsiders, axis=0),
            np.repeat(truth, outsiders),
            category=self._exhaustive(values),
        )
        baselines = (
            (
                members @ self._correct(truth[:, None], truth[members > 0], values)
            ).max(),  # the best constant
            outsiders @ correct / outsiders.sum() * members.sum(),  # the same attack on outsiders
            members @ self._correct(expected, truth, values),  # nearest neighbours
        )
        error = None if self._exhaustive(values) else np.repeat(self._error(guess, truth), members)
        return CandidateResult(
            *sizes,
            exposure(confidence, np.repeat(confidence, outsiders))[records.own_index],
            float(members @ correct),
            float(max(baselines)),
            None if error is None else float(np.median(error)),
            float(records.controls @ correct),
            number,
            system,
            repeats=records.repeats,
        )

    def _exhaustive(self, values: np.ndarray) -> bool:
        """Whether every value is tried, so that one of them is correct."""
        return self.kind == "category" or len(values) == self.bounds[1] - self.bounds[0] + 1

    def _infer(
        self, weights: np.ndarray, values: np.ndarray, truth: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The value inferred of each candidate, and a score: larger is nearer the truth."""
        total = weights.sum(axis=1)
        if self._exhaustive(values):
            true_weight = weights[np.arange(len(truth)), np.searchsorted(values[:-1], truth)]
            return values[weights.argmax(axis=1)], true_weight / np.maximum(total, 1e-12)
        mean = np.where(total > 0, weights @ values / np.maximum(total, 1e-12), values.mean())
        return mean, -self._error(mean, truth)

    def _error(self, estimates: np.ndarray, truth: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(estimates - truth) / (self.bounds[1] - self.bounds[0]))

    def _correct(self, estimates: np.ndarray, truth: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Whether a value is correct, numbers within :data:`NEAR`."""
        exact = self._exhaustive(values)
        return np.asarray(estimates == truth if exact else self._error(estimates, truth) <= NEAR)

    def _other_columns(self, records: CandidateRecords) -> np.ndarray:
        """All other columns of the list."""
        target = [] if records.y is None or self.index == -1 else [records.y]
        X = records.x if self.index in (None, -1) else np.delete(records.x, self.index, axis=1)
        return np.column_stack([X, *target])
