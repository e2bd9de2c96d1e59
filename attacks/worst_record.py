"""The record that noise hides worst: its effect on the releases, against the privacy loss charged.

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
from privfed.attacks.roc import gaussian_auc, gaussian_tpr
from privfed.errors import PrivfedError
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.privacy.laws import Law
from privfed.questions.part import Relation
from privfed.questions.query import Query, View

#: Random records at first, and in each round of mutations; rounds; fraction that survives.
FIRST, ROUND, ROUNDS, BEST = 2000, 1000, 6, 0.02
MUTATED = 0.15  #: Fraction of a survivor's columns that are redrawn
#: Values tried for each column of the best record in turn, and number of passes.
GRID, POLISHED = 9, 2
LARGE = 0.5  #: Fraction of the charge below which noise is reported as larger than necessary
ROUNDING = 1e-6  #: Excess over the charge that rounding may cause
RATE = 0.01  #: FPR at which rates are stated

Rows = tuple[np.ndarray, np.ndarray | None]  #: Records by features and targets
#: Returns the distance of records, or between records and their replacements.
Distance = Callable[..., np.ndarray]


@dataclass(frozen=True)
class Family:
    """Laws of noise whose distances compose in the same way."""

    name: str  #: ``"gaussian"``, or ``"epsilon"`` for all laws of pure epsilon
    unit: str  #: name of the distance
    power: int  #: 2 if squares add up, 1 if absolute values do

    def reads(self, law: Law | None) -> bool:
        """Whether the noise is additive and of one of its laws."""
        return law is not None and law.additive and self.name in (law.name, law.measure)

    def max_distance(
        self, query: Query, name: str, part: ReleasedPart, schema: Any, relation: Relation
    ) -> float:
        """The largest effect of one record, added or replaced, by the declared sensitivity."""
        law, declared = part.noise, query.parts(schema).get(name)
        if law is None or declared is None:  # such a part is not read either
            return 0.0
        if declared.sensitivity is None:
            return math.inf
        bound = declared.sensitivity.under("record", relation, None)
        return self.power * float(law.loses(law.units(bound)))  # mu^2 is 2 rho

    def rates(self, distance: float) -> tuple[float, float]:
        """The best test's AUC, and its TPR at 1 % FPR; upper bounds for epsilon."""
        if self.power == 2:
            return gaussian_auc(distance), gaussian_tpr(distance, RATE)
        grown = math.exp(min(distance, 700.0))
        tpr = min(grown * RATE, 1 - (1 - RATE) / grown)
        return grown / (1 + grown), tpr

    def exposure(self, distances: np.ndarray) -> np.ndarray:
        """FPR at which the best test finds records in half of all draws; a lower bound for epsilon."""
        return np.asarray(ndtr(-distances) if self.power == 2 else np.exp(-distances) / 2)


FAMILIES = (Family("gaussian", "mu", 2), Family("epsilon", "epsilon", 1))


def added(units: np.ndarray, part: ReleasedPart) -> np.ndarray:
    """A part's contribution to the distance's power, shape (records,)."""
    assert part.noise is not None
    return part.noise.distance(np.asarray(units, float)[:, part.visible])


