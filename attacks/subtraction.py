"""Subtraction against nullification: withheld sums of a fuzzy tree, derived from released ones.

Nullification hides the sums of cells that would disclose a record. They follow from a node's total
less their siblings, from totals of the next level's nodes, from any feature's sum at the same node,
and from the leaves' first moments.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from privfed.attacks.base import Attack, PublicSchema, Table, Truth, exact_parts
from privfed.attacks.deadline import Deadline
from privfed.attacks.finding import Finding, Risk
from privfed.attacks.fuzzy import (
    ACTIVATION,
    LEAVES,
    LEVEL,
    Cell,
    Geometry,
    cells,
    centred_target,
    weight,
)
from privfed.attacks.identities import LARGEST, Equation, SumIdentities, groups_of
from privfed.attacks.reading import formed, well_formed
from privfed.errors import number_of
from privfed.exchange.messages import ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry

#: The sums, in the order in which they are solved: weights first, for without weight all sums are 0.
SUMS = ("weights", "squares", "linear")
PRECISION = 1e-6  #: A recovered sum counts as right within this
TARGET = 1e-4  #: A target computed from a cell counts as right within this fraction of its range


@dataclass(eq=False)
class KnownSums:
    """One client's released and withheld cells, and the identities about its leaves."""

    geometry: Geometry
    known: dict[str, dict[Cell, float]] = field(default_factory=lambda: {s: {} for s in SUMS})
    hidden: set[Cell] = field(default_factory=set)
    moments: dict[str, list[Equation]] = field(default_factory=lambda: {s: [] for s in SUMS})

    def learn(self, sum_: str, named: list[Cell], part: ReleasedPart) -> None:
        """Add one part, flattened, one value per cell."""
        values = part.values.ravel()
        masked = np.ma.getmaskarray(values)
        for cell, value, hidden in zip(named, np.asarray(values.data), masked, strict=True):
            if hidden:
                self.hidden.add(cell)
            else:
                self.known[sum_][cell] = float(value)


@dataclass(frozen=True, eq=False)
class DerivedSums:
    """By kind of sum, the withheld cells that were derived, or that another release gave."""

    sums: KnownSums
    derived: Mapping[str, Mapping[Cell, float]]
    unsolved: int = 0  #: sums in systems that were too large to solve

    def targets(self) -> dict[Cell, float]:
        """Targets (centred) of withheld cells in which all records share one: W S = L^2."""
        weights, squares, linear = (self.derived[name] for name in SUMS)
        read: dict[Cell, float] = {}
        for cell in set(weights) & set(squares) & set(linear):
            w, s, line = weights[cell], squares[cell], linear[cell]
            if w > 1e-3 and abs(w * s - line**2) <= 1e-7 * w:
                read[cell] = line / w
        return read


