"""The search: it finds what helps, hears late clients, and goes on with few of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import pytest

from privfed.errors import Note
from privfed.exchange.disclosure import ScriptedDisclosure
from privfed.exchange.ungated import UngatedDisclosure
from privfed.learners.genetic_tree import local
from privfed.learners.genetic_tree.evolution import Evolution, GeneticParams
from privfed.learners.genetic_tree.population import Scoring
from privfed.learners.genetic_tree.queries import Depth, Fitness, Size, Structure, Votes
from privfed.learners.genetic_tree.structures import NIL
from privfed.questions.query import Query
from privfed.tables.schema import Column, Schema

MakeUngated = Callable[..., UngatedDisclosure]
SCHEMA = Schema(
    tuple(Column(name, "number", 0, 1) for name in "abcd"),
    Column("y", "category", categories=("no", "yes")),
)
NUMBERS = Schema(SCHEMA.features, Column("y", "number", 0, 1))
#: What a scripted client says to a kind of question.
Says = Mapping[str, Callable[[str, Query], Mapping[str, np.ndarray]]]


def _settings(**changes: float) -> GeneticParams:
    given = {
        "population": 8,
        "generations": 6,
        "lowest": 2,
        "deepest": 4,
        "leaves": 0.05,
        "pressure": 3,
        "flips": 0.1,
        "swaps": 0.1,
        "participation": 1.0,
    }
    return GeneticParams(**(given | changes), votes=local.VoteThresholds())  # type: ignore[arg-type]


def _scripted(
    clients: int = 4, schema: Schema = SCHEMA, changes: Mapping[str, object] = MappingProxyType({})
) -> ScriptedDisclosure:
    """Clients that like feature 3, each node of it a point, and nothing else."""

    def fitness(client: str, query: Query) -> Mapping[str, np.ndarray]:
        assert isinstance(query, Fitness)
        return {"scores": (query.population.genes == 3).sum(axis=1) / 10}

    said: dict[str, object] = {
        Size.kind: {"size": np.array([10])},
        Depth.kind: {"depth": np.array([3.0])},
        Structure.kind: {"nodes": np.array([1, 2, 0, 0, 0], dtype=np.uint8)},
        Votes.kind: {"votes": np.array([0.0, 1.0])},
        Fitness.kind: fitness,
        **changes,
    }

    def script(client: str, query: Query) -> Mapping[str, np.ndarray]:
        answer = said[query.kind]
        found: Mapping[str, np.ndarray] = answer(client, query) if callable(answer) else answer  # type: ignore[assignment]
        return found

    return ScriptedDisclosure(schema, script, [f"c{number}" for number in range(clients)])


def _run(federation: ScriptedDisclosure, **changes: float) -> Evolution:
    scoring = Scoring(classify=federation.schema is SCHEMA)
    evolution = Evolution(federation, _settings(**changes), scoring, np.random.default_rng(0))
    evolution.run()
    return evolution


def test_what_clients_like_spreads() -> None:
    """The best fitness never falls, and all seven nodes end as the feature that is liked."""
    evolution = _run(_scripted(), generations=60)
    best = [top for top, _ in evolution.history]
    assert (np.diff(best) >= 0).all()
    assert best[-1] > 0.5 > best[0]


def test_a_search_that_hears_nothing_of_use_finds_nothing() -> None:
    """The power twin: with equal scores for all, the liked feature does not spread."""
    flat = _scripted(
        changes={Fitness.kind: lambda _, query: {"scores": np.zeros(query.population.count)}}
    )
    evolution = Evolution(flat, _settings(generations=60), Scoring(True), np.random.default_rng(0))
    assert (evolution.run().genes == 3).mean() < 0.5


def test_the_depth_is_the_median_of_the_clients_rounded_down() -> None:
    """One deep tree moves it as little as a slightly deeper one (Section III)."""
    depths = {"c0": 2.0, "c1": 2.0, "c2": 3.0, "c3": 9.0}
    told = _scripted(changes={Depth.kind: lambda client, _: {"depth": np.array([depths[client]])}})
    assert _run(told, generations=1, deepest=9).depth == 2
    depths["c1"] = 3.0
    assert _run(told, generations=1, deepest=9).depth == 3


def test_each_client_joins_once_and_brings_its_structure() -> None:
    """A quarter of eight clients a generation: each is asked its size and structure once, when new."""
    federation = _scripted(8)
    evolution = _run(federation, participation=0.25, generations=30)
    asked = Counter(query.kind for query in federation.asked)
    assert asked[Depth.kind] == 1  # scripted questions are noted once for all who were asked
    assert set(evolution.sizes) == set(federation.clients)
    late = [query for query in federation.asked if isinstance(query, Fitness)]
    alone = [query.population.count for query in late].count(1)
    assert alone == asked[Structure.kind] - 1 > 0


def test_a_client_that_joins_in_the_last_generation_still_counts() -> None:
    """Its structure competes with the score that it alone gave it."""

    def structure(client: str, query: Query) -> Mapping[str, np.ndarray]:
        codes = [4, 4, 0, 0, 4, 0, 0] if client == "late" else [1, 0, 0]
        return {"nodes": np.array(codes, dtype=np.uint8)}

    federation = _scripted(1, changes={Structure.kind: structure})
    evolution = Evolution(
        federation, _settings(generations=1), Scoring(True), np.random.default_rng(1)
    )
    evolution.depth = 3
    draws = iter([["c0"], ["c0", "late"]])
    federation.clients = ("c0", "late")
    evolution._active = lambda: next(draws)  # type: ignore[method-assign]
    found = evolution.run()
    assert [3, 3] in [row[row != NIL].tolist()[:2] for row in found.genes]
    assert evolution.sizes.keys() == {"c0", "late"}


@pytest.mark.parametrize(
    "nodes",
    [
        np.array([99, 0, 0], dtype=np.uint8),
        np.array([1, 1], dtype=np.uint8),
        np.array([1, 0, 0, 0], dtype=np.uint8),
        np.array([], dtype=np.uint8),
        np.array([-1, 0, 0]),
    ],
)
def test_a_client_that_sends_no_tree_is_passed_over(nodes: np.ndarray) -> None:
    """Unknown features, wrong lengths, negative codes: the others' structures serve."""
    liar = _scripted(changes={Structure.kind: {"nodes": nodes}})
    evolution = _run(liar)
    assert len(evolution.history) == 6
    assert not any(row.any() for row in [evolution._join(["c0"]).elite])


