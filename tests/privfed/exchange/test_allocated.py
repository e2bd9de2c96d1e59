"""Learners under allocators: amounts as proposed, within the owners' caps and budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from privfed.accountants.adaptive import ByRule, Geometric, Scheduled, Uniform
from privfed.engines.local import LocalDisclosure
from privfed.errors import NobodyAnswered
from privfed.exchange.allocated import AllocatedDisclosure
from privfed.exchange.messages import Release
from privfed.learners import FuzzyTreeRegressor
from privfed.privacy.loss import Loss
from privfed.privacy.policy import Guard, Policy
from privfed.tables.schema import Column, Schema
from privfed.testing.queries import Histogram

SCHEMA = Schema((Column("age", lower=0, upper=100),), Column("risk", lower=0, upper=1))
COUNTS = Histogram(0, (0.0, 50.0, 100.0))
CAPPED = Policy({COUNTS.kind: (Guard.of("laplace", spend="0.1", cap="0.4"),)}, name="capped")


def _federation(policy: Policy) -> LocalDisclosure:
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({"age": rng.uniform(0, 100, 400), "risk": rng.random(400)})
    frame["site"] = np.where(frame.index % 2, "north", "south")
    return LocalDisclosure.from_frame(
        frame, "risk", client="site", schema=SCHEMA, policy=policy, seed=4
    )


def _charged(federation: LocalDisclosure, client: str, kind: str) -> list[Loss]:
    rows = federation.gates[client].ledger.entries()
    return [
        Loss.from_dict(row.body["loss"])
        for row in rows
        if row.event == "reserved" and row.body["kind"] == kind
    ]


def test_amounts_reach_the_ledgers_as_proposed_and_never_above_the_cap() -> None:
    """A schedule of .05, .3 and .9 under a cap of .4, at every client."""
    federation = _federation(CAPPED)
    asking = AllocatedDisclosure(federation, {COUNTS.kind: Scheduled(["0.05", "0.3", "0.9"])})
    for _ in range(3):
        asking.ask(COUNTS)
    for client in federation.clients:
        spent = [float(loss.epsilon or 0) for loss in _charged(federation, client, COUNTS.kind)]
        assert spent == pytest.approx([0.05, 0.3, 0.4])


def test_questions_of_one_round_share_its_amount() -> None:
    """Two histograms in one round cost what one would."""
    federation = _federation(CAPPED)
    asking = AllocatedDisclosure(federation, {COUNTS.kind: Uniform("0.4", 2)})
    answers = asking.ask(COUNTS, Histogram(0, (0.0, 20.0, 100.0)))
    assert answers[0].query == COUNTS
    spent = [float(loss.epsilon or 0) for loss in _charged(federation, "north", COUNTS.kind)]
    assert spent == pytest.approx([0.1, 0.1])


def test_clients_asked_unequally_many_share_by_the_most() -> None:
    """A client asked twice spends the round's amount; one asked once spends half of it."""
    federation, other = _federation(CAPPED), Histogram(0, (0.0, 20.0, 100.0))
    asking = AllocatedDisclosure(federation, {COUNTS.kind: Uniform("0.4", 2)})
    answers = asking.ask({"north": [other, COUNTS], "south": [COUNTS]})
    assert [answer.query for answer in answers] == [other, COUNTS]
    for client, charges in (("north", [0.1, 0.1]), ("south", [0.1])):
        spent = [float(loss.epsilon or 0) for loss in _charged(federation, client, COUNTS.kind)]
        assert spent == pytest.approx(charges)


def test_an_offer_is_of_the_amount_that_would_be_proposed() -> None:
    """Looking ahead uses nothing of the allocator's total; a spent allocator offers nothing."""
    asking = AllocatedDisclosure(_federation(CAPPED), {COUNTS.kind: Scheduled(["0.05"])})
    assert asking.offers(COUNTS) == asking.offers(COUNTS) == ("south", "north")
    asking.ask(COUNTS)
    assert asking.offers(COUNTS) == ()
    assert asking.offers(COUNTS, spend=Fraction(1, 10)) == ("south", "north")


def test_a_rule_sees_releases_and_nothing_else() -> None:
    """What has left so far, of all clients, in order; the total holds whatever the rule wishes."""
    seen: list[int] = []

    def rule(past: Sequence[Release], left: Fraction) -> Fraction:
        assert all(isinstance(release, Release) for release in past)
        seen.append(len(past))
        return Fraction(3, 10)

    asking = AllocatedDisclosure(_federation(CAPPED), {COUNTS.kind: ByRule("0.5", rule)})
    asking.ask(COUNTS)
    asking.ask(COUNTS)
    with pytest.raises(NobodyAnswered, match="all of the allocator's total"):
        asking.ask(COUNTS)
    assert seen == [0, 2]


def test_what_no_allocator_is_for_goes_out_as_it_is() -> None:
    """The owner's own amount, or the learner's proposal."""
    federation = _federation(CAPPED)
    asking = AllocatedDisclosure(federation, {})
    asking.ask(COUNTS)
    asking.ask(COUNTS, spend=Fraction(1, 5))
    spent = [float(loss.epsilon or 0) for loss in _charged(federation, "south", COUNTS.kind)]
    assert spent == pytest.approx([0.1, 0.2])


def test_a_tree_grows_under_a_geometric_allocation() -> None:
    """Each level of a private tree costs half of the one before, and the budget holds."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.random((3000, 3)), columns=["a", "b", "risk"])
    frame["risk"] = (frame["a"] > 0.5) * 0.5 + (frame["b"] > 0.5) * 0.5
    frame["site"] = np.where(frame.index % 2, "north", "south")
    schema = Schema(
        tuple(Column(name, lower=0, upper=1) for name in "ab"), Column("risk", lower=0, upper=1)
    )
    learner = FuzzyTreeRegressor(max_depth=2)
    policy = learner.private("200")
    *_, guard = policy.guards["fuzzy_tree.level"]
    assert guard.spend is not None
    guards = {**policy.guards, "fuzzy_tree.level": (replace(guard, cap=guard.spend * 2),)}
    federation = LocalDisclosure.from_frame(
        frame, "risk", client="site", schema=schema, policy=replace(policy, guards=guards), seed=4
    )
    allocator = Geometric(guard.spend * 2, 2, "1/2")
    learner.fit(AllocatedDisclosure(federation, {"fuzzy_tree.level": allocator}))
    losses = _charged(federation, "north", "fuzzy_tree.level")
    first, second = (float(loss.rho or 0) for loss in losses)
    assert first == pytest.approx(float(guard.spend) * 4 / 3, rel=1e-6)
    assert second == pytest.approx(first / 2, rel=1e-6)
    assert (federation.budget()["spent"] <= 200).all()
