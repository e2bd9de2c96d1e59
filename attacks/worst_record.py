"""The record that noise hides worst: how far it moves what left, beside what was charged.

For Gaussian noise a record's distance is ``mu``, the square root of the sum over all released cells
of (what it adds / noise std)^2: the best test of its membership has AUC Phi(mu / sqrt 2) and TPR
Phi(Phi^-1(alpha) + mu) at FPR alpha (Dong, Roth and Su 2022). For Laplace noise it is an epsilon,
the sum of |what it adds| / scale, and such rates are bounds. Either is exact, and needs no draw of
noise: the schema's worst record is searched over the public box, and the charge follows from the
queries' declared sensitivities.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import ndtr

from privfed.attacks.base import (
    Attack,
    PublicColumn,
    PublicSchema,
    Table,
    Truth,
    question_of,
    sound_parts,
)
from privfed.attacks.deadline import Deadline
from privfed.attacks.finding import Finding, Risk, Severity
from privfed.attacks.linear import equations_of
from privfed.attacks.membership import readable
from privfed.attacks.roc import gaussian_area, gaussian_found
from privfed.errors import PrivfedError
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.privacy.laws import Law
from privfed.questions.part import Relation
from privfed.questions.query import Query, View

#: Records that are made up at first, and in each round of mutations; rounds; share that survives.
FIRST, ROUND, ROUNDS, BEST = 2000, 1000, 6, 0.02
MUTATED = 0.15  #: Share of a survivor's columns that are drawn anew
#: Values tried for each column of the best record, one column after the other; how many times over.
GRID, POLISHED = 9, 2
LARGE = 0.5  #: Share of the charge below which noise is called larger than it need be
ROUNDING = 1e-6  #: How far a record may seem to exceed the charge by rounding alone
RATE = 0.01  #: False positives that rates are stated at

Rows = tuple[np.ndarray, np.ndarray | None]  #: Records by features and targets
#: Gives the distance of records, or of records from those that take their places.
Distance = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Family:
    """Laws of noise under which distances add up alike."""

    name: str  #: ``"gaussian"``, or ``"epsilon"`` for all laws that lose pure epsilon
    unit: str  #: what the distance is called
    power: int  #: 2 where squares add up, 1 where absolute values do

    def reads(self, law: Law | None) -> bool:
        """Whether noise that is added to numbers is of one of its laws."""
        return law is not None and law.additive and self.name in (law.name, law.measure)

    def charged(
        self, asked: Query, name: str, part: ReleasedPart, schema: Any, relation: Relation
    ) -> float:
        """The most that one record may add, or change in another's place, by the declared sensitivity."""
        law, declared = part.noise, asked.parts(schema).get(name)
        if law is None or declared is None:  # nothing is read off such a part either
            return 0.0
        if declared.sensitivity is None:
            return math.inf
        bound = declared.sensitivity.under("record", relation, None)
        return self.power * float(law.loses(law.units(bound)))  # mu^2 is 2 rho

    def rates(self, distance: float) -> tuple[float, float]:
        """The best test's area, and what it finds at 1 % false positives; for epsilon at most."""
        if self.power == 2:
            return gaussian_area(distance), gaussian_found(distance, RATE)
        grown = math.exp(min(distance, 700.0))
        found = min(grown * RATE, 1 - (1 - RATE) / grown)
        return grown / (1 + grown), found

    def exposure(self, distances: np.ndarray) -> np.ndarray:
        """False positive rate at which the best test finds records in half of all draws; for epsilon at least."""
        return np.asarray(ndtr(-distances) if self.power == 2 else np.exp(-distances) / 2)


FAMILIES = (Family("gaussian", "mu", 2), Family("epsilon", "epsilon", 1))


def added(units: np.ndarray, part: ReleasedPart) -> np.ndarray:
    """What a part adds to the distance's power, shape (records,)."""
    assert part.noise is not None
    return part.noise.distance(np.asarray(units, float)[:, part.visible])


