"""Structures, templates and their one path from root to leaf."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.learners.stl.canonical import canonical, parameters
from privfed.learners.stl.formula import Formula, RuleError, show
from privfed.learners.stl.grammar import Grammar, Symbols
from privfed.learners.stl.parser import parse
from privfed.tables.schema import Column, Schema

SMALL = Grammar((("b", 0.0, 1.0), ("a", -2.0, 2.0)), most_operators=2, horizon=3)


def _random_rule(rng: np.random.Generator, operators: int) -> str:
    if operators == 0:
        return f"({rng.choice(['a', 'b'])} {rng.choice(['<=', '>='])} {rng.integers(9) / 8})"
    sign = rng.choice(["&", "|", "->", "U[0,2]", "F[1,2]", "G[0,3]", "!"])
    if sign in ("F[1,2]", "G[0,3]", "!"):
        return f"{sign}({_random_rule(rng, operators - 1)})"
    left = int(rng.integers(operators))
    return f"({_random_rule(rng, left)}) {sign} ({_random_rule(rng, operators - 1 - left)})"


def _rules(count: int) -> list[Formula]:
    rng = np.random.default_rng(3)
    rules = (canonical(parse(_random_rule(rng, int(rng.integers(3))))) for _ in range(count))
    return [rule for rule in rules if "!" not in show(rule)]


def test_a_rule_is_its_structure_and_its_parameters() -> None:
    """Symbols and parameters together give the canonical rule back."""
    for rule in _rules(200):
        assert SMALL.formula(SMALL.structure(rule), parameters(rule)) == rule


def test_every_rule_has_one_path_through_the_continuations() -> None:
    """At each length exactly one of the sibling templates matches a rule."""
    for rule in _rules(200):
        structure = SMALL.structure(rule)
        template: Symbols = ()
        while SMALL.open(template):
            matching = [t for t in SMALL.continuations(template) if structure[: len(t)] == t]
            assert len(matching) == 1
            template = matching[0]
        assert template == structure


def test_every_template_can_be_completed() -> None:
    """No path of the search tree ends before a structure is complete, and none is met twice."""
    tiny = Grammar((("a", 0.0, 1.0),), ("&", "F"), ("<=", ">="), most_operators=2)
    ends = tiny.structures()
    assert all(tiny.open(structure) == 0 for structure in ends)
    canonical_ends = {
        s for s in ends if tiny.structure(canonical(tiny.formula(s, [0.5] * 20))) == s
    }
    assert len(set(ends)) == len(ends)
    assert len(canonical_ends) == len(ends) == 20


def test_whole_bounds_are_the_same_grammar() -> None:
    """Its digest says whether a cohort is the one that is asked about."""
    whole = Grammar((("b", 0, 1), ("a", -2, 2)), most_operators=2, horizon=3)
    assert repr(whole) == repr(SMALL)


def test_the_grammar_of_a_schema_carries_its_bounds() -> None:
    """Thresholds range over the schema's bounds, steps over the horizon."""
    schema = Schema((Column("hr", lower=20, upper=200), Column("bp", lower=40, upper=180)))
    grammar = Grammar.of(schema, horizon=5)
    structure = grammar.structure(canonical(parse("G[0,4](hr <= 80) & bp >= 60")))
    assert show(grammar.formula(structure)) == "(bp >= ?) & (G[?](hr <= ?))"
    assert grammar.ranges(structure) == [(40.0, 180.0), (0.0, 5.0), (0.0, 5.0), (20.0, 200.0)]


def test_the_papers_own_rule_loads() -> None:
    """DP-RuL, Table 1: an implication with "=" in its conclusion, once "=" is a relation."""
    schema = Schema(
        (Column("HbA1c", lower=4, upper=14), Column("Hypoglycemia", "integer", lower=0, upper=1))
    )
    rule = canonical(parse("G[0,4](HbA1c <= 7.571 -> Hypoglycemia = 1.0)"))
    grammar = Grammar.of(schema, relations=("<=", ">=", "="), horizon=10)
    structure = grammar.structure(rule)
    assert show(grammar.formula(structure)) == "G[?]((HbA1c >= ?) | (Hypoglycemia = ?))"
    with pytest.raises(RuleError, match="widen its operators or relations") as caught:
        Grammar.of(schema, horizon=10).structure(rule)
    assert "7.571" not in str(caught.value) and "Hypo" not in str(caught.value)


def test_a_template_shows_its_open_parts() -> None:
    """A prefix reads as a formula with question marks."""
    structure = SMALL.structure(canonical(parse("a <= 1 & b >= 0.5")))
    assert show(SMALL.formula(structure[:2])) == "(a <= ?) & (?)"


@pytest.mark.parametrize("variables", [(), (("a b", 0.0, 1.0),), (("a", 1.0, 1.0),)])
def test_a_grammar_needs_terminals(variables: tuple[tuple[str, float, float], ...]) -> None:
    """No variables, a name that no rule could hold, or empty bounds."""
    with pytest.raises(RuleError, match=r"terminals|variable"):
        Grammar(variables)


@pytest.mark.parametrize("rule", ["z <= 1", "a = 1", "a <= 1 & (a >= 0 & (b <= 1 & b >= 0))"])
def test_rules_outside_the_grammar(rule: str) -> None:
    """An unknown variable or relation, or too many operators."""
    with pytest.raises(RuleError, match=r"outside the grammar|operators"):
        SMALL.structure(canonical(parse(rule)))


@pytest.mark.parametrize("template", [(99,), (1, 1), (0,)])
def test_malformed_templates(template: Symbols) -> None:
    """Unknown symbols, and symbols after the end."""
    with pytest.raises(RuleError, match="template"):
        SMALL.check(template)
