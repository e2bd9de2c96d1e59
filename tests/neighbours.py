"""Sensitivities by brute force: how far exact answers move between neighbouring tables."""

from collections.abc import Sequence
from itertools import permutations

import numpy as np
from hypothesis import strategies as st

from privfed.questions.part import Bound, Relation
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

Row = tuple[float, ...]  #: One record: its encoded features, and its target
#: One feature of each kind.
FEATURES = (
    Column("a", "number", 0, 1),
    Column("b", "number", -50, 1000),
    Column("n", "integer", 0, 9),
    Column("c", "category", categories=("one", "two", "three")),
)


def rows_of(corners: Sequence[Row]) -> st.SearchStrategy[Row]:
    """Corners, and any values of :data:`FEATURES` and a target, inside their bounds and beyond."""
    any_values = st.tuples(
        st.floats(-1, 2),
        st.floats(-99, 2000),
        st.integers(0, 9),
        st.integers(0, 2),
        st.floats(-4, 9),
    )
    return st.one_of(st.sampled_from(corners), any_values)


def units(query: Query, rows: Sequence[Row], schema: Schema) -> dict[str, np.ndarray]:
    """The exact answer, rebuilt from the rows alone."""
    width = len(schema.features)
    table = np.array(rows, dtype=float).reshape(-1, width + 1)
    exact = query.evaluate(View(Records(schema, table[:, :width], table[:, width]), schema))
    return {name: np.asarray(array) for name, array in exact.items()}


def moved(one: np.ndarray, other: np.ndarray) -> Bound:
    """L1 and squared L2 of a change, in exact integers."""
    assert np.isfinite(one).all() and np.isfinite(other).all()
    pairs = zip(one.ravel().tolist(), other.ravel().tolist(), strict=True)
    steps = [int(to) - int(since) for to, since in pairs]
    return Bound(sum(map(abs, steps)), sum(step**2 for step in steps))


def check_neighbours(
    query: Query, base: Sequence[Row], rows: Sequence[Row], schema: Schema
) -> None:
    """Hold every part's bounds: each row added to the base, and put in each other's place."""
    without = units(query, base, schema)
    exact = [units(query, [*base, row], schema) for row in rows]
    for name, part in query.parts(schema).items():
        assert part.sensitivity is not None, "only questions with finite bounds belong here"
        relations: dict[Relation, list[tuple[np.ndarray, np.ndarray]]] = {
            "add-or-remove": [(one[name], without[name]) for one in exact],
            "replace-one": [(one[name], other[name]) for one, other in permutations(exact, 2)],
        }
        for relation, pairs in relations.items():
            bound = part.sensitivity.under("record", relation, None)
            for change in (moved(*pair) for pair in pairs):
                within = change.l1 <= bound.l1 and change.l2_squared <= bound.l2_squared
                assert within, f"{name} moves by {change}, and declares {bound} ({relation})"
