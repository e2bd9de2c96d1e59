"""Sensitivities of the rule search by brute force: neighbouring rule books of every relation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

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
from privfed.questions.part import GRID, Bound, Sensitivity
from privfed.questions.query import View

GRAMMAR = Grammar((("a", 0.0, 1.0), ("b", 0.0, 1.0)), ("&", "F"), most_operators=2, horizon=3)
PEOPLE, UNITS = 3, int(1 / GRID)
#: A rule as a book holds it: its structure, and one value for all of its scaled parameters.
Rule = tuple[Symbols, float]
Relation = Literal["add_or_remove", "replace_one", "anything"]


def _width(structure: Symbols) -> int:
    return len(GRAMMAR.ranges(structure))


COMPLETE = sorted(GRAMMAR.structures())
#: Complete structures of five, four, three, two and one parameters, two of each.
STRUCTURES = tuple(
    s for width in (5, 4, 3, 2, 1) for s in [s for s in COMPLETE if _width(s) == width][:2]
)
LEVEL = tuple(u for t in GRAMMAR.continuations(()) for u in GRAMMAR.continuations(t))
WHO = CohortSample.everybody(PEOPLE)


def _parameters(*structures: Symbols) -> Parameters:
    widths = tuple(_width(structure) for structure in structures)
    return Parameters(WHO, GRAMMAR.digest, structures, widths)


QUESTIONS: dict[str, RuleQuery] = {
    "bits of a level": TemplateBits(WHO, GRAMMAR.digest, LEVEL),
    "bits of structures": TemplateBits(WHO, GRAMMAR.digest, STRUCTURES),
    "bits of two": TemplateBits(WHO, GRAMMAR.digest, STRUCTURES[:2]),
    "bit of one": TemplateBits(WHO, GRAMMAR.digest, STRUCTURES[:1]),
    "sampled": SampledRule(WHO, GRAMMAR.digest, STRUCTURES, 2),
    "sampled of a level": SampledRule(WHO, GRAMMAR.digest, LEVEL, 3),
    "sampled of one": SampledRule(WHO, GRAMMAR.digest, STRUCTURES[:1], 2),
    "hashed": HashedRule(WHO, GRAMMAR.digest, STRUCTURES, 2),
    "hashed of a level": HashedRule(WHO, GRAMMAR.digest, LEVEL, 3),
    "parameters of one": _parameters(STRUCTURES[0]),
    "parameters of two": _parameters(*STRUCTURES[:2]),
    "parameters of unequal two": _parameters(STRUCTURES[1], STRUCTURES[8]),
    "parameters of all": _parameters(*STRUCTURES),
}
EACH = pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)


def _book(held: Sequence[Sequence[Rule]]) -> RuleIndex:
    """A book of what each person holds, each one's rules in their own order."""
    entries = [
        (structure, person, [value] * _width(structure))
        for person, rules in enumerate(held)
        for structure, value in rules
    ]
    return RuleIndex.indexed(GRAMMAR, PEOPLE, sorted(entries, key=lambda entry: entry[:2]))


SCHEMA = _book([[]] * PEOPLE).schema


def _moved(question: RuleQuery, one: list[list[Rule]], other: list[list[Rule]]) -> Bound:
    """How far the one part moves between two books, L1 and squared L2, in whole units."""
    (before,), (after,) = (
        question.evaluate(View(_book(held), SCHEMA, b"secret")).values() for held in (one, other)
    )
    moved = np.abs(after.astype(np.int64) - before.astype(np.int64)).astype(object)
    return Bound(int(moved.sum()), int((moved**2).sum()))


def _bound(question: RuleQuery, relation: Relation) -> Bound:
    (part,) = question.parts(SCHEMA).values()
    assert isinstance(part.sensitivity, Sensitivity)
    bound = getattr(part.sensitivity, relation)
    assert isinstance(bound, Bound), "every relation has a bound of its own"
    return bound


