"""The public data dictionary: what it accepts, what it refuses in one line, its file's form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privfed.errors import SchemaError
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema, shown

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ({"name": ""}, "no name"),
        ({"name": "a", "kind": "text"}, "kind must be one of"),
        ({"name": "a", "lower": 0, "upper": 1, "description": [3]}, "description is text"),
        ({"name": "a"}, "write lower"),
        ({"name": "a", "lower": 0}, "write lower"),
        ({"name": "a", "lower": 1, "upper": 1}, "lower must be a number below upper"),
        ({"name": "a", "lower": NAN, "upper": 1}, "lower must be a number below upper"),
        ({"name": "a", "lower": 0, "upper": INFINITE}, "bounds beyond 1e\\+100 overflow"),
        ({"name": "a", "lower": -1e308, "upper": 0}, "bounds beyond 1e\\+100 overflow"),
        ({"name": "a", "lower": 0, "upper": 1e-101}, "less than 1e-100 apart underflow"),
        ({"name": "a", "lower": 2**70, "upper": 2**70 + 5}, "are one number; write values less"),
        ({"name": "a", "lower": "0", "upper": "1"}, "no text"),
        ({"name": "a", "lower": 0, "upper": 1, "fill": 2}, "fill must lie between"),
        ({"name": "a", "lower": 0, "upper": 1, "fill": 10**400}, "fill must lie between"),
        ({"name": "a", "lower": 0, "upper": 1, "fill": NAN}, "fill must lie between"),
        ({"name": "a", "lower": 0, "upper": 1, "fill": "x"}, "no text"),
        ({"name": "a", "kind": "integer", "lower": 0.5, "upper": 2}, "are whole numbers"),
        (
            {"name": "a", "kind": "integer", "lower": 0, "upper": 2, "fill": 0.5},
            "are whole numbers",
        ),
        (
            {"name": "a", "lower": 0, "upper": 1, "categories": ("x", "y")},
            'write kind = "category"',
        ),
        ({"name": "a", "kind": "integer", "categories": ("x", "y")}, 'write kind = "category"'),
        ({"name": "a", "kind": "category"}, "at least two different"),
        ({"name": "a", "kind": "category", "categories": ("x", "x")}, "at least two different"),
        ({"name": "a", "kind": "category", "categories": ("x", "y"), "fill": "z"}, "fill must be"),
        ({"name": "a", "categories": "xy"}, "categories are a list; write categories = "),
        ({"name": "a", "categories": {"x", "y"}}, "categories are a list"),
        ({"name": "a", "categories": 2}, "categories are a list"),
        ({"name": "a", "categories": ("x", None)}, "a category is missing; list texts"),
        ({"name": "a", "categories": ("x", pd.NA)}, "a category is missing; list texts"),
        ({"name": "a", "kind": "category", "categories": (1, 1.0)}, "at least two different"),
    ],
)
def test_contradictory_column(column: dict[str, object], says: str) -> None:
    """A column that cannot be used says why."""
    with pytest.raises(SchemaError, match=says):
        Column(**column)  # type: ignore[arg-type]


def test_what_lists_categories_and_no_bounds_is_one() -> None:
    """Its kind need not be written: nothing else could be meant."""
    assert Column("sex", categories=("f", "m")).kind == "category"


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        ({"colum": []}, r"unknown key 'colum'; did you mean 'column'\? Known are column, inferred"),
        ({"column": {"name": "a"}}, r"\[\[column\]\]"),
        ({"column": [3]}, "table of keys"),
        ({"name": 3, "column": [{"name": "a", "lower": 0, "upper": 1}]}, "name is text"),
        ({"column": [{"lower": 0, "upper": 1}]}, "needs name"),
        ({"column": [{"name": "a", "lower": 0, "uper": 1}]}, "unknown key 'uper'"),
        (
            {"column": [{"name": "a", "kind": "category", "categories": "xy"}]},
            "categories are a list",
        ),
        ({"column": []}, "at least one feature"),
        ({"target": "y", "column": [{"name": "a", "lower": 0, "upper": 1}]}, "target 'y'"),
        ({"column": [{"name": "a", "lower": 0, "upper": 1}] * 2}, "'a' is listed twice"),
    ],
)
def test_misspelt_file(plain: dict[str, object], says: str) -> None:
    """A schema file's mistakes are named with what to write instead."""
    with pytest.raises(SchemaError, match=says):
        Schema.from_dict(plain)


def test_file_round_trip(tmp_path: Path) -> None:
    """A schema written as TOML is read back equal."""
    schema = Schema(
        (
            Column("age", "integer", 0, 120, fill=40, description="years"),
            Column("sex", "category", categories=("f", "m"), fill="f"),
        ),
        Column("y", lower=-1.5, upper=1.5),
        "clinic",
    )
    schema.to_toml(tmp_path / "schema.toml")
    assert Schema.from_toml(tmp_path / "schema.toml") == schema


@pytest.mark.parametrize("content", [b"= 3", b"\xff\xfe"])
def test_unreadable_file(tmp_path: Path, content: bytes) -> None:
    """A file that is no TOML, or is not there, is a schema error that names it."""
    path = tmp_path / "schema.toml"
    with pytest.raises(SchemaError, match=r"schema\.toml"):
        Schema.from_toml(path)
    path.write_bytes(content)
    with pytest.raises(SchemaError, match=r"schema\.toml"):
        Schema.from_toml(path)