class Subtraction(Attack):
    """Derives withheld sums from released ones, over the whole transcript of each client."""

    name: ClassVar[str] = "subtraction"
    risk: ClassVar[Risk] = "inference"
    harm: ClassVar[str] = "withheld values can be worked out"
    question: ClassVar[str] = "Which withheld sums can be computed from the released ones?"
    kinds: ClassVar[tuple[str, ...]] = (LEVEL, LEAVES, ACTIVATION)

    def attackable(self, transcript: Transcript) -> bool:
        """Whether any exact sums by fuzzy set were released."""
        return any(e.kind == LEVEL and "weights" in exact_parts(e) for e in transcript)

    def run(
        self, transcript: Transcript, truth: Truth | None = None, schema: PublicSchema | None = None
    ) -> list[Finding]:
        """See :class:`Attack`: withheld cells recovered, and targets of single records read."""
        transcript = well_formed(transcript, schema, truth)
        if not self.attackable(transcript):
            return []
        deadline, read, clients = self.deadline(), 0, transcript.clients
        sums: dict[str, DerivedSums] = {}
        for client in deadline.each(clients):
            with formed(self.name, schema is not None or truth):
                derived = derive_sums(transcript.of(client=client), deadline)
            if derived is not None:
                sums[client] = derived
            read += not deadline.over
        partial = deadline.partial(read, len(clients), "clients")
        if unsolved := sum(result.unsolved for result in sums.values()):
            large = f"{number_of(unsolved, 'sum')} left in systems of more than {LARGEST:,} unknowns, which are not solved"
            partial = "; ".join(filter(None, (partial, large)))
        if truth is None:
            return [self._unscored(sums, partial)]
        tables = {client: truth[client] for client in sums if client in truth}
        return [self._cells(sums, tables, partial), self._targets(sums, tables, schema, partial)]

    def _unscored(self, sums: Mapping[str, DerivedSums], partial: str) -> Finding:
        filled = sum(w > PRECISION for d in sums.values() for w in d.derived["weights"].values())
        withheld = sum(len(d.sums.hidden) for d in sums.values())
        metric, detail = "withheld cells worked out that are not empty", {"withheld": withheld}
        return self._counted(metric, filled, None, None, detail, partial, simulation=False)

    def _cells(
        self, sums: Mapping[str, DerivedSums], tables: Mapping[str, Table], partial: str
    ) -> Finding:
        tally: dict[str, float] = dict.fromkeys(
            ("withheld", "filled", "right", "wrong", "shuffled"), 0
        )
        for client, table in tables.items():
            for name, count in _score_cells(sums[client], table).items():
                tally[name] += count
        metric = "withheld cells with records in them, recovered exactly"
        right, of, baseline = tally["right"], tally["filled"], tally["shuffled"]
        return self._counted(
            metric, right, of, baseline, {**tally, "precision": PRECISION}, partial
        )

    def _targets(
        self,
        sums: Mapping[str, DerivedSums],
        tables: Mapping[str, Table],
        schema: PublicSchema | None,
        partial: str,
    ) -> Finding:
        tally: dict[str, float] = dict.fromkeys(("right", "wrong", "alone", "chance"), 0)
        for client, table in tables.items():
            centred = centred_target(table, schema)
            if centred is not None:
                for name, count in _score_targets(sums[client], table, centred).items():
                    tally[name] += count
        metric = "targets of single records read off withheld cells"
        detail = {"wrong": tally["wrong"], "precision": TARGET}
        return self._counted(
            metric, tally["right"], tally["alone"], tally["chance"], detail, partial
        )

    def _counted(
        self,
        metric: str,
        right: float,
        of: float | None,
        baseline: float | None,
        detail: Mapping[str, Any],
        partial: str,
        *,
        simulation: bool = True,
    ) -> Finding:
        figures: dict[str, Any] = {"of": of, "baseline": baseline, "detail": dict(detail)}
        proven = right > 0 and detail.get("wrong") == 0  # all that was worked out is so
        severity = "breach" if proven or right > (baseline or 0) else "none"
        figures |= {"releases": self.kinds, "severity": severity, "simulation": simulation}
        return self.finding(metric, right, partial=partial, **figures)


def known_sums(transcript: Transcript) -> KnownSums | None:
    """Collect one client's sums; None if it released no exact ones."""
    sums: KnownSums | None = None
    readers = {LEVEL: _read_level, ACTIVATION: _read_activation, LEAVES: _read_leaves}
    for entry in transcript:
        if entry.kind in readers and exact_parts(entry):
            sums = sums or KnownSums(Geometry.of(entry.query))
            sums.geometry = Geometry.of(entry.query)
            readers[entry.kind](sums, entry, entry.query)
    return sums


def derive_sums(transcript: Transcript, deadline: Deadline | None = None) -> DerivedSums | None:
    """Derive one client's withheld sums; out of time, only those that another release gave."""
    sums = known_sums(transcript)
    if sums is None:
        return None
    zero = {cell for cell, value in sums.known["weights"].items() if value == 0}
    groups = groups_of(sums.hidden.union(*sums.known.values()), sums.geometry.sets)
    derived, unsolved = {}, 0
    for name in SUMS:
        late = deadline is not None and deadline.over
        known = dict.fromkeys(zero, 0.0) | sums.known[name]
        system = SumIdentities(sums.geometry.sets, name == "linear", known, sums.moments[name])
        empty = zero if name == "weights" else set(zero)
        solved = {} if late else system.solve(sums.hidden, empty, groups, deadline=deadline)
        released = {cell: known[cell] for cell in sums.hidden if cell in sums.known[name]}
        derived[name], unsolved = {**released, **solved}, unsolved + system.unsolved
    return DerivedSums(sums, derived, unsolved)


def _read_level(sums: KnownSums, entry: TranscriptEntry, query: Mapping[str, Any]) -> None:
    nodes, features = cells(query["nodes"]), [int(f) for f in query["features"]]
    sets = sums.geometry.sets
    for name in SUMS:
        parts = exact_parts(entry)
        if f"node_{name}" in parts:
            sums.learn(name, nodes, parts[f"node_{name}"])
        if name not in parts:
            continue
        for position, node in enumerate(nodes):
            for column, feature in enumerate(features):
                if all(step[0] != feature for step in node):
                    named = [node | {(feature, j)} for j in range(sets)]
                    sums.learn(name, named, _part_of(parts[name], position, column))


