"""Records come back from leaf equations exactly where they must, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from privfed.attacks.equations import (
    NormalEquations,
    ReconstructedRecord,
    few_records,
    known_domain,
    single_records,
    small_groups,
)
from privfed.attacks.fuzzy import Geometry, cells, weight
from privfed.attacks.recovery import Recovery, read
from privfed.exchange.messages import Release, ReleasedPart
from privfed.exchange.transcript import Transcript, TranscriptEntry
from privfed.learners.fuzzy_tree.queries import Leaves
from privfed.privacy.laws import DiscreteGaussian, Law
from privfed.questions import wire
from privfed.questions.part import GRID, PartType
from privfed.questions.query import View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

FEATURES = 4
SCHEMA = Schema(
    tuple(Column(f"x{i}", lower=0, upper=1) for i in range(FEATURES)),
    Column("y", lower=0, upper=1),
)
#: All leaves of a tree that splits on feature 0 alone.
FAN = tuple(((0, j),) for j in range(5))


def released(records: Records, noise: Law | None = None) -> Transcript:
    """What a client with these records answers about the leaves of the fan, exactly."""
    schema = records.schema
    query = Leaves(FAN, 5, schema.lower, schema.upper, tuple(range(len(schema.features))))
    exact = query.evaluate(View(records, schema))
    parts = {
        name: ReleasedPart(
            PartType.SUMS, declared.axes, exact[name].astype(np.int64), None, GRID, "open", noise
        )
        for name, declared in query.parts(schema).items()
    }
    release = Release("one", "r", query.kind, query.digest, parts)
    return Transcript((TranscriptEntry("one", query.kind, query.fields, release),))


def drawn(count: int, seed: int, schema: Schema = SCHEMA) -> Records:
    """Records drawn uniformly over the schema."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(schema.lower, schema.upper, (count, len(schema.features)))
    return Records(schema, x, rng.uniform(0, 1, count))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(5))
def test_up_to_width_records_come_back(count: int, seed: int) -> None:
    """F + 1 continuous records over the leaves of one node are all recovered."""
    truth = {"one": drawn(count, seed), "two": drawn(9, seed + 100)}
    (found,) = Recovery().run(released(truth["one"]), truth, SCHEMA)
    assert found.value == found.of == count
    assert found.baseline == 0
    assert found.severity == "breach"


def test_too_many_records_are_not_claimed() -> None:
    """Three times the width in every leaf: the attack claims nothing rather than nonsense."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.05, 0.95, (15 * 4, FEATURES))
    truth = {"one": Records(SCHEMA, x, rng.uniform(0, 1, len(x)))}
    (found,) = Recovery().run(released(truth["one"]), truth, SCHEMA)
    assert found.value == found.detail["claimed"] == 0
    assert found.severity == "none"


def test_noisy_equations_are_not_read() -> None:
    """Under a mechanism with noise there is nothing to solve exactly."""
    truth = {"one": drawn(1, 0)}
    transcript = released(truth["one"], DiscreteGaussian(1e6))
    assert read(transcript.entries[0]) is None
    (found,) = Recovery().run(transcript, truth, SCHEMA)
    assert found.value == 0 and found.of == 1


def test_without_truth_claims_are_counted() -> None:
    """The finding then needs no truth and says so."""
    (found,) = Recovery().run(released(drawn(1, 0)))
    assert found.metric == "records claimed"
    assert found.value == 1 and not found.simulation
    assert Recovery().run(Transcript()) == []


def test_suppressed_leaves_are_left_out() -> None:
    """A masked leaf is not read; what the others say still is."""
    transcript = released(drawn(1, 3))
    entry = transcript.entries[0]
    corner = np.asarray(entry.release["gram"])[:, 0, 0]
    hidden = np.arange(5) == int(np.argmax(corner))
    parts = {
        name: ReleasedPart(
            part.type,
            part.axes,
            np.where(hidden.reshape(-1, *[1] * (part.units.ndim - 1)), 0, part.units),
            np.broadcast_to(hidden.reshape(-1, *[1] * (part.units.ndim - 1)), part.units.shape),
            part.grid,
        )
        for name, part in entry.release.parts.items()
    }
    release = Release("one", "r", entry.kind, "", parts)
    equations = read(TranscriptEntry("one", entry.kind, entry.fields, release))
    assert equations is not None and len(equations) == 4


def test_identical_twins_are_claimed_twice() -> None:
    """Two records alike in one leaf have rank one and twice the weight."""
    x = np.tile([0.1, 0.2, 0.3, 0.4], (2, 1))
    equations = read(released(Records(SCHEMA, x, np.array([0.5, 0.5]))).entries[0])
    assert equations is not None
    assert len(single_records(equations)) == 2


@pytest.mark.parametrize("times", [0.4, 1.5, 2.4])
def test_a_weight_that_no_count_of_records_has_is_no_record(times: float) -> None:
    """A leaf of rank one is nobody's where its weight is no multiple of what its features imply."""
    equations = read(released(drawn(1, 3)).entries[0])
    assert equations is not None and len(single_records(equations)) == 1
    gram, moment = times * equations.gram, times * equations.moment
    assert single_records(replace(equations, gram=gram, moment=moment)) == []


