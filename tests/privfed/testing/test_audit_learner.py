"""Audits of whole learners by canary records: below the ledger's figure, and not blind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privfed.errors import InputError
from privfed.learners import FedForestClassifier, FuzzyTreeRegressor, RuleFitClassifier
from privfed.learners.base import FederatedLearner
from privfed.privacy.noise import TestNoise
from privfed.privacy.policy import Policy
from privfed.testing.audit_learner import audit_learner, plant
from privfed.testing.faulty import ThinnerGaussian
from privfed.testing.hospitals import BINARY, NUMERIC

SMALL: dict[str, Any] = {"canaries": 12, "others": 50, "runs": 14, "alpha": 0.01}


def thinner(policy: Policy, factor: float) -> Policy:
    """The policy with too little Gaussian noise, at the same charge."""
    faulty = ThinnerGaussian(factor)
    guards = {
        kind: tuple(
            replace(guard, mechanism=faulty) if guard.called == "gaussian" else guard
            for guard in several
        )
        for kind, several in policy.guards.items()
    }
    return replace(policy, guards=guards)


@pytest.mark.filterwarnings("ignore:the noise in all histograms")
@pytest.mark.parametrize(
    ("learner", "schema"),
    [
        (FuzzyTreeRegressor(), NUMERIC),
        (RuleFitClassifier(trees=10, rounds=6, random_state=0), BINARY),
        (FedForestClassifier(trees=10, random_state=0), BINARY),
    ],
    ids=["fuzzy tree", "rulefit", "forest"],
)
def test_private_learners_stay_below_their_ledgers(learner: FederatedLearner, schema: Any) -> None:
    """And the same learner with a tenth of the noise does not."""
    policy = learner.private("1", "1e-5")
    honest = audit_learner(learner, policy, schema, noise=TestNoise(1), **SMALL)
    faulty = audit_learner(learner, thinner(policy, 20), schema, noise=TestNoise(1), **SMALL)
    assert honest.severity == "none"
    assert honest.of is not None and honest.of <= 1.0
    assert faulty.severity == "breach" and faulty.of == honest.of
    assert faulty.detail["canaries"] == 168


def test_canaries_are_records_of_the_box_under_fair_coins() -> None:
    """Whole numbers where the schema has them; coins neither follow the records nor repeat."""
    planted = plant(BINARY, 400, 50, seed=1)
    assert len(planted.canaries) == 400 and len(planted.others) == 50
    assert len(planted.held) == 50 + planted.coins.sum()
    assert 150 < planted.coins.sum() < 250
    sex = planted.canaries.x[:, 3]
    assert set(np.unique(sex)) == {0, 1}
    assert not np.array_equal(planted.coins, plant(BINARY, 400, 50, seed=2).coins)


def test_other_units_are_refused() -> None:
    """Canary records say nothing of persons."""
    policy = replace(FuzzyTreeRegressor().private("1"), unit="individual", cap=2)
    with pytest.raises(InputError, match="record"):
        audit_learner(FuzzyTreeRegressor(), policy, NUMERIC)
