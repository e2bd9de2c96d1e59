"""The server's own draws: features of a node, clients of a tree.

Each is a hash of what it is for, not the next number of a stream: a node's features do not change
because another node closed a round earlier.
"""

import numpy as np

_U64 = np.uint64
_GOLDEN = _U64(0x9E3779B97F4A7C15)


def mixed(values: np.ndarray) -> np.ndarray:
    """Hash whole numbers to 64 bits (the finalizer of splitmix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        z = values.astype(_U64) + _GOLDEN
        z = (z ^ (z >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> _U64(27))) * _U64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> _U64(31)))


def children(names: np.ndarray) -> np.ndarray:
    """Names of the left and right child of each named node, shape (nodes, 2)."""
    return mixed(names[:, None] ^ mixed(np.arange(1, 3)))


def ranking(names: np.ndarray, size: int) -> np.ndarray:
    """A drawn order of ``size`` things for each name, shape (names, size)."""
    keys = mixed(names[:, None] ^ mixed(np.arange(3, 3 + size)))
    return np.argsort(keys, axis=1)


def roots(seed: int, trees: int) -> np.ndarray:
    """Names of the roots of so many trees."""
    return mixed(mixed(np.array([seed % 2**63]))[0] ^ mixed(np.arange(trees) + 2**32))
