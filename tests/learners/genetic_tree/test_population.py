"""Strangers' candidates and settings are refused before any record is read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privfed.errors import QueryError
from privfed.learners.genetic_tree.local import VoteThresholds
from privfed.learners.genetic_tree.personal import Choice
from privfed.learners.genetic_tree.population import MOST_GENES, Population, Scoring, classes
from privfed.learners.genetic_tree.queries import (
    Depth,
    Fitness,
    KeepBelow,
    KeepBest,
    Structure,
    Votes,
)
from privfed.learners.genetic_tree.structures import length
from privfed.questions.query import Query
from privfed.questions.tree import Tree
from privfed.tables.schema import Column, Schema

FEATURES = tuple(Column(name, "number", 0, 1) for name in "abc")
SCHEMA = Schema(FEATURES, Column("y", "category", categories=("no", "yes")))
NUMBERS = Schema(FEATURES, Column("y", "number", 0, 9))
SCORING = Scoring(classify=True)
GOOD = Population.of(np.array([[0, 1, -1], [2, -1, 0]]), 2)


def _codes(*codes: int, count: int = 1, depth: int = 2) -> Population:
    return Population(np.array(codes, dtype=np.uint8), depth, count)


POPULATIONS = {
    "unknown features": _codes(4, 0, 0),
    "negative codes": Population(np.array([-1, 0, 0]), 2, 1),
    "too short": _codes(1, 0),
    "too long": _codes(1, 0, 0, 0),
    "fewer trees than it says": _codes(1, 0, 0, count=2),
    "more trees than it says": _codes(0, 0),
    "no candidates": _codes(count=0),
    "depth 0": _codes(0, depth=0),
    "an absurd depth": _codes(0, depth=16),
    "a negative depth": _codes(0, depth=-3),
    "an absurd number": _codes(0, count=MOST_GENES),
    "two rows": replace(GOOD, codes=GOOD.codes.reshape(1, -1)),
    "numbers with points": replace(GOOD, codes=GOOD.codes.astype(float)),
}


@pytest.mark.parametrize("population", POPULATIONS.values(), ids=POPULATIONS)
def test_hostile_populations_are_refused(population: Population) -> None:
    """By the question to score them, and by the one to keep the best."""
    for query in (Fitness(population, SCORING), KeepBest(population, SCORING, Choice())):
        with pytest.raises(QueryError):
            query.parts(SCHEMA)


@pytest.mark.parametrize(
    "scoring",
    [
        replace(SCORING, folds=1),
        replace(SCORING, folds=10**6),
        replace(SCORING, train_share=0.0),
        replace(SCORING, train_share=float("nan")),
        replace(SCORING, held="all"),  # type: ignore[arg-type]
    ],
)
def test_hostile_settings_are_refused(scoring: Scoring) -> None:
    """Whatever question carries them."""
    for query in (Fitness(GOOD, scoring), Depth(scoring, 2, 5), Structure(scoring, 3)):
        with pytest.raises(QueryError):
            query.parts(SCHEMA)


@pytest.mark.parametrize(
    "query",
    [
        Depth(SCORING, 5, 2),
        Depth(SCORING, 0, 2),
        Depth(SCORING, 2, 16),
        Structure(SCORING, 16),
        Votes(SCORING, 3, 2, 5, VoteThresholds()),
        Votes(Scoring(classify=False), 9, 2, 5, VoteThresholds()),
        Fitness(GOOD, Scoring(classify=False, folds=1)),
        KeepBest(GOOD, SCORING, Choice(lowest=3, deepest=2)),
        KeepBest(GOOD, SCORING, Choice(leaves=1)),
    ],
)
def test_hostile_depths_are_refused(query: Query) -> None:
    """Out of range, the wrong way round, or for the wrong kind of target."""
    with pytest.raises(QueryError):
        query.parts(SCHEMA)


def test_numbers_have_no_macro_f1() -> None:
    """Classification of a numeric target is refused; of 0 and 1 it is not."""
    with pytest.raises(QueryError):
        Fitness(GOOD, SCORING).parts(NUMBERS)
    binary = Schema(FEATURES, Column("y", "integer", 0, 1))
    assert classes(binary) == 2 and Fitness(GOOD, SCORING).parts(binary)
    with pytest.raises(QueryError):
        Fitness(GOOD, SCORING).parts(Schema(FEATURES))


def test_a_shared_tree_is_held_to_its_values() -> None:
    """Values must be finite, one row for each node; the tree small, binary, and of known features."""
    tree = Tree.binary(
        *(np.array(each) for each in ([0, -1, -1], [0.5, 0, 0], [1, 0, 0], [2, 0, 0]))
    )
    values = np.full((3, 2), 0.5)
    good = KeepBelow(tree, values, SCORING, 2, 5)
    assert good.parts(SCHEMA) == {}
    unknown = Tree.binary(tree.feature + np.array([3, 0, 0]), tree.cuts[:, 0], *tree.children.T)
    for wrong in (
        replace(good, values=values[:2]),
        replace(good, values=values * np.inf),
        replace(good, values=np.ones((3, 3))),
        replace(good, tree=unknown),
        replace(good, lowest=6),
        replace(good, deepest=99),
    ):
        with pytest.raises(QueryError):
            wrong.parts(SCHEMA)


def test_good_questions_pass() -> None:
    """The power twin: nothing is refused for being well formed."""
    for query in (
        Fitness(GOOD, SCORING),
        Depth(SCORING, 2, 15),
        Structure(SCORING, 15),
        Votes(Scoring(classify=False), 3, 2, 5, VoteThresholds()),
        KeepBest(GOOD, SCORING, Choice()),
    ):
        schema = NUMBERS if isinstance(query, Votes) else SCHEMA
        query.parts(schema)
    assert Fitness(GOOD, SCORING).parts(SCHEMA)["scores"].shape == (2,)


def test_the_longest_strings_are_as_long_as_it_says() -> None:
    """Depth 15 is 32,767 genes; a population of them is bounded."""
    whole = Population.of(np.full((2, length(15)), -1, dtype=np.int16), 15)
    Fitness(whole, SCORING).parts(SCHEMA)
    assert len(whole.codes) == 2
    assert whole.genes.shape == (2, 32_767)
