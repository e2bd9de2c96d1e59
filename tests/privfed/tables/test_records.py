"""Records: encoded and clipped once, and no error that repeats a raw value."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.errors import SchemaError
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

SCHEMA = Schema(
    (Column("age", lower=0, upper=100), Column("sex", "category", categories=("f", "m", "1"))),
    Column("y", lower=-1, upper=1),
)
FILLED = Schema(
    (
        Column("age", lower=0, upper=100, fill=50),
        Column("sex", "category", categories=("f", "m"), fill="m"),
    ),
)
#: A raw value that no message may repeat.
SENTINEL = 7318.25


def frame(**columns: list[object]) -> pd.DataFrame:
    """Two good records, some columns replaced."""
    return pd.DataFrame({"age": [10.0, 20.0], "sex": ["f", "m"], "y": [0.5, -0.5]} | columns)


def test_encoding() -> None:
    """Numbers stay, categories become codes in the schema's order."""
    records = Records.from_frame(frame(sex=["m", 1.0]), SCHEMA)
    assert records.x.tolist() == [[10, 1], [20, 2]]
    assert records.target.tolist() == [0.5, -0.5]
    assert len(records) == 2


def test_equal_cells_of_several_types_are_the_categories_that_they_are_written_as() -> None:
    """True, 1 and 1.0 are equal, and two categories."""
    schema = Schema((Column("sex", "category", categories=("1", "True")),))
    table = pd.DataFrame({"sex": pd.Series([1, True, 1.0, "1"], dtype=object)})
    assert Records.from_frame(table, schema).x[:, 0].tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("listed", [("false", "true"), ("False", "True"), ("FALSE", "TRUE")])
@pytest.mark.parametrize("cells", [["true", "FALSE"], [True, False]], ids=["text", "bool"])
def test_truth_values_are_those_listed_in_any_case(
    listed: tuple[str, str], cells: list[object]
) -> None:
    """A file's reader makes True of `true`, whatever the file and the schema write."""
    schema = Schema((Column("smoker", "category", categories=listed),))
    table = pd.DataFrame({"smoker": cells})
    assert Records.from_frame(table, schema).x[:, 0].tolist() == [1, 0]


def test_what_is_no_number_lies_in_the_middle_of_its_bounds() -> None:
    """And what is infinite at one of them, the target's too."""
    records = Records(
        SCHEMA, np.array([[np.nan, np.nan], [np.inf, -np.inf]]), np.array([np.nan, -np.inf])
    )
    assert records.x.tolist() == [[50, 1], [100, 0]]
    assert records.target.tolist() == [0, -1]


def test_clipping_counts() -> None:
    """Values outside the bounds are clipped and counted; infinities too."""
    records = Records.from_frame(frame(age=[SENTINEL, -np.inf], y=[0.0, 9.0]), SCHEMA)
    assert records.x[:, 0].tolist() == [100, 0]
    assert records.target[1] == 1
    assert records.clipped == 3


@given(
    st.lists(st.tuples(*[st.floats(allow_nan=True, allow_infinity=True)] * 3), max_size=6),
)
def test_no_value_outside_the_bounds(rows: list[tuple[float, float, float]]) -> None:
    """Whatever is put in, NaN included, every stored value lies within the schema."""
    table = np.array(rows, dtype=float).reshape(-1, 3)
    records = Records(SCHEMA, table[:, :2], table[:, 2])
    assert np.all((records.x >= SCHEMA.lower) & (records.x <= SCHEMA.upper))
    assert np.all(np.abs(records.target) <= 1)


def test_records_cannot_be_written() -> None:
    """A query cannot change the data under the next one."""
    records = Records.from_frame(frame(), SCHEMA)
    with pytest.raises(ValueError, match="read-only"):
        records.x[0, 0] = 1


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (frame().drop(columns="age"), "no column 'age' in the table"),
        (frame(age=[SENTINEL, None]), "no value in 1 of 2 records"),
        (frame(age=[SENTINEL, "7318,25"]), "text stands in 1 cell"),
        (frame(age=["7,318", "12,250"]), 'write thousands = ",", or .* decimal = ","'),
        (frame(age=["7,318.5", "12,250"]), 'three digits: write thousands = "," [(]under'),
        (frame(sex=["f", str(SENTINEL)]), "1 cell with a category"),
        (frame(y=[np.nan, 0.0]), "'y' has no value in 1 of"),
        (pd.concat([frame(), frame()[["age"]]], axis=1), "'age' stands twice"),
    ],
)
def test_bad_tables(table: pd.DataFrame, says: str) -> None:
    """A table that does not fit says what, where and how often, and never the value itself."""
    with pytest.raises(SchemaError, match=says) as caught:
        Records.from_frame(table, SCHEMA, owner="north")
    told = "".join(traceback.format_exception(caught.value))
    assert "client 'north'" in told
    assert "7318" not in told


