"""The private questions' sensitivities by brute force: neighbouring tables, extreme parameters."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.learners.private import queries
from privfed.learners.private.basis import Basis, Trees
from privfed.learners.private.grid import BinEdges
from privfed.learners.private.target_link import Outcome, ResidualBounds
from privfed.questions.part import Bound, Part
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

FEATURES = (
    Column("a", "number", 0, 1),
    Column("b", "number", -50, 1000),
    Column("n", "integer", 0, 9),
    Column("c", "category", categories=("one", "two", "three")),
)
P = len(FEATURES)
BINARY = Schema(FEATURES, Column("y", "integer", 0, 1))
NUMERIC = Schema(FEATURES, Column("y", "number", -3, 7))
CLASSES = Schema(FEATURES, Column("y", "category", categories=("u", "v", "w")))
CUTS = ((0.2, 0.5), (0.0, 500.0), (5.0,), (1.0, 2.0))
GRID = BinEdges(CUTS)
TREES = (
    Trees(np.array([[0, 1], [2, 2]]), np.array([[1, 2], [1, 1]], np.uint8), 0.7),
    Trees(np.array([[3]]), np.array([[1]], np.uint8), 0.25),
)
BASIS = Basis(
    GRID,
    np.array([[-1.0, 0, 1], [1, 0.3, -1], [-1, 1, 0], [1, 1, 1]]),
    np.array([[0, 1, 1], [0, 1, 2], [0, 1, 0], [0, 1, 2]], np.uint8),
    np.array([1.0, 0.3, 0.0, 0.5]),
    np.array([0.9, 0.0, 0.4, 0.1]),
    TREES,
)
Row = tuple[float, float, float, float, float]
CORNERS: list[Row] = [
    (1.0, 1000.0, 9.0, 2.0, 7.0),
    (0.0, -50.0, 0.0, 0.0, -3.0),
    (0.5, 500.0, 5.0, 1.0, 1.0),
    (0.0, 1000.0, 0.0, 2.0, 2.0),
    (9e9, -9e9, 9e9, 2.0, 9e9),
]
ROW = st.one_of(
    st.sampled_from(CORNERS),
    st.tuples(
        st.floats(-1, 2),
        st.floats(-99, 2000),
        st.integers(0, 9),
        st.integers(0, 2),
        st.floats(-4, 9),
    ),
)


def outcome(schema: Schema) -> Outcome:
    """The schema's outcome; a number's limits are inside its bounds."""
    found = Outcome.of(schema, schema is NUMERIC)
    return replace(found, lower=-1.0, upper=2.0) if schema is NUMERIC else found


def window(schema: Schema, low: float, high: float, clip: float) -> ResidualBounds:
    """The same limits for all outputs; a number's lie half a unit lower."""
    least = 0.5 if schema is NUMERIC else 0.0
    size = outcome(schema).classes
    return ResidualBounds(np.full(size, low - least), np.full(size, high - least), clip)


def gradient(
    schema: Schema, weights: float = 0.0, limits: tuple[float, float, float] = (0.0, 1.0, 1.0)
) -> queries.Gradient:
    """A question whose weights are alike in all functions and alternate in the outputs."""
    size = outcome(schema).classes
    signs = (-1.0) ** np.arange(size)
    return queries.Gradient(
        BASIS,
        outcome(schema),
        window(schema, *limits),
        np.full((BASIS.size, size), weights) * signs,
        np.zeros(size),
    )


def scores(query: queries.Gradient, *cuts: float) -> queries.CalibrationSums:
    """The same model and limits, asked about by score, all outputs' cut-offs alike."""
    every = np.tile(np.array(cuts, float), (query.outcome.classes, 1))
    return queries.CalibrationSums(
        query.basis, query.outcome, query.window, query.weights, query.start, every
    )


def units(query: Query, rows: list[Row], schema: Schema) -> dict[str, np.ndarray]:
    """The exact answer, rebuilt from the rows alone."""
    table = np.array(rows, dtype=float).reshape(-1, P + 1)
    exact = query.evaluate(View(Records(schema, table[:, :P], table[:, P]), schema))
    return {name: np.asarray(array) for name, array in exact.items()}


def moved(one: np.ndarray, other: np.ndarray) -> Bound:
    """L1 and squared L2 of a change, in exact integers."""
    steps = [int(step) for step in (one - other).ravel()]
    return Bound(sum(map(abs, steps)), sum(step**2 for step in steps))


