"""The small queries' derived sensitivities, beside a search over neighbouring data sets."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.errors import QueryError
from privfed.questions.part import Bound, Relation, Unit
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.testing.queries import AboveMiddle, Histogram, LevelSums

SCHEMA = Schema(
    (Column("a", lower=0, upper=1), Column("b", lower=-1, upper=1)), Column("y", lower=-2, upper=3)
)
CAP = 2
CELL = st.floats(-3, 4, allow_nan=False) | st.sampled_from([float("nan"), 0.5, 1.0, 3.0])
ROW = st.tuples(CELL, CELL, CELL)
#: Persons, each with the records they hold.
PERSON = st.lists(ROW, min_size=1, max_size=CAP)
PEOPLE = st.lists(PERSON, min_size=0, max_size=5)

TABLES: list[Query] = [
    Histogram(0, (0.0, 0.25, 0.5, 1.0)),
    Histogram(1, (0.5, 0.75)),
    LevelSums(((),)),
    LevelSums((((0, 0),), ((0, 1), (1, 0)), ((0, 1), (1, 1)))),
]
EVERY_TABLE = pytest.mark.parametrize("query", TABLES, ids=str)


#: What each individual holds.
People = Sequence[Sequence[tuple[float, ...]]]


def evaluated(query: Query, people: People) -> Mapping[str, np.ndarray]:
    """Every declared part as exact integers, from records that are built anew."""
    rows = np.array([row for person in people for row in person], dtype=float).reshape(-1, 3)
    codes = np.repeat(np.arange(len(people)), [len(person) for person in people])
    records = Records(SCHEMA, rows[:, :2], rows[:, 2], codes)
    exact = query.evaluate(View(records, SCHEMA))
    return {name: np.asarray(exact[name]).astype(np.int64) for name in query.parts(SCHEMA)}


def assert_within(
    query: Query,
    one: People,
    other: People,
    unit: Unit,
    relation: Relation,
    cap: int | None = None,
) -> None:
    """Hold the change between two neighbours to the bound of every part."""
    before, after = evaluated(query, one), evaluated(query, other)
    for name, part in query.parts(SCHEMA).items():
        assert part.sensitivity is not None
        bound = part.sensitivity.under(unit, relation, cap)
        change = [int(c) for c in (after[name] - before[name]).ravel()]
        assert sum(map(abs, change)) <= bound.l1
        assert sum(c * c for c in change) <= bound.l2_squared


def single(rows: Sequence[tuple[float, ...]]) -> People:
    """Each record a person of its own."""
    return [[row] for row in rows]


@EVERY_TABLE
@settings(max_examples=60)
@given(rows=st.lists(ROW, max_size=6), extra=ROW, at=st.integers(0, 6))
def test_one_record_more(
    query: Query, rows: Sequence[tuple[float, ...]], extra: tuple[float, ...], at: int
) -> None:
    """Add-or-remove of one record."""
    more = [*rows[:at], extra, *rows[at:]]
    assert_within(query, single(rows), single(more), "record", "add-or-remove")


@EVERY_TABLE
@settings(max_examples=60)
@given(rows=st.lists(ROW, min_size=1, max_size=6), other=ROW, at=st.integers(0, 5))
def test_one_record_replaced(
    query: Query, rows: Sequence[tuple[float, ...]], other: tuple[float, ...], at: int
) -> None:
    """Replace-one of one record."""
    at %= len(rows)
    replaced = [*rows[:at], other, *rows[at + 1 :]]
    assert_within(query, single(rows), single(replaced), "record", "replace-one")


@EVERY_TABLE
@settings(max_examples=60)
@given(people=PEOPLE, person=PERSON, at=st.integers(0, 5))
def test_one_person_more(
    query: Query, people: People, person: Sequence[tuple[float, ...]], at: int
) -> None:
    """Add-or-remove of one person of at most two records."""
    more = [*people[:at], person, *people[at:]]
    assert_within(query, people, more, "individual", "add-or-remove", CAP)


@EVERY_TABLE
@settings(max_examples=60)
@given(people=PEOPLE, person=PERSON, other=PERSON)
def test_one_person_replaced(
    query: Query,
    people: People,
    person: Sequence[tuple[float, ...]],
    other: list[tuple[float, ...]],
) -> None:
    """Replace-one of one person, also by one of another number of records."""
    assert_within(query, [*people, person], [*people, other], "individual", "replace-one", CAP)


BITS = AboveMiddle(0, 4)


@settings(max_examples=100)
@given(
    people=PEOPLE, person=PERSON, other=PERSON, at=st.integers(0, 5), cap=st.none() | st.just(CAP)
)
def test_one_slot_one_bit(
    people: People,
    person: Sequence[tuple[float, ...]],
    other: list[tuple[float, ...]],
    at: int,
    cap: int | None,
) -> None:
    """Whatever a person of a cohort holds sets one bit."""
    assert_within(
        BITS,
        [*people[:at], person, *people[at:]],
        [*people[:at], other, *people[at:]],
        "individual",
        "replace-one",
        cap,
    )


@settings(max_examples=100)
@given(rows=st.lists(ROW, max_size=6), extra=ROW, at=st.integers(0, 6))
def test_slots_may_shift(
    rows: Sequence[tuple[float, ...]], extra: tuple[float, ...], at: int
) -> None:
    """A record more shifts those behind it, and the bound says so."""
    more = [*rows[:at], extra, *rows[at:]]
    assert_within(BITS, single(rows), single(more), "record", "add-or-remove")


@pytest.mark.parametrize(
    ("query", "unit", "relation"),
    [
        (Histogram(0, (0.0, 0.5, 1.0)), "record", "replace-one"),
        (LevelSums((((0, 0),), ((0, 1),))), "record", "replace-one"),
        (LevelSums(((),)), "record", "add-or-remove"),
        (AboveMiddle(0, 2), "individual", "replace-one"),
    ],
)
def test_the_bounds_are_met(query: Query, unit: Unit, relation: Relation) -> None:
    """The worst neighbour moves the counts or bits by the whole bound: a smaller one is caught."""
    low, high = (0.0, 0.0, -2.0), (1.0, 1.0, 3.0)
    other = [[high]] if relation == "replace-one" else []
    before, after = evaluated(query, [[low]]), evaluated(query, other)
    name, part = next(iter(query.parts(SCHEMA).items()))
    assert part.sensitivity is not None
    bound = part.sensitivity.under(unit, relation, None)
    assert int(np.abs(after[name] - before[name]).sum()) == bound.l1
    tighter = Bound(bound.l1 - 1, min(bound.l2_squared, (bound.l1 - 1) ** 2))
    assert int(np.abs(after[name] - before[name]).sum()) > tighter.l1


@pytest.mark.parametrize("size", [0, 1, 3, 9])
def test_the_number_of_people_does_not_show(size: int) -> None:
    """A cohort's answer has the shape that was asked for, however many there are."""
    rows = [(1.0, 0.0, 0.0)] * size
    assert evaluated(BITS, single(rows))["bits"].tolist() == [int(i < size) for i in range(4)]