def test_a_file_saved_on_windows_reads_as_any(schema: Schema, tmp_path: Path) -> None:
    """With its mark of the encoding and its ends of lines; a name keeps its letters."""
    schema = replace(schema, name="Klinik Süd")
    path = tmp_path / "schema.toml"
    schema.to_toml(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert Schema.from_toml(path) == schema


@pytest.mark.parametrize("kind", [np.int64, np.float32, int])
def test_bounds_that_are_numpy_s_numbers_are_written_as_any(kind: type, tmp_path: Path) -> None:
    """A table's own least and greatest value, say: as a file, and as notebooks show it."""
    column = Column("age", "integer", kind(0), kind(99), fill=kind(40))
    schema = Schema((column,))
    schema.to_toml(tmp_path / "schema.toml")
    assert Schema.from_toml(tmp_path / "schema.toml") == schema
    assert "upper = 99" in schema._repr_html_()


def test_unknown_column_lists_the_known(schema: Schema) -> None:
    """Asking for a column that is not there names those that are."""
    with pytest.raises(SchemaError, match="a, b, y"):
        schema.column("c")


def test_inferred_bounds() -> None:
    """Inference takes bounds and categories from the data, and says that it did."""
    frame = pd.DataFrame({"n": [1, 5], "x": [0.5, np.nan], "c": ["u", "v"], "y": [0.0, 2.0]})
    frame.loc[1, "x"] = 1.5
    inferred = Schema.infer(frame, "y")
    assert inferred.inferred
    assert [column.kind for column in inferred.columns] == [
        "integer",
        "number",
        "category",
        "number",
    ]
    assert inferred.column("x").bounds == (0.5, 1.5)
    assert inferred.column("c").categories == ("u", "v")


@pytest.mark.parametrize("value", [0, 7, -1e30, 2.0**60])
def test_a_feature_that_is_one_number_has_room_above_it(value: float) -> None:
    """Pictures have corners that are always dark; no learner can split there, and none needs to."""
    column = Schema.infer(pd.DataFrame({"x": [value, value], "y": [0, 1]}), "y").column("x")
    assert column.bounds[0] == value < column.bounds[1]


@pytest.mark.parametrize(("rows", "different"), [(20, 20), (60, 30), (200, 90)])
def test_few_texts_among_many_records_are_categories(rows: int, different: int) -> None:
    """Up to half of the records, or twenty, may differ."""
    frame = pd.DataFrame({"x": [f"ward {i % different}" for i in range(rows)]})
    assert len(Schema.infer(frame, None).column("x").categories) == different


@pytest.mark.parametrize(
    ("frame", "target", "says"),
    [
        (pd.DataFrame({"x": ["u", "u"]}), None, "'x' is constant"),
        (
            pd.DataFrame({"x": [0.0, 1.0], "y": [3.0, 3.0]}),
            "y",
            "'y' is constant, so there is nothing to predict",
        ),
        (pd.DataFrame({"x": [0.0, 1.0], "y": ["u", "u"]}), "y", "nothing to predict"),
        (pd.DataFrame({"x": [np.nan, np.inf]}), None, "no finite number"),
        (pd.DataFrame({"x": [1.0, 2.0]}), "y", "the columns are x"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), None, "stands twice"),
        (
            pd.DataFrame({"x": [f"Jane {i}" for i in range(60)]}),
            None,
            "'x' holds a text of its own",
        ),
        (pd.DataFrame({"x": ["05.03.2021", "6.3.2021"]}), None, "'x' holds dates"),
        (pd.DataFrame({"x": ["2021-03-05 12:30", "2021-03-06 00:10"]}), None, "'x' holds dates"),
        (
            pd.DataFrame({"x": pd.to_datetime(["2021-03-05", "2021-04-05"])}),
            None,
            "'x' holds dates",
        ),
    ],
)
def test_nothing_to_infer(frame: pd.DataFrame, target: str | None, says: str) -> None:
    """Constant, empty, missing and doubled columns are refused by name."""
    with pytest.raises(SchemaError, match=says):
        Schema.infer(frame, target)


@pytest.mark.parametrize(
    "listed",
    [["1", "2"], (1, 2), [1.0, 2.0], np.array([1, 2]), pd.Series([1, 2]), pd.Index([1, 2])],
)
def test_categories_are_texts_however_they_are_listed(listed: Iterable[object]) -> None:
    """A list, numbers and arrays give the column of a file, and the cells of a table are found in it."""
    ward, days = Column("ward", categories=listed), Column("days", lower=0, upper=60)
    schema = Schema([ward, days])
    assert replace(ward, fill=1).fill == "1"
    assert ward == Column("ward", categories=("1", "2")) == schema.column("ward")
    assert hash(ward) and Schema.from_dict(schema.to_dict()) == schema
    frame = pd.DataFrame({"ward": [2, 1, 2], "days": [3, 4, 5]})
    assert Records.from_frame(frame, schema).x[:, 0].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("features", "target"),
    [(3, None), (["age"], None), (Column("a", lower=0, upper=1), None), ([], 3)],
)
def test_a_schema_lists_columns(features: Any, target: Any) -> None:
    """What is not a list of columns is told how to write one."""
    with pytest.raises(SchemaError, match="a schema lists its columns; write Schema"):
        Schema(features, target=target)


def test_a_target_is_named_or_given() -> None:
    """One of the columns, by its name, is taken out of the features; an unknown name is an error."""
    age, days = Column("age", lower=0, upper=100), Column("days", lower=0, upper=60)
    assert Schema([age, days], target="days") == Schema((age,), days)
    with pytest.raises(SchemaError, match="no column 'dayz' for the target; did you mean 'days'"):
        Schema((age, days), target="dayz")


def test_a_name_is_quoted_where_it_would_read_as_something_else() -> None:
    """A quotation mark too: yes "x" could be read as a name and a quoted one."""
    assert shown("a b") == "a b" and shown("it's") == "it's"
    assert shown('yes "x"') == '"yes \\"x\\""'
    assert shown("a\nb") == '"a\\nb"' and shown("") == '""' and shown("a, b") == '"a, b"'
