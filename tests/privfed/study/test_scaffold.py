"""The beginning of a schema: names and kinds, and nothing that any record holds."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from privfed.cli import BAD_INPUT, FINE, status
from privfed.errors import InputError, SchemaError
from privfed.study.scaffold import schema_text
from privfed.tables.csv_text import Text
from privfed.tables.schema import Schema

TABLE = (
    'age;income;sex;"of ""note"""\n41;1234.5;female;2017\n;987.25;Jane Doe;\n63;17.5;male;2018\n'
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A file with numbers, whole numbers, texts and an odd name, split by semicolons."""
    (tmp_path / "table.csv").write_text(TABLE)
    return tmp_path / "table.csv"


def test_no_value_is_written(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither extremes nor categories; kinds follow from the columns' types."""
    assert status(["schema", str(table), "--sep", ";", "--target", "income"]) == FINE
    text = capsys.readouterr().out
    plain = tomllib.loads(text)
    assert [(c["name"], c["kind"]) for c in plain["column"]] == [
        ("age", "integer"),
        ("income", "number"),
        ("sex", "category"),
        ('of "note"', "integer"),
    ]
    assert plain["target"] == "income" and set(plain["column"][0]) == {"name", "kind"}
    values = {cell for line in TABLE.splitlines()[1:] for cell in line.split(";") if cell}
    assert not [value for value in values if value in text]


def test_reading_it_tells_all_that_is_left_to_fill_in(table: Path, tmp_path: Path) -> None:
    """A fault a column, at once; filled in, it is a schema."""
    out = tmp_path / "schema.toml"
    assert status(["schema", str(table), "--sep", ";", "--out", str(out)]) == FINE
    with pytest.raises(SchemaError) as caught:
        Schema.from_toml(out)
    assert len(caught.value.faults) == 4
    text = (
        out.read_text().replace("# lower = ...", "lower = 0").replace("# upper = ...", "upper = 9")
    )
    out.write_text(text.replace('# categories = ["...", "..."]', 'categories = ["a", "b"]'))
    assert len(Schema.from_toml(out).features) == 4
    assert status(["schema", str(table), "--sep", ";", "--out", str(out)]) == BAD_INPUT
    assert "lower = 0" in out.read_text()


def test_categories_are_written_on_demand_and_mark_the_file(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read off the records, they are a release, and the schema says so for good."""
    assert status(["schema", str(table), "--sep", ";", "--categories"]) == FINE
    plain = tomllib.loads(capsys.readouterr().out)
    assert plain["inferred"] is True
    assert plain["column"][2]["categories"] == ["Jane Doe", "female", "male"]


def test_a_form_that_nobody_named_is_proposed(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And written above the schema, as a study needs it."""
    assert status(["schema", str(table)]) == FINE
    text = capsys.readouterr().out
    assert '#   sep = ";"\n' in text and "encoding" not in text
    plain = tmp_path / "plain.csv"
    plain.write_text("a,b\n1,2\n", encoding="utf-8")
    assert "read as follows" not in schema_text(plain, None)


def test_names_and_dates_are_no_categories(tmp_path: Path) -> None:
    """A template says so; asked for categories, it is not written."""
    path = tmp_path / "table.csv"
    rows = [f"Jane {i},2021-03-{i % 28 + 1:02d},{i}" for i in range(60)]
    path.write_text("\n".join(["name,day,age", *rows]) + "\n", encoding="utf-8")
    text = schema_text(path, None)
    assert text.count("# This column holds") == 2 and "holds dates" in text and "Jane" not in text
    with pytest.raises(InputError, match="'name' holds a text of its own") as caught:
        schema_text(path, None, categories=True)
    assert "Jane" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--decimal", "."], 'write sep = ";"'),
        (["--sep", ";", "--target", "incme"], "did you mean 'income'"),
        (["--sep", ";;"], "sep must be one character"),
        (["--encoding", "latin1e"], "no encoding 'latin1e'"),
    ],
)
def test_a_slip_is_one_line(
    arguments: list[str], told: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what to write instead."""
    assert status(["schema", str(table), *arguments]) == BAD_INPUT
    assert told in capsys.readouterr().err


def test_numbers_with_decimal_commas_are_no_categories(tmp_path: Path) -> None:
    """A template would list them as such; the error names the columns and what to write."""
    path = tmp_path / "europe.csv"
    path.write_text("age;ward\n54,5;A\n61;B\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"'age' have commas .* write --decimal"):
        schema_text(path, None, text=Text(";"))
    assert 'kind = "number"' in schema_text(path, None, text=Text(";", decimal=","))
