"""Results are written in one format, with their source, and never replaced by fewer or by double ones."""

from __future__ import annotations

import csv
from hashlib import sha256
from pathlib import Path

import pandas as pd
import pytest
import result_rows
from result_rows import PAPER_KEYS, SOURCE, PaperRows, arguments, write_rows


def test_cells_are_written_with_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers in five digits, what is not there empty, and the origin in every row."""
    monkeypatch.setattr(result_rows, "RESULTS", tmp_path / "results")
    rows = PaperRows("a paper", "7")
    rows.add("Table 1", "one", column="RMSE", theirs=0.1234567, ours=1 / 3, spread=0.5)
    rows.add("Table 1", "two", column="p", theirs="equal", ours=1.0, note="exactly")
    with rows.write("some").open(encoding="utf-8") as file:
        first, second = csv.DictReader(file)
    assert tuple(first) == (*PAPER_KEYS, "theirs", "ours", "spread", "note", *SOURCE)
    assert (first["theirs"], first["ours"], first["spread"]) == ("0.12346", "0.33333", "0.5")
    assert (second["theirs"], second["spread"], second["note"]) == ("equal", "", "exactly")
    assert all(row["seed"] == "7" and row["commit"] and "processor" in row["machine"]
               for row in (first, second))  # fmt: skip
    assert first["date"] == result_rows.today()


def test_code_is_known_by_what_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments, docstrings and layout change nothing; an operator does."""
    same = (
        'def f(x):\n    """Add."""\n    return x + 1\n',
        "def f(x):\n  'Other.'\n  return x+1  # one\n",
    )
    assert result_rows.meaning(same[0]) == result_rows.meaning(same[1])
    assert result_rows.meaning(same[0]) != result_rows.meaning(same[0].replace("+", "-"))
    folder, file = (result_rows.code(one) for one in ("forest", "benchmarks/peers/linear.py"))
    assert len({folder.split()[1], file.split()[1], sha256().hexdigest()[:12]}) == 3
    monkeypatch.setattr(result_rows, "RESULTS", tmp_path / "benchmarks" / "results")
    path = write_rows(rows_of("wine"), "forest_x", ("set",), seed="0")
    assert pd.read_csv(path)["code"][0].startswith("forest ")


def rows_of(*sets: str, epsilon: float = 1.0) -> pd.DataFrame:
    """One measurement for each set."""
    return pd.DataFrame([{"set": name, "epsilon": epsilon, "value": 0.5} for name in sets])


def test_fewer_rows_never_replace_more(tmp_path: Path) -> None:
    """A run on a subset is refused, and the file stays; one that measures all again is written."""
    path = tmp_path / "found.csv"
    keys = ("set", "epsilon")
    write_rows(rows_of("wine", "trauma"), path, keys, seed="0")
    before = path.read_bytes()
    with pytest.raises(SystemExit, match="1 of its 2 rows are not among the 1 new ones"):
        write_rows(rows_of("wine"), path, keys, seed="1")
    with pytest.raises(SystemExit, match="2 of its 2 rows"):
        write_rows(rows_of("wine", "trauma", epsilon=2), path, keys, seed="1")
    with pytest.raises(SystemExit, match="another table"):
        write_rows(rows_of("wine", "trauma").assign(cost=["x", "y"]), path, ("cost",), seed="1")
    assert path.read_bytes() == before
    write_rows(rows_of("wine", "trauma", "abalone"), path, keys, seed="1")
    assert list(pd.read_csv(path)["seed"]) == [1, 1, 1]


def test_two_rows_of_the_same_factors_are_refused(tmp_path: Path) -> None:
    """However their numbers are written."""
    twice = pd.concat([rows_of("wine"), rows_of("wine").astype({"epsilon": str})])
    with pytest.raises(SystemExit, match="two rows of wine, 1"):
        write_rows(twice, tmp_path / "found.csv", ("set", "epsilon"), seed="0")
    assert not (tmp_path / "found.csv").exists()


def test_a_row_s_own_seed_is_kept(tmp_path: Path) -> None:
    """Where each row is of one seed, the file says which."""
    rows = rows_of("wine", "trauma").assign(seed=[3, 4])
    path = write_rows(rows, tmp_path / "a" / "found.csv", ("set", "seed"), seed="none", note="n")
    told = pd.read_csv(path)
    assert list(told["seed"]) == [3, 4] and set(told["note"]) == {"n"}


def test_arguments_are_named_alike_everywhere() -> None:
    """Seeds, the first of them, and lists of the type of their defaults."""
    parser = arguments("What it is.\n\nMore.", seeds=2, first_seed=100, data=["a"], rows=[5])
    given = parser.parse_args(["--rows", "7", "8"])
    assert (given.seeds, given.first_seed, given.data, given.rows) == (2, 100, ["a"], [7, 8])
    assert parser.description == "What it is."


def test_every_benchmark_reads_its_arguments() -> None:
    """None measures for an hour whoever asked it for --help."""
    programs = {
        path.name: text
        for path in Path(result_rows.__file__).parent.glob("*.py")
        if '\nif __name__ == "__main__":' in (text := path.read_text(encoding="utf-8"))
    }
    assert len(programs) > 40
    deaf = [name for name, text in programs.items() if "parse_args(" not in text]
    assert not deaf
