"""Counts below cuts: none of them, nor any that follows from them, is of one or two records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from privfed import Column, Schema
from privfed.errors import QueryError
from privfed.learners.fuzzy_tree.below import Below, Cut, place, told_cuts
from privfed.learners.fuzzy_tree.pooled import Pool
from privfed.questions.query import View
from privfed.tables.records import Records

BOUNDS = (-8.0, 8.0)
SCHEMA = Schema((Column("x", lower=-8, upper=8),), Column("y", lower=-8, upper=8))
VALUES = st.lists(
    st.one_of(st.floats(*BOUNDS), st.integers(-8, 8).map(float)), min_size=1, max_size=40
)
CUTS = st.integers(1, 9).flatmap(
    lambda depth: st.integers(0, 2 ** (depth - 1) - 1).map(lambda half: (depth, 2 * half + 1))
)


@given(values=VALUES)
@example(values=[0.0] * 9 + [8.0])
def test_cells_between_told_cuts_hold_nobody_or_three(values: list[float]) -> None:
    """So whatever follows linearly from told counts is of nobody or of at least three."""
    told = sorted(place(cut, BOUNDS) for cut in told_cuts(np.array(values), BOUNDS))
    ordered = np.sort(values)
    reached = np.searchsorted(ordered, told, side="left")
    cells = np.diff([0, *reached, len(values)])
    assert not len(told) or not np.isin(cells, (1, 2)).any()


@given(values=VALUES, asked=st.lists(CUTS, min_size=1, max_size=6))
def test_what_is_told_does_not_depend_on_what_else_is_asked(
    values: list[float], asked: list[Cut]
) -> None:
    """A cut is told in one question where it is told in another: no two questions can be subtracted."""
    records = Records(SCHEMA, np.array(values)[:, None], np.array(values))
    together = _hidden(Below((tuple(asked),) * 2), records)
    alone = [_hidden(Below(((cut,),) * 2), records)[0] for cut in asked]
    assert together == alone


def _hidden(query: Below, records: Records) -> list[bool]:
    view = View(records, SCHEMA)
    masks = query.reveals(query.evaluate(view), view, strict=True)
    assert masks["target"].tolist() == masks["below"][0].tolist()
    return list(masks["below"][0])


def test_a_value_that_all_share_is_not_sought() -> None:
    """Halving stops where a cell holds one value, however many records have it."""
    assert not told_cuts(np.full(500, 3.3), BOUNDS)
    two = told_cuts(np.repeat([-3.3, 3.3], 250), BOUNDS)
    assert two == {(1, 1)}


def test_two_records_tell_nothing() -> None:
    """Not even how many they are."""
    records = Records(SCHEMA, np.array([[1.0], [2.0]]), np.array([1.0, 2.0]))
    view = View(records, SCHEMA)
    query = Below((((1, 1),),) * 2)
    masks = query.reveals(query.evaluate(view), view)
    assert masks["below"].all() and masks["target"].all() and bool(masks["records"])


@pytest.mark.parametrize(
    "cuts",
    [(), (((1, 1),),), (((1, 1),), ()), (((0, 1),),) * 2, (((2, 2),),) * 2, (((2, 5),),) * 2],
    ids=["none", "a column short", "uneven", "no halving", "not reduced", "outside"],
)
def test_cuts_that_make_no_sense_are_refused(cuts: tuple[tuple[Cut, ...], ...]) -> None:
    """Told from public values alone."""
    with pytest.raises(QueryError, match="cut"):
        Below(cuts).parts(SCHEMA)


def test_what_one_client_withholds_lies_where_the_others_records_do() -> None:
    """A client that tells its total alone is spread as the other is, not evenly over the bounds."""
    pool = Pool(SCHEMA.features[0], told={"open": {0.0: 0.0, 1.0: 900.0}, "silent": {}})
    pool.totals.update(open=900.0, silent=300.0)
    low, high = pool.percentiles()
    assert 0 <= low < 0.1 and 0.9 < high <= 1