def test_diagonalising_needs_two_leaves() -> None:
    """One leaf's equations alone have no unique factors."""
    equations = read(released(drawn(3, 1)).entries[0])
    assert equations is not None
    assert few_records(equations, [0]) == []
    assert len(few_records(equations, [0, 1, 2, 3, 4])) == 3
    assert [0, 1, 2, 3, 4] in small_groups(equations, [[0, 1, 2, 3, 4]])


CATEGORIES = Schema(
    tuple(Column(f"c{i}", "integer", 0, 3) for i in range(5)), Column("y", lower=0, upper=1)
)


def _single_leaf(records: Records) -> tuple[NormalEquations, np.ndarray]:
    """The equations of the root as one leaf, and every row of the domain."""
    geometry = Geometry(5, records.schema.lower, records.schema.upper)
    rows = np.column_stack([np.ones(len(records)), geometry.unit(records.x) - 0.5])
    gram, moment = rows.T @ rows, rows.T @ (records.target - 0.5)
    domain = geometry.unit(np.array(list(product(range(4), repeat=5)), dtype=float)) - 0.5
    equations = NormalEquations(
        (frozenset(),), geometry, gram[None], moment[None], np.array([1e-9])
    )
    return equations, np.column_stack([np.ones(len(domain)), domain])


@pytest.mark.parametrize(("count", "least"), [(1, 20), (2, 20), (3, 20), (4, 12)])
def test_known_domains_are_enumerated(count: int, least: int) -> None:
    """One leaf of few records over a domain of 1,024 vectors: of twenty tables, so many come back."""
    solved = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.integers(0, 4, (count, 5)).astype(float)
        equations, domain = _single_leaf(Records(CATEGORIES, x, rng.uniform(0, 1, count)))
        claims = known_domain(equations, 0, domain)
        truth = np.sort(x / 3 - 0.5, axis=0)
        found = np.sort([claim.row[1:] for claim in claims], axis=0) if claims else np.empty((0, 5))
        solved += found.shape == truth.shape and bool(np.allclose(found, truth))
    assert solved >= least


def test_targets_of_a_known_domain_are_weighed_as_their_records_are() -> None:
    """Records that reach a leaf in part come back with their targets, and as often as there were some."""
    x = np.array([[1, 0, 3, 2, 1], [2, 3, 0, 1, 2], [2, 3, 0, 1, 2]], float)
    records = Records(CATEGORIES, x, np.array([0.25, 0.75, 0.75]))
    equations, domain = _single_leaf(records)
    equations = replace(equations, leaves=(frozenset({(0, 2)}),))
    rows = np.column_stack([np.ones(3), x / 3 - 0.5])
    weights = equations.weights(rows)[0]
    assert ((weights > 0) & (weights < 1)).all()
    gram = (rows * weights[:, None]).T @ rows
    moment = (rows * weights[:, None]).T @ (records.target - 0.5)
    claims = known_domain(replace(equations, gram=gram[None], moment=moment[None]), 0, domain)
    found = sorted(claim.coordinates.round(6).tolist() for claim in claims)
    assert np.allclose(found, sorted(np.column_stack([rows[:, 1:], records.target - 0.5]).tolist()))


