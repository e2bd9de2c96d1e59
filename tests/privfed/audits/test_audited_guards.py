"""Audits of a policy's guards: honest noise passes, noise of half the size is convicted."""

from __future__ import annotations

import pytest

from privfed.audits.guards import audit_guards
from privfed.learners.base import Planned
from privfed.mechanisms.gaussian import Gaussian
from privfed.privacy.accountant import Budget
from privfed.privacy.mechanism import Mechanism
from privfed.privacy.noise import TestNoise
from privfed.privacy.policy import Guard, Policy
from privfed.tables.schema import Column, Schema
from privfed.testing.faulty import ThinnerLaplace
from privfed.testing.queries import Histogram, LevelSums

SCHEMA = Schema((Column("age", lower=0, upper=100),), Column("risk", lower=0, upper=1))
COUNTS, SUMS = Histogram(0, (0.0, 50.0, 100.0)), LevelSums(((),))
PLAN = (Planned(COUNTS, 3), Planned(SUMS, 2))


def _policy(counts: str | Mechanism, sums: str | Mechanism, spend: str = "1") -> Policy:
    guards = {
        COUNTS.kind: (Guard.of(counts, spend=spend),),
        SUMS.kind: (Guard.of(sums, spend="0.5"),),
    }
    return Policy(guards, accountant="zcdp", budget=Budget.of("20", "1e-5"))


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_honest_noise_is_not_convicted(mechanism: str) -> None:
    """Both mechanisms prove most of their claim and no more than it."""
    found = audit_guards(PLAN, SCHEMA, _policy(mechanism, mechanism, "0.5"), TestNoise(3))
    assert [finding.releases for finding in found] == [(COUNTS.kind,), (SUMS.kind,)]
    for finding in found:
        assert finding.severity == "none"
        assert finding.of is not None and 0.5 * finding.of < finding.value <= finding.of


def test_half_the_noise_is_convicted() -> None:
    """The power twin: the outputs prove more than the mechanism says it costs."""
    found = audit_guards(PLAN, SCHEMA, _policy(ThinnerLaplace(), Gaussian()), TestNoise(3))
    assert [finding.severity for finding in found] == ["breach", "none"]
    assert found[0].value > 1.0


def test_equal_uses_are_audited_once() -> None:
    """Two kinds with one mechanism, spend and sensitivity are one use."""
    policy = Policy({COUNTS.kind: (Guard.of("laplace", spend="1"),)}, budget=Budget.of("9"))
    plan = (Planned(COUNTS, 3), Planned(Histogram(0, (0.0, 20.0, 100.0)), 1))
    assert len(audit_guards(plan, SCHEMA, policy, TestNoise(3))) == 1


def test_what_has_no_noise_is_not_audited() -> None:
    """Open and suppressing guards claim nothing; kinds outside the policy are refused anyway."""
    policy = Policy({COUNTS.kind: (Guard.of("open"),), SUMS.kind: (Guard.of("nullify"),)})
    assert audit_guards(PLAN, SCHEMA, policy) == []
    assert audit_guards(PLAN, SCHEMA, Policy({})) == []
