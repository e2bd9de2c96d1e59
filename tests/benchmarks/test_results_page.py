"""The pages of results are what their command makes of the tables."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from result_rows import code
from results_page import COVERAGE, LARGEST, ROOT, SECTIONS, STALE, TABLES, pages
from results_pictures import PICTURES, draw


def page(folder: Path) -> str:
    """All pages, one below the other."""
    return "\n".join(pages(folder).values())


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """The pages of all tables."""
    return pages(TABLES)


def fresh(text: str) -> list[str]:
    """A page's lines but those on what is stale, which changes with every learner's code."""
    lines = text.replace(" (stale)", "").splitlines()
    return [line for line in lines if not line.startswith(STALE)]


def test_a_table_is_stale_where_the_learners_code_changed_since(tmp_path: Path) -> None:
    """One row of other code is enough; without a digest nothing is said."""
    now = code("genetic_tree")
    heading = "paper,table,row,column,theirs,ours,spread,note,commit,seed,machine,code\n"
    rows = [
        ("Figure 3", now),
        ("Figure 3", "genetic_tree 123"),
        ("Figure 8", now),
        ("Figure 8", ""),
    ]
    lines = [f"P,{table},r{n},c,,1,,n{table},abc,7,m,{at}\n" for n, (table, at) in enumerate(rows)]
    (tmp_path / "genetic_x.csv").write_text(heading + "".join(lines))
    told = page(tmp_path)
    assert told.count(STALE) == 1
    flag = told.index(f"{STALE} `learners/genetic_tree` changed since.")
    assert told.index("Figure 3 (P)") < flag < told.index("Figure 8 (P)")


def test_no_cell_of_a_table_stands_in_two_files(tmp_path: Path) -> None:
    """Their mean would be shown, with a deviation that is none of seeds."""
    heading = "paper,table,row,column,theirs,ours,spread,note,commit,seed,machine\n"
    for name, row in (("genetic_x", "r"), ("genetic_y", "other")):
        (tmp_path / f"{name}.csv").write_text(f"{heading}P,Figure 3,{row},c,,1,,,abc,7,m\n")
    assert "Figure 3" in page(tmp_path)
    (tmp_path / "genetic_y.csv").write_text(f"{heading}P,Figure 3,r,c,,1,,,abc,7,m\n")
    with pytest.raises(
        SystemExit, match=r"genetic_x\.csv, genetic_y\.csv: both have Figure 3, r, c"
    ):
        page(tmp_path)


def test_the_pages_are_what_the_command_makes(made: dict[str, str]) -> None:
    """To the letter but for what is stale by now, each short enough; the pictures that they show are there."""
    for name, told in made.items():
        written = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert fresh(written) == fresh(told), "run: python benchmarks/results_page.py"
        assert len("\n".join(fresh(told)).encode()) <= LARGEST, name
    assert all((ROOT / "docs" / "results" / f"{name}.png").exists() for name in PICTURES)


def test_every_page_is_summed_up_on_the_first(made: dict[str, str]) -> None:
    """With a link to it, and a sentence on what holds and on what does not."""
    summary = [line for line in made["results.md"].splitlines() if line.startswith("| [")]
    others = [name for name in made if name != "results.md"]
    assert len(summary) == len(others) >= 6
    for line, name in zip(summary, others, strict=True):
        link, holds, fails = line.strip("| ").split(" | ")
        heading = made[name].splitlines()[0].removeprefix("# ")
        assert link == f"[{heading}]({name})"
        assert len(holds) > 20 and len(fails) > 20


def test_every_figure_of_a_paper_is_said_to_be_run_reduced_or_not(made: dict[str, str]) -> None:
    """On its section's page, with our repetitions beside the paper's; what was measured is in a file."""
    known = pd.read_csv(COVERAGE, dtype=str, keep_default_na=False)
    assert set(known["state"]) <= {"run", "reduced", "not run"}
    assert not known.duplicated(["section", "item"]).any()
    for row in known.to_dict("records"):
        told = made[f"results-{row['section'].replace('_', '-')}.md"]
        shown = " | ".join(row[key] for key in ("item", "shows", "state", "ours", "paper"))
        assert f"| {shown} |" in told
        assert bool(row["ours"]) is (row["state"] != "not run") and row["section"] in SECTIONS
    measured = pd.concat(pd.read_csv(file, dtype=str) for file in TABLES.glob("genetic_*.csv"))
    figures = set(measured["table"].str.extract(r"^(Figure \d+(?: \(.\))?)")[0].dropna())
    listed = set(known["item"][(known["section"] == "genetic") & (known["state"] != "not run")])
    assert all({one, one.partition(" (")[0]} & listed for one in figures)
    assert listed <= figures | {one.partition(" (")[0] for one in figures}


def test_the_repetitions_said_of_a_figure_are_those_in_its_file() -> None:
    """By its table's note, or by its seeds; every number that is counted in seeds, splits, runs and the like."""
    known = pd.read_csv(COVERAGE, dtype=str, keep_default_na=False)
    checked = 0
    for row in known[known["state"] != "not run"].to_dict("records"):
        files = [pd.read_csv(file, dtype=str) for file in TABLES.glob(f"{row['section']}_*.csv")]
        tables = pd.concat(one for one in files if "table" in one).fillna("")
        for count, unit in re.findall(r"(\d+) (seed|split|run|draw|repetition)s?\b", row["ours"]):
            item = re.sub(r" \(Appendix (\w)\)", "", row["item"])
            own = tables[tables["table"].str.contains(rf"\b{re.escape(item)}(?!\d)")]
            found = {
                one for told in own["note"] for one in re.findall(rf"(\d+)[\w' ]* {unit}s?\b", told)
            }
            ends = own["seed"].str.extract(r"^0 to (\d+)$")[0].dropna().astype(int) + 1
            if found := found or set(ends.astype(str)):
                assert count in found, (row["section"], item, found)
                checked += 1
    assert checked > 20


