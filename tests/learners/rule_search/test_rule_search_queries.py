"""Malformed questions are refused; what is told of a well-formed one is each individual's own."""

from __future__ import annotations

from fractions import Fraction

import pytest

from privfed.errors import QueryError
from privfed.learners.rule_search.queries import (
    CohortSample,
    HashedRule,
    Parameters,
    SampledRule,
    TemplateBits,
)
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.grammar import Grammar, Symbols
from privfed.questions.part import GRID
from privfed.questions.query import View

GRAMMAR = Grammar((("a", 0.0, 1.0), ("b", 0.0, 1.0)), ("&", "F"), most_operators=2, horizon=3)
PEOPLE = 4
STRUCTURES = sorted(GRAMMAR.structures())


def _entry(rule: tuple[Symbols, int], person: int) -> tuple[Symbols, int, list[float]]:
    structure, value = rule
    return structure, person, [value / 4] * len(GRAMMAR.ranges(structure))


def _book(held: list[list[tuple[Symbols, int]]]) -> RuleIndex:
    entries = [_entry(rule, person) for person, rules in enumerate(held) for rule in rules]
    return RuleIndex.indexed(GRAMMAR, PEOPLE, sorted(entries, key=lambda e: e[:2]))


WHO = CohortSample.everybody(PEOPLE)
LEVEL = tuple(u for t in GRAMMAR.continuations(()) for u in GRAMMAR.continuations(t))
SCHEMA = _book([[]] * PEOPLE).schema


def test_nested_templates_would_be_one_rule_twice() -> None:
    """A template and its extension are no siblings: their answers could be averaged."""
    with pytest.raises(QueryError, match="nested") as caught:
        TemplateBits(WHO, GRAMMAR.digest, (LEVEL[0], LEVEL[0][:1])).parts(SCHEMA)
    assert caught.value.reason == "false-partition"


@pytest.mark.parametrize(
    "question",
    [
        TemplateBits(WHO, GRAMMAR.digest, ()),
        TemplateBits(CohortSample(4, 2, 2), GRAMMAR.digest, LEVEL),
        TemplateBits(CohortSample(4, 0, 9), GRAMMAR.digest, LEVEL),
        SampledRule(WHO, GRAMMAR.digest, LEVEL, 0),
        HashedRule(WHO, GRAMMAR.digest, LEVEL, 0),
        Parameters(WHO, GRAMMAR.digest, (STRUCTURES[0],), (0,)),
        Parameters(WHO, GRAMMAR.digest, (STRUCTURES[0],), ()),
    ],
)
def test_malformed_questions(question: TemplateBits) -> None:
    """Nobody asked, nothing asked, or people beyond the cohort."""
    with pytest.raises(QueryError) as caught:
        question.parts(SCHEMA)
    assert caught.value.reason == "malformed"


@pytest.mark.parametrize("symbol", [2**16, 2**40, 0, -1])
def test_a_symbol_that_no_grammar_has_is_no_question(symbol: int) -> None:
    """It must be refused whoever is asked: a failure for some would tell what they hold."""
    template = ((1, symbol),)
    for question in (
        TemplateBits(CohortSample.everybody(3), GRAMMAR.digest, template),
        SampledRule(CohortSample.everybody(3), GRAMMAR.digest, template, 4),
        HashedRule(CohortSample.everybody(3), GRAMMAR.digest, template, 4),
        Parameters(CohortSample.everybody(3), GRAMMAR.digest, template, (1,)),
    ):
        with pytest.raises(QueryError, match="no grammar has"):
            question.parts(SCHEMA)


@pytest.mark.parametrize(("structure", "width"), [(STRUCTURES[0], 9), (LEVEL[-1], 2), ((999,), 1)])
def test_false_structures_are_no_question(structure: Symbols, width: int) -> None:
    """A gate refuses it by the grammar alone, before anything is charged, whatever anybody holds."""
    false = Parameters(WHO, GRAMMAR.digest, (structure,), (width,))
    nothing: list[tuple[Symbols, int]] = []
    for held in ([nothing] * PEOPLE, [[(s, 1) for s in STRUCTURES]] * PEOPLE):
        assert not false.fits(_book(held))
        with pytest.raises(TypeError, match="grammar"):
            false.evaluate(View(_book(held), SCHEMA))


def test_parts_of_the_people_are_disjoint_and_cover_everybody() -> None:
    """Slices of one public order partition the cohort; another seed draws another order."""
    parts = [CohortSample(10, first, first + 5, 7).positions(10).tolist() for first in (0, 5)]
    assert sorted(parts[0] + parts[1]) == list(range(10))
    assert CohortSample(10, 0, 5, 8).positions(10).tolist() != parts[0]
    with pytest.raises(QueryError, match="another size"):
        CohortSample.everybody(10).positions(11)


@pytest.mark.parametrize("value", [Fraction(1, 4), Fraction(1)])
def test_parameters_are_the_first_rule_s_own(value: Fraction) -> None:
    """A holder gives its first rule's value, everybody else the middle."""
    structure = STRUCTURES[0]
    held = [[(structure, int(value * 4))], [], [], []]
    question = Parameters(WHO, GRAMMAR.digest, (structure,), (len(GRAMMAR.ranges(structure)),))
    values = question.evaluate(View(_book(held), SCHEMA))["values"] * float(GRID)
    assert values[0].tolist() == [float(value), 0.5, 0.5, 0.5]
