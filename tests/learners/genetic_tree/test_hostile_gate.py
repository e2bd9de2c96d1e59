"""Hostile candidates as bytes at a gate: refused before a record is read, whatever they are."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import Column, Gate, Ledger, Records, Schema
from privfed.exchange.messages import Refusal, Release, Request
from privfed.learners.genetic_tree import GeneticTreeClassifier
from privfed.learners.genetic_tree.client import Client
from privfed.learners.genetic_tree.personal import Choice
from privfed.learners.genetic_tree.population import Population, Scoring
from privfed.learners.genetic_tree.queries import Fitness, KeepBest
from privfed.privacy.noise import TestNoise
from privfed.questions import wire
from privfed.questions.query import Query, View
from tests.asked_gate import events, reply

SCHEMA = Schema(
    tuple(Column(name, "number", 0, 1) for name in "abc"),
    Column("y", "category", categories=("no", "yes")),
)
GOOD = Population.of(np.array([[0, 1, -1], [2, -1, 0]]), 2)
KINDS = (
    Fitness(GOOD, Scoring(classify=True)),
    KeepBest(GOOD, Scoring(classify=True), Choice()),
)


def _array(values: Any) -> Any:
    return msgspec.msgpack.decode(wire.encode(np.array(values)))


#: What takes the place of the population, or of one of its fields.
INSTEAD: dict[str, Any] = {
    "nothing": None,
    "a number": 7,
    "text": "0 1 2",
    "another class": {"classify": True, "held": "share", "train_share": 0.8, "folds": 5},
    "a list": [[0, 1, 2]],
    "unknown features": {"codes": _array([9, 0, 0])},
    "negative codes": {"codes": _array([-2, 0, 0])},
    "floats": {"codes": _array([1.0, 0.5, 0.0])},
    "not a number": {"codes": _array([np.nan, 0.0, 0.0])},
    "no codes": {"codes": _array(np.zeros(0, dtype=np.int64))},
    "huge codes": {"codes": _array([2**62, 0, 0])},
    "too many codes": {"codes": _array([1] * 99)},
    "codes as a list": {"codes": [1, 0, 0]},
    "an absurd depth": {"depth": 2**40},
    "a depth beyond all words": {"depth": 2**63},
    "a depth of a half": {"depth": 2.5},
    "a depth in words": {"depth": "two"},
    "no depth": {"depth": None},
    "an absurd number": {"count": 2**62},
    "a number of none": {"count": float("nan")},
}


def _request(query: Query, instead: Any, number: int) -> Request:
    plain = msgspec.msgpack.decode(query.fields)
    kept = plain["population"]
    plain["population"] = {**kept, **instead} if isinstance(instead, dict) else instead
    return Request(str(number), query.kind, msgspec.msgpack.encode(plain))


@pytest.mark.parametrize("query", KINDS, ids=["score", "keep"])
def test_no_hostile_candidates_reach_a_record(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal each, no charge, and no look at the records; good ones (the power twin) take one."""
    looks, of = [], Client.of

    def watched(view: View, classify: bool) -> Client:
        looks.append(view)
        return of(view, classify)

    monkeypatch.setattr(Client, "of", watched)
    rng = np.random.default_rng(0)
    records = Records(SCHEMA, rng.random((20, 3)), rng.integers(0, 2, 20).astype(float))
    policy = GeneticTreeClassifier().published()
    gate = Gate("clinic", records, policy, Ledger(None), noise=TestNoise(1))
    for number, (name, instead) in enumerate(INSTEAD.items()):
        assert isinstance(reply(gate, _request(query, instead, number)), Refusal), name
    assert set(events(gate)) == {"refused"} and not looks
    assert isinstance(reply(gate, _request(query, {}, len(INSTEAD))), Release) and looks
