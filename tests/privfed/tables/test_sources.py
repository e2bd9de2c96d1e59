"""Loading tables: the bundled sets fit their public schemas, and faults are told in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets

from privfed.errors import InputError, Note
from privfed.tables.csv_text import Text, looks_european
from privfed.tables.records import Records
from privfed.tables.schema import Column, Schema
from privfed.tables.sources import (
    bundled,
    columns,
    load,
    load_csv,
    load_openml,
    public_schema,
    read_table,
)

GOOD = "age,weight,risk\n30,70,1\n40,80,2\n50,90,3\n"


@pytest.mark.parametrize("name", bundled())
def test_bundled_sets_fit_their_public_schemas(name: str) -> None:
    """No column is missing and no value lies outside the public bounds."""
    dataset = load(name)
    assert dataset.schema is not None
    records = Records.from_frame(dataset.frame, dataset.schema)
    assert len(records) == len(dataset.frame) > 10
    assert records.clipped == 0


@pytest.mark.parametrize("name", bundled())
def test_public_bounds_are_not_the_datas_own(name: str) -> None:
    """Round public bounds leave room; a bound read off records would be a release."""
    schema, frame = public_schema(name), load(name).frame
    for column in schema.columns:
        if column.numeric and not column.name.startswith("pixel"):
            low, high = column.bounds
            assert high > frame[column.name].max()
            assert low < frame[column.name].min() or low == 0


def test_diabetes_has_its_real_units() -> None:
    """Ages in years, and all 442 patients."""
    frame = load("diabetes").frame
    assert len(frame) == 442
    assert frame["age"].between(18, 90).all()
    assert frame["progression"].tolist() == datasets.load_diabetes().target.tolist()


def test_classes_carry_their_names() -> None:
    """Labels are the classes' names, in the order of scikit-learn's codes."""
    frame = load("iris").frame
    assert frame["species"].tolist()[::50] == ["setosa", "versicolor", "virginica"]


def test_a_csv_file_predicts_its_last_column(tmp_path: Path) -> None:
    """Unless another target is named."""
    path = tmp_path / "table.csv"
    path.write_text(GOOD)
    assert load(str(path)).target == "risk"
    assert load("table.csv", "age", folder=tmp_path).target == "age"
    assert np.allclose(load_csv(path).frame["weight"], [70, 80, 90])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("age,age,risk\n1,2,3\n4,5,6\n", "column 'age' stands twice"),
        ("age,risk\n1,5\n2,5\n", "target 'risk' is constant"),
        ("age,risk\n", "holds no records"),
        ("", "needs a header row"),
        ("age\n1\n2\n", "needs a header row"),
        ("5,1,5\n1,5,4\n", "write a header row with the columns' names"),
        ("age,risk\n1,2\n3,4,5,6\n", "rows do not fit its header"),
        ("age,risk\n1,2,3\n4,5,6\n", "rows do not fit its header"),
        ('age,risk\n1,2\n3,"4\n', "header, or a quote is never closed; repair"),
    ],
)
def test_a_faulty_file_is_one_clear_error(tmp_path: Path, text: str, told: str) -> None:
    """It names the file and the fault."""
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=told) as caught:
        load_csv(path)
    assert "table.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text_is_one_clear_error(tmp_path: Path) -> None:
    """Bytes that are no UTF-8, a folder, and a file that is not there."""
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00a,b")
    told = {
        "bytes.csv": "is no utf-8 text; save it as UTF-8",
        "absent.csv": "cannot be read .no such file or directory.; check its path",
        ".": "cannot be read .is a directory.",
    }
    for name, why in told.items():
        with pytest.raises(InputError, match=why) as caught:
            load_csv(tmp_path / name)
        assert ("UTF-8" in str(caught.value)) == (name == "bytes.csv")


def test_another_encoding_is_proposed_by_the_bytes(tmp_path: Path) -> None:
    """latin-1 reads UTF-16, too, as text that nobody wrote."""
    (path := tmp_path / "t.csv").write_text(GOOD, "utf-16")
    with pytest.raises(InputError, match='encoding = "utf-16"'):
        load_csv(path)


def test_a_listed_category_is_a_value(tmp_path: Path) -> None:
    """Texts such as NA and None are no missing values where the schema lists them, and are in all other columns."""
    (path := tmp_path / "t.csv").write_text("alley,site,days\nNA,None,1\n,A,NA\ngravel,B,3\n")
    alley = Column("alley", "category", categories=("gravel", "NA"), fill="gravel")
    schema = Schema((alley, Column("days", lower=0, upper=9, fill=5)))
    table = read_table(path, schema=schema)
    assert Records.from_frame(table, schema).x.tolist() == [[1, 1], [0, 5], [0, 3]]
    assert table["site"].isna().tolist() == [True, False, False]


def test_unknown_names_list_the_known_ones(tmp_path: Path) -> None:
    """A set, a target of a file, a target of a bundled set, a schema."""
    (tmp_path / "table.csv").write_text(GOOD)
    with pytest.raises(InputError, match="write one of diabetes"):
        load("diabetis")
    with pytest.raises(InputError, match="its columns are age, weight, risk"):
        load_csv(tmp_path / "table.csv", "riks")
    with pytest.raises(InputError, match="predicts 'progression'"):
        load("diabetes", "bmi")
    with pytest.raises(InputError, match="there are diabetes"):
        public_schema("diabetis")


@pytest.mark.parametrize(
    ("fault", "told"), [(OSError(), "cannot be reached"), (ValueError("7"), "knows no such set")]
)
def test_openml_faults_are_told(
    monkeypatch: pytest.MonkeyPatch, fault: Exception, told: str
) -> None:
    """No network and an unknown name are different errors."""

    def fetch(**_: object) -> None:
        raise fault

    monkeypatch.setattr(datasets, "fetch_openml", fetch)
    with pytest.raises(InputError, match=told):
        load("openml:nowhere")


def test_openml_gives_its_own_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fetched frame and its target are taken as they come."""
    monkeypatch.setattr(datasets, "fetch_openml", lambda **_: datasets.load_iris(as_frame=True))
    fetched = load_openml("iris")
    assert fetched.target == "target"
    assert len(fetched.frame) == 150


