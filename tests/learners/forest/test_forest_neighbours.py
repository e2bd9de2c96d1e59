"""FedForest's sensitivities by brute force over neighbouring records, and what hostile questions meet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed import LocalDisclosure
from privfed.errors import QueryError
from privfed.learners import FedForestClassifier
from privfed.learners.forest.columns import TARGET_GRID
from privfed.learners.forest.level import NodeFeatures, OpenNodes
from privfed.learners.forest.out_of_bag import OutOfBag
from privfed.learners.forest.queries import BinStatistics, LocalGains, Shortlist, Sketches
from privfed.learners.forest.samples import CAP, Sampling
from privfed.learners.forest.trees import ALL_LEFT, LEAF, BinaryTrees
from privfed.questions.part import Bound, Part, PartType
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing.hospitals import BINARY, gates, patients

SCHEMA = Schema(
    (
        Column("a", "number", -4, 4),
        Column("b", "number", -4, 4),
        Column("c", "category", categories=("u", "v")),
    ),
    Column("y", "number", -2, 2),
)
TREES = BinaryTrees(
    2,
    np.array([0, 2, LEAF, LEAF, LEAF, LEAF]),
    np.array([0.5, 0, 0, 0, 0, 0], np.float32),
    np.array([2, 4, 0, 0, 0, 0]),
    np.array([-1, 0, -1, -1, -1, -1]),
    np.array([[True, False]]),
)
CUTS = np.array([[-1, 0, 1]] * 6, np.float32)


def level(way: str, classes: int) -> OpenNodes:
    """All four leaves of two trees of one split each, with one to three pairs."""
    numeric = NodeFeatures(np.array([2, 1, 2, 1]), np.array([0, 1, 1, 0, 1, 0]))
    grouped = NodeFeatures(np.array([1, 1, 0, 1]), np.array([2, 2, 2]))
    return OpenNodes(
        TREES, Sampling(way, 1, np.arange(2), 2), np.arange(2, 6), numeric, grouped, classes
    )


def questions(way: str) -> list[Query]:
    """Every question with a finite sensitivity."""
    asked: list[Query] = [
        question
        for classes in (0, 1, 2)
        for question in (Sketches(level(way, classes), 3), BinStatistics(level(way, classes), CUTS))
    ]
    if way != "all":
        asked.append(OutOfBag(TREES, level(way, 0).sampling, np.linspace(-0.5, 0.5, 6)[:, None]))
    return asked


Row = tuple[float, float, float, float]


def units(query: Query, rows: list[Row]) -> dict[str, np.ndarray]:
    """What a client of these records would say."""
    table = np.array(rows, float).reshape(-1, 4)
    return dict(query.evaluate(View(Records(SCHEMA, table[:, :3], table[:, 3]), SCHEMA, b"s")))


def moved(one: np.ndarray, other: np.ndarray) -> Bound:
    """How far two answers lie apart."""
    steps = [int(step) for step in np.subtract(one, other, dtype=float).ravel()]
    return Bound(sum(map(abs, steps)), sum(step**2 for step in steps))


def exceeds(part: Part, step: Bound, replaced: bool) -> bool:
    """Whether a step is longer than what the part derives."""
    assert part.sensitivity is not None
    relation: Any = "replace-one" if replaced else "add-or-remove"
    bound = part.sensitivity.under("record", relation, None)
    return step.l1 > bound.l1 or step.l2_squared > bound.l2_squared


VALUE = st.sampled_from([-4.0, -1.0, 0.0, 0.5, 0.51, 1.0, 4.0])
ROW = st.tuples(VALUE, VALUE, st.sampled_from([0.0, 1.0]), st.sampled_from([-2.0, 0.3, 2.0]))


@pytest.mark.parametrize("way", ["all", "poisson", "split"])
@settings(max_examples=40, deadline=None)
@given(base=st.lists(ROW, max_size=5), pair=st.tuples(ROW, ROW))
def test_no_record_moves_more_than_is_derived(
    way: str, base: list[Row], pair: tuple[Row, Row]
) -> None:
    """One record more, and one in another's place, part by part."""
    for query in questions(way):
        parts = {n: p for n, p in query.parts(SCHEMA).items() if p.type != PartType.VALUES}
        without = units(query, base)
        one, other = (units(query, [*base, record]) for record in pair)
        for name, part in parts.items():
            assert not exceeds(part, moved(one[name], without[name]), replaced=False), name
            assert not exceeds(part, moved(one[name], other[name]), replaced=True), name


