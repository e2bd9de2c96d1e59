"""Structures: binary trees of features without thresholds, as strings (paper, Section III-A).

A tree of depth d is a string of 2^d - 1 genes, its decision nodes in pre-order: a feature's number, or nil at the end
of a branch. Genes below a nil are detached; crossover may reconnect them. Strings are limited to depth 15, the paper's
maximum; messages have only a tree's connected nodes.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

NIL = -1  #: The gene of a missing node
DEEPEST = 15  #: Maximum depth, so that no string is longer than 32,767 genes
MOST_FEATURES = 32_767  #: Maximum features that a gene can represent


def length(depth: int) -> int:
    """Return the number of genes of a string, 2^depth - 1."""
    return int(2**depth - 1)


@lru_cache(maxsize=DEEPEST)
def spans(depth: int) -> np.ndarray:
    """Return the number of genes of the subtree at each position, including it, shape (2^depth - 1,)."""
    sizes = np.array([1], dtype=np.int64)
    for level in range(2, depth + 1):
        sizes = np.concatenate([[length(level)], sizes, sizes])
    sizes.setflags(write=False)
    return sizes


def levels(depth: int) -> Iterator[np.ndarray]:
    """Yield positions of each level: a left child at p + 1, the right one after the left subtree."""
    p = np.zeros(1, dtype=np.int64)
    for level in range(depth):
        yield p
        half = length(depth - level - 1)
        p = np.column_stack([p + 1, p + 1 + half]).ravel()


def connected(genes: np.ndarray, depth: int) -> np.ndarray:
    """Return which genes are decision nodes connected to the root, shape (candidates, 2^depth - 1)."""
    alive = np.zeros(genes.shape, dtype=bool)
    upper = np.ones((len(genes), 1), dtype=bool)
    for p in levels(depth):
        alive[:, p] = np.repeat(upper, len(p) // upper.shape[1], axis=1) & (genes[:, p] != NIL)
        upper = alive[:, p]
    return alive


def trimmed(genes: np.ndarray, depth: int) -> np.ndarray:
    """Return the same trees with nil for detached genes, so that equal trees are equal strings."""
    return np.asarray(np.where(connected(genes, depth), genes, NIL).astype(np.int16))


def pack(genes: np.ndarray, depth: int) -> np.ndarray:
    """Return connected nodes of trees of shape (candidates, 2^depth - 1) in pre-order, concatenated.

    Codes are genes plus one, 0 if a branch ends early; bytes if they fit.
    """
    alive = connected(genes, depth)
    listed = alive.copy()
    listed[:, 0] = True
    for upper, lower in _pairs(depth):
        listed[:, lower] = np.repeat(alive[:, upper], 2, axis=1)
    codes = np.where(alive, genes, NIL)[listed].astype(np.int64) + 1
    kind = np.uint8 if codes.max(initial=0) < 256 else np.int64
    return np.asarray(codes.astype(kind))


def _pairs(depth: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield neighbouring levels' positions."""
    upper = np.zeros(0, dtype=np.int64)
    for lower in levels(depth):
        if len(upper):
            yield upper, lower
        upper = lower


def positions(codes: np.ndarray, depth: int) -> np.ndarray:
    """Return each code's position, and the end: whole trees if it is a multiple of the strings' length."""
    sizes, genes = spans(depth).tolist(), length(depth)
    end, ends = 0, [0]
    for code in codes.tolist():
        end += 1 if code else sizes[end % genes]
        ends.append(end)
    return np.array(ends, dtype=np.int64)


def unpack(codes: np.ndarray, ends: np.ndarray, depth: int) -> np.ndarray:
    """Invert :func:`pack`, given its :func:`positions`; shape (candidates, 2^depth - 1)."""
    genes = np.full(int(ends[-1]), NIL, dtype=np.int16)
    genes[ends[:-1]] = codes.astype(np.int64) - 1
    return genes.reshape(-1, length(depth))


def of_tree(feature: np.ndarray, left: np.ndarray, right: np.ndarray, depth: int) -> np.ndarray:
    """Return the string of a tree given by its nodes (negative features at leaves), shape (2^depth - 1,)."""
    genes = np.full(length(depth), NIL, dtype=np.int16)
    open_ = [(0, 0, length(depth))]
    while open_:
        node, pos, span = open_.pop()
        if span == 0 or feature[node] < 0:
            continue
        genes[pos], half = feature[node], span // 2
        open_ += [(int(left[node]), pos + 1, half), (int(right[node]), pos + 1 + half, half)]
    return genes


def random_structures(
    count: int, depth: int, features: int, leaves: float, rng: np.random.Generator
) -> np.ndarray:
    """Draw by the paper's Initializer: random features, then a fraction `leaves` (r_l) of the genes set to nil."""
    genes = rng.integers(0, features, (count, length(depth))).astype(np.int16)
    genes[rng.random(genes.shape) < leaves] = NIL
    return genes
