"""Strict nullification by linear algebra: no revealing cell lies in the span of what was released.

Every exact release is the sum over a client's records of a function of one record. An attacker who
knows nothing but releases can work out a withheld sum exactly if (and by linear means only if) its
function is a linear combination of released ones, on all records that released zeros allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest

from privfed.attacks.fuzzy import ACTIVATION, LEAVES, LEVEL, Cell, Geometry, cells, weight
from privfed.attacks.subtraction import Subtraction, derive_sums
from privfed.engines.local import LocalDisclosure
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.learners.fuzzy_tree import FuzzyTreeRegressor
from privfed.learners.fuzzy_tree.fuzzy import Memberships
from privfed.learners.fuzzy_tree.sums import suppression
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

SETS, FEATURES = 4, 3
SCHEMA = Schema(
    tuple(Column(f"x{i}", lower=0, upper=1) for i in range(FEATURES)), Column("y", lower=0, upper=1)
)
#: How far a function must stay from the span, as a share of its own norm.
CLEAR = 1e-5


@dataclass
class Span:
    """Functions of one record (values at sampled points) whose sums a client released.

    Args:
        degrees: memberships of the sampled points, shape (points, features, sets).
        unit: the points.
    """

    degrees: np.ndarray
    unit: np.ndarray
    weights: list[np.ndarray] = field(default_factory=list)
    linear: list[np.ndarray] = field(default_factory=list)
    zero: np.ndarray = field(default_factory=lambda: np.empty(0, bool))
    hidden: set[Cell] = field(default_factory=set)

    def of(self, cell: Cell) -> np.ndarray:
        """The function of a cell's summed weight."""
        return weight(self.degrees, cell)

    def take(self, name: str, cell: Cell, value: object) -> None:
        """Note one released or withheld sum."""
        if value is np.ma.masked:
            self.hidden.add(cell)
            return
        function = self.of(cell)
        (self.linear if name == "linear" else self.weights).append(function)
        if name == "weights" and value == 0:
            self.zero |= function > 0

    def exposed(self, cell: Cell, name: str) -> bool:
        """Whether a withheld cell's function lies in the span of those released."""
        allowed = ~self.zero
        released = (self.linear if name == "linear" else self.weights) or [0 * self.of(cell)]
        basis = np.array(released)[:, allowed].T
        wanted = self.of(cell)[allowed]
        solution = np.linalg.lstsq(basis, wanted, rcond=1e-10)[0]
        return bool(np.linalg.norm(basis @ solution - wanted) <= CLEAR * np.linalg.norm(wanted))


def span_of(transcript: Transcript, seed: int = 0, points: int = 700) -> Span:
    """Represent one client's releases at points drawn over the whole domain, its corners too."""
    rng = np.random.default_rng(seed)
    unit = rng.uniform(0, 1, (points, FEATURES))
    lattice = rng.integers(0, SETS, (points, FEATURES)) / (SETS - 1)
    unit = np.where(rng.random((points, FEATURES)) < 0.25, lattice, unit)
    geometry = Geometry(SETS, np.zeros(FEATURES), np.ones(FEATURES))
    span = Span(geometry.degrees(unit), unit, zero=np.zeros(points, bool))
    for entry in transcript:
        _READ.get(entry.kind, lambda span, entry: None)(span, entry)
    return span


def _level(span: Span, entry: TranscriptEntry) -> None:
    release, query = entry.release, entry.query
    for n, node in enumerate(cells(query["nodes"])):
        for name in ("weights", "linear"):
            span.take(name, node, release[f"node_{name}"][n])
            for column, feature in enumerate(query["features"]):
                if all(feature != used for used, _ in node):
                    for j in range(SETS):
                        value = release[name][n, column, j]
                        span.take(name, node | {(feature, j)}, value)


def _leaves(span: Span, entry: TranscriptEntry) -> None:
    design = np.column_stack([np.ones(len(span.unit)), span.unit - 0.5])
    gram, moment = entry.release["gram"], entry.release["moment"]
    for n, leaf in enumerate(cells(entry.query["nodes"])):
        if moment[n, 0] is np.ma.masked:
            continue
        function = span.of(leaf)
        for row in range(FEATURES + 1):
            span.linear.append(function * design[:, row])
            span.weights += [function * design[:, row] * design[:, c] for c in range(row + 1)]
    assert (
        np.ma.getmaskarray(gram).any(axis=(1, 2)).tolist()
        == np.ma.getmaskarray(moment).any(axis=1).tolist()
    )


def _activation(span: Span, entry: TranscriptEntry) -> None:
    for n, leaf in enumerate(cells(entry.query["nodes"])):
        span.take("weights", leaf, entry.release["weights"][n])


_READ = {LEVEL: _level, LEAVES: _leaves, ACTIVATION: _activation}


