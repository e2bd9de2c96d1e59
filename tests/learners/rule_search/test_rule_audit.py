"""Empirical audits from outputs alone: of one question, of a session, and of a faulty mechanism."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privfed.accountant import Budget
from privfed.attacks.audit import audit_mechanism
from privfed.cohort import CohortDisclosure
from privfed.learners.rule_search.generator import Profile
from privfed.learners.rule_search.queries import Asked, TemplateBits
from privfed.learners.rule_search.rule_book import RuleBook
from privfed.learners.stl.grammar import Grammar, Symbols
from privfed.mechanism import Mechanism
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.noise import TestNoise
from privfed.part import PartType
from privfed.policy import Guard, Policy
from privfed.testing.audit import guarded
from privfed.testing.published import PublishedRandomizedResponse

GRAMMAR: Grammar = Profile(1, 1, 1, 40, 1.0, 3).grammar


def _outputs(
    mechanism: Mechanism, epsilon: Fraction, truth: bool, seed: int, runs: int
) -> np.ndarray:
    """Independent answers to one question: a cell each."""
    group = guarded(PartType.BITS, cells=runs)
    noise = TestNoise(seed)
    exact = {"part": np.full(runs, truth)}
    return np.asarray(mechanism.protect(exact, group, epsilon, noise, {})["part"].data)


def _audited(mechanism: Mechanism, epsilon: str, trials: int) -> float:
    spend = Fraction(epsilon)
    return audit_mechanism(
        lambda runs: _outputs(mechanism, spend, True, 1, runs),
        lambda runs: _outputs(mechanism, spend, False, 2, runs),
        float(spend),
        trials=trials,
        alpha=1e-3,
    ).value


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1"])
def test_the_published_mechanism_is_convicted(epsilon: str) -> None:
    """20,000 outputs prove more than is stated; its true epsilon is ln(1 + e^eps + e^(2 eps))."""
    proven = _audited(PublishedRandomizedResponse(), epsilon, 20_000)
    true = np.log(1 + np.exp(float(epsilon)) + np.exp(2 * float(epsilon)))
    assert float(epsilon) < proven <= true


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1", "3"])
def test_the_right_mechanism_is_acquitted(epsilon: str) -> None:
    """The same audit proves no more than what is stated."""
    assert _audited(RandomizedResponse(), epsilon, 20_000) <= float(epsilon)


def test_one_question_s_audit_is_tight() -> None:
    """At least nine tenths of the charge are proven, so that the charge is no exaggeration."""
    assert 0.9 <= _audited(RandomizedResponse(), "1", 100_000) <= 1


def _book(people: int, questions: list[Symbols]) -> RuleBook:
    """The first half hold a match to every question, the others nothing."""
    entries = [
        (structure, person, []) for structure in sorted(questions) for person in range(people // 2)
    ]
    return RuleBook.indexed(GRAMMAR, people, entries)


def test_a_session_of_500_questions_stays_below_its_charge() -> None:
    """All answers of one individual together prove no more than the ledger's epsilon."""
    people, each = 1500, "0.1"
    firsts = [t for t in GRAMMAR.continuations(()) if not GRAMMAR.open(t)]
    pairs = [u for t in GRAMMAR.continuations(()) for u in GRAMMAR.continuations(t)]
    triples = [v for u in pairs for v in GRAMMAR.continuations(u) if not GRAMMAR.open(v)]
    questions = (firsts + triples)[:500]
    guard = Guard.of("randomized_response", spend=each)
    policy = Policy({TemplateBits.kind: (guard,)}, unit="individual", budget=Budget.of("50"))
    federation = CohortDisclosure.of(_book(people, questions), policy, seed=6)
    who = Asked.everybody(people)
    yes = np.zeros(people)
    for question in questions:
        answer = federation.ask(TemplateBits(who, GRAMMAR.digest, (question,))).only
        yes += answer.total("bits")[0]
    charged = federation.budget().iloc[0]["spent"]
    proven = audit_mechanism(
        lambda runs: yes[:runs], lambda runs: yes[people // 2 :][:runs], charged, trials=people
    ).value
    assert charged == 50.0
    assert 1 < proven <= charged