def _within(
    question: RuleQuery, one: list[list[Rule]], other: list[list[Rule]], to: Relation
) -> None:
    moved, bound = _moved(question, one, other), _bound(question, to)
    assert moved.l1 <= bound.l1
    assert moved.l2_squared <= bound.l2_squared


# --- neighbours ------------------------------------------------------------------------------------

VALUES = st.one_of(st.sampled_from([0.0, 1.0]), st.sampled_from([-7.0, 0.25, 0.5, 9.0]))
RULES = st.tuples(st.sampled_from(STRUCTURES), VALUES)
MANY = st.lists(RULES, max_size=5)
HELD = st.lists(MANY, min_size=PEOPLE, max_size=PEOPLE)
PERSON, PLACE = st.integers(0, PEOPLE - 1), st.integers(0, 5)


def _but(held: list[list[Rule]], person: int, rules: list[Rule]) -> list[list[Rule]]:
    return [rules if number == person else list(own) for number, own in enumerate(held)]


@EACH
@settings(max_examples=60)
@given(held=HELD, person=PERSON, place=PLACE, rule=RULES)
def test_one_rule_added_or_removed(
    question: RuleQuery, held: list[list[Rule]], person: int, place: int, rule: Rule
) -> None:
    """One rule more, anywhere among its holder's, stays within the add-or-remove bound."""
    own = held[person]
    more = _but(held, person, [*own[:place], rule, *own[place:]])
    _within(question, held, more, "add_or_remove")
    _within(question, more, held, "add_or_remove")


@EACH
@settings(max_examples=60)
@given(
    held=HELD,
    person=PERSON,
    places=st.tuples(PLACE, PLACE),
    rules=st.tuples(RULES, RULES),
)
@example([[], [], []], 0, (0, 0), ((STRUCTURES[0], 0.0), (STRUCTURES[1], 1.0)))
def test_one_rule_replaced_by_another(
    question: RuleQuery,
    held: list[list[Rule]],
    person: int,
    places: tuple[int, int],
    rules: tuple[Rule, Rule],
) -> None:
    """Another rule in one rule's stead stays within the replace-one bound, wherever they stand."""
    own = held[person]
    old, new = (
        _but(held, person, [*own[:place], rule, *own[place:]])
        for place, rule in zip(places, rules, strict=True)
    )
    _within(question, old, new, "replace_one")


@EACH
@settings(max_examples=60)
@given(held=HELD, person=PERSON, others=MANY)
def test_all_of_one_individuals_rules_replaced(
    question: RuleQuery, held: list[list[Rule]], person: int, others: list[Rule]
) -> None:
    """Whatever else one individual might hold stays within the bound over anything."""
    _within(question, held, _but(held, person, others), "anything")


@EACH
@settings(max_examples=40)
@given(held=HELD, person=PERSON, others=MANY)
def test_nobody_elses_answer_moves(
    question: RuleQuery, held: list[list[Rule]], person: int, others: list[Rule]
) -> None:
    """One individual's rules move that individual's own column and no other."""
    (before,), (after,) = (
        question.evaluate(View(_book(book), SCHEMA, b"secret")).values()
        for book in (held, _but(held, person, others))
    )
    moved = (before != after).any(axis=0)
    assert not moved[[number for number in range(PEOPLE) if number != person]].any()


# --- the worst neighbours attain the bounds --------------------------------------------------------


def _alone(*rules: Rule) -> list[list[Rule]]:
    return [list(rules), [], []]


#: One of everything at its lower ends, and one at its upper ends.
LOW: tuple[Rule, ...] = tuple((structure, 0.0) for structure in STRUCTURES)
HIGH: tuple[Rule, ...] = tuple((structure, 1.0) for structure in STRUCTURES)


@pytest.mark.parametrize("number", range(1, 5))
def test_a_rule_before_another_moves_all_its_parameters(number: int) -> None:
    """The first rule of a structure speaks: a new first one moves each value by its whole range."""
    question = _parameters(*STRUCTURES[:number])
    moved = _moved(question, _alone(*LOW), _alone(HIGH[0], *LOW))
    assert moved == _bound(question, "add_or_remove") == Bound(5 * UNITS, 5 * UNITS**2)


