"""What a server's replies cost, against the ledgers that they were charged to."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from privfed.engines.journal import Journal
from privfed.engines.received import received_privacy
from privfed.engines.simulated import sockets
from privfed.learners import FedForestClassifier, FuzzyTreeRegressor, RuleFitClassifier
from privfed.learners.privacy_text import NONE, privacy_text
from privfed.privacy.masked_sums import MaskedSums
from privfed.privacy.policy import Policy
from privfed.study.private_evaluation import evaluated, with_evaluation
from privfed.tables.schema import Schema
from privfed.testing.hospitals import BINARY, NUMERIC, gates, patients

FRAME = patients(240)
LEARNERS: list[tuple[Any, Schema]] = [
    (FedForestClassifier(n_estimators=2, max_depth=2, random_state=0), BINARY),
    (FuzzyTreeRegressor(max_depth=1), NUMERIC),
    (RuleFitClassifier(n_estimators=5, n_rounds=5, random_state=0), BINARY),
]


def learned(learner: Any, policy: Policy, schema: Schema) -> tuple[dict[str, Any], Journal]:
    """What the ledgers say when the learner was fitted over sockets, and the replies."""
    federation = gates(FRAME, policy, schema)

    def job(disclosure: Any) -> Journal:
        learner.fit(disclosure)
        assert learner.privacy_ == federation.privacy()
        journal: Journal = disclosure.journal
        return journal

    journal = sockets(federation, job)
    return federation.privacy() or {}, journal


@pytest.mark.parametrize(("learner", "schema"), LEARNERS)
def test_the_replies_cost_what_the_ledgers_were_charged(learner: Any, schema: Schema) -> None:
    """To the last digit, with delta, unit, relation and test noise; an unprotected reply has no epsilon."""
    policy = learner.private("1.5")
    by_ledgers, journal = learned(learner, policy, schema)
    by_replies = received_privacy(policy, schema, journal)
    assert by_replies == {**by_ledgers, "by": "owners"}
    assert 0 < by_ledgers["epsilon"] <= 1.5
    text = privacy_text(by_replies)
    assert text.startswith("Privacy, on the word of the data owners' gates: epsilon 1.")
    assert "by all that this study was answered until the model was fitted" in text
    assert "The owners' ledgers show what was charged." in text
    published = learner.published()
    _, journal = learned(learner, published, schema)
    assert NONE in privacy_text(received_privacy(published, schema, journal))


def test_replies_of_another_policy_and_masked_ones_have_no_known_cost() -> None:
    """A gate with less noise than the proposed policy makes no model say the proposed epsilon."""
    learner, schema = LEARNERS[1]
    policy = learner.private("1")
    _, journal = learned(learner, learner.private("2"), schema)
    assert received_privacy(policy, schema, journal) is None
    assert received_privacy(learner.published(), schema, journal) is None
    assert received_privacy(Policy({}, budget=policy.budget), schema, journal) is None
    masked = replace(policy, masked=MaskedSums({"A": "", "B": "", "C": ""}, colluding=1))
    assert received_privacy(masked, schema, journal) is None


def test_without_a_reply_nothing_is_stated() -> None:
    """As before the first answer."""
    learner, schema = LEARNERS[1]
    assert received_privacy(learner.private("1"), schema, Journal()) is None


def test_queries_about_a_model_s_errors_are_no_part_of_its_epsilon() -> None:
    """A replay of a finished study states what the model did, not what its evaluation cost beside it."""
    learner, schema = LEARNERS[1]
    policy = with_evaluation(learner.private, Fraction(4), Fraction(1, 2), learner, schema)
    federation = gates(FRAME, policy, schema)

    def job(disclosure: Any) -> Journal:
        learner.fit(disclosure)
        assert evaluated(learner, disclosure)
        journal: Journal = disclosure.journal
        return journal

    journal = sockets(federation, job)
    told = received_privacy(policy, schema, journal)
    assert told is not None and learner.privacy_ is not None
    assert told["epsilon"] == learner.privacy_["epsilon"] < federation.budget()["spent"].max()
    federation.close()