def grown(seed: int, strict: bool) -> tuple[Transcript, Records]:
    """One client's releases while a tree grows on its few records and another's many."""
    rng = np.random.default_rng(seed)
    x = np.clip(rng.beta(1.2, 2.5, (400, FEATURES)), 0, 1)
    x[rng.random(x.shape) < 0.2] = 1 / 3  # values that many share, on a peak
    y = np.clip(x[:, 0] * x[:, 1] + x[:, 2] ** 2 / 2 + rng.normal(0, 0.02, 400), 0, 1)
    frame = pd.DataFrame({**{f"x{i}": x[:, i] for i in range(FEATURES)}, "y": y})
    frame["owner"] = np.where(np.arange(400) < 60, "small", "large")
    learner = FuzzyTreeRegressor(
        n_fuzzy_sets=SETS, scaling="schema", min_samples_split=0.02, min_gain=1e-5
    )
    federation = LocalDisclosure.from_frame(
        frame,
        "y",
        client="owner",
        schema=SCHEMA,
        policy=learner.published(strict=strict),
        seed=seed,
    )
    learner.fit(federation)
    records = Records.from_frame(frame[frame["owner"] == "small"].drop(columns="owner"), SCHEMA)
    return federation.transcript().of(client="small"), records


def revealing(span: Span, records: Records) -> Iterator[Cell]:
    """Withheld cells of one or two records, and those whose neighbours are both empty."""
    degrees = Geometry(SETS, np.zeros(FEATURES), np.ones(FEATURES)).degrees(records.x)

    def count(cell: Cell) -> int:
        return int((weight(degrees, cell) > 0).sum())

    def alone(cell: Cell, feature: int, fuzzy_set: int) -> bool:
        rest = cell - {(feature, fuzzy_set)}
        beside = (j for j in (fuzzy_set - 1, fuzzy_set + 1) if 0 <= j < SETS)
        return not any(count(rest | {(feature, j)}) for j in beside)

    for cell in sorted(span.hidden, key=sorted):
        if count(cell) > 0 and (count(cell) <= 2 or any(alone(cell, *step) for step in cell)):
            yield cell


def exposed(seed: int, strict: bool) -> tuple[int, int]:
    """How many revealing withheld cells lie in the span, and how many there are."""
    transcript, records = grown(seed, strict)
    span = span_of(transcript)
    wanted = list(revealing(span, records))
    return sum(span.exposed(c, "weights") or span.exposed(c, "linear") for c in wanted), len(wanted)


def test_a_feature_that_reveals_at_one_branch_is_withheld_at_all() -> None:
    """Six records share a set of feature 1, of which one branch of feature 0 holds a single one."""
    nodes = [(), ((0, 1),), ((0, 2),)]
    x = np.column_stack([np.repeat([1 / 3, 2 / 3], 10), np.full(20, 0.4), np.full(20, 0.5)])
    x[5, 0] = 0.4  # so that both branches hold somebody by less than 1
    x[[0, 10, 11, 12, 13, 14], 1] = 0.9
    assert suppression(Memberships.from_unit(x, SETS), nodes, SETS).features[:, 1].tolist() == [
        False,
        True,
        True,
    ]
    x[1:5, 1] = 0.9
    assert not suppression(Memberships.from_unit(x, SETS), nodes, SETS).features[:, 1].any()


@pytest.mark.parametrize("seed", range(6))
def test_strict_hides_every_revealing_cell(seed: int) -> None:
    """Nothing withheld comes back by any linear combination of anything released."""
    found, of = exposed(seed, strict=True)
    assert of >= 3
    assert found == 0


@pytest.mark.parametrize("seed", range(5))
def test_published_does_not(seed: int) -> None:
    """The power twin: by the paper's rule most revealing cells lie in the span."""
    found, of = exposed(seed, strict=False)
    assert of >= 10
    assert found >= of / 2


def test_the_attack_finds_nothing_beyond_the_span() -> None:
    """What the attack works out, the span contains; and its values are right."""
    transcript, records = grown(0, strict=False)
    span = span_of(transcript)
    worked = derive_sums(transcript)
    assert worked is not None
    degrees = Geometry(SETS, np.zeros(FEATURES), np.ones(FEATURES)).degrees(records.x)
    filled = [c for c in worked.found["weights"] if weight(degrees, c).sum() > 0]
    assert len(filled) >= 10
    for cell in filled:
        assert worked.found["weights"][cell] == pytest.approx(weight(degrees, cell).sum(), abs=1e-6)
    assert np.mean([span.exposed(cell, "weights") for cell in filled]) > 0.95


def test_the_attack_misses_little_of_the_span() -> None:
    """Of the revealing cells in the span of published releases, the attack gets most."""
    transcript, records = grown(1, strict=False)
    span, worked = span_of(transcript), derive_sums(transcript)
    assert worked is not None
    wanted = [c for c in revealing(span, records) if span.exposed(c, "weights")]
    assert sum(c in worked.found["weights"] for c in wanted) >= 0.9 * len(wanted)
    assert Subtraction().attackable(transcript)