@dataclass(frozen=True, eq=False)
class NoisyReleases:
    """What one client released with noise of one law, and what one step between neighbours is."""

    law: Family
    entries: tuple[TranscriptEntry, ...]
    schema: Any
    relation: Relation = "add-or-remove"

    def parts(self, entry: TranscriptEntry) -> dict[str, ReleasedPart]:
        """The parts of a release whose noise is of the law."""
        sound = sound_parts(entry)
        return {
            name: part
            for name, part in readable(entry, exact=False).items()
            if self.law.reads(part.noise) and name in sound
        }

    @property
    def charge(self) -> float:
        """The largest distance that was charged for."""
        total = 0.0
        for entry in self.entries:
            asked = question_of(entry)
            for name, part in self.parts(entry).items():
                assert asked is not None
                try:
                    total += self.law.charged(asked, name, part, self.schema, self.relation)
                except PrivfedError:  # written for another schema
                    continue
        return float(total ** (1 / self.law.power))

    @property
    def compared(self) -> int:
        """How many records a step between neighbours is about: one, or the two that change places."""
        return 2 if self.relation == "replace-one" else 1

    def distances(self, *records: Rows) -> np.ndarray:
        """How far each record moves what left, or each in the other's place, shape (records,)."""
        views, total = (
            [View.of(self.schema, x, y) for x, y in records],
            np.zeros(len(records[0][0])),
        )
        for entry in self.entries:
            parts = self.parts(entry)
            told = [equations_of(entry, view) for view in views] if parts else [{}]
            for name in (name for name in told[0] if name in parts):
                own = [np.asarray(each[name].added, float) for each in told]
                moved = own[0] if len(own) == 1 else own[0] - own[1]
                total += added(moved, parts[name])
        return np.asarray(total ** (1 / self.law.power))

    def real(self, table: Table) -> np.ndarray:
        """How far its own records do: each taken away, or the next one put in its place."""
        if self.compared == 1 or not len(table.x):
            return self.distances((table.x, table.y)) if len(table.x) else np.empty(0)
        others = np.roll(np.arange(len(table.x)), 1)
        y = None if table.y is None else table.y[others]
        return self.distances((table.x, table.y), (table.x[others], y))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of release that are read."""
        return tuple(sorted({entry.kind for entry in self.entries if self.parts(entry)}))

    @property
    def key(self) -> tuple[Any, ...]:
        """Clients that were asked alike have the same worst record."""
        return tuple(
            (entry.kind, entry.fields, name, part.noise, _mask(part))
            for entry in self.entries
            for name, part in self.parts(entry).items()
            if part.noise is not None
        )


def _mask(part: ReleasedPart) -> bytes:
    return b"" if part.mask is None else part.mask.tobytes()


@dataclass(frozen=True, eq=False)
class RecordInfluence:
    """How far records move one client's releases: the schema's worst, and its own if known."""

    heard: NoisyReleases
    worst: float
    real: np.ndarray

    @cached_property
    def charge(self) -> float:
        """The largest distance that was charged for."""
        return self.heard.charge

    @property
    def client(self) -> str:
        """The client's name."""
        return self.heard.entries[0].client

    @property
    def attained(self) -> float:
        """The largest distance of its own records, or of the schema's if they are not known."""
        return float(self.real.max()) if len(self.real) else self.worst

    @property
    def most(self) -> float:
        """The largest distance of any record."""
        return max(self.worst, float(self.real.max(initial=0.0)))

    @property
    def share(self) -> float:
        """The same as a share of the charge; without end where nothing was charged for it."""
        if self.charge == 0:
            return math.inf if self.most else 0.0
        return self.most / self.charge


