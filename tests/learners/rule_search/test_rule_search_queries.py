"""The derived sensitivities hold by brute force, and malformed questions are refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.errors import QueryError
from privfed.learners.rule_search.queries import (
    CohortSample,
    HashedRule,
    Parameters,
    RuleQuery,
    SampledRule,
    TemplateBits,
)
from privfed.learners.rule_search.rule_index import RuleIndex
from privfed.learners.stl.grammar import Grammar, Symbols
from privfed.questions.part import GRID
from privfed.questions.query import View
from privfed.tables.schema import Column, Schema

GRAMMAR = Grammar((("a", 0.0, 1.0), ("b", 0.0, 1.0)), ("&", "F"), most_operators=2, horizon=3)
SCHEMA = Schema((Column("a", lower=0, upper=1), Column("b", lower=0, upper=1)))
PEOPLE = 4


STRUCTURES = sorted(GRAMMAR.structures())
RULES = st.tuples(st.sampled_from(STRUCTURES), st.integers(0, 4))
HELD = st.lists(st.lists(RULES, max_size=4), min_size=PEOPLE, max_size=PEOPLE)


def _entry(rule: tuple[Symbols, int], person: int) -> tuple[Symbols, int, list[float]]:
    structure, value = rule
    return structure, person, [value / 4] * len(GRAMMAR.ranges(structure))


def _book(held: list[list[tuple[Symbols, int]]]) -> RuleIndex:
    entries = [_entry(rule, person) for person, rules in enumerate(held) for rule in rules]
    return RuleIndex.indexed(GRAMMAR, PEOPLE, sorted(entries, key=lambda e: e[:2]))


WHO = CohortSample.everybody(PEOPLE)
LEVEL = tuple(u for t in GRAMMAR.continuations(()) for u in GRAMMAR.continuations(t))
WIDTHS = tuple(len(GRAMMAR.ranges(s)) for s in STRUCTURES[:6])
QUESTIONS = [
    TemplateBits(WHO, GRAMMAR.digest, LEVEL),
    TemplateBits(WHO, GRAMMAR.digest, (STRUCTURES[0],)),
    SampledRule(WHO, GRAMMAR.digest, LEVEL, 3),
    Parameters(WHO, GRAMMAR.digest, tuple(STRUCTURES[:6]), WIDTHS),
    HashedRule(WHO, GRAMMAR.digest, LEVEL, 3),
]
SCHEMA = _book([[]] * PEOPLE).schema


def _change(question: RuleQuery, one: RuleIndex, other: RuleIndex) -> tuple[int, int]:
    (before,), (after,) = (
        list(question.evaluate(View(book, SCHEMA, b"secret")).values()) for book in (one, other)
    )
    moved = np.abs(after.astype(np.int64) - before.astype(np.int64)).astype(object)
    return int(moved.sum()), int((moved**2).sum())


@pytest.mark.parametrize("question", QUESTIONS)
@settings(max_examples=60)
@given(held=HELD, data=st.data())
def test_one_rule_moves_no_more_than_derived(
    question: TemplateBits, held: list[list[tuple[Symbols, int]]], data: st.DataObject
) -> None:
    """Adding a rule of anybody's stays within the add-or-remove bound."""
    person, rule = data.draw(st.integers(0, PEOPLE - 1)), data.draw(RULES)
    more = [[*rules, rule] if i == person else rules for i, rules in enumerate(held)]
    (part,) = question.parts(SCHEMA).values()
    assert part.sensitivity is not None
    l1, l2 = _change(question, _book(held), _book(more))
    bound = part.sensitivity.add_or_remove
    assert l1 <= bound.l1
    assert l2 <= bound.l2_squared


@pytest.mark.parametrize("question", QUESTIONS)
@settings(max_examples=60)
@given(held=HELD, data=st.data())
def test_other_rules_altogether_move_no_more_than_derived(
    question: TemplateBits, held: list[list[tuple[Symbols, int]]], data: st.DataObject
) -> None:
    """Putting any rules in the place of one individual's stays within the local bound."""
    person, others = data.draw(st.integers(0, PEOPLE - 1)), data.draw(st.lists(RULES, max_size=4))
    changed = [others if i == person else rules for i, rules in enumerate(held)]
    (part,) = question.parts(SCHEMA).values()
    assert part.sensitivity is not None
    assert part.sensitivity.anything is not None
    l1, l2 = _change(question, _book(held), _book(changed))
    assert l1 <= part.sensitivity.anything.l1
    assert l2 <= part.sensitivity.anything.l2_squared


def test_the_bounds_are_reached() -> None:
    """The power twin: the derived bounds are not merely safe, some neighbour attains each."""
    empty = _book([[], [], [], []])
    everything = _book([[(s, 4) for s in STRUCTURES], [], [], []])
    template = next(s for s in STRUCTURES if len(s) == 1)
    single = TemplateBits(WHO, GRAMMAR.digest, (template,))
    assert _change(single, empty, _book([[(template, 0)], [], [], []]))[0] == 1
    matched = sum(any(s[: len(t)] == t for s in STRUCTURES) for t in LEVEL)
    assert _change(QUESTIONS[0], empty, everything)[0] == matched == len(LEVEL)
    level = [(s, 4) for s in STRUCTURES if any(s[: len(t)] == t for t in LEVEL)]
    full = [level[:1] * 3, level[-1:] * 3, [], []]
    assert _change(QUESTIONS[2], _book(full), _book([full[1], *full[1:]]))[0] == 2
    swapped = [_book([[(s, 4)] * 3, [], [], []]) for s, _ in level]
    assert {_change(QUESTIONS[4], swapped[0], other)[0] for other in swapped} == {0, 1}
    half = int(1 / GRID) // 2
    assert _change(QUESTIONS[3], empty, everything)[0] == sum(WIDTHS) * half


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
