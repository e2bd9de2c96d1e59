"""Delta is subtracted before an event speaks: honest mechanisms that need it are acquitted."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privfed.attacks.finding import Finding
from privfed.attacks.roc import clopper_pearson
from privfed.audits.bounds import epsilon_from_event
from privfed.audits.paired_trials import audit_mechanism

#: One audit in a million may convict an innocent mechanism.
ALPHA = 1e-6
TRIALS = 40_000


def revealing(epsilon: float, delta: float, seed: int) -> tuple[object, object]:
    """Samplers of a mechanism that gives its bit away with probability delta, else flips it.

    It is (epsilon, delta)-DP, and for no smaller delta: outputs 2 and 3 say which bit it was.
    """
    rng = np.random.default_rng(seed)

    def sample(bit: int, runs: int) -> np.ndarray:
        told = (rng.random(runs) < 1 / (1 + math.exp(-epsilon))) == bool(bit)
        return np.where(rng.random(runs) < delta, 2 + bit, told).astype(np.int64)

    return lambda runs: sample(1, runs), lambda runs: sample(0, runs)


def audited(epsilon: float, delta: float, seed: int, claimed: float) -> Finding:
    """An audit of what reveals with probability delta and claims another."""
    outputs = revealing(epsilon, delta, seed)
    return audit_mechanism(*outputs, epsilon, delta=claimed, trials=TRIALS, alpha=ALPHA)  # type: ignore[arg-type]


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.1), (0.5, 0.05), (1.0, 0.3), (2.0, 0.3)])
@pytest.mark.parametrize("seed", range(3))
def test_an_honest_mechanism_is_acquitted_at_its_delta(
    epsilon: float, delta: float, seed: int
) -> None:
    """What it reveals outright happens with probability delta, as it claims."""
    found = audited(epsilon, delta, seed, delta)
    assert found.severity == "none"
    assert found.value <= epsilon


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.1), (0.5, 0.05), (1.0, 0.3), (2.0, 0.3)])
def test_the_same_outputs_convict_who_claims_no_delta(epsilon: float, delta: float) -> None:
    """The power twin: at delta = 0, and at half its delta, the very event proves far more."""
    for claimed in (0.0, delta / 2):
        found = audited(epsilon, delta, 1, claimed)
        assert found.severity == "breach"
        assert found.value > epsilon + 1


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 0.02), (1.0, 0.1)])
def test_two_point_bound_covers_at_delta(epsilon: float, delta: float) -> None:
    """On the event that meets the definition with equality it is wrong in at most alpha of games."""
    rng = np.random.default_rng(3)
    rare = 0.2
    likely = math.exp(epsilon) * rare + delta
    inside, outside = (rng.binomial(4000, p, 4000) for p in (likely, rare))
    proven = epsilon_from_event(
        inside, outside, trials=4000, trials_outside=4000, delta=delta, alpha=0.1
    )
    wrong = (proven > epsilon).mean()
    assert wrong <= 0.1
    assert wrong > 0.005  # the bound is not idle: it is wrong now and then, as it may be


def test_the_bound_is_that_of_the_definition() -> None:
    """ln((low - delta) / high), each rate at its own half of alpha; nothing where delta explains all."""
    low, _ = clopper_pearson(300, 1000, 0.025)
    _, high = clopper_pearson(50, 900, 0.025)
    for delta in (0.0, 0.01, 0.1, 0.15):
        proven = epsilon_from_event(300, 50, trials=1000, trials_outside=900, delta=delta)
        assert proven == pytest.approx(max(0.0, math.log((low - delta) / high)))
    assert epsilon_from_event(300, 50, trials=1000, trials_outside=900, delta=0.25) == 0.0
    assert epsilon_from_event(300, 0, trials=1000, trials_outside=900, delta=0.5) == 0.0