@pytest.mark.parametrize("number", range(2, 6))
def test_a_replaced_rule_moves_two_structures(number: int) -> None:
    """A first rule that goes and another one that comes move every parameter of both."""
    question = _parameters(*STRUCTURES[:number])
    one, other = _alone(HIGH[0], *LOW), _alone(HIGH[1], *LOW)
    moved = _moved(question, one, other)
    widths = _width(STRUCTURES[0]) + _width(STRUCTURES[1])
    assert moved == _bound(question, "replace_one") == Bound(widths * UNITS, widths * UNITS**2)


@pytest.mark.parametrize("number", range(1, len(STRUCTURES) + 1))
def test_other_rules_move_all_structures(number: int) -> None:
    """All values from their lower to their upper ends: the whole range of each."""
    question = _parameters(*STRUCTURES[:number])
    total = sum(map(_width, STRUCTURES[:number]))
    moved = _moved(question, _alone(*LOW), _alone(*HIGH))
    assert moved == _bound(question, "anything") == Bound(total * UNITS, total * UNITS**2)


@pytest.mark.parametrize(("number", "bits"), [(1, 1), (2, 2), (7, 2)])
def test_a_replaced_rule_turns_two_bits(number: int, bits: int) -> None:
    """One bit goes out and another one on; there is but one where there is one template."""
    question = TemplateBits(WHO, GRAMMAR.digest, STRUCTURES[:number])
    moved = _moved(question, _alone(LOW[0]), _alone(LOW[1]))
    assert moved == _bound(question, "replace_one") == Bound(bits, bits)


@pytest.mark.parametrize("number", [1, 2, 7])
def test_bits_turn_one_by_one_and_all_at_once(number: int) -> None:
    """A rule more turns one bit; other rules altogether turn every one."""
    question = TemplateBits(WHO, GRAMMAR.digest, STRUCTURES[:number])
    one = _moved(question, _alone(), _alone(LOW[0]))
    every = _moved(question, _alone(), _alone(*LOW))
    assert one == _bound(question, "add_or_remove") == Bound(1, 1)
    assert every == _bound(question, "anything") == Bound(number, number)


def test_all_rules_turn_every_bit_of_a_level() -> None:
    """Some rule matches each of its templates."""
    question = QUESTIONS["bits of a level"]
    moved = _moved(question, _alone(), _alone(*((structure, 1.0) for structure in COMPLETE)))
    assert moved == _bound(question, "anything") == Bound(len(LEVEL), len(LEVEL))


@pytest.mark.parametrize("asked", ["hashed", "hashed of a level"])
def test_another_hashed_rule_turns_one_bit_or_none(asked: str) -> None:
    """An individual's one bit, which two rules may share."""
    question, nobody = QUESTIONS[asked], _alone()
    moved = {
        _moved(question, *(_but(nobody, person, [rule] * 3) for rule in (LOW[0], other)))
        for person in range(PEOPLE)
        for other in LOW
    }
    assert moved == {Bound(0, 0), _bound(question, "replace_one")} == {Bound(0, 0), Bound(1, 1)}


@pytest.mark.parametrize("relation", ["add_or_remove", "replace_one", "anything"])
def test_a_drawn_rule_turns_two_bits_under_every_relation(relation: Relation) -> None:
    """A rule more may take the drawn place from another one, so one rule is as bad as all."""
    question = SampledRule(WHO, GRAMMAR.digest, STRUCTURES, 1)
    last, first = (STRUCTURES[0], 0.0), (min(STRUCTURES), 0.0)
    pairs = {
        "add_or_remove": (_alone(last), _alone(first, last)),
        "replace_one": (_alone(last), _alone(first)),
        "anything": (_alone(last), _alone(first, first)),
    }
    assert _moved(question, *pairs[relation]) == _bound(question, relation) == Bound(2, 2)
