"""The strategies draw what they promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.errors import SchemaError
from privfed.tables.records import Records
from privfed.tables.schema import Schema
from privfed.testing import strategies
from privfed.testing.hospitals import NUMERIC

QUICK = settings(max_examples=40)


def counted(frame: pd.DataFrame) -> dict[tuple[Any, ...], int]:
    """How often each record stands in a table."""
    return dict(
        pd.Series(list(frame.itertuples(index=False, name=None)), dtype=object).value_counts()
    )


@QUICK
@given(strategies.schemas().flatmap(lambda s: st.tuples(st.just(s), strategies.tables(s, 1))))
def test_tables_fit_their_schemas(drawn: tuple[Schema, pd.DataFrame]) -> None:
    """Every record is read as it is: nothing lies beyond the bounds."""
    schema, frame = drawn
    assert Records.from_frame(frame, schema).clipped == 0


@QUICK
@given(strategies.neighbouring_tables(NUMERIC))
def test_neighbours_differ_in_one_record(pair: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    """The larger has one more; the others are the same."""
    larger, smaller = pair
    assert len(larger) == len(smaller) + 1
    more, less = counted(larger), counted(smaller)
    assert sum(abs(more.get(key, 0) - less.get(key, 0)) for key in {*more, *less}) == 1


@QUICK
@given(strategies.neighbouring_tables(NUMERIC, "replace-one", "individual", cap=3))
def test_replaced_individuals(pair: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    """As many records as before, at most three of them others."""
    one, other = pair
    assert len(one) == len(other)
    assert len(set(counted(one)) - set(counted(other))) <= 3


@QUICK
@given(st.integers(0, 20).flatmap(lambda n: st.tuples(st.just(n), strategies.divisions(n))))
def test_divisions_cover_every_record_once(drawn: tuple[int, list[np.ndarray]]) -> None:
    """No record is lost or held twice."""
    count, parts = drawn
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))


@QUICK
@given(strategies.schedules("abc"))
def test_schedules_hold_known_questions(schedule: list[str]) -> None:
    """In any order."""
    assert set(schedule) <= set("abc")


@given(strategies.hostile_schemas())
def test_hostile_schemas_are_refused(plain: dict[str, Any]) -> None:
    """By a typed error, whatever the fault."""
    with pytest.raises(SchemaError):
        Schema.from_dict(plain)


@QUICK
@given(strategies.hostile_tables(NUMERIC))
def test_hostile_tables_are_clipped_or_refused(frame: pd.DataFrame) -> None:
    """Nothing but a schema's own error, and nothing beyond the bounds comes through."""
    try:
        records = Records.from_frame(frame, NUMERIC)
    except SchemaError:
        return
    assert ((records.x >= NUMERIC.lower) & (records.x <= NUMERIC.upper)).all()
