"""The least epsilon keeps the error, wastes little, and needs a margin."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.errors import InputError
from privfed.learners.rule_search.least_epsilon import (
    STEP,
    Exploration,
    Question,
    ignoring,
    least_epsilon,
)

QUESTIONS = [
    Question(8000, 160, 80.0, 0.05),
    Question(40336, 807, 403.36, 0.05),
    Question(500, 60, 20.0, 0.1),
    Question(40336, 10084, 5042.0, 0.01),
]


def _simulated(question: Question, epsilon: float, runs: int = 20000) -> float:
    rng = np.random.default_rng(11)
    lie = 1 / (1 + np.exp(epsilon))
    yes = rng.binomial(question.count, 1 - lie, runs)
    yes += rng.binomial(question.people - question.count, lie, runs)
    return float(np.mean((yes - question.people * lie) / (1 - 2 * lie) < question.cut))


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_achieved_error_is_at_most_theta_and_at_least_a_third(question: Question) -> None:
    """By simulation of the whole population's answers, within four standard errors."""
    achieved = _simulated(question, float(least_epsilon(question)))
    slack = 4 * np.sqrt(question.error / 20000)
    assert question.error / 3 - slack <= achieved <= question.error + slack


@pytest.mark.parametrize("question", QUESTIONS)
def test_half_the_epsilon_breaks_the_error(question: Question) -> None:
    """The power twin: the same simulation convicts an epsilon that is too small."""
    assert _simulated(question, float(least_epsilon(question)) / 2) > 1.5 * question.error


@pytest.mark.parametrize("question", QUESTIONS)
def test_it_is_the_least_of_the_grid(question: Question) -> None:
    """One step less breaks the error; the steps above keep it."""
    least = least_epsilon(question)
    errors = [
        ignoring(question.people, question.count, question.cut, float(least + k * STEP))
        for k in range(-1, 40)
    ]
    assert errors[0] > question.error
    assert max(errors[1:]) <= question.error


def test_the_exact_law_agrees_with_enumeration() -> None:
    """For few people the probability is the sum over all answers."""
    people, count, cut, epsilon = 5, 3, 2.0, 1.0
    lie = 1 / (1 + np.exp(epsilon))
    total = 0.0
    for answers in range(2**people):
        bits = [answers >> i & 1 for i in range(people)]
        chance = np.prod(
            [
                (1 - lie if b else lie) if i < count else (lie if b else 1 - lie)
                for i, b in enumerate(bits)
            ]
        )
        total += chance * ((sum(bits) - people * lie) / (1 - 2 * lie) < cut)
    assert ignoring(people, count, cut, epsilon) == pytest.approx(total, abs=1e-12)


def test_a_greater_count_is_ignored_less() -> None:
    """So the bound at c* covers all larger subtrees."""
    errors = [ignoring(2000, count, 20.0, 1.0) for count in range(30, 200, 10)]
    assert errors == sorted(errors, reverse=True)


def test_the_published_equation_has_no_solution() -> None:
    """At the threshold itself the error is a half whatever is spent."""
    for epsilon in (0.1, 1.0, 5.0):
        assert ignoring(40000, 400, 400, epsilon) == pytest.approx(0.5, abs=0.03)


def test_a_parent_s_estimate_makes_a_child_s_question_cheaper() -> None:
    """Asked first for a fair share of a frequent parent, at the end for the threshold."""
    exploration = Exploration()
    frequent = least_epsilon(exploration.question(40336, 0.25 * 30000.0))
    rare = least_epsilon(exploration.question(40336, 0.25 * 900.0))
    finest = least_epsilon(exploration.finest(40336))
    assert frequent * 5 < rare == finest
    few, many = Question(40336, 807, 200.0, 0.05), Question(40336, 807, 600.0, 0.05)
    assert least_epsilon(few) < finest < least_epsilon(many)


@pytest.mark.parametrize(
    ("people", "count", "cut", "error"),
    [
        (100, 10, 10.0, 0.05),
        (100, 10, 5.0, 0.0),
        (100, 10, 5.0, float("nan")),
        (100, 101, 5.0, 0.1),
    ],
)
def test_questions_without_a_margin(people: int, count: int, cut: float, error: float) -> None:
    """One clear error for a margin or an error probability that makes no sense."""
    with pytest.raises(InputError, match=r"margin|theta"):
        Question(people, count, cut, error)


@pytest.mark.parametrize("settings", [{"threshold": 0.0}, {"margin": 0.0}, {"share": 2.0}])
def test_explorations_out_of_range(settings: dict[str, float]) -> None:
    """Thresholds, margins and shares out of range are refused."""
    with pytest.raises(InputError, match="exploration"):
        Exploration(**settings)