class WorstRecord(Attack):
    """Searches the schema for the record that noise hides worst, and compares it with the charge.

    A record beyond the charge shows a sensitivity declared too small: a claim is broken. If none
    that is found comes to half of it, the noise may be larger than needed. The records themselves, if known, only say
    how far the median and the largest of them come.
    """

    name: ClassVar[str] = "worst_record"
    risk: ClassVar[Risk] = "singling out"
    harm: ClassVar[str] = "an unusual record changes the answers by more than was charged"
    question: ClassVar[str] = (
        "How much can one record change the releases, compared with the privacy loss charged?"
    )

    def reads(self, entry: TranscriptEntry) -> bool:
        """Whether a part of it adds up over records and has known noise."""
        return bool(readable(entry, exact=False))

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: a finding for each law of noise; none without a schema."""
        tables = list((truth or {}).values())
        known = schema if schema is not None else tables[0].schema if tables else None
        if known is None:
            return []
        deadline = self.deadline()
        found = [self._law(law, transcript, truth or {}, known, deadline) for law in FAMILIES]
        return [finding for both in found for finding in both]

    def _law(
        self, law: Family, transcript: Transcript, truth: Truth, schema: Any, deadline: Deadline
    ) -> list[Finding]:
        """The worst record of the client for which it comes nearest to the charge."""
        worst: dict[tuple[Any, ...], float] = {}
        heard, read = [], 0
        for client in transcript.clients:
            own = NoisyReleases(law, transcript.of(client=client).entries, schema, self.relation)
            if not own.key or not own.charge or deadline.over:
                continue
            if own.key not in worst:
                worst[own.key] = search(own.distances, schema, deadline, own.compared)
            real = own.real(truth[client]) if client in truth else np.empty(0)
            heard.append(RecordInfluence(own, worst[own.key], real))
            read += not deadline.over
        if not heard:
            return []
        partial = deadline.partial(read, len(heard), "clients")
        told = self._told(law, max(heard, key=lambda each: (each.share, each.most)), heard, partial)
        return [told, *self._rate(law, told)]

    def _rate(self, law: Family, told: Finding) -> list[Finding]:
        """What the best test can expect to find of the worst record; pure noise only bounds it."""
        if law.power == 1:
            return []
        _, found = law.rates(told.value)
        expected = self.finding(
            "share of draws expected to reveal the worst record while 1 % are wrongly accused",
            found,
            of=1.0,
            low=found,
            high=found,
            baseline=RATE,
            releases=told.releases,
            severity=told.severity,
            measure="found at 1 %",
            limit="found at 1 %",
            simulation=told.simulation,
            partial=told.partial,
        )
        return [expected]

    def _told(
        self, law: Family, own: RecordInfluence, heard: Sequence[RecordInfluence], partial: str
    ) -> Finding:
        """One client's records beside its own charge: others may have paid, and told, more."""
        charge, worst = own.charge, own.most
        figures = {"the schema's worst": own.worst, f"the {law.unit} charged": charge}
        real = np.concatenate([each.real for each in heard])
        if len(real):
            figures |= {
                "median record": float(np.median(real)),
                "largest record": float(real.max()),
            }
        told = "expected" if law.power == 2 else "at most"
        detail: dict[str, Any] = {
            name: {law.unit: value, f"area {told}": area, f"found at 1 % {told}": found}
            for name, value in figures.items()
            for area, found in (law.rates(value),)
        }
        detail["by client"] = {each.client: {law.unit: each.attained} for each in heard}
        beyond = worst > charge * (1 + ROUNDING)
        what = "record" if own.heard.compared == 1 else "record in another's place"
        if worst < LARGE * charge:
            detail["note"] = (
                "the records found reach less than half of the charge: the noise may be larger than necessary"
            )
        return self.finding(
            f"{law.unit} reached by the worst {what} found",
            worst,
            of=charge,
            baseline=0.0,
            releases=own.heard.kinds,
            severity=Severity.BREACH if beyond else Severity.NONE,
            detail=detail,
            simulation=bool(len(real)),
            exposed={each.client: law.exposure(each.real) for each in heard if len(each.real)},
            partial=partial,
        )


def search(
    distances: Distance, schema: PublicSchema, deadline: Deadline, compared: int = 1
) -> float:
    """The largest distance found of any record of the schema, or of any two from each other.

    Corners and random records first; then rounds of mutations of the best; then each column of the
    best record in turn. ``compared`` records are searched together.
    """
    single = [*schema.features, *([] if schema.target is None else [schema.target])]
    columns = single * compared
    rng = np.random.default_rng(0)

    def judged(records: np.ndarray) -> np.ndarray:
        split = len(schema.features)
        each = np.split(records, compared, axis=1)
        return distances(
            *((x[:, :split], None if schema.target is None else x[:, split]) for x in each)
        )

    records = drawn(columns, FIRST, rng)
    values = judged(records)
    for _ in range(ROUNDS):
        if deadline.over:
            break
        best = records[np.argsort(-values)[: max(2, round(BEST * FIRST))]]
        parents = best[rng.integers(len(best), size=ROUND)]
        fresh = np.where(rng.random(parents.shape) < MUTATED, drawn(columns, ROUND, rng), parents)
        records, values = np.concatenate([best, fresh]), judged(np.concatenate([best, fresh]))
    record, most = records[values.argmax()], float(values.max())
    for place in list(range(len(columns))) * POLISHED:
        if deadline.over:
            break
        tries = np.repeat(record[None], GRID, axis=0)
        low, high = columns[place].bounds
        tries[:, place] = whole(columns[place], np.linspace(low, high, GRID))
        found = judged(tries)
        if found.max() > most:
            record, most = tries[found.argmax()], float(found.max())
    return most


def drawn(columns: Sequence[PublicColumn], count: int, rng: np.random.Generator) -> np.ndarray:
    """Records of the schema, each column at a bound or anywhere between; shape (count, columns)."""
    made = []
    for column in columns:
        low, high = column.bounds
        inside, edge = rng.uniform(low, high, count), rng.choice([low, high], count)
        made.append(whole(column, np.where(rng.random(count) < 0.5, edge, inside)))
    return np.column_stack(made)


def whole(column: PublicColumn, values: np.ndarray) -> np.ndarray:
    """Values that the column can have."""
    return values if column.kind == "number" else np.rint(values)