def test_integers_are_whole() -> None:
    """A fraction among integers is an error without the value; what lies beyond is clipped as ever."""
    whole = Schema((Column("age", "integer", 0, 100),))
    table = pd.DataFrame({"age": [10.0, 200.0, np.inf]})
    assert Records.from_frame(table, whole).x[:, 0].tolist() == [10, 100, 100]
    with pytest.raises(SchemaError, match="is an integer but fractions stand in 1 cell") as caught:
        Records.from_frame(pd.DataFrame({"age": [10.0, SENTINEL]}), whole)
    assert "7318" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "holds"),
    [
        (pd.to_datetime(["2020-01-01", "2020-01-02"]), "dates"),
        (pd.to_timedelta([1, 2], unit="D"), "spans of time"),
        (np.array([1j, 2]), "complex numbers"),
        (np.array([1j, 2], dtype=object), "complex numbers"),
    ],
)
def test_what_is_no_number_is_not_made_one(values: Any, holds: str) -> None:
    """Dates would be nanoseconds, all of them clipped to one bound."""
    with pytest.raises(SchemaError, match=f"'age' is numeric but holds {holds}"):
        Records.from_frame(frame().assign(age=values), SCHEMA)


def test_an_array_is_what_its_table_is() -> None:
    """Numbers with codes, and text, are encoded like the table of the same records."""
    table = Records.from_frame(frame(sex=["m", "1"]), SCHEMA)
    codes = Records.from_array(np.array([[10.0, 1], [20, 2]]), SCHEMA)
    names = Records.from_array(np.array([["10", "m"], ["20", "1"]]), SCHEMA)
    assert codes.x.tolist() == names.x.tolist() == table.x.tolist()
    assert Records.from_array(np.array([[np.nan, np.nan]]), FILLED).x.tolist() == [[50, 1]]


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros(2), "two dimensions and 2 columns: age, sex"),
        (np.zeros((1, 3)), "two dimensions and 2 columns: age, sex"),
        (np.array([[SENTINEL, 17.0]]), "'sex' has 1 cell without a code .* from 0 to 2"),
        (np.array([[SENTINEL, 0.5]]), "'sex' has 1 cell without a code .* from 0 to 2"),
        (np.array([[np.nan, 0.0]]), "'age' has no value in 1 of 1 records"),
        (np.array([[f"{SENTINEL} kg", "f"]]), "'age' is numeric but text stands in 1 cell"),
    ],
)
def test_bad_arrays(array: np.ndarray, says: str) -> None:
    """They are refused as tables are, without a value."""
    with pytest.raises(SchemaError, match=says) as caught:
        Records.from_array(array, SCHEMA)
    assert "7318" not in "".join(traceback.format_exception(caught.value))


def test_public_fill() -> None:
    """A missing or unknown value takes the schema's fill."""
    table = pd.DataFrame({"age": [np.nan, 20.0], "sex": [None, "x"]})
    assert Records.from_frame(table, FILLED).x.tolist() == [[50, 1], [20, 1]]


def test_nullable_integers_are_filled() -> None:
    """pandas' own missing integer is a missing value like any other."""
    table = pd.DataFrame({"age": pd.array([None, 20], dtype="Int64"), "sex": ["f", "m"]})
    assert Records.from_frame(table, FILLED).x[:, 0].tolist() == [50, 20]


@pytest.mark.parametrize("count", [0, 1])
def test_few_records(count: int) -> None:
    """A client may have no record, or one."""
    records = Records.from_frame(frame().head(count), SCHEMA)
    assert records.x.shape == (count, 2)
    assert records.target.shape == (count,)


def test_cap_keeps_the_first_of_each_person() -> None:
    """A person's records beyond the cap are left out, in the table's order."""
    x = np.arange(5.0)[:, None]
    schema = Schema((Column("x", lower=0, upper=10),))
    records = Records(schema, x, individual=np.array([0, 1, 0, 0, 1]))
    assert records.capped(2).x[:, 0].tolist() == [0, 1, 2, 4]
    with pytest.raises(SchemaError, match="person behind each record"):
        Records(schema, x).capped(2)


@pytest.mark.parametrize(
    ("x", "y", "individual"),
    [
        (np.zeros((2, 3)), None, None),
        (np.zeros((2, 1)), None, None),
        (np.zeros(2), None, None),
        (np.zeros((2, 2)), np.zeros(3), None),
        (np.zeros((2, 2)), np.zeros((2, 1)), None),
        (np.zeros((2, 2)), None, np.zeros(1, int)),
    ],
)
def test_shapes_are_held(
    x: np.ndarray, y: np.ndarray | None, individual: np.ndarray | None
) -> None:
    """Features, targets and persons come one for each record."""
    with pytest.raises(SchemaError, match="records need"):
        Records(SCHEMA, x, y, individual)


def test_person_for_every_record() -> None:
    """A record without a person cannot be covered by a person's guarantee."""
    with pytest.raises(SchemaError, match="without a person"):
        Records.from_frame(frame().assign(who=pd.Series(["p", None])), SCHEMA, "who")


@pytest.mark.parametrize("people", [["a", None, "b"], [1.0, np.nan, 2.0]])
def test_arrays_leave_no_record_without_a_person(people: list[object]) -> None:
    """It took the code of the last person named, whose leaving then changed what the cap kept of others."""
    schema = Schema((Column("a", lower=0, upper=1),))
    with pytest.raises(SchemaError, match="no person"):
        Records(schema, np.zeros((3, 1)), individual=np.array(people))
