"""The abstract interface: scripted answers, replayed answers, and nobody answering."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from privfed.disclosure import ReplayDisclosure, ScriptedDisclosure
from privfed.errors import NobodyAnswered
from privfed.gate import Gate
from privfed.ledger import Ledger
from privfed.local import LocalDisclosure
from privfed.noise import TestNoise
from privfed.policy import Guard, Policy
from privfed.query import Query
from privfed.records import Records
from privfed.release import Absent
from privfed.schema import Schema
from privfed.testing.queries import Histogram, LevelSums

QUERY = Histogram(0, (0.0, 0.5, 1.0))


def script(client: str, query: Query) -> Mapping[str, np.ndarray]:
    """Say one fixed answer; the client ``silent`` says nothing."""
    return {"north": {"counts": np.array([1, 2])}, "south": {"counts": np.array([3, 4])}}[client]


def scripted(schema: Schema) -> ScriptedDisclosure:
    """Two clients that answer and one that does not."""
    return ScriptedDisclosure(schema, script, ("north", "south", "silent"))


def test_scripted_answers(schema: Schema) -> None:
    """Answers come from the script; what was asked is kept; silence is a value."""
    federation = scripted(schema)
    answers = federation.ask(QUERY)
    assert answers.total("counts").tolist() == [4, 6]
    assert isinstance(answers.only.replies["silent"], Absent)
    assert federation.asked == [QUERY]
    assert not answers.releases()[0].secure


def test_some_clients(schema: Schema) -> None:
    """Only those named are asked; an unknown name lists the known ones."""
    assert scripted(schema).ask(QUERY, clients=["south"]).total("counts").tolist() == [3, 4]
    with pytest.raises(ValueError, match=r"'west'.*north, south, silent"):
        scripted(schema).ask(QUERY, clients=["west"])


def test_nobody_answered(schema: Schema) -> None:
    """A typed error names the kind and why."""
    with pytest.raises(NobodyAnswered, match=r"small\.histogram: no reply in time"):
        scripted(schema).ask(QUERY, clients=["silent"])
    with pytest.raises(NobodyAnswered, match="nobody was asked"):
        scripted(schema).ask(QUERY, clients=[])


def federation(records: Records) -> LocalDisclosure:
    """Two gates that add Laplace noise, over halves of the records."""
    guards = {QUERY.kind: (Guard.of("laplace", spend="0.5"),), "small.level": (Guard.of("open"),)}
    halves = {"north": np.arange(25), "south": np.arange(25, 50)}
    return LocalDisclosure(
        {
            name: Gate(
                name, records.take(rows), Policy(guards), Ledger(None), noise=TestNoise(seed)
            )
            for seed, (name, rows) in enumerate(halves.items())
        }
    )


def test_replay_gives_the_same_answers(records: Records, schema: Schema) -> None:
    """Recorded answers repeat in order: a question asked twice has two answers, then none."""
    asked: list[Query] = [QUERY, LevelSums((((0, 1),), ((0, 0),))), QUERY]
    live = federation(records)
    first = [live.ask(query) for query in asked]
    replay = ReplayDisclosure(schema, live.transcript())
    assert tuple(replay.clients) == ("north", "south")
    for query, answers in zip(asked, first, strict=True):
        again = replay.ask(query)
        for part in query.parts(schema):
            assert np.array_equal(again.total(part), answers.total(part))
            assert again.deviation(part) == answers.deviation(part)
    assert not np.array_equal(first[0].total("counts"), first[2].total("counts"))
    with pytest.raises(NobodyAnswered):
        replay.ask(QUERY)
