"""A toy learner with many trees, each over a subset of the clients, in one round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
import pandas as pd
import pytest

from privfed import Budget, Column, Guard, LocalDisclosure, Policy, Schema
from privfed.exchange.disclosure import Disclosure, ReplayDisclosure
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners.base import FederatedRegressor, Planned
from privfed.learners.parameters import Constraints, Integers
from privfed.questions.exact import Number
from privfed.questions.query import Query
from privfed.testing.check_learner import CHECKS, check_learner
from privfed.testing.queries import LevelSums

SCHEMA = Schema(
    tuple(Column(name, lower=0, upper=1) for name in "abc"), Column("y", lower=0, upper=1)
)


class Subsets(FederatedRegressor):
    """Trees of one split, each on its own feature and asked of half of the clients.

    Args:
        trees: how many, at most one for each feature, so that their questions differ.
        random_state: seed of the draws.
    """

    queries: ClassVar[tuple[type[Query], ...]] = (LevelSums,)
    _parameter_constraints: ClassVar[Constraints] = {
        "trees": [Integers(at_least=1)],
        "random_state": [Integers(at_least=0), None],
    }

    def __init__(self, trees: int = 3, random_state: int | None = None) -> None:
        self.trees = trees
        self.random_state = random_state

    def fit(self, federation: Disclosure) -> Self:
        """One round: each client is asked about its own trees."""
        self._start(federation)
        rng = np.random.default_rng(self.random_state)
        half = (len(federation.clients) + 1) // 2
        questions: dict[str, list[Query]] = {}
        for tree in range(self.trees):
            for number in sorted(rng.permutation(len(federation.clients))[:half]):
                asked = questions.setdefault(federation.clients[number], [])
                asked.append(LevelSums((((tree, 0),), ((tree, 1),))))
        answers = federation.ask(questions)
        self.asked_ = [tuple(answer.replies) for answer in answers]
        self.trees_ = [
            (
                _feature(answer.query),
                np.clip(answer.total("sums") / np.maximum(answer.total("counts"), 1), 0, 1),
            )
            for answer in answers
            if answer.releases
        ]
        return self

    def predict(self, x: pd.DataFrame | np.ndarray, *, client: str | None = None) -> np.ndarray:
        """The mean over the trees."""
        upper = (self._encode(x, client) >= 0.5).astype(int)
        return np.asarray(np.mean([means[upper[:, f]] for f, means in self.trees_], axis=0))

    def published(self) -> Policy:
        """Sums as they are."""
        return Policy({LevelSums.kind: (Guard.of("open"),)}, name="published")

    def private(
        self, epsilon: Number, delta: Number = "1e-5", *, schema: Schema | None = None
    ) -> Policy:
        """An equal share for each tree, half of it for counts and half for sums."""
        budget = Budget.of(epsilon)
        share = budget.epsilon / self.trees / 2
        guards = tuple(Guard.of("laplace", part, spend=share) for part in ("counts", "sums"))
        return Policy({LevelSums.kind: guards}, budget=budget, name="private")

    def plan(self, schema: Schema, policy: Policy) -> Sequence[Planned]:
        """Every tree, if it is one client's."""
        return [Planned(LevelSums((((0, 0),), ((0, 1),))), self.trees)]


def _feature(query: Query) -> int:
    assert isinstance(query, LevelSums)
    return int(query.nodes[0][0][0])


def table(rows: int = 900) -> pd.DataFrame:
    """Records of five clients."""
    rng = np.random.default_rng(6)
    frame = pd.DataFrame(rng.uniform(0, 1, (rows, 3)), columns=list("abc"))
    frame["y"] = frame[["a", "b", "c"]].mean(axis=1)
    return frame.assign(site=rng.integers(0, 5, rows))


def federate(policy: Policy) -> LocalDisclosure:
    """Gates before the table."""
    return LocalDisclosure.from_frame(
        table(), "y", client="site", schema=SCHEMA, policy=policy, seed=5, queries=(LevelSums,)
    )


def test_it_conforms() -> None:
    """The kit's checks hold for a learner that asks each client its own questions."""
    assert len(check_learner(Subsets(), federate, table()[list("abc")])) == len(CHECKS)


def test_each_tree_is_of_its_own_clients_in_one_round() -> None:
    """Every client was asked about its own trees alone, and all of it was one round."""
    federation = federate(Subsets().published())
    model = Subsets(random_state=2).fit(federation)
    assert len({tuple(sorted(own)) for own in model.asked_}) > 1
    assert sum(len(own) for own in model.asked_) == 3 * 3
    asked = Counter(entry.client for entry in federation.transcript())
    assert asked == Counter(client for own in model.asked_ for client in own)
    for gate in federation.gates.values():
        rounds = {row.body["round"] for row in gate.ledger.entries() if row.event == "reserved"}
        assert len(rounds) <= 1
    predicted = model.predict(table()[list("abc")])
    assert np.corrcoef(predicted, table()["y"])[0, 1] > 0.7


def test_gates_change_nothing_but_noise() -> None:
    """Ungated, gated and replayed, the same trees to the bit."""
    federation = federate(Subsets().published())
    gated = Subsets(random_state=2).fit(federation)
    bare = Subsets(random_state=2).fit(UngatedDisclosure.from_frame(table(), SCHEMA, "site"))
    recorded = ReplayDisclosure(SCHEMA, federation.transcript(), federation.clients)
    assert gated.to_dict() == Subsets(random_state=2).fit(recorded).to_dict()
    assert gated.to_dict() == bare.to_dict()


@pytest.mark.parametrize("epsilon", [1, 8])
def test_a_client_pays_for_its_own_trees_alone(epsilon: int) -> None:
    """Spent is its share of trees, never more than the budget."""
    learner = Subsets(random_state=2)
    federation = federate(learner.private(epsilon))
    model = learner.fit(federation)
    mine = Counter(client for own in model.asked_ for client in own)
    for line in federation.budget().to_dict("records"):
        assert line["spent"] == pytest.approx(epsilon * mine[str(line["client"])] / 3)