@dataclass(frozen=True, eq=False)
class NoisyReleases:
    """One client's releases with noise of one law, and the neighbouring relation."""

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
            query = question_of(entry)
            for name, part in self.parts(entry).items():
                assert query is not None
                try:
                    total += self.law.max_distance(query, name, part, self.schema, self.relation)
                except PrivfedError:  # written for another schema
                    continue
        return float(total ** (1 / self.law.power))

    @property
    def n_records(self) -> int:
        """Number of records in which neighbours differ: one, or two if one replaces the other."""
        return 2 if self.relation == "replace-one" else 1

    def distances(self, *records: Rows) -> np.ndarray:
        """Effect of each record on the releases, or of replacing it by the other, shape (records,)."""
        views = [View.of(self.schema, X, y) for X, y in records]
        total = np.zeros(len(records[0][0]))
        for entry in self.entries:
            parts = self.parts(entry)
            by_view = [equations_of(entry, view) for view in views] if parts else [{}]
            for name in (name for name in by_view[0] if name in parts):
                rows = [np.asarray(equations[name].added, float) for equations in by_view]
                change = rows[0] if len(rows) == 1 else rows[0] - rows[1]
                total += added(change, parts[name])
        return np.asarray(total ** (1 / self.law.power))

    def own_distances(self, table: Table) -> np.ndarray:
        """Effect of its own records: each removed, or replaced by the next."""
        if self.n_records == 1 or not len(table.x):
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
        """Cache key: clients with equal queries have the same worst record."""
        return tuple(
            (entry.kind, entry.fields, name, part.noise, part.mask is None or part.mask.tobytes())
            for entry in self.entries
            for name, part in self.parts(entry).items()
            if part.noise is not None
        )


@dataclass(frozen=True, eq=False)
class RecordInfluence:
    """Effect of records on one client's releases: the schema's worst, and its own if known."""

    releases: NoisyReleases
    worst: float
    own_distances: np.ndarray

    @cached_property
    def charge(self) -> float:
        """The largest distance that was charged for."""
        return self.releases.charge

    @property
    def client(self) -> str:
        """Name of the client."""
        return self.releases.entries[0].client

    @property
    def attained(self) -> float:
        """The largest distance of its own records, or of the schema's if they are unknown."""
        return float(self.own_distances.max()) if len(self.own_distances) else self.worst

    @property
    def largest(self) -> float:
        """The largest distance of any record."""
        return max(self.worst, float(self.own_distances.max(initial=0.0)))

    @property
    def relative(self) -> float:
        """The same as a fraction of the charge; infinite if the charge is 0."""
        if self.charge == 0:
            return math.inf if self.largest else 0.0
        return self.largest / self.charge


class WorstRecord(Attack):
    """Searches the schema for the record that noise hides worst, and compares it with the charge.

    A record beyond the charge shows a sensitivity declared too small: a guarantee is violated. If none
    found reaches half of it, the noise may be larger than necessary. The client's records, if known, give
    the median and the largest distance.
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
        findings = [self._family(law, transcript, truth or {}, known, deadline) for law in FAMILIES]
        return [finding for group in findings for finding in group]

    def _family(
        self, law: Family, transcript: Transcript, truth: Truth, schema: Any, deadline: Deadline
    ) -> list[Finding]:
        """The findings of the client whose worst record is nearest to the charge."""
        worst: dict[tuple[Any, ...], float] = {}
        effects, read = [], 0
        for client in transcript.clients:
            noisy = NoisyReleases(law, transcript.of(client=client).entries, schema, self.relation)
            if not noisy.key or not noisy.charge or deadline.over:
                continue
            if noisy.key not in worst:
                worst[noisy.key] = search(noisy.distances, schema, deadline, noisy.n_records)
            distances = noisy.own_distances(truth[client]) if client in truth else np.empty(0)
            effects.append(RecordInfluence(noisy, worst[noisy.key], distances))
            read += not deadline.over
        if not effects:
            return []
        partial = deadline.partial(read, len(effects), "clients")
        finding = self._finding(
            law, max(effects, key=lambda e: (e.relative, e.largest)), effects, partial
        )
        return [finding, *self._rate_findings(law, finding)]

    def _rate_findings(self, law: Family, finding: Finding) -> list[Finding]:
        """The best test's expected TPR for the worst record; pure epsilon only bounds it."""
        if law.power == 1:
            return []
        _, tpr = law.rates(finding.value)
        expected = self.finding(
            "share of draws expected to reveal the worst record while 1 % are wrongly accused",
            tpr,
            of=1.0,
            low=tpr,
            high=tpr,
            baseline=RATE,
            releases=finding.releases,
            severity=finding.severity,
            measure="found at 1 %",
            limit="found at 1 %",
            simulation=finding.simulation,
            partial=finding.partial,
        )
        return [expected]

    def _finding(
        self, law: Family, effect: RecordInfluence, effects: Sequence[RecordInfluence], partial: str
    ) -> Finding:
        """The finding of one client's records against its own charge: others' may be larger."""
        charge, worst = effect.charge, effect.largest
        figures = {"the schema's worst": effect.worst, f"the {law.unit} charged": charge}
        distances = np.concatenate([item.own_distances for item in effects])
        if len(distances):
            figures |= {
                "median record": float(np.median(distances)),
                "largest record": float(distances.max()),
            }
        qualifier = "expected" if law.power == 2 else "at most"
        detail: dict[str, Any] = {
            name: {law.unit: value, f"area {qualifier}": roc_auc, f"found at 1 % {qualifier}": tpr}
            for name, value in figures.items()
            for roc_auc, tpr in (law.rates(value),)
        }
        detail["by client"] = {item.client: {law.unit: item.attained} for item in effects}
        beyond = worst > charge * (1 + ROUNDING)
        what = "record" if effect.releases.n_records == 1 else "record in another's place"
        if worst < LARGE * charge:
            detail["note"] = (
                "the records found reach less than half of the charge: the noise may be larger than necessary"
            )
        return self.finding(
            f"{law.unit} reached by the worst {what} found",
            worst,
            of=charge,
            baseline=0.0,
            releases=effect.releases.kinds,
            severity=Severity.BREACH if beyond else Severity.NONE,
            detail=detail,
            simulation=bool(len(distances)),
            exposed={
                item.client: law.exposure(item.own_distances)
                for item in effects
                if len(item.own_distances)
            },
            partial=partial,
        )