def test_words_for_the_summary_stand_there_alone(tmp_path: Path) -> None:
    """The other paragraphs make the section's text."""
    (tmp_path / "genetic_x.csv").write_text("set,prior,commit\ns,1,abc\n")
    (tmp_path / "genetic.md").write_text("Reproduced: this\nand that.\n\nNot: at all.\n")
    told = page(tmp_path)
    assert "| [FedGA-Tree](results-genetic.md) | this and that. |  |" in told
    assert "**Reproduced:** this\nand that." in told
    assert "Not: at all." in told


def test_tables_come_in_the_paper_s_order(tmp_path: Path) -> None:
    """By number, figures after tables; what stands below two in a row stands there once."""
    heading = "paper,table,row,column,theirs,ours,spread,note,commit,seed,machine\n"
    lines = ["Figure 2,r,c,,1,,n", "Table 10,r,c,,1,,n", "Table 9,r,c,,1,,n", "Else,r,c,,1,,m"]
    (tmp_path / "forest_x.csv").write_text(
        heading + "".join(f"P,{line},abc,7,small\n" for line in lines)
    )
    told = page(tmp_path)
    found = [line[3:-4] for line in told.splitlines() if line.startswith("## ")]
    assert found == ["Table 9", "Table 10", "Figure 2", "Else"]
    assert told.count("- n\n") == told.count("- m\n") == 1
    assert told.index("Figure 2 (P)") < told.index("- n\n") < told.index("Else (P)")


def test_the_pictures_are_drawn_from_the_tables(tmp_path: Path) -> None:
    """One file for each, none of them empty."""
    draw(TABLES, tmp_path)
    assert {file.stem for file in tmp_path.iterdir()} == set(PICTURES)
    assert all(file.stat().st_size > 10_000 for file in tmp_path.iterdir())


def test_a_papers_figure_stands_beside_ours(tmp_path: Path) -> None:
    """Theirs in brackets, what was not run says so, repetitions become their mean."""
    (tmp_path / "genetic_x.csv").write_text(
        "paper,table,row,column,theirs,ours,spread,note,commit,seed,machine\n"
        "P,Table 1,a,gain,5.58,2.2,.31,one split,abc,7,small\n"
        "P,Table 1,b,gain,4.1,,,,abc,7,small\n"
        'P,Table 1,a,"score, 1 of 2",,1,,,abc,7,small\n'
        'P,Table 1,a,"score, 2 of 2",,3,,,abc,8,small\n'
    )
    told = page(tmp_path)
    assert "# FedGA-Tree" in told
    assert "| a | 2.20 ± 0.31 (5.58) | 2.0 ± 1.4 |" in told
    assert "| b | not run (4.1) |  |" in told
    assert "- one split\n- Measured at commit abc; seed 7, 8; machine small." in told


def test_the_best_private_learner_is_marked_and_counted(tmp_path: Path) -> None:
    """The lowest of an error, the highest of anything else."""
    (tmp_path / "private_x.csv").write_text(
        "set,epsilon,learner,metric,value,spread,commit,seed\n"
        "s,1,tree,RMSE,.5,.1,abc,1\ns,1,peer,RMSE,.6,.1,abc,1\n"
        "s,1,tree,AUC,.7,,abc,1\ns,1,peer,AUC,.8,,abc,1\ns,4,peer,AUC,.9,,abc,1\n"
    )
    told = page(tmp_path)
    assert "| s | 1 | **0.50** ± 0.10 | 0.60 ± 0.10 |" in told
    assert "| s | 1 | 0.7 | **0.8** |" in told
    assert "| s | 4 | not run | **0.9** |" in told
    assert "Best of 2 lines: tree 0, peer 2." in told


def test_a_table_of_another_layout_is_shown_as_it_is(tmp_path: Path) -> None:
    """With its own heading, and where it comes from below."""
    (tmp_path / "private_x.csv").write_text("set,prior,commit\ns,0.12345,abc\n")
    told = page(tmp_path)
    assert "## set by prior" in told
    assert "| s | 0.1234 |" in told or "| s | 0.1235 |" in told
    assert "- Measured at commit abc." in told
