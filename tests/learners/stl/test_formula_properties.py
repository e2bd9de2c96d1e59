"""What holds of every formula: texts, canonical forms, structures and files, by random search."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.learners.stl import formula as stl
from privfed.learners.stl.canonical import canonical, parameters
from privfed.learners.stl.formula import robustness
from privfed.learners.stl.grammar import OPERATORS, Grammar
from privfed.learners.stl.parser import parse
from privfed.learners.stl.rule_file import read_rules, write_rules

NAMES = ("G", "U", "a", "b.c_2")
THRESHOLDS = st.floats(-1e12, 1e12, allow_nan=False)
INTERVALS = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda ab: (min(ab), max(ab)))
RELATIONS = st.sampled_from(["<=", ">=", "="])
ATOMS = st.builds(stl.Atom, st.sampled_from(NAMES), RELATIONS, THRESHOLDS)


def _formulas(
    leaves: st.SearchStrategy[stl.Formula], intervals: st.SearchStrategy[tuple[int, int] | None]
) -> st.SearchStrategy[stl.Formula]:
    return st.recursive(
        leaves,
        lambda parts: st.one_of(
            st.builds(stl.Not, parts),
            st.builds(stl.Connective, st.sampled_from(["&", "|", "->"]), parts, parts),
            st.builds(stl.Temporal, st.sampled_from(["F", "G"]), intervals, parts),
            st.builds(stl.Until, intervals, parts, parts),
        ),
        max_leaves=6,
    )


RULES = _formulas(ATOMS, INTERVALS)
OPEN = st.builds(stl.Atom, st.sampled_from(NAMES), RELATIONS, st.none() | THRESHOLDS)
TEMPLATES = _formulas(st.builds(stl.Hole) | OPEN, st.none() | INTERVALS)
GRAMMAR = Grammar(
    tuple((name, -1e12, 1e12) for name in NAMES), OPERATORS, ("<=", ">=", "="), 60, horizon=4
)


@settings(max_examples=150)
@given(TEMPLATES)
def test_what_is_written_reads_back(formula: stl.Formula) -> None:
    """Rules and templates with every kind of part survive the text to the last digit."""
    assert parse(stl.show(formula)) == formula


@settings(max_examples=150)
@given(st.text("abFGU019.-+eE<=>!&|()[],? \t", max_size=40))
def test_any_text_is_a_formula_or_one_error(text: str) -> None:
    """Nothing else is ever raised, and the error repeats no number of the text but its columns."""
    try:
        assert parse(stl.show(parse(text))) == parse(text)
    except stl.RuleError as error:
        numbers = set(re.findall(r"\d+", re.sub(r"column \d+", "", str(error))))
        assert numbers <= {"0", "60", "1000"}


@settings(max_examples=150)
@given(RULES)
def test_the_canonical_form_is_its_own(rule: stl.Formula) -> None:
    """Once is enough."""
    assert canonical(canonical(rule)) == canonical(rule)


@settings(max_examples=150)
@given(RULES, st.data())
def test_equal_rewritings_share_the_canonical_form(rule: stl.Formula, data: st.DataObject) -> None:
    """Operands swapped, double negation, De Morgan and implication spelt out, anywhere."""
    path = data.draw(st.sampled_from(stl.paths(rule)))
    assert canonical(stl.put(rule, path, _rewritten(stl.at(rule, path)))) == canonical(rule)


def _rewritten(part: stl.Formula) -> stl.Formula:
    if not isinstance(part, stl.Connective):
        return stl.Not(stl.Not(part))
    if part.operator == "->":
        return stl.Connective("|", part.right, stl.Not(part.left))
    other = "|" if part.operator == "&" else "&"
    return stl.Not(stl.Connective(other, stl.Not(part.right), stl.Not(part.left)))


@settings(max_examples=150)
@given(RULES, st.integers(0, 2**32 - 1))
def test_the_canonical_form_means_the_same(rule: stl.Formula, seed: int) -> None:
    """At every signal the robustness is equal to the last digit, equality and negation included."""
    signals = np.random.default_rng(seed).normal(0, 1e3, (3, 7, len(NAMES)))
    ours = robustness(rule, signals, NAMES)
    assert np.array_equal(robustness(canonical(rule), signals, NAMES), ours)


def test_another_meaning_has_another_form() -> None:
    """The power twin: a changed relation, interval, operator or order of until is noticed."""
    texts = [
        "a <= 1 U[0,2] b >= 1", "b >= 1 U[0,2] a <= 1", "a <= 1 U[0,3] b >= 1",
        "a >= 1 U[0,2] b >= 1", "F[0,2](a <= 1)", "G[0,2](a <= 1)", "a <= 1 & b >= 1",
        "a <= 1 | b >= 1", "a <= 1 -> b >= 1",
    ]  # fmt: skip
    assert len({canonical(parse(text)) for text in texts}) == len(texts)


@settings(max_examples=150)
@given(RULES)
def test_a_rule_is_its_structure_and_its_parameters_on_one_path(rule: stl.Formula) -> None:
    """Symbols and parameters give it back; at each length one template of all siblings matches."""
    plain = canonical(rule)
    structure = GRAMMAR.structure(plain)
    assert GRAMMAR.formula(structure, parameters(plain)) == plain
    for length in range(len(structure)):
        siblings = GRAMMAR.continuations(structure[:length])
        assert [t for t in siblings if structure[: len(t)] == t] == [structure[: length + 1]]
    assert GRAMMAR.continuations(structure) == []


@settings(max_examples=40)
@given(st.lists(RULES.map(canonical), max_size=4))
def test_files_keep_rules_exactly(rules: list[stl.Formula]) -> None:
    """What is written to a file reads back, in order and to the last digit."""
    with tempfile.TemporaryDirectory() as folder:
        write_rules(Path(folder) / "own.stl", rules)
        assert read_rules(Path(folder) / "own.stl", GRAMMAR) == rules


@settings(max_examples=80)
@given(RULES)
def test_parts_can_be_taken_and_put_back(rule: stl.Formula) -> None:
    """Every part at its own place gives the rule itself; the places are as many as the parts."""
    assert all(stl.put(rule, path, stl.at(rule, path)) == rule for path in stl.paths(rule))
    assert len(set(stl.paths(rule))) == len(stl.paths(rule))
