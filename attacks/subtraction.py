"""Subtraction against nullification: withheld sums of a fuzzy tree, derived from released ones.

Nullification hides the sums of cells that would give a record away. They follow from a node's total
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

#: The sums, in the order in which they are solved: weights first, for where nothing weighs all is 0.
SUMS = ("weights", "squares", "linear")
PRECISION = 1e-6  #: A recovered sum counts as right within this
TARGET = 1e-4  #: A target read off a cell counts as right within this share of its range


@dataclass(eq=False)
class KnownSums:
    """One client's released and withheld cells, and the identities about its leaves."""

    geometry: Geometry
    known: dict[str, dict[Cell, float]] = field(default_factory=lambda: {s: {} for s in SUMS})
    hidden: set[Cell] = field(default_factory=set)
    moments: dict[str, list[Equation]] = field(default_factory=lambda: {s: [] for s in SUMS})

    def learn(self, sum_: str, named: list[Cell], part: ReleasedPart) -> None:
        """Take in one part, flat, a cell each."""
        values = part.values.ravel()
        silent = np.ma.getmaskarray(values)
        for cell, value, hidden in zip(named, np.asarray(values.data), silent, strict=True):
            if hidden:
                self.hidden.add(cell)
            else:
                self.known[sum_][cell] = float(value)


@dataclass(frozen=True, eq=False)
class Worked:
    """By kind of sum the withheld cells that were recovered, or that another release gave."""

    heard: KnownSums
    found: Mapping[str, Mapping[Cell, float]]
    unsolved: int = 0  #: sums in systems that were too large to solve

    def targets(self) -> dict[Cell, float]:
        """Targets (centred) of withheld cells in which all records share one: W S = L^2."""
        weights, squares, linear = (self.found[name] for name in SUMS)
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
        found: dict[str, Worked] = {}
        for place in deadline.range(len(clients)):
            with formed(self.name, schema is not None or truth):
                worked = derive_sums(transcript.of(client=clients[place]), deadline)
            if worked is not None:
                found[clients[place]] = worked
            read += not deadline.over
        partial = deadline.partial(read, len(clients), "clients")
        if unsolved := sum(one.unsolved for one in found.values()):
            large = f"{number_of(unsolved, 'sum')} left in systems of more than {LARGEST:,} unknowns, which are not solved"
            partial = "; ".join(filter(None, (partial, large)))
        if truth is None:
            return [self._unscored(found, partial)]
        tables = {client: truth[client] for client in found if client in truth}
        return [self._cells(found, tables, partial), self._targets(found, tables, schema, partial)]

    def _unscored(self, found: Mapping[str, Worked], partial: str) -> Finding:
        filled = sum(w > PRECISION for one in found.values() for w in one.found["weights"].values())
        withheld = sum(len(one.heard.hidden) for one in found.values())
        metric, detail = "withheld cells worked out that are not empty", {"withheld": withheld}
        return self._counted(metric, filled, None, None, detail, partial, simulation=False)

    def _cells(
        self, found: Mapping[str, Worked], tables: Mapping[str, Table], partial: str
    ) -> Finding:
        tally: dict[str, float] = dict.fromkeys(
            ("withheld", "filled", "right", "wrong", "shuffled"), 0
        )
        for client, table in tables.items():
            for name, count in _score_cells(found[client], table).items():
                tally[name] += count
        metric = "withheld cells with records in them, recovered exactly"
        right, of, chance = tally["right"], tally["filled"], tally["shuffled"]
        return self._counted(metric, right, of, chance, {**tally, "precision": PRECISION}, partial)

    def _targets(
        self,
        found: Mapping[str, Worked],
        tables: Mapping[str, Table],
        schema: PublicSchema | None,
        partial: str,
    ) -> Finding:
        tally: dict[str, float] = dict.fromkeys(("right", "wrong", "alone", "chance"), 0)
        for client, table in tables.items():
            centred = centred_target(table, schema)
            if centred is not None:
                for name, count in _score_targets(found[client], table, centred).items():
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
        chance: float | None,
        detail: Mapping[str, Any],
        partial: str,
        *,
        simulation: bool = True,
    ) -> Finding:
        figures: dict[str, Any] = {"of": of, "baseline": chance, "detail": dict(detail)}
        proven = right > 0 and detail.get("wrong") == 0  # all that was worked out is so
        severity = "breach" if proven or right > (chance or 0) else "none"
        figures |= {"releases": self.kinds, "severity": severity, "simulation": simulation}
        return self.finding(metric, right, partial=partial, **figures)


def known_sums(transcript: Transcript) -> KnownSums | None:
    """Collect one client's sums; None if it released no exact ones."""
    heard: KnownSums | None = None
    readers = {LEVEL: _read_level, ACTIVATION: _read_activation, LEAVES: _read_leaves}
    for entry in transcript:
        if entry.kind in readers and exact_parts(entry):
            heard = heard or KnownSums(Geometry.of(entry.query))
            heard.geometry = Geometry.of(entry.query)
            readers[entry.kind](heard, entry, entry.query)
    return heard


