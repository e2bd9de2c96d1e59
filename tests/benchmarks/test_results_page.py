"""The results page is what its command makes of the tables."""

from __future__ import annotations

from pathlib import Path

from results_page import ROOT, TABLES, page, pictures


def test_the_page_is_what_the_command_makes() -> None:
    """To the letter; the pictures that it shows are there."""
    written = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert written == page(TABLES), "run: python benchmarks/results_page.py"
    for section in ("rulefit", "rule_search"):
        assert all(picture.exists() for picture in pictures(TABLES, section))


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
    assert "## FedGA-Tree" in told
    assert "| a | 2.2 ± 0.31 (5.58) | 2 ± 1.4 |" in told
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
    assert "| s | 1 | **0.5** ± 0.1 | 0.6 ± 0.1 |" in told
    assert "| s | 1 | 0.7 | **0.8** |" in told
    assert "| s | 4 | not run | **0.9** |" in told
    assert "Best of 2 lines: tree 0, peer 2." in told


def test_a_table_of_another_layout_is_shown_as_it_is(tmp_path: Path) -> None:
    """With its own heading, and where it comes from below."""
    (tmp_path / "private_x.csv").write_text("set,prior,commit\ns,0.12345,abc\n")
    told = page(tmp_path)
    assert "### set by prior" in told
    assert "| s | 0.1234 |" in told or "| s | 0.1235 |" in told
    assert "- Measured at commit abc." in told
