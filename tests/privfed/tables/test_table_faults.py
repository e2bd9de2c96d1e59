"""Faults of a table: every one of them at once, by column and row, and never a value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privfed.errors import InputError, SchemaError, may_be_a_record, no_column
from privfed.study.scaffold import schema_text
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.tables.sources import load_csv, read_table
from privfed.tables.table_faults import check_table, rows

SCHEMA = Schema(
    (
        Column("age", lower=0, upper=100),
        Column("weight", lower=0, upper=300),
        Column("visits", "integer", 0, 9),
        Column("sex", "category", categories=("female", "male")),
    ),
    Column("days", lower=0, upper=60),
)
SECRET = "Jane Doe"


def frame(**changes: object) -> pd.DataFrame:
    """Four records that fit, with some columns changed."""
    plain = {
        "age": [20, 30, 40, 50],
        "weight": [60, 70, 80, 90],
        "visits": [1, 2, 3, 4],
        "sex": ["male", "female", "male", "female"],
        "days": [1.0, 2.0, 3.0, 4.0],
        "site": ["north", "north", "south", "south"],
    }
    return pd.DataFrame({**plain, **changes})


def test_a_table_that_fits_passes() -> None:
    """In whatever order its index is."""
    check_table(frame().sample(frac=1, random_state=0), SCHEMA, owner="site")


def test_days_are_not_to_be_declared_as_categories() -> None:
    """They are to be counted, written as text or not."""
    for days in (["2024-01-31", "2024-02-01"] * 2, pd.date_range("2024-01-31", periods=4)):
        with pytest.raises(SchemaError, match=r"days since a public date, say$"):
            check_table(frame(age=days), SCHEMA)


def test_every_fault_is_told_with_its_rows_and_no_value() -> None:
    """Missing cells, text among numbers, fractions among integers, an unlisted category, owners left out, a misspelt column."""
    bad = frame(
        age=[20, None, 40, None],
        sex=["male", SECRET, "male", SECRET],
        visits=[1, 2.25, 3, 4.75],
        days=[1, 2, SECRET, 4],
        site=["north", "north", None, "south"],
    ).rename(columns={"weight": "wieght"})
    with pytest.raises(SchemaError) as caught:
        check_table(bad, SCHEMA, "data file t.csv", owner="site", individual="person")
    faults = caught.value.faults
    unlisted = "column 'sex' has 2 cells with a category that the schema does not list (rows 3, 5)"
    assert [fault.split("; ")[0] for fault in faults] == [
        "data file t.csv: column 'age' has no value in 2 of 4 records (rows 3, 5)",
        "data file t.csv: no column 'weight' in the table",
        "data file t.csv: column 'visits' is an integer but fractions stand in 2 cells (rows 3, 5)",
        f"data file t.csv: {unlisted}",
        "data file t.csv: column 'days' is numeric but text stands in 1 cell (row 4)",
        "data file t.csv: column 'site' leaves 1 of 4 records without a client (row 4)",
        "data file t.csv: no column 'person' in the table",
    ]
    assert "did you mean 'wieght'" in faults[1]
    assert SECRET not in str(caught.value)
    assert str(caught.value).startswith("7 faults\n- data file t.csv")


def test_a_column_that_the_schema_lists_is_not_taken_for_another() -> None:
    """Where age is missing, its neighbour wage is not what was meant."""
    schema = Schema((Column("age", lower=0, upper=9), Column("wage", lower=0, upper=9)))
    for check in (check_table, Records.from_frame):
        with pytest.raises(
            SchemaError, match=r"^no column 'age' in the table; its columns are wage$"
        ):
            check(pd.DataFrame({"wage": [1.0, 2.0]}), schema)


def test_dates_are_told_with_the_other_faults() -> None:
    """They are no numbers, whatever pandas makes of them."""
    bad = frame(age=pd.date_range("2020-01-01", periods=4), visits=[1.5, 2, 3, 4])
    with pytest.raises(SchemaError) as caught:
        check_table(bad, SCHEMA)
    assert [fault.split(";")[0] for fault in caught.value.faults] == [
        "column 'age' is numeric but holds dates",
        "column 'visits' is an integer but fractions stand in 1 cell (row 2)",
    ]


def test_many_rows_are_counted() -> None:
    """The first five by number."""
    assert rows(np.arange(0, 20, 2)) == "rows 2, 4, 6, 8, 10 and 5 more"


def test_what_a_fill_stands_for_is_no_fault() -> None:
    """Missing values, and categories that are not listed."""
    schema = Schema(
        (
            Column("age", lower=0, upper=100, fill=50),
            Column("sex", "category", categories=("female", "male"), fill="male"),
        )
    )
    check_table(frame(age=[None, 1, 2, 3], sex=["x", None, "male", "female"]), schema)


@pytest.mark.parametrize("record", ["0,38,24,13,0", "GP,F,18,U,GT3", "57.25,at_home,3,3"])
def test_a_table_without_a_header_shows_no_record(record: str, tmp_path: Path) -> None:
    """Its first record is taken for names, which no message tells and no schema template holds."""
    path = tmp_path / "table.csv"
    path.write_text(f"{record}\n{record}\n")
    schema = Schema(
        (Column("age", lower=0, upper=100), Column("risk", lower=0, upper=1)),
    )
    told = []
    for read in (
        lambda: check_table(read_table(path, schema=schema), schema, "file"),
        lambda: Records.from_frame(read_table(path, schema=schema), schema),
        lambda: load_csv(path, "risk"),
        lambda: schema_text(path, None),
    ):
        with pytest.raises(InputError, match="header row") as caught:
            read()
        told.append(str(caught.value).replace(str(path), ""))
    for cell in record.split(","):
        assert not any(repr(cell) in one or f" {cell}," in one for one in told)


def test_names_that_count_are_names() -> None:
    """A table written without names of its own has 0, 1, 2, ... for them, which are told."""
    assert "columns are ' age', y" in no_column("age", [" age", "y"])
    assert no_column("age", range(3)) == "no column 'age' in the table; its columns are 0, 1, 2"
    assert not may_be_a_record(["a", "b"]) and may_be_a_record(["a", "1"])
    assert may_be_a_record(["2020-03-01", "M", "yes"]) and may_be_a_record(["M", "1.3.2020", "x"])
    assert not may_be_a_record(["site", "2020-03-01", "2020-03-08"]) and not may_be_a_record(
        ["30Y_rate", "b"]
    )


def test_nobody_is_told_to_fill_a_target() -> None:
    """A made-up outcome would be learned; a feature's gaps may be filled."""
    schema = Schema(
        (Column("sex", categories=("f", "m")),), Column("ill", categories=("no", "yes"))
    )
    for cell in (None, SECRET):
        for name, told in (("sex", True), ("ill", False)):
            bad = pd.DataFrame({"sex": ["f", "m"], "ill": ["no", "yes"], name: [cell, cell]})
            for check in (check_table, Records.from_frame):
                with pytest.raises(SchemaError, match=r"leave those records out$") as caught:
                    check(bad, schema)
                assert ("write fill" in str(caught.value)) == told