def test_domain_is_enumerated_within_the_attack() -> None:
    """The attack turns to the schema's domain where the leaves' own structure is not enough."""
    rng = np.random.default_rng(8)
    x = rng.integers(0, 4, (2, 5)).astype(float)
    x[:, 0] = 0  # the same split value: only one leaf hears of them, and joint solving cannot help
    truth = {"one": Records(CATEGORIES, x, np.array([0.25, 0.75]))}
    (found,) = Recovery().run(released(truth["one"]), truth, CATEGORIES)
    assert found.value == 2
    assert found.detail["claimed by known domain"] == 2


def test_geometry_is_the_trees_own() -> None:
    """Memberships sum to one, and activations equal those of the learner."""
    records = drawn(50, 5)
    geometry = Geometry(5, SCHEMA.lower, SCHEMA.upper)
    degrees = geometry.degrees(geometry.unit(records.x))
    assert np.allclose(degrees.sum(axis=2), 1)
    entry = released(records).entries[0]
    for position, node in enumerate(cells(entry.query["nodes"])):
        corner = entry.release["gram"][position, 0, 0]
        assert corner == pytest.approx(weight(degrees, node).sum(), abs=1e-6)


def test_recovery_on_diabetes(findings) -> None:  # type: ignore[no-untyped-def]
    """Published gives a third of all patients away, strict none; private has nothing that it reads."""
    found = {}
    for policy in ("published", "strict"):
        (found[policy],) = findings(policy, "recovery")
    assert found["published"].value > 100
    assert found["published"].baseline == 0
    assert found["published"].detail["claimed"] - found["published"].value <= 5
    assert found["strict"].value == 0
    assert not findings("private", "recovery")


def test_fields_survive_the_wire() -> None:
    """The attack reads the question's public values as they left."""
    entry = released(drawn(1, 0)).entries[0]
    assert wire.encode(entry.query["sets"]) == wire.encode(5)
    assert cells(entry.query["nodes"])[1] == frozenset({(0, 1)})


def test_a_record_that_two_releases_give_counts_once() -> None:
    """Two trees over the same records: never more are recovered than there are."""
    truth = {"one": drawn(3, 0), "two": drawn(9, 100)}
    twice = Transcript((*released(truth["one"]), *released(truth["one"])))
    (found,) = Recovery().run(twice, truth, SCHEMA)
    assert found.value == found.of == 3


def test_claims_that_anybody_s_table_has_are_found_by_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sixty records of sixteen kinds, beside another owner's one: as many drawn ones are hit as often."""
    kinds = np.array(list(product((0.0, 1.0), repeat=4)))
    features = tuple(Column(f"c{i}", "integer", 0, 1) for i in range(3))
    schema = Schema(features, Column("y", "integer", 0, 1))
    rows = kinds[np.random.default_rng(1).integers(0, 16, 60)]
    truth = {
        name: Records(schema, own[:, :3], own[:, 3]) for name, own in (("a", rows), ("b", rows[:1]))
    }
    claims = [
        ReconstructedRecord(np.append(1, row[:3] - 0.5), row[3] - 0.5, 0, "") for row in kinds
    ]
    monkeypatch.setattr(Recovery, "claims", lambda *_, **__: claims)
    transcript = Transcript(tuple(replace(e, client="a") for e in released(truth["a"])))
    (found,) = Recovery().run(transcript, truth, schema)
    assert found.value == pytest.approx(16, abs=1) == found.baseline
    assert found.severity == "none"
