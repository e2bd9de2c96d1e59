"""RuleFit's questions: what leaves, and that no record moves it further than is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from privfed.errors import QueryError
from privfed.learners.rulefit.averaging import Steps
from privfed.learners.rulefit.boosting import Boosting
from privfed.learners.rulefit.cutoffs import LARGEST, Cutoffs
from privfed.learners.rulefit.queries import (
    BoostedRules,
    Gradient,
    Histogram,
    Increment,
    Marginals,
    Objective,
    Supports,
)
from privfed.learners.rulefit.rules import Terms
from privfed.part import Bound
from privfed.query import Query, View
from privfed.records import Records
from privfed.schema import Column, Schema

SCHEMA = Schema(
    (Column("a", "number", 0, 1), Column("n", "integer", 0, 9)), Column("y", "integer", 0, 1)
)
CUTOFFS = Cutoffs(
    ((0.25, 0.5, 0.75), (2.0, 5.0)),
    np.array([0.05, 0.0]),
    np.array([0.95, 9.0]),
    np.array([0.2, 2.0]),
)
BOXES = np.array(
    [[[0, 2], [0, 3]], [[1, 4], [0, 3]], [[0, 4], [1, 3]], [[0, 4], [0, 2]], [[1, 3], [1, 2]]],
    np.uint8,
)
TERMS = Terms(CUTOFFS, BOXES, (0, 1))
ROW = st.tuples(st.floats(-1, 2), st.integers(-2, 12), st.integers(0, 1))
VECTOR = arrays.arrays(float, 8, elements=st.floats(-5, 5))


def records(rows: list[tuple[float, int, int]]) -> Records:
    """Records of rows, clipped to the schema."""
    table = np.array(rows, dtype=float).reshape(-1, 3)
    return Records(SCHEMA, table[:, :2], table[:, 2])


def units(query: Query, rows: list[tuple[float, int, int]]) -> dict[str, np.ndarray]:
    """The exact answer, rebuilt from the rows alone."""
    exact = query.evaluate(View(records(rows), SCHEMA))
    return {name: np.asarray(array, dtype=float) for name, array in exact.items()}


def check_bounds(
    query: Query, rows: list[tuple[float, int, int]], other: tuple[float, int, int]
) -> None:
    """Hold both relations' bounds against neighbours, part by part."""
    base, fewer = units(query, rows), units(query, rows[1:])
    swapped = units(query, [other, *rows[1:]])
    for name, part in query.parts(SCHEMA).items():
        assert part.sensitivity is not None
        within(base[name] - fewer[name], part.sensitivity.add_or_remove)
        within(base[name] - swapped[name], part.sensitivity.under("record", "replace-one", None))


def within(change: np.ndarray, bound: Bound) -> None:
    """L1 and squared L2 of a change in whole units."""
    assert np.abs(change).sum() <= bound.l1
    assert (change**2).sum() <= bound.l2_squared


@given(st.lists(ROW, min_size=1, max_size=6), ROW)
def test_histograms_move_by_one_in_every_covariate(
    rows: list[tuple[float, int, int]], other: tuple[float, int, int]
) -> None:
    """L1 = squared L2 = p, for one covariate and for both."""
    check_bounds(Histogram((1,), 7), rows, other)
    check_bounds(Marginals((0, 1), 7), rows, other)


@given(st.lists(ROW, min_size=1, max_size=6), ROW)
def test_supports_move_by_one_in_every_rule(
    rows: list[tuple[float, int, int]], other: tuple[float, int, int]
) -> None:
    """L1 = squared L2 = K; the size too."""
    check_bounds(Supports(TERMS), rows, other)


@given(st.lists(ROW, min_size=1, max_size=4), ROW, VECTOR, st.floats(0.1, 3), st.booleans())
def test_gradients_move_by_the_clip(
    rows: list[tuple[float, int, int]],
    other: tuple[float, int, int],
    weights: np.ndarray,
    clip: float,
    logistic: bool,
) -> None:
    """Whatever the weights and however large the columns, a record moves the sum by C in L2."""
    scales = np.array([1.0, 0.5, 2.0, 1.0, 3.0, 0.1, 10.0, 4.0])
    check_bounds(Gradient(TERMS, weights, scales, clip, logistic), rows, other)


def test_the_bounds_are_attained() -> None:
    """A tighter bound would be false: the power twin of the tests above."""
    row = (0.6, 7, 1)
    for query in (Marginals((0, 1), 7), Gradient(TERMS, np.zeros(8), np.full(8, 9.0), 1.0, True)):
        moved = units(query, [row, row])
        left = units(query, [row])
        for name, part in query.parts(SCHEMA).items():
            assert part.sensitivity is not None
            squared = ((moved[name] - left[name]) ** 2).sum()
            share = 0.99 if name == "counts" else 0.24  # the residual at weights 0 is one half
            assert squared >= share * part.sensitivity.add_or_remove.l2_squared