def test_scores_are_weighted_by_released_sizes() -> None:
    """Noise may make a size negative: it then counts as one."""
    sizes = {"c0": 30.0, "c1": -5.0}

    def fitness(client: str, query: Query) -> Mapping[str, np.ndarray]:
        assert isinstance(query, Fitness)
        return {"scores": np.full(query.population.count, float(client == "c0"))}

    federation = _scripted(
        2,
        changes={
            Size.kind: lambda client, _: {"size": np.array([sizes[client]])},
            Fitness.kind: fitness,
        },
    )
    assert _run(federation).history[0][0] == pytest.approx(30 / 31)


def test_more_than_half_of_the_votes_decide() -> None:
    """Two of four are not enough, three are."""

    def votes(yes: int) -> Callable[[str, Query], Mapping[str, np.ndarray]]:
        return lambda client, _: {"votes": np.full(2, float(int(client[1]) < yes))}

    for yes, expected in ((2, ("share", False)), (3, ("none", True))):
        evolution = _run(_scripted(schema=NUMBERS, changes={Votes.kind: votes(yes)}))
        assert (evolution.scoring.held, evolution.elitism) == expected


@pytest.mark.parametrize(
    "changes", [{"population": 1}, {"generations": 1}, {"leaves": 1.0}, {"pressure": 50}]
)
def test_extreme_settings_work(changes: dict[str, float], ungated: MakeUngated) -> None:
    """A population of one, one generation, all candidates nil, everybody in each tournament."""
    federation = ungated()
    settings = _settings(**changes)
    evolution = Evolution(federation, settings, Scoring(True), np.random.default_rng(0))
    assert 1 <= evolution.run().count <= settings.population


def test_the_search_improves_on_the_clients_own_structures(ungated: MakeUngated) -> None:
    """On records: the best fitness of the last generation is above that of the first."""
    settings = _settings(generations=30, deepest=6)
    evolution = Evolution(ungated(360, 6), settings, Scoring(True), np.random.default_rng(0))
    evolution.run()
    assert evolution.history[-1][0] > evolution.history[0][0]
    assert 2 <= (evolution.depth or 0) <= 6


def test_a_search_ends_where_nobody_scores_any_more() -> None:
    """What was found so far stands, and the reader is told."""
    seen: set[str] = set()

    def fitness(client: str, query: Query) -> Mapping[str, np.ndarray]:
        assert isinstance(query, Fitness)
        seen.add(query.digest)
        if len(seen) > 3:
            raise KeyError("silent")
        return {"scores": np.ones(query.population.count)}

    federation = _scripted(4, changes={Fitness.kind: fitness})
    with pytest.warns(Note, match="after generation 3"):
        evolution = _run(federation)
    assert len(evolution.history) == 3


def test_a_client_that_keeps_its_size_to_itself_weighs_little() -> None:
    """Its structure and scores count, as those of one record would."""

    def size(client: str, query: Query) -> Mapping[str, np.ndarray]:
        if client == "c1":
            raise KeyError("silent")
        return {"size": np.array([50])}

    evolution = _run(_scripted(2, changes={Size.kind: size}))
    assert evolution.sizes == {"c0": 50.0, "c1": 1.0}