def within(part: Part, change: Bound, replaced: bool) -> bool:
    """Whether a change keeps to the declared bound."""
    assert part.sensitivity is not None
    relation: Any = "replace-one" if replaced else "add-or-remove"
    bound = part.sensitivity.under("record", relation, None)
    return change.l1 <= bound.l1 and change.l2_squared <= bound.l2_squared


def keeps(query: Query, base: list[Row], rows: list[Row], schema: Schema) -> bool:
    """Whether each row added, and put in another's place, keeps to every part's bounds."""
    parts, without = query.parts(schema), units(query, base, schema)
    exact = [units(query, [*base, row], schema) for row in rows]
    added = (within(parts[n], moved(e[n], without[n]), False) for e in exact for n in parts)
    swapped = (
        within(parts[n], moved(one[n], other[n]), True)
        for one, other in permutations(exact, 2)
        for n in parts
    )
    return all(added) and all(swapped)


RANKS = np.array([[-1.0, 0, 1], [1, 0.3, -1], [-1, 1, 0], [1, 1, -1]])
EVERY = BinEdges((*CUTS, (0.5,)))
QUESTIONS: dict[str, tuple[Query, Schema]] = {
    "histogram": (queries.FeatureHistogram(EVERY), BINARY),
    "histogram of one bin": (queries.FeatureHistogram(BinEdges(((),) * 5)), NUMERIC),
    "target": (queries.TargetHistogram(BinEdges(((0.5, 2.0),))), CLASSES),
    "target in one bin": (queries.TargetHistogram(BinEdges(((),))), NUMERIC),
    "correlations, unclipped": (queries.Correlations(GRID, RANKS, float(P)), BINARY),
    "correlations, clipped": (queries.Correlations(GRID, RANKS, 0.7), BINARY),
    "correlations, the least clip": (queries.Correlations(GRID, RANKS, 2.0**-10), NUMERIC),
    "masses": (queries.BasisLeafCounts(BASIS), CLASSES),
    **{
        f"gradient {name} {weights} {limits}": (gradient(schema, weights, limits), schema)
        for name, schema in (("binary", BINARY), ("number", NUMERIC), ("classes", CLASSES))
        for weights in (0.0, 3.0, -(2.0**20))
        for limits in ((0.0, 1.0, 1.0), (0.2, 0.4, 1.0), (0.5, 0.5, 0.01))
    },
    **{
        f"scores {name} {weights} {limits}": (
            scores(gradient(schema, weights, limits), -1, 0, 1),
            schema,
        )
        for name, schema in (("binary", BINARY), ("number", NUMERIC), ("classes", CLASSES))
        for weights in (0.0, 3.0, -(2.0**20))
        for limits in ((0.0, 1.0, 1.0), (0.2, 0.4, 1.0), (0.5, 0.5, 0.01))
    },
}


@pytest.mark.parametrize(("query", "schema"), QUESTIONS.values(), ids=QUESTIONS)
def test_corners_keep_to_the_bounds(query: Query, schema: Schema) -> None:
    """Every corner added, and put in every other one's place, over an empty and a full table."""
    assert keeps(query, [], CORNERS, schema)
    assert keeps(query, CORNERS, CORNERS, schema)


@settings(max_examples=60)
@given(
    base=st.lists(ROW, max_size=4),
    rows=st.tuples(ROW, ROW),
    schema=st.sampled_from([BINARY, NUMERIC, CLASSES]),
    weights=st.floats(-(2.0**20), 2.0**20),
    low=st.floats(0, 0.5),
    high=st.floats(0.5, 1),
    clip=st.floats(2.0**-20, 1),
)
def test_any_rows_keep_to_the_gradients_bounds(
    base: list[Row],
    rows: tuple[Row, Row],
    schema: Schema,
    weights: float,
    low: float,
    high: float,
    clip: float,
) -> None:
    """The same for any tables, rows and parameters that the question admits; by score too."""
    query = gradient(schema, weights, (low, high, clip))
    for asked in (query, scores(query, -1.0, 0.5)):
        assert keeps(asked, base, list(rows), schema)


@settings(max_examples=60)
@given(base=st.lists(ROW, max_size=4), rows=st.tuples(ROW, ROW), clip=st.floats(2.0**-10, P))
def test_any_rows_keep_to_the_other_bounds(
    base: list[Row], rows: tuple[Row, Row], clip: float
) -> None:
    """Histograms, leaves, and products of ranks of any length."""
    target = queries.TargetHistogram(BinEdges(((0.5,),)))
    for query in (
        queries.FeatureHistogram(EVERY),
        target,
        queries.BasisLeafCounts(BASIS),
        queries.Correlations(GRID, RANKS, clip),
    ):
        assert keeps(query, base, list(rows), BINARY)


