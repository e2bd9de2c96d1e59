"""RuleFit's questions: what leaves, and that no record moves it further than is said."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.errors import QueryError
from privfed.learners.rulefit import queries
from privfed.learners.rulefit.averaging import Centred, Steps, local_steps, losses
from privfed.learners.rulefit.boosting import Boosting
from privfed.learners.rulefit.cutoffs import Cutoffs
from privfed.learners.rulefit.rules import Terms
from privfed.questions.part import Bound
from privfed.questions.query import Query, View
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

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
    check_bounds(queries.CovariateHistogram((1,), 7), rows, other)
    check_bounds(queries.CovariateHistogram((0, 1), 7), rows, other)


@given(st.lists(ROW, min_size=1, max_size=6), ROW)
def test_supports_move_by_one_in_every_rule(
    rows: list[tuple[float, int, int]], other: tuple[float, int, int]
) -> None:
    """L1 = squared L2 = K; the size too."""
    check_bounds(queries.Supports(TERMS), rows, other)


def test_the_bounds_are_attained() -> None:
    """A tighter bound would be false: the power twin of the tests above."""
    row = (0.6, 7, 1)
    for query in (
        queries.CovariateHistogram((0, 1), 7),
        queries.Supports(Terms(CUTOFFS, BOXES[1:2], ())),
    ):
        moved = units(query, [row, row])
        left = units(query, [row])
        for name, part in query.parts(SCHEMA).items():
            assert part.sensitivity is not None
            squared = ((moved[name] - left[name]) ** 2).sum()
            assert squared == part.sensitivity.add_or_remove.l2_squared


def test_histogram_counts_every_record_once() -> None:
    """Closed outer bins, integer edges, and rows padded with empty bins."""
    rows = [(-1.0, -2, 0), (2.0, 12, 1), (0.5, 5, 1)]
    counts = units(queries.CovariateHistogram((0, 1), 4), rows)["counts"]
    assert counts.sum(axis=1).tolist() == [3, 3]
    assert counts[0].tolist() == [1, 0, 1, 1]


def test_an_increment_is_pure_in_records_and_query() -> None:
    """With a cache and without, and after another model was asked about."""
    rows = [(0.1 * k, k, int(k > 4)) for k in range(10)]
    steps = Steps(0.1, 0.0, 3, 0.01)
    query = queries.Increment(TERMS, np.zeros(8), np.zeros(8), steps, True)
    other = queries.Increment(Terms(CUTOFFS, BOXES[:2], ()), np.zeros(3), np.zeros(3), steps, True)
    view = View(records(rows), SCHEMA)
    first = query.evaluate(view)["increment"]
    other.evaluate(view)
    assert np.array_equal(query.evaluate(view)["increment"], first)
    assert np.array_equal(query.evaluate(View(records(rows), SCHEMA))["increment"], first)


@pytest.mark.parametrize(
    "query",
    [
        queries.CovariateHistogram((), 10),
        queries.CovariateHistogram((0, 0), 10),
        queries.CovariateHistogram((2,), 10),
        queries.CovariateHistogram((0,), 1),
        queries.BoostedRules(CUTOFFS, Boosting(0, 4.0, 0.01, 0.0, 5, True)),
        queries.BoostedRules(CUTOFFS, Boosting(10, float("nan"), 0.01, 0.0, 5, True)),
        queries.BoostedRules(
            replace(CUTOFFS, lower=np.zeros(3)), Boosting(9, 4.0, 0.01, 0.0, 5, True)
        ),
        queries.Increment(TERMS, np.zeros(8), np.full(8, np.nan), Steps(0.1, 0, 1, 0.1), True),
        queries.Increment(TERMS, np.zeros(8), np.zeros(7), Steps(0.1, 0, 1, 0.1), True),
        queries.Increment(TERMS, np.zeros(8), np.zeros(8), Steps(float("nan"), 0, 1, 0.1), True),
        queries.Increment(TERMS, np.zeros(8), np.zeros(8), Steps(0.1, 0, 0, 0.1), True),
        queries.Objective(TERMS, np.zeros(9), True),
        queries.Supports(replace(TERMS, boxes=BOXES[:, :1])),
    ],
)
def test_malformed_questions_are_refused_before_data_are_read(query: Query) -> None:
    """Sizes, unknown covariates, NaN: a QueryError from public values alone."""
    with pytest.raises(QueryError):
        query.parts(SCHEMA)


@pytest.mark.parametrize(
    "query",
    [
        queries.CovariateHistogram((1,), 7),
        queries.BoostedRules(CUTOFFS, Boosting(10, 4.0, 0.01, 0.0, 5, True)),
        queries.Supports(TERMS),
        queries.Increment(TERMS, np.zeros(8), np.zeros(8), Steps(0.1, 0.0, 1, 0.1), True),
    ],
)
def test_questions_survive_the_wire(query: Query) -> None:
    """Decoded fields give the same digest and the same answer."""
    again = type(query).from_fields(query.fields)
    assert again.digest == query.digest
    rows = [(0.1 * k, k, k % 2) for k in range(10)]
    for name, array in units(query, rows).items():
        assert np.array_equal(units(again, rows)[name], array)


def many() -> tuple[Terms, View]:
    """Four thousand rules over three thousand records."""
    rng = np.random.default_rng(0)
    rows = [
        (a, int(n), int(a > 0.4))
        for a, n in zip(rng.uniform(size=3000), rng.integers(0, 9, 3000), strict=True)
    ]
    boxes = BOXES[rng.integers(0, len(BOXES), 4000)]
    return Terms(CUTOFFS, boxes, (0, 1)), View(records(rows), SCHEMA)


def peak_of(query: Query, view: View) -> tuple[int, dict[str, np.ndarray]]:
    """The most bytes held while a question is evaluated with an empty cache, and the answer."""
    alone = replace(view, cache={})
    tracemalloc.start()
    answer = query.evaluate(alone)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak, dict(answer)


def test_supports_are_counted_in_memory_that_no_rules_times_records_fill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twelve million cells in blocks of a quarter of a million: a failure could tell a table's size."""
    terms, view = many()
    query = queries.Supports(terms)
    whole = query.evaluate(view)
    monkeypatch.setattr("privfed.learners.rulefit.queries.BLOCK", 2**18)
    peak, counted = peak_of(query, view)
    assert peak < 2_000_000
    held = query.terms.rules(view.table.x)
    for answer in (whole, counted):
        np.testing.assert_array_equal(answer["counts"], held.sum(axis=0))
        assert answer["size"] == [3000]


