"""Simulated answers follow the law of the real protocol's, and keep its budget."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from privfed.engines.cohort import CohortDisclosure
from privfed.errors import InputError, NobodyAnswered
from privfed.learners import RuleSearch
from privfed.learners.rule_search.asking import CohortSession
from privfed.learners.rule_search.generator import Profile, generate
from privfed.learners.rule_search.queries import CohortSample
from privfed.study.papers.simulated_asking import SimulatedAsking, Truths

BOOK = generate(Profile(400, 4_000, 300, 20, 1.6, 3, top=0.6, stems=8), 3)
SIBLINGS = [
    t for first in BOOK.grammar.continuations(()) for t in BOOK.grammar.continuations(first)
]
TRUTH = np.array([BOOK.count(template) for template in SIBLINGS])


def _asking(seed: int, simulated: bool) -> CohortSession:
    if simulated:
        return SimulatedAsking(Truths(BOOK), Fraction(100), seed)
    policy = RuleSearch("levels").private("100")
    return CohortSession(CohortDisclosure.of(BOOK, policy, seed=seed), BOOK.grammar, BOOK.people)


def _errors(simulated: bool, epsilon: str) -> np.ndarray:
    """Standardised errors of the estimates about all templates of two symbols, ten times."""
    answers = [_asking(seed, simulated).bits(SIBLINGS, Fraction(epsilon)) for seed in range(10)]
    return np.concatenate([(counts.estimate - TRUTH) / counts.std for counts in answers])


@pytest.mark.parametrize("epsilon", ["0.3", "2"])
def test_the_law_is_that_of_the_real_protocol(epsilon: str) -> None:
    """Errors of the estimates through a gate and in simulation are two samples of one law."""
    assert len(SIBLINGS) > 200
    real, simulated = _errors(False, epsilon), _errors(True, epsilon)
    assert stats.ks_2samp(real, simulated).pvalue > 0.001
    assert abs(simulated.mean()) < 4 / np.sqrt(len(simulated))
    assert simulated.var() == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize("fault", [lambda e: e + 0.2, lambda e: 1.3 * e, np.abs])
def test_another_law_is_told_apart(fault: object) -> None:
    """The power twin: a bias or a scale of a fifth of a deviation is caught by the same test."""
    real, simulated = _errors(False, "2"), _errors(True, "2")
    assert stats.ks_2samp(real, fault(simulated)).pvalue < 0.001  # type: ignore[operator]


def test_the_stated_deviation_is_the_real_one() -> None:
    """Both sides state the same deviation and the same number of people."""
    real, simulated = (_asking(1, which).bits(SIBLINGS[:5], Fraction(1)) for which in (False, True))
    assert (real.std, real.people) == (simulated.std, simulated.people)


def test_the_budget_is_kept_and_answers_are_memoised() -> None:
    """A repeated question at no greater epsilon is free and the same; a refused one costs nothing."""
    asking = SimulatedAsking(Truths(BOOK), Fraction(1), 1)
    first = asking.bits(SIBLINGS[:1], Fraction(3, 5))
    assert asking.bits(SIBLINGS[:1], Fraction(1, 2)) is first
    with pytest.raises(NobodyAnswered):
        asking.bits(SIBLINGS[:1], Fraction(7, 10))
    asking.bits(SIBLINGS[1:2], Fraction(2, 5))
    assert asking.remaining == 0
    assert [step.epsilon for step in asking.steps] == [0.6, 0.4]


@pytest.mark.parametrize("settings", [{"spend": None}, {"who": CohortSample(400, 0, 9)}])
def test_questions_that_cannot_be_simulated(settings: dict[str, object]) -> None:
    """A part of the people, or an amount left to the gate, is an error and no wrong curve."""
    asking = SimulatedAsking(Truths(BOOK), Fraction(1), 1)
    with pytest.raises(InputError, match="everybody"):
        asking.bits(SIBLINGS[:1], **{"spend": Fraction(1), **settings})  # type: ignore[arg-type]


def test_nobody_asks_the_federation() -> None:
    """Queries that are not simulated are refused rather than answered wrongly."""
    asking = SimulatedAsking(Truths(BOOK), Fraction(1), 1)
    assert list(asking.federation.clients) == []
