"""The private training as a whole, audited by canaries through its gate: faults that must be convicted.

Canaries are spread over categories of their own, so that a hundred of them are told apart in one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privfed.attacks.finding import Finding
from privfed.audits.trainings import audit_learner, roomy_schema, scores_of
from privfed.learners import FedForestClassifier
from privfed.learners.private.queries import BasisLeafCounts, Gradient
from privfed.privacy.noise import TestNoise
from privfed.privacy.policy import Policy
from privfed.questions.part import Part, Sensitivity
from privfed.questions.query import Query
from privfed.tables.schema import Schema
from privfed.testing.faulty import SilentGaussian, ThinnerGaussian, with_mechanism

SCHEMA = roomy_schema()
LEARNER = FedForestClassifier(random_state=0)
POLICY = LEARNER.private("8", "1e-5")
#: One innocent training in a thousand is convicted.
ALPHA = 1e-3


def audited(policy: Policy = POLICY, learner: Any = LEARNER, runs: int = 3) -> Finding:
    """What three hundred canaries prove, or a hundred."""
    settings: dict[str, Any] = {"canaries": 100, "others": 1000, "runs": runs, "alpha": ALPHA}
    return audit_learner(learner, policy, SCHEMA, noise=TestNoise(1), **settings)


def test_the_whole_training_stays_below_its_ledger() -> None:
    """And the audit is not blind: a third of the ledger's epsilon is proven."""
    found = audited()
    assert found.severity == "none" and found.of == 8.0
    assert found.value > found.of / 3
    assert all(0.9 < share <= 1 + 1e-6 for share in found.detail["reach"].values())


def test_half_the_noise_is_convicted() -> None:
    """By all answers together: no single one of them tells so much."""
    found = audited(with_mechanism(POLICY, ThinnerGaussian(2)))
    assert found.severity == "breach" and found.of == 8.0
    assert found.attack == "audit FedForestClassifier"


def test_one_histogram_without_noise_is_convicted() -> None:
    """The first of three; it costs 6 % of the budget, and is found by its own charge."""
    found = audited(with_mechanism(POLICY, SilentGaussian(every=3), ["private.histogram"]), runs=1)
    assert found.severity == "breach"
    assert found.attack == "audit FedForestClassifier, private.histogram 1"


def halved(part: Part) -> Part:
    """A part that believes its sensitivity to be half as large."""
    assert part.sensitivity is not None
    believed = part.sensitivity.add_or_remove
    return replace(part, sensitivity=Sensitivity.of(believed.l1, -(-believed.l2_squared // 4)))


class HalvedGradient(Gradient):
    """Believes that a record moves its sums half as far as it does."""

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """All parts, understated."""
        return {name: halved(part) for name, part in super().parts(schema).items()}


class HalvedLeafCounts(BasisLeafCounts):
    """Believes that a record reaches the leaves of a quarter of the trees."""

    def parts(self, schema: Schema) -> Mapping[str, Part]:
        """All parts, understated."""
        return {name: halved(part) for name, part in super().parts(schema).items()}


@pytest.mark.parametrize("faulty", [HalvedGradient, HalvedLeafCounts])
def test_half_a_sensitivity_is_convicted(
    faulty: type[Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a canary that moves the answer further than was charged for; as if the fault were installed."""
    monkeypatch.setattr("privfed.questions.plugins.taken", lambda *_: False)

    class Faulty(FedForestClassifier):
        queries = tuple(
            faulty if query.kind == faulty.kind else query for query in FedForestClassifier.queries
        )

    found = audited(learner=Faulty(random_state=0), runs=1)
    assert found.severity == "breach"
    assert found.attack == f"audit Faulty, {faulty.kind} 1, sensitivity"


def test_scores_have_noise_of_their_own() -> None:
    """Overlapping canaries, whole scores: under honest noise right guesses are as many as derived."""
    rng = np.random.default_rng(0)
    moves = rng.normal(size=(30, 40))
    moves *= 1.5 / np.sqrt((moves**2).sum(axis=1, keepdims=True))
    told = []
    for _ in range(400):
        coins = rng.random(30) < 0.5
        scores, length = scores_of(moves, coins @ moves + rng.normal(size=40), coins)
        told.append((scores - (coins - 0.5) * length**2) / length)
    noise = np.array(told)
    assert abs(noise.std() - 1) < 0.02 and abs(noise.mean()) < 0.03
    assert np.abs(np.corrcoef(noise.T) - np.eye(30)).max() < 0.25