def test_an_unclipped_gradient_breaks_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were norms not clipped, the neighbour test would catch it: planted fault."""
    query = Gradient(TERMS, np.zeros(8), np.full(8, 9.0), 1.0, True)
    monkeypatch.setattr(np, "minimum", lambda one, other: np.ones_like(np.asarray(other)))
    with pytest.raises(AssertionError):
        check_bounds(query, [(0.9, 9, 1)], (0.1, 0, 0))


def test_the_gradient_is_the_sum_of_residual_times_column() -> None:
    """With a clip that no record reaches it is the plain gradient, to the grid."""
    rows = [(0.1 * k, k, k % 2) for k in range(10)]
    weights = np.linspace(-0.2, 0.2, 8)
    part = Gradient(TERMS, weights, np.ones(8), 100.0, True)
    design = TERMS.design(records(rows).x)
    target = records(rows).target
    naive = design.T @ (target - 1 / (1 + np.exp(-design @ weights)))
    found = units(part, rows)["gradient"] * float(part.parts(SCHEMA)["gradient"].grid)
    assert found == pytest.approx(naive, abs=1e-4)


def test_histogram_counts_every_record_once() -> None:
    """Closed outer bins, integer edges, and rows padded with empty bins."""
    rows = [(-1.0, -2, 0), (2.0, 12, 1), (0.5, 5, 1)]
    counts = units(Marginals((0, 1), 4), rows)["counts"]
    assert counts.sum(axis=1).tolist() == [3, 3]
    assert counts[0].tolist() == [1, 0, 1, 1]


def test_an_increment_is_pure_in_records_and_query() -> None:
    """With a cache and without, and after another model was asked about."""
    rows = [(0.1 * k, k, int(k > 4)) for k in range(10)]
    steps = Steps(0.1, 0.0, 3, 0.01)
    query = Increment(TERMS, np.zeros(8), np.zeros(8), steps, True)
    other = Increment(Terms(CUTOFFS, BOXES[:2], ()), np.zeros(3), np.zeros(3), steps, True)
    view = View(records(rows), SCHEMA)
    first = query.evaluate(view)["increment"]
    other.evaluate(view)
    assert np.array_equal(query.evaluate(view)["increment"], first)
    assert np.array_equal(query.evaluate(View(records(rows), SCHEMA))["increment"], first)


@pytest.mark.parametrize(
    "query",
    [
        Histogram((), 10),
        Histogram((0, 0), 10),
        Histogram((2,), 10),
        Histogram((0,), 1),
        BoostedRules(CUTOFFS, Boosting(0, 4.0, 0.01, 0.0, 5, True)),
        BoostedRules(CUTOFFS, Boosting(10, float("nan"), 0.01, 0.0, 5, True)),
        BoostedRules(replace(CUTOFFS, lower=np.zeros(3)), Boosting(9, 4.0, 0.01, 0.0, 5, True)),
        Increment(TERMS, np.zeros(8), np.full(8, np.nan), Steps(0.1, 0, 1, 0.1), True),
        Increment(TERMS, np.zeros(8), np.zeros(7), Steps(0.1, 0, 1, 0.1), True),
        Increment(TERMS, np.zeros(8), np.zeros(8), Steps(float("nan"), 0, 1, 0.1), True),
        Increment(TERMS, np.zeros(8), np.zeros(8), Steps(0.1, 0, 0, 0.1), True),
        Objective(TERMS, np.zeros(9), True),
        Gradient(TERMS, np.zeros(8), np.ones(8), float("nan"), True),
        Gradient(TERMS, np.zeros(8), np.full(8, np.inf), 1.0, True),
        Supports(replace(TERMS, boxes=BOXES[:, :1])),
    ],
)
def test_malformed_questions_are_refused_before_data_are_read(query: Query) -> None:
    """Sizes, unknown covariates, NaN: a QueryError from public values alone."""
    with pytest.raises(QueryError):
        query.parts(SCHEMA)


@pytest.mark.parametrize(
    "query",
    [
        Histogram((1,), 7),
        BoostedRules(CUTOFFS, Boosting(10, 4.0, 0.01, 0.0, 5, True)),
        Supports(TERMS),
        Increment(TERMS, np.zeros(8), np.zeros(8), Steps(0.1, 0.0, 1, 0.1), True),
        Gradient(TERMS, np.zeros(8), np.ones(8), 1.0, True),
    ],
)
def test_questions_survive_the_wire(query: Query) -> None:
    """Decoded fields give the same digest and the same answer."""
    again = type(query).from_fields(query.fields)
    assert again.digest == query.digest
    rows = [(0.1 * k, k, k % 2) for k in range(10)]
    for name, array in units(query, rows).items():
        assert np.array_equal(units(again, rows)[name], array)


@pytest.mark.parametrize("size", [1e200, -1e30, 2.0**21])
@pytest.mark.parametrize("field", ["weights", "scales"])
def test_a_gradient_of_numbers_that_overflow_is_no_question(field: str, size: float) -> None:
    """It would fail for some records only, and a failure tells them apart."""
    fields = {"weights": np.zeros(8), "scales": np.ones(8), field: np.r_[np.zeros(7), size]}
    with pytest.raises(QueryError, match="must not exceed"):
        Gradient(TERMS, fields["weights"], fields["scales"], 1.0, True).parts(SCHEMA)


@given(
    weights=arrays.arrays(float, 8, elements=st.sampled_from([0.0, -LARGEST, LARGEST])),
    scales=arrays.arrays(float, 8, elements=st.sampled_from([0.0, -LARGEST, LARGEST, 1e-300])),
    rows=st.lists(ROW, max_size=4),
    logistic=st.booleans(),
)
def test_every_admitted_gradient_is_answered(
    weights: np.ndarray, scales: np.ndarray, rows: list[tuple[float, int, int]], logistic: bool
) -> None:
    """Whatever the records are, at the largest numbers that are admitted."""
    width = SCHEMA.upper - SCHEMA.lower
    wild = Cutoffs(CUTOFFS.cuts, SCHEMA.lower - width, SCHEMA.upper + width, width / LARGEST)
    query = Gradient(Terms(wild, BOXES, (0, 1)), weights, scales, 2.0**10, logistic)
    query.parts(SCHEMA)
    assert np.isfinite(units(query, rows)["gradient"]).all()