def test_the_bounds_are_attained_and_a_smaller_one_is_caught() -> None:
    """With every record in every tree a record moves as much as derived: a mutant of less fails."""
    row = (0.0, 0.0, 0.0, 2.0)
    for query, name in (
        (Sketches(level("all", 2), 3), "counts"),
        (BinStatistics(level("all", 2), CUTS), "bins"),
    ):
        part = query.parts(SCHEMA)[name]
        step = moved(units(query, [row])[name], units(query, [])[name])
        assert part.sensitivity is not None
        assert not exceeds(part, step, replaced=False)
        less = Bound(
            part.sensitivity.add_or_remove.l1 - 1, part.sensitivity.add_or_remove.l2_squared - 1
        )
        mutant = replace(part, sensitivity=replace(part.sensitivity, add_or_remove=less))
        assert exceeds(mutant, step, replaced=False)


def test_sums_move_by_half_a_unit_of_the_scaled_target() -> None:
    """The extremes of the target lie at one half of the grid's whole."""
    told = units(BinStatistics(level("all", 0), CUTS), [(0.0, 0.0, 0.0, 2.0)])["bin_sums"]
    assert np.abs(told).max() == TARGET_GRID.denominator // 2


def test_repeats_of_a_record_are_bounded_by_its_coins() -> None:
    """Poisson counts never exceed the cap that the sensitivity stands on; a bootstrap has none."""
    own = View(Records(SCHEMA, np.zeros((3000, 3)), np.zeros(3000)), SCHEMA, b"s")
    counts = np.bincount(level("poisson", 0).sampling.rows(own, 0), minlength=3000)
    assert counts.max() == CAP
    parts = BinStatistics(level("bootstrap", 0), CUTS).parts(SCHEMA)
    assert all(part.sensitivity is None for part in parts.values())


# --- hostile input -------------------------------------------------------------------------------

GOOD = level("all", 2)


def trees(**changes: Any) -> OpenNodes:
    """The level with its trees changed."""
    return replace(GOOD, trees=replace(GOOD.trees, **changes))


HOSTILE: dict[str, tuple[OpenNodes, str]] = {
    "a child before its parent": (trees(left=np.array([2, 0, 0, 0, 0, 0])), "malformed"),
    "two parents": (trees(left=np.array([2, 2, 0, 0, 0, 0])), "false-partition"),
    "a child that is no node": (trees(left=np.array([2, 5, 0, 0, 0, 0])), "malformed"),
    "an unknown feature": (trees(feature=np.array([3, 2, -1, -1, -1, -1])), "malformed"),
    "an unknown side": (trees(feature=np.array([-4, 2, -1, -1, -1, -1])), "malformed"),
    "a cut that is no number": (trees(cut=np.array([np.nan, 0, 0, 0, 0, 0])), "malformed"),
    "an infinite cut": (trees(cut=np.array([np.inf, 0, 0, 0, 0, 0])), "malformed"),
    "numbers by subset": (trees(subset=np.array([0, 0, -1, -1, -1, -1])), "malformed"),
    "categories by cut": (trees(subset=np.full(6, -1)), "malformed"),
    "no such subset": (trees(subset=np.array([-1, 7, -1, -1, -1, -1])), "malformed"),
    "a subset that is too narrow": (trees(subsets=np.ones((1, 1), bool)), "malformed"),
    "arrays of different lengths": (trees(cut=np.zeros(5)), "malformed"),
    "no tree": (trees(roots=0), "malformed"),
    "an open node that splits": (replace(GOOD, nodes=np.array([0, 3, 4, 5])), "false-partition"),
    "a node twice": (replace(GOOD, nodes=np.array([2, 2, 4, 5])), "false-partition"),
    "no such node": (replace(GOOD, nodes=np.array([2, 3, 4, 9])), "malformed"),
    "trees in turns": (replace(GOOD, nodes=np.array([4, 3, 2, 5])), "malformed"),
    "a feature twice": (
        replace(GOOD, numeric=replace(GOOD.numeric, features=np.array([0, 0, 1, 0, 1, 0]))),
        "false-partition",
    ),
    "a category as a number": (
        replace(GOOD, numeric=replace(GOOD.numeric, features=np.array([0, 2, 1, 0, 1, 0]))),
        "malformed",
    ),
    "more pairs than are counted": (
        replace(GOOD, numeric=replace(GOOD.numeric, sizes=np.array([2, 1, 2, 0]))),
        "malformed",
    ),
    "a tree's number twice": (
        replace(GOOD, sampling=replace(GOOD.sampling, trees=np.array([1, 1]))),
        "false-partition",
    ),
    "a tree beyond the forest": (
        replace(GOOD, sampling=replace(GOOD.sampling, trees=np.array([0, 2]))),
        "malformed",
    ),
    "an unknown way": (replace(GOOD, sampling=replace(GOOD.sampling, way="raw")), "malformed"),
    "a thousand classes": (replace(GOOD, classes=1000), "malformed"),
}


