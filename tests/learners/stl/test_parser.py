"""Text to formula and back."""

from __future__ import annotations

import pytest

from privfed.learners.stl.canonical import canonical
from privfed.learners.stl.formula import (
    Atom,
    Connective,
    Not,
    RuleError,
    Temporal,
    Until,
    show,
)
from privfed.learners.stl.parser import MAX_DEPTH, MAX_SYMBOLS, parse


@pytest.mark.parametrize(
    "text",
    [
        "G[0,1](Mort <= 0.505 & O2_Flow >= 2.411)",
        "((hr <= 86.7) U[1,2] (MAP <= 83.9))",
        "F[0,1]((a >= 1 -> b <= 2) | c >= 3)",
        "!(a = 1) & F[?](? | b <= ?)",
        "G < -1.5e-3 & F > .5 & U = 2",
    ],
)
def test_what_is_written_reads_back(text: str) -> None:
    """Writing and reading again gives the same formula."""
    formula = parse(text)
    assert parse(show(formula)) == formula


def test_precedence() -> None:
    """Temporal operators bind tightest, then U, and, or; implication is loosest."""
    a, b, c = Atom("a", "<=", 1.0), Atom("b", "<=", 2.0), Atom("c", "<=", 3.0)
    assert parse("a <= 1 | b <= 2 & c <= 3") == Connective("|", a, Connective("&", b, c))
    assert parse("a <= 1 -> b <= 2 -> c <= 3") == Connective("->", a, Connective("->", b, c))
    assert parse("F[0,1] a <= 1 & b <= 2") == Connective("&", Temporal("F", (0, 1), a), b)
    assert parse("a <= 1 U[0,1] b <= 2 & c <= 3") == Connective("&", Until((0, 1), a, b), c)
    assert parse("!a <= 1 & b <= 2") == Connective("&", Not(a), b)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("b <= 1 & a <= 2", "a <= 2 & b <= 1"),
        ("(a <= 1 & b <= 1) & c <= 1", "c <= 1 & (b <= 1 & a <= 1)"),
        ("a <= 1 -> b <= 1", "a >= 1 | b <= 1"),
        ("!(F[0,2](a <= 1))", "G[0,2](a >= 1)"),
        ("!(a <= 1 & b <= 1)", "b >= 1 | a >= 1"),
        ("!!(a U[0,1] b <= 1)".replace("a U", "a <= 0 U"), "a <= 0 U[0,1] b <= 1"),
    ],
)
def test_equal_meanings_share_one_canonical_form(one: str, other: str) -> None:
    """Order, grouping, implication and double negation do not matter."""
    assert canonical(parse(one)) == canonical(parse(other))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1"),
        ("a <= 1 &", "expected a variable"),
        ("a 7.25", "column 3: expected a relation"),
        ("a <= b", "expected a number"),
        ("(a <= 1", r"expected '\)'"),
        ("a <= 1 b", "expected the end"),
        ("F[0.5,2](a <= 1)", "whole steps"),
        ("F[3,2](a <= 1)", "first <= last"),
        ("a <= 1 # b", "no symbol"),
        ("(" * (MAX_DEPTH + 5) + "a <= 1", "nested"),
        ("a <= 1 & " * MAX_SYMBOLS + "a <= 1", "symbols"),
        ("a <= " + "9" * 400, "finite"),
    ],
)
def test_texts_outside_the_grammar(text: str, message: str) -> None:
    """The error says where, and never repeats a number."""
    with pytest.raises(RuleError, match=message) as caught:
        parse(text)
    assert "7.25" not in str(caught.value)