@pytest.mark.parametrize("logistic", [True, False])
def test_increments_and_losses_need_memory_that_no_rules_times_records_fill(
    monkeypatch: pytest.MonkeyPatch, logistic: bool
) -> None:
    """Twelve million cells, 2 MB: sums by leaf in blocks are those of the whole design matrix."""
    terms, view = many()
    rng = np.random.default_rng(1)
    means = np.concatenate([[0.0], terms.design(view.table.x)[:, 1:].mean(axis=0)])
    dual, steps = rng.normal(size=1 + len(terms)) / 1000, Steps(0.001, 0.0, 3, 0.1)
    increment = queries.Increment(terms, means, dual, steps, logistic)
    objective = queries.Objective(terms, dual, logistic)
    increment.evaluate(view)  # rules are put together once, for all clients
    monkeypatch.setattr("privfed.learners.rulefit.design.BLOCK", 2**12)
    monkeypatch.setattr("privfed.learners.rulefit.design.KEPT", 2**13)
    peaks, told = zip(*(peak_of(query, view) for query in (increment, objective)), strict=True)
    assert max(peaks) < 2_000_000
    matrix, target = terms.design(view.table.x), queries.unit_target(view, logistic)
    wanted = local_steps(Centred(matrix, means), target, dual, steps, logistic)
    assert told[0]["increment"] == pytest.approx(wanted, abs=1e-12)
    loss = losses(target, matrix @ dual, logistic).sum()
    assert told[1]["loss"] == pytest.approx(loss)
    assert told[1]["size"] == [3000]


@pytest.mark.parametrize("logistic", [True, False])
def test_a_client_with_few_records_steps_as_one_with_many(
    monkeypatch: pytest.MonkeyPatch, logistic: bool
) -> None:
    """On the design matrix or by sums of cells, whichever question came before on the same view."""
    rng = np.random.default_rng(2)
    view = View(records([(rng.uniform(), int(rng.integers(10)), k % 2) for k in range(40)]), SCHEMA)
    means = np.concatenate([[0.0], rng.uniform(size=len(TERMS))])
    fewer = Terms(CUTOFFS, BOXES[:2], (0, 1))
    for terms in (TERMS, fewer, TERMS):
        width = 1 + len(terms)
        dual, steps = rng.normal(size=width) / 10, Steps(0.05, 0.1, 20, 0.1)
        query = queries.Increment(terms, means[:width], dual, steps, logistic)
        matrix = query.evaluate(view)["increment"]
        monkeypatch.setattr("privfed.learners.rulefit.queries.FEW", 0)
        assert query.evaluate(view)["increment"] == pytest.approx(matrix, abs=1e-13)
        monkeypatch.undo()


def test_the_curvature_is_the_same_for_few_records_and_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the design matrix or by sums of cells, by numpy; 0 where there are no records."""
    rng = np.random.default_rng(2)
    own = records([(rng.uniform(), int(rng.integers(10)), k % 2) for k in range(40)])
    means = np.concatenate([[0.0], rng.uniform(size=len(TERMS))])
    asked = queries.Curvature(TERMS, means)
    centred = TERMS.design(own.x) - means
    wanted = np.linalg.eigvalsh(centred.T @ centred / 40)[-1]
    assert asked.evaluate(View(own, SCHEMA))["largest"] == pytest.approx([wanted], rel=0.01)
    monkeypatch.setattr("privfed.learners.rulefit.queries.FEW", 0)
    assert asked.evaluate(View(own, SCHEMA))["largest"] == pytest.approx([wanted], rel=0.01)
    assert asked.evaluate(View(records([]), SCHEMA))["largest"] == [0.0]


@pytest.mark.parametrize("logistic", [True, False])
def test_losses_are_equations_in_who_was_there(logistic: bool) -> None:
    """What each record would add comes to the objective and to the number of records."""
    rng = np.random.default_rng(0)
    own = records([(rng.uniform(), int(rng.integers(10)), int(rng.integers(2))) for _ in range(40)])
    asked, view = (
        queries.Objective(TERMS, rng.normal(size=1 + len(TERMS)), logistic),
        View(own, SCHEMA),
    )
    answer = dict(asked.evaluate(view))
    told = asked.equations(answer, view)
    assert set(told) == {"loss", "size"}
    for each in told.values():
        assert each.added.sum(axis=0) == pytest.approx(each.told, abs=1e-5)
    fewer = View(records([(0.5, 1, 1)]), SCHEMA)
    short = asked.equations(answer, fewer)["loss"]
    assert short.added.sum() != pytest.approx(float(short.told[0]), abs=1e-2)
