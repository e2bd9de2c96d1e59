"""Allocators: exact totals, and nothing but past releases to go by."""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_trials import QUERY

from privfed.accountants import adaptive
from privfed.accountants.adaptive import (
    Allocator,
    ByRule,
    Geometric,
    Scheduled,
    Uniform,
)
from privfed.errors import BudgetError, InputError
from privfed.exchange.messages import Release
from privfed.learners.rule_search.least_epsilon import Question, least_epsilon


def all_of(allocator: Allocator) -> list[Fraction]:
    """Every amount until nothing is left."""
    amounts = []
    while True:
        try:
            amounts.append(allocator.next())
        except BudgetError:
            return amounts


@given(st.fractions("1/100", 10), st.integers(1, 30), st.fractions("1/3", 3))
def test_amounts_add_up_exactly(total: Fraction, rounds: int, ratio: Fraction) -> None:
    """Uniform and geometric amounts sum to the total, no more and no less."""
    for allocator in (Uniform(total, rounds), Geometric(total, rounds, ratio)):
        amounts = all_of(allocator)
        assert len(amounts) == rounds
        assert sum(amounts) == total
        assert min(amounts) > 0


def test_schedules_are_kept() -> None:
    """Each amount in its turn."""
    assert all_of(Scheduled(["0.1", "0.3", "0.1"])) == [Fraction(n, 10) for n in (1, 3, 1)]


def test_the_least_epsilon_rule_asks_for_what_its_question_needs() -> None:
    """Cheap while large subtrees are looked for; dear at the finest; the total holds."""
    people = 8000

    def question(past: Sequence[Release]) -> Question:
        count = 2400 if not past else 160
        return Question(people, count, count / 2, 0.05)

    allocator = ByRule("2", lambda past, left: least_epsilon(question(past)))
    release = Release("c", "1", QUERY.kind, QUERY.digest, {})
    coarse, fine, rest = allocator.next(), allocator.next([release]), allocator.next([release])
    assert coarse == least_epsilon(question([])) < Fraction(1, 5)
    assert fine == least_epsilon(question([release])) > Fraction(3, 2)
    assert coarse + fine + rest == 2


@given(st.lists(st.fractions("1/10", 2), min_size=1, max_size=20))
def test_a_rule_never_proposes_more_than_is_left(wishes: list[Fraction]) -> None:
    """Whatever the rule wishes, the total holds."""
    allocator = ByRule("1", lambda past, left: wishes[len(past) % len(wishes)])
    assert sum(all_of(allocator)) == 1


@pytest.mark.parametrize(
    "build",
    [
        lambda: Uniform("1", 0),
        lambda: Uniform("0", 3),
        lambda: Uniform("nan", 3),
        lambda: Geometric("1", 3, "0"),
        lambda: Scheduled([]),
        lambda: Scheduled(["-1"]),
        lambda: ByRule("1", lambda past, left: float("nan")).next(),
        lambda: ByRule("1", lambda past, left: "0").next(),
    ],
)
def test_bad_amounts_are_clear_errors(build: Callable[[], object]) -> None:
    """No rounds, no total, no numbers."""
    with pytest.raises((InputError, BudgetError)):
        build()


def test_the_interface_takes_releases_and_nothing_else() -> None:
    """By its types: no method of an allocator has a parameter that could carry data."""
    allowed = {"total", "rounds", "ratio", "amounts", "rule", "question", "past", "self"}
    for name, kind in inspect.getmembers(adaptive, inspect.isclass):
        if not issubclass(kind, Allocator):
            continue
        for method in (kind.__init__, kind.amount, kind.next):
            assert set(inspect.signature(method).parameters) <= allowed, name
        for method in (kind.amount, kind.next):
            hints = typing.get_type_hints(method)
            assert hints["past"] == typing.Sequence[Release] or "Release" in str(hints["past"])


def test_the_module_cannot_reach_data() -> None:
    """By its imports: no records, gate, ledger, query or view is within reach."""
    tree = ast.parse(inspect.getsource(adaptive))
    modules = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    modules |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    ours = {module for module in modules if str(module).startswith("privfed")}
    assert ours == {"privfed.errors", "privfed.questions.exact", "privfed.exchange.messages"}
