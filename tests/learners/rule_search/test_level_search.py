"""A search by level keeps its budget and its size, and finds what is valid with little."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.errors import InputError
from privfed.learners.rule_search.generator import Profile, generate
from privfed.learners.rule_search.level_search import MAX_EPSILON, LevelPlan, LevelSearch
from privfed.learners.rule_search.population_rules import coverage
from privfed.study.papers.simulated_asking import SimulatedAsking, Truths

BOOK = generate(Profile(20_000, 200_000, 4_000, 12, 2.0, 4, top=0.5, stems=30), 5)
TRUTHS = Truths(BOOK)
NU = 0.01
VALID = BOOK.valid(NU * BOOK.people)


def _run(total: str, seed: int, **settings: object) -> tuple[LevelSearch, tuple[float, float]]:
    plan = LevelPlan(Fraction(total), NU, 5, **settings)  # type: ignore[arg-type]
    search = LevelSearch(SimulatedAsking(TRUTHS, Fraction(total), seed), plan)
    return search, coverage([one.structure for one in search.run()], VALID)


def _scores(total: str, **settings: object) -> np.ndarray:
    mean: np.ndarray = np.mean([_run(total, seed, **settings)[1] for seed in range(4)], axis=0)
    return mean


def test_a_few_nats_find_the_valid_rules() -> None:
    """Coverage 0.8 and precision 0.9 at six nats a rule."""
    right, precise = _scores("6")
    assert right >= 0.8
    assert precise >= 0.9


def test_a_tenth_of_it_does_not() -> None:
    """The power twin: the same search at a tenth of the budget is neither."""
    right, precise = _scores("0.6")
    assert right < 0.7
    assert precise < 0.5


def test_keeping_most_for_the_last_question_pays() -> None:
    """At the same epsilon, more is found than by a plan that halves the budget evenly."""
    evenly = {"confirm": Fraction(2, 5), "growth": Fraction(1), "slack": 0.0}
    assert _scores("4").sum() > _scores("4", **evenly).sum() + 0.03


@pytest.mark.parametrize("most", [200, 1000])
def test_no_question_is_larger_than_said(most: int) -> None:
    """Levels and the last question hold at most so many templates, the best ones."""
    search, _ = _run("8", 1, max_size=most)
    assert max(step.templates for step in search.session.steps) <= most


@given(
    st.fractions("1/100", 50),
    st.integers(1, 12),
    st.fractions(0, "9/10"),
    st.fractions("1/4", 4),
)
def test_amounts_never_exceed_their_part(
    total: Fraction, levels: int, confirm: Fraction, growth: Fraction
) -> None:
    """Exactly: the levels' amounts add up to at most what is not kept, and lose little of it."""
    plan = LevelPlan(total, NU, levels, confirm, growth=growth)
    amounts, part = plan.amounts, (1 - confirm) * total
    assert sum(amounts) <= part
    if max(amounts) < MAX_EPSILON:
        assert sum(amounts) > part - Fraction(levels, 10**6)


@pytest.mark.parametrize("settings", [{"growth": Fraction(0)}, {"confirm": Fraction(1)}])
def test_plans_that_make_no_sense(settings: dict[str, object]) -> None:
    """One clear error each."""
    with pytest.raises(InputError, match="plan"):
        _run("1", 1, **settings)
