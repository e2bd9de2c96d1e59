"""Audits of a policy's guards: honest noise passes, noise of half the size is convicted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from privfed.attacks.finding import Finding
from privfed.audits import guards
from privfed.audits.guards import SOURCES, audit_guards, audit_sources, confirmed
from privfed.learners.base import Planned
from privfed.mechanisms.gaussian import Gaussian
from privfed.privacy.accountant import Budget
from privfed.privacy.mechanism import Mechanism
from privfed.privacy.noise import Noise, SecureNoise, TestNoise
from privfed.privacy.policy import Guard, Policy
from privfed.tables.schema import Column, Schema
from privfed.testing.faulty import NearLaplace, ThinnerLaplace
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


@pytest.mark.parametrize(
    ("proven", "detail", "severity", "value"),
    [
        ((3.2, 3.1), {"confidence": 0.99}, "breach", 3.1),
        ((3.2, 2.9), {"confidence": 0.99}, "none", 2.9),
        ((2.8,), {"confidence": 0.99}, "none", 2.8),
        ((3.2,), {}, "breach", 3.2),
    ],
)
def test_chance_has_to_convict_twice(
    proven: tuple[float, ...], detail: dict[str, float], severity: str, value: float
) -> None:
    """A conviction is tried again on new outputs, an acquittal or a proof is not, and what proves less is told."""
    outcomes = iter(proven)

    def audit() -> Finding:
        told = next(outcomes)
        severity = "breach" if told > 3 else "none"
        return Finding("a", "b?", "c", told, of=3, severity=severity, detail=detail)

    found = confirmed(audit)
    assert (found.severity, found.value) == (severity, value) and not list(outcomes)


@pytest.mark.parametrize(
    ("told", "severity"), [((2, 3), "breach"), ((2, 0), "none"), ((0,), "none")]
)
def test_a_source_has_to_be_convicted_twice(
    monkeypatch: pytest.MonkeyPatch, told: tuple[int, ...], severity: str
) -> None:
    """By further draws of the same sources, and by the fewer tests of both times."""
    convicted, asked = iter(told), []

    def drawn(_: object, noises: list[Noise]) -> list[Finding]:
        asked.append(noises)
        count = next(convicted)
        return [Finding("a", "b?", "c", count, of=9, severity="breach" if count else "none")]

    monkeypatch.setattr(guards, "_audit_draws", drawn)
    (found,) = audit_sources(PLAN, SCHEMA, _policy("laplace", "laplace"))
    assert (found.severity, found.value, found.attack) == (severity, min(told), SOURCES)
    assert not list(convicted) and all(each is asked[0] for each in asked)


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


class RoundedNoise(SecureNoise):
    """Loses low bits, as floating point of single precision does."""

    def gaussian(self, size: int, scale: float) -> np.ndarray:
        """Gaussian noise as float32."""
        return super().gaussian(size, scale).astype(np.float32).astype(np.int64)


class ThinNoise(SecureNoise):
    """Draws too narrow noise."""

    def gaussian(self, size: int, scale: float) -> np.ndarray:
        """Gaussian noise of five sixths of the scale."""
        return super().gaussian(size, scale / 1.2)


@pytest.mark.parametrize(
    ("source", "by"),
    [
        (lambda _: TestNoise(3), "shared with owners asked the same"),
        (lambda _: ThinNoise(), "variance of all"),
        (lambda _: RoundedNoise(), "count bit 0 of the noise"),
        (lambda _: SecureNoise(), ""),
    ],
)
def test_the_owners_own_sources_are_drawn_from(source: Callable[[int], Noise], by: str) -> None:
    """Noise that owners share, that is too narrow or loses low bits is convicted; secure noise is not."""
    (found,) = audit_sources(PLAN, SCHEMA, _policy("gaussian", "gaussian"), source)
    assert found.attack == SOURCES
    assert found.severity == ("breach" if by else "none")
    assert not by or by.removeprefix("count ") in found.detail["convicted"]


def test_sources_are_tried_far_from_zero() -> None:
    """Noise that is absent from answers beyond 30 scales is convicted, although none is asked here."""
    (found,) = audit_sources(PLAN, SCHEMA, _policy(NearLaplace(), "gaussian"), TestNoise)
    assert found.severity == "breach"