def test_a_european_export_is_read_as_it_is_written(tmp_path: Path) -> None:
    """Semicolons, commas before decimals, points between thousands."""
    path = tmp_path / "europe.csv"
    path.write_text("age;cost\n54,5;1.234,25\n61;987,5\n", encoding="utf-8")
    read = read_table(path, text=Text(";", decimal=",", thousands="."))
    assert read["age"].tolist() == [54.5, 61] and read["cost"].tolist() == [1234.25, 987.5]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"decimal": ","}, "not what splits"),
        ({"decimal": ";"}, "decimal must be"),
        ({"thousands": "x"}, "thousands must be"),
        ({"thousands": "."}, "thousands must be"),
    ],
)
def test_contradictory_marks_are_refused(options: dict[str, str], fault: str) -> None:
    """One mark has one meaning."""
    with pytest.raises(InputError, match=fault):
        Text(**options)


@pytest.mark.parametrize(
    ("cells", "european"),
    [
        (["54,5", "61"], True),
        (["1.234,5"], True),
        (["61", "62"], False),
        (["E11,9", "54,5"], False),
        (["a, b"], False),
        ([], False),
    ],
)
def test_commas_before_decimals_are_noticed(cells: list[str], european: bool) -> None:
    """Every cell is such a number, and one at least has a comma: a code is none."""
    assert looks_european(cells) is european


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (",age,weight,risk\n0,30,70,1\n1,40,80,2\n", "a column has no name and is"),
        ("age,weight,risk,\n30,70,1,\n40,80,2,\n", "a column has no name and is"),
        (",age, ,weight,risk\n0,30,,70,1\n1,40,,80,2\n", "2 columns have no name and are"),
    ],
)
def test_columns_without_a_name_are_left_out_with_a_note(
    tmp_path: Path, text: str, what: str
) -> None:
    """Row numbers as pandas and R write them, and what separators at the ends of lines make."""
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.warns(Note, match=f"table.csv: {what} left out; to use it, name it"):
        dataset = load_csv(path)
    assert list(dataset.frame) == columns(path) == ["age", "weight", "risk"]
    assert dataset.target == "risk" and dataset.frame.to_numpy().tolist() == [
        [30, 70, 1],
        [40, 80, 2],
    ]


def test_a_nameless_column_of_a_sheet_is_left_out_with_a_note(tmp_path: Path) -> None:
    """Row numbers, as pandas writes them."""
    pytest.importorskip("openpyxl")
    pd.DataFrame({"age": [30, 40], "risk": [1, 2]}).to_excel(tmp_path / "table.xlsx")
    with pytest.warns(Note, match="a column has no name and is left out"):
        assert list(read_table(tmp_path / "table.xlsx")) == ["age", "risk"]