@pytest.mark.parametrize(("hostile", "reason"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    "ask",
    [
        lambda own: Sketches(own, 3),
        lambda own: BinStatistics(own, CUTS),
        lambda own: LocalGains(own, CUTS, "gini"),
        lambda own: Shortlist(own, 3, 1, "gini"),
    ],
)
def test_hostile_levels_are_refused(
    ask: Callable[[OpenNodes], Query], hostile: OpenNodes, reason: str
) -> None:
    """Whatever the question, before a record is read, and for the right reason."""
    with pytest.raises(QueryError) as caught:
        ask(hostile).parts(SCHEMA)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("cuts", "reason"),
    [
        (CUTS[:, ::-1], "false-partition"),
        (CUTS * np.nan, "malformed"),
        (CUTS[:5], "malformed"),
        (np.zeros((6, 0)), "malformed"),
        (CUTS.astype(int), "malformed"),
    ],
)
def test_hostile_cuts_are_refused(cuts: np.ndarray, reason: str) -> None:
    """Falling, no numbers, too few, none at all, of another type."""
    with pytest.raises(QueryError) as caught:
        BinStatistics(GOOD, cuts).parts(SCHEMA)
    assert caught.value.reason == reason


def test_hostile_values_and_depths_are_refused() -> None:
    """A score's values must be finite numbers of every node; paths end at 60 splits."""
    sampling = GOOD.sampling
    for values in (np.full((6, 1), np.nan), np.zeros((5, 1)), np.zeros((6, 101)), np.zeros(6)):
        with pytest.raises(QueryError):
            OutOfBag(TREES, sampling, values).parts(SCHEMA)
    nodes = 2 * 61 + 1
    inner = np.zeros(nodes, bool)
    inner[[0, *range(1, nodes - 2, 2)]] = True
    left = np.zeros(nodes, int)
    left[inner] = np.arange(1, nodes, 2)
    chain = BinaryTrees(
        1,
        np.where(inner, ALL_LEFT, LEAF),
        np.zeros(nodes),
        left,
        np.full(nodes, -1),
        np.zeros((0, 1), bool),
    )
    with pytest.raises(QueryError, match="60"):
        chain.check(SCHEMA)


def test_a_gate_refuses_hostile_trees_before_it_reads_a_record() -> None:
    """Through the gate too: the reason is public, the ledger charges nothing."""
    learner = FedForestClassifier(n_estimators=2)
    federation: LocalDisclosure = gates(patients(60), learner.published(), BINARY)
    bad = replace(GOOD, nodes=np.array([2, 2, 4, 5]))
    assert federation.offers(Sketches(bad, 3)) == ()
    assert len(federation.transcript()) == 0


@pytest.mark.parametrize("way", ["bootstrap", "poisson", "split"])
def test_out_of_bag_sums_do_not_depend_on_the_blocks(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of records and of trees, down to one at a time; no records at all make zeros."""
    rng = np.random.default_rng(2)
    rows = [tuple(row) for row in np.c_[rng.normal(size=(90, 2)), rng.integers(0, 2, (90, 2))]]
    values = np.linspace(-0.5, 0.5, 6)[:, None]
    query = OutOfBag(TREES, Sampling(way, 1, np.arange(2), 2), values)
    whole, none = units(query, rows), units(query, [])
    assert whole["records"] > 0 and not any(array.any() for array in none.values())
    for block in (1, 7, 40):
        monkeypatch.setattr("privfed.learners.forest.out_of_bag.BLOCK", block)
        assert units(query, rows) == whole


def test_one_record_more_turns_no_other_records_out_of_bag_prediction() -> None:
    """The exploit: leaf values that cancel, in a sum that was cut into blocks by the number of records.

    Of 500 records all were right, of 501 none: noise for a sensitivity of one hides no such change.
    """
    roots = 2500
    values = np.zeros((roots, 2))
    values[[1990, 1998, 2300], 0] = 2.0**53, 1.0, -(2.0**53)
    values[0, 1] = 0.5
    query = OutOfBag(
        BinaryTrees.stumps(roots), Sampling("split", 1, np.arange(roots), roots), values
    )
    rows = [(at / 501, 0.0, 0.0, 2.0) for at in range(501)]
    one, other = (int(units(query, own)["correct"][0]) for own in (rows[:-1], rows))
    assert abs(one - other) <= 1
