"""The private questions' sensitivities by brute force: neighbouring tables, extreme parameters."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.learners.private import queries
from privfed.learners.private.basis import Basis, Trees
from privfed.learners.private.grid import BinEdges
from privfed.learners.private.target_link import Outcome, ResidualBounds
from privfed.questions.part import Bound, Part
from privfed.questions.query import Query
from privfed.tables.schema import Column, Schema
from tests.neighbours import FEATURES, Row, check_neighbours, moved, rows_of, units

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
CORNERS: list[Row] = [
    (1.0, 1000.0, 9.0, 2.0, 7.0),
    (0.0, -50.0, 0.0, 0.0, -3.0),
    (0.5, 500.0, 5.0, 1.0, 1.0),
    (0.0, 1000.0, 0.0, 2.0, 2.0),
    (9e9, -9e9, 9e9, 2.0, 9e9),
]
ROW = rows_of(CORNERS)


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
    check_neighbours(query, [], CORNERS, schema)
    check_neighbours(query, CORNERS, CORNERS, schema)


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
        check_neighbours(asked, base, list(rows), schema)


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
        check_neighbours(query, base, list(rows), BINARY)


def test_a_target_between_two_classes_is_of_one_of_them() -> None:
    """Of none, its residual would be longer than derived where a server holds all chances to 1."""
    query = gradient(CLASSES, 0.0, (1.0, 1.0, 1.0))
    between: list[Row] = [(1.0, 1000.0, 9.0, 2.0, y) for y in (0.5, 1.3, 1.5, math.nan, -9.0, 9.0)]
    check_neighbours(query, [], between, CLASSES)
    found = query.outcome.targets(np.linspace(0, 2, 21))
    assert (found.sum(axis=1) == 1).all() and set(np.unique(found)) == {0, 1}


def test_the_bounds_are_nearly_attained() -> None:
    """One record moves the gradient by all of S D^2, of functions longer than one and shorter: no bound is far too wide."""
    short = replace(
        BASIS, linear=np.full(P, 0.1), binned=np.full(P, 0.2), trees=(replace(TREES[0], scale=0.3),)
    )
    for basis in (short, replace(BASIS, linear=np.ones(P)), replace(BASIS, linear=np.full(P, 9.0))):
        query = replace(gradient(BINARY, 0.0, (0.0, 0.0, 1.0)), basis=basis)
        query = replace(query, weights=np.zeros((basis.size, 1)))
        part = query.parts(BINARY)["sums"]
        assert part.sensitivity is not None
        change = moved(units(query, [CORNERS[0]], BINARY)["sums"], np.zeros((basis.size, 1)))
        assert change.l2_squared > 0.99 * part.sensitivity.add_or_remove.l2_squared


@settings(max_examples=60)
@given(
    base=st.lists(ROW, max_size=4),
    rows=st.tuples(ROW, ROW),
    linear=st.lists(st.floats(0, 16), min_size=P, max_size=P),
    binned=st.lists(st.floats(0, 1), min_size=P, max_size=P),
)
def test_functions_of_any_length_keep_to_the_bounds(
    base: list[Row], rows: tuple[Row, Row], linear: list[float], binned: list[float]
) -> None:
    """However steep linear terms are, and with the residual at its limit."""
    basis = replace(BASIS, linear=np.array(linear), binned=np.array(binned))
    query = replace(gradient(BINARY, 0.0, (0.0, 0.0, 1.0)), basis=basis)
    check_neighbours(query, base, list(rows), BINARY)


def test_a_record_that_is_not_shortened_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: functions longer than one count as they are."""
    query = gradient(BINARY, 0.0, (0.0, 0.0, 1.0))
    check_neighbours(query, [], CORNERS, BINARY)
    cells = Basis.cells
    monkeypatch.setattr(
        Basis,
        "cells",
        lambda self, codes: replace(cells(self, codes), shortening=np.ones(codes.shape[1])),
    )
    with pytest.raises(AssertionError, match="moves by"):
        check_neighbours(query, [], CORNERS, BINARY)


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
    check_neighbours(honest, [], CORNERS, BINARY)
    with pytest.raises(AssertionError, match="moves by"):
        check_neighbours(faulty, [], CORNERS, BINARY)


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
    check_neighbours(honest, [], CORNERS, BINARY)
    with pytest.raises(AssertionError, match="moves by"):
        check_neighbours(faulty, [], CORNERS, BINARY)
