"""Rule files are read by line, and errors give nothing of a line away."""

from __future__ import annotations

from pathlib import Path

import pytest

from privfed.learners.stl.formula import RuleError
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.rule_file import parse_rules, read_rules, write_rules

GRAMMAR = Grammar((("hr", 0.0, 200.0), ("bp", 0.0, 200.0)), horizon=4)


def test_rules_survive_the_file(tmp_path: Path) -> None:
    """What is written reads back exactly, comments and empty lines aside."""
    rules = parse_rules(["# vital signs", "", "hr <= 86.7 U[1,2] bp <= 83.9", "bp > 0.1"], GRAMMAR)
    write_rules(tmp_path / "rules.stl", rules)
    assert read_rules(tmp_path / "rules.stl", GRAMMAR) == rules
    assert len(rules) == 2


@pytest.mark.parametrize(
    "line",
    [
        "hr <= 61.5 & lactate >= 61.5",
        "hr <= 61.5 &",
        "hr <= ? | bp >= 61.5",
        "!(hr <= 61.5 U[0,1] bp >= 1)",
    ],
)
def test_a_bad_line_is_named_and_not_shown(line: str) -> None:
    """The message holds the line's number and no value of it."""
    with pytest.raises(RuleError, match="rules, line 2") as caught:
        parse_rules(["hr <= 1", line], GRAMMAR)
    assert "61.5" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(RuleError, match=r"absent\.stl"):
        read_rules(tmp_path / "absent.stl", GRAMMAR)
