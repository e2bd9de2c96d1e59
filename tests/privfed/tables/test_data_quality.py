"""What a schema does to a table is counted by column, and told without a value."""

from __future__ import annotations

import numpy as np
import pandas as pd

from privfed.tables.data_quality import DataQuality
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema

SCHEMA = Schema(
    (
        Column("age", lower=0, upper=100, fill=50),
        Column("sex", "category", categories=("female", "male")),
    ),
    Column("days", lower=0, upper=60),
)


def frame(**changes: object) -> pd.DataFrame:
    """Four records that fit, with some columns changed."""
    plain = {
        "age": [20.0, 30, 40, 50],
        "sex": ["male", "female", "male", "female"],
        "days": [1.0, 2, 3, 4],
    }
    return pd.DataFrame({**plain, **changes})


def quality(**changes: object) -> DataQuality:
    """Of that table."""
    return DataQuality.of(frame(**changes), SCHEMA)


def test_a_table_that_fits_gives_no_warning() -> None:
    """Values on the bounds, and missing ones that the schema fills, are none of its doubts."""
    assert quality() == DataQuality(4) and quality().warnings() == []
    assert quality(age=[0.0, 100, np.nan, 50]).warnings() == []


def test_a_wrong_bound_clips_a_column_and_leaves_it_constant() -> None:
    """An upper bound of 1 for ages: every cell is clipped, and one value is left."""
    narrow = Schema((Column("age", lower=0, upper=1), SCHEMA.features[1]), SCHEMA.target)
    found = DataQuality.of(frame(), narrow)
    assert found == DataQuality(4, {"age": 4}, {}, ("age",))
    assert [each.split(":")[0] for each in found.warnings()] == [
        "the schema's bounds clip 4 cells of 4 records",
        "only one value, once clipped, in column 'age'",
    ]


def test_infinite_cells_are_clipped_ones_too() -> None:
    """Of either sign, and in the target."""
    found = quality(age=[20.0, np.inf, -np.inf, 50], days=[1.0, 2, 3, np.inf])
    assert found.infinite == {"age": 2, "days": 1} and found.clipped == found.infinite


def test_repeated_records_are_counted_by_all_columns_of_the_table() -> None:
    """One that differs in a column beyond the schema repeats nobody."""
    table = frame(age=20.0, sex="male", days=[1.0, 1, 1, 2])
    assert DataQuality.of(table, SCHEMA).duplicates == 2
    assert DataQuality.of(table.assign(id=range(4)), SCHEMA).duplicates == 0


def test_empty_tables_and_single_records_are_no_constant_columns() -> None:
    """One record is always constant; that says nothing."""
    for size in (0, 1):
        assert DataQuality.of(frame().head(size), SCHEMA) == DataQuality(size)
    assert DataQuality(1).warnings() == [] and "no records" in DataQuality(0).warnings()[0]


def test_counts_agree_with_what_records_clip() -> None:
    """Both count cells outside the bounds of one schema."""
    table = frame(age=[20.0, 130, np.inf, -4], days=[1.0, 2, 3, 99])
    found = DataQuality.of(table, SCHEMA)
    assert sum(found.clipped.values()) == Records.from_frame(table, SCHEMA).clipped == 4


def test_no_warning_repeats_a_cell() -> None:
    """Of values that stand in no count: 731.25 and 8844.5."""
    found = quality(age=[731.25, 731.25, 8844.5, np.inf], sex="male", days=8844.5)
    told = " ".join(found.warnings())
    assert found.warnings() and "731" not in told and "8844" not in told and "male" not in told
