"""The private questions' sensitivities by brute force: neighbouring tables, whatever tree and edges."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.errors import QueryError
from privfed.learners.forest.columns import encoded_target
from privfed.learners.genetic_tree.client import Client
from privfed.learners.genetic_tree.counts import (
    ColumnCounts,
    NodeCounts,
    NodeTotals,
    RootCounts,
    TargetCells,
)
from privfed.learners.genetic_tree.queries import Size
from privfed.learners.private.target_link import Outcome
from privfed.questions.part import Bound
from privfed.questions.query import Query, View
from privfed.questions.tree import Tree
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

FEATURES = (
    Column("a", "number", 0, 1),
    Column("b", "number", -50, 1000),
    Column("c", "category", categories=("one", "two", "three")),
)
CLASSES = Schema(FEATURES, Column("y", "category", categories=("no", "yes", "other")))
NUMBERS = Schema(FEATURES, Column("y", "number", -3, 7))
EDGES = np.array([[0.25, 0.5], [0.0, np.inf], [0.5, 1.5]])
TREE = Tree.binary(
    np.array([0, -1, 1, -1, -1]),
    np.array([0.5, 0, 100.0, 0, 0]),
    np.array([1, 0, 3, 0, 0]),
    np.array([2, 0, 4, 0, 0]),
)
ROOT = Tree.binary(*(np.array([value]) for value in (-1, 0.0, 0, 0)))
ALL, OPEN = np.arange(3), np.array([1, 4])
TARGET = np.array([0.0, 2.0])


QUERIES: dict[str, tuple[Query, Schema]] = {
    "size": (Size(), CLASSES),
    "cells": (ColumnCounts(ALL, EDGES), CLASSES),
    "cells of two": (ColumnCounts(np.array([2, 0]), EDGES[[2, 0]]), CLASSES),
    "cells with the target": (ColumnCounts(np.array([1, 3]), EDGES[[1, 1]]), NUMBERS),
    "target": (TargetCells(np.array([3]), EDGES[[1]]), NUMBERS),
    "root": (RootCounts(ROOT, np.array([0]), ALL, EDGES, None), CLASSES),
    "open nodes": (NodeCounts(TREE, OPEN, np.array([0, 2]), EDGES[[0, 2]], None), CLASSES),
    "all leaves": (NodeCounts(TREE, TREE.leaves, ALL, EDGES, TARGET), NUMBERS),
    "totals": (NodeTotals(TREE, TREE.leaves, None), CLASSES),
    "totals of open nodes": (NodeTotals(TREE, OPEN, TARGET), NUMBERS),
}
#: Three features and a target.
Row = tuple[float, float, float, float]
TOP, BOTTOM = (1.0, 1000.0, 2.0, 7.0), (0.0, -50.0, 0.0, -3.0)
CORNERS: list[Row] = [
    TOP,
    BOTTOM,
    (0.5, 100.0, 1.0, 2.0),
    (9e9, -9e9, 2.0, 9e9),
    (np.nan, 0.0, 1.0, 0.0),
]
ROW = st.one_of(
    st.sampled_from(CORNERS),
    st.tuples(st.floats(-1, 2), st.floats(-99, 2000), st.integers(0, 2), st.floats(-4, 9)),
)
EACH = pytest.mark.parametrize(("query", "schema"), QUERIES.values(), ids=QUERIES)


def _units(query: Query, rows: list[Row], schema: Schema) -> np.ndarray:
    """The exact answer, rebuilt from the rows alone."""
    table = np.array(rows, dtype=float).reshape(-1, 4)
    whole = np.round(table[:, 3]) if schema is CLASSES else table[:, 3]
    (found,) = query.evaluate(View(Records(schema, table[:, :3], whole), schema)).values()
    (part,) = query.parts(schema).values()
    assert found.shape == part.shape and (found >= 0).all()
    return found.astype(np.int64)


def _moved(one: np.ndarray, other: np.ndarray) -> Bound:
    step = one - other
    return Bound(int(np.abs(step).sum()), int((step**2).sum()))


def _check(query: Query, schema: Schema, base: list[Row], rows: list[Row]) -> None:
    """Each row added to the base, and put in each other's place."""
    (part,) = query.parts(schema).values()
    assert part.sensitivity is not None and part.sensitivity.replace_one is not None
    added, replaced = part.sensitivity.add_or_remove, part.sensitivity.replace_one
    without = _units(query, base, schema)
    with_each = [_units(query, [*base, row], schema) for row in rows]
    for one in with_each:
        moved = _moved(one, without)
        assert moved.l1 <= added.l1 and moved.l2_squared <= added.l2_squared
    for one, other in permutations(with_each, 2):
        moved = _moved(one, other)
        assert moved.l1 <= replaced.l1 and moved.l2_squared <= replaced.l2_squared