@EVERY_TABLE
@settings(max_examples=40)
@given(rows=st.lists(ROW, max_size=8), order=st.randoms(use_true_random=False))
def test_order_does_not_show(
    query: Query, rows: Sequence[tuple[float, ...]], order: object
) -> None:
    """Records in another order give the same sums to the bit."""
    shuffled = list(rows)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = evaluated(query, single(rows)), evaluated(query, single(shuffled))
    assert all(np.array_equal(one[name], other[name]) for name in one)


@EVERY_TABLE
@settings(max_examples=40)
@given(rows=st.lists(ROW, max_size=8), cuts=st.lists(st.integers(0, 8), max_size=3))
def test_federated_equals_central(
    query: Query, rows: Sequence[tuple[float, ...]], cuts: list[int]
) -> None:
    """Sums over clients equal the sums over all records, whatever the split."""
    edges = [0, *sorted(cuts), len(rows)]
    split = [evaluated(query, single(rows[a:b])) for a, b in itertools.pairwise(edges) if a <= b]
    whole = evaluated(query, single(rows))
    for name, central in whole.items():
        assert np.array_equal(sum((part[name] for part in split), 0 * central), central)


@pytest.mark.parametrize(
    "query",
    [
        Histogram(-1, (0.0, 1.0)),
        Histogram(2, (0.0, 1.0)),
        Histogram(0, (0.0,)),
        LevelSums((((2, 0),),)),
        LevelSums((((0, 2),),)),
        AboveMiddle(2, 1),
        AboveMiddle(0, 0),
        AboveMiddle(0, -5),
    ],
)
def test_values_that_make_no_sense(query: Query) -> None:
    """Unknown features, branches and sizes are malformed."""
    with pytest.raises(QueryError):
        query.parts(SCHEMA)


def test_no_target_no_sums() -> None:
    """Sums of a target need one."""
    with pytest.raises(QueryError, match="no target"):
        LevelSums(((),)).parts(Schema(SCHEMA.features))


def test_revealing_nodes() -> None:
    """Nodes of one or two records give them away; empty ones and larger ones do not."""
    view = View(Records(SCHEMA, np.zeros((0, 2))), SCHEMA)
    masks = LevelSums(((),)).reveals({"counts": np.array([0, 1, 2, 3])}, view)
    assert {name: mask.tolist() for name, mask in masks.items()} == {
        "counts": [False, True, True, False],
        "sums": [False, True, True, False],
    }