def test_a_target_between_two_classes_is_of_one_of_them() -> None:
    """Of none, its residual would be longer than derived where a server holds all chances to 1."""
    query = gradient(CLASSES, 0.0, (1.0, 1.0, 1.0))
    between: list[Row] = [(1.0, 1000.0, 9.0, 2.0, y) for y in (0.5, 1.3, 1.5, math.nan, -9.0, 9.0)]
    assert keeps(query, [], between, CLASSES)
    found = query.outcome.targets(np.linspace(0, 2, 21))
    assert (found.sum(axis=1) == 1).all() and set(np.unique(found)) == {0, 1}


def test_the_bounds_are_nearly_attained() -> None:
    """One record moves the gradient by all of S D^2: what is declared is not far too wide."""
    basis = replace(BASIS, linear=np.ones(P))
    query = replace(gradient(BINARY, 0.0, (0.0, 0.0, 1.0)), basis=basis)
    query = replace(query, weights=np.zeros((basis.size, 1)))
    part = query.parts(BINARY)["sums"]
    assert part.sensitivity is not None
    change = moved(units(query, [CORNERS[0]], BINARY)["sums"], np.zeros((basis.size, 1)))
    values = np.array([1.0, 1.0, 1.0, 1.0])  # of the last codes, up to the sign
    least = float((basis.scales**2).sum() + (values**2).sum()) / basis.squares
    assert change.l2_squared > 0.99 * least * part.sensitivity.add_or_remove.l2_squared
    assert least > 0.99


def test_the_bounds_of_scores_are_nearly_attained() -> None:
    """One record of class 0 whose chance of 1 is held at 1 moves the sums by all that is declared."""
    query = scores(gradient(BINARY, 0.0, (1.0, 1.0, 1.0)), 0.5)
    part, none = query.parts(BINARY)["sums"], np.zeros((2, 1, 2))
    assert part.sensitivity is not None
    change = moved(units(query, [(0.0, 0.0, 0.0, 0.0, 0.0)], BINARY)["sums"], none)
    declared = part.sensitivity.add_or_remove
    assert declared.l2_squared * 0.999 < change.l2_squared <= declared.l2_squared
    assert declared.l1 * 0.999 < change.l1 <= declared.l1


class _Uncounted(queries.CalibrationSums):
    """A planted fault: the bound leaves out that a record is counted beside its residual."""

    def parts(self, schema: Schema) -> dict[str, Part]:
        part = super().parts(schema)["sums"]
        residual = queries.Gradient.parts(self, schema)["sums"].sensitivity
        assert part.sensitivity is not None and residual is not None
        l2_squared = int(residual.add_or_remove.l2_squared / self.basis.squares)
        own = replace(part.sensitivity.add_or_remove, l2_squared=l2_squared)
        return {"sums": replace(part, sensitivity=replace(part.sensitivity, add_or_remove=own))}


def test_a_count_that_is_left_out_of_a_bound_is_caught() -> None:
    """The power twin of the bounds of scores."""
    honest = scores(gradient(BINARY, 0.0, (0.0, 1.0, 1.0)), 0.5)
    honest = replace(honest, start=np.array([-40.0]))
    faulty = _Uncounted(
        honest.basis, honest.outcome, honest.window, honest.weights, honest.start, honest.cuts
    )
    assert keeps(honest, [], CORNERS, BINARY)
    assert not keeps(faulty, [], CORNERS, BINARY)


class _Forgets(queries.Gradient):
    """A planted fault: the bound of half the residual."""

    def parts(self, schema: Schema) -> dict[str, Part]:
        part = super().parts(schema)["sums"]
        assert part.sensitivity is not None
        whole = part.sensitivity.add_or_remove
        halved = replace(part.sensitivity, add_or_remove=Bound(whole.l1, whole.l2_squared // 4))
        return {"sums": replace(part, sensitivity=halved)}


def test_a_bound_that_is_too_small_is_caught() -> None:
    """The power twin: the same check convicts a question that declares half its sensitivity."""
    honest = gradient(BINARY, 0.0, (0.0, 0.0, 1.0))
    faulty = _Forgets(honest.basis, honest.outcome, honest.window, honest.weights, honest.start)
    assert keeps(honest, [], CORNERS, BINARY)
    assert not keeps(faulty, [], CORNERS, BINARY)