@EACH
@settings(max_examples=25)
@given(base=st.lists(ROW, max_size=4), one=ROW, other=ROW)
def test_no_record_moves_more_than_is_declared(
    query: Query,
    schema: Schema,
    base: list[Row],
    one: Row,
    other: Row,
) -> None:
    """Whatever the others are."""
    _check(query, schema, base, [one, other])


@EACH
def test_the_bounds_are_attained(query: Query, schema: Schema) -> None:
    """A record more moves as much as is declared, and so does one in another's place."""
    (part,) = query.parts(schema).values()
    assert part.sensitivity is not None
    rows: list[Row] = [(0.2, -10.0, 0.0, -1.0), (0.9, 500.0, 2.0, 5.0)]
    none, one, other = (_units(query, each, schema) for each in ([], rows[:1], rows[1:]))
    assert _moved(one, none) == part.sensitivity.add_or_remove
    assert _moved(one, other) == part.sensitivity.replace_one


def test_a_mutant_is_convicted() -> None:
    """Counting a record once a bin below it, cumulatively, breaks the bound and is noticed."""

    class Cumulative(ColumnCounts):
        """Counts of records at or below each bin."""

        kind = "test.cumulative"

        def evaluate(self, view: View) -> dict[str, np.ndarray]:
            """Add up before noise instead of after."""
            counts = super().evaluate(view)["counts"]
            return {"counts": np.cumsum(counts, axis=1)}

    with pytest.raises(AssertionError):
        _check(Cumulative(ALL, EDGES), CLASSES, [], [TOP, BOTTOM])


HOSTILE: dict[str, Query] = {
    "an inner node": NodeCounts(TREE, np.array([0]), ALL, EDGES, None),
    "a node twice": NodeCounts(TREE, np.array([1, 1]), ALL, EDGES, None),
    "no node": NodeCounts(TREE, np.array([], dtype=np.int64), ALL, EDGES, None),
    "an unknown node": NodeCounts(TREE, np.array([9]), ALL, EDGES, None),
    "an unknown feature": NodeCounts(TREE, OPEN, np.array([0, 1, 3]), EDGES, None),
    "a feature twice": NodeCounts(TREE, OPEN, np.array([0, 1, 1]), EDGES, None),
    "a negative feature": NodeCounts(TREE, OPEN, np.array([0, 1, -1]), EDGES, None),
    "edges that fall": NodeCounts(TREE, OPEN, ALL, EDGES[:, ::-1].copy(), None),
    "edges that stand": NodeCounts(TREE, OPEN, ALL, np.zeros((3, 2)), None),
    "edges that are no numbers": NodeCounts(TREE, OPEN, ALL, EDGES * np.nan, None),
    "too few edges": NodeCounts(TREE, OPEN, ALL, EDGES[:2], None),
    "whole edges": NodeCounts(TREE, OPEN, ALL, np.ones((3, 1), dtype=np.int64), None),
    "edges of a class": NodeCounts(TREE, OPEN, ALL, EDGES, TARGET),
    "too many bins": ColumnCounts(ALL, np.tile(np.arange(5000.0), (3, 1))),
    "a column beyond the target": ColumnCounts(np.array([4]), EDGES[:1]),
    "no column": ColumnCounts(np.array([], dtype=np.int64), EDGES[:0]),
}


@pytest.mark.parametrize("query", HOSTILE.values(), ids=HOSTILE)
def test_hostile_questions_are_refused_without_a_record(query: Query) -> None:
    """What could make cells overlap, or an error depend on records, is told before they are read."""
    with pytest.raises(QueryError):
        query.parts(CLASSES)


def test_a_numeric_target_needs_edges() -> None:
    """Without them there are no classes to count."""
    with pytest.raises(QueryError, match="give edges"):
        NodeCounts(TREE, OPEN, ALL, EDGES, None).parts(NUMBERS)


@pytest.mark.parametrize(("value", "code"), [(0.37, 0), (0.5, 0), (0.63, 1), (1.0, 1)])
def test_a_fraction_between_classes_is_the_nearest_one_everywhere(value: float, code: int) -> None:
    """The genetic tree's records and counts, the forest's and the private engine's agree."""
    schema = Schema(FEATURES, Column("y", "integer", 0, 1))
    records = Records(schema, np.zeros((1, 3)), np.array([value]))
    view = View(records, schema, b"secret")
    totals = NodeTotals(ROOT, np.array([0]), None).evaluate(view)["counts"]
    engine = Outcome("classes", 2, 0.0, 1.0).targets(records.target)
    told = [totals[0].argmax(), engine[0].argmax()]
    told += [Client(view, classify=True).y[0], encoded_target(records, 2)[0]]
    assert told == [code] * 4
