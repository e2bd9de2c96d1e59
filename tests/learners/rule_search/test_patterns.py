"""Templates that are open anywhere: which rules they match, and what asking about them tells."""

from __future__ import annotations

from fractions import Fraction

import pytest

from privfed.engines.cohort import CohortDisclosure
from privfed.errors import QueryError
from privfed.learners import LevelRuleSearch
from privfed.learners.rule_search.patterns import PatternBit, ask_pattern
from privfed.learners.rule_search.queries import Asked
from privfed.learners.rule_search.rule_book import RuleBook
from privfed.learners.stl.canonical import canonical, matches, pattern
from privfed.learners.stl.formula import RuleError
from privfed.learners.stl.grammar import Grammar
from privfed.learners.stl.parser import parse

GRAMMAR = Grammar(
    (("HbA1c", 4.0, 14.0), ("Hypo", 0.0, 1.0), ("x", 0.0, 1.0)),
    relations=("<=", ">=", "="), horizon=10,
)  # fmt: skip
RULES = {
    "ann": ["G[0,4](HbA1c <= 7.571 -> Hypo = 1.0)"],
    "bob": ["G[0,2](x >= 0.5 -> Hypo = 0)", "F[1,3](HbA1c >= 9)"],
    "eve": ["HbA1c >= 9 & (x <= 0.5 & Hypo = 1)"],
    "joe": [],
}


@pytest.mark.parametrize(
    ("template", "rule", "expected"),
    [
        ("G[?](? -> Hypo = ?)", "G[0,4](HbA1c <= 7 -> Hypo = 1)", True),
        ("G[?](HbA1c <= ? -> ?)", "G[0,4](HbA1c <= 7 -> Hypo = 1)", True),
        ("G[?](HbA1c >= ? -> ?)", "G[0,4](HbA1c <= 7 -> Hypo = 1)", False),
        ("F[?](?)", "G[0,4](HbA1c <= 7 -> Hypo = 1)", False),
        ("? & x <= ?", "HbA1c >= 9 & (x <= 0.5 & Hypo = 1)", True),
        ("x <= ? & ?", "HbA1c >= 9 & x <= 0.5", True),
        ("x <= ? & (? & ?)", "HbA1c >= 9 & x <= 0.5", False),
        ("x <= ? & Hypo = ?", "HbA1c >= 9 & (x <= 0.5 & Hypo = 1)", False),
        ("x <= ? & x <= ?", "x <= 0.5 & Hypo = 1", False),
        ("? U[?] x <= ?", "HbA1c >= 9 U[0,3] x <= 1", True),
        ("!(? U[?] ?)", "!(HbA1c >= 9 U[0,3] x <= 1)", True),
        ("!(x <= ?)", "x >= 3", True),
        ("?", "x >= 3", True),
        ("x >= 0.5", "x >= 3", True),
        ("x ? ?", "x >= 3", True),
        ("x ? 2", "Hypo = 1", False),
        ("x ? ?", "!(x = 3)", False),
        ("!(x ? ?)", "x >= 3", True),
        ("!(x ? ?)", "!(x = 3)", True),
        ("!(x ? ?)", "x = 3", False),
        ("!(x = ?)", "x >= 3", False),
        ("!(x = ?)", "!(Hypo = 3)", False),
        ("? = ?", "Hypo = 1", True),
        ("? = 1", "x >= 1", False),
        ("!(? ? ?)", "Hypo <= 1", True),
        ("? ? ?", "F[0,2](x >= 1)", False),
        ("G[?](? ? ? -> Hypo ? 1)", "G[0,4](HbA1c <= 7 -> Hypo = 1)", True),
        ("F[0,?](x >= ?)", "F[0,2](x >= 1)", True),
        ("F[?,9](x >= ?)", "F[0,2](x >= 1)", True),
        ("x <= ? U[?,?] x >= ?", "x <= 1 U[0,2] x >= 1", True),
    ],
)
def test_what_a_template_matches(template: str, rule: str, expected: bool) -> None:
    """Open parts match anything; operands are matched in any order, parameters never."""
    assert matches(pattern(parse(template)), canonical(parse(rule))) is expected


def test_who_holds_a_rule_of_a_shape() -> None:
    """With hardly any noise the estimate is the number of holders."""
    held = {who: [canonical(parse(text)) for text in texts] for who, texts in RULES.items()}
    book = RuleBook.of(held, GRAMMAR)
    policy = LevelRuleSearch(epsilon="20").private("200")
    federation = CohortDisclosure.of(book, policy, seed=1)
    for template, number in (("G[?](? -> Hypo = ?)", 2), ("? & ?", 1), ("HbA1c = ?", 0), ("?", 3)):
        told = ask_pattern(federation, GRAMMAR, template=template, people=4, spend=Fraction(20))
        assert told.estimate[0] == pytest.approx(number, abs=1e-3)
        assert told.people == 4
    with pytest.raises(RuleError, match="column"):
        ask_pattern(federation, GRAMMAR, template="x <=", people=4, spend=Fraction(1))
    assert federation.budget()["spent"].max() == 80


def test_a_query_with_no_template_is_refused() -> None:
    """A foreign sender's text is held to the grammar too, and one bit is one bit."""
    who, digest = Asked.everybody(4), GRAMMAR.digest
    with pytest.raises(QueryError, match="outside the grammar"):
        PatternBit(who, digest, "x <").parts(RuleBook.of({"a": []}, GRAMMAR).schema)
