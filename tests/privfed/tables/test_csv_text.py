"""How tables are written: what a file's first lines propose, and what is read by it."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from zipfile import ZipFile

import pandas as pd
import pytest

from privfed.errors import InputError
from privfed.tables.csv_text import Text, proposed
from privfed.tables.sources import columns, load, read_table

GERMAN = "Größe;Lohn;Tag\n1,5;12.345,50;05.03.2021\n17;;06.03.2021\n8,25;9.000;07.03.2021\n"
FORM = Text(";", "utf-8", ",", ".")


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ("a,b\n1,2\n", Text()),
        ("a;b\n1;2\n", Text(";")),
        ("a\tb,c\n1\t2\n", Text("\t")),
        (GERMAN, FORM),
        ('a,b\n"1,234.5",x\n"12,345",y\n', Text(thousands=",")),
        ("a;b\n1 234,5;1\n2 000;3\n", Text(";", "utf-8", ",", " ")),
        ("a;b\nE11,9;1\nI10;3\n", Text(";")),
        ("a,b\n", Text()),
        ("", Text()),
    ],
)
def test_the_first_lines_propose_how_a_table_is_written(
    written: str, form: Text, tmp_path: Path
) -> None:
    """Separator, decimals, groups; a code with a comma is no number."""
    path = tmp_path / "table.csv"
    path.write_text(written, encoding="utf-8")
    assert proposed(path) == form


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "zip"])
def test_packed_tables_are_read_as_plain_ones(ending: str, encoding: str, tmp_path: Path) -> None:
    """Whatever the encoding; days stay texts, though their points look like groups."""
    path, written = tmp_path / f"lohn.{ending}", GERMAN.encode(encoding)
    if ending == "zip":
        with ZipFile(path, "w") as archive:
            archive.writestr("__MACOSX/._lohn.csv", b"")
            archive.writestr("lohn.csv", written)
    else:
        path.write_bytes(gzip.compress(written) if ending == "csv.gz" else written)
    text = proposed(path)
    expected = pd.read_csv(io.StringIO(GERMAN), sep=";", decimal=",")
    expected["Lohn"] = [12345.5, None, 9000.0]
    assert columns(path, text=text) == ["Größe", "Lohn", "Tag"]
    pd.testing.assert_frame_equal(read_table(path, text=text), expected)
    assert load(f"lohn.{ending}", "Lohn", tmp_path, text=text).name == "lohn"


def test_an_excel_sheet_is_read(tmp_path: Path) -> None:
    """Its first, as it stands."""
    frame = pd.DataFrame({"age": [30, 40], "weight": [70.5, None], "ward": ["A", "B"]})
    frame.to_excel(tmp_path / "table.xlsx", index=False)
    pd.testing.assert_frame_equal(read_table(tmp_path / "table.xlsx"), frame)
    assert columns(tmp_path / "table.xlsx") == list(frame)
    twice = pd.DataFrame([[1, 2]], columns=["age", "age"])
    twice.to_excel(tmp_path / "twice.xlsx", index=False)
    with pytest.raises(InputError, match="stands twice in the header"):
        read_table(tmp_path / "twice.xlsx")


@pytest.mark.parametrize("ending", ["csv.gz", "zip", "xlsx"])
def test_a_file_that_is_none_is_told_in_one_line(ending: str, tmp_path: Path) -> None:
    """Cut off or of another form: an InputError that names it."""
    path = tmp_path / f"table.{ending}"
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(InputError, match=rf"table\.{ending}"):
        read_table(path)


def test_an_archive_of_two_tables_is_refused(tmp_path: Path) -> None:
    """Which of them would be read is nobody's guess."""
    with ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", "a,b\n1,2\n")
        archive.writestr("b.csv", "a,b\n1,2\n")
    with pytest.raises(InputError, match="holds 2 files"):
        read_table(tmp_path / "two.zip")