def search(
    distances: Distance, schema: PublicSchema, deadline: Deadline, n_records: int = 1
) -> float:
    """Search for the largest distance of any record of the schema, or between any two.

    Corners and random records first; then rounds of mutations of the best; then each column of the
    best record in turn. ``n_records`` are searched together.
    """
    single = [*schema.features, *([] if schema.target is None else [schema.target])]
    columns = single * n_records
    rng = np.random.default_rng(0)

    def distances_of(records: np.ndarray) -> np.ndarray:
        split = len(schema.features)
        parts = np.split(records, n_records, axis=1)
        return distances(
            *((X[:, :split], None if schema.target is None else X[:, split]) for X in parts)
        )

    records = sample(columns, FIRST, rng)
    values = distances_of(records)
    for _ in range(ROUNDS):
        if deadline.over:
            break
        best = records[np.argsort(-values)[: max(2, round(BEST * FIRST))]]
        parents = best[rng.integers(len(best), size=ROUND)]
        fresh = np.where(rng.random(parents.shape) < MUTATED, sample(columns, ROUND, rng), parents)
        records, values = np.concatenate([best, fresh]), distances_of(np.concatenate([best, fresh]))
    record, largest = records[values.argmax()], float(values.max())
    for index in list(range(len(columns))) * POLISHED:
        if deadline.over:
            break
        tries = np.repeat(record[None], GRID, axis=0)
        low, high = columns[index].bounds
        tries[:, index] = round_values(columns[index], np.linspace(low, high, GRID))
        trial_values = distances_of(tries)
        if trial_values.max() > largest:
            record, largest = tries[trial_values.argmax()], float(trial_values.max())
    return largest


def sample(columns: Sequence[PublicColumn], count: int, rng: np.random.Generator) -> np.ndarray:
    """Random records of the schema, each column at a bound or between; shape (count, columns)."""
    arrays = []
    for column in columns:
        low, high = column.bounds
        inside, edge = rng.uniform(low, high, count), rng.choice([low, high], count)
        arrays.append(round_values(column, np.where(rng.random(count) < 0.5, edge, inside)))
    return np.column_stack(arrays)


def round_values(column: PublicColumn, values: np.ndarray) -> np.ndarray:
    """Round values to those that the column can have."""
    return values if column.kind == "number" else np.rint(values)
