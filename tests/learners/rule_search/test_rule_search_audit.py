"""Empirical audits from outputs alone: of one question, of a session, and of a faulty mechanism."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.audits.cohorts import all_or_nothing, audit_session, complete_structures
from privfed.audits.mechanisms import audit
from privfed.learners.rule_search.generator import Profile
from privfed.learners.stl.grammar import Grammar
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.privacy.mechanism import Mechanism
from privfed.privacy.noise import TestNoise
from privfed.testing.faulty import YesLeaningResponse

GRAMMAR: Grammar = Profile(1, 1, 1, 40, 1.0, 3).grammar
QUESTIONS = complete_structures(GRAMMAR, 500)


def _convictions(mechanism: Mechanism, epsilon: str, games: int, alpha: float) -> int:
    """How many of so many audits of 20,000 outputs refute the stated epsilon."""
    found = (
        audit(mechanism, epsilon, trials=20_000, alpha=alpha, noise=TestNoise(seed))
        for seed in range(games)
    )
    return sum(finding.severity == "breach" for finding in found)


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1"])
def test_the_published_code_s_mechanism_is_convicted(epsilon: str) -> None:
    """20,000 outputs prove more than is stated; its true epsilon is ln(1 + e^eps + e^(2 eps))."""
    assert _convictions(YesLeaningResponse(), epsilon, 20, 1e-3) == 20
    proven = audit(YesLeaningResponse(), epsilon, trials=20_000, noise=TestNoise(1)).value
    true = np.log(1 + np.exp(float(epsilon)) + np.exp(2 * float(epsilon)))
    assert float(epsilon) < proven <= true


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1", "3"])
def test_the_right_mechanism_is_acquitted(epsilon: str) -> None:
    """Of 200 audits at 95 % no more convict than 5 % would by chance (18, at one in a hundred)."""
    assert _convictions(RandomizedResponse(), epsilon, 200, 0.05) <= 18


@pytest.mark.parametrize("epsilon", ["0.5", "1", "2"])
def test_one_question_through_the_gate_proves_nine_tenths_of_its_charge(epsilon: str) -> None:
    """The ledger's epsilon is kept, and is no exaggeration."""
    found = audit_session(QUESTIONS[:1], GRAMMAR, epsilon, 200_000, seed=3)
    assert found.of == float(epsilon)
    assert 0.9 * found.of <= found.value <= found.of


@pytest.mark.parametrize(("each", "least"), [("0.1", 1.0), ("0.01", 0.0)])
def test_a_session_of_500_questions_stays_below_its_charge(each: str, least: float) -> None:
    """All answers of one individual together prove no more than the ledger's epsilon."""
    found = audit_session(QUESTIONS, GRAMMAR, each, 1500, seed=6)
    assert found.of == pytest.approx(500 * float(each))
    assert found.of is not None and least <= found.value <= found.of


def test_a_session_with_the_published_mechanism_is_convicted() -> None:
    """The power twin: 500 questions stated at 0.01 each give more than the 5 on the ledger."""
    found = audit_session(QUESTIONS, GRAMMAR, "0.01", 2000, YesLeaningResponse(), seed=6)
    assert found.of == pytest.approx(5)
    assert found.value > 5


def test_some_hold_all_and_the_others_nothing() -> None:
    """The audited neighbours differ in every answer; questions are distinct and complete."""
    holds = np.array([True, False, True, True, False])
    book = all_or_nothing(GRAMMAR, holds, QUESTIONS[:30])
    assert len(set(QUESTIONS)) == 500
    for question in QUESTIONS[:30]:
        assert not GRAMMAR.open(question)
        assert book.answers(question).tolist() == holds.tolist()
