"""The genetic operators do what the paper says, and lose no gene that they should keep."""

from __future__ import annotations

import numpy as np
import pytest

from privfed.learners.genetic_tree import operators
from privfed.learners.genetic_tree.structures import NIL, length, random_structures

DEPTH, FEATURES = 5, 6


def _population(count: int = 20) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(1)
    return random_structures(count, DEPTH, FEATURES, 0.05, rng), rng


def test_a_tournament_is_won_by_the_fittest_of_those_drawn() -> None:
    """Among all, always the best; alone, anybody; of three, the best in about 3 of 20 (not 1)."""
    fitness, rng = np.arange(20.0), np.random.default_rng(0)
    assert (operators.tournaments(fitness, 50, 99, rng) == 19).all()
    assert len(set(operators.tournaments(fitness, 400, 1, rng))) == 20
    share = (operators.tournaments(fitness, 4000, 3, rng) == 19).mean()
    assert share == pytest.approx(3 / 20, abs=0.02)
    assert (operators.tournaments(fitness, 4000, 3, rng) >= 2).all()
    fitness[7] = np.nan  # an elite string that nobody scored
    assert not (operators.tournaments(fitness, 400, 3, rng) == 7).any()


def test_crossover_exchanges_the_ends_of_a_pair() -> None:
    """Each place holds the same two genes as before, the first from its own parent; an odd one stays."""
    parents, rng = _population(5)
    children = operators.crossover(parents, rng)
    for first in (0, 2):
        pair, born = parents[first : first + 2], children[first : first + 2]
        assert np.array_equal(np.sort(pair, axis=0), np.sort(born, axis=0))
        assert np.array_equal(pair[:, 0], born[:, 0])
        crossed = (pair != born).any(axis=0)
        assert not (np.diff(crossed.astype(int)) < 0).any() or (pair[0] == pair[1]).any()
    assert np.array_equal(parents[4], children[4])


def test_crossover_cuts_anywhere_but_at_an_end() -> None:
    """Of strings without a gene in common, all but the first gene and at least the last change sides."""
    parents = np.repeat([[0], [1]], 7, axis=1)
    rng = np.random.default_rng(0)
    lengths = {int(operators.crossover(parents, rng)[0].sum()) for _ in range(200)}
    assert lengths == set(range(1, 7))


def test_a_flip_changes_as_many_genes_as_it_says() -> None:
    """Each to something else: another feature, or nil."""
    genes, rng = _population()
    changed = operators.flip(genes, FEATURES, 3, rng)
    assert ((changed != genes).sum(axis=1) == 3).all()
    assert set(np.unique(changed)) <= set(range(NIL, FEATURES))
    assert {NIL, 0, FEATURES - 1} <= set(np.unique(changed[changed != genes]))


def test_a_swap_and_a_reordering_keep_all_genes() -> None:
    """They only change places, and some do."""
    genes, rng = _population()
    for changed in (operators.swap(genes, 2, rng), operators.reorder(genes, rng)):
        assert np.array_equal(np.sort(genes, axis=1), np.sort(changed, axis=1))
        assert (changed != genes).any(axis=1).mean() > 0.5


def test_each_generation_has_one_of_three_mutations() -> None:
    """Over many generations all three are seen."""
    genes, rng = _population()
    kinds = set()
    for _ in range(60):
        changed = operators.mutate(genes, FEATURES, 0.05, 0.05, rng)
        kept = np.array_equal(np.sort(genes, axis=1), np.sort(changed, axis=1))
        kinds.add((kept, bool((changed != genes).mean() > 0.2)))
    assert kinds >= {(False, False), (True, False), (True, True)}


def test_the_shortest_strings_survive_every_operator() -> None:
    """Strings of one gene cannot be cut; nothing breaks."""
    genes, rng = np.array([[0], [NIL], [1]], dtype=np.int16), np.random.default_rng(0)
    assert operators.crossover(genes, rng).tolist() == genes.tolist()
    assert operators.reorder(genes, rng).tolist() == genes.tolist()
    for _ in range(10):
        assert operators.mutate(genes, 2, 0.05, 0.05, rng).shape == genes.shape


def test_the_fittest_survive_and_equal_trees_count_once() -> None:
    """What is detached does not make a tree another one; NaN is the least fit."""
    genes = np.full((5, length(2)), NIL, dtype=np.int16)
    genes[:, 0] = [0, 1, 2, NIL, NIL]
    genes[4, 1] = 3  # detached: the same tree as the one before
    fitness = np.array([0.1, np.nan, 0.5, 0.3, 0.9])
    nobody = np.zeros(5, dtype=bool)
    assert operators.survivors(genes, fitness, 9, 2, nobody).tolist() == [2, 3, 0, 1]
    assert operators.survivors(genes, fitness, 2, 2, nobody).tolist() == [2, 3]


def test_the_elite_survives_whatever_its_fitness() -> None:
    """It takes the places of the least fit, also where an equal tree came before it."""
    genes = np.array([[0], [1], [2], [1]], dtype=np.int16)
    elite = np.array([False, False, False, True])
    fitness = np.array([0.9, 0.1, 0.5, 0.1])
    assert operators.survivors(genes, fitness, 2, 1, elite).tolist() == [0, 1]
    assert operators.survivors(genes, fitness, 1, 1, elite).tolist() == [1]