def _part_of(part: ReleasedPart, *index: int) -> ReleasedPart:
    mask = None if part.mask is None else part.mask[index]
    axes = part.axes[len(index) :]
    return ReleasedPart(part.type, axes, part.units[index], mask, part.grid, part.mechanism)


def _read_activation(sums: KnownSums, entry: TranscriptEntry, query: Mapping[str, Any]) -> None:
    parts = exact_parts(entry)
    if "weights" in parts:
        sums.learn("weights", cells(query["nodes"]), parts["weights"])


def _read_leaves(sums: KnownSums, entry: TranscriptEntry, query: Mapping[str, Any]) -> None:
    """Read the sums of w and y w in leaf equations, and of both times each feature."""
    parts = exact_parts(entry)
    for name, part in (("weights", "gram"), ("linear", "moment")):
        if part in parts:
            for position, leaf in enumerate(cells(query["nodes"])):
                index = (position, 0) if part == "gram" else (position,)
                row = _part_of(parts[part], *index).values
                _read_moments(sums, name, leaf, row, query["features"])


def _read_moments(
    sums: KnownSums, name: str, leaf: Cell, row: np.ma.MaskedArray, features: Sequence[int]
) -> None:
    if np.ma.getmaskarray(row).any():
        return
    sums.known[name][leaf] = float(row[0])
    for feature, value in zip(features, np.asarray(row.data)[1:], strict=True):
        if all(step[0] != feature for step in leaf):
            n_sets = int(sums.geometry.n_sets[feature])
            peaks = tuple(np.arange(n_sets) / (n_sets - 1) - 0.5)
            named = tuple(leaf | {(feature, j)} for j in range(n_sets))
            sums.moments[name].append(Equation(named, peaks, float(value)))


def _score_cells(result: DerivedSums, table: Table) -> dict[str, float]:
    geometry = result.sums.geometry
    degrees = geometry.degrees(geometry.unit(table.x))
    true = {cell: float(weight(degrees, cell).sum()) for cell in result.sums.hidden}
    derived = result.derived["weights"]
    filled = [cell for cell in sorted(derived, key=sorted) if true[cell] > PRECISION]
    values = np.array([derived[cell] for cell in filled])
    truths = np.array([true[cell] for cell in filled])
    right = np.abs(values - truths) <= PRECISION
    return {
        "withheld": len(true),
        "filled": sum(value > PRECISION for value in true.values()),
        "right": int(right.sum()),
        "wrong": int(sum(abs(derived[cell] - true[cell]) > PRECISION for cell in derived)),
        "shuffled": _shuffled(values, truths, PRECISION),
    }


def _shuffled(values: np.ndarray, truths: np.ndarray, precision: float) -> float:
    """The baseline: expected number of correct results under a random permutation without fixed points."""
    ordered, in_place = np.sort(values), np.abs(values - truths) <= precision
    first = np.searchsorted(ordered, truths - precision, "left")
    last = np.searchsorted(ordered, truths + precision, "right")
    return float((last - first - in_place).sum() / max(len(values) - 1, 1))


def _score_targets(result: DerivedSums, table: Table, centred: np.ndarray) -> dict[str, float]:
    """Numbers of targets read, correct and wrong, of records alone in a withheld cell, and of hits by chance."""
    geometry = result.sums.geometry
    degrees = geometry.degrees(geometry.unit(table.x))
    read = result.targets()
    alone: set[int] = set()
    nearest: dict[int, float] = {}  # the nearest of a record's values, for it counts once
    for cell in result.sums.hidden:
        active = np.flatnonzero(weight(degrees, cell) > 0)
        if len(active) != 1:
            continue
        record = int(active[0])
        alone.add(record)
        if cell in read:
            both = read[cell], nearest.get(record, np.inf)
            nearest[record] = min(both, key=lambda value: abs(value - float(centred[record])))
    values, truths = np.array(list(nearest.values())), centred[list(nearest)]
    right = int((np.abs(values - truths) <= TARGET).sum())
    by_chance = _shuffled(values, truths, TARGET)
    return {"right": right, "wrong": len(nearest) - right, "alone": len(alone), "chance": by_chance}
