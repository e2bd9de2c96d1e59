"""Audits of guards over bits: on as many bits as the planned question lets one unit change."""

from __future__ import annotations

import pytest

from privfed.audits.cohorts import complete_structures
from privfed.audits.guards import audit_guards
from privfed.learners.base import Planned
from privfed.learners.rule_search.queries import CohortSample, SampledRule, TemplateBits
from privfed.learners.stl.grammar import Grammar
from privfed.mechanisms.randomized_response import RandomizedResponse
from privfed.privacy.accountant import Budget
from privfed.privacy.mechanism import Mechanism
from privfed.privacy.noise import TestNoise
from privfed.privacy.policy import Guard, Policy
from privfed.tables.schema import Column, Schema
from privfed.testing.faulty import UnsharedResponse

SCHEMA = Schema((Column("a", lower=0, upper=1), Column("b", lower=0, upper=1)))
GRAMMAR = Grammar.of(SCHEMA, ("&", "F"), most_operators=2, horizon=3)
STRUCTURES = tuple(complete_structures(GRAMMAR, 12))
WHO = CohortSample.everybody(50)
BITS = TemplateBits(WHO, GRAMMAR.digest, STRUCTURES)
SAMPLED = SampledRule(WHO, GRAMMAR.digest, STRUCTURES, 3)
PLAN = (Planned(BITS, 1), Planned(SAMPLED, 1))


@pytest.fixture(autouse=True)
def _few_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of a study's: these faults are not small."""
    monkeypatch.setattr("privfed.audits.guards.GROUP_TRIALS", 2000)


def _policy(mechanism: Mechanism, spend: str = "1") -> Policy:
    guards = {kind: (Guard.of(mechanism, spend=spend),) for kind in (BITS.kind, SAMPLED.kind)}
    return Policy(guards, unit="individual", budget=Budget.of("4"))


def test_the_right_response_is_acquitted_on_all_its_bits() -> None:
    """Twelve bits that one individual can change, and two: uses of their own, both innocent."""
    found = audit_guards(PLAN, SCHEMA, _policy(RandomizedResponse()), TestNoise(3))
    assert [(finding.severity, finding.of) for finding in found] == [("none", 1.0)] * 2
    assert all(finding.value > 0.3 for finding in found)


@pytest.mark.parametrize("spend", ["0.2", "1", "2"])
def test_a_spend_that_the_bits_do_not_share_is_convicted(spend: str) -> None:
    """Right for one bit, it proves far more than the charge on the bits of its question."""
    found = audit_guards(PLAN, SCHEMA, _policy(UnsharedResponse(), spend), TestNoise(3))
    assert [finding.severity for finding in found] == ["breach", "breach"]
    assert all(finding.value > 1.3 * float(spend) for finding in found)


def test_a_single_bit_convicts_nobody() -> None:
    """A question with one template leaves nothing to share, so the same mechanism is right there."""
    single = TemplateBits(WHO, GRAMMAR.digest, STRUCTURES[:1])
    policy = _policy(UnsharedResponse())
    found = audit_guards((Planned(single, 1),), SCHEMA, policy, TestNoise(3))
    assert [finding.severity for finding in found] == ["none"]
