"""The abstract interface: scripted answers, replayed answers, and nobody answering."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from privfed.engines.local import LocalDisclosure
from privfed.errors import NobodyAnswered
from privfed.exchange.disclosure import ReplayDisclosure, ScriptedDisclosure
from privfed.exchange.messages import Absent
from privfed.ledger import Ledger
from privfed.owner.gate import Gate
from privfed.privacy.noise import TestNoise
from privfed.privacy.policy import Guard, Policy
from privfed.questions.query import Query
from privfed.tables.records import Records
from privfed.tables.schema import Schema
from privfed.testing.queries import AboveMiddle, Histogram, LevelSums

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


def test_a_part_that_nobody_released_is_named(schema: Schema) -> None:
    """With its query, and where to look."""
    answer = scripted(schema).ask(Histogram(0, (0.0, 1.0)))
    with pytest.raises(KeyError, match=r"released part 'count' of small\.histogram: is it"):
        answer.total("count")


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
    assert replay.offers(QUERY) == ("north", "south")
    assert tuple(replay.clients) == ("north", "south")
    for query, answers in zip(asked, first, strict=True):
        again = replay.ask(query)
        for part in query.parts(schema):
            assert np.array_equal(again.total(part), answers.total(part))
            assert again.deviation(part) == answers.deviation(part)
    assert not np.array_equal(first[0].total("counts"), first[2].total("counts"))
    assert replay.offers(QUERY) == ()
    with pytest.raises(NobodyAnswered):
        replay.ask(QUERY)


NARROW = Histogram(0, (0.0, 0.2, 1.0))


def test_each_client_is_asked_its_own_questions(records: Records) -> None:
    """Equal questions are one answer, in the order of first appearance, of those asked alone."""
    live = federation(records)
    answers = live.ask({"south": [NARROW, QUERY], "north": [QUERY, QUERY]})
    assert [answer.query for answer in answers] == [NARROW, QUERY, QUERY]
    assert [list(answer.replies) for answer in answers] == [
        ["south"],
        ["south", "north"],
        ["north"],
    ]
    asked = [(entry.client, entry.release.query) for entry in live.transcript()]
    assert sorted(asked) == sorted(
        [("south", NARROW.digest), ("south", QUERY.digest), *[("north", QUERY.digest)] * 2]
    )


def test_equal_questions_to_all_are_one_round_by_either_way(records: Records) -> None:
    """A mapping that asks everybody the same gives what asking all at once gives, to the bit."""
    by_names = federation(records).ask({"north": [QUERY, NARROW], "south": [QUERY, NARROW]})
    at_once = federation(records).ask(QUERY, NARROW)
    for own, other in zip(by_names, at_once, strict=True):
        assert np.array_equal(own.total("counts"), other.total("counts"))
        assert list(own.replies) == list(other.replies)


def test_own_questions_are_replayed(records: Records, schema: Schema) -> None:
    """A transcript of unequal rounds answers them again."""
    live = federation(records)
    own = {"north": [QUERY], "south": [NARROW, QUERY]}
    first = live.ask(own)
    again = ReplayDisclosure(schema, live.transcript()).ask(own)
    for one, other in zip(first, again, strict=True):
        assert np.array_equal(one.total("counts"), other.total("counts"))


def test_whom_own_questions_are_for_is_said_once(schema: Schema) -> None:
    """A mapping beside names, beside other questions, or to a stranger is a mistake."""
    asked = scripted(schema)
    with pytest.raises(ValueError, match="give it alone"):
        asked.ask({"north": [QUERY]}, clients=["north"])  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="give it alone"):
        asked.ask({"north": [QUERY]}, QUERY)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"'west'.*north, south, silent"):
        asked.ask({"west": [QUERY]})
    with pytest.raises(NobodyAnswered, match="nobody was asked"):
        asked.ask({})


def test_offers_of_a_script(schema: Schema) -> None:
    """Whoever the script lets speak; nothing counts as asked, and strangers are a mistake."""
    asked = scripted(schema)
    assert asked.offers(QUERY) == ("north", "south")
    assert asked.offers(QUERY, ["silent", "south"]) == ("south",)
    assert asked.asked == [] and asked.released == 0
    with pytest.raises(ValueError, match="'west'"):
        asked.offers(QUERY, ["west"])


def test_only_what_is_offered_is_asked(records: Records) -> None:
    """A kind that one policy does not name is asked of the other alone; no refusal is recorded."""
    live = federation(records)
    silent = Gate("west", records, Policy({}), Ledger(None), noise=TestNoise(3))
    wider = LocalDisclosure({**live.gates, "west": silent})
    level = LevelSums(((),))
    unknown = AboveMiddle(0, 25)
    answers = wider.ask_offered(unknown, QUERY, level, QUERY)
    assert [answer.query for answer in answers] == [unknown, QUERY, level, QUERY]
    assert [list(answer.replies) for answer in answers] == [[], *[["north", "south"]] * 3]
    assert wider.released == 6
    for gate in wider.gates.values():
        assert "refused" not in [entry.event for entry in gate.ledger.entries()]
    assert wider.ask_offered(unknown).releases() == ()


def test_an_answer_that_was_offered_and_did_not_come_is_no_error(records: Records) -> None:
    """Whoever failed or was lost leaves an answer without its release."""
    live = federation(records)
    for gate in live.gates.values():
        for method in ("_protected", "_around_nothing"):
            setattr(gate, method, None)
    answer = live.ask_offered(QUERY).only
    assert not answer.releases and len(answer.replies) == 2