def derive_sums(transcript: Transcript, deadline: Deadline | None = None) -> Worked | None:
    """Attack one client's releases; out of time, only what was released outright is found."""
    heard = known_sums(transcript)
    if heard is None:
        return None
    zero = {cell for cell, value in heard.known["weights"].items() if value == 0}
    groups = groups_of(heard.hidden.union(*heard.known.values()), heard.geometry.sets)
    found, unsolved = {}, 0
    for name in SUMS:
        late = deadline is not None and deadline.over
        known = dict.fromkeys(zero, 0.0) | heard.known[name]
        system = SumIdentities(heard.geometry.sets, name == "linear", known, heard.moments[name])
        empty = zero if name == "weights" else set(zero)
        solved = {} if late else system.solve(heard.hidden, empty, groups, deadline=deadline)
        again = {cell: known[cell] for cell in heard.hidden if cell in heard.known[name]}
        found[name], unsolved = {**again, **solved}, unsolved + system.unsolved
    return Worked(heard, found, unsolved)


def _read_level(heard: KnownSums, entry: TranscriptEntry, query: Mapping[str, Any]) -> None:
    nodes, features = cells(query["nodes"]), [int(f) for f in query["features"]]
    sets = heard.geometry.sets
    for name in SUMS:
        parts = exact_parts(entry)
        if f"node_{name}" in parts:
            heard.learn(name, nodes, parts[f"node_{name}"])
        if name not in parts:
            continue
        for position, node in enumerate(nodes):
            for column, feature in enumerate(features):
                if all(step[0] != feature for step in node):
                    named = [node | {(feature, j)} for j in range(sets)]
                    heard.learn(name, named, _part_of(parts[name], position, column))


def _part_of(part: ReleasedPart, *index: int) -> ReleasedPart:
    mask = None if part.mask is None else part.mask[index]
    axes = part.axes[len(index) :]
    return ReleasedPart(part.type, axes, part.units[index], mask, part.grid, part.mechanism)


def _read_activation(heard: KnownSums, entry: TranscriptEntry, query: Mapping[str, Any]) -> None:
    parts = exact_parts(entry)
    if "weights" in parts:
        heard.learn("weights", cells(query["nodes"]), parts["weights"])


def _read_leaves(heard: KnownSums, entry: TranscriptEntry, query: Mapping[str, Any]) -> None:
    """Leaf equations hold sums of w and y w, and of both times each feature."""
    parts = exact_parts(entry)
    for name, part in (("weights", "gram"), ("linear", "moment")):
        if part in parts:
            for position, leaf in enumerate(cells(query["nodes"])):
                index = (position, 0) if part == "gram" else (position,)
                row = _part_of(parts[part], *index).values
                _read_moments(heard, name, leaf, row, query["features"])


def _read_moments(
    heard: KnownSums, name: str, leaf: Cell, row: np.ma.MaskedArray, features: Sequence[int]
) -> None:
    if np.ma.getmaskarray(row).any():
        return
    heard.known[name][leaf] = float(row[0])
    for feature, value in zip(features, np.asarray(row.data)[1:], strict=True):
        if all(step[0] != feature for step in leaf):
            own = int(heard.geometry.each[feature])
            peaks = tuple(np.arange(own) / (own - 1) - 0.5)
            named = tuple(leaf | {(feature, j)} for j in range(own))
            heard.moments[name].append(Equation(named, peaks, float(value)))


def _score_cells(worked: Worked, table: Table) -> dict[str, float]:
    geometry = worked.heard.geometry
    degrees = geometry.degrees(geometry.unit(table.x))
    true = {cell: float(weight(degrees, cell).sum()) for cell in worked.heard.hidden}
    found = worked.found["weights"]
    filled = [cell for cell in sorted(found, key=sorted) if true[cell] > PRECISION]
    values = np.array([found[cell] for cell in filled])
    truths = np.array([true[cell] for cell in filled])
    right = np.abs(values - truths) <= PRECISION
    return {
        "withheld": len(true),
        "filled": sum(value > PRECISION for value in true.values()),
        "right": int(right.sum()),
        "wrong": int(sum(abs(found[cell] - true[cell]) > PRECISION for cell in found)),
        "shuffled": _shuffled(values, truths, PRECISION),
    }


def _shuffled(values: np.ndarray, truths: np.ndarray, precision: float) -> float:
    """The baseline: how many results would be right in another's place, on average over all others' places."""
    ordered, own = np.sort(values), np.abs(values - truths) <= precision
    first = np.searchsorted(ordered, truths - precision, "left")
    last = np.searchsorted(ordered, truths + precision, "right")
    return float((last - first - own).sum() / max(len(values) - 1, 1))


def _score_targets(worked: Worked, table: Table, centred: np.ndarray) -> dict[str, float]:
    """Numbers of targets read, right and wrong, of records alone in a withheld cell, and of hits by chance."""
    geometry = worked.heard.geometry
    degrees = geometry.degrees(geometry.unit(table.x))
    read = worked.targets()
    alone: set[int] = set()
    told: dict[int, float] = {}  # of the values read for a record the nearest, for it counts once
    for cell in worked.heard.hidden:
        active = np.flatnonzero(weight(degrees, cell) > 0)
        if len(active) != 1:
            continue
        record = int(active[0])
        alone.add(record)
        if cell in read:
            both = read[cell], told.get(record, np.inf)
            told[record] = min(both, key=lambda value: abs(value - float(centred[record])))
    values, truths = np.array(list(told.values())), centred[list(told)]
    right = int((np.abs(values - truths) <= TARGET).sum())
    by_chance = _shuffled(values, truths, TARGET)
    return {"right": right, "wrong": len(told) - right, "alone": len(alone), "chance": by_chance}
