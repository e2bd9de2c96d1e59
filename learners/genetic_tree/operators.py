"""Operators of the genetic algorithm on strings (paper, Sections III-C and III-D)."""

from itertools import permutations

import numpy as np

from privfed.learners.genetic_tree.structures import trimmed


def tournaments(
    fitness: np.ndarray, count: int, contestants: int, rng: np.random.Generator
) -> np.ndarray:
    """Return winners of `count` tournaments among ``pressure`` random strings (s), distinct if possible.

    `fitness` has shape (candidates,); higher is better.
    """
    size = min(contestants, len(fitness))
    drawn = np.argsort(rng.random((count, len(fitness))), axis=1)[:, :size]
    scores = np.nan_to_num(fitness, nan=-np.inf)  # an elite string without a score wins nothing
    return np.asarray(drawn[np.arange(count), np.argmax(scores[drawn], axis=1)])


def crossover(parents: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Apply one-point crossover to each string and the next one; a last odd one is unchanged."""
    children, genes = parents.copy(), parents.shape[1]
    for first in range(0, len(parents) - 1 if genes > 1 else 0, 2):
        cut = int(rng.integers(1, genes))
        children[first : first + 2, cut:] = parents[[first + 1, first], cut:]
    return children


def mutate(
    genes: np.ndarray, features: int, flips: float, swaps: float, rng: np.random.Generator
) -> np.ndarray:
    """Apply one of the three mutations, drawn for each generation, to every string.

    Args:
        genes: the offspring, shape (candidates, 2^depth - 1).
        features: number of features.
        flips, swaps: m_1 and m_2, fractions of the string; at least one gene, or one swap.
    """
    length = genes.shape[1]
    kind = int(rng.integers(3))
    if kind == 0:
        return flip(genes, features, max(1, round(flips * length)), rng)
    if kind == 1:
        return swap(genes, max(1, round(swaps * length)), rng)
    return reorder(genes, rng)


def flip(genes: np.ndarray, features: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Apply node flip: ``count`` genes of each string become another feature, or nil."""
    changed = genes.copy()
    positions = np.argsort(rng.random(genes.shape), axis=1)[:, :count]
    old = np.take_along_axis(genes, positions, axis=1).astype(np.int64) + 1
    other = (old + rng.integers(1, features + 1, old.shape)) % (features + 1) - 1
    np.put_along_axis(changed, positions, other.astype(genes.dtype), axis=1)
    return changed


def swap(genes: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Apply node swap: two genes of each string are exchanged, ``count`` times."""
    changed, rows = genes.copy(), np.arange(len(genes))
    for _ in range(count):
        first, second = rng.integers(0, genes.shape[1], (2, len(genes)))
        changed[rows, first], changed[rows, second] = changed[rows, second], changed[rows, first]
    return changed


def reorder(genes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Apply substring swap: each string is cut into three parts, concatenated in another order."""
    changed = genes.copy()
    for row in changed if genes.shape[1] > 2 else ():
        cuts = np.sort(rng.choice(np.arange(1, genes.shape[1]), 2, replace=False))
        pieces = np.split(row.copy(), cuts)
        order = list(permutations(range(3)))[1 + int(rng.integers(5))]  # not the first, their own
        row[:] = np.concatenate([pieces[number] for number in order])
    return changed


def survivors(
    genes: np.ndarray, fitness: np.ndarray, size: int, depth: int, elite: np.ndarray
) -> np.ndarray:
    """Return surviving rows, fittest first: the elite at any fitness, and the fittest others.

    A population is a set: of equal trees the first (oldest) survives.

    Args:
        genes: parents and offspring, shape (candidates, 2^depth - 1).
        fitness: higher is better; NaN if unknown.
        size: P, number of survivors, unless the elite is larger.
        depth: of the strings.
        elite: rows that always survive (paper, Section III-C), shape (candidates,), booleans.
    """
    oldest = dict[bytes, int]()
    trees = enumerate(trimmed(genes, depth))
    owner = np.array([oldest.setdefault(tree.tobytes(), row) for row, tree in trees], dtype=int)
    first = np.array(list(oldest.values()), dtype=int)
    first = first[np.argsort(-np.nan_to_num(fitness[first], nan=-np.inf), kind="stable")]
    kept = np.isin(first, owner[elite])
    others = np.cumsum(~kept) <= size - kept.sum()
    return np.asarray(first[kept | others])
